"""The generator `sharded`: turns the text of one shard into its record file, and reports its
content.

The file depends only on the text, the config, the seed and the number of the shard. All passes over
all documents advance together, a pair at each step, so that numpy makes thousands of pairs in a
call. The last few passes, over the longest documents, are finished one after the other. Therefore
one huge document takes no longer than many small ones.
"""

import collections
import contextlib
import dataclasses
import functools
import gzip
import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.documents import (
    Documents,
    Piece,
    encode_documents,
    read_pieces,
)
from official_bert.data.pretraining.masks import Masker
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import encode_examples, frame
from official_bert.features import pretraining_features, unmasked_features
from official_bert.io import writing
from official_bert.tokenization import FullTokenizer

ALGORITHM = 1  # number of the algorithm, which the manifest names: another one makes other records
_TOKENS_AT_ONCE = 1 << 17  # in a batch of sequences, so that its arrays fit the processor's cache
_GZIP_LEVEL = 6
# What the streams of a shard are for.
_PAIRS = 1
_ORDER = 2
SCANS_AT_ONCE = 1 << 15  # bounds the memory: a scan is one pass over one document
FEW_SCANS = 64  # whose steps take Python less time than numpy
PAIRS_AT_ONCE = 1 << 12  # of one of these
# The numbers of the draws in the stream of a scan.
_IS_SHORT = 0
_LENGTH = 1
_FIRST_PAIR = 2
# The numbers of the draws in the stream of a pair.
_MIDDLE = 0
_IS_RANDOM = 1
_DOCUMENT = 2
_SEGMENT = 3
_KEY = 4
_CUT_A = 1 << 8
_CUT_B = 1 << 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """All that determines the records of a shard, except its text, its number and the tokenizer."""

    pairs: PairConfig
    masks: MaskConfig | None
    random_seed: int
    is_compressed: bool


def make_shard(
    number: int,
    text: Sequence[Piece],
    record_file: str,
    tokenizer: FullTokenizer,
    config: ShardConfig,
) -> dict[str, int | str]:
    """Writes the records of a shard.

    Args:
        number: the number of the shard, from 0.
        text: the text of the shard, of which there may be none.
        record_file: the TFRecord file to write, which is replaced if it exists.
        tokenizer: the tokenizer that encodes the text.
        config: all else that determines the records.

    Returns:
        Counts by name, and the `bytes` and the `sha256` of the file.

    Raises:
        InputError: a file cannot be read or written, or the vocabulary lacks a special token.
    """
    documents = encode_documents(read_pieces(text), tokenizer)
    unknown_id = tokenizer.vocab["[UNK]"]
    counts = collections.Counter(
        documents=len(documents),
        sentences=len(documents.segment_starts) - 1,
        tokens=len(documents.ids),
        unknown_tokens=int((documents.ids == unknown_id).sum()),
        records=0,
    )
    # The caller has removed what is left in the folder, which has thousands of files: a list for
    # each takes long.
    with writing.replacing(record_file, "wb", removes_left=False) as file:
        written = _HashedFile(file)
        # Without name and time, equal records give equal bytes.
        zipped = (
            gzip.GzipFile("", "wb", _GZIP_LEVEL, fileobj=written, mtime=0)
            if config.is_compressed
            else None
        )
        with zipped or contextlib.nullcontext(written) as compressed:
            for features, counted in shard_batches(
                number, documents, _cached_vocabulary(tokenizer), config
            ):
                compressed.write(b"".join(map(frame, encode_examples(features))))
                counts.update(counted)
    return {
        **counts,
        "bytes": written.num_bytes,
        "sha256": written.sha256.hexdigest(),
    }


@functools.lru_cache(1)  # for thousands of small shards
def _cached_vocabulary(tokenizer: FullTokenizer) -> InstanceVocabulary:
    return InstanceVocabulary.from_vocab(tokenizer.vocab)


def shard_batches(
    number: int,
    documents: Documents,
    vocabulary: InstanceVocabulary,
    config: ShardConfig,
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, int]]]:
    """Yields the records of a shard in their order, in batches.

    Args:
        number: the number of the shard, from 0, which is a part of the seed of its draws.
        documents: the text of the shard. Without documents there are no batches.
        vocabulary: the ids of the special tokens and of the words.
        config: all else that determines the records.

    Yields:
        The features of a batch, int32 or float32[B, length] by name, and what was counted in it,
        by name.
    """
    if not len(documents):
        return
    key = random_streams.stream(config.random_seed, number, _PAIRS)
    pairs = make_pairs(documents, config.pairs, key)
    # The order of random numbers is a random order.
    order = np.argsort(random_streams.draw(pairs.keys, _ORDER))
    maker = BatchMaker(documents.ids, vocabulary, config.pairs, config.masks)
    batch_size = max(1, _TOKENS_AT_ONCE // config.pairs.max_seq_length)
    for start in range(0, len(pairs), batch_size):
        rows = order[start : start + batch_size]
        yield maker.batch(pairs[rows])


class BatchMaker:
    """Makes batches of the instances over the ids of one shard, unsigned[tokens]; without
    `masks` unmasked ones.
    """

    def __init__(
        self,
        ids: np.ndarray,
        vocabulary: InstanceVocabulary,
        config: PairConfig,
        masks: MaskConfig | None,
    ):
        self._ids = ids
        self._vocabulary = vocabulary
        self._config = config
        length = config.max_seq_length
        if masks:
            self._masker = Masker(vocabulary, masks)
            self._table = pretraining_features(length, masks.max_predictions_per_seq)
        else:
            self._masker = None
            self._table = unmasked_features(length)

    def batch(self, pairs: "Pairs") -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Makes the records of some pairs.

        Args:
            pairs: the B pairs, whose offsets are in the ids of the shard.

        Returns:
            The features, name -> int32 or float32[B, length], and counts by name.
        """
        vocabulary = self._vocabulary
        a_length = pairs.a_length[:, None]  # [B, 1]
        b_length = pairs.b_length[:, None]  # [B, 1]
        b_first = a_length + 2
        length = b_first
        if self._config.use_next_sentence:
            length = b_first + b_length + 1
        position = np.arange(self._config.max_seq_length, dtype=np.int32)  # [S]
        is_second = position >= b_first  # [B, S], padding included
        is_real = position < length
        candidates = (position < length - 1) & (position != b_first - 1)
        candidates[:, 0] = False

        a_offset = pairs.a_begin[:, None] - 1
        b_offset = pairs.b_begin[:, None] - b_first
        source = position + np.where(is_second, b_offset, a_offset)
        input_ids = np.where(
            candidates,
            self._ids.take(source, mode="clip"),
            0,
        ).astype(np.int32)
        input_ids[:, 0] = vocabulary.cls_id
        rows = np.arange(len(pairs))
        input_ids[rows, b_first[:, 0] - 1] = vocabulary.sep_id
        input_ids[rows, length[:, 0] - 1] = vocabulary.sep_id

        masked = {}
        counts = {
            "predictions": 0,
            "predictions_masked": 0,
            "predictions_kept": 0,
        }
        if self._masker:
            masked, counts = self._masker.mask(
                input_ids,
                candidates,
                length[:, 0],
                pairs.keys,
            )
        columns = {
            "input_ids": input_ids,
            "input_mask": is_real,
            "segment_ids": is_second & is_real,
            **masked,
            "next_sentence_labels": pairs.is_random_next[:, None],
        }
        features = {
            feature.name: columns[feature.name].astype(feature.dtype) for feature in self._table
        }
        counts |= {
            "records": len(pairs),
            "random_next": int(pairs.is_random_next.sum()),
            "truncated": int(pairs.is_truncated.sum()),
            "positions": int(length.sum()),
        }
        return features, counts


class _HashedFile:
    """Writes to a file, and computes the size and the digest of what is written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.num_bytes = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.num_bytes += len(data)
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self):
        self._file.flush()


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of segments, each [n]; without next-sentence prediction the second ones are empty.

    A segment has an offset in the ids of the documents, int64, and a number of tokens, int32. The
    keys, uint64, are the streams that mask the pairs. What a pair is, and how likely, is as in
    `exact.sentence_pairs`, with one difference: the random next segments never come from the same
    document where there is another one.
    """

    a_begin: np.ndarray
    a_length: np.ndarray
    b_begin: np.ndarray
    b_length: np.ndarray
    is_random_next: np.ndarray
    is_truncated: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray) -> "Pairs":
        """Returns the chosen pairs, int[B] or bool[n]."""
        columns = [getattr(self, field.name)[rows] for field in dataclasses.fields(self)]
        return Pairs(*columns)

    @classmethod
    def joined(cls, parts: list["Pairs"]) -> "Pairs":
        """Concatenates pairs.

        Args:
            parts: the pairs, of which there is one part at least.
        """
        columns = []
        for field in dataclasses.fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            columns.append(np.concatenate(arrays))
        return cls(*columns)


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Pairs as runs of whole segments, before truncation, numbers in the documents'
    `segment_starts`, each int64[n].

    Without next-sentence prediction `b_first` and `b_end` are 0. The keys are those of `Pairs`.
    """

    document: np.ndarray
    a_first: np.ndarray
    a_end: np.ndarray
    b_document: np.ndarray
    b_first: np.ndarray
    b_end: np.ndarray
    is_random_next: np.ndarray
    keys: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Runs:
    """Runs of segments [first, end) of documents, each of which becomes a pair; all are [n].

    The pairs aim at `target` tokens, a number for all or one for each. The keys are their streams.
    """

    document: np.ndarray
    first: np.ndarray
    end: np.ndarray
    target: np.ndarray | int
    keys: np.ndarray


class _Rest(NamedTuple):
    """The rest of a scan, from the segment `first` of a document on.

    Its pairs have `target` tokens.

    The key is the stream of the scan, uint64.
    """

    document: int
    first: int
    target: int
    key: np.ndarray


def make_pairs(documents: Documents, config: PairConfig, key: np.ndarray) -> Pairs:
    """Makes the pairs of all passes over all documents, in another order than that of the text.

    Args:
        documents: the text of the shard, with one document at least.
        config: how text becomes pairs.
        key: the stream of the shard's pairs, uint64[1].
    """
    most = num_text_tokens(config)
    all_chunks = make_chunks(documents, config, key)
    parts = [truncated(chunks, documents, most) for chunks in all_chunks]
    return Pairs.joined(parts)


def num_text_tokens(config: PairConfig) -> int:
    """Returns the largest number of tokens of a pair, without special tokens.

    Args:
        config: how text becomes pairs. A single segment, without next-sentence prediction, has one
            special token less.
    """
    return config.max_seq_length - (3 if config.use_next_sentence else 2)


def make_chunks(documents: Documents, config: PairConfig, key: np.ndarray) -> Iterator[Chunks]:
    """Yields the pairs of all passes before truncation, some at a time.

    Args:
        documents: the text of the shard.
        config: how text becomes pairs.
        key: the stream of the shard's pairs, uint64[1].
    """
    max_num_tokens = num_text_tokens(config)
    num_scans = config.dupe_factor * len(documents)
    for start in range(0, num_scans, SCANS_AT_ONCE):
        scans = np.arange(start, min(start + SCANS_AT_ONCE, num_scans))
        document = scans % len(documents)
        pass_number = scans // len(documents)
        scan_keys = random_streams.stream(key, pass_number, document)
        fractions = random_streams.uniform(random_streams.draw(scan_keys, _IS_SHORT))
        is_short = fractions < config.short_seq_prob
        length_words = random_streams.draw(scan_keys, _LENGTH)
        lengths = 2 + random_streams.below(length_words, max_num_tokens - 1)
        target = np.where(is_short, lengths, max_num_tokens)
        yield from _scan(documents, document, target, config.use_next_sentence, scan_keys)


def _scan(
    documents: Documents,
    document: np.ndarray,
    target: np.ndarray,
    use_next_sentence: bool,
    keys: np.ndarray,
) -> Iterator[Chunks]:
    """Yields the pairs of some scans, those of one step at a time.

    The pairs of a scan over `document` aim at `target` tokens; the arrays are [n].
    """
    starts = documents.segment_starts
    first = documents.document_starts[document]
    document_end = documents.document_starts[document + 1]
    number = _FIRST_PAIR
    while len(first) > FEW_SCANS:
        end = np.searchsorted(starts, starts[first] + target)
        end = np.minimum(end, document_end)
        runs = _Runs(
            document,
            first,
            end,
            target,
            random_streams.draw(keys, number),
        )
        chunks = _make_chunks(documents, runs, use_next_sentence)
        yield chunks
        number += 1
        # A's left-over segments are used again.
        first = np.where(chunks.is_random_next, chunks.a_end, end)
        has_more = first < document_end
        if not has_more.all():
            first = first[has_more]
            document = document[has_more]
            document_end = document_end[has_more]
            target = target[has_more]
            keys = keys[has_more]
    scans = zip(
        document.tolist(),
        first.tolist(),
        target.tolist(),
        keys,
        strict=True,
    )
    for scan in scans:
        for runs in _finish_scan(documents, _Rest(*scan), number, use_next_sentence):
            yield _make_chunks(documents, runs, use_next_sentence)


def _finish_scan(
    documents: Documents,
    rest: _Rest,
    number: int,
    use_next_sentence: bool,
) -> Iterator[_Runs]:
    """Yields the runs of the rest of a scan, some at a time, from the pair `number` on.

    Only the beginnings of the runs are computed one by one.
    """
    starts = documents.segment_starts.data  # Its items are Python integers.
    first = rest.first
    document_end = int(documents.document_starts[rest.document + 1])
    while first < document_end:
        numbers = number + np.arange(min(PAIRS_AT_ONCE, document_end - first))
        number += len(numbers)
        keys = random_streams.draw(rest.key, numbers)
        is_random = _is_random(keys) & use_next_sentence
        middles = random_streams.draw(keys, _MIDDLE) >> np.uint64(32)
        firsts = []
        ends = []
        for restarts, middle in zip(is_random.tolist(), middles.tolist(), strict=True):
            end = bisect_left(starts, starts[first] + rest.target, first + 1)
            end = min(end, document_end)
            firsts.append(first)
            ends.append(end)
            if restarts:
                # The same number as that of `random_streams.below`.
                first += 1 + (middle * (end - first - 1) >> 32)
            else:
                first = end
            if first == document_end:
                break
        yield _Runs(
            document=np.full(len(firsts), rest.document),
            first=np.array(firsts),
            end=np.array(ends),
            target=rest.target,
            keys=keys[: len(firsts)],
        )


def _make_chunks(documents: Documents, runs: _Runs, use_next_sentence: bool) -> Chunks:
    """Makes a pair of each run; without next-sentence prediction, A is the whole run."""
    if use_next_sentence:
        return _split_runs(documents, runs)
    zeros = np.zeros(len(runs.first), np.int64)
    return Chunks(
        document=runs.document,
        a_first=runs.first,
        a_end=runs.end,
        b_document=runs.document,
        b_first=zeros,
        b_end=zeros,
        is_random_next=zeros.astype(bool),
        keys=runs.keys,
    )


def _is_random(keys: np.ndarray) -> np.ndarray:
    return random_streams.uniform(random_streams.draw(keys, _IS_RANDOM)) < 0.5


def _split_runs(documents: Documents, runs: _Runs) -> Chunks:
    """Splits runs into A and its next segments, or draws other segments for B."""
    starts = documents.segment_starts
    keys = runs.keys
    size = runs.end - runs.first
    middle_words = random_streams.draw(keys, _MIDDLE)
    size_after_first = np.maximum(size - 1, 1)
    middle = runs.first + 1 + random_streams.below(middle_words, size_after_first)
    is_random = (size == 1) | _is_random(keys)

    num_others = max(len(documents) - 1, 1)
    other = random_streams.below(random_streams.draw(keys, _DOCUMENT), num_others)
    if len(documents) > 1:
        other += other >= runs.document
    other_first = documents.document_starts[other]
    other_end = documents.document_starts[other + 1]
    segment_words = random_streams.draw(keys, _SEGMENT)
    other_size = other_end - other_first
    random_first = other_first + random_streams.below(segment_words, other_size)
    a_length = starts[middle] - starts[runs.first]
    target_end = starts[random_first] + runs.target - a_length
    random_end = np.searchsorted(starts, target_end)
    random_end = np.maximum(random_end, random_first + 1)
    random_end = np.minimum(random_end, other_end)
    return Chunks(
        document=runs.document,
        a_first=runs.first,
        a_end=middle,
        b_document=np.where(is_random, other, runs.document),
        b_first=np.where(is_random, random_first, middle),
        b_end=np.where(is_random, random_end, runs.end),
        is_random_next=is_random,
        keys=keys,
    )


def truncated(chunks: Chunks, documents: Documents, max_num_tokens: int) -> Pairs:
    """Cuts pairs to `max_num_tokens` in all.

    As in `exact.truncated`, the longer side (B on a tie) loses one token after the other at a
    random end: the numbers of tokens that are left do not depend on the draws, and those cut off
    the front are binomial.

    Args:
        chunks: the pairs before truncation.
        documents: the text of the shard.
        max_num_tokens: the largest number of tokens of a pair, without special tokens.
    """
    starts = documents.segment_starts
    keys = chunks.keys
    a_begin = starts[chunks.a_first]
    b_begin = starts[chunks.b_first]
    a_length = starts[chunks.a_end] - a_begin
    b_length = starts[chunks.b_end] - b_begin
    is_truncated = a_length + b_length > max_num_tokens
    half = max_num_tokens - max_num_tokens // 2  # A's tokens if both sides are cut
    a_limit = np.maximum(max_num_tokens - b_length, half)
    a_left = np.where(is_truncated, np.minimum(a_length, a_limit), a_length)
    b_left = np.where(
        is_truncated,
        np.minimum(b_length, max_num_tokens - a_left),
        b_length,
    )
    return Pairs(
        a_begin=a_begin + random_streams.binomial(keys, _CUT_A, a_length - a_left),
        a_length=a_left.astype(np.int32),
        b_begin=b_begin + random_streams.binomial(keys, _CUT_B, b_length - b_left),
        b_length=b_left.astype(np.int32),
        is_random_next=chunks.is_random_next,
        is_truncated=is_truncated,
        keys=random_streams.draw(keys, _KEY),
    )
