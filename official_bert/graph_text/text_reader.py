"""Makes model inputs from ragged WordPiece ids inside a graph: the same arrays that the scripts
make in Python.

The encoder features are padded to the longest row. The functions use only core ops of TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from official_bert.graph_text.tokenizer import TextTokenizer

_WINDOWS_AT_ONCE = 32


class Windows(NamedTuple):
    """The windows of texts that may be longer than the model's input.

    Attributes:
        features: the encoder features, each int32[windows, length].
        texts: int32[windows], the index of each window's text in the batch.
        pieces: int32[windows, length], the index in its text of the WordPiece at each position; -1
            at positions of other tokens.
        is_own: bool[windows, length], true where this window, and no other, gives the prediction
            for the WordPiece.
    """

    features: dict[str, tf.Tensor]
    texts: tf.Tensor
    pieces: tf.Tensor
    is_own: tf.Tensor


@dataclasses.dataclass(frozen=True)
class TextReader:
    """Makes the inputs of an exported model from text; a task receives it for its text signatures.

    Its methods but `inputs` take WordPiece ids, int32[batch, (pieces)], of the tokenizer.
    """

    tokenizer: TextTokenizer
    vocab: Mapping[str, int]
    max_seq_length: int

    def inputs(self, first: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns the `inputs_of_ids` of string[batch] or of pairs; a second text without tokens
        counts as absent.
        """
        encode = self.tokenizer.encode
        return self.inputs_of_ids(encode(first), None if second is None else encode(second))

    def inputs_of_ids(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None
    ) -> dict[str, tf.Tensor]:
        """Makes `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` of ids, truncated as in
        data/model_inputs.py.

        A second text without tokens counts as absent. The result is `input_ids`, `input_mask` and
        `segment_ids`, each int32[batch, length].
        """
        if second is None:
            return _packed([first[:, : self.max_seq_length - 2]], self.vocab)
        room = self.max_seq_length - 3
        first_lengths = first.row_lengths()
        second_lengths = second.row_lengths()
        # The longer text, or the second one on a tie, loses its last token until both fit.
        max_first = tf.where(
            second_lengths > 0,
            tf.maximum(room - second_lengths, room - room // 2),
            room + 1,
        )
        max_second = tf.maximum(room - first_lengths, room // 2)
        segments = [_truncate_rows(first, max_first), _truncate_rows(second, max_second)]
        is_pair = segments[1].row_lengths() > 0
        return _packed(segments, self.vocab, is_pair)

    def document_windows(
        self,
        questions: tf.RaggedTensor,
        documents: tf.RaggedTensor,
        doc_stride: int,
        max_query_length: int,
    ) -> Windows:
        """Makes the windows of tasks/squad/windows.py, `[CLS] question [SEP] window [SEP]`.

        A WordPiece belongs to the window that shows most of the text around it ("max context"). An
        empty document has no window.
        """
        questions = questions[:, :max_query_length]
        num_pieces = tf.cast(documents.row_lengths(), tf.int32)  # [batch]
        room = self.max_seq_length - 3 - tf.cast(questions.row_lengths(), tf.int32)
        texts, starts, ends = _spans(num_pieces, room, doc_stride, fewest=0)
        pieces = tf.ragged.range(starts, ends)  # [windows, (pieces)]
        flat = _flat_indices(documents, texts, pieces)
        questions = tf.gather(questions, texts)
        segments = [questions, pieces.with_values(tf.gather(documents.values, flat))]
        is_own = _has_most_context(starts, ends, pieces, flat, tf.size(documents.values))
        return _windows(
            segments,
            texts,
            pieces,
            pieces.with_values(is_own),
            questions.row_lengths() + 2,
            self.vocab,
        )

    def text_windows(
        self, ids: tf.RaggedTensor, doc_stride: int
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Makes the windows of tasks/classification/windows.py, `[CLS] window [SEP]`; every text
        has a window.

        The result is the encoder features of all windows, and the text of each, int32[windows].
        """
        num_pieces = tf.cast(ids.row_lengths(), tf.int32)
        room = tf.fill(tf.shape(num_pieces), max(1, self.max_seq_length - 2))
        texts, starts, ends = _spans(num_pieces, room, doc_stride, fewest=1)
        pieces = tf.ragged.range(starts, ends)  # [windows, (pieces)]
        shown = pieces.with_values(tf.gather(ids.values, _flat_indices(ids, texts, pieces)))
        return _packed([shown], self.vocab), texts

    def word_windows(self, ids: tf.RaggedTensor, words: tf.RaggedTensor) -> Windows:
        """Makes the windows of tasks/tagging/windows.py, `[CLS] window [SEP]`, over texts of one
        sentence each.

        A window tags a run of words, and the first WordPieces of these words belong to it. An empty
        text has no window. `words`, int32[batch, (pieces)], is the index (from 0) of each
        WordPiece's word in its text.
        """
        room = self.max_seq_length - 2
        positions = _range_rows(ids)  # [batch, (pieces)]
        is_first = tf.concat([[-1], words.values], axis=0)[:-1] != words.values
        is_first |= positions.values == 0
        word_starts = tf.boolean_mask(positions.values, is_first)
        # A word that is longer than a window loses its last WordPieces.
        in_word = positions.values - tf.gather(
            word_starts, tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        )
        is_first = tf.boolean_mask(is_first, in_word < room)
        pieces = tf.ragged.boolean_mask(positions, positions.with_values(in_word < room))

        positions = _range_rows(pieces)
        is_last = tf.concat([is_first, [True]], axis=0)[1:]
        # [batch, (words)].
        starts = tf.ragged.boolean_mask(positions, positions.with_values(is_first))
        num_words = tf.cast(starts.row_lengths(), tf.int32)  # [batch]
        starts = starts.to_tensor()  # [batch, words]
        ends = 1 + tf.ragged.boolean_mask(positions, positions.with_values(is_last)).to_tensor(
            tf.int32.max - 1
        )
        # If a window begins with word w, the next window begins with the first word that does not
        # fit whole in it.
        following = tf.searchsorted(ends, starts + room, side="right")  # [batch, words]
        rows = _chains(following, num_words)  # [windows, 2]: text, first word
        texts = rows[:, 0]
        first, last = tf.gather_nd(starts, rows), tf.gather_nd(following, rows) - 1
        end = tf.gather_nd(ends, tf.stack([texts, last], axis=1))
        length = tf.gather(tf.cast(pieces.row_lengths(), tf.int32), texts)
        # The window is filled up with the text around its words, if possible equally on the left
        # and on the right.
        spare = room - (end - first)
        left = tf.minimum(first, tf.maximum(spare // 2, spare - (length - end)))
        right = tf.minimum(length - end, spare - left)
        spans = tf.ragged.range(first - left, end + right)  # [windows, (pieces)]

        window = spans.value_rowids()
        flat = _flat_indices(pieces, texts, spans)
        is_own = tf.gather(is_first, flat)
        is_own &= (spans.values >= tf.gather(first, window)) & (
            spans.values < tf.gather(end, window)
        )
        numbers = spans.with_values(tf.gather(pieces.values, flat))
        segments = [spans.with_values(tf.gather(ids.values, _flat_indices(ids, texts, numbers)))]
        return _windows(
            segments,
            texts,
            numbers,
            spans.with_values(is_own),
            tf.ones_like(texts, tf.int64),
            self.vocab,
        )


def _spans(
    num_pieces: tf.Tensor, room: tf.Tensor, doc_stride: int, fewest: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts texts into overlapping spans of at most `room` pieces; a text without pieces has
    `fewest` spans, 0 or 1.

    The arguments are int32[batch]; the result is the text, the start and the end of each span,
    int32[spans].
    """
    stride = tf.minimum(room, doc_stride)
    num_more = tf.maximum(-((room - num_pieces) // stride), 0)  # rounded up
    numbers = tf.ragged.range(tf.where(num_pieces > 0, 1 + num_more, fewest))  # [batch, (spans)]
    texts = tf.cast(numbers.value_rowids(), tf.int32)
    starts = numbers.values * tf.gather(stride, texts)
    ends = tf.minimum(starts + tf.gather(room, texts), tf.gather(num_pieces, texts))
    return texts, starts, ends


def in_batches(
    outputs: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    features: dict[str, tf.Tensor],
    dtype: tf.DType,
) -> tf.Tensor:
    """Runs a model on windows in batches, because a long text may have any number of windows, or
    none.

    It returns `outputs`, a function from features of some windows to a tensor[windows, ...], of all
    of them.
    """
    num_windows = tf.shape(features["input_ids"])[0]
    num_batches = tf.maximum(1, (num_windows + _WINDOWS_AT_ONCE - 1) // _WINDOWS_AT_ONCE)

    def run(batch: tf.Tensor, results: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        rows = slice(batch * _WINDOWS_AT_ONCE, (batch + 1) * _WINDOWS_AT_ONCE)
        batch_features = {name: values[rows] for name, values in features.items()}
        return batch + 1, results.write(batch, outputs(batch_features))

    results = tf.TensorArray(dtype, num_batches, infer_shape=False)
    _, results = tf.while_loop(
        lambda batch, _: batch < num_batches, run, (0, results), parallel_iterations=1
    )
    return results.concat()


def _has_most_context(
    starts: tf.Tensor,
    ends: tf.Tensor,
    pieces: tf.RaggedTensor,
    flat: tf.Tensor,
    num_pieces: tf.Tensor,
) -> tf.Tensor:
    """Tells which window shows most of the text around a WordPiece, the first one on a tie.

    The windows reach from `starts` to `ends`, int32[windows]; `pieces`, int32[windows, (pieces)],
    are indices in the document, and `flat`, int[all pieces of all windows], in all documents, one
    after the other.
    """
    window = tf.cast(pieces.value_rowids(), tf.int32)
    starts = tf.gather(starts, window)
    ends = tf.gather(ends, window)
    context = tf.minimum(pieces.values - starts, ends - 1 - pieces.values)
    score = tf.cast(context, tf.float64) + 0.01 * tf.cast(ends - starts, tf.float64)
    best_scores = tf.math.unsorted_segment_max(score, flat, num_pieces)
    is_best = score == tf.gather(best_scores, flat)
    best_windows = tf.where(is_best, window, tf.int32.max)
    first_best_windows = tf.math.unsorted_segment_min(best_windows, flat, num_pieces)
    return window == tf.gather(first_best_windows, flat)


def _chains(following: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Follows a chain of columns in each row: from column 0, and from column c to column
    following[row, c] > c.

    It ends after lengths[row] columns. The result is row and column of every visited column,
    int32[visits, 2].
    """
    num_columns = tf.shape(following)[1]

    def visit(column: tf.Tensor, is_visited: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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
    """Makes windows; their WordPieces, the last of `segments`, begin at the positions `offsets`,
    int64[windows].
    """

    def pad(values: tf.RaggedTensor, filler: int | bool) -> tf.Tensor:
        fillers = tf.fill([tf.reduce_sum(offsets)], filler)
        before = tf.RaggedTensor.from_row_lengths(fillers, offsets)
        after = tf.fill([values.nrows(), 1], filler)
        return tf.concat([before, values, after], axis=1).to_tensor(filler)

    return Windows(
        features=_packed(segments, vocab),
        texts=texts,
        pieces=pad(pieces, -1),
        is_own=pad(is_own, False),
    )


def _packed(
    segments: list[tf.RaggedTensor], vocab: Mapping[str, int], is_pair: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Joins one or two segments, int32[batch, (pieces)], with [CLS] and [SEP] into a padded batch
    of encoder features.

    `is_pair`, bool[batch], tells whether the row has a second segment; None means that every row
    has one.
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


def _truncate_rows(rows: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    columns = tf.ragged.range(rows.row_lengths())
    return tf.ragged.boolean_mask(rows, columns < counts[:, None])


def _range_rows(rows: tf.RaggedTensor) -> tf.RaggedTensor:
    return tf.cast(tf.ragged.range(rows.row_lengths()), tf.int32)


def _flat_indices(rows: tf.RaggedTensor, texts: tf.Tensor, numbers: tf.RaggedTensor) -> tf.Tensor:
    """Returns the index in `rows.values` of the values `numbers[window]` of row `texts[window]`:
    int64[all numbers].
    """
    row_starts = tf.gather(rows.row_starts(), tf.gather(texts, numbers.value_rowids()))
    return row_starts + tf.cast(numbers.values, tf.int64)
