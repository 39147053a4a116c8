"""Lets a process on the CPU keep the memory of freed tensors, in large pages.

By default the C library gives the memory of every large tensor back to the system when it is freed, so that each
training step maps it again, in pages of 4 KiB of zeros: 500 MB a step for a model of 4 layers, up to a third of the
time (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import pathlib
import platform

import tensorflow as tf

# Variables by which a user chooses an allocator, or how it works.
SETTINGS = "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_"
# Parameters of glibc's mallopt, by their numbers in malloc.h.
_ONE_ARENA = -8, 1  # the heaps of further arenas are returned when they are empty
_NO_MAPPINGS = -4, 0  # of single large blocks
_NEVER_TRIM = -1, -1
_GROW_BY_64_MB = -2, 64 << 20
_OVERCOMMIT = pathlib.Path("/proc/sys/vm/overcommit_memory")
_STRICT = "2"  # the system counts what is promised as if it were used


@functools.cache
def keep_freed_memory() -> bool:
    """Prepares the heap of this process; call it before the first operation of TensorFlow, which starts threads.

    Nothing is changed if a GPU computes, if the environment configures the allocator, or without glibc.

    Returns:
        Whether the heap keeps its memory now.
    """
    has_glibc = platform.libc_ver()[0] == "glibc"
    if not has_glibc or any(name.startswith(SETTINGS) for name in os.environ):
        return False
    if tf.config.list_physical_devices("GPU"):
        return False
    libc = ctypes.CDLL(None)
    for setting in (_ONE_ARENA, _NO_MAPPINGS, _NEVER_TRIM, _GROW_BY_64_MB):
        libc.mallopt(*setting)
    if not _OVERCOMMIT.exists() or _OVERCOMMIT.read_text().strip() != _STRICT:
        _use_large_pages(libc, os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2)
    return True


def _use_large_pages(libc: ctypes.CDLL, size: int):
    """Makes the heap `size` bytes larger, of which none is used yet, and asks for large pages there."""
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.malloc(size)
    if not start:  # the process has a limit
        return
    # A block that stays behind the space: malloc_trim, which other libraries call, would cut off a free end.
    while (block := libc.malloc(1 << 20)) and block < start:  # in a hole between older blocks
        pass
    margin = -start % mmap.PAGESIZE
    libc.madvise(start + margin, (size - margin) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
    libc.free(start)
