"""Pieces of raw text into what a model reads, inside a graph: the arrays that the scripts make in Python.

In: ragged ids, as data/text/graph_tokenizer.py gives them, and a vocabulary for the special tokens. Out: the
encoder features, padded to the longest row. Core ops of TensorFlow only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from official_bert.errors import InputError

if TYPE_CHECKING:
    from official_bert.data.text.graph_tokenizer import TextTokenizer

_WINDOWS_AT_ONCE = 32


class Windows(NamedTuple):
    """What a model reads of texts that may be too long for it.

    Attributes:
        features: `input_ids`, `input_mask` and `segment_ids`, each int32[windows, length].
        texts: int32[windows], number of the text that each is of.
        pieces: int32[windows, length], which of the text's pieces stands where; -1 where none does.
        is_own: bool[windows, length]: where the window, and no other one, speaks for the piece.
    """

    features: dict[str, tf.Tensor]
    texts: tf.Tensor
    pieces: tf.Tensor
    is_own: tf.Tensor


@dataclasses.dataclass(frozen=True)
class TextReader:
    """How an exported model reads text; tasks are handed one.

    Attributes:
        tokenizer: makes pieces of strings.
        vocab: piece -> id.
        max_seq_length: tokens that texts are cut to, or windows, special ones included.
    """

    tokenizer: TextTokenizer
    vocab: Mapping[str, int]
    max_seq_length: int

    def inputs(self, first: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """`model_inputs` of string[batch], or of pairs; a second text without a piece counts as absent."""
        encode = self.tokenizer.encode
        pair = encode(first), None if second is None else encode(second)
        return model_inputs(*pair, self.max_seq_length, self.vocab)


def model_inputs(
    first: tf.RaggedTensor, second: tf.RaggedTensor | None, max_seq_length: int, vocab: Mapping[str, int]
) -> dict[str, tf.Tensor]:
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, cut and joined as in data/text/model_inputs.py.

    Args:
        first: int32[batch, (pieces)].
        second: the same of the second texts; one without a piece counts as absent. None if there are none.
        max_seq_length: tokens, special ones included.
        vocab: with [CLS] and [SEP].

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, each int32[batch, length].
    """
    if second is None:
        return _packed([first[:, : max_seq_length - 2]], vocab)
    room, a, b = max_seq_length - 3, first.row_lengths(), second.row_lengths()
    is_pair = b > 0
    # The longer loses its last token until both fit, the second one on a tie.
    num_first = tf.where(is_pair, tf.maximum(room - b, room - room // 2), max_seq_length - 2)
    num_second = tf.maximum(room - a, room // 2)
    return _packed([_first(first, num_first), _first(second, num_second)], vocab, is_pair)


def document_windows(
    questions: tf.RaggedTensor,
    documents: tf.RaggedTensor,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    vocab: Mapping[str, int],
) -> Windows:
    """The windows of tasks/squad/windows.py: `[CLS] question [SEP] window [SEP]`; none over an empty document.

    A window owns the pieces that no other one shows more of the surroundings of ("max context").

    Args:
        questions: int32[batch, (pieces)].
        documents: int32[batch, (pieces)].
        max_seq_length: tokens of a window with its question and the special tokens.
        doc_stride: tokens from the start of a window to that of the next.
        max_query_length: where a question is cut off, in tokens.
        vocab: with [CLS] and [SEP].

    Raises:
        InputError: lengths that leave no room for a document beside the longest question, or a stride below 1.
    """
    if doc_stride < 1:
        raise InputError(f"--doc_stride={doc_stride}: windows must move on; give a number of at least 1")
    if max_seq_length - max_query_length < 4:
        raise InputError(
            f"--max_seq_length={max_seq_length}: a question of --max_query_length={max_query_length} tokens leaves "
            "no room for its document; give a larger one, or a smaller --max_query_length"
        )
    questions = questions[:, :max_query_length]
    num_pieces = tf.cast(documents.row_lengths(), tf.int32)  # [batch]
    room = max_seq_length - 3 - tf.cast(questions.row_lengths(), tf.int32)
    stride = tf.minimum(room, doc_stride)
    num_more = tf.maximum(-((room - num_pieces) // stride), 0)  # rounded up
    numbers = tf.ragged.range(tf.where(num_pieces > 0, 1 + num_more, 0))  # [batch, (windows)]
    texts = tf.cast(numbers.value_rowids(), tf.int32)  # [windows]
    starts = numbers.values * tf.gather(stride, texts)
    ends = tf.minimum(starts + tf.gather(room, texts), tf.gather(num_pieces, texts))
    pieces = tf.ragged.range(starts, ends)  # [windows, (pieces)]
    flat = _flat_places(documents, texts, pieces)
    questions = tf.gather(questions, texts)
    segments = [questions, pieces.with_values(tf.gather(documents.values, flat))]
    is_own = _has_most_context(starts, ends, pieces, flat, tf.size(documents.values))
    return _windows(segments, texts, pieces, pieces.with_values(is_own), questions.row_lengths() + 2, vocab)


def word_windows(
    ids: tf.RaggedTensor, words: tf.RaggedTensor, max_seq_length: int, vocab: Mapping[str, int]
) -> Windows:
    """The windows of tasks/tagging/windows.py over texts of one sentence each: `[CLS] window [SEP]`.

    An empty text has no window.

    A window owns the first pieces of the words that it tags.

    Args:
        ids: int32[batch, (pieces)], at least one of every word.
        words: int32[batch, (pieces)], number of the word that each is of, from 0.
        max_seq_length: tokens of a window with the special tokens, at least 3.
        vocab: with [CLS] and [SEP].
    """
    room = max_seq_length - 2
    places = _range_rows(ids)  # [batch, (pieces)]
    is_first = tf.concat([[-1], words.values], axis=0)[:-1] != words.values
    is_first |= places.values == 0
    word_starts = tf.boolean_mask(places.values, is_first)
    # A word that is too long for any window loses its last pieces.
    in_word = places.values - tf.gather(word_starts, tf.cumsum(tf.cast(is_first, tf.int32)) - 1)
    is_first = tf.boolean_mask(is_first, in_word < room)
    pieces = tf.ragged.boolean_mask(places, places.with_values(in_word < room))

    places = _range_rows(pieces)
    is_last = tf.concat([is_first, [True]], axis=0)[1:]
    starts = tf.ragged.boolean_mask(places, places.with_values(is_first))  # [batch, (words)]
    num_words = tf.cast(starts.row_lengths(), tf.int32)  # [batch]
    starts = starts.to_tensor()  # [batch, words]
    ends = 1 + tf.ragged.boolean_mask(places, places.with_values(is_last)).to_tensor(tf.int32.max - 1)
    # Where a window begins with a word, the next one begins with the first word that is not whole in it.
    following = tf.searchsorted(ends, starts + room, side="right")  # [batch, words]
    rows = _chains(following, num_words)  # [windows, 2]: text, first word
    texts = rows[:, 0]
    first, last = tf.gather_nd(starts, rows), tf.gather_nd(following, rows) - 1
    end = tf.gather_nd(ends, tf.stack([texts, last], axis=1))
    length = tf.gather(tf.cast(pieces.row_lengths(), tf.int32), texts)
    # Around them as much of the text as there is room for, as much on the left as on the right if it can.
    spare = room - (end - first)
    left = tf.minimum(first, tf.maximum(spare // 2, spare - (length - end)))
    right = tf.minimum(length - end, spare - left)
    spans = tf.ragged.range(first - left, end + right)  # [windows, (pieces)]

    window = spans.value_rowids()
    flat = _flat_places(pieces, texts, spans)
    is_own = tf.gather(is_first, flat)
    is_own &= (spans.values >= tf.gather(first, window)) & (spans.values < tf.gather(end, window))
    numbers = spans.with_values(tf.gather(pieces.values, flat))
    segments = [spans.with_values(tf.gather(ids.values, _flat_places(ids, texts, numbers)))]
    return _windows(segments, texts, numbers, spans.with_values(is_own), tf.ones_like(texts, tf.int64), vocab)


def in_batches(
    outputs: Callable[[dict[str, tf.Tensor]], tf.Tensor], features: dict[str, tf.Tensor], dtype: tf.DType
) -> tf.Tensor:
    """What a model says of windows, a few at a time: of a long text there may be any number.

    Args:
        outputs: features of some windows to a tensor[windows, ...].
        features: of all windows, none of which there may be.
        dtype: of the tensor.
    """
    num_windows = tf.shape(features["input_ids"])[0]
    num_batches = tf.maximum(1, (num_windows + _WINDOWS_AT_ONCE - 1) // _WINDOWS_AT_ONCE)

    def run(batch, found):
        rows = slice(batch * _WINDOWS_AT_ONCE, (batch + 1) * _WINDOWS_AT_ONCE)
        return batch + 1, found.write(
            batch, outputs({name: values[rows] for name, values in features.items()})
        )

    found = tf.TensorArray(dtype, num_batches, infer_shape=False)
    _, found = tf.while_loop(lambda batch, _: batch < num_batches, run, (0, found), parallel_iterations=1)
    return found.concat()


def _has_most_context(
    starts: tf.Tensor, ends: tf.Tensor, pieces: tf.RaggedTensor, flat: tf.Tensor, num_pieces: tf.Tensor
) -> tf.Tensor:
    """Whether no other window shows more of what surrounds a piece: bool[all pieces of all windows].

    Args:
        starts, ends: int32[windows].
        pieces: int32[windows, (pieces)], numbers in the document.
        flat: int[all pieces of all windows], numbers in all documents.
        num_pieces: of all documents.
    """
    window = tf.cast(pieces.value_rowids(), tf.int32)
    starts, ends = tf.gather(starts, window), tf.gather(ends, window)
    context = tf.minimum(pieces.values - starts, ends - 1 - pieces.values)
    score = tf.cast(context, tf.float64) + 0.01 * tf.cast(ends - starts, tf.float64)
    is_best = score == tf.gather(tf.math.unsorted_segment_max(score, flat, num_pieces), flat)
    best_windows = tf.where(is_best, window, tf.int32.max)
    return window == tf.gather(tf.math.unsorted_segment_min(best_windows, flat, num_pieces), flat)


def _chains(following: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The columns that are visited in each row when column c leads to column following[row, c], from the first on.

    Args:
        following: int32[batch, columns], larger than c.
        lengths: int32[batch], columns of a row that count.

    Returns:
        int32[visits, 2], row and column.
    """
    num_columns = tf.shape(following)[1]

    def visit(column, is_visited):
        is_inside = column < lengths
        is_visited |= tf.one_hot(tf.where(is_inside, column, -1), num_columns, True, False)
        leads_to = tf.gather(following, tf.minimum(column, num_columns - 1), batch_dims=1)
        return tf.where(is_inside, leads_to, column), is_visited

    _, is_visited = tf.while_loop(
        lambda column, _: tf.reduce_any(column < lengths),
        visit,
        (tf.zeros_like(lengths), tf.zeros_like(following, tf.bool)),
    )
    return tf.cast(tf.where(is_visited), tf.int32)


def _windows(
    segments: list[tf.RaggedTensor],
    texts: tf.Tensor,
    pieces: tf.RaggedTensor,
    is_own: tf.RaggedTensor,
    offsets: tf.Tensor,
    vocab: Mapping[str, int],
) -> Windows:
    """Windows whose pieces, the last segment, stand from position `offsets`, int64[windows], on."""

    def placed(values, filler):
        before = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(offsets)], filler), offsets)
        return tf.concat([before, values, tf.fill([values.nrows(), 1], filler)], axis=1).to_tensor(filler)

    return Windows(_packed(segments, vocab), texts, placed(pieces, -1), placed(is_own, False))


def _packed(
    segments: list[tf.RaggedTensor], vocab: Mapping[str, int], is_pair: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Segments between [CLS] and [SEP], as a batch.

    Args:
        segments: one or two, int32[batch, (pieces)].
        vocab: with [CLS] and [SEP].
        is_pair: bool[batch], whether the second segment is there; None where it always is.
    """
    sep = tf.fill([segments[0].nrows(), 1], vocab["[SEP]"])
    parts = [tf.fill(tf.shape(sep), vocab["[CLS]"]), segments[0], sep]
    if len(segments) == 2:
        parts.append(segments[1])
        parts.append(sep if is_pair is None else tf.ragged.boolean_mask(sep, is_pair[:, None]))
    ids = tf.concat(parts, axis=1)
    dense = ids.to_tensor()
    is_token = tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1])
    is_first = tf.sequence_mask(segments[0].row_lengths() + 2, tf.shape(dense)[1])
    return {
        "input_ids": dense,
        "input_mask": tf.cast(is_token, tf.int32),
        "segment_ids": tf.cast(is_token & ~is_first, tf.int32),
    }


def _first(rows: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """The first counts[row] values of each row."""
    places = tf.ragged.range(rows.row_lengths())
    return tf.ragged.boolean_mask(rows, places < counts[:, None])


def _range_rows(rows: tf.RaggedTensor) -> tf.RaggedTensor:
    """0, 1, ... in every row."""
    return tf.cast(tf.ragged.range(rows.row_lengths()), tf.int32)


def _flat_places(rows: tf.RaggedTensor, texts: tf.Tensor, numbers: tf.RaggedTensor) -> tf.Tensor:
    """Where the values `numbers[window]` of row `texts[window]` stand among all values: int64[all numbers]."""
    return tf.gather(rows.row_starts(), tf.gather(texts, numbers.value_rowids())) + tf.cast(
        numbers.values, tf.int64
    )
