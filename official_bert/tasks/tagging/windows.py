"""Windows of pieces for word tagging; only first pieces of words have labels. Devlin et al.
(2019), section 5.3.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.data.tables import ConllFile, Sentence
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer

_MOST_WORDS = 500  # of a sentence that is no fault of the file


@dataclasses.dataclass(frozen=True)
class EncodedWords:
    """The windows of a file; `targets` are 1 + the label id of each word's first piece, in one
    window, else 0.
    """

    source: ConllFile
    inputs: ModelInputs
    targets: RaggedRows

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of each window, including the special tokens."""
        return self.inputs.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of windows.

        Args:
            rows: int[b], the indices of the windows.
            length: the number of tokens to which each window is padded.

        Returns:
            The encoder features, `label_ids` and `label_mask`, all int32[b, length]. `label_mask`
            is 1 at the first pieces of the words to be tagged; elsewhere `label_ids` is 0.
        """
        targets = self.targets.padded(rows, length)
        return {
            **self.inputs.features(rows, length),
            "label_ids": np.maximum(targets - 1, 0),
            "label_mask": (targets > 0).astype(np.int32),
        }

    def select_words(self, values: Iterable[np.ndarray]) -> np.ndarray:
        """Selects the outputs for the words, [words, ...], from those of the windows.

        Args:
            values: the outputs of each window in their order, [length or more, ...] each. Those
                after the last window are ignored.
        """
        rows = []
        for row, value in enumerate(itertools.islice(values, len(self))):
            targets = self.targets[row]
            outputs = value[: len(targets)]
            rows.append(outputs[targets > 0])
        return np.concatenate(rows)


def collect_labels(sentences: Iterable[Sentence]) -> list[str]:
    """Returns the label O, then B and I of every type that occurs, sorted; tags may have no type.

    Args:
        sentences: the sentences with their IOB2 tags.
    """
    tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    tags.discard("O")
    labels = ["O"]
    for type_ in sorted({tag[1:] for tag in tags}):
        labels += [f"{mark}{type_}" for mark in "BI"]
    return labels


def encoded_words(
    source: ConllFile,
    labels: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    document_context: bool = False,
) -> EncodedWords:
    """Cuts the sentences of a file into windows of pieces.

    A sentence that is too long becomes several windows, each of which includes as much of the rest
    of it as fits. A word without pieces counts as [UNK], and a word that is longer than a window
    loses its last pieces.

    Args:
        source: the content of the file.
        labels: the tags in the order of the label ids; they include every tag of the file.
        max_seq_length: the largest number of pieces of a window, special tokens included.
        tokenizer: the tokenizer of the model.
        document_context: whether a window includes as much of the whole document as fits; otherwise
            only its sentence.
    """
    group_numbers = [
        sentence.document if document_context else number
        for number, sentence in enumerate(source.sentences)
    ]
    numbers = {label: number for number, label in enumerate(labels)}
    windows = []
    counted_sentences = counted(source.sentences, "sentences encoded")
    pairs = zip(group_numbers, counted_sentences, strict=True)
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        sentences = [sentence for _, sentence in group]
        targets = []
        for sentence in sentences:
            if sentence.tags:
                targets += [1 + numbers[tag] for tag in sentence.tags]
            else:  # Each word counts as one with the first label.
                targets += [1] * len(sentence.columns)
        windows += _windows(
            sentences=sentences,
            targets=np.array(targets, np.int32),
            max_seq_length=max_seq_length,
            tokenizer=tokenizer,
        )
    return EncodedWords(
        source=source,
        inputs=ModelInputs((ids, len(ids)) for ids, _ in windows),
        targets=RaggedRows(targets for _, targets in windows),
    )


def check_words(source: ConllFile, labels: Sequence[str], document_context: bool = False) -> None:
    """Validates that all tags are known and, with document context, that the file has documents.

    Warns if the file is a single sentence of many words.

    Args:
        source: the content of the file.
        labels: the tags of the training file.
        document_context: whether the file needs -DOCSTART- lines.

    Raises:
        InputError: a tag is unknown, all tags are O, or the -DOCSTART- lines are missing.
    """
    if document_context and not source.has_documents:
        raise InputError(
            f"{source.path}: has no -DOCSTART- line, which --document_context needs; put one "
            "before each document or leave the flag off"
        )
    if list(labels) == ["O"] and source.sentences[0].tags:
        raise InputError(
            f"{source.path}: all tags are O, so that there is nothing to learn; give each token "
            "its tag in the last column"
        )
    num_words = len(source.sentences[0].columns)
    if len(source.sentences) == 1 and num_words > _MOST_WORDS:
        errors.warn(
            "%s: all %d words are one sentence; put a blank line behind each sentence",
            source.path,
            num_words,
        )
    for sentence in source.sentences:
        for word, tag in enumerate(sentence.tags or ()):
            if tag not in labels:
                line = sentence.line + word
                place = sentence.place or f"{source.path}: line {line}"
                raise InputError(
                    f"{place}: has the tag {sentence.columns[word][-1]!r}, which the training file "
                    f"lacks; its tags are {', '.join(labels)}"
                )


def predicted_tags(
    sentences: Sequence[Sentence],
    numbers: np.ndarray,
    labels: Sequence[str],
) -> list[list[str]]:
    """Returns the tags of each sentence.

    Args:
        sentences: the sentences.
        numbers: int32[words], the label ids of all words.
        labels: the tags in the order of the label ids.
    """
    tags = [labels[int(number)] for number in numbers]
    sentence_tags = []
    start = 0
    for sentence in sentences:
        end = start + len(sentence.columns)
        sentence_tags.append(tags[start:end])
        start = end
    return sentence_tags


def _windows(
    sentences: Sequence[Sentence],
    targets: np.ndarray,
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields ids and targets, int32[length] each, of the windows of a document; the argument is
    int32[words].
    """
    room = max_seq_length - 2
    cls = tokenizer.vocab["[CLS]"]
    sep = tokenizer.vocab["[SEP]"]
    unknown = tokenizer.vocab["[UNK]"]
    pieces = [
        (tokenizer.encode(word) or [unknown])[:room]
        for sentence in sentences
        for word in sentence.words
    ]
    ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
    word_ends = np.cumsum([len(word) for word in pieces])
    word_starts = np.concatenate([[0], word_ends[:-1]])

    sentence_ends = np.cumsum([len(sentence.columns) for sentence in sentences])
    first = 0
    for sentence_end in sentence_ends:
        while first < sentence_end:
            start = int(word_starts[first])
            # Words that fit whole.
            num_whole = int(np.searchsorted(word_ends, start + room, side="right"))
            last = min(sentence_end, num_whole)
            end = int(word_ends[last - 1])
            low, high = _with_context(start, end, len(ids), room)
            window_ids = np.concatenate([[cls], ids[low:high], [sep]])
            window_targets = np.zeros(len(window_ids), np.int32)
            first_pieces = word_starts[first:last] - low + 1
            window_targets[first_pieces] = targets[first:last]
            yield window_ids, window_targets
            first = last


def _with_context(start: int, end: int, length: int, room: int) -> tuple[int, int]:
    """Returns a span of `room` positions, or of all `length`, round [start, end), centred as far
    as possible.
    """
    num_after = length - end
    spare = room - (end - start)
    most_left = max(spare // 2, spare - num_after)
    left = min(start, most_left)
    right = min(num_after, spare - left)
    return start - left, end + right
