"""A heap that keeps the memory of freed tensors, for computations on CPUs; off by default.

A step frees every tensor that it has made. The C library returns the memory of large tensors to the
system. The next step gets new pages, which the system first fills with zeros. With
OFFICIAL_BERT_TUNE_HEAP=1 in the environment, the heap keeps freed memory. docs/performance.md says
when that makes training faster.
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
# Beginnings of environment variables that choose or configure an allocator.
ALLOCATOR_SETTINGS = "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_"
# Parameters of glibc's mallopt, by their numbers in malloc.h.
_ONE_ARENA = -8, 1  # M_ARENA_MAX: other arenas would return their empty heaps
_NO_MAPPINGS = -4, 0  # M_MMAP_MAX: a large block has no mapping of its own
_NEVER_TRIM = -1, -1  # M_TRIM_THRESHOLD
_GROW_BY_64_MB = -2, 64 << 20  # M_TOP_PAD
_OVERCOMMIT = pathlib.Path("/proc/sys/vm/overcommit_memory")
_STRICT = "2"  # the system counts reserved memory as if it were used


@functools.cache
def tune() -> bool:
    """Makes the heap of this process keep freed memory, if the environment variable is 1.

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
    """Makes the heap `size` bytes larger, and requests large pages for them.

    These bytes take no memory until they are used.
    """
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.malloc(size)
    if not start:  # the memory of the process is limited
        return
    # Keep a block after this space in use. Otherwise the space would be the free end of the heap,
    # and malloc_trim, which other libraries call, would return it. A block before `start` only
    # fills a gap between older blocks, so the loop goes on.
    while (block := libc.malloc(1 << 20)) and block < start:
        pass
    margin = -start % mmap.PAGESIZE
    libc.madvise(
        start + margin, (size - margin) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE
    )
    libc.free(start)
