"""The vocabulary as a tree of characters, for tokenizers that are graphs of integers.

In: a vocabulary and the tables of characters. Out: arrays for a search of the longest WordPieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from official_bert.graph_text.character_classes import PAGE_SIZE, CharacterTables

_SURROGATES = range(0xD800, 0xE000)
_FIRST_PRIVATE_CODE = 0xF0000
NUM_CODES = 1 << 21  # the unit of a state in the keys of the tree
# The first states: where no WordPiece leads, the start of a word, and that of its other pieces.
DEAD, WORD_ROOT, REST_ROOT = range(3)


class VocabularyTree(NamedTuple):
    """The vocabulary as a tree of characters, whose nodes are states.

    Attributes:
        keys: int64[edges], state * NUM_CODES + code point.
        targets: int64[edges], the states to which the edges lead.
        ids: int64[states], the id of the WordPiece that ends in each state; -1 for none.
        depth: the length of the longest WordPiece.
    """

    keys: np.ndarray
    targets: np.ndarray
    ids: np.ndarray
    depth: int


def build_tree(vocab: Mapping[str, int]) -> VocabularyTree:
    """Build the tree of a vocabulary.

    Args:
        vocab: WordPiece -> id. Those that continue a word begin with "##".
    """
    targets: dict[int, int] = {}
    ids = {DEAD: -1, WORD_ROOT: -1, REST_ROOT: -1}
    depth = 1
    for piece, number in vocab.items():
        state = WORD_ROOT
        characters = piece
        if piece.startswith("##") and piece != "##":
            state = REST_ROOT
            characters = piece.removeprefix("##")
        for character in characters:
            code = ord(character)
            key = state * NUM_CODES + code
            state = targets.setdefault(key, len(ids))
            ids.setdefault(state, -1)
        if characters:
            ids[state] = number
        depth = max(depth, len(characters))
    return VocabularyTree(
        keys=np.array([*targets], np.int64),
        targets=np.array([*targets.values()], np.int64),
        ids=np.array([*ids.values()], np.int64),
        depth=depth,
    )


def list_known_codes(tables: CharacterTables, vocab: Mapping[str, int]) -> tuple[np.ndarray, int]:
    """List the code points that the graph distinguishes.

    All others are letters that the tokenizer doesn't change, and that no WordPiece has. The graph
    replaces them by one of them.

    Args:
        tables: the tables of the characters.
        vocab: the vocabulary.

    Returns:
        The code points in ascending order, and the one that stands for all others.
    """
    page_starts = tables.pages[:, None] * PAGE_SIZE
    index = page_starts + np.arange(PAGE_SIZE)
    classes = tables.classes[index].ravel()
    outputs = tables.outputs[index].ravel()
    is_known = (classes != 1) | (outputs != 0)
    for piece in vocab:
        for character in piece:
            is_known[ord(character)] = True
    is_known[_SURROGATES.start : _SURROGATES.stop] = False
    is_known_private = is_known[_FIRST_PRIVATE_CODE:]
    other = _FIRST_PRIVATE_CODE + int(np.argmin(is_known_private))
    known_codes = np.flatnonzero(is_known)
    return known_codes, other
