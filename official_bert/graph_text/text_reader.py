"""Builds model inputs from ragged WordPiece ids inside a graph.

The arrays equal those that the scripts build in Python. The encoder features are padded to the
longest row. The functions use only core operations of TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from official_bert.graph_text.graph_tokenizer import GraphTokenizer
from official_bert.graph_text.vectors import count_up_to_each, to_int32

# The batch size of `run_in_batches`.
_NUM_BATCH_WINDOWS = 32


class Windows(NamedTuple):
    """The windows of texts that may be longer than the model's input.

    Attributes:
        features: the encoder features, each int32[windows, length].
        texts: int32[windows], the index of each window's text in the batch.
        pieces: int32[windows, length], the index of the WordPiece at each position in its text; -1
            at positions of other tokens.
        has_prediction: bool[windows, length], whether this window, and no other, gives the
            prediction for the WordPiece.
    """

    features: dict[str, tf.Tensor]
    texts: tf.Tensor
    pieces: tf.Tensor
    has_prediction: tf.Tensor


@dataclasses.dataclass(frozen=True)
class InputBuilder:
    """Builds the inputs of an exported model from WordPiece ids, int32[batch, (pieces)].

    Attributes:
        vocab: the ids of the tokens.
        max_seq_length: the largest number of tokens of an input.
    """

    vocab: Mapping[str, int]
    max_seq_length: int

    def build_inputs(
        self,
        first: tf.RaggedTensor,
        second: tf.RaggedTensor | None,
    ) -> dict[str, tf.Tensor]:
        """Builds `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated as in data/model_inputs.py.

        Args:
            first: the ids of the first texts.
            second: the ids of the second texts, or None for single texts. A text without tokens
                counts as absent.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, each int32[batch, length].
        """
        if second is None:
            room = self.max_seq_length - 2
            return _pack([first[:, :room]], self.vocab)
        room = self.max_seq_length - 3
        half = room // 2
        first_lengths = first.row_lengths()
        second_lengths = second.row_lengths()
        # The longer text, or the second one on a tie, loses its last token until both fit.
        max_first = tf.where(
            second_lengths > 0,
            tf.maximum(room - second_lengths, room - half),
            room + 1,
        )
        max_second = tf.maximum(room - first_lengths, half)
        segments = [_truncate_rows(first, max_first), _truncate_rows(second, max_second)]
        is_pair = segments[1].row_lengths() > 0
        return _pack(segments, self.vocab, is_pair)


@dataclasses.dataclass(frozen=True)
class TextReader(InputBuilder):
    """Builds the inputs of an exported model from text, for the text signatures of a task.

    Except for `inputs`, the methods accept WordPiece ids of the tokenizer, int32[batch, (pieces)].

    Attributes:
        tokenizer: the tokenizer of the texts.
    """

    tokenizer: GraphTokenizer

    def inputs(
        self,
        first: tf.Tensor,
        second: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Encodes texts or pairs of texts, and returns their features as `build_inputs` does.

        Args:
            first: string[batch].
            second: string[batch], or None for single texts. A text without tokens counts as absent.
        """
        first_ids = self.tokenizer.encode(first)
        second_ids = None
        if second is not None:
            second_ids = self.tokenizer.encode(second)
        return self.build_inputs(first_ids, second_ids)

    def document_windows(
        self,
        questions: tf.RaggedTensor,
        documents: tf.RaggedTensor,
        doc_stride: int,
        max_query_length: int,
    ) -> Windows:
        """Builds the windows of tasks/squad/windows.py, `[CLS] question [SEP] window [SEP]`.

        The prediction for a WordPiece comes from the window that contains most of the text around
        it ("max context"). An empty document has no window.

        Args:
            questions: the ids of the questions.
            documents: the ids of the documents.
            doc_stride: the distance between the starts of two windows, in WordPieces.
            max_query_length: the largest number of WordPieces of a question; more are truncated.
        """
        questions = questions[:, :max_query_length]
        num_pieces = to_int32(documents.row_lengths())  # [batch]
        question_lengths = to_int32(questions.row_lengths())
        room = self.max_seq_length - 3 - question_lengths
        texts, starts, ends = _cut_spans(num_pieces, room, doc_stride, min_spans=0)
        pieces = tf.ragged.range(starts, ends)  # [windows, (pieces)]
        flat = _flat_indices(documents, texts, pieces)
        questions = tf.gather(questions, texts)
        window_ids = tf.gather(documents.values, flat)
        has_prediction = _has_most_context(
            starts=starts,
            ends=ends,
            pieces=pieces,
            flat=flat,
            num_pieces=tf.size(documents.values),
        )
        return _build_windows(
            segments=[questions, pieces.with_values(window_ids)],
            texts=texts,
            pieces=pieces,
            has_prediction=pieces.with_values(has_prediction),
            offsets=questions.row_lengths() + 2,
            vocab=self.vocab,
        )

    def text_windows(
        self,
        ids: tf.RaggedTensor,
        doc_stride: int,
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Builds the windows of tasks/classification/windows.py, `[CLS] window [SEP]`.

        Every text has at least one window.

        Args:
            ids: the ids of the texts.
            doc_stride: the distance between the starts of two windows, in WordPieces.

        Returns:
            The encoder features of all windows, and the index of each window's text in the batch,
            int32[windows].
        """
        num_pieces = to_int32(ids.row_lengths())
        window_length = max(1, self.max_seq_length - 2)
        room = tf.fill(tf.shape(num_pieces), window_length)
        texts, starts, ends = _cut_spans(num_pieces, room, doc_stride, min_spans=1)
        pieces = tf.ragged.range(starts, ends)  # [windows, (pieces)]
        window_ids = _gather_windows(ids, texts, pieces)
        return _pack([window_ids], self.vocab), texts

    def word_windows(self, ids: tf.RaggedTensor, words: tf.RaggedTensor) -> Windows:
        """Builds the windows of tasks/tagging/windows.py, `[CLS] window [SEP]`.

        A window tags consecutive words: it gives the predictions for the first WordPieces of these
        words. An empty text has no window.

        Args:
            ids: the ids of the texts, each of which is one sentence.
            words: int32[batch, (pieces)], the index (from 0) of each WordPiece's word in its text.
        """
        room = self.max_seq_length - 2
        positions = _range_rows(ids)  # [batch, (pieces)]
        previous_words = tf.concat([[-1], words.values], axis=0)
        is_first = previous_words[:-1] != words.values
        is_first |= positions.values == 0
        word_starts = tf.boolean_mask(positions.values, is_first)
        # A word that is longer than a window loses its last WordPieces.
        word_numbers = tf.cumsum(to_int32(is_first)) - 1
        word_offsets = positions.values - tf.gather(word_starts, word_numbers)
        fits = word_offsets < room
        is_first = tf.boolean_mask(is_first, fits)
        pieces = _select_values(positions, fits)

        positions = _range_rows(pieces)
        is_last = tf.concat([is_first, [True]], axis=0)
        # The first and last WordPieces of the words, [batch, (words)].
        starts = _select_values(positions, is_first)
        lasts = _select_values(positions, is_last[1:])
        num_words = to_int32(starts.row_lengths())  # [batch]
        starts = starts.to_tensor()  # [batch, words]
        ends = 1 + lasts.to_tensor()
        # If a window begins with word w, the next window begins with the first word that does not
        # fit in it completely: the word of the first WordPiece behind the window.
        text_lengths = to_int32(pieces.row_lengths())
        piece_words = count_up_to_each(is_first) - 1
        first_words = tf.cumsum(num_words, exclusive=True)
        behind = starts + room
        has_next = behind < text_lengths[:, None]
        flat_behind = to_int32(pieces.row_starts())[:, None] + behind
        next_words = tf.gather(piece_words, tf.where(has_next, flat_behind, 0))
        following = tf.where(has_next, next_words - first_words[:, None], num_words[:, None])
        rows = _follow_chains(following, num_words)  # [windows, 2]: text, first word
        texts = rows[:, 0]
        first = tf.gather_nd(starts, rows)
        last_words = tf.gather_nd(following, rows) - 1
        last_rows = tf.stack([texts, last_words], axis=1)
        end = tf.gather_nd(ends, last_rows)
        # Fill the window with the text around its words, if possible equally on both sides.
        num_after = tf.gather(text_lengths, texts) - end
        spare = room - (end - first)
        most_left = tf.maximum(spare // 2, spare - num_after)
        left = tf.minimum(first, most_left)
        right = tf.minimum(num_after, spare - left)
        spans = tf.ragged.range(first - left, end + right)  # [windows, (pieces)]

        window = spans.value_rowids()
        flat = _flat_indices(pieces, texts, spans)
        has_prediction = tf.gather(is_first, flat)
        has_prediction &= spans.values >= tf.gather(first, window)
        has_prediction &= spans.values < tf.gather(end, window)
        numbers = tf.gather(pieces.values, flat)
        numbers = spans.with_values(numbers)
        return _build_windows(
            segments=[_gather_windows(ids, texts, numbers)],
            texts=texts,
            pieces=numbers,
            has_prediction=spans.with_values(has_prediction),
            offsets=tf.ones_like(texts, tf.int64),
            vocab=self.vocab,
        )


def _cut_spans(
    num_pieces: tf.Tensor,
    room: tf.Tensor,
    doc_stride: int,
    min_spans: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts texts into overlapping spans.

    Args:
        num_pieces: int32[batch], the number of WordPieces of each text.
        room: int32[batch], the largest number of WordPieces of a span.
        doc_stride: the distance between the starts of two spans.
        min_spans: the number of spans of a text without WordPieces, 0 or 1.

    Returns:
        The text, the start and the end of each span, int32[spans].
    """
    stride = tf.minimum(room, doc_stride)
    num_more = -((room - num_pieces) // stride)  # rounded up
    num_more = tf.maximum(num_more, 0)
    num_spans = tf.where(num_pieces > 0, 1 + num_more, min_spans)
    numbers = tf.ragged.range(num_spans)  # [batch, (spans)]
    texts = to_int32(numbers.value_rowids())
    starts = numbers.values * tf.gather(stride, texts)
    latest_ends = starts + tf.gather(room, texts)
    text_ends = tf.gather(num_pieces, texts)
    return texts, starts, tf.minimum(latest_ends, text_ends)


def run_in_batches(
    outputs: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    features: dict[str, tf.Tensor],
    dtype: tf.DType,
) -> tf.Tensor:
    """Runs a model on windows in batches, because a long text may have any number of windows.

    Args:
        outputs: a function from the features of some windows to a tensor[windows, ...].
        features: the features of all windows, of which there may be none.
        dtype: the type of the outputs.

    Returns:
        The outputs of all windows.
    """
    num_windows = tf.shape(features["input_ids"])[0]
    num_full = (num_windows + _NUM_BATCH_WINDOWS - 1) // _NUM_BATCH_WINDOWS
    num_batches = tf.maximum(1, num_full)

    def run(
        batch: tf.Tensor,
        results: tf.TensorArray,
    ) -> tuple[tf.Tensor, tf.TensorArray]:
        next_batch = batch + 1
        start = batch * _NUM_BATCH_WINDOWS
        end = next_batch * _NUM_BATCH_WINDOWS
        batch_features = {}
        for name, values in features.items():
            batch_features[name] = values[start:end]
        batch_outputs = outputs(batch_features)
        return next_batch, results.write(batch, batch_outputs)

    results = tf.TensorArray(dtype, num_batches, infer_shape=False)
    _, results = tf.while_loop(
        cond=lambda batch, _: batch < num_batches,
        body=run,
        loop_vars=(0, results),
        parallel_iterations=1,
    )
    return results.concat()


def _has_most_context(
    starts: tf.Tensor,
    ends: tf.Tensor,
    pieces: tf.RaggedTensor,
    flat: tf.Tensor,
    num_pieces: tf.Tensor,
) -> tf.Tensor:
    """Returns whether a window contains most of the text around each of its WordPieces.

    On a tie it is the first window.

    Args:
        starts: int32[windows], the index of each window's first WordPiece in the document.
        ends: int32[windows], the index behind its last one.
        pieces: int32[windows, (pieces)], the indices of the WordPieces in the document.
        flat: int[pieces of all windows], their indices in the concatenated documents.
        num_pieces: the number of WordPieces of all documents.

    Returns:
        bool[pieces of all windows].
    """
    window = to_int32(pieces.value_rowids())
    starts = tf.gather(starts, window)
    ends = tf.gather(ends, window)
    left_context = pieces.values - starts
    right_context = ends - 1 - pieces.values
    context = tf.minimum(left_context, right_context)
    context = tf.cast(context, tf.float64)
    score = context + 0.01 * tf.cast(ends - starts, tf.float64)
    best_scores = tf.math.unsorted_segment_max(score, flat, num_pieces)
    is_best = score == tf.gather(best_scores, flat)
    best_windows = tf.where(is_best, window, tf.int32.max)
    first_best_windows = tf.math.unsorted_segment_min(best_windows, flat, num_pieces)
    return window == tf.gather(first_best_windows, flat)


def _follow_chains(following: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Follows a chain of columns in each row, from column 0 until column lengths[row].

    Args:
        following: int32[rows, columns], the column that follows each column; it is larger.
        lengths: int32[rows], the number of columns of each row.

    Returns:
        The row and the column of each visited column, int32[visits, 2].
    """
    num_columns = tf.shape(following)[1]

    def visit(
        column: tf.Tensor,
        is_visited: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        is_inside = column < lengths
        visited = tf.where(is_inside, column, -1)
        is_visited |= tf.one_hot(visited, num_columns, True, False)
        valid_column = tf.minimum(column, num_columns - 1)
        next_column = tf.gather(following, valid_column, batch_dims=1)
        return tf.where(is_inside, next_column, column), is_visited

    _, is_visited = tf.while_loop(
        cond=lambda column, _: tf.reduce_any(column < lengths),
        body=visit,
        loop_vars=(tf.zeros_like(lengths), tf.zeros_like(following, tf.bool)),
    )
    return to_int32(tf.where(is_visited))


def _build_windows(
    segments: list[tf.RaggedTensor],
    texts: tf.Tensor,
    pieces: tf.RaggedTensor,
    has_prediction: tf.RaggedTensor,
    offsets: tf.Tensor,
    vocab: Mapping[str, int],
) -> Windows:
    """Builds windows with their features.

    Args:
        segments: the ids of one or two segments, int32[windows, (pieces)] each. The last one has
            the WordPieces of the window.
        texts: int32[windows], the index of each window's text in the batch.
        pieces: int32[windows, (pieces)], the indices of the WordPieces in the text.
        has_prediction: bool[windows, (pieces)], as in `Windows`.
        offsets: int64[windows], the position of the first of these WordPieces in the window.
        vocab: the ids of the tokens.
    """

    def pad(values: tf.RaggedTensor, filler: int | bool) -> tf.Tensor:
        num_before = tf.reduce_sum(offsets)
        fillers = tf.fill([num_before], filler)
        before = tf.RaggedTensor.from_row_lengths(fillers, offsets)
        after = tf.fill([values.nrows(), 1], filler)
        padded = tf.concat([before, values, after], axis=1)
        return padded.to_tensor(filler)

    return Windows(
        features=_pack(segments, vocab),
        texts=texts,
        pieces=pad(pieces, -1),
        has_prediction=pad(has_prediction, False),
    )


def _pack(
    segments: list[tf.RaggedTensor],
    vocab: Mapping[str, int],
    is_pair: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Joins one or two segments with [CLS] and [SEP] into a padded batch of encoder features.

    Args:
        segments: the ids of one or two segments, int32[batch, (pieces)] each.
        vocab: the ids of the tokens.
        is_pair: bool[batch], whether each row has a second segment. None means that every row has
            all segments.
    """
    num_rows = segments[0].nrows()
    sep = tf.fill([num_rows, 1], vocab["[SEP]"])
    cls = tf.fill([num_rows, 1], vocab["[CLS]"])
    parts = [cls, segments[0], sep]
    if len(segments) == 2:
        last_sep = sep
        if is_pair is not None:
            last_sep = tf.ragged.boolean_mask(sep, is_pair[:, None])
        parts += [segments[1], last_sep]
    ids = tf.concat(parts, axis=1)
    dense_ids = ids.to_tensor()
    length = tf.shape(dense_ids)[1]
    is_token = tf.sequence_mask(ids.row_lengths(), length)
    is_first = tf.sequence_mask(segments[0].row_lengths() + 2, length)
    return {
        "input_ids": dense_ids,
        "input_mask": tf.cast(is_token, tf.int32),
        "segment_ids": tf.cast(is_token & ~is_first, tf.int32),
    }


def _truncate_rows(rows: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first counts[row] values of each row."""
    positions = _range_rows(rows)
    value_counts = tf.gather(to_int32(counts), rows.value_rowids())
    return _select_values(rows, positions.values < value_counts)


def _select_values(rows: tf.RaggedTensor, is_selected: tf.Tensor) -> tf.RaggedTensor:
    """Returns the values of which bool[values of all rows] is true, in their rows."""
    return tf.ragged.boolean_mask(rows, rows.with_values(is_selected))


def _range_rows(rows: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the index of each value in its row."""
    indices = tf.ragged.range(rows.row_lengths())
    return to_int32(indices)


def _gather_windows(
    rows: tf.RaggedTensor,
    texts: tf.Tensor,
    numbers: tf.RaggedTensor,
) -> tf.RaggedTensor:
    """Returns the values of windows, [windows, (values)]; the arguments are those of
    `_flat_indices`.
    """
    flat = _flat_indices(rows, texts, numbers)
    values = tf.gather(rows.values, flat)
    return numbers.with_values(values)


def _flat_indices(
    rows: tf.RaggedTensor,
    texts: tf.Tensor,
    numbers: tf.RaggedTensor,
) -> tf.Tensor:
    """Returns the indices of windows' values in `rows.values`: int64[values of all windows].

    Args:
        rows: the values of each text.
        texts: int32[windows], the text of each window.
        numbers: int32[windows, (values)], the indices of the window's values in the text.
    """
    value_texts = tf.gather(texts, numbers.value_rowids())
    row_starts = tf.gather(rows.row_starts(), value_texts)
    return row_starts + tf.cast(numbers.values, tf.int64)
