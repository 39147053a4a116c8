"""Texts and the vectors of their tokens in a file, made a few texts at a time, and searched."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Self

import numpy as np

from official_bert.extensions.late_interaction.residual_codec import (
    MOST_SAMPLES,
    RESIDUAL_BITS,
    ResidualCodec,
)
from official_bert.extensions.late_interaction.token_vectors import TokenVectors
from official_bert.io import writing
from official_bert.io.arrays import read_npz
from official_bert.io.errors import InputError

FLOAT_BITS = 32


@dataclasses.dataclass(frozen=True)
class TokenIndex:
    """Texts and the vectors of their tokens.

    Attributes:
        texts: the texts.
        vectors: their vectors.
    """

    texts: Sequence[str]
    vectors: TokenVectors

    def write(self, path: str) -> None:
        """Write the index as an .npz file, which `TokenVectors.load` reads, too.

        Args:
            path: the path of the file.
        """
        encoded_texts = [text.encode() for text in self.texts]
        content = b"".join(encoded_texts)
        ends = np.cumsum([len(text) for text in encoded_texts], dtype=np.int64)
        with writing.replacing(path, "wb") as file:
            np.savez(
                file,
                texts=np.frombuffer(content, np.uint8),
                ends=ends,
                **self.vectors.arrays(),
            )

    @classmethod
    def read(cls, path: str) -> Self:
        """Read an index.

        Args:
            path: the path of the file.

        Raises:
            InputError: the file is missing, or is no index.
        """
        remedy = f"write it again with official-bert predict --token_index={path}"
        vectors = TokenVectors.load(path)
        arrays = read_npz(path, ("texts", "ends"), remedy)
        ends = arrays["ends"]
        content = arrays["texts"].tobytes()
        is_valid = ends.dtype == np.int64 and ends.shape == (len(vectors),)
        bounds = [0, *ends.tolist()] if is_valid else []
        if bounds != sorted(bounds) or not bounds or bounds[-1] != len(content):
            raise InputError(f"{path}: its texts and vectors do not fit; {remedy}")
        try:
            texts = [content[start:end].decode() for start, end in itertools.pairwise(bounds)]
        except UnicodeDecodeError:
            raise InputError(f"{path}: its texts are no UTF-8; {remedy}") from None
        return cls(texts, vectors)


class TokenBlockEncoder:
    """Encodes the vectors of texts in few bits, some texts at a time.

    With 4 or 2 bits, the first 65,536 vectors are in memory as float32; their codec encodes all.
    """

    def __init__(self, bits: int):
        """Creates an encoder without texts.

        Args:
            bits: the bits of a component: 32, 8, 4 or 2.
        """
        self._bits = bits
        self._codec: ResidualCodec | None = None
        self._waiting: list[TokenVectors] = []
        self._parts: list[TokenVectors] = []

    def add(self, vectors: TokenVectors) -> None:
        """Adds texts.

        Args:
            vectors: the float32 vectors of the texts.
        """
        self._waiting.append(vectors)
        needs_codec = self._bits in RESIDUAL_BITS and self._codec is None
        num_waiting = sum(len(part.values) for part in self._waiting)
        if not needs_codec or num_waiting >= MOST_SAMPLES:
            self._encode_waiting()

    def finish(self) -> TokenVectors:
        """Returns the vectors of all texts, of which there is one at least."""
        self._encode_waiting()
        return TokenVectors.join(self._parts)

    def _encode_waiting(self) -> None:
        """Encodes the texts that were added since the last call."""
        if not self._waiting:
            return
        vectors = TokenVectors.join(self._waiting)
        self._waiting = []
        if self._bits == FLOAT_BITS:
            self._parts.append(vectors)
            return
        if self._bits in RESIDUAL_BITS and self._codec is None:
            self._codec = ResidualCodec.learn(vectors.values, self._bits)
        self._parts.append(vectors.quantize(self._bits, self._codec))
