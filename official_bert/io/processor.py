"""The name and the instructions of this machine's processor."""

import pathlib
import platform

CPU_INFO = pathlib.Path("/proc/cpuinfo")


def processor_name() -> str:
    """Returns the name of the processor, by which measurements can be compared."""
    return _read_field("model name") or platform.processor() or platform.machine()


def instruction_sets() -> frozenset[str]:
    """Returns the instructions that the processor has, by Linux's names such as avx512_bf16.

    The result is empty on systems other than Linux.
    """
    return frozenset(_read_field("flags").split())


def _read_field(field: str) -> str:
    """Returns the first value of a field of Linux's description; "" if there is none."""
    if not CPU_INFO.exists():
        return ""
    for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""
