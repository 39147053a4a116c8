"""Reads a corpus: its documents as compact arrays of vocabulary ids, or distributed over the text
files of shards.

In: lines of text files, one sentence each, with a blank line between documents. As in the original,
a document goes on across the end of a file: only a blank line ends it.
"""

import collections
import dataclasses
import functools
import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.pretraining.pool import worker_processes
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

_BLOCK_CHARACTERS = 1 << 18
_BLOCK_BYTES = 1 << 20
_BLANK_LINE = -1
CHARACTERS_HELD = 1 << 24
_LOG2_SHARD_CHARACTERS = 14
_HEAD = -1  # the number of the file that begins before the first document

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


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of the text of a shard.

    Attributes:
        path: the file.
        start: the offset in bytes at which the part begins.
    """

    path: str
    start: int = 0


class DistributedFiles(NamedTuple):
    """What `distribute` wrote for a run of files.

    Attributes:
        has_head: whether the files begin within a document, or with one. It is in a file of its
            own, because only the files before tell which of the two it is.
        num_documents: the number of the other documents.
        is_inside: whether the files end within a document; None if they have no line.
    """

    has_head: bool
    num_documents: int
    is_inside: bool | None


def split_files(input_files: Sequence[str], num_runs: int) -> list[list[str]]:
    """Splits files into runs of neighbours with about the same number of bytes.

    Args:
        input_files: the files, in order. Pipes and devices, which can have only one reader at a
            time, make a single run.
        num_runs: the largest number of runs.

    Raises:
        InputError: a file cannot be read.
    """
    if num_runs == 1 or len(input_files) == 1 or any(map(files.is_special, input_files)):
        return [list(input_files)]
    sizes = [files.size(path) for path in input_files]
    num_bytes = max(1, sum(sizes))
    runs = collections.defaultdict(list)
    first_byte = 0
    for path, size in zip(input_files, sizes, strict=True):
        middle = first_byte + size // 2
        runs[middle * num_runs // num_bytes].append(path)
        first_byte += size
    return list(runs.values())


def distribute(
    input_files: Sequence[str],
    folder: str,
    num_shards: int,
    on_progress: Callable[[int], None] = lambda documents: None,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> DistributedFiles:
    """Writes document k of a run of files into the text file k mod n of a folder.

    Several processes can distribute runs of a corpus at a time: `assign_pieces` tells to which
    shards the text files belong.

    Args:
        input_files: the files, in order.
        folder: the folder of the text files, which are appended to. A file that gets no document is
            not created.
        num_shards: the number n of shards.
        on_progress: receives the number of documents so far, whenever some are written; does
            nothing by default.
        read_lines: a function of a file's name that yields its lines; by default those of a text
            file that is not compressed.

    Raises:
        InputError: a file cannot be read or written.
    """
    # Lines by number of the text file: hundreds of files would be too many to keep open.
    held = collections.defaultdict(list)
    # With many shards, each file gets 16 KB at a time, because to open it takes long on a network.
    max_held = max(CHARACTERS_HELD, num_shards << _LOG2_SHARD_CHARACTERS)
    num_held = num_documents = 0
    has_head, is_inside = False, None
    lines = held[_HEAD]
    for name in input_files:
        for line in read_lines(name):
            line = line.strip()
            if not line:
                is_inside = False
                continue
            if not is_inside:
                if num_held >= max_held:
                    _append(held, folder)
                    num_held = 0
                    on_progress(num_documents)
                if is_inside is None:
                    has_head = True
                else:
                    lines = held[num_documents % num_shards]
                    num_documents += 1
                lines.append("")  # the end of the document before
                is_inside = True
            lines.append(line)
            num_held += len(line) + 1
            if num_held >= 2 * max_held:  # within a very long document
                _append(held, folder)
                num_held = 0
    _append(held, folder)
    return DistributedFiles(has_head, num_documents, is_inside)


def assign_pieces(
    runs: Iterable[tuple[str, DistributedFiles]], num_shards: int
) -> tuple[list[list[Piece]], int]:
    """Returns the text of each shard, so that document k of the corpus is in shard k mod n.

    Args:
        runs: the folder of each run of files, and what `distribute` wrote there, in the order of
            the corpus.
        num_shards: the number n of shards.

    Returns:
        The pieces of each shard in order, and the number of documents of the corpus.
    """
    pieces: list[list[Piece]] = [[] for _ in range(num_shards)]
    num_documents = 0
    is_inside = False
    for folder, run in runs:
        if run.has_head:
            num_documents += not is_inside
            # A document that goes on does not begin with a blank line.
            head = Piece(_text_file(folder, _HEAD), start=int(is_inside))
            pieces[(num_documents - 1) % num_shards].append(head)
        for number in range(min(num_shards, run.num_documents)):
            shard = (num_documents + number) % num_shards
            pieces[shard].append(Piece(_text_file(folder, number)))
        num_documents += run.num_documents
        if run.is_inside is not None:
            is_inside = run.is_inside
    return pieces, num_documents


def read_pieces(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yields the lines of the text of a shard.

    Args:
        pieces: the parts of the text, in order.

    Raises:
        InputError: a file cannot be read.
    """
    for piece in pieces:
        with files.open_file(piece.path, "rb") as file:
            file.seek(piece.start)
            for line in file:
                yield line.decode()


def text_digest(pieces: Iterable[Piece]) -> str:
    """Returns the SHA-256 digest of the text of a shard, as hexadecimal digits.

    Args:
        pieces: the parts of the text, in order.

    Raises:
        InputError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for piece in pieces:
        with files.open_file(piece.path, "rb") as file:
            file.seek(piece.start)
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def _append(held: dict[int, list[str]], folder: str):
    for number, lines in held.items():
        if lines:
            path = _text_file(folder, number)
            with writing.saying_why(path), files.open_file(path, "ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            lines.clear()


def _text_file(folder: str, number: int) -> str:
    return os.path.join(folder, "head.txt" if number == _HEAD else f"{number:05}.txt")
