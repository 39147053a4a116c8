"""predict with --token_index and --token_search, and the vectors that evaluation computes."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert import InputError, MultiVectorEncoder
from official_bert.commands import predict
from official_bert.extensions.late_interaction import task, token_index
from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
from official_bert.extensions.late_interaction.token_index import TokenBlockEncoder, TokenIndex
from official_bert.extensions.late_interaction.token_vectors import TokenVectors
from tests import toy
from tests.extensions.late_interaction.trained import TEXTS, write_model
from tests.scripts import end_of, flag_list, run_here

LINES = [text for text in TEXTS if text]
LINES += ["the cat", "a train", "rain on the mat", "noon . the station", "the dog sat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return write_model(tmp_path_factory.mktemp("late") / "model")


@pytest.mark.parametrize("bits", [32, 8, 4, 2])
def test_lines_become_an_index_that_is_searched(tmp_path, model, monkeypatch, bits):
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 1)  # several windows
    monkeypatch.setattr(token_index, "MOST_SAMPLES", 20)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join([*LINES[:3], "", *LINES[3:]]))
    path = str(tmp_path / "index.npz")
    flags = {"model": model, "batch_size": 2}
    run_here("predict", *flag_list(**flags, input_file=corpus, token_index=path, token_bits=bits))
    index = TokenIndex.read(path)
    assert index.texts == LINES
    encoder = MultiVectorEncoder(model)
    exact = encoder.encode(LINES)
    tolerance = {32: 1e-6, 8: 0.01, 4: 0.2, 2: 0.6}[bits]
    for row in range(len(LINES)):
        np.testing.assert_allclose(index.vectors.text(row), exact.text(row), atol=tolerance)

    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(LINES))
    output = tmp_path / "hits.jsonl"
    search = flag_list(**flags, input_file=queries, output_file=output, token_search=path)
    run_here("predict", *search, "--top_k=3", "--num_candidates=5")
    expected = encoder.search(LINES, TokenVectors.load(path), 3, 5)
    for line, hits in zip(output.read_text().splitlines(), expected, strict=True):
        answers = json.loads(line)["hits"]
        assert [answer["row"] for answer in answers] == [hit["row"] for hit in hits]
        assert [answer["text"] for answer in answers] == [LINES[hit["row"]] for hit in hits]
        scores = [hit["score"] for hit in hits]
        assert [answer["score"] for answer in answers] == pytest.approx(scores, rel=1e-4)


def test_a_model_is_loaded_once(tmp_path, model, monkeypatch):
    models = []
    make = BertMultiVectorEncoder.__init__

    def count(self, *arguments, **further):
        models.append(self)
        make(self, *arguments, **further)

    monkeypatch.setattr(BertMultiVectorEncoder, "__init__", count)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(LINES))
    path = tmp_path / "index.npz"
    flags = {"model": model, "input_file": corpus}
    run_here("predict", *flag_list(**flags, token_index=path))
    assert len(models) == 1
    output = tmp_path / "hits.jsonl"
    run_here("predict", *flag_list(**flags, token_search=path, output_file=output))
    assert len(models) == 2


@pytest.mark.parametrize("bits", [32, 8, 2])
def test_parts_of_a_corpus_are_encoded_as_the_whole(monkeypatch, bits):
    monkeypatch.setattr(token_index, "MOST_SAMPLES", 12)
    draws = np.random.default_rng(5)
    texts = []
    for length in (4, 0, 7, 3, 5, 2):
        vectors = draws.normal(size=(length, 4))
        texts.append(np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)))
    encoder = TokenBlockEncoder(bits)
    for first in (0, 2, 4):
        encoder.add(TokenVectors.pack(texts[first : first + 2], 4))
    vectors = encoder.finish()
    assert vectors.starts.tolist() == [0, 4, 4, 11, 14, 19, 21]
    whole = TokenVectors.pack(texts, 4)
    if bits == 32:
        np.testing.assert_array_equal(vectors.values, whole.values)
    elif bits == 8:
        np.testing.assert_array_equal(vectors.values, whole.quantize().values)
        np.testing.assert_array_equal(vectors.scales, whole.quantize().scales)
    else:
        # The codec learns from the first 14 vectors.
        expected = whole.quantize(2, token_index.ResidualCodec.learn(whole.values[:14], 2))
        np.testing.assert_array_equal(vectors.codec.centroids, expected.codec.centroids)
        np.testing.assert_array_equal(vectors.values, expected.values)
        np.testing.assert_array_equal(vectors.centroid_ids, expected.centroid_ids)


def test_what_cannot_be_used_is_refused(tmp_path, model):
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat\n")
    path = tmp_path / "index.npz"
    flags = {"model": model, "input_file": lines}
    classifier = toy.make_bert_base_dir(tmp_path / "encoder")
    toy.write_sentence_modules(classifier)
    for more, sentence in (
        ({"token_index": path, "token_search": path}, "--token_search: does not go with --token"),
        ({"token_index": path, "token_bits": 3}, "must be 32, 8, 4 or 2"),
        ({"token_index": path, "output_file": lines}, "--output_file: does not go with --token"),
        ({"token_index": path, "on_error": "report"}, "--on_error=report: does not go with --tok"),
        ({"token_index": path, "model": classifier}, "--token_index: needs a model of late inter"),
        ({"token_search": tmp_path / "none.npz"}, "none.npz: no such file; write the index with"),
        ({"token_search": lines}, "is no file of TokenVectors.save"),
        ({"top_k": 3}, "--token_search"),
    ):
        ended = end_of("predict", *flag_list(**flags | more))
        assert ended.status == 1
        assert sentence in ended.sentence
    TokenIndex(["ab"], TokenVectors.pack([np.ones((2, 8), np.float32)], 8)).write(str(path))
    with np.load(path) as file:
        arrays = dict(file)
    for name, value in (
        ("ends", np.array([3])),
        ("ends", np.array([1, 2])),
        ("texts", np.uint8([255, 254])),
    ):
        np.savez(path, **arrays | {name: value})
        with pytest.raises(InputError, match=r"write it again with official-bert predict --token"):
            TokenIndex.read(str(path))


@pytest.mark.parametrize("query_length", [0, 6])
@pytest.mark.parametrize("marker", ["", "[unused0]"])
def test_outputs_encode_each_text_once(tmp_path, marker, query_length):
    settings = {"query_length": query_length, "query_marker": marker}
    encoder = MultiVectorEncoder(write_model(tmp_path / "model", **settings))
    made = task.LateInteractionTask(token_width=8, **settings)
    made.for_checkpoint((), encoder.tokenizer, encoder.model.config)
    features = {name: tf.constant(values) for name, values in encoder.tokenizer(LINES[:4]).items()}
    is_query = np.int32([1, 0, 0, 1])
    calls = []

    def model(inputs):
        calls.append(inputs)
        return encoder.model(inputs)

    outputs = made.outputs(model, features | {"is_query": tf.constant(is_query)})
    assert len(calls) == 1
    queries = task.encode_queries(encoder.model, made.rules, features)
    documents = task.encode_documents(encoder.model, made.rules, features)
    for row, (vectors, counts) in enumerate(
        zip(outputs["vectors"].numpy(), outputs["mask"].numpy(), strict=True)
    ):
        expected, expected_counts = queries if is_query[row] else documents
        expected = expected[row][expected_counts[row] > 0]
        np.testing.assert_allclose(vectors[counts > 0], expected, atol=1e-5)
