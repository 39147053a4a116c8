"""official-bert run_embeddings: vectors that are learnt, ways of measuring them, vectors of others,
and what is refused.
"""

import json
import re
import textwrap
import types

import numpy as np
import pytest

from official_bert import Predictor, SentenceEncoder
from official_bert.data.text_examples import all_texts
from official_bert.data.text_tables import read_examples
from official_bert.extensions.embeddings import evaluation
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from official_bert.extensions.embeddings.task import EmbeddingTask
from official_bert.io.errors import InputError
from tests import fine_tuning_runs
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

THINGS = ["cat", "mat", "sunny", "park", "train", "driver", "rain", "noon", "child", "football"]
FILLERS = ["the", "sat", "on", "was", "a", "day", "in", "at"]


def write_pairs(path, count: int, seed: int, score=None):
    """Pairs of texts with the same thing; with `score` half of them have different things, and a
    score that says so.
    """
    draws = np.random.default_rng(seed)

    def text(thing):
        return " ".join([*draws.choice(FILLERS, 3), thing, *draws.choice(FILLERS, 2)])

    rows = []
    for number in range(count):
        first, other = draws.choice(THINGS, 2, replace=False)
        is_same = score is None or number % 2 == 0
        rows.append(
            [
                text(first),
                text(first if is_same else other),
                *([str(score * is_same)] if score else []),
            ]
        )
    path.write_text(
        "".join(
            "\t".join(row) + "\n"
            for row in [["anchor", "positive", "score"][: len(rows[0])], *rows]
        )
    )


def refusal(**flags) -> str:
    ended = end_of("run_embeddings", *flag_list(**flags))
    assert ended.status == 1
    return ended.sentence


@pytest.fixture
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def model_of(base) -> dict:
    return {
        "vocab_file": base / "vocab.txt",
        "bert_config_file": base / "bert_config.json",
        "max_seq_length": 16,
    }


@pytest.mark.usefixtures("models_are_loaded_once")
def test_vectors_are_learnt_measured_exported_and_asked_for(base, tmp_path):
    write_pairs(tmp_path / "train.tsv", 400, 1)
    write_pairs(tmp_path / "dev.tsv", 60, 2, score=4)
    (tmp_path / "test.txt").write_text("the cat sat\n\nthe rain was\nthe cat sat\n")
    flags = {
        "data_dir": tmp_path,
        "output_dir": tmp_path / "out",
        "random_seed": 1,
        "train_batch_size": 40,
    }
    dev = prepared(tmp_path / "dev.tsv")
    assert dev.metrics(SentenceEncoder(str(base), "max").encode(dev.texts))["eval_spearman"] < 0.5
    learning = {"num_train_epochs": 12, "learning_rate": 3e-3, "projection": 8, "pooling": "max"}
    run_here(
        "run_embeddings",
        *flag_list(
            **model_of(base), **flags, **learning, do_train=True, do_eval=True, do_predict=True
        ),
    )
    learnt = figures(tmp_path / "out")
    assert set(learnt) == {"eval_spearman", "eval_pearson", "global_step"}
    assert learnt["eval_spearman"] > 0.8

    texts = [
        json.loads(line) for line in (tmp_path / "out/test_texts.jsonl").read_text().splitlines()
    ]
    vectors = np.load(tmp_path / "out/test_vectors.npy")
    assert texts == ["the cat sat", "the rain was"]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    assert vectors.shape == (2, 8)
    for text in ("", "noexport_text"):
        files = {"model": tmp_path / "out", "export_dir": tmp_path / f"export{text}"}
        run_here(
            "export_saved_model",
            *flag_list(**files),
            *([f"--{text}"] if text else ["--export_text"]),
        )
        np.testing.assert_allclose(
            Predictor(str(files["export_dir"])).embed(texts), vectors, atol=2e-6
        )
    np.testing.assert_allclose(Predictor(str(tmp_path / "out")).embed(texts), vectors, atol=2e-6)

    again = {"dev_file": tmp_path / "dev.tsv", "output_dir": tmp_path / "again", "do_eval": True}
    run_here("run_embeddings", *flag_list(**again, vectors=tmp_path / "export"))
    assert figures(tmp_path / "again")["eval_spearman"] == pytest.approx(
        learnt["eval_spearman"], abs=1e-6
    )
    vectors = Predictor(str(tmp_path / "out")).embed(dev.texts)
    np.save(tmp_path / "vectors.npy", np.float64(vectors))
    run_here("run_embeddings", *flag_list(**again, vectors=tmp_path / "vectors.npy"))
    assert figures(tmp_path / "again")["eval_spearman"] == pytest.approx(
        learnt["eval_spearman"], abs=1e-6
    )
    for wrong in (np.float64(vectors)[1:], np.full_like(vectors, np.nan, np.float64)):
        np.save(tmp_path / "vectors.npy", wrong)
        sentence = refusal(**again, vectors=tmp_path / "vectors.npy")
        assert "holds float64[" in sentence
        assert f"finite floats for each of the {len(vectors)} different texts" in sentence
    with open(tmp_path / "vectors.npy", "wb") as file:
        np.savez(file, vectors)
    assert "vectors.npy: cannot be read as .npy" in refusal(
        **again, vectors=tmp_path / "vectors.npy"
    )
    sentence = refusal(**again, vectors=tmp_path / "absent")
    assert f"{tmp_path}/absent: holds no model" in sentence
    assert "--model=" not in sentence


def test_a_teacher_goes_with_one_loss_alone(tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, "embedding")
    with pytest.raises(
        InputError,
        match="--teacher: goes with --loss=mse, which learns its vectors, gist and margin_mse, not",
    ):
        fine_tuning_runs.run(
            "embedding", options, tmp_path / "out", do_train=True, teacher="a", loss="cosent"
        )


def test_a_teacher_gives_its_vectors(base, tmp_path):
    """The student of one layer has the vectors of the teacher, up to its width."""
    (tmp_path / "train.txt").write_text(
        "".join(f"the {a} was on the {b}\n" for a in THINGS for b in THINGS)
    )
    teacher = SentenceEncoder(str(base))
    flags = {
        "train_file": tmp_path / "train.txt",
        "output_dir": tmp_path / "out",
        "random_seed": 1,
        "loss": "mse",
    }
    flags |= {
        "do_train": True,
        "learning_rate": 1e-2,
        "train_batch_size": 20,
        "num_train_epochs": 20,
    }
    refused = refusal(**model_of(base), **flags)
    assert "--loss=mse: needs a --teacher" in refused
    refused = refusal(**model_of(base), **flags, teacher=base, projection=3)
    assert "its vectors have 16 components, those of the model 3" in refused
    run_here("run_embeddings", *flag_list(**model_of(base), **flags, teacher=base))
    texts = ["the rain was on the cat", "the child was on the park"]
    cosines = (teacher.encode(texts) * Predictor(str(tmp_path / "out")).embed(texts)).sum(axis=1)
    assert cosines.min() > 0.9


def prepared(path, kind: str | None = None, **settings) -> types.SimpleNamespace:
    examples = read_examples(str(path), "dev_file", settings)
    rows = all_texts(examples)
    metrics = evaluation.prepare(examples, rows, kind or evaluation.choose_kind(examples))
    return types.SimpleNamespace(texts=rows.texts, metrics=metrics)


UNIT = np.eye(4, dtype=np.float32)


NEAR = [0.6, 0.8, 0, 0]  # its cosine with UNIT[0] is 0.6
NEARER = [0.8, 0.6, 0, 0]  # its cosine with UNIT[0] is 0.8


@pytest.mark.parametrize(
    ("content", "vectors", "metric", "value"),
    [
        # Spearman of the cosines 1, 0.6 and 0 with the scores 3, 1 and 2.
        pytest.param(
            """
            sentence1\tsentence2\tscore
            a\tb\t3
            c\td\t1
            a\td\t2
            x\ty\t
            """,
            [UNIT[0], UNIT[0], [0, 0.6, 0.8, 0], UNIT[1], UNIT[0], UNIT[1]],
            "eval_spearman",
            0.5,
            id="scored pairs, one without a score",
        ),
        pytest.param(
            """
            text_a\ttext_b\tlabel
            a\tb\t1
            a\tc\t0
            """,
            [UNIT[0], UNIT[0], UNIT[1]],
            "eval_average_precision",
            1.0,
            id="labelled pairs",
        ),
        # Spearman of the cosines 1, 1, 0 and 0 with the scores 1, 1, 0 and 2.
        pytest.param(
            """
            {"text_a": "a", "text_b": ["b", "c"], "label": 1}
            {"text_a": "d", "text_b": ["a"], "label": 0}
            {"text_a": "d", "text_b": ["c"], "label": 2}
            """,
            [UNIT[0], UNIT[0], UNIT[0], UNIT[1]],
            "eval_spearman",
            0.0,
            id="scored lists",
        ),
        pytest.param(
            """
            {"text_a": "a", "text_b": "b", "label": true}
            {"text_a": "a", "text_b": "c", "label": 0.0}
            """,
            [UNIT[0], UNIT[0], UNIT[1]],
            "eval_average_precision",
            1.0,
            id="labels true and 0.0",
        ),
        pytest.param(
            """
            query\tpositive\tnegative_1\tnegative_2
            q\tp\tn\tm
            """,
            [UNIT[0], NEAR, NEARER, UNIT[1]],
            "eval_accuracy",
            0.5,
            id="triplets",
        ),
        pytest.param(
            """
            query\tanswer
            q\tp
            r\to
            """,
            [UNIT[0], NEAR, UNIT[1], UNIT[1]],
            "eval_mrr_at_10",
            1.0,
            id="queries and answers",
        ),
        pytest.param(
            """
            query\tanswer
            q\tp
            r\to
            """,
            [UNIT[1], NEAR, UNIT[1], UNIT[1]],
            "eval_mrr_at_10",
            0.75,
            id="queries of equal vectors",
        ),
    ],
)
def test_the_columns_determine_the_metric(tmp_path, content, vectors, metric, value):
    content = textwrap.dedent(content).lstrip()
    dev_file = tmp_path / ("dev.jsonl" if content.startswith("{") else "dev.tsv")
    dev_file.write_text(content)
    prepared_file = prepared(dev_file)
    assert len(prepared_file.texts) == len(vectors)
    metrics = prepared_file.metrics(np.array(vectors, np.float32))
    assert metrics[metric] == pytest.approx(value, abs=1e-6)


def test_answers_are_selected_among_those_of_their_question(tmp_path):
    """The best answer of q is right; r has only right ones, s only wrong ones, so neither is
    measured.
    """
    rows = [("q", "p", 1), ("q", "n", 0), ("r", "o", 1), ("s", "m", 0)]
    lines = [json.dumps({"question": a, "answer": b, "label": c}) + "\n" for a, b, c in rows]
    (tmp_path / "dev.jsonl").write_text("".join(lines))
    found = prepared(tmp_path / "dev.jsonl", "retrieval")
    vectors = dict(zip(found.texts, np.zeros((7, 4), np.float32), strict=True))
    vectors |= {"q": UNIT[0], "p": UNIT[0] + UNIT[1], "n": UNIT[1], "o": UNIT[0]}
    assert found.metrics(np.array([vectors[text] for text in found.texts]))["eval_map"] == 1.0
    vectors["p"], vectors["n"] = vectors["n"], vectors["p"]
    assert found.metrics(np.array([vectors[text] for text in found.texts]))["eval_map"] == 0.5
    (tmp_path / "dev.jsonl").write_text(lines[2])
    with pytest.raises(InputError, match=r"dev\.jsonl: line 1: no query has a text to find"):
        prepared(tmp_path / "dev.jsonl", "retrieval")


def test_the_texts_are_in_the_order_of_the_file(tmp_path):
    """It does not depend on what is measured, so vectors of the texts of --do_predict fit."""
    rows = [("a", ["b", "c"], ["d", "e"], "1"), ("f", ["b"], ["e"], "0"), ("g", ["c"], ["d"], "1")]
    names = ("text", "positive", "negative", "label")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    (tmp_path / "dev.jsonl").write_text("".join(lines))
    for kind in ("triplets", "retrieval", "clustering", "sts"):
        assert prepared(tmp_path / "dev.jsonl", kind).texts == list("abcdefg")


@pytest.mark.parametrize(
    ("name", "content", "flags", "sentence"),
    [
        ("a.tsv", "one\ttwo\nx\ty\n", {}, "a.tsv: none of its columns one, two has a usual name"),
        (
            "a.tsv",
            "text\nx\n",
            {"positive_column": "answer"},
            "--positive_column=answer: .*a.tsv has no such column",
        ),
        ("a.tsv", "text\ttwo\nx\n", {}, "a.tsv: line 2: has 1 columns, the first one 2"),
        (
            "a.tsv",
            "text\nx\n",
            {},
            "a.tsv: line 2: --loss=multiple_negatives_ranking needs two texts",
        ),
        (
            "a.tsv",
            "text\tanswer\nx\ty\n",
            {"loss": "triplet"},
            "line 2: --loss=triplet needs an anchor, a positive",
        ),
        (
            "a.tsv",
            "text\tanswer\tscore\nx\ty\tgood\n",
            {"loss": "cosent"},
            "line 2: the label 'good' is no number",
        ),
        (
            "a.tsv",
            "text\tanswer\nx\ty\n",
            {"loss": "cosent"},
            "line 2: has no label; give the pair a number",
        ),
        (
            "a.tsv",
            "text\tanswer\tscore\nx\ty\tnan\n",
            {"loss": "cosent"},
            "line 2: the label 'nan' is no number",
        ),
        (
            "a.tsv",
            "x\ty\n",
            {"anchor_column": "x", "has_header": False},
            "--anchor_column=x: .*a.tsv has no such column, only 0, 1",
        ),
        (
            "a.jsonl",
            '{"text": ["a", "b"], "answer": "c"}\n',
            {},
            "line 1: text is a list of 2 texts; give it one",
        ),
        ("a.txt", "\n \n", {}, "a.txt: holds no example"),
        (
            "a.tsv",
            "text\tanswer\nx\ty\n",
            {"matryoshka": "8,32"},
            "--matryoshka=8,32: .* 16 components",
        ),
        (
            "a.tsv",
            "text\tanswer\nx\ty\n",
            {"matryoshka": "8,x"},
            "--matryoshka=.*: must be different positive",
        ),
    ],
)
def test_what_cannot_be_trained_on(base, tmp_path, name, content, flags, sentence):
    (tmp_path / name).write_text(content)
    given = (
        model_of(base)
        | {"train_file": tmp_path / name, "output_dir": tmp_path / "out", "do_train": True}
        | flags
    )
    refused = refusal(**given, train_batch_size=1)
    assert re.search(sentence, refused), refused


def test_a_training_goes_on_with_the_vectors_of_the_folder(base, tmp_path):
    """Of the folder of a training as of one of sentence-transformers; a flag says otherwise."""
    write_pairs(tmp_path / "train.tsv", 8, 1)
    flags = {
        "train_file": tmp_path / "train.tsv",
        "do_train": True,
        "num_train_epochs": 1,
        "train_batch_size": 4,
    }
    first, theirs = {"pooling": "max", "projection": 8, "normalize": False}, tmp_path / "theirs"
    run_here(
        "run_embeddings",
        *flag_list(**model_of(base), **flags, **first, output_dir=tmp_path / "first"),
    )
    run_here(
        "convert_checkpoint",
        *flag_list(model=tmp_path / "first", output_dir=theirs),
        "--output_format=huggingface",
    )
    second = {"pooling": "cls", "normalize": True}
    run_here(
        "run_embeddings",
        *flag_list(model=tmp_path / "first", **flags, **second, output_dir=tmp_path / "out"),
    )
    settings = json.loads((tmp_path / "out" / "task.json").read_text())["settings"]
    assert {key: settings[key] for key in settings if key != "max_seq_length"} == first | second
    for folder, expected in (
        (tmp_path / "first", first),
        (theirs, {"pooling": "max", "normalize": False}),
    ):
        assert (
            EmbeddingTask.from_settings(
                None, EmbeddingSettings.from_values({"init_checkpoint": str(folder)})
            ).settings()
            == expected
        )
