"""The original README's fine-tuning commands on a toy model and toy data, in this process.

All their flags but those of the TPU; `/tmp` and `gs://some_bucket` become a fresh folder.
"""

import json
import pathlib
import re
import shlex
import string

import numpy as np
import pytest

from official_bert.metrics.squad import evaluate_v1, evaluate_v2
from official_bert.tasks.squad.examples import read_gold_answers
from tests import toy
from tests.fine_tuning_runs import figures
from tests.scripts import run_here

_BASE = """--vocab_file=$BERT_BASE_DIR/vocab.txt --bert_config_file=$BERT_BASE_DIR/bert_config.json \
    --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt"""
_CLASSIFIER = "python run_classifier.py --max_seq_length=128"
_SQUAD = """--num_train_epochs=2.0 --learning_rate=3e-5 --max_seq_length=384 --doc_stride=128 --do_predict=True"""
_SQUAD_BASE = f"python run_squad.py {_BASE} {_SQUAD}"
_SQUAD_LARGE = (
    f"{_SQUAD_BASE.replace('BASE', 'LARGE')} --train_batch_size=24 "
    "--output_dir=gs://some_bucket/squad_large/"
)
_SQUAD_1 = (
    "--do_train=True --train_file=$SQUAD_DIR/train-v1.1.json "
    "--predict_file=$SQUAD_DIR/dev-v1.1.json"
)
_SQUAD_2 = """--train_file=$SQUAD_DIR/train-v2.0.json --predict_file=$SQUAD_DIR/dev-v2.0.json \
    --version_2_with_negative=True"""

# Each has all flags of the README's command, which names them in another order.
COMMANDS = {
    "MRPC": f"""{_CLASSIFIER} {_BASE} --task_name=MRPC --data_dir=$GLUE_DIR/MRPC --do_train=true --do_eval=true \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/""",
    "MRPC prediction": f"""{_CLASSIFIER} --task_name=MRPC --data_dir=$GLUE_DIR/MRPC --do_predict=true \
        --vocab_file=$BERT_BASE_DIR/vocab.txt --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$TRAINED_CLASSIFIER --output_dir=/tmp/mrpc_output/""",
    "SQuAD 1.1, Base": f"{_SQUAD_BASE} {_SQUAD_1} --train_batch_size=12 --output_dir=/tmp/squad_base/",
    "SQuAD 2.0": f"{_SQUAD_LARGE} {_SQUAD_2} --do_train=True",
    "SQuAD 2.0, threshold": f"{_SQUAD_LARGE} {_SQUAD_2} --do_train=False --null_score_diff_threshold=$THRESH",
}

WORDS = ["cat", "sat", "mat", "park", "day", "noon", "train", "station", "board", "hand", "rain"]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where the variables of the commands point to."""
    folder = tmp_path_factory.mktemp("original")
    base = toy.make_bert_base_dir(folder / "base")
    write_mrpc(folder / "glue" / "MRPC")
    (folder / "squad").mkdir()
    for name, count, seed in (("train", 26, 1), ("dev", 11, 2)):
        for version in ("v1.1", "v2.0"):
            write_squad(folder / "squad" / f"{name}-{version}.json", version, count, seed)
    return {
        "BERT_BASE_DIR": base,
        "BERT_LARGE_DIR": base,
        "GLUE_DIR": folder / "glue",
        "SQUAD_DIR": folder / "squad",
    }


def run(name: str, places: dict, fresh, **variables):
    """Runs a command of the table in the folder `fresh`; returns its output folder and its log."""
    line = re.sub("=(/tmp|gs://some_bucket)/", f"={fresh}/", COMMANDS[name])
    _, script, *flags = shlex.split(string.Template(line).substitute(places, **variables))
    (output_dir,) = [flag.partition("=")[2] for flag in flags if flag.startswith("--output_dir=")]
    return pathlib.Path(output_dir), run_here(script, *flags).stderr


def text(draws, least=4, most=12) -> str:
    return " ".join(draws.choice(WORDS, draws.integers(least, most)))


def write_mrpc(folder):
    """70 pairs to learn from, 11 to evaluate and 9 to predict."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(1)
    for name, count in (("train", 70), ("dev", 11), ("test", 9)):
        rows = [
            ["index" if name == "test" else "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        ]
        for number in range(count):
            first = number if name == "test" else draws.integers(2)
            rows.append([first, 2 * number, 2 * number + 1, f'"{text(draws)}', text(draws)])
        (folder / f"{name}.tsv").write_text(
            "".join("\t".join(map(str, row)) + "\n" for row in rows)
        )


def write_squad(path, version, count, seed):
    """Questions whose answer is the word `driver`; every third has none in version 2.0, every
    fifth a long document.
    """
    draws = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = text(draws, 400, 420) if number % 5 == 4 else text(draws, 280, 350)
        context = f"{words} Driver, {text(draws)}."
        question = {"id": f"q{number}", "question": f"Who was {text(draws, 2, 4)}?"}
        question["answers"] = [{"text": "Driver", "answer_start": context.index("Driver")}]
        if version == "v2.0":
            question["is_impossible"] = number % 3 == 2
            if question["is_impossible"]:
                question["answers"] = []
        paragraphs.append({"context": context, "qas": [question]})
    articles = [{"title": "toy", "paragraphs": paragraphs}]
    path.write_text(json.dumps({"version": version, "data": articles}))


def test_mrpc(places, tmp_path):
    trained, _ = run("MRPC", places, tmp_path)
    results = figures(trained)
    assert results["global_step"] == 6  # 70 / 32 * 3 = 6.56
    assert 11 * results["eval_accuracy"] == pytest.approx(
        round(11 * results["eval_accuracy"]), abs=1e-5
    )
    names = {path.name for path in trained.iterdir()}
    assert {"train.tf_record", "eval.tf_record", "checkpoint", "model.ckpt-6.index"} <= names
    assert not {"predict.tf_record", "test_results.tsv"} & names

    rows = {}
    for form, checkpoint in {"prefix": trained / "model.ckpt-6", "folder": trained}.items():
        predicted, log = run(
            "MRPC prediction", places, tmp_path / form, TRAINED_CLASSIFIER=checkpoint
        )
        assert " weights: all from the checkpoint" in log
        assert (predicted / "predict.tf_record").stat().st_size > 0
        rows[form] = np.loadtxt(predicted / "test_results.tsv", delimiter="\t")
    assert rows["prefix"].shape == (9, 2)
    np.testing.assert_allclose(rows["prefix"].sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(rows["prefix"], rows["folder"])


def test_squad_1(places, tmp_path):
    folder, log = run("SQuAD 1.1, Base", places, tmp_path)
    names = {path.name for path in folder.iterdir()}
    assert {
        "train.tf_record",
        "eval.tf_record",
        "model.ckpt-4.index",
        "nbest_predictions.json",
    } <= names
    assert "null_odds.json" not in names
    assert "Num orig examples = 11" in log
    assert "Num split examples = 13" in log  # two documents of two windows each
    dev = places["SQUAD_DIR"] / "dev-v1.1.json"
    answers = json.loads((folder / "predictions.json").read_text())
    assert list(answers) == [f"q{number}" for number in range(11)]
    contexts = [
        paragraph["context"] for paragraph in json.loads(dev.read_text())["data"][0]["paragraphs"]
    ]
    # "empty" is what the original answers where no span of the best 20 beginnings and ends is
    # possible.
    assert all(
        answer in context or answer == "empty"
        for answer, context in zip(answers.values(), contexts, strict=True)
    )
    results = figures(folder)
    assert results["global_step"] == 4  # 26 / 12 * 2 = 4.33
    for name, value in evaluate_v1(read_gold_answers(str(dev)), answers).items():
        assert results[name] == pytest.approx(value, rel=1e-6), name


def test_squad_2_with_a_threshold(places, tmp_path):
    folder, _ = run("SQuAD 2.0", places, tmp_path)
    assert figures(folder)["global_step"] == 2  # 26 / 24 * 2 = 2.17
    odds = json.loads((folder / "null_odds.json").read_text())
    nbest = json.loads((folder / "nbest_predictions.json").read_text())
    threshold = sorted(odds.values())[5]  # half of the questions are above

    def answers_above(threshold):
        """What the original's rule makes of the first run's files."""
        best = {
            key: next((entry["text"] for entry in nbest[key] if entry["text"]), "") for key in odds
        }
        return {key: "" if odds[key] > threshold else best[key] for key in odds}

    def answers():
        return json.loads((folder / "predictions.json").read_text())

    assert answers() == answers_above(0.0)
    # The checkpoint of the first run lies in the folder and goes before --init_checkpoint.
    run("SQuAD 2.0, threshold", places, tmp_path, THRESH=threshold)
    assert answers() == answers_above(threshold)
    results = figures(folder)
    assert results["global_step"] == 2
    gold = read_gold_answers(str(places["SQUAD_DIR"] / "dev-v2.0.json"))
    for name, value in evaluate_v2(gold, answers()).items():
        assert results[name] == pytest.approx(value, rel=1e-6), name
