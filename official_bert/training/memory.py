"""The memory of a process: a heap that keeps what large tensors free, and the peak that the
devices had.
"""

import ctypes
import functools
import mmap
import os
import pathlib
import platform
import resource
import sys

import keras
import tensorflow as tf
from absl import logging

# Variables by which a user chooses an allocator, or how it works.
SETTINGS = "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_"
# Parameters of glibc's mallopt, by their numbers in malloc.h.
_ONE_ARENA = -8, 1  # the heaps of further arenas are returned when they are empty
_NO_MAPPINGS = -4, 0  # of single large blocks
_NEVER_TRIM = -1, -1
_GROW_BY_64_MB = -2, 64 << 20
_OVERCOMMIT = pathlib.Path("/proc/sys/vm/overcommit_memory")
_STRICT = "2"  # the system counts what is promised as if it were used
_MB = 1e6
_RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of one in ru_maxrss


@functools.cache
def keep_freed_memory() -> bool:
    """Prepares the heap of this process before the first operation of TensorFlow, and returns
    whether it keeps memory.

    Nothing is changed if a GPU computes, if the environment configures the allocator, or without
    glibc.
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
    """Makes the heap `size` bytes larger, of which none is used yet, and asks for large pages
    there.
    """
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.malloc(size)
    if not start:  # the process has a limit
        return
    # A block that stays behind the space: malloc_trim, which other libraries call, would cut off a
    # free end.
    while (block := libc.malloc(1 << 20)) and block < start:  # in a hole between older blocks
        pass
    margin = -start % mmap.PAGESIZE
    libc.madvise(
        start + margin, (size - margin) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE
    )
    libc.free(start)


def peak_memory() -> dict[str, float]:
    """Returns the peak of resident memory and, with GPUs, of the fullest GPU, in megabytes of
    10^6 bytes.
    """
    peak = {"memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT / _MB}
    if gpus := tf.config.list_logical_devices("GPU"):
        peaks = [tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus]
        peak["gpu_memory_mb"] = max(peaks) / _MB
    return peak


def forget_models():
    """Lets go of what TensorFlow and Keras keep of models, so that their weights can be freed."""
    try:
        # The table of gradients, which has no public name, holds a custom one, and with it a
        # model's graph, for good.
        from tensorflow.python.framework.ops import gradient_registry

        gradients = gradient_registry._registry
    except (ImportError, AttributeError):
        logging.warning(
            "This TensorFlow keeps every model of a search in memory; run large searches in parts"
        )
        gradients = {}
    for name in [name for name in gradients if name.startswith("CustomGradient-")]:
        del gradients[name]
    keras.backend.clear_session()  # collects garbage, too
