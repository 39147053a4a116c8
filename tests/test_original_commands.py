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

WORDS = [
    "cat",
    "sat",
    "mat",
    "park",
    "day",
    "noon",
    "train",
    "station",
    "board",
    "hand",
    "rain",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where the variables of the commands point to."""
    folder = tmp_path_factory.mktemp("original")
    base = toy.make_bert_base_dir(folder / "base")
    glue = folder / "glue"
    write_mrpc(glue / "MRPC")
    squad = folder / "squad"
    squad.mkdir()
    for version in ("v1.1", "v2.0"):
        write_squad(squad / f"train-{version}.json", version, count=26, seed=1)
        write_squad(squad / f"dev-{version}.json", version, count=11, seed=2)
    return {
        "BERT_BASE_DIR": base,
        "BERT_LARGE_DIR": base,
        "GLUE_DIR": glue,
        "SQUAD_DIR": squad,
    }


def run(name: str, places: dict, fresh, **variables):
    """Runs a command of the table in the folder `fresh`; returns its output folder and its log."""
    line = re.sub("=(/tmp|gs://some_bucket)/", f"={fresh}/", COMMANDS[name])
    command = string.Template(line).substitute(places, **variables)
    _, script, *flags = shlex.split(command)
    output_flag = "--output_dir="
    (output_dir,) = [flag for flag in flags if flag.startswith(output_flag)]
    finished = run_here(script, *flags)
    return pathlib.Path(output_dir.removeprefix(output_flag)), finished.stderr


def draw_text(random, least=4, most=12) -> str:
    num_words = random.integers(least, most)
    return " ".join(random.choice(WORDS, num_words))


def draw_mrpc_rows(random, count: int, has_labels: bool) -> list[list]:
    """Rows of MRPC after their header; numbers are in place of labels that a set lacks."""
    rows = []
    for number in range(count):
        first_field = random.integers(2) if has_labels else number
        text_a = draw_text(random)
        text_b = draw_text(random)
        rows.append([first_field, 2 * number, 2 * number + 1, f'"{text_a}', text_b])
    return rows


def write_mrpc(folder):
    """70 pairs to learn from, 11 to evaluate and 9 to predict."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for name, count in (("train", 70), ("dev", 11), ("test", 9)):
        has_labels = name != "test"
        rows = draw_mrpc_rows(random, count, has_labels)
        first_name = "Quality" if has_labels else "index"
        rows.insert(0, [first_name, "#1 ID", "#2 ID", "#1 String", "#2 String"])
        lines = []
        for row in rows:
            line = "\t".join(map(str, row))
            lines.append(f"{line}\n")
        (folder / f"{name}.tsv").write_text("".join(lines))


def write_squad(path, version, count, seed):
    """Questions whose answer is the word `driver`; every third has none in version 2.0, every
    fifth a long document.
    """
    random = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        is_long = number % 5 == 4
        beginning = draw_text(random, 400, 420) if is_long else draw_text(random, 280, 350)
        end = draw_text(random)
        context = f"{beginning} Driver, {end}."
        answer = {
            "text": "Driver",
            "answer_start": context.index("Driver"),
        }
        words = draw_text(random, 2, 4)
        question = {
            "id": f"q{number}",
            "question": f"Who was {words}?",
            "answers": [answer],
        }
        if version == "v2.0":
            is_impossible = number % 3 == 2
            question["is_impossible"] = is_impossible
            if is_impossible:
                question["answers"] = []
        paragraphs.append({"context": context, "qas": [question]})
    article = {"title": "toy", "paragraphs": paragraphs}
    path.write_text(json.dumps({"version": version, "data": [article]}))


def read_json(path: pathlib.Path) -> dict:
    return json.loads(path.read_text())


def list_names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_results_are(results: dict, metrics: dict):
    for name, value in metrics.items():
        assert results[name] == pytest.approx(value, rel=1e-6), name


def test_mrpc(places, tmp_path):
    training_folder, _ = run("MRPC", places, tmp_path)
    results = figures(training_folder)
    assert results["global_step"] == 6  # 70 / 32 * 3 = 6.56
    num_right = 11 * results["eval_accuracy"]
    assert num_right == pytest.approx(round(num_right), abs=1e-5)
    names = list_names(training_folder)
    assert names >= {
        "train.tf_record",
        "eval.tf_record",
        "checkpoint",
        "model.ckpt-6.index",
    }
    assert "predict.tf_record" not in names
    assert "test_results.tsv" not in names

    def predict(checkpoint, fresh):
        folder, log = run("MRPC prediction", places, fresh, TRAINED_CLASSIFIER=checkpoint)
        assert " weights: all from the checkpoint" in log
        records = folder / "predict.tf_record"
        assert records.stat().st_size > 0
        return np.loadtxt(folder / "test_results.tsv", delimiter="\t")

    probabilities = predict(training_folder / "model.ckpt-6", tmp_path / "prefix")
    assert probabilities.shape == (9, 2)
    sums = probabilities.sum(axis=1)
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)
    from_folder = predict(training_folder, tmp_path / "folder")
    np.testing.assert_array_equal(probabilities, from_folder)


def test_squad_1(places, tmp_path):
    folder, log = run("SQuAD 1.1, Base", places, tmp_path)
    names = list_names(folder)
    assert names >= {
        "train.tf_record",
        "eval.tf_record",
        "model.ckpt-4.index",
        "nbest_predictions.json",
    }
    assert "null_odds.json" not in names
    assert "Num orig examples = 11" in log
    assert "Num split examples = 13" in log  # two documents of two windows each
    answers = read_json(folder / "predictions.json")
    assert list(answers) == [f"q{number}" for number in range(11)]
    dev = places["SQUAD_DIR"] / "dev-v1.1.json"
    (article,) = read_json(dev)["data"]
    contexts = [paragraph["context"] for paragraph in article["paragraphs"]]
    for answer, context in zip(answers.values(), contexts, strict=True):
        # "empty" is what the original answers where no span of the best 20 beginnings and ends is
        # possible.
        assert answer in context or answer == "empty"
    results = figures(folder)
    assert results["global_step"] == 4  # 26 / 12 * 2 = 4.33
    gold_answers = read_gold_answers(str(dev))
    assert_results_are(results, evaluate_v1(gold_answers, answers))


def find_best_text(entries: list[dict]) -> str:
    """The first text of a question's n-best list that is not empty, else an empty one."""
    texts = [entry["text"] for entry in entries if entry["text"]]
    return texts[0] if texts else ""


def test_squad_2_with_a_threshold(places, tmp_path):
    folder, _ = run("SQuAD 2.0", places, tmp_path)
    first_results = figures(folder)
    assert first_results["global_step"] == 2  # 26 / 24 * 2 = 2.17
    odds = read_json(folder / "null_odds.json")
    nbest = read_json(folder / "nbest_predictions.json")
    threshold = sorted(odds.values())[5]  # half of the questions are above

    def select_answers(threshold):
        """What the original's rule makes of the first run's files."""
        selected = {}
        for question, null_odds in odds.items():
            best_text = find_best_text(nbest[question])
            selected[question] = "" if null_odds > threshold else best_text
        return selected

    answers = read_json(folder / "predictions.json")
    assert answers == select_answers(0.0)
    # The checkpoint of the first run lies in the folder and goes before --init_checkpoint.
    run("SQuAD 2.0, threshold", places, tmp_path, THRESH=threshold)
    answers = read_json(folder / "predictions.json")
    assert answers == select_answers(threshold)
    results = figures(folder)
    assert results["global_step"] == 2
    dev = places["SQUAD_DIR"] / "dev-v2.0.json"
    gold_answers = read_gold_answers(str(dev))
    assert_results_are(results, evaluate_v2(gold_answers, answers))
