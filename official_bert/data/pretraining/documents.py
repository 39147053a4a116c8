"""Reads a corpus: its documents as compact arrays of vocabulary ids, or distributed over the text
files of shards.

In: lines of text files, one sentence each, with a blank line between documents. As in the original,
a document goes on across the end of a file: only a blank line ends it.
"""

import collections
import dataclasses
import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from official_bert.data.pretraining.pool import worker_processes
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

_BLOCK_CHARACTERS = 1 << 18
_BLANK_LINE = -1
CHARACTERS_HELD = 1 << 24

# The ids of some lines, and the number of ids of each, or _BLANK_LINE.
EncodedLines = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Documents:
    """Documents of token ids, in the order of the files.

    Attributes:
        ids: unsigned[tokens], the ids of all tokens in order, in the smallest type that holds the
            vocabulary.
        segment_starts: int64[segments + 1], the offset in `ids` of each segment ("sentence"), then
            the length of `ids`.
        document_starts: int64[documents + 1], the index of each document's first segment, then the
            number of segments.
    """

    ids: np.ndarray
    segment_starts: np.ndarray
    document_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def get_bounds(self, document: int) -> Sequence[int]:
        """Returns the offsets in `ids` at which the segments of a document begin and end.

        Args:
            document: the index of the document, from 0.

        Returns:
            int64[segments + 1], the beginning of each segment, then the end of the last one.
        """
        first, end = self.document_starts[document : document + 2]
        return self.segment_starts.data[first : end + 1]  # its items are Python integers


def id_type(vocab: dict[str, int]) -> np.dtype:
    """Returns the smallest unsigned type that holds all ids of a vocabulary.

    Args:
        vocab: the id of each WordPiece.
    """
    return np.min_scalar_type(max(vocab.values(), default=0))


@functools.lru_cache(1)  # for thousands of small shards
def _cached_id_type(tokenizer: FullTokenizer) -> np.dtype:
    return id_type(tokenizer.vocab)


def read_documents(
    input_files: Sequence[str],
    tokenizer: FullTokenizer,
    num_workers: int = 1,
    on_progress: Callable[[int], None] = lambda tokens: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> Documents:
    """Reads and tokenizes a corpus; the result is the same for any number of processes.

    Args:
        input_files: the files of the corpus, in order.
        tokenizer: the tokenizer that encodes the lines.
        num_workers: the number of processes that tokenize; 1 for this process alone.
        on_progress: receives the number of tokens read so far; does nothing by default.
        read_lines: a function of a file's name that yields its lines; by default those of a text
            file that is not compressed.

    Raises:
        InputError: a file cannot be read, no line has a token, or a worker process was killed.
    """
    lines = (line for name in input_files for line in read_lines(name))
    documents = encode_documents(lines, tokenizer, num_workers, on_progress)
    if not len(documents):
        raise no_text(input_files)
    return documents


def no_text(input_files: Sequence[str]) -> InputError:
    """Returns the error of a corpus without text, for the caller to raise.

    Args:
        input_files: the files of the corpus, which the message names.
    """
    return InputError(
        f"--input_file: no text in {', '.join(input_files)}; give files with one sentence a line "
        "and a blank line between documents"
    )


def encode_documents(
    lines: Iterable[str],
    tokenizer: FullTokenizer,
    num_workers: int = 1,
    on_progress: Callable[[int], None] = lambda tokens: None,
) -> Documents:
    """Tokenizes the lines of a text, without lines and documents that have no tokens.

    Args:
        lines: the lines, one sentence each; a blank line ends a document. White space around a line
            does not count.
        tokenizer: the tokenizer that encodes the lines.
        num_workers: the number of processes that tokenize; 1 for this process alone.
        on_progress: receives the number of tokens so far; does nothing by default.

    Raises:
        InputError: a worker process was killed.
    """
    ids, lengths = array(_cached_id_type(tokenizer).char), array("q")
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
    """Groups lines into blocks of about `_BLOCK_CHARACTERS` characters: the unit of work of one
    process.
    """
    block, num_characters = [], 0
    for line in lines:
        block.append(line)
        num_characters += len(line)
        if num_characters >= _BLOCK_CHARACTERS:
            yield block
            block, num_characters = [], 0
    yield block


def _encode_blocks(
    blocks: Iterable[list[str]], tokenizer: FullTokenizer, num_workers: int
) -> Iterator[EncodedLines]:
    """Yields every encoded block in order, with a bounded number of blocks in progress."""
    if num_workers == 1:
        for block in blocks:
            yield _encode_lines(tokenizer, block)
        return
    with worker_processes(num_workers, _encode_lines, tokenizer) as workers:
        pending = collections.deque()
        for block in blocks:
            pending.append(workers.submit(block))
            if len(pending) > 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _encode_lines(tokenizer: FullTokenizer, lines: Iterable[str]) -> EncodedLines:
    # A line of WikiExtractor may hold "\n" as a character reference.
    lines = [line.strip().replace("\n", " ") for line in lines]
    ids, lengths = tokenizer.encode_lines(lines)
    is_blank = np.array([not line for line in lines], bool)
    return ids.astype(_cached_id_type(tokenizer)), np.where(is_blank, _BLANK_LINE, lengths)


def distribute(
    input_files: Sequence[str],
    paths: Sequence[str],
    on_progress: Callable[[int], None] = lambda documents: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> int:
    """Writes document k of the corpus into text file k mod n, and returns the number of documents.

    Args:
        input_files: the files of the corpus, in order.
        paths: the n text files, to which the documents are appended. A file that gets no document
            is not created.
        on_progress: receives the number of documents so far, whenever some are written; does
            nothing by default.
        read_lines: a function of a file's name that yields its lines; by default those of a text
            file that is not compressed.

    Raises:
        InputError: a file cannot be read or written.
    """
    # Lines by path: hundreds of files would be too many to keep open.
    held = collections.defaultdict(list)
    num_held, num_documents, is_inside = 0, 0, False
    lines = held[paths[0]]
    for name in input_files:
        for line in read_lines(name):
            line = line.strip()
            if not line:
                is_inside = False
                continue
            if not is_inside:
                if num_held >= CHARACTERS_HELD:
                    _append(held)
                    num_held = 0
                    on_progress(num_documents)
                lines = held[paths[num_documents % len(paths)]]
                lines.append("")  # the end of the document before
                num_documents += 1
                is_inside = True
            lines.append(line)
            num_held += len(line) + 1
            if num_held >= 2 * CHARACTERS_HELD:  # within a very long document
                _append(held)
                num_held = 0
    _append(held)
    return num_documents


def _append(held: dict[str, list[str]]):
    for path, lines in held.items():
        if lines:
            with writing.saying_why(path), files.open_file(path, "ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            lines.clear()
