"""Searches, indexes and mined negatives put the prompts of queries and documents before texts."""

import json

import numpy as np
import pytest

pytest.importorskip("official_bert.extensions.embeddings")

from official_bert import Predictor, SentenceEncoder
from official_bert.data.prompts import Prompts
from official_bert.extensions.embeddings.sentence_folder import SentenceModules, write
from official_bert.extensions.retrieval.index import Index
from official_bert.metrics.cosines import all_cosines
from tests import toy
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

CORPUS = ["A train left.", "Nobody was on board.", "Rain", "The cat sat on the mat.", "a sunny day"]
QUERIES = ["the train", "a cat"]
PROMPTS = {"query": "the cat: ", "document": "his hand "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2)
    modules = SentenceModules(str(folder), max_seq_length=16, prompts=Prompts(PROMPTS))
    write(str(folder), modules, 16)
    return str(folder)


@pytest.fixture(autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def rank(folder: str, query_prompt: str, document_prompt: str) -> tuple[list, list]:
    """Return the rows of the corpus for each query, best first, and their cosines."""
    encoder = SentenceEncoder(folder)
    queries = encoder.encode([query_prompt + text for text in QUERIES], prompt="")
    corpus = encoder.encode([document_prompt + text for text in CORPUS], prompt="")
    cosines = all_cosines(queries, corpus)
    order = np.argsort(-cosines, axis=1)
    return order.tolist(), np.take_along_axis(cosines, order, axis=1).tolist()


def assert_hits(results: list, expected: tuple[list, list]):
    for hits, rows, scores in zip(results, *expected, strict=True):
        assert [hit["row"] for hit in hits] == rows
        np.testing.assert_allclose([hit["score"] for hit in hits], scores, atol=2e-6)


def test_a_search_has_the_prompts_of_the_model(folder):
    expected = rank(folder, *PROMPTS.values())
    for model in (SentenceEncoder(folder), Predictor(folder)):
        assert_hits(model.search(QUERIES, CORPUS), expected)
        ranking = model.index_of(CORPUS)
        assert_hits(
            [model.search(QUERIES[0], ranking, prompt="a ")],
            [x[:1] for x in rank(folder, "a ", "his hand ")],
        )
    hits = Predictor(folder).rank(QUERIES[1], CORPUS)
    assert_hits([hits], [part[1:] for part in expected])


def predict(folder: str, **flags):
    run_here("predict", *flag_list(model=folder, **flags))


@pytest.mark.parametrize("is_typed", [False, True])
def test_an_index_keeps_the_prompt_of_its_texts(folder, tmp_path, is_typed):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES))
    index_flags = {"document_prompt": "a park "} if is_typed else {}
    search_flags = {"query_prompt": "rain "} if is_typed else {}
    path = tmp_path / "index.npz"
    predict(folder, input_file=tmp_path / "corpus.txt", index=path, **index_flags)
    assert Index.read(str(path)).prompt == index_flags.get("document_prompt")
    output = tmp_path / "hits.jsonl"
    files = {"input_file": tmp_path / "queries.txt", "output_file": output, "search": path}
    predict(folder, **files, **search_flags)
    results = [json.loads(line)["hits"] for line in output.read_text().splitlines()]
    prompts = ("rain ", "a park ") if is_typed else PROMPTS.values()
    assert_hits(results, rank(folder, *prompts))


def test_negatives_are_near_behind_the_prompts(folder, tmp_path):
    lines = ["anchor\tpositive", *(f"{QUERIES[row]}\t{CORPUS[row]}" for row in range(2))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    prompts = {"query_prompt": "rain ", "document_prompt": "a park "}
    files = {"input_file": tmp_path / "pairs.tsv", "output_file": tmp_path / "mined.jsonl"}
    files["corpus_file"] = tmp_path / "corpus.txt"
    run_here("mine_hard_negatives", *flag_list(model=folder, **files, **prompts, num_negatives=9))
    mined = [json.loads(line)["negative"] for line in (tmp_path / "mined.jsonl").open()]
    rankings, _ = rank(folder, *prompts.values())
    for query, rows in enumerate(rankings):
        assert mined[query] == [CORPUS[row] for row in rows if row != query]

    path = tmp_path / "index.npz"
    predict(folder, input_file=tmp_path / "corpus.txt", index=path, document_prompt="a park ")
    files["corpus_file"] = path
    prompts["document_prompt"] = "another "
    ended = end_of("mine_hard_negatives", *flag_list(model=folder, **files, **prompts))
    assert ended.status == 1
    assert "was made with --document_prompt=a park ; leave the flag out" in ended.sentence
