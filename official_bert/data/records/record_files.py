"""Writes TFRecord files of data sets and of pre-training instances, and finds, checks and opens
record files.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from absl import logging

from official_bert.data.model_inputs import log_example
from official_bert.data.records.framing import ExampleFiles, is_compressed, open_example_files
from official_bert.data.records.parts import check_complete
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.io.reading import check_object, field

if TYPE_CHECKING:
    import tensorflow as tf

Item = TypeVar("Item")
T = TypeVar("T")

# The end of the name of the manifest of shards. A glob for record files may match manifests, too.
MANIFEST_SUFFIX = ".manifest.json"
SHARD_NAME = re.compile(r"-\d{5}-of-\d{5}(\.gz)?$")  # the end of a sharded file's name
EXAMPLES_AT_ONCE = 1_000
EXAMPLES_BETWEEN_LINES = 10_000
_LOGGED_EXAMPLES = 20
_FILES_OPENED_TOGETHER = 16


def write_encoded_set(
    path: str,
    num_examples: int,
    records: Callable[[np.ndarray], Mapping[str, np.ndarray]],
) -> None:
    """Writes a record for each example.

    Args:
        path: the file to write.
        num_examples: the number of examples.
        records: a function from indices of examples, int[b], to their features, each [b, ...].
    """
    with open_example_files([path]) as file:
        for start in range(0, num_examples, EXAMPLES_AT_ONCE):
            log_progress(start, num_examples)
            end = min(start + EXAMPLES_AT_ONCE, num_examples)
            features = records(np.arange(start, end))
            rows = {}
            for name, values in features.items():
                rows[name] = values.reshape(end - start, -1)
            file.write(rows)


def log_progress(index: int, num_examples: int) -> None:
    """Logs a line for every ten thousandth example, as the original does.

    Args:
        index: the number of the example, from 0.
        num_examples: the number of all examples, for the line.
    """
    if index % EXAMPLES_BETWEEN_LINES == 0:
        logging.info("Writing example %d of %d", index, num_examples)


def write_features(
    batches: Iterable[dict[str, np.ndarray]],
    example_files: ExampleFiles,
    inv_vocab: Mapping[int, str],
) -> None:
    """Writes pre-training records, and logs the first ones as the original does.

    Args:
        batches: the features of the records in batches, name -> [batch, length].
        example_files: the files that receive the records.
        inv_vocab: id -> WordPiece, for the log.
    """
    progress = Progress("instances written")
    for features in batches:
        num_written = example_files.num_written
        num_logged = min(len(features["input_ids"]), _LOGGED_EXAMPLES - num_written)
        for row in range(num_logged):
            example = {name: values[row].tolist() for name, values in features.items()}
            _log_example(example, inv_vocab, is_first=num_written + row == 0)
        example_files.write(features)
        progress(example_files.num_written)
    logging.info("Wrote %d total instances", example_files.num_written)


def log_files(title: str, paths: Iterable[str]) -> None:
    """Logs a title, and then each file in a line.

    Args:
        title: the title.
        paths: the files.
    """
    logging.info("*** %s ***", title)
    for path in paths:
        logging.info("  %s", path)


def _log_example(
    example: Mapping[str, list],
    inv_vocab: Mapping[int, str],
    is_first: bool,
):
    length = sum(example["input_mask"])
    ids = example["input_ids"][:length]
    tokens = [inv_vocab[token_id] for token_id in ids]

    def details():
        yield f"tokens: {' '.join(tokens)}"
        for name, values in example.items():
            yield f"{name}: {' '.join(map(str, values))}"

    log_example(tokens, is_first, details)


def expand_records(patterns: Iterable[str], flag: str, needs_all_parts: bool = True) -> list[str]:
    """Returns the record files that the names and globs of a flag match.

    Manifests that globs match are left out.

    Args:
        patterns: names and globs of files.
        flag: the name of the flag, for errors.
        needs_all_parts: whether globs have to match all parts of each set of parts.

    Raises:
        InputError: there is no such file, or a set of parts is incomplete.
    """
    distinct_patterns = set(patterns)
    records = []
    for path in files.expand(patterns, flag):
        if path in distinct_patterns or not path.endswith(MANIFEST_SUFFIX):
            records.append(path)
    if needs_all_parts:
        matches = {path for path in records if path not in distinct_patterns}
        check_complete(matches, records, flag)
    if not records:
        raise InputError(
            f"--{flag}: no file of records matches {','.join(distinct_patterns)!r}; check the path "
            "or the glob"
        )
    return records


def hidden_manifest(path: str) -> str:
    """Returns the name of the manifest of a single record file; globs do not match it.

    Args:
        path: the record file.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{MANIFEST_SUFFIX}")


def manifest_beside(path: str) -> tuple[str, dict] | None:
    """Returns the path and the content of the manifest that describes a record file, or None.

    A file of another size was written later under the same name. The manifest does not describe it.

    Args:
        path: the record file.

    Raises:
        InputError: a manifest cannot be read, or lacks its list of shards.
    """
    for manifest_file in (hidden_manifest(path), _shards_manifest(path)):
        if not files.exists(manifest_file):
            continue
        content = reading.read_json(manifest_file)
        manifest = check_object(content, manifest_file)
        entry = {
            "file": os.path.basename(path),
            "bytes": files.size(path),
        }
        shards = field(manifest, "shards", list, manifest_file)
        for shard in shards:
            shard_fields = check_object(shard, manifest_file)
            if entry.items() <= shard_fields.items():
                return manifest_file, manifest
    return None


def _shards_manifest(path: str) -> str:
    """Returns the name of the manifest beside the shard `path`."""
    return SHARD_NAME.sub("", path) + MANIFEST_SUFFIX


def vocabulary_digest(vocab: Mapping[str, int]) -> str:
    """Returns a digest of the pieces of a vocabulary and their ids, whatever its file format.

    Args:
        vocab: the vocabulary, WordPiece -> id.
    """
    pieces = sorted(vocab.items(), key=operator.itemgetter(1))
    text = json.dumps(pieces)
    return hashlib.sha256(text.encode()).hexdigest()


def check_records_vocabulary(
    records: Iterable[str],
    vocab_file: str,
    vocab: Mapping[str, int],
) -> None:
    """Checks that record files were made with a vocabulary.

    The digest in their manifests shows it. In manifests of earlier versions it is the digest of the
    vocabulary's file, or there is none. Files without a digest are not checked.

    Args:
        records: the record files.
        vocab_file: the file of the vocabulary.
        vocab: the vocabulary, WordPiece -> id.

    Raises:
        InputError: the ids of the records stand for other pieces.
    """
    digests = {
        "pieces_sha256": lambda: vocabulary_digest(vocab),
        "vocabulary_sha256": lambda: files.sha256(vocab_file),
    }
    one_shard_by_output = {SHARD_NAME.sub("", path): path for path in records}
    for path in sorted(one_shard_by_output.values()):
        manifest_and_file = manifest_beside(path)
        if manifest_and_file is None:
            continue
        manifest_file, manifest = manifest_and_file
        name = next((name for name in digests if name in manifest), None)
        if name and manifest[name] != digests[name]():
            raise InputError(
                f"{manifest_file}: {path} was made with another vocabulary than {vocab_file}, so "
                "its ids stand for other pieces; name the vocabulary that it was made with as "
                "--vocab_file, or make the records again"
            )


def record_contents(paths: Sequence[str]) -> list[tuple[str, int, str | None]]:
    """Returns the path, the size in bytes and the recorded digest of record files.

    Size and digest distinguish files of the same name. The digest comes from a manifest of shards.
    It is None for a file without such a manifest, because to compute it, all records would have to
    be read. To see whether files were rewritten, use `sizes_and_times`.

    Args:
        paths: the record files.

    Raises:
        InputError: a manifest cannot be read, or lacks its list of shards.
    """
    manifest_digests: dict[str, dict[str, str]] = {}  # manifest -> name of a shard -> digest
    contents = []
    for path, (size, _) in sizes_and_times(paths).items():
        manifest_file = _shards_manifest(path)
        if manifest_file not in manifest_digests:
            manifest_digests[manifest_file] = _read_digests(path)
        digest = manifest_digests[manifest_file].get(os.path.basename(path))
        contents.append((path, size, digest))
    return contents


def _read_digests(path: str) -> dict[str, str]:
    """Returns name -> digest of the shards in the manifest beside a record file."""
    _, manifest = manifest_beside(path) or ("", {})
    shards = manifest.get("shards", [])
    return {shard["file"]: shard["sha256"] for shard in shards if "sha256" in shard}


def names_and_compressions(files: Sequence[str]) -> tf.data.Dataset:
    """Returns a dataset of the arguments of `record_dataset` for each file.

    The first bytes of the files are read now.

    Args:
        files: the record files, plain or gzip.

    Raises:
        InputError: a file cannot be read.
    """
    import tensorflow as tf

    compressions = for_each(is_compressed, files)
    return tf.data.Dataset.from_tensor_slices((list(files), compressions))


def sizes_and_times(
    files: Sequence[str],
) -> dict[str, tuple[int, int]]:
    """Returns the number of bytes of each file, and when it was written, in nanoseconds.

    Args:
        files: the files, local or remote.
    """
    import tensorflow as tf

    stats = for_each(tf.io.gfile.stat, files)
    properties = [(stat.length, stat.mtime_nsec) for stat in stats]
    return dict(zip(files, properties, strict=True))


def for_each(function: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """Returns the results of a function for each file.

    Several calls run at a time, which hides the latency of remote files.

    Args:
        function: a function that reads or writes a file, which threads call.
        items: the argument of each call, such as the path of a file.
    """
    with concurrent.futures.ThreadPoolExecutor(_FILES_OPENED_TOGETHER) as pool:
        return list(pool.map(function, items))


def record_dataset(
    file: str | tf.Tensor,
    is_compressed: bool | tf.Tensor,
) -> tf.data.Dataset:
    """Returns a dataset of the serialized records, string[], of one file.

    Args:
        file: string[], the path of the file.
        is_compressed: bool[], whether it is compressed with gzip.
    """
    import tensorflow as tf

    compression = tf.where(is_compressed, "GZIP", "")
    return tf.data.TFRecordDataset(file, compression)
