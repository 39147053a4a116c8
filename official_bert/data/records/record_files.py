"""Writes whole TFRecord files of encoded data sets and of pre-training instances, finds files,
and opens them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from absl import logging

from official_bert.data.model_inputs import log_example
from official_bert.data.records.framing import ExampleFiles, is_compressed, open_example_files
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.io.reading import check_object, field

if TYPE_CHECKING:
    import tensorflow as tf

T = TypeVar("T")

# Beside sharded record files; a glob may match it although it is none.
MANIFEST_SUFFIX = ".manifest.json"
SHARD_NAME = re.compile(r"-\d{5}-of-\d{5}(\.gz)?$")  # the end of a sharded file's name
_EXAMPLES_AT_ONCE = 1_000
_EXAMPLES_BETWEEN_LINES = 10_000
_LOGGED_EXAMPLES = 20
_FILES_OPENED_TOGETHER = 16


def write_encoded_set(
    path: str, num_examples: int, records: Callable[[np.ndarray], Mapping[str, np.ndarray]]
) -> None:
    """Writes a record for each example; `records` maps numbers of examples, int[b], to features,
    each [b, ...].
    """
    with open_example_files([path]) as file:
        for start in range(0, num_examples, _EXAMPLES_AT_ONCE):
            log_progress(start, num_examples)
            rows = np.arange(start, min(start + _EXAMPLES_AT_ONCE, num_examples))
            file.write(
                {name: values.reshape(len(rows), -1) for name, values in records(rows).items()}
            )


def log_progress(index: int, num_examples: int) -> None:
    """Logs every ten thousandth example, as the original does."""
    if index % _EXAMPLES_BETWEEN_LINES == 0:
        logging.info("Writing example %d of %d", index, num_examples)


def write_features(
    batches: Iterable[dict[str, np.ndarray]],
    example_files: ExampleFiles,
    inv_vocab: Mapping[int, str],
) -> None:
    """Writes batches of the features of pre-training records, and logs the first ones as the
    original does.
    """
    progress = Progress("instances written")
    for features in batches:
        for row in range(
            min(len(features["input_ids"]), _LOGGED_EXAMPLES - example_files.num_written)
        ):
            example = {name: values[row].tolist() for name, values in features.items()}
            _log_example(example, inv_vocab, is_first=not example_files.num_written + row)
        example_files.write(features)
        progress(example_files.num_written)
    logging.info("Wrote %d total instances", example_files.num_written)


def log_files(title: str, paths: Iterable[str]) -> None:
    logging.info("*** %s ***", title)
    for path in paths:
        logging.info("  %s", path)


def _log_example(example: Mapping[str, list], inv_vocab: Mapping[int, str], is_first: bool):
    tokens = [inv_vocab[i] for i in example["input_ids"][: sum(example["input_mask"])]]

    def details():
        yield f"tokens: {' '.join(tokens)}"
        for name, values in example.items():
            yield f"{name}: {' '.join(map(str, values))}"

    log_example(tokens, is_first, details)


def expand_records(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the record files that the names and globs of a flag match, without the manifests
    that globs match.
    """
    named = set(patterns)
    matches = files.expand(patterns, flag)
    records = [path for path in matches if path in named or not path.endswith(MANIFEST_SUFFIX)]
    if not records:
        raise InputError(
            f"--{flag}: no file of records matches {','.join(named)!r}; check the path or the glob"
        )
    return records


def hidden_manifest(path: str) -> str:
    """Returns the name of the manifest of a record file that is no shard; globs leave it out."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{MANIFEST_SUFFIX}")


def manifest_beside(path: str) -> tuple[str, dict] | None:
    """Returns the path and the content of the manifest that describes a record file; None if it has
    none.

    A manifest says nothing about a file of another size, which was made later under the same name.
    """
    for manifest_file in (hidden_manifest(path), SHARD_NAME.sub("", path) + MANIFEST_SUFFIX):
        if files.exists(manifest_file):
            manifest = check_object(reading.read_json(manifest_file), manifest_file)
            entry = {"file": os.path.basename(path), "bytes": files.size(path)}
            shards = field(manifest, "shards", list, manifest_file)
            if any(entry.items() <= check_object(shard, manifest_file).items() for shard in shards):
                return manifest_file, manifest
    return None


def vocabulary_digest(vocab: Mapping[str, int]) -> str:
    """Returns a digest of the pieces of a vocabulary and their ids, whatever the form of its file."""
    pieces = sorted(vocab.items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()


def check_records_vocabulary(
    records: Iterable[str], vocab_file: str, vocab: Mapping[str, int]
) -> None:
    """Compares a vocabulary with that of record files, so far as the manifests beside them have its
    digest.

    Manifests of earlier versions have a digest of the file instead, or none.

    Raises:
        InputError: the ids of the records stand for other pieces.
    """
    digests = {
        "pieces_sha256": lambda: vocabulary_digest(vocab),
        "vocabulary_sha256": lambda: files.sha256(vocab_file),
    }
    for path in sorted({SHARD_NAME.sub("", path): path for path in records}.values()):
        if (described := manifest_beside(path)) is None:
            continue
        manifest_file, manifest = described
        name = next((name for name in digests if name in manifest), None)
        if name and manifest[name] != digests[name]():
            raise InputError(
                f"{manifest_file}: {path} was made with another vocabulary than {vocab_file}, so "
                "its ids stand for other pieces; name the vocabulary that it was made with as "
                "--vocab_file, or make the records anew"
            )


def record_contents(paths: Sequence[str]) -> list[tuple[str, int, str | None]]:
    """Returns what tells record files from others of the same names: path, size in bytes, and
    recorded digest.

    The digest is that of a manifest of shards; a file without one has its size alone, because
    reading records, which may be terabytes, would take longer than the start of a training.
    `sizes_and_times` shows files that were rewritten.
    """
    recorded: dict[str, dict[str, str]] = {}  # digests of the shards of a manifest by name
    contents = []
    for path, (size, _) in sizes_and_times(paths).items():
        manifest_file = SHARD_NAME.sub("", path) + MANIFEST_SUFFIX
        if manifest_file not in recorded:
            _, manifest = manifest_beside(path) or ("", {})
            shards = manifest.get("shards", [])
            recorded[manifest_file] = {
                shard["file"]: shard["sha256"] for shard in shards if "sha256" in shard
            }
        contents.append((path, size, recorded[manifest_file].get(os.path.basename(path))))
    return contents


def names_and_compressions(files: Sequence[str]) -> tf.data.Dataset:
    """Returns a dataset of the arguments of `record_dataset` for each file, whose first bytes are
    read now.
    """
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((list(files), for_each(is_compressed, files)))


def sizes_and_times(files: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Returns the number of bytes of each file, and when it was written, in nanoseconds."""
    import tensorflow as tf

    stats = for_each(tf.io.gfile.stat, files)
    return {file: (stat.length, stat.mtime_nsec) for file, stat in zip(files, stats, strict=True)}


def for_each(read: Callable[[str], T], files: Sequence[str]) -> list[T]:
    """Returns what `read` returns for each file, several at a time, which hides the latency of
    remote ones.
    """
    with concurrent.futures.ThreadPoolExecutor(_FILES_OPENED_TOGETHER) as pool:
        return list(pool.map(read, files))


def record_dataset(file: str | tf.Tensor, is_compressed: bool | tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of the serialized records, string[], of one file."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(file, tf.where(is_compressed, "GZIP", ""))
