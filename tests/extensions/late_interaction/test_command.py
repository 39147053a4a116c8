"""official-bert run_late_interaction: vectors that are learnt, measured, written and exported."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from official_bert import InputError, MultiVectorEncoder, Predictor
from official_bert.data.text_tables import read_examples
from official_bert.extensions.late_interaction.token_vectors import TokenVectors
from official_bert.metrics.embeddings import score_places
from tests.data.retrieval_pairs import write_pairs
from tests.extensions.late_interaction.trained import TEXTS, write_model
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here


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


def measure(encoder: MultiVectorEncoder, dev_file: str) -> float:
    """Measure nDCG by a loop over pairs of texts."""
    examples = read_examples(dev_file, "dev_file", {})
    queries = list(dict.fromkeys(example.anchor for example in examples))
    documents = list(dict.fromkeys(example.positives[0] for example in examples))
    query_vectors, vectors = encoder.encode_query(queries), encoder.encode(documents)
    ndcg = []
    for row, query in enumerate(queries):
        scores = [
            (query_vectors.text(row) @ vectors.text(other).T).max(axis=1).sum()
            for other in range(len(documents))
        ]
        right = {one.positives[0] for one in examples if one.anchor == query} - {query}
        order = np.argsort(-np.array(scores), kind="stable")
        ranking = [documents[place] for place in order if documents[place] != query]
        places = [1 + ranking.index(text) for text in right]
        ndcg.append(score_places(np.array(places), len(right))["ndcg_at_10"])
    return float(np.mean(ndcg))


def test_vectors_are_learnt_measured_exported_and_predicted(flags, tmp_path):
    (tmp_path / "test.txt").write_text("the cat sat .\n\nthe rain was\nthe cat sat .\n")
    learning = {"num_train_epochs": 8, "learning_rate": 3e-3, "token_width": 8, "scale": 2}
    learning |= {"query_length": 10, "eval_every_epochs": 4}
    run_here(
        "run_late_interaction",
        *flag_list(**flags, **learning, do_train=True, do_eval=True, do_predict=True),
    )
    learnt = figures(tmp_path / "out")
    encoder = MultiVectorEncoder(str(tmp_path / "out"))
    assert learnt["eval_ndcg_at_10"] > 0.6
    expected = measure(encoder, str(tmp_path / "dev.tsv"))
    assert learnt["eval_ndcg_at_10"] == pytest.approx(expected, abs=0.02)

    texts = (tmp_path / "out/test_texts.txt").read_text().splitlines()
    assert texts == ["the cat sat .", "the rain was"]
    vectors = encoder.encode(texts)
    assert np.diff(vectors.starts).tolist() == [5, 5]  # without the point
    np.testing.assert_allclose(np.linalg.norm(vectors.values, axis=1), 1, rtol=1e-5)
    written = TokenVectors.load(str(tmp_path / "out/test_vectors.npz"))
    np.testing.assert_allclose(written.values, vectors.values, atol=2e-6)
    answer = Predictor(str(tmp_path / "out"))(texts[0])["vectors"]
    np.testing.assert_allclose(answer, vectors.text(0), atol=2e-6)

    export = {"model": tmp_path / "out", "export_dir": tmp_path / "tensors"}
    run_here("export_saved_model", *flag_list(**export))
    opened = MultiVectorEncoder(str(tmp_path / "tensors"))
    np.testing.assert_allclose(opened.encode(texts).values, vectors.values, atol=2e-6)
    np.testing.assert_allclose(
        opened.encode_query(texts).values, encoder.encode_query(texts).values, atol=2e-6
    )


def test_markers_are_learnt_recorded_and_measured(flags, tmp_path):
    markers = {"query_marker": "noon", "document_marker": "driver"}
    learning = {"num_train_epochs": 2, "learning_rate": 3e-3, "token_width": 8}
    trained = flags | learning | markers | {"query_length": 10, "do_train": True}
    run_here("run_late_interaction", *flag_list(**trained, do_eval=True))
    encoder = MultiVectorEncoder(str(tmp_path / "out"))
    expected = measure(encoder, str(tmp_path / "dev.tsv"))
    assert figures(tmp_path / "out")["eval_ndcg_at_10"] == pytest.approx(expected, abs=0.02)
    recorded = json.loads((tmp_path / "out/task.json").read_text())["settings"]
    assert markers.items() <= recorded.items()
    # [CLS], the marker, two words and [SEP].
    assert len(encoder.encode(["the cat"]).values) == 5
    # The weights are those of a training with markers: one without them has others.
    plain = trained | {"query_marker": "", "document_marker": "", "output_dir": tmp_path / "plain"}
    run_here("run_late_interaction", *flag_list(**plain))
    other_encoder = MultiVectorEncoder(str(tmp_path / "plain"))
    assert len(other_encoder.encode(["the cat"]).values) == 4
    kernels = [one.model.token_projection.kernel.numpy() for one in (encoder, other_encoder)]
    assert abs(kernels[0] - kernels[1]).max() > 1e-4
    ended = end_of("run_late_interaction", *flag_list(**trained | {"query_marker": "rain"}))
    assert ended.status == 1
    assert "--query_marker=rain" in ended.sentence


IN_A_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1])
answers = {}
for name in ("serving_text", "query"):
    outputs = served.signatures[name](text_a=tf.constant(json.loads(sys.argv[2])))
    answers[name] = {key: value.numpy().tolist() for key, value in outputs.items()}
print(json.dumps(answers))
print([name for name in sys.modules if name.startswith("official_bert")])
"""


@pytest.mark.parametrize(
    "settings", [{}, {"query_marker": "[unused0]", "document_marker": "[unused1]"}]
)
def test_a_saved_model_reads_text_without_the_package(tmp_path, settings):
    trained = write_model(tmp_path / "trained", **settings)
    encoder = MultiVectorEncoder(trained)
    export = {"model": trained, "export_dir": tmp_path / "export"}
    run_here("export_saved_model", *flag_list(**export, export_text=True))
    moved = shutil.copytree(tmp_path / "export/1", tmp_path / "moved")
    finished = subprocess.run(
        [sys.executable, "-c", IN_A_CLEAN_PROCESS, moved, json.dumps(TEXTS)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers, modules = finished.stdout.splitlines()
    assert modules == "[]"
    expected = {"serving_text": encoder.encode(TEXTS), "query": encoder.encode_query(TEXTS)}
    for name, outputs in json.loads(answers).items():
        counts = np.array(outputs["mask"]) > 0
        vectors = np.array(outputs["vectors"])
        np.testing.assert_allclose(vectors[counts], expected[name].values, atol=2e-6)
        assert counts.sum(axis=1).tolist() == np.diff(expected[name].starts).tolist()


def test_margins_of_a_teacher_are_learnt(flags, tmp_path):
    (tmp_path / "train.tsv").write_text(
        "query\tdocument\tnegative\tscore\nthe cat\ta mat\train\t2\n"
    )
    margin = flags | {"loss": "margin_mse", "train_batch_size": 1, "num_train_epochs": 60}
    margin |= {"learning_rate": 2e-3, "query_length": 8, "token_width": 8}
    run_here("run_late_interaction", *flag_list(**margin, do_train=True))
    encoder = MultiVectorEncoder(str(tmp_path / "out"))
    hits = {hit["text"]: hit["score"] for hit in encoder.search("the cat", ["a mat", "rain"])}
    assert hits["a mat"] - hits["rain"] == pytest.approx(2, abs=0.4)


def test_what_cannot_be_used_is_refused(flags, tmp_path):
    def refusal(**more) -> str:
        ended = end_of("run_late_interaction", *flag_list(**flags | more))
        assert ended.status == 1
        return ended.sentence

    assert "--query_length=600: the model was made for" in refusal(do_train=True, query_length=600)
    (tmp_path / "train.tsv").write_text("query\tdocument\tscore\nthe cat\ta mat\t0\n")
    assert "train.tsv: line 2: has the label 0, but --loss=multiple" in refusal(do_train=True)
    with pytest.raises(InputError, match="has no token_projection/kernel, the projection"):
        MultiVectorEncoder(str(flags["model"]))
    encoder = MultiVectorEncoder(write_model(tmp_path / "trained"))
    with pytest.raises(InputError, match="k=0: must be a positive"):
        encoder.search("a", TEXTS, k=0)
    with pytest.raises(InputError, match="its vectors have 5 components, those of the model 8"):
        encoder.search("a", TokenVectors.pack([np.ones((2, 5), np.float32)], 5))
    with pytest.raises(InputError, match="max_seq_length=513: the model was made for"):
        MultiVectorEncoder(str(tmp_path / "trained"), max_seq_length=513)
