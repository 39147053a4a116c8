"""Tests of the adapter for mteb: its tasks have the values of our own metrics."""

import hashlib
import sys
import types

import numpy as np
import pytest

from official_bert import InputError, MtebEncoder
from official_bert.metrics.cosines import cosines
from official_bert.metrics.embeddings import retrieval, sts

TEXTS = [f"text number {number}" for number in range(40)]


def draw_vectors(texts) -> np.ndarray:
    """A vector for each text, which depends on nothing else."""
    seeds = [hashlib.sha256(text.encode()).digest() for text in texts]
    return np.float32([np.random.default_rng([*seed]).normal(size=6) for seed in seeds])


class Encoder:
    """Encodes texts as `draw_vectors`, queries with another word before them."""

    def encode(self, texts):
        return draw_vectors(texts)

    def encode_query(self, texts):
        return draw_vectors([f"query: {text}" for text in texts])


def test_batches_of_texts_become_one_array():
    encoder = MtebEncoder(Encoder(), "known")
    batches = [{"text": TEXTS[:3]}, {"text": TEXTS[3:5]}]
    np.testing.assert_array_equal(
        encoder.encode(batches, task_metadata=None), draw_vectors(TEXTS[:5])
    )


@pytest.mark.parametrize("as_enumeration", [False, True])
def test_queries_are_encoded_as_queries(as_enumeration):
    def prompt_type(name):
        return types.SimpleNamespace(value=name) if as_enumeration else name

    encoder = MtebEncoder(Encoder(), "known")
    batches = [{"text": TEXTS[:2]}]
    queries = encoder.encode(batches, prompt_type=prompt_type("query"))
    np.testing.assert_array_equal(queries, Encoder().encode_query(TEXTS[:2]))
    documents = encoder.encode(batches, prompt_type=prompt_type("document"))
    np.testing.assert_array_equal(documents, draw_vectors(TEXTS[:2]))


def test_similarities_are_cosines():
    encoder = MtebEncoder(Encoder(), "known")
    a, b = np.float32([[3, 4], [0, 2]]), np.float32([[6, 8], [1, 0]])
    np.testing.assert_allclose(encoder.similarity(a, b), [[1.0, 0.6], [0.8, 0.0]], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(a[0], b), [[1.0, 0.6]], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(a, b), [1.0, 0.0], atol=1e-6)


def test_an_error_says_how_to_install_mteb(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", None)
    with pytest.raises(InputError, match=r"needs the package mteb, .*pip install mteb"):
        _ = MtebEncoder(Encoder(), "known").mteb_model_meta


@pytest.mark.needs_extra("mteb")
def test_a_task_of_similarity_has_our_values():
    import datasets
    import mteb

    task = mteb.get_task("STSBenchmark")
    scores = [float(number % 6) for number in range(20)]
    pairs = {"sentence1": TEXTS[:20], "sentence2": TEXTS[20:], "score": scores}
    task.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(pairs)})
    task.data_loaded = True

    results = mteb.evaluate(MtebEncoder(Encoder(), "known"), [task], cache=None)

    assert results.model_name == "official_bert/known"
    theirs = results.task_results[0].scores["test"][0]
    a, b = draw_vectors(TEXTS[:20]), draw_vectors(TEXTS[20:])
    expected = sts(a, b, np.array(scores))
    assert theirs["cosine_spearman"] == pytest.approx(expected["spearman"], abs=1e-6)
    assert theirs["spearman"] == pytest.approx(np.float64(expected["spearman"]), abs=1e-6)
    assert len(cosines(a, b)) == 20


@pytest.mark.needs_extra("mteb")
def test_a_task_of_retrieval_has_our_values():
    import datasets
    import mteb

    task = mteb.get_task("NanoSCIDOCSRetrieval")
    documents, queries = TEXTS[:30], TEXTS[30:]
    relevant = {f"q{row}": {f"d{row}": 1, f"d{row + 10}": 1} for row in range(10)}
    rows = [{"id": f"d{row}", "title": "", "text": text} for row, text in enumerate(documents)]
    split = {
        "corpus": datasets.Dataset.from_list(rows),
        "queries": datasets.Dataset.from_list(
            [{"id": f"q{row}", "text": text} for row, text in enumerate(queries)]
        ),
        "relevant_docs": relevant,
        "top_ranked": None,
    }
    task.dataset = {"default": dict.fromkeys(task.metadata.eval_splits, split)}
    task.data_loaded = True

    results = mteb.evaluate(MtebEncoder(Encoder(), "known"), [task], cache=None)

    (theirs,) = next(iter(results.task_results[0].scores.values()))
    expected = retrieval(
        Encoder().encode_query(queries),
        draw_vectors(documents),
        [{row, row + 10} for row in range(10)],
    )
    for name in ("ndcg_at_10", "recall_at_10", "mrr_at_10"):
        assert theirs[name] == pytest.approx(expected[name], abs=1e-5), name
