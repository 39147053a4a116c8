"""Residuals of 2 and 4 bits: centroids, buckets, packed codes, and the search of such vectors."""

import numpy as np
import pytest

from official_bert.extensions.late_interaction import residual_codec
from official_bert.extensions.late_interaction.residual_codec import ResidualCodec
from official_bert.extensions.late_interaction.token_vectors import (
    TokenVectors,
    score_blocks,
    search,
)
from official_bert.io.errors import InputError

GENERATOR = np.random.default_rng(2)
WIDTH = 8


def draw(count: int) -> np.ndarray:
    """Vectors of norm 1 near to one of six directions."""
    directions = np.random.default_rng(0).normal(size=(6, WIDTH))
    vectors = directions[GENERATOR.integers(6, size=count)]
    vectors = vectors + 0.1 * GENERATOR.normal(size=(count, WIDTH))
    return np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


VECTORS = draw(300)


@pytest.mark.parametrize("bits", [2, 4])
def test_a_code_is_the_nearest_centroid_and_the_bucket_of_each_component(bits):
    codec = ResidualCodec.learn(VECTORS, bits)
    assert codec.bits == bits
    assert codec.centroids.shape == (256, WIDTH)  # 2^floor(log2(16 sqrt(300)))
    centroid_ids, codes = codec.encode(VECTORS)
    squares = np.square(VECTORS[:, None].astype(float) - codec.centroids).sum(axis=2)
    near = np.take_along_axis(squares, centroid_ids[:, None].astype(int), axis=1)[:, 0]
    np.testing.assert_allclose(near, squares.min(axis=1), atol=1e-6)

    residuals = VECTORS - codec.centroids[centroid_ids]
    buckets = (residuals[..., None] >= codec.cutoffs).sum(axis=2)
    per_byte = 8 // bits
    assert codes.shape == (300, WIDTH // per_byte)
    powers = (1 << bits) ** np.arange(per_byte)
    packed = (buckets.reshape(300, -1, per_byte) * powers).sum(axis=2)
    np.testing.assert_array_equal(codes, packed)

    decoded = codec.centroids[centroid_ids] + codec.bucket_values[buckets]
    decoded /= np.linalg.norm(decoded, axis=1, keepdims=True)
    np.testing.assert_allclose(codec.decode(centroid_ids, codes), decoded, atol=1e-6)


def test_buckets_have_equal_shares_of_the_residuals(monkeypatch):
    monkeypatch.setattr(residual_codec, "_choose_count", lambda num_vectors: 6)
    codec = ResidualCodec.learn(VECTORS, 2)
    centroid_ids, _ = codec.encode(VECTORS)
    residuals = VECTORS - codec.centroids[centroid_ids]
    np.testing.assert_allclose(codec.cutoffs, np.quantile(residuals, [0.25, 0.5, 0.75]), atol=1e-6)
    medians = np.quantile(residuals, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(codec.bucket_values, medians, atol=1e-6)


def test_centroids_are_the_means_of_their_vectors(monkeypatch):
    monkeypatch.setattr(residual_codec, "_NUM_ITERATIONS", 50)  # until nothing changes
    monkeypatch.setattr(residual_codec, "_MOST_PRODUCTS", 70)  # blocks of ten vectors
    centroids = residual_codec._find_centroids(VECTORS, 7)
    squares = np.square(VECTORS[:, None] - centroids).sum(axis=2)
    nearest = squares.argmin(axis=1)
    for number in range(7):
        mean = VECTORS[nearest == number].mean(axis=0)
        np.testing.assert_allclose(centroids[number], mean, atol=1e-5)


def test_a_seed_gives_one_codec_and_blocks_change_nothing(monkeypatch):
    first = ResidualCodec.learn(VECTORS, 2, seed=3)
    codes = first.encode(VECTORS)
    monkeypatch.setattr(residual_codec, "_MOST_PRODUCTS", 1000)
    again = ResidualCodec.learn(VECTORS, 2, seed=3)
    np.testing.assert_allclose(again.centroids, first.centroids, atol=1e-6)
    for one, other in zip(first.encode(VECTORS), codes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(ResidualCodec.learn(VECTORS, 2).centroids, first.centroids)


@pytest.mark.parametrize("bits", [2, 4])
def test_vectors_in_few_bits_are_searched_as_their_decoded_ones(tmp_path, bits):
    ends = np.cumsum(GENERATOR.integers(1, 9, size=40))
    texts = np.split(draw(ends[-1]), ends[:-1])
    queries = TokenVectors.pack(np.split(draw(15), 5), WIDTH)
    documents = TokenVectors.pack(texts, WIDTH)
    small = documents.quantize(bits)
    assert small.width == WIDTH
    assert small.num_bytes == ends[-1] * (WIDTH * bits // 8 + 2)
    decoded = TokenVectors.pack([small.text(row) for row in range(40)], WIDTH)
    scores = np.concatenate(list(score_blocks(queries, decoded)))
    exact = np.concatenate(list(score_blocks(queries, documents)))
    np.testing.assert_allclose(scores, exact, atol=0.2)
    assert search(queries, small, 5, 40) == search(queries, decoded, 5, 40)
    # The candidates are those whose mean centroids are nearest.
    centroids = small.codec.centroids[small.centroid_ids]
    means = [part.mean(axis=0) for part in np.split(centroids, ends[:-1])]
    np.testing.assert_allclose(small.means(), means, atol=1e-6)
    for row, hits in enumerate(search(queries, small, 3, 10)):
        query_mean = queries.text(row).mean(axis=0)
        nearness = [mean @ query_mean / np.linalg.norm(mean) for mean in means]
        candidates = np.sort(np.argsort(-np.array(nearness))[:10])
        best = candidates[np.argsort(-scores[row, candidates], kind="stable")[:3]]
        assert [number for number, _ in hits] == best.tolist()

    path = str(tmp_path / "vectors.npz")
    small.save(path)
    loaded = TokenVectors.load(path)
    assert search(queries, loaded, 5, 40) == search(queries, small, 5, 40)


def test_a_codec_encodes_further_vectors():
    documents = TokenVectors.pack([VECTORS[:9], VECTORS[9:12]], WIDTH)
    codec = ResidualCodec.learn(VECTORS, 4)
    small = documents.quantize(4, codec)
    assert small.codec is codec
    np.testing.assert_array_equal(small.values, codec.encode(VECTORS[:12])[1])


def test_bits_that_do_not_fit_are_refused(tmp_path):
    documents = TokenVectors.pack([VECTORS[:3]], WIDTH)
    with pytest.raises(InputError, match="bits=3: must be 8, 4 or 2"):
        documents.quantize(3)
    with pytest.raises(InputError, match="the vectors have few bits already"):
        documents.quantize(2).quantize(4)
    with pytest.raises(InputError, match="7 components, which do not fill whole bytes"):
        TokenVectors.pack([VECTORS[:3, :7]], 7).quantize(2)
    path = str(tmp_path / "vectors.npz")
    documents.quantize(2).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for damage in (
        {"centroids": arrays["centroids"][:0]},
        {"cutoffs": arrays["cutoffs"][:2]},
        {"centroids": arrays["centroids"] * np.float32(np.nan)},
        {"centroid_ids": arrays["centroid_ids"] + 99},
        {"values": arrays["values"][:, :1]},
    ):
        np.savez(path, **arrays | damage)
        with pytest.raises(InputError, match="do not fit; write it again"):
            TokenVectors.load(path)
    np.savez(path, **{name: value for name, value in arrays.items() if name != "cutoffs"})
    with pytest.raises(InputError, match="is no file of TokenVectors"):
        TokenVectors.load(path)
