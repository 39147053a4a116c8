"""Pairs of a question and its document, from which a small model learns."""

import pathlib

import numpy as np


def write_pairs(path: pathlib.Path, count: int, seed: int):
    """Writes questions about a thing with the sentence that has it."""
    things = ["cat", "mat", "sunny", "park", "train", "driver", "rain", "noon", "child", "football"]
    fillers = ["the", "sat", "on", "was", "a", "day", "in", "at"]
    draws = np.random.default_rng(seed)
    lines = ["query\tdocument"]
    for _ in range(count):
        thing = draws.choice(things)
        texts = []
        for _ in range(2):
            texts.append(" ".join([*draws.choice(fillers, 3), thing, *draws.choice(fillers, 2)]))
        lines.append("\t".join(texts))
    path.write_text("".join(f"{line}\n" for line in lines))
