"""Keeps the outputs of the layers of an encoder on disk, for the runs that read them again.

A file has the vectors of one layer for all tokens of a set, float32[tokens, hidden], without a
header. Its name has the digests of the encoder and of the set, and the number of the layer:

    <digest of the encoder>/<digest of the set>-layer03.f32

A file gets its name when it is complete, so a killed run leaves no wrong file. A run that needs a
layer computes it if there is no file of the right size.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.extensions.feature_based.model import LAYER_VECTORS
from official_bert.features import EncodedSet, length_mask
from official_bert.io import errors, files, folder_lock, writing
from official_bert.io.errors import InputError
from official_bert.tasks.tagging.windows import EncodedWords
from official_bert.training.loop import predict

_ENDING = ".f32"
_DIGEST_LENGTH = 16
_BYTES = np.dtype(np.float32).itemsize
_BLOCK_BYTES = 2**28  # of the vectors that are in memory while a file is written
_GB = 1e9

ComputeLayers = Callable[[dict], dict]


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The batches in which vectors are computed.

    Attributes:
        size: the number of examples of a batch.
        max_length: the maximum number of tokens of an example.
        pads_to_longest: whether a batch is as long as its longest example.
    """

    size: int
    max_length: int
    pads_to_longest: bool


def encoder_digest(model: keras.Model) -> str:
    """Computes a digest of all that the outputs of an encoder depend on, but for its inputs.

    Args:
        model: a model whose weights under `bert/` are those of the encoder.
    """
    config: BertConfig = model.config
    digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode())
    digest.update(model.bert.compute_dtype.encode())
    for name, variable in sorted(named_variables(model).items()):
        if name.startswith("bert/") and not name.startswith(tuple(model.unused_weights)):
            values = np.ascontiguousarray(variable.value.numpy())
            digest.update(f"{name} {values.dtype} {values.shape}".encode())
            digest.update(values.data)
    return digest.hexdigest()[:_DIGEST_LENGTH]


def set_digest(encoded: EncodedWords) -> str:
    """Computes a digest of the inputs of a set; labels do not count.

    Args:
        encoded: the set.
    """
    digest = hashlib.sha256()
    inputs = encoded.inputs
    for values in (inputs.ids.values, inputs.ids.starts, inputs.num_first):
        digest.update(f"{values.dtype} {values.shape}".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:_DIGEST_LENGTH]


class SetWithVectors:
    """An encoded set whose batches also have `layer_vectors`, float32[B, S, L, hidden].

    Attributes:
        lengths: the number of tokens of each example.
        computed_features: the names of the features that a model has computed.
    """

    computed_features = (LAYER_VECTORS,)

    def __init__(self, encoded: EncodedSet, layers: Sequence[np.ndarray]):
        """Adds vectors to a set.

        Args:
            encoded: the set.
            layers: the vectors of each layer for all tokens, float32[tokens, hidden].
        """
        self._encoded = encoded
        self._layers = layers
        self.lengths = encoded.lengths
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch; padding has the vector 0.

        Args:
            rows: int[b], the indices of the examples.
            length: the number of tokens to which each example is padded.
        """
        width = self._layers[0].shape[1]
        vectors = np.zeros((len(rows), length, len(self._layers), width), np.float32)
        for number, layer in enumerate(self._layers):
            for place, row in enumerate(rows):
                start, end = self._starts[row], self._starts[row + 1]
                vectors[place, : end - start, number] = layer[start:end]
        return {**self._encoded.features(rows, length), LAYER_VECTORS: vectors}


class _Part:
    """Consecutive examples of a set, as a set."""

    def __init__(self, encoded: EncodedSet, start: int, end: int):
        self._encoded = encoded
        self._start = start
        self.lengths = encoded.lengths[start:end]

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        return self._encoded.features(rows + self._start, length)


class VectorCache:
    """The files of one encoder's vectors in a folder of bounded size."""

    def __init__(self, folder: str, max_gb: float, digest: str, width: int):
        """Opens the cache; nothing is read or written.

        Args:
            folder: the folder of all encoders.
            max_gb: the largest size of the folder, in GB.
            digest: the digest of the encoder.
            width: the width of a vector.

        Raises:
            InputError: the folder is remote.
        """
        if files.is_remote(folder):
            raise InputError(
                f"--feature_cache_dir={folder}: files are mapped into memory; name a local folder"
            )
        self._root = folder
        self._folder = os.path.join(folder, digest)
        self._max_bytes = max_gb * _GB
        self._width = width

    def vectors(
        self,
        encoded: EncodedWords,
        layer_numbers: Sequence[int],
        compute: Callable[[Sequence[int]], ComputeLayers],
        batch: BatchSizes,
    ) -> list[np.ndarray] | None:
        """Returns the vectors of some layers for all tokens of a set, float32[tokens, hidden] each.

        Layers without a file are computed and written. Another process that computes vectors of
        this encoder is waited for, because it may write the same ones.

        Args:
            encoded: the set.
            layer_numbers: the numbers of the layers.
            compute: returns, for the numbers of layers, a function from the features of a batch to
                the outputs of these layers by the names of `layer_name`.
            batch: the batches in which vectors are computed.

        Returns:
            The vectors in the order of the numbers, mapped into memory; None if they need more
            space than the cache may have.

        Raises:
            InputError: a file cannot be written.
        """
        num_tokens = int(encoded.lengths.sum())
        digest = set_digest(encoded)
        names = [f"{digest}-{layer_name(number)}{_ENDING}" for number in layer_numbers]
        paths = [os.path.join(self._folder, name) for name in names]
        if len(paths) * num_tokens * self._width * _BYTES > self._max_bytes:
            return None
        arrays = self._open(paths, num_tokens)
        if all(array is not None for array in arrays):
            return arrays
        with folder_lock.locked(self._folder, waits=True):
            arrays = self._open(paths, num_tokens)
            missing = {
                number: path
                for number, path, array in zip(layer_numbers, paths, arrays, strict=True)
                if array is None
            }
            if missing:
                self._make_room(len(missing) * num_tokens * self._width * _BYTES, keep=paths)
                self._write(encoded, missing, compute(list(missing)), batch)
                arrays = self._open(paths, num_tokens)
        if any(array is None for array in arrays):
            raise InputError(
                f"{self._folder}: another program deletes its files; name another folder as "
                "--feature_cache_dir"
            )
        return arrays

    def _open(self, paths: Sequence[str], num_tokens: int) -> list:
        """Returns each file as an array, None for one that is missing or has another size."""
        shape = (num_tokens, self._width)
        arrays = []
        for path in paths:
            array = None
            with contextlib.suppress(OSError):
                if os.path.getsize(path) == num_tokens * self._width * _BYTES:
                    array = np.memmap(path, np.float32, "r", shape=shape)
                    os.utime(path)  # The oldest files are deleted first.
            arrays.append(array)
        return arrays

    def _make_room(self, num_bytes: int, keep: Sequence[str]):
        """Deletes the files that were used least recently until there is room for more bytes."""
        entries = []
        for path in files.matching(os.path.join(self._root, "*", f"*{_ENDING}")):
            with contextlib.suppress(OSError):  # Another process may delete it, too.
                status = os.stat(path)
                entries.append((path in keep, status.st_mtime, status.st_size, path))
        used = sum(size for _, _, size, _ in entries)
        for is_kept, _, size, path in sorted(entries):
            if used + num_bytes <= self._max_bytes or is_kept:
                break
            with contextlib.suppress(OSError):
                os.remove(path)
                os.rmdir(os.path.dirname(path))  # This fails if the folder contains anything.
            used -= size

    def _write(
        self,
        encoded: EncodedWords,
        paths: Mapping[int, str],
        compute: ComputeLayers,
        batch: BatchSizes,
    ):
        """Computes the vectors of some layers, and writes the file of each."""
        num_examples = len(encoded)
        logging.info(
            "Computing %d layers of the encoder for %d examples, once; they are kept in %s",
            len(paths),
            num_examples,
            self._folder,
        )
        longest = int(encoded.lengths.max())
        example_bytes = longest * len(paths) * self._width * _BYTES
        step = max(batch.size, _BLOCK_BYTES // example_bytes)
        with contextlib.ExitStack() as stack:
            outputs = {
                layer_name(number): stack.enter_context(writing.replacing(path, "wb"))
                for number, path in paths.items()
            }
            for start in range(0, num_examples, step):
                part = _Part(encoded, start, min(start + step, num_examples))
                layers = predict(
                    compute,
                    tf.distribute.get_strategy(),
                    part,
                    batch.size,
                    batch.max_length,
                    batch.pads_to_longest,
                )
                for name, values in layers.items():
                    is_token = length_mask(part.lengths, values.shape[1])
                    outputs[name].write(np.ascontiguousarray(values[is_token]).data)


def layer_name(number: int) -> str:
    """Returns the name of a layer in the outputs of an encoder and in the names of files.

    Args:
        number: the number of the layer; 0 is that of the embeddings.
    """
    return f"layer{number:02d}"


def warn_without_cache(num_gb: float) -> None:
    """Warns that the encoder runs for each batch.

    Args:
        num_gb: the value of --feature_cache_gb.
    """
    errors.warn(
        "--feature_cache_gb=%g: the outputs of the layers need more space, so the encoder runs for "
        "each batch again; raise it, or lower --max_seq_length",
        num_gb,
    )
