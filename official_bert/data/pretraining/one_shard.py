"""The generator `sharded`: turns the text of one shard into its record file.

In: a text file with the documents of the shard. Out: a TFRecord file with the records of all passes in random order,
and a report of what is in it. The file depends on the text, the config, the seed and the number of the shard, and on
nothing else: shards can be made in any order, in any process.
"""

import collections
import contextlib
import dataclasses
import gzip
import hashlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.documents import Documents, encode_documents
from official_bert.data.pretraining.masks import Masker
from official_bert.data.pretraining.pairs import Pairs, make_pairs
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import frame_examples
from official_bert.features import pretraining_features, unmasked_features
from official_bert.io import files, writing
from official_bert.tokenization import FullTokenizer

ALGORITHM = 1  # number of the algorithm, which the manifest names: another one makes other records
_TOKENS_AT_ONCE = 1 << 17  # in a batch of sequences, so that its arrays fit the processor's cache
_GZIP_LEVEL = 6
_PAIRS, _ORDER = 1, 2  # what the streams of a shard are for


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """All that determines the records of a shard, except its text, its number and the tokenizer.

    Attributes:
        pairs: how text becomes pairs.
        masks: what is masked; None for records without masks.
        random_seed: the seed.
        is_compressed: whether the file of the records is compressed with gzip.
    """

    pairs: PairConfig
    masks: MaskConfig | None
    random_seed: int
    is_compressed: bool


def make_shard(
    number: int, text_file: str, record_file: str, tokenizer: FullTokenizer, config: ShardConfig
) -> dict[str, int | str]:
    """Writes the records of a shard and returns its report: counts by name, and the file's `bytes` and `sha256`.

    Args:
        number: of the shard, from 0.
        text_file: the documents, one sentence a line, blank lines between documents; a file that does not exist has
            none.
        record_file: the file to write, which gets its name when it is complete.
        tokenizer: encodes the text.
        config: of the records.

    Raises:
        InputError: the record file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(files.open_file(text_file)) if files.exists(text_file) else ()
        opened = stack.enter_context(writing.replacing(record_file, "wb"))
        return write_shard(number, text, opened, tokenizer, config)


def write_shard(
    number: int, lines: Iterable[str], file: BinaryIO, tokenizer: FullTokenizer, config: ShardConfig
) -> dict[str, int | str]:
    """Writes the records of a shard to a file that is open, and returns its report.

    Args:
        number: of the shard, from 0.
        lines: one sentence each, and blank ones between documents.
        file: open for bytes.
        tokenizer: encodes the text.
        config: of the records.
    """
    documents = encode_documents(lines, tokenizer)
    counts = collections.Counter(
        documents=len(documents),
        sentences=len(documents.segment_starts) - 1,
        tokens=len(documents.ids),
        unknown_tokens=int((documents.ids == tokenizer.vocab["[UNK]"]).sum()),
        records=0,
    )
    written = _Hashed(file)
    # Without name and time, equal records give equal bytes.
    zipped = gzip.GzipFile("", "wb", _GZIP_LEVEL, fileobj=written, mtime=0) if config.is_compressed else None
    with zipped or contextlib.nullcontext(written) as compressed:
        vocabulary = InstanceVocabulary.of(tokenizer.vocab)
        for features, counted in shard_batches(number, documents, vocabulary, config):
            compressed.write(frame_examples(features))
            counts.update(counted)
    return {**counts, "bytes": written.num_bytes, "sha256": written.sha256.hexdigest()}


def shard_batches(
    number: int, documents: Documents, vocabulary: InstanceVocabulary, config: ShardConfig
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, int]]]:
    """Yields the records of a shard in their order, as batches of features, and what was counted in each.

    Args:
        number: of the shard, from 0.
        documents: of the shard.
        vocabulary: of their ids.
        config: of the records.
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
        yield maker.batch(pairs[order[start : start + batch_size]])


class BatchMaker:
    """Makes batches of the instances over the ids of one shard.

    Args:
        ids: unsigned[tokens], the tokens of the shard.
        vocabulary: of these ids.
        config: how text becomes pairs.
        masks: what is masked; None for records without masks.
    """

    def __init__(self, ids: np.ndarray, vocabulary: InstanceVocabulary, config: PairConfig, masks: MaskConfig | None):
        self._ids, self._vocabulary, self._config = ids, vocabulary, config
        length = config.max_seq_length
        self._masker = Masker(vocabulary, masks) if masks else None
        self._table = (
            pretraining_features(length, masks.max_predictions_per_seq) if masks else unmasked_features(length)
        )

    def batch(self, pairs: Pairs) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Returns the record features of some pairs, name -> int32 or float32[B, length], and counts by name."""
        vocabulary = self._vocabulary
        a_length, b_length = pairs.a_length[:, None], pairs.b_length[:, None]  # [B, 1]
        b_first = a_length + 2
        length = b_first + b_length + 1 if self._config.use_next_sentence else b_first
        position = np.arange(self._config.max_seq_length, dtype=np.int32)  # [S]
        in_b = position >= b_first  # [B, S], padding included
        is_real = position < length
        candidates = (position < length - 1) & (position != b_first - 1)
        candidates[:, 0] = False

        source = position + np.where(in_b, pairs.b_begin[:, None] - b_first, pairs.a_begin[:, None] - 1)
        input_ids = np.where(candidates, self._ids.take(source, mode="clip"), 0).astype(np.int32)
        input_ids[:, 0] = vocabulary.cls_id
        rows = np.arange(len(pairs))
        input_ids[rows, b_first[:, 0] - 1] = vocabulary.sep_id
        input_ids[rows, length[:, 0] - 1] = vocabulary.sep_id

        masked, counts = {}, dict.fromkeys(("predictions", "predictions_masked", "predictions_kept"), 0)
        if self._masker:
            masked, counts = self._masker.mask(input_ids, candidates, length[:, 0], pairs.keys)
        columns = {
            "input_ids": input_ids,
            "input_mask": is_real,
            "segment_ids": in_b & is_real,
            **masked,
            "next_sentence_labels": pairs.is_random_next[:, None],
        }
        features = {feature.name: columns[feature.name].astype(feature.dtype) for feature in self._table}
        counts |= {
            "records": len(pairs),
            "random_next": int(pairs.is_random_next.sum()),
            "truncated": int(pairs.is_truncated.sum()),
            "positions": int(length.sum()),
        }
        return features, counts


class _Hashed:
    """A file whose bytes are counted and hashed while they are written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.num_bytes, self.sha256 = 0, hashlib.sha256()

    def write(self, data) -> int:
        self.num_bytes += len(data)
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self):
        self._file.flush()
