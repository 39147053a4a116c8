"""Cuts questions and their documents into windows, and encodes these in arrays."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.model_inputs import doc_spans, log_example
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.metrics.squad import Question
from official_bert.tasks.base import ORIGINAL_BUFFER_SIZE
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tokenization import FullTokenizer

FIRST_UNIQUE_ID = 1000000000
LOGGED_EXAMPLES = 20
_CACHED_WORDS = 1 << 18


@dataclass(slots=True, eq=False)
class InputFeatures:
    """A question and a window of its document: `[CLS] question [SEP] window [SEP]`, padded with 0.

    Attributes:
        token_to_orig_map: position in the sequence -> index of the document's word, for the
            positions of the window.
        token_is_max_context: position -> whether no other window shows the token with more context.
        segment_ids: 1 for the window and the last [SEP].
        start_position, end_position: positions of the answer's first and last piece; 0 if the
            window does not contain the whole answer; None in prediction.
        is_impossible: whether the question has no answer in the whole document.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: Sequence[str]
    token_to_orig_map: Mapping[int, int]
    token_is_max_context: Mapping[int, bool]
    input_ids: Sequence[int] | np.ndarray
    input_mask: Sequence[int] | np.ndarray
    segment_ids: Sequence[int] | np.ndarray
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool | None = None


class PositionMap(Mapping[int, Any]):
    """A read-only mapping from consecutive positions, of which `first` is the first, to an array
    of values.
    """

    __slots__ = ("array", "first")

    def __init__(self, first: int, array: np.ndarray):
        self.first = first
        self.array = array

    def __getitem__(self, position: int) -> Any:
        index = position - self.first
        if not 0 <= index < len(self.array):
            raise KeyError(position)
        return self.array[index].item()

    def __iter__(self) -> Iterator[int]:
        last = self.first + len(self.array)
        return iter(range(self.first, last))

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return repr(dict(self))


def dense(position_map: Mapping[int, int], length: int, default: int) -> np.ndarray:
    """Returns the values of positions 0 to length - 1, array[length].

    Args:
        position_map: position -> value. Positions from `length` on are ignored.
        length: the number of positions.
        default: the value of positions outside the map; its type is that of the array.
    """
    values = np.full(length, default)
    if isinstance(position_map, PositionMap):
        last = position_map.first + len(position_map)
        num_inside = max(0, length - position_map.first)
        values[position_map.first : last] = position_map.array[:num_inside]
    else:
        for position, value in position_map.items():
            if position < length:
                values[position] = value
    return values


def make_windows(
    examples: Iterable[SquadExample],
    tokenizer: FullTokenizer,
    rules: SquadRules,
    is_training: bool,
    num_logged: int = LOGGED_EXAMPLES,
) -> Iterator[InputFeatures]:
    """Cuts the document of every question into overlapping windows.

    A document without words gives none.

    Args:
        examples: the questions.
        tokenizer: the tokenizer of the model.
        rules: the lengths of windows and questions, and the stride.
        is_training: whether the windows have the positions of the answer.
        num_logged: the number of questions whose windows are logged with --verbosity=1; without it,
            only the first window is logged. 0 logs none.

    Raises:
        InputError: the stride is less than 1, or a question leaves no room for its document.
    """
    max_seq_length, doc_stride = rules.max_seq_length, rules.doc_stride
    if doc_stride < 1:
        raise InputError(
            f"--doc_stride={doc_stride}: windows must move on; give a number of at least 1"
        )

    @functools.lru_cache(_CACHED_WORDS)
    def split_word(word: str) -> tuple[list[str], list[int]]:
        tokens = tokenizer.tokenize(word)
        return tokens, tokenizer.convert_tokens_to_ids(tokens)

    cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    unique_ids = itertools.count(FIRST_UNIQUE_ID)
    words: Sequence[str] | None = None
    document: _Document | None = None
    num_empty = 0
    for example_index, example in enumerate(counted(examples, "questions cut into windows")):
        # The questions of a paragraph share their words.
        if document is None or example.doc_tokens is not words:
            words = example.doc_tokens
            document = _document(words, split_word)
        query = tokenizer.tokenize(example.question_text)[: rules.max_query_length]
        max_tokens = max_seq_length - len(query) - 3
        if max_tokens < 1:
            raise InputError(
                f"--max_seq_length={max_seq_length}: question {example.qas_id} of {len(query)} "
                "tokens leaves no room for its document; give a larger one, or a smaller "
                "--max_query_length"
            )
        query_ids = tokenizer.convert_tokens_to_ids(query)
        head = np.array([cls_id, *query_ids, sep_id], np.int32)
        answer = _answer_tokens(example, document, tokenizer) if is_training else None
        spans = doc_spans(len(document.tokens), max_tokens, doc_stride)
        owner = max_context_span(spans)
        num_empty += not spans
        for index, (start, length) in enumerate(spans):
            inputs = slice(start, start + length)
            offset = len(head)
            end = offset + length
            input_ids = np.zeros(max_seq_length, np.int32)
            input_ids[:offset] = head
            input_ids[offset:end] = document.ids[inputs]
            input_ids[end] = sep_id
            input_mask, segment_ids = np.zeros((2, max_seq_length), np.int8)
            input_mask[: end + 1] = 1
            segment_ids[offset : end + 1] = 1
            feature = InputFeatures(
                unique_id=next(unique_ids),
                example_index=example_index,
                doc_span_index=index,
                tokens=["[CLS]", *query, "[SEP]", *document.tokens[inputs], "[SEP]"],
                token_to_orig_map=PositionMap(offset, document.token_words[inputs]),
                token_is_max_context=PositionMap(offset, owner[inputs] == index),
                input_ids=input_ids,
                input_mask=input_mask,
                segment_ids=segment_ids,
                is_impossible=example.is_impossible,
            )
            if is_training:
                feature.start_position, feature.end_position = _positions(
                    answer, start, length, offset
                )
            if example_index < num_logged:
                _log(feature)
            yield feature
    if num_empty:
        logging.warning("%d questions have an empty document and give no window", num_empty)


def max_context_span(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the index of the window that shows each token of a document with the most context.

    The score of a window is the smaller number of tokens to the left and to the right of the token
    in the window, plus 0.01 for each token of the window; the first of equal windows wins.

    Args:
        spans: (start, length) of each window, in tokens, in the order of the document.

    Returns:
        int32[num_tokens].
    """
    num_tokens = sum(spans[-1]) if spans else 0
    owner = np.zeros(num_tokens, np.int32)
    if len(spans) == 1:
        return owner
    best = np.full(num_tokens, -1.0)
    for index, (start, length) in enumerate(spans):
        left = np.arange(length)
        right = left[::-1]
        score = np.minimum(left, right) + 0.01 * length
        window = slice(start, start + length)
        is_better = score > best[window]
        best[window][is_better] = score[is_better]
        owner[window][is_better] = index
    return owner


class _Document(NamedTuple):
    """The pieces of a document; `first_token_of_word`, int64[num_words], of a word without
    pieces is the next piece.
    """

    tokens: list[str]
    ids: np.ndarray
    token_words: np.ndarray
    word_first_tokens: np.ndarray


def _document(
    words: Sequence[str], split_word: Callable[[str], tuple[list[str], list[int]]]
) -> _Document:
    tokens: list[str] = []
    ids: list[int] = []
    token_counts: list[int] = []
    for word in words:
        word_tokens, word_ids = split_word(word)
        tokens += word_tokens
        ids += word_ids
        token_counts.append(len(word_tokens))
    counts = np.array(token_counts, int)
    numbers = np.arange(len(words), dtype=np.int32)
    return _Document(
        tokens=tokens,
        ids=np.array(ids, np.int32),
        token_words=np.repeat(numbers, counts),
        word_first_tokens=np.cumsum(counts) - counts,
    )


def _answer_tokens(
    example: SquadExample, document: _Document, tokenizer: FullTokenizer
) -> tuple[int, int] | None:
    """Returns the first and the last piece of the answer in the document; None if there is no
    answer.

    The span of whole words is narrowed to the answer's own pieces if it contains them: the answer
    1895 selects one piece of "(1895-1943).".
    """
    if example.is_impossible:
        return None
    # Questions are read for training with the words and the text of their answer.
    assert example.start_position is not None
    assert example.end_position is not None
    assert example.orig_answer_text is not None
    start = int(document.word_first_tokens[example.start_position])
    end = len(document.tokens) - 1
    if example.end_position < len(example.doc_tokens) - 1:
        next_word = example.end_position + 1
        end = int(document.word_first_tokens[next_word]) - 1
    answer = tokenizer.tokenize(example.orig_answer_text)
    for first in range(start, end - len(answer) + 2):
        last = first + len(answer) - 1
        if answer and document.tokens[first : last + 1] == answer:
            return first, last
    return start, end


def _positions(
    answer: tuple[int, int] | None, start: int, length: int, offset: int
) -> tuple[int, int]:
    """Returns the answer's positions in the sequence of a window, whose document pieces begin at
    position `offset`.
    """
    if answer is None or answer[0] < start or answer[1] >= start + length:
        return 0, 0
    first, last = answer
    return first - start + offset, last - start + offset


def _log(feature: InputFeatures):
    def details():
        for name in ("unique_id", "example_index", "doc_span_index"):
            yield f"{name}: {getattr(feature, name)}"
        yield f"tokens: {' '.join(feature.tokens)}"
        for name in ("token_to_orig_map", "token_is_max_context"):
            position_map = getattr(feature, name)
            pairs = [f"{key}:{value}" for key, value in position_map.items()]
            yield f"{name}: {' '.join(pairs)}"
        for name in ("input_ids", "input_mask", "segment_ids"):
            values = map(str, getattr(feature, name))
            yield f"{name}: {' '.join(values)}"
        start = feature.start_position
        end = feature.end_position
        if start is None or end is None:
            return
        if feature.is_impossible:
            yield "impossible example"
            return
        yield f"start_position: {start}"
        yield f"end_position: {end}"
        tokens = feature.tokens[start : end + 1]
        yield f"answer: {' '.join(tokens)}"

    log_example(feature.tokens, feature.unique_id == FIRST_UNIQUE_ID, details)


@dataclass(frozen=True, eq=False)
class EncodedWindows:
    """The windows of a set as arrays.

    Attributes:
        input_ids: int32[n, max_seq_length], padded with 0.
        lengths: int64[n], tokens of each window.
        offsets: int64[n], position of the document's first piece, after the question.
        positions: int32[n, 2], first and last position of the answer; None in prediction.
        is_impossible: int32[n], 1 for the windows of questions without an answer; None in
            prediction.
    """

    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    record_stem = "train"

    input_ids: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    positions: np.ndarray | None = None
    is_impossible: np.ndarray | None = None
    num_questions: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of questions, which define an epoch in the original, and of
        windows.
        """
        return {"orig ": self.num_questions, "split ": len(self.lengths)}

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of windows.

        Args:
            rows: int[b], the indices of the windows.
            length: the number of tokens to which each window is padded, at most `max_seq_length`.

        Returns:
            Encoder features, int32[b, length], and in training `start_positions` and
            `end_positions`, int32[b].
        """
        columns = np.arange(length)
        is_token = columns < self.lengths[rows, None]
        is_document = is_token & (columns >= self.offsets[rows, None])
        batch = {
            "input_ids": self.input_ids[rows, :length],
            "input_mask": is_token.astype(np.int32),
            "segment_ids": is_document.astype(np.int32),
        }
        if self.positions is not None:
            batch["start_positions"], batch["end_positions"] = self.positions[rows].T
        return batch

    def record(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of some windows in the form of the original's record files.

        Args:
            rows: int[b], the indices of the windows.
            length: the number of tokens to which each window is padded, at most `max_seq_length`.

        Returns:
            `unique_ids`, int[b], the result of `features` and, in training, `is_impossible`,
            int32[b].
        """
        record = {
            "unique_ids": FIRST_UNIQUE_ID + rows,
            **self.features(rows, length),
        }
        if self.is_impossible is not None:
            record["is_impossible"] = self.is_impossible[rows]
        return record


@dataclass(frozen=True, eq=False)
class EncodedQuestions(EncodedWindows):
    """An encoded set of questions for prediction; with `tunes_threshold` it only serves to tune
    the threshold.
    """

    examples: Sequence[SquadExample] = ()
    windows: Sequence[InputFeatures] = ()
    gold: Sequence[Question] | None = None
    path: str = ""
    tunes_threshold: bool = False

    @property
    def record_stem(self) -> str | None:
        return None if self.tunes_threshold else "eval"


def encode_training(
    examples: Sequence[SquadExample], tokenizer: FullTokenizer, rules: SquadRules
) -> EncodedWindows:
    """Encodes training questions.

    The tokens and word maps of their windows, which only prediction needs, are dropped.

    Args:
        examples: the questions with their answers.
        tokenizer: the tokenizer of the model.
        rules: how windows are cut.

    Raises:
        InputError: the stride is less than 1, or a question leaves no room for its document.
    """
    arrays = _arrays(make_windows(examples, tokenizer, rules, is_training=True))
    return EncodedWindows(**arrays, num_questions=len(examples))


def encode_questions(
    examples: Sequence[SquadExample],
    tokenizer: FullTokenizer,
    rules: SquadRules,
    gold: Sequence[Question] | None = None,
    num_logged: int = LOGGED_EXAMPLES,
    **more: Any,
) -> EncodedQuestions:
    """Encodes questions for prediction.

    Args:
        examples: the questions.
        tokenizer: the tokenizer of the model.
        rules: how windows are cut.
        gold: the questions with their true answers; None if they are unknown.
        num_logged: the number of questions whose windows are logged with --verbosity=1; without it,
            only the first window is logged. 0 logs none.
        **more: further fields of the result, `path` and `tunes_threshold`.

    Raises:
        InputError: the stride is less than 1, or a question leaves no room for its document.
    """
    windows = list(
        make_windows(examples, tokenizer, rules, is_training=False, num_logged=num_logged)
    )
    fields = {
        "num_questions": len(examples),
        "examples": examples,
        "windows": windows,
        "gold": gold,
    }
    return EncodedQuestions(**_arrays(windows), **fields, **more)


def _arrays(windows: Iterable[InputFeatures]) -> dict[str, Any]:
    """Collects the fields of EncodedWindows without keeping the windows in memory."""
    input_ids = []
    lengths = []
    offsets = []
    positions = []
    is_impossible = []
    for window in windows:
        input_ids.append(window.input_ids)
        lengths.append(len(window.tokens))
        offsets.append(np.argmax(window.segment_ids))
        if window.start_position is not None:
            positions.append((window.start_position, window.end_position))
            is_impossible.append(window.is_impossible)
    return {
        "input_ids": np.array(input_ids, np.int32),
        "lengths": np.array(lengths, np.int64),
        "offsets": np.array(offsets, np.int64),
        "positions": np.array(positions, np.int32) if positions else None,
        "is_impossible": np.array(is_impossible, np.int32) if positions else None,
    }
