"""Tagging words, as in named entity recognition: sentences in, windows of pieces that a model reads out, and back.

The first piece of a word carries its label; the others, and words of the context, carry none. Devlin et al. (2019),
section 5.3.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.conll import ConllFile, Sentence
from official_bert.data.text.ragged import ModelInputs, RaggedRows
from official_bert.errors import InputError
from official_bert.tokenization import FullTokenizer


class _Window(NamedTuple):
    """What a model reads at once.

    Attributes:
        ids: int32[length], special tokens included.
        targets: int32[length], 1 + the number of a piece's label, 0 where it has none.
    """

    ids: np.ndarray
    targets: np.ndarray


@dataclasses.dataclass(frozen=True)
class EncodedWords:
    """A data set as a model reads it, without padding. Every word has its label in exactly one window, in order.

    Attributes:
        inputs: the windows.
        targets: for each piece 1 + the number of its label, 0 where it has none.
    """

    inputs: ModelInputs
    targets: RaggedRows

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], special tokens included."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """A batch: the three encoder features, `label_ids` and `label_mask`, all int32[len(rows), length].

        `label_mask` is 1 at the first pieces of the words to be tagged; elsewhere `label_ids` is 0.

        Args:
            rows: int[n], which windows, in order.
            length: that they are padded to; none may be longer.
        """
        targets = self.targets.padded(rows, length)
        return {
            **self.inputs.features(rows, length),
            "label_ids": np.maximum(targets - 1, 0),
            "label_mask": (targets > 0).astype(np.int32),
        }

    def of_words(self, values: Iterable[np.ndarray]) -> np.ndarray:
        """What a model said of the words, in the order of the file.

        Args:
            values: of each window, in order, [its length or more, ...].

        Returns:
            [words, ...]
        """
        rows = [
            value[: len(self.targets[row])][self.targets[row] > 0]
            for row, value in enumerate(itertools.islice(values, len(self)))
        ]
        return np.concatenate(rows)


def labels_of(sentences: Iterable[Sentence]) -> list[str]:
    """O, then B- and I- of every type that occurs, sorted."""
    types = sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})
    return ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]


def encoded_words(
    source: ConllFile,
    labels: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    document_context: bool = False,
) -> EncodedWords:
    """Cuts the sentences of a file into windows of at most `max_seq_length` pieces, special tokens included.

    A sentence is a window of its own. One that is too long becomes several, each with as much of the rest of the
    sentence around it as there is room for. A word without a piece of its own counts as [UNK], and one that is too
    long for any window loses its last pieces.

    Args:
        source: the file.
        labels: all labels.
        max_seq_length: of a window, at least 3.
        tokenizer: with the vocabulary.
        document_context: fill each window up with the pieces before and after it in its document.

    Raises:
        InputError: an unknown tag, or document context asked of a file without -DOCSTART- lines.
    """
    if document_context and not source.has_documents:
        raise InputError(
            f"{source.path}: has no -DOCSTART- line, which --document_context needs; put one before each document "
            "or leave the flag off"
        )
    by_document = [sentence.document if document_context else sentence.line for sentence in source.sentences]
    numbers = {label: number for number, label in enumerate(labels)}
    windows = []
    for _, group in itertools.groupby(
        zip(by_document, source.sentences, strict=True), key=lambda pair: pair[0]
    ):
        sentences = [sentence for _, sentence in group]
        targets = [
            1 + _label_number(source.path, sentence, k, numbers)
            for sentence in sentences
            for k in range(len(sentence.columns))
        ]
        windows += _windows(sentences, np.array(targets, np.int32), max_seq_length, tokenizer)
    return EncodedWords(
        inputs=ModelInputs((window.ids, len(window.ids)) for window in windows),
        targets=RaggedRows(window.targets for window in windows),
    )


def predicted_tags(
    sentences: Sequence[Sentence], numbers: np.ndarray, labels: Sequence[str]
) -> list[list[str]]:
    """The tags of each sentence.

    Args:
        sentences: of a file.
        numbers: int[words], a label for each, in the order of the file (`EncodedWords.of_words`).
        labels: all labels.
    """
    tags = iter([labels[number] for number in numbers])
    return [list(itertools.islice(tags, len(sentence.columns))) for sentence in sentences]


def _windows(
    sentences: Sequence[Sentence], targets: np.ndarray, max_seq_length: int, tokenizer: FullTokenizer
) -> Iterator[_Window]:
    """The windows of a document, or of a sentence that stands alone.

    Args:
        sentences: of the document.
        targets: int32[words].
        max_seq_length: of a window.
        tokenizer: with the vocabulary.
    """
    room = max_seq_length - 2
    cls, sep, unknown = (tokenizer.vocab[piece] for piece in ("[CLS]", "[SEP]", "[UNK]"))
    pieces = [
        (tokenizer.encode(word) or [unknown])[:room] for sentence in sentences for word in sentence.words
    ]
    ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
    word_ends = np.cumsum([len(word) for word in pieces])
    word_starts = np.concatenate([[0], word_ends[:-1]])

    sentence_ends = np.cumsum([len(sentence.columns) for sentence in sentences])
    first = 0
    for sentence_end in sentence_ends:
        while first < sentence_end:
            start = word_starts[first]
            last = min(
                sentence_end, np.searchsorted(word_ends, start + room, side="right")
            )  # words that fit whole
            low, high = _with_context(start, word_ends[last - 1], len(ids), room)
            window_targets = np.zeros(high - low + 2, np.int32)
            window_targets[word_starts[first:last] - low + 1] = targets[first:last]
            yield _Window(np.concatenate([[cls], ids[low:high], [sep]]), window_targets)
            first = last


def _with_context(start: int, end: int, length: int, room: int) -> tuple[int, int]:
    """A span of `room` positions, or of all `length`, around another, as much on the left as on the right if it can."""
    spare = room - (end - start)
    left = min(start, max(spare // 2, spare - (length - end)))
    right = min(length - end, spare - left)
    return start - left, end + right


def _label_number(path: str, sentence: Sentence, word: int, numbers: dict[str, int]) -> int:
    """The number of a word's label; 0 if tags were not read."""
    if sentence.tags is None:
        return 0
    tag = sentence.tags[word]
    if tag not in numbers:
        raise InputError(
            f"{path}: line {sentence.line + word}: has the tag {sentence.columns[word][-1]!r}, which the training "
            f"file lacks; its tags are {', '.join(numbers)}"
        )
    return numbers[tag]
