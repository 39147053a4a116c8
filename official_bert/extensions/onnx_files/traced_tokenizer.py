"""A tokenizer in a traced graph, whose calls are written into an ONNX graph.

The windows and the inputs of the encoder are made from its results by graph_text, and written
operation by operation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official_bert.extensions.onnx_files.onnx_operations import OperationWriter
from official_bert.extensions.onnx_files.onnx_tokenizer import OnnxTokenizer
from official_bert.extensions.onnx_files.onnx_translator import (
    TracedCall,
    make_call,
    make_placeholder,
)
from official_bert.graph_text.graph_tokenizer import (
    Characters,
    GraphTokenizer,
    SplitTexts,
    Tokens,
    WordPieces,
)
from official_bert.tokenization import FullTokenizer


class TracedTokenizer(GraphTokenizer):
    """A tokenizer that records its calls.

    Attributes:
        calls: the calls, in their order.
    """

    def __init__(self, tokenizer: FullTokenizer):
        """Makes a tokenizer without calls, for one signature.

        Args:
            tokenizer: the tokenizer of the model.
        """
        super().__init__(tokenizer)
        self.calls: list[TracedCall] = []
        self._full_tokenizer = tokenizer
        self._split_texts: dict[tuple, SplitTexts] = {}
        self._make_writer = functools.cache(OnnxTokenizer)

    def split(self, texts: tf.Tensor, is_each_alone: bool = False) -> SplitTexts:
        """Splits texts; see `GraphTokenizer.split`. Equal calls have one result."""
        key = (texts.ref(), is_each_alone)
        if key not in self._split_texts:
            self._split_texts[key] = self._split(texts, is_each_alone)
        return self._split_texts[key]

    def _split(self, texts: tf.Tensor, is_each_alone: bool) -> SplitTexts:
        def write(writer: OperationWriter, name: str) -> list[str]:
            graph = writer.graph
            split = self._make_writer(graph, self._full_tokenizer).split(name, is_each_alone)
            return [
                value if value == split.rows else graph.cast(value, np.int32) for value in split
            ]

        outputs = [make_placeholder(tf.int32, None) for _ in range(9)]
        codes, offsets, lengths, firsts, spans, *pieces = outputs
        rows = make_placeholder(tf.int64, None)
        self.calls.append(make_call([texts], [codes, rows, *outputs[1:]], write))
        num_texts = tf.shape(texts, tf.int64)[0]
        return SplitTexts(
            characters=Characters(
                codes=tf.RaggedTensor.from_value_rowids(codes, rows, num_texts, validate=False),
                offsets=offsets,
            ),
            tokens=Tokens(lengths, firsts, spans),
            pieces=WordPieces(*pieces),
        )

    def substrings(
        self, texts: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tf.Tensor:
        """Cuts parts out of texts; see `GraphTokenizer.substrings`."""

        def write(writer: OperationWriter, name: str, *numbers: str) -> Sequence[str]:
            graph = writer.graph
            rows, starts, ends = (graph.cast(value, np.int64) for value in numbers)
            tokenizer = self._make_writer(graph, self._full_tokenizer)
            return [tokenizer.substrings(name, rows, starts, ends)]

        parts = make_placeholder(tf.string, None)
        self.calls.append(make_call([texts, rows, starts, ends], [parts], write))
        return parts
