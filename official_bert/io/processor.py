"""The instructions of this machine's processor."""

import pathlib

CPU_INFO = pathlib.Path("/proc/cpuinfo")


def instruction_sets() -> frozenset[str]:
    """Returns the instructions that the processor has, by Linux's names such as avx512_bf16.

    The result is empty on systems other than Linux.
    """
    if not CPU_INFO.exists():
        return frozenset()
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())
