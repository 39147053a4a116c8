"""official-bert run_sparse_embeddings: words that are learnt, measured, written and exported."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from official_bert import Predictor, SparseEncoder
from official_bert.data.text_tables import read_examples
from official_bert.metrics.embeddings import score_places
from tests.data.retrieval_pairs import write_pairs
from tests.extensions.sparse.trained import TEXTS, write_model
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here
from tests.shared import in_test_long

MARGIN_ROWS = "query\tdocument\tnegative\tscore\nthe cat\ta mat\train\t2\nnoon\tday\tpark\t0.5\n"


@pytest.fixture
def flags(base, tmp_path):
    write_pairs(tmp_path / "train.tsv", 200, 1)
    write_pairs(tmp_path / "dev.tsv", 40, 2)
    return {
        "data_dir": tmp_path,
        "output_dir": tmp_path / "out",
        "model": base,
        "max_seq_length": 16,
        "train_batch_size": 25,
        "random_seed": 1,
    }


def measure(encoder: SparseEncoder, dev_file: str) -> dict[str, float]:
    """Measure retrieval by products of dense matrices."""
    examples = read_examples(dev_file, "dev_file", {})
    queries = list(dict.fromkeys(example.anchor for example in examples))
    documents = list(dict.fromkeys(example.positives[0] for example in examples))
    query_weights = encoder.encode_query(queries).toarray()
    document_weights = encoder.encode(documents).toarray()
    ndcg = []
    for query, scores in zip(queries, query_weights @ document_weights.T, strict=True):
        right = {one.positives[0] for one in examples if one.anchor == query} - {query}
        ranking = [documents[row] for row in np.argsort(-scores.round(4), kind="stable")]
        ranking = [text for text in ranking if text != query]
        places = [1 + ranking.index(text) for text in right]
        ndcg.append(score_places(np.array(places), len(right))["ndcg_at_10"])
    return {
        "eval_ndcg_at_10": np.mean(ndcg),
        "eval_query_terms": (query_weights > 0).sum(axis=1).mean(),
        "eval_document_terms": (document_weights > 0).sum(axis=1).mean(),
    }


def test_words_are_learnt_measured_exported_and_predicted(flags, tmp_path):
    (tmp_path / "test.txt").write_text("the cat sat\n\nthe rain was\nthe cat sat\n")
    before = measure(SparseEncoder(str(flags["model"])), str(tmp_path / "dev.tsv"))
    learning = {"num_train_epochs": 12, "learning_rate": 5e-3, "query_flops": 0.02}
    steps = {"do_train": True, "do_eval": True, "do_predict": True, "eval_every_epochs": 6}
    learning["document_flops"] = 0.02
    run_here("run_sparse_embeddings", *flag_list(**flags, **learning, **steps))
    learnt = figures(tmp_path / "out")
    assert learnt["eval_ndcg_at_10"] > before["eval_ndcg_at_10"] + 0.2
    assert learnt["eval_document_terms"] < before["eval_document_terms"] - 5

    encoder = SparseEncoder(str(tmp_path / "out"))
    measured = measure(encoder, str(tmp_path / "dev.tsv"))
    assert {name: learnt[name] for name in measured} == pytest.approx(measured, rel=0.02)

    lines = (tmp_path / "out/test_terms.jsonl").read_text().splitlines()
    predicted = [json.loads(line) for line in lines]
    texts = [one["text"] for one in predicted]
    assert texts == ["the cat sat", "the rain was"]
    matrix = encoder.encode(texts)
    for row, one in zip(matrix, predicted, strict=True):
        assert sorted(one["weights"], reverse=True) == one["weights"]
        dense = np.zeros(encoder.vocab_size)
        dense[one["indices"]] = one["weights"]
        np.testing.assert_allclose(dense, row.toarray()[0], atol=2e-6)

    expected = [dict(words) for words in encoder.decode(matrix)]
    assert Predictor(str(tmp_path / "out")).terms(texts)[0] == pytest.approx(expected[0], abs=2e-6)
    for text in (True, False):
        export_dir = tmp_path / f"export_{text}"
        served = {"model": tmp_path / "out", "export_dir": export_dir, "max_terms": 3}
        run_here("export_saved_model", *flag_list(**served, export_text=text))
        for answer, words in zip(Predictor(str(export_dir)).terms(texts), expected, strict=True):
            largest = dict(list(words.items())[:3])
            assert answer == pytest.approx(largest, abs=2e-6)


IN_A_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1])
answers = {}
for name in sys.argv[3:]:
    outputs = served.signatures[name](text_a=tf.constant(json.loads(sys.argv[2])))
    answers[name] = {key: value.numpy().tolist() for key, value in outputs.items()}
print(json.dumps(answers))
print([name for name in sys.modules if name.startswith("official_bert")])
"""


def compute_idf(word: str, train_file: str) -> float:
    """Compute the weight of a word in BM25 by the documents of a file."""
    documents = {one.positives[0] for one in read_examples(train_file, "train_file", {})}
    count = sum(word in text.split() for text in documents)
    return np.log(1 + (len(documents) - count + 0.5) / (count + 0.5))


@pytest.mark.parametrize("query_encoder", ["idf", *in_test_long("lookup")])
def test_the_weights_of_queries_are_inverse_document_frequencies(flags, tmp_path, query_encoder):
    trained = flags | {"query_encoder": query_encoder, "num_train_epochs": 1}
    run_here("run_sparse_embeddings", *flag_list(**trained, do_train=True))
    encoder = SparseEncoder(str(tmp_path / "out"))
    query = encoder.encode_query("the rain")
    assert sorted(encoder.decode(query)[0]) == [("rain", query.data[1]), ("the", query.data[0])]
    expected = [compute_idf(word, str(tmp_path / "train.tsv")) for word in ("the", "rain")]
    if query_encoder == "idf":
        assert query.data == pytest.approx(expected, rel=1e-5)
    else:  # They are trained.
        assert query.data != pytest.approx(expected, rel=1e-5)
        assert query.data == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("query_encoder", ["idf", *in_test_long("model")])
def test_a_saved_model_reads_text_without_the_package(tmp_path, query_encoder):
    trained = write_model(tmp_path / "trained", query_encoder)
    encoder = SparseEncoder(trained)
    served = {"model": trained, "export_dir": tmp_path / "export"}
    run_here("export_saved_model", *flag_list(**served, export_text=True))
    names = ["serving_text"] if query_encoder == "model" else ["serving_text", "query"]
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            IN_A_CLEAN_PROCESS,
            shutil.copytree(tmp_path / "export/1", tmp_path / "moved"),
            json.dumps(TEXTS),
            *names,
        ],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers, modules = finished.stdout.splitlines()
    assert modules == "[]"
    matrices = {"serving_text": encoder.encode(TEXTS), "query": encoder.encode_query(TEXTS)}
    for name, outputs in json.loads(answers).items():
        dense = np.zeros(matrices[name].shape)
        for row, indices in enumerate(outputs["indices"]):
            np.add.at(dense[row], indices, outputs["weights"][row])
        np.testing.assert_allclose(dense, matrices[name].toarray(), atol=2e-6)


def test_an_export_of_tensors_encodes_queries_and_documents(tmp_path):
    trained = write_model(tmp_path / "trained", "lookup")
    run_here("export_saved_model", *flag_list(model=trained, export_dir=tmp_path / "export"))
    opened, encoder = SparseEncoder(str(tmp_path / "export")), SparseEncoder(trained)
    assert abs(opened.encode_query(TEXTS) - encoder.encode_query(TEXTS)).max() < 2e-6
    assert abs(opened.encode(TEXTS) - encoder.encode(TEXTS)).max() < 2e-6


def refusal(**flags) -> str:
    ended = end_of("run_sparse_embeddings", *flag_list(**flags))
    assert ended.status == 1
    return ended.sentence


def test_margins_of_a_teacher_are_learnt(flags, tmp_path):
    (tmp_path / "train.tsv").write_text(MARGIN_ROWS)
    margin = flags | {"loss": "margin_mse", "train_batch_size": 2, "num_train_epochs": 60}
    margin |= {"learning_rate": 2e-3, "query_flops": 0, "document_flops": 0}
    run_here("run_sparse_embeddings", *flag_list(**margin, do_train=True))
    encoder = SparseEncoder(str(tmp_path / "out"))
    for query, document, negative, label in (
        ("the cat", "a mat", "rain", 2),
        ("noon", "day", "park", 0.5),
    ):
        weights = encoder.encode([query, document, negative]).toarray()
        assert weights[0] @ (weights[1] - weights[2]) == pytest.approx(label, abs=0.3)

    (tmp_path / "train.tsv").write_text("query\tdocument\tnegative\nthe cat\ta mat\train\n")
    others = margin | {"output_dir": tmp_path / "other"}
    assert "line 2: has no label" in refusal(**others, do_train=True)
    (tmp_path / "train.tsv").write_text("query\tdocument\tscore\nthe cat\ta mat\t1\n")
    message = refusal(**others, do_train=True)
    assert "needs an anchor, a positive and a negative text" in message
    assert not (tmp_path / "other").exists()


def test_what_cannot_be_trained_is_refused(flags, tmp_path):
    (tmp_path / "train.tsv").write_text("query\tdocument\tscore\nthe cat\ta mat\t0\n")
    message = refusal(**flags, do_train=True)
    assert "train.tsv: line 2: has the label 0, but --loss=multiple_negatives_ranking" in message
    (tmp_path / "train.tsv").write_text("query\nthe cat\n")
    assert "line 2: --loss=multiple_negatives_ranking needs two" in refusal(**flags, do_train=True)
    (tmp_path / "dev.tsv").write_text("query\tdocument\nthe cat\ta mat\n")
    message = refusal(**flags, do_eval=True)
    assert "dev.tsv: line 2: no query has a document to find among others" in message
    assert "should be one of <model|idf|lookup>" in refusal(**flags, query_encoder="bm25")
