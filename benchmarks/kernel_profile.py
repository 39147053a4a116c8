"""Measures the time of each kernel on an NVIDIA GPU, with the activity records of CUPTI."""

import collections
import ctypes
import ctypes.util
import pathlib
import re
import sys

# The numbers and the offsets in bytes are those of cupti_activity.h of CUDA 13. All records have
# their start and end at the same place.
_KINDS = {10: "kernel", 1: "memcpy", 2: "memset"}
_START_OFFSET = 16
_END_OFFSET = 24
_NAME_OFFSET = 104  # of a kernel
_BUFFER_BYTES = 8 << 20
_REQUEST_TYPE = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_COMPLETE_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
_CLASSES = {
    "matrix product": r"gemm|nvjet|cutlass|xmma|cublas|splitK|wgmma",
    "attention": r"cudnn|flash|fmha|sdpa",
    "memory": r"memcpy|memset|copy",
    "transpose": r"transpose",
    "column or row sum": r"reduce",
    "softmax": r"softmax",
    "random bits": r"rng|philox|while|wrapped_",
}  # class of kernels: a pattern of their names


class KernelProfile:
    """A context in which the time of each kernel is recorded.

    Attributes:
        nanoseconds: the time of all calls, by the name of the kernel.
        counts: the number of calls, by the name of the kernel.
    """

    def __init__(self):
        self.nanoseconds = collections.Counter()
        self.counts = collections.Counter()
        self._cupti = ctypes.CDLL(_find_library())
        self._buffers = {}
        self._request = _REQUEST_TYPE(self._allocate_buffer)
        self._complete = _COMPLETE_TYPE(self._read_buffer)
        self._call("cuptiActivityRegisterCallbacks", self._request, self._complete)

    def __enter__(self):
        for kind in _KINDS:
            self._call("cuptiActivityEnable", kind)
        return self

    def __exit__(self, *_):
        self._call("cuptiActivityFlushAll", 1)
        for kind in _KINDS:
            self._call("cuptiActivityDisable", kind)

    def rows(self, num_steps: int) -> list[list]:
        """Returns the name, the microseconds and the number of calls of each kernel in one step,
        the longest first.
        """
        return [
            [name, round(total / 1000 / num_steps, 2), round(self.counts[name] / num_steps, 2)]
            for name, total in self.nanoseconds.most_common()
        ]

    def _call(self, function: str, *arguments):
        status = getattr(self._cupti, function)(*arguments)
        if status:
            raise OSError(f"{function} of CUPTI returns the status {status}")

    def _allocate_buffer(self, buffer, size, max_records):
        memory = (ctypes.c_uint64 * (_BUFFER_BYTES // 8))()
        address = ctypes.addressof(memory)
        self._buffers[address] = memory
        buffer[0] = address
        size[0] = _BUFFER_BYTES
        max_records[0] = 0  # as many as fit

    def _read_buffer(self, context, stream, buffer, size, valid_size):
        record = ctypes.c_void_p()
        get_next = self._cupti.cuptiActivityGetNextRecord
        arguments = ctypes.c_void_p(buffer), ctypes.c_size_t(valid_size), ctypes.byref(record)
        while get_next(*arguments) == 0:
            name, nanoseconds = read_record(record.value)
            if name:
                self.nanoseconds[name] += nanoseconds
                self.counts[name] += 1
        self._buffers.pop(buffer, None)


def read_record(address: int) -> tuple[str, int]:
    """Returns the name of the kernel of an activity record, and its nanoseconds.

    Args:
        address: the address of the record.

    Returns:
        The kind of the record instead of a missing name, and an empty name for other records.
    """
    name = _KINDS.get(ctypes.c_uint32.from_address(address).value, "")
    start = ctypes.c_uint64.from_address(address + _START_OFFSET).value
    end = ctypes.c_uint64.from_address(address + _END_OFFSET).value
    if name == "kernel":
        name_address = ctypes.c_uint64.from_address(address + _NAME_OFFSET).value
        if name_address:
            name = ctypes.string_at(name_address).decode()
    return name, end - start


def _find_library() -> str:
    """Returns the path of CUPTI, which is in one of NVIDIA's packages for Python."""
    folders = [pathlib.Path(folder) for folder in sys.path if folder]
    matches = [
        match for folder in folders for match in sorted(folder.glob("nvidia/*/lib/libcupti.so.*"))
    ]
    return str(matches[-1]) if matches else ctypes.util.find_library("cupti") or "libcupti.so"


def milliseconds_by_class(rows: list[list]) -> dict[str, float]:
    """Returns the milliseconds of the kernels of each class; the class follows from the name."""
    totals = collections.Counter()
    for name, microseconds, _ in rows:
        totals[_classify(name)] += microseconds / 1000
    return {kind: round(total, 3) for kind, total in totals.most_common()}


def _classify(name: str) -> str:
    for kind, pattern in _CLASSES.items():
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "other"
