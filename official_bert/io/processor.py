"""The instructions of this machine's processor."""

import pathlib

CPU_INFO = pathlib.Path("/proc/cpuinfo")


def instruction_sets() -> frozenset[str]:
    """Returns the instructions that the processor has, by Linux's names such as avx512_bf16.

    The result is empty on systems other than Linux.
    """
    if not CPU_INFO.exists():
        return frozenset()
    for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
