"""Random draws exactly as the standard library makes them, without its call overhead.

`random.Random` spends most of a shuffle in its own Python code. These functions take the generator's `getrandbits`
and consume it as `randint` and `shuffle` of CPython 3.11 to 3.13 do, so they may be mixed freely with its methods.
"""

from collections.abc import Callable, MutableSequence


def randbelow(n: int, getrandbits: Callable[[int], int]) -> int:
    """An integer in [0, n), n >= 1: `randint(a, b)` is `a + randbelow(b - a + 1, ...)`."""
    bits = n.bit_length()
    drawn = getrandbits(bits)
    while drawn >= n:
        drawn = getrandbits(bits)
    return drawn


def shuffle(items: MutableSequence, getrandbits: Callable[[int], int]):
    """Shuffles in place, as `random.Random.shuffle`."""
    last = len(items) - 1
    while last > 0:
        bits = (last + 1).bit_length()
        next_last = (1 << (bits - 1)) - 2
        for i in range(last, next_last, -1):  # every i whose i + 1 has this bit length
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            items[i], items[j] = items[j], items[i]
        last = next_last
