"""A heap that keeps the memory of freed tensors, for computations on CPUs; off by default.

A step frees every tensor that it has made. The C library returns the memory of large ones to the
system, and the next step gets other pages, which the system first fills with zeros. With
OFFICIAL_BERT_TUNE_HEAP=1 in the environment, the heap keeps what is freed. docs/performance.md says
when that pays.
"""

import ctypes
import functools
import mmap
import os
import pathlib
import platform

import tensorflow as tf

from official_bert.io.errors import InputError

SWITCH = "OFFICIAL_BERT_TUNE_HEAP"
# Variables by which a user chooses an allocator, or how it works.
ALLOCATOR_SETTINGS = "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_"
# Parameters of glibc's mallopt, by their numbers in malloc.h.
_ONE_ARENA = -8, 1  # the heaps of further arenas are returned when they are empty
_NO_MAPPINGS = -4, 0  # of single large blocks
_NEVER_TRIM = -1, -1
_GROW_BY_64_MB = -2, 64 << 20
_OVERCOMMIT = pathlib.Path("/proc/sys/vm/overcommit_memory")
_STRICT = "2"  # the system counts reserved memory as if it were used


@functools.cache
def tune() -> bool:
    """Prepares the heap of this process, if the user has switched that on.

    Call it before the first operation of TensorFlow. Nothing changes if a GPU computes, if the
    environment configures the allocator, or without glibc.

    Returns:
        Whether the heap keeps freed memory.

    Raises:
        InputError: the environment variable has another value than 0 or 1.
    """
    if not _is_switched_on() or platform.libc_ver()[0] != "glibc":
        return False
    if any(name.startswith(ALLOCATOR_SETTINGS) for name in os.environ):
        return False
    if tf.config.list_physical_devices("GPU"):
        return False
    libc = ctypes.CDLL(None)
    for setting in (_ONE_ARENA, _NO_MAPPINGS, _NEVER_TRIM, _GROW_BY_64_MB):
        libc.mallopt(*setting)
    if not _OVERCOMMIT.exists() or _OVERCOMMIT.read_text().strip() != _STRICT:
        _use_large_pages(libc, os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2)
    return True


def _is_switched_on() -> bool:
    value = os.environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise InputError(f"{SWITCH}={value}: must be 0 or 1 in the environment")
    return value == "1"


def _use_large_pages(libc: ctypes.CDLL, size: int):
    """Makes the heap `size` bytes larger and asks for large pages there.

    None of these bytes takes memory before it is used.
    """
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.malloc(size)
    if not start:  # the process has a limit
        return
    # A block after this space stays in use: malloc_trim, which other libraries call, would cut off
    # a free end. A block before `start` lies in a hole between older blocks.
    while (block := libc.malloc(1 << 20)) and block < start:
        pass
    margin = -start % mmap.PAGESIZE
    libc.madvise(
        start + margin, (size - margin) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE
    )
    libc.free(start)
