"""Reading a corpus into compact arrays of vocabulary ids.

In: text files, one sentence a line, a blank line between documents. Out: `Documents`: one flat array of ids and the
offsets of segments and documents in it. Tokenization may run in other processes; they never import TensorFlow.
"""

import collections
import concurrent.futures
import dataclasses
import multiprocessing
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from official_bert import files
from official_bert.errors import InputError
from official_bert.tokenization import FullTokenizer

_BLOCK_CHARACTERS = 1 << 18
_BLANK_LINE = -1

EncodedLines = tuple[array, array]


@dataclasses.dataclass(frozen=True)
class Documents:
    """Documents of token ids, in the order of the files.

    Attributes:
        ids: unsigned[tokens], all tokens one after the other, in the smallest type that holds the vocabulary.
        segment_starts: int64[segments + 1], where in `ids` each segment ("sentence") starts, and the end.
        document_starts: int64[documents + 1], which segment each document starts with, and the end.
    """

    ids: np.ndarray
    segment_starts: np.ndarray
    document_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def bounds_of(self, document: int) -> Sequence[int]:
        """int64[segments + 1]: offsets in `ids` at which the segments of `document` begin and end."""
        first, end = self.document_starts[document : document + 2]
        return memoryview(self.segment_starts)[first : end + 1]  # its items are Python integers


def id_type(vocab: dict[str, int]) -> np.dtype:
    """The smallest unsigned type that holds every id of a vocabulary."""
    return np.min_scalar_type(max(vocab.values(), default=0))


def read_documents(
    input_files: Sequence[str],
    tokenizer: FullTokenizer,
    num_workers: int = 1,
    on_progress: Callable[[int], None] = lambda tokens: None,
) -> Documents:
    """Reads and tokenizes a corpus.

    The end of a file ends no document, as in the original. Lines without tokens are left out.

    Args:
        input_files: text files.
        tokenizer: gives each line its ids.
        num_workers: processes that tokenize; 1 tokenizes in this one. The result is the same.
        on_progress: called now and then with the number of tokens read.

    Raises:
        InputError: a file that does not exist, or no document in all of them.
    """
    ids = array(id_type(tokenizer.vocab).char)
    segment_starts = array("q", [0])
    document_starts = array("q", [0])

    def end_document():
        if len(segment_starts) - 1 > document_starts[-1]:
            document_starts.append(len(segment_starts) - 1)

    blocks = _blocks(line for name in input_files for line in files.read_lines(name))
    for block_ids, lengths in _encode_blocks(blocks, tokenizer, num_workers):
        ids.extend(block_ids)
        for length in lengths:
            if length == _BLANK_LINE:
                end_document()
            elif length:
                segment_starts.append(segment_starts[-1] + length)
        on_progress(len(ids))
    end_document()
    if len(document_starts) == 1:
        raise InputError(
            f"--input_file: no text in {', '.join(input_files)}; give files with one sentence a line and a blank line "
            "between documents"
        )
    return Documents(_as_numpy(ids), _as_numpy(segment_starts), _as_numpy(document_starts))


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines in lists of some hundred thousand characters: the unit of work of a process."""
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
    """Ids and line lengths of every block, in order, with a bounded number of blocks in flight."""
    if num_workers == 1:
        for block in blocks:
            yield _encode_lines(tokenizer, block)
        return
    with concurrent.futures.ProcessPoolExecutor(
        num_workers,
        multiprocessing.get_context("spawn"),  # a forked child would inherit the threads' locks
        initializer=_start_worker,
        initargs=(tokenizer,),
    ) as pool:
        pending = collections.deque()
        for block in blocks:
            pending.append(pool.submit(_encode_in_worker, block))
            if len(pending) > 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _encode_lines(tokenizer: FullTokenizer, lines: Iterable[str]) -> EncodedLines:
    """Ids of all lines, and the number of ids of each line (_BLANK_LINE for a blank one)."""
    ids = array(id_type(tokenizer.vocab).char)
    lengths = array("q")
    for line in lines:
        line = line.strip()
        if line:
            line_ids = tokenizer.encode(line)
            ids.extend(line_ids)
            lengths.append(len(line_ids))
        else:
            lengths.append(_BLANK_LINE)
    return ids, lengths


def _start_worker(tokenizer: FullTokenizer):
    global _worker_tokenizer
    _worker_tokenizer = tokenizer


def _encode_in_worker(lines: list[str]) -> EncodedLines:
    return _encode_lines(_worker_tokenizer, lines)


def _as_numpy(values: array) -> np.ndarray:
    return np.frombuffer(values, dtype=values.typecode)
