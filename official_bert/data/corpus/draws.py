"""Random draws that equal those of the standard library, without its call overhead.

`random.Random` spends most of a shuffle in its own Python code. These functions take the generator's `getrandbits`
and call it exactly as `randint` and `shuffle` of CPython 3.11 to 3.13 do. Calls of these functions and of the
generator's own methods can therefore be mixed freely.
"""

from collections.abc import Callable, MutableSequence


def randbelow(n: int, getrandbits: Callable[[int], int]) -> int:
    """Draws an integer in [0, n) for n >= 1; `randint(a, b)` is `a + randbelow(b - a + 1, ...)`."""
    bits = n.bit_length()
    drawn = getrandbits(bits)
    while drawn >= n:
        drawn = getrandbits(bits)
    return drawn


def shuffle(items: MutableSequence, getrandbits: Callable[[int], int]):
    """Shuffles `items` in place, with the draws of `random.Random.shuffle`."""
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
