"""The files of an encoder's vectors: what they contain, when they are written, and their bound."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, InputError
from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.data.tables import ConllFile
from official_bert.data.tag_schemes import IOB2
from official_bert.extensions.feature_based.cache import (
    BatchSizes,
    SetWithVectors,
    VectorCache,
    encoder_digest,
    set_digest,
)
from official_bert.extensions.feature_based.model import BertFeatureTagger
from official_bert.tasks.tagging.windows import EncodedWords
from tests import toy

WIDTH = 4
LENGTHS = [5, 2, 7]
BATCH = BatchSizes(2, 8, pads_to_longest=True)
LAYER_BYTES = sum(LENGTHS) * WIDTH * 4


def make_set(first_id: int = 1) -> EncodedWords:
    ids = [list(range(first_id, first_id + length)) for length in LENGTHS]
    inputs = ModelInputs((row, len(row)) for row in ids)
    source = ConllFile("", [], IOB2, has_documents=False)
    return EncodedWords(source, inputs, RaggedRows(np.zeros(len(row), int) for row in ids))


class Encoder:
    """A function of ids and layers, which counts its calls: 100 times the layer, plus the id."""

    def __init__(self):
        self.layers = []

    def __call__(self, numbers):
        self.layers.append(list(numbers))

        def compute(batch):
            ids = tf.cast(batch["input_ids"], tf.float32)[..., None]
            vectors = tf.repeat(ids, WIDTH, axis=-1)
            return {f"layer{number:02d}": vectors + 100.0 * number for number in numbers}

        return compute


def open_cache(folder: pathlib.Path, max_gb: float = 1.0, digest: str = "encoder") -> VectorCache:
    return VectorCache(str(folder), max_gb, digest, WIDTH)


def expected_vectors(number: int, first_id: int = 1) -> np.ndarray:
    ids = np.concatenate([np.arange(first_id, first_id + length) for length in LENGTHS])
    return np.repeat(ids[:, None], WIDTH, axis=1) + 100.0 * number


def read_layers(cache: VectorCache, encoded: EncodedWords, numbers, encoder) -> list[np.ndarray]:
    layers = cache.vectors(encoded, numbers, encoder, BATCH)
    assert layers is not None
    return layers


def list_files(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_layer_is_computed_once_for_all_runs(tmp_path):
    encoder = Encoder()
    encoded = make_set()
    first = read_layers(open_cache(tmp_path), encoded, [0, 3], encoder)
    for number, layer in zip([0, 3], first, strict=True):
        np.testing.assert_array_equal(layer, expected_vectors(number))
    # Another run needs one layer more.
    again = read_layers(open_cache(tmp_path), encoded, [3, 5], encoder)
    np.testing.assert_array_equal(again[0], expected_vectors(3))
    np.testing.assert_array_equal(again[1], expected_vectors(5))
    assert encoder.layers == [[0, 3], [5]]
    name = set_digest(encoded)
    assert list_files(tmp_path) == [f"{name}-layer{number}.f32" for number in ("00", "03", "05")]


def test_another_encoder_or_set_has_other_files(tmp_path):
    encoder = Encoder()
    open_cache(tmp_path).vectors(make_set(), [1], encoder, BATCH)
    open_cache(tmp_path, digest="other").vectors(make_set(), [1], encoder, BATCH)
    other = read_layers(open_cache(tmp_path), make_set(50), [1], encoder)
    np.testing.assert_array_equal(other[0], expected_vectors(1, first_id=50))
    assert encoder.layers == [[1]] * 3


def test_batches_have_the_vectors_of_their_examples_and_zeros_at_padding(tmp_path):
    encoded = make_set()
    layers = read_layers(open_cache(tmp_path), encoded, [2, 1], Encoder())
    batch = SetWithVectors(encoded, layers).features(np.array([2, 0]), 8)
    assert batch["input_ids"].shape == (2, 8)
    vectors = batch["layer_vectors"]
    assert vectors.shape == (2, 8, 2, WIDTH)
    for place, length in enumerate([7, 5]):
        ids = np.arange(1, 1 + length)
        np.testing.assert_array_equal(vectors[place, :length, 0, 3], ids + 200)
        np.testing.assert_array_equal(vectors[place, :length, 1, 0], ids + 100)
        assert not vectors[place, length:].any()


def test_a_killed_run_leaves_no_file_and_a_cut_one_is_written_again(tmp_path):
    def interrupted(numbers):
        def compute(batch):
            raise KeyboardInterrupt

        return compute

    encoded = make_set()
    with pytest.raises(KeyboardInterrupt):
        open_cache(tmp_path).vectors(encoded, [1], interrupted, BATCH)
    assert list_files(tmp_path) == []
    open_cache(tmp_path).vectors(encoded, [1], Encoder(), BATCH)
    (file,) = tmp_path.rglob("*.f32")
    file.write_bytes(file.read_bytes()[:-4])
    encoder = Encoder()
    (layer,) = read_layers(open_cache(tmp_path), encoded, [1], encoder)
    np.testing.assert_array_equal(layer, expected_vectors(1))
    assert encoder.layers == [[1]]


def test_the_folder_keeps_its_bound_by_deleting_what_was_used_longest_ago(tmp_path):
    two_layers = 2 * LAYER_BYTES / 1e9
    cache = open_cache(tmp_path, two_layers)
    cache.vectors(make_set(), [1, 2], Encoder(), BATCH)
    name = set_digest(make_set())
    for age, number in ((100, 1), (50, 2)):
        path = tmp_path / "encoder" / f"{name}-layer0{number}.f32"
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    cache.vectors(make_set(), [1], Encoder(), BATCH)  # It is the newer one now.
    open_cache(tmp_path, two_layers, digest="other").vectors(make_set(), [4], Encoder(), BATCH)
    assert list_files(tmp_path) == [f"{name}-layer01.f32", f"{name}-layer04.f32"]
    # The layers that a run needs stay, whatever their age is.
    encoder = Encoder()
    cache.vectors(make_set(), [1, 3], encoder, BATCH)
    assert encoder.layers == [[3]]
    assert list_files(tmp_path) == [f"{name}-layer01.f32", f"{name}-layer03.f32"]


def test_what_does_not_fit_is_not_kept(tmp_path):
    cache = open_cache(tmp_path / "cache", 2 * LAYER_BYTES / 1e9)
    assert cache.vectors(make_set(), [1, 2, 3], Encoder(), BATCH) is None
    assert not (tmp_path / "cache").exists()


def test_a_full_disk_and_a_remote_folder_are_said(tmp_path):
    with pytest.raises(InputError, match=r"--feature_cache_dir=gs://a: .*; name a local folder"):
        VectorCache("gs://a", 1.0, "encoder", WIDTH)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        open_cache(tmp_path / "file").vectors(make_set(), [1], Encoder(), BATCH)


def test_the_digest_follows_every_weight_of_the_encoder_and_no_other():
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    model = BertFeatureTagger(config, 3, "last", bilstm_size=8)
    before = encoder_digest(model)
    model.features.head.output_bias.assign_add([1.0, 0.0, 0.0])
    model.bert.pooler.dense.bias.assign_add(np.ones(16))
    assert encoder_digest(model) == before
    norm = model.bert.embeddings.weights[-1]
    norm.assign_add(np.eye(1, 16)[0] * 1e-6 + 0)
    assert encoder_digest(model) != before
    model.config.hidden_act = "relu"
    norm.assign_add(-(np.eye(1, 16)[0] * 1e-6))
    assert encoder_digest(model) != before
