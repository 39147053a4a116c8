"""Reads a corpus into compact arrays of vocabulary ids.

In: text files with one sentence on each line and a blank line between documents. Out: `Documents`, one flat array of
ids with the offsets of its segments and documents. Tokenization may run in worker processes, which never import
TensorFlow.
"""

import collections
import dataclasses
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from official_bert.data.pretraining.workers import worker_processes
from official_bert.io import reading
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

_BLOCK_CHARACTERS = 1 << 18
_BLANK_LINE = -1

EncodedLines = tuple[np.ndarray, np.ndarray]  # the ids of some lines, and the number of ids of each, or _BLANK_LINE


@dataclasses.dataclass(frozen=True)
class Documents:
    """Documents of token ids, in the order of the files.

    Attributes:
        ids: unsigned[tokens], the ids of all tokens in order, in the smallest type that holds the vocabulary.
        segment_starts: int64[segments + 1], the offset in `ids` of each segment ("sentence"), then the length of `ids`.
        document_starts: int64[documents + 1], the index of each document's first segment, then the number of segments.
    """

    ids: np.ndarray
    segment_starts: np.ndarray
    document_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def bounds_of(self, document: int) -> Sequence[int]:
        """Returns int64[segments + 1]: the offsets in `ids` at which the segments of `document` begin and end."""
        first, end = self.document_starts[document : document + 2]
        return memoryview(self.segment_starts)[first : end + 1]  # its items are Python integers


def id_type(vocab: dict[str, int]) -> np.dtype:
    """Returns the smallest unsigned type that holds every id of the vocabulary."""
    return np.min_scalar_type(max(vocab.values(), default=0))


def read_documents(
    input_files: Sequence[str],
    tokenizer: FullTokenizer,
    num_workers: int = 1,
    on_progress: Callable[[int], None] = lambda tokens: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> Documents:
    """Reads and tokenizes a corpus.

    As in the original, a document goes on across the end of a file: only a blank line ends it.

    Args:
        num_workers: the number of processes that tokenize; 1 tokenizes in this process. The result is the same.

    Raises:
        InputError: a file does not exist, or no file holds a document.
    """
    lines = (line for name in input_files for line in read_lines(name))
    documents = encode_documents(lines, tokenizer, num_workers, on_progress)
    if not len(documents):
        raise no_text(input_files)
    return documents


def no_text(input_files: Sequence[str]) -> InputError:
    """Returns the error of a corpus without a document."""
    return InputError(
        f"--input_file: no text in {', '.join(input_files)}; give files with one sentence a line and a blank line "
        "between documents"
    )


def encode_documents(
    lines: Iterable[str],
    tokenizer: FullTokenizer,
    num_workers: int = 1,
    on_progress: Callable[[int], None] = lambda tokens: None,
) -> Documents:
    """Tokenizes the lines of a text, without lines and documents that have no tokens.

    Args:
        lines: one sentence each, and blank ones between documents.
        tokenizer, num_workers, on_progress: as in `read_documents`.
    """
    ids, lengths = array(id_type(tokenizer.vocab).char), array("q")
    for block_ids, block_lengths in _encode_blocks(_blocks(lines), tokenizer, num_workers):
        ids.frombytes(block_ids.tobytes())
        lengths.frombytes(block_lengths.tobytes())
        on_progress(len(ids))
    line_lengths = np.frombuffer(lengths, np.int64)
    has_tokens = line_lengths > 0
    document = np.cumsum(line_lengths == _BLANK_LINE)[has_tokens]  # of each segment
    return Documents(
        ids=np.frombuffer(ids, ids.typecode),
        segment_starts=np.concatenate([[0], np.cumsum(line_lengths[has_tokens])]),
        document_starts=np.append(np.flatnonzero(np.diff(document, prepend=-1)), len(document)),
    )


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Groups lines into blocks of about `_BLOCK_CHARACTERS` characters: the unit of work of one process."""
    block, num_characters = [], 0
    for line in lines:
        block.append(line)
        num_characters += len(line)
        if num_characters >= _BLOCK_CHARACTERS:
            yield block
            block, num_characters = [], 0
    yield block


def _encode_blocks(blocks: Iterable[list[str]], tokenizer: FullTokenizer, num_workers: int) -> Iterator[EncodedLines]:
    """Yields every encoded block in order, with a bounded number of blocks in progress."""
    if num_workers == 1:
        for block in blocks:
            yield _encode_lines(tokenizer, block)
        return
    with worker_processes(num_workers, _start_worker, tokenizer) as workers:
        pending = collections.deque()
        for block in blocks:
            pending.append(workers.submit(_encode_in_worker, block))
            if len(pending) > 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _encode_lines(tokenizer: FullTokenizer, lines: Iterable[str]) -> EncodedLines:
    # A line of WikiExtractor may hold "\n" as a character reference.
    lines = [line.strip().replace("\n", " ") for line in lines]
    ids, lengths = tokenizer.encode_lines(lines)
    is_blank = np.array([not line for line in lines], bool)
    return ids.astype(id_type(tokenizer.vocab)), np.where(is_blank, _BLANK_LINE, lengths)


def _start_worker(tokenizer: FullTokenizer):
    global _worker_tokenizer
    _worker_tokenizer = tokenizer


def _encode_in_worker(lines: list[str]) -> EncodedLines:
    return _encode_lines(_worker_tokenizer, lines)
