"""Tests what run_squad refuses before training or prediction; its results are tested with the script."""

import json

import numpy as np
import pytest

from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import SquadOptions
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.squad.examples import read_squad_examples
from tests import toy
from tests.serving.answers import answers
from tests.tasks.squad.sample import QUESTIONS, write_squad


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return toy.make_bert_base_dir(tmp_path_factory.mktemp("toy") / "base")


def run(base, **given):
    defaults = {"max_seq_length": 32, "max_query_length": 8, "doc_stride": 8, "output_dir": str(base / "out")}
    fine_tune(
        SquadOptions(
            vocab_file=str(base / "vocab.txt"), bert_config_file=str(base / "bert_config.json"), **(defaults | given)
        )
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "nothing to do: give --do_train or --do_predict"),
        ({"do_train": True}, "--train_file: must be given"),
        ({"do_predict": True}, "--predict_file: must be given"),
        ({"do_predict": True, "predict_file": "f", "max_seq_length": 513}, "max_position_embeddings=512"),
        (
            {"do_predict": True, "predict_file": "f", "max_seq_length": 11},
            "leaves no room for a document beside --max_query_length=8 question tokens",
        ),
        ({"do_predict": True, "predict_file": "f", "null_score_diff_threshold": "auto"}, "--version_2_with_negative"),
        ({"do_train": True, "train_file": "f", "ensemble_dirs": ["d"]}, "--ensemble_dirs: only goes with --do_predict"),
        *(
            (
                {"do_predict": True, "predict_file": "f", "ensemble_dirs": dirs},
                "--ensemble_dirs: the name of a folder is empty",
            )
            for dirs in ([], ["d", ""])
        ),
        ({"do_train": True, "train_file": "f", "search": "paper"}, "--predict_file: must be given with --search"),
    ],
)
def test_flags_that_do_not_go_together_are_named(base, given, sentence):
    with pytest.raises(InputError, match=sentence):
        run(base, **given)


def test_too_few_questions_for_a_batch_are_counted(base, tmp_path):
    with pytest.raises(InputError, match="2 training examples are no whole batch of --train_batch_size=32"):
        run(base, do_train=True, train_file=write_squad(tmp_path))


@pytest.mark.parametrize(
    ("questions", "context"),
    [((), "The Driver waved."), (QUESTIONS, "Nobody waved. Nothing started falling."), (QUESTIONS, "")],
)
def test_training_without_an_answer_is_refused(base, tmp_path, questions, context):
    path = write_squad(tmp_path, questions, context)
    with pytest.raises(InputError, match=f"^{path}: has no question whose answer stands in its document; correct"):
        run(base, do_train=True, train_file=path)


def absent(path):
    return "no such file"


def broken(path):
    path.write_text('{"data": [}')
    return "line 1, column 11: no JSON"


def without_questions(path):
    path.write_text('{"data": []}')
    return "has no question; give a file"


def without_answers(path):
    questions = [{"id": entry["id"], "question": entry["question"]} for entry in QUESTIONS]
    write_squad(path.parent, questions)
    return "has no answers to"


@pytest.mark.parametrize(
    ("flag", "given", "faults"),
    [
        ("predict_file", {"do_predict": True}, (absent, broken, without_questions)),
        ("predict_file", {"eval_every": "1"}, (absent, broken, without_questions, without_answers)),
        (
            "null_score_diff_threshold",
            {"do_predict": True, "version_2_with_negative": True},
            (absent, broken, without_questions, without_answers),
        ),
    ],
)
def test_files_are_read_before_the_training(base, tmp_path, flag, given, faults):
    (tmp_path / "train").mkdir()
    (tmp_path / "faulty").mkdir()
    train_file, path = write_squad(tmp_path / "train"), tmp_path / "faulty" / "squad.json"
    for fault in faults:
        message = fault(path)
        value = f"auto:{path}" if flag == "null_score_diff_threshold" else str(path)
        arguments = {"predict_file": train_file, flag: value, "output_dir": str(tmp_path / "out")}
        with pytest.raises(InputError, match=f"^{path}: {message}"):
            run(base, do_train=True, train_file=train_file, train_batch_size=2, **given | arguments)
        assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("tunes", "message"),
    [
        (False, "/logits.npz: no such file; run_squad.py with --do_predict writes it into its --output_dir"),
        (True, "/threshold_logits.npz: no such file; run_squad.py with --do_predict and --null_score_diff_threshold="),
    ],
)
def test_an_ensemble_says_how_its_logits_are_made(base, tmp_path, tunes, message):
    path = write_squad(tmp_path)
    flags = {"do_predict": True, "predict_file": path, "version_2_with_negative": True}
    if tunes:
        run(base, **flags, allow_missing_weights=True, output_dir=str(tmp_path / "member"))
        flags["null_score_diff_threshold"] = f"auto:{path}"
    with pytest.raises(InputError, match=f"^{tmp_path}/member{message}"):
        run(base, **flags, output_dir=str(tmp_path / "ensemble"), ensemble_dirs=[str(tmp_path / "member")])


def test_a_file_without_questions_is_refused(base, tmp_path):
    with pytest.raises(InputError, match="has no question"):
        run(base, do_predict=True, predict_file=write_squad(tmp_path, questions=()))


def test_a_threshold_cannot_be_tuned_without_answers(base, tmp_path):
    questions = [{"id": entry["id"], "question": entry["question"]} for entry in QUESTIONS]
    with pytest.raises(InputError, match="has no answers to tune the threshold on"):
        run(
            base,
            do_predict=True,
            predict_file=write_squad(tmp_path, questions),
            version_2_with_negative=True,
            null_score_diff_threshold="auto",
        )


def test_a_search_without_answers_is_refused_before_its_first_run(base, tmp_path):
    questions = [{"id": entry["id"], "question": entry["question"]} for entry in QUESTIONS]
    path = write_squad(tmp_path, questions)
    with pytest.raises(InputError, match="has no answers to compare the runs of a search by"):
        run(base, do_train=True, train_file="not read", predict_file=path, search="paper")


def test_an_empty_document_is_answered(base, tmp_path):
    path = write_squad(tmp_path, context="\n")
    run(base, do_predict=True, predict_file=path, version_2_with_negative=True, allow_missing_weights=True)
    assert (base / "out" / "predictions.json").read_text() == '{\n    "q1": "",\n    "q2": ""\n}\n'


def test_an_export_that_reads_text_has_the_tuned_threshold(base, tmp_path):
    unanswered = QUESTIONS[1] | {"answers": [], "is_impossible": True}
    path = write_squad(tmp_path, [QUESTIONS[0], unanswered])
    run(
        base,
        do_train=True,
        train_file=path,
        train_batch_size=2,
        do_predict=True,
        predict_file=path,
        version_2_with_negative=True,
        null_score_diff_threshold="auto",
    )
    exports = str(tmp_path / "exports")
    serving_model.export(ExportOptions(model=str(base / "out"), export_dir=exports, export_text=True))
    examples = read_squad_examples(path, False)
    texts = {
        "question": np.array([example.question_text.encode() for example in examples], object),
        "context": np.array([" ".join(example.doc_tokens).encode() for example in examples], object),
    }
    found = answers(tmp_path / "exports" / "1", "serving_text", texts)
    odds = json.loads((base / "out" / "null_odds.json").read_text())
    np.testing.assert_allclose(found["null_odds"], list(odds.values()), atol=1e-5)
    predictions = json.loads((base / "out" / "predictions.json").read_text())
    np.testing.assert_array_equal(found["answer"] == b"", [not text for text in predictions.values()])
