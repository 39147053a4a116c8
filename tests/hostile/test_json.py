"""Corrupt JSON and state: configurations, questions, histories, files of logits, exports and
answers.
"""

import io
import json
import pathlib
import shutil
import types
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import predict
from official_bert.fine_tuning import search
from official_bert.io.errors import InputError
from official_bert.options.serving import PredictOptions
from official_bert.serving.predictor import Predictor
from official_bert.tasks.squad.answers import read_logits
from official_bert.training.periodic_evaluation import PeriodicEvaluation
from tests import toy
from tests.hostile.commands import features
from tests.hostile.rows import check, edit_json, model_flags, row, table
from tests.serving import exported

# What else is wrong in configurations and questions, tests/test_config.py and
# tests/tasks/squad/test_examples.py know


def config_row(name: str, content: str | dict, *says: str):
    """An extraction with this bert_config.json, or these changes of the good one."""

    def make(folder):
        if isinstance(content, dict):
            edit_json(folder / "bert_config.json", **content)
        else:
            (folder / "bert_config.json").write_text(content)
        return features(folder)

    return row(name, make, "bert_config.json", *says)


CONFIGS = [
    config_row(
        "4,000 digits", {"hidden_dropout_prob": 10**4000}, "hidden_dropout_prob must be a number"
    ),
    config_row("a nested field", '{"more": ' + "[" * 600 + "]" * 600 + "}", "nested too deep"),
    config_row("a model type in a list", {"model_type": ["bert"]}, "model_type is ['bert']"),
    config_row(
        "Hugging Face's list of activations",
        {"model_type": "bert", "hidden_act": ["gelu"]},
        "hidden_act [",
    ),
]


def questions(folder) -> list[str]:
    """A training on one question, whose answer has a text as its start."""
    question = {"id": "1", "question": "who", "answers": [{"text": "cat", "answer_start": "4"}]}
    data = {"data": [{"paragraphs": [{"context": "the cat sat", "qas": [question]}]}]}
    (folder / "questions.json").write_text(json.dumps(data))
    files = {"train_file": folder / "questions.json", "output_dir": folder / "out"}
    return [
        "run_squad.py",
        *model_flags(folder, **files),
        "--max_seq_length=48",
        "--max_query_length=8",
        "--do_train",
    ]


@table([*CONFIGS, row("a text as a start", questions, '"answer_start" is not a whole number')])
def test_inputs(row, folder):
    check(row, folder)


BEST = types.SimpleNamespace(output_dir="best", latest="best/model.ckpt-2", latest_step=lambda: 2)


def test_lines_of_a_history_that_are_none_are_passed_over(tmp_path):
    """Half a line, a list, a line without its step or of another metric."""
    rows = [
        {"step": 2, "f1": 0.5},
        [4],
        {"f1": 0.5},
        {"step": 4, "f1": None, "loss": 3},
        {"step": 6, "loss": 1},
        {"step": 6, "f1": "high"},
        {"step": "6", "f1": 1},
        {"step": 12, "f1": 1},
    ]
    lines = [
        json.dumps({"type": "evaluation"} | row if isinstance(row, dict) else row) for row in rows
    ]
    cut_line = lines[0][:-4]
    (tmp_path / "run.jsonl").write_text("\n".join([*lines, cut_line]))
    found = PeriodicEvaluation(
        output_dir=str(tmp_path),
        run_dir=str(tmp_path),
        every_steps=2,
        main_metric="f1",
        measure=dict,
        best=BEST,
        first_step=10,
    )
    assert found._values == {2: 0.5, 4: None}


HEADER = (
    "run\ttrain_batch_size\tlearning_rate\tnum_train_epochs\trandom_seed\teval_accuracy\tbest\n"
)


@pytest.mark.parametrize(
    ("content", "number"), [("run\tscore\n", 1), (f"{HEADER}a\tmany\t5e-05\t2.0\t0\t0.5\t*\n", 2)]
)
def test_results_of_a_search(content, number, tmp_path):
    (tmp_path / search.RESULTS_FILE).write_text(content)
    with pytest.raises(
        InputError, match=f"{tmp_path}/search_results.tsv: line {number}: is no row of a search's"
    ):
        search.read_results(str(tmp_path))


MADE_FROM = {"file": "a"}


def arrays(**changes) -> bytes:
    """An archive of logits with some arrays changed or, by None, left out."""
    content = {
        "unique_ids": np.arange(2),
        "start_logits": np.ones((2, 3), np.float32),
        "end_logits": np.ones((2, 3), np.float32),
        "made_from": np.array(json.dumps(MADE_FROM)),
    } | changes
    file = io.BytesIO()
    np.savez(file, **{name: value for name, value in content.items() if value is not None})
    return file.getvalue()


def of_terabytes() -> bytes:
    """An archive whose header claims an array of 2^44 numbers."""
    good = arrays(start_logits=np.ones((2, 3), np.float64))
    return good.replace(b"(2, 3), }" + b" " * 11, b"(%d, 3), }" % (1 << 36) + b" ", 1)


LOGITS = {
    "half an archive": arrays()[:300],
    "a flipped byte": arrays().replace(b"\x00\x00\x80\x3f", b"\x00\x00\x81\x3f", 1),
    "an array of terabytes": of_terabytes(),
    "objects": arrays(unique_ids=np.array([{}, {}], object)),
    "other lengths": arrays(start_logits=np.ones((3, 3), np.float32)),
    "logits of nan": arrays(end_logits=np.full((2, 3), np.nan, np.float32)),
    "a list of what it is made from": arrays(made_from=np.array("[1]")),
}


@pytest.mark.parametrize("name", LOGITS)
def test_files_of_logits(name, tmp_path):
    path = tmp_path / "logits.npz"
    path.write_bytes(LOGITS[name])
    with pytest.raises(InputError, match=rf"^{path}: .* \(.+\); predict again in its folder$"):
        read_logits(str(path), MADE_FROM)


@pytest.fixture(scope="module")
def version(tmp_path_factory) -> pathlib.Path:
    return exported.shared_export(tmp_path_factory, "mrpc").path


class Damage(NamedTuple):
    """A change of an export, and what loading it says."""

    name: str
    make: Callable[[pathlib.Path], object]
    says: str


def record(name: str, says: str, *, settings: dict | None = None, **changes) -> Damage:
    """Changes fields of export.json, or of its settings."""

    def make(folder):
        path = folder / "assets.extra" / "export.json"
        content = json.loads(path.read_text())
        edit_json(path, settings=content["settings"] | (settings or {}))
        edit_json(path, **changes)

    return Damage(name, make, says)


def written(name: str, path: str, content: bytes | str | None, says: str) -> Damage:
    """Replaces a file, or removes it."""

    def make(folder):
        if content is None:
            (folder / path).unlink()
        else:
            (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)

    return Damage(name, make, says)


RECORD = "assets.extra/export.json"
LABELS = "assets.extra/labels.txt"
VOCAB = "assets/vocab.txt"
NEW_PIECES = [f"p{number}" for number in range(30)]
MORE_PIECES = "".join(f"{piece}\n" for piece in [*toy.VOCABULARY, *NEW_PIECES])
EXPORTS = [
    written("record: a list", RECORD, "[]", "export.json: is not an object"),
    record("record: an unknown family", "there is no module 'nonsense'", family="nonsense:Task"),
    record("record: a list as flags", '"flags" is not an object', flags=[]),
    record(
        "record: a length of 0", "max_seq_length must be positive", settings={"max_seq_length": 0}
    ),
    record(
        "record: text that is none",
        "export_text is True, but the model's signatures are",
        settings={"export_text": True},
    ),
    record("record: three texts", "has 3 as num_texts", settings={"num_texts": 3}),
    written(
        "labels: absent", LABELS, None, "labels.txt: no such file, but the model answers labels"
    ),
    written(
        "labels: one more", LABELS, "0\n1\n2\n", "labels.txt: the model's labels are 0, 1; put"
    ),
    written(
        "labels: in another order", LABELS, "1\n0\n", "labels.txt: the model's labels are 0, 1; put"
    ),
    written("labels: repeated", LABELS, "0\n0\n", "labels.txt: must name each label once"),
    record(
        "labels: of another record",
        "was written with other labels",
        labels={"number": 2, "sha256": "0"},
    ),
    record(
        "labels: another kind",
        "the labels are multi, but the model's are single",
        settings={"label_type": "multi"},
    ),
    record(
        "labels: a score",
        "the labels are score, but the model's are single",
        settings={"label_type": "score"},
    ),
    written(
        "vocabulary: of a larger model",
        VOCAB,
        MORE_PIECES,
        f"made for vocab_size {len(toy.VOCABULARY)}",
    ),
    written("vocabulary: no [CLS]", VOCAB, "the\n[SEP]\n[UNK]\n", "vocab.txt: lacks [CLS]"),
    written("weights: no index", "variables/variables.index", None, "is no complete SavedModel ("),
]


def refusal(damage: Damage, version: pathlib.Path, folder: pathlib.Path, **settings) -> str:
    """The sentence for a corrupt copy of an export."""
    shutil.copytree(version, folder)
    damage.make(folder)
    with pytest.raises(InputError) as refused:
        Predictor(str(folder), **settings)
    return str(refused.value)


@pytest.mark.parametrize("damage", EXPORTS, ids=lambda damage: damage.name)
def test_exports(damage, version, tmp_path):
    said = refusal(damage, version, tmp_path / "1")
    assert damage.says in said
    assert "\n" not in said


def test_a_vocabulary_that_the_graph_cannot_read(tmp_path_factory, tmp_path):
    text_version = exported.shared_export(tmp_path_factory, "mrpc", export_text=True).path
    damage = written(
        "repeated", VOCAB, "\n".join([*toy.VOCABULARY[:-1], "the"]), "line 50: repeats 'the'; put"
    )
    assert damage.says in refusal(damage, text_version, tmp_path / "1")


def test_an_export_of_squad(tmp_path_factory, tmp_path):
    squad_version = exported.shared_export(tmp_path_factory, "squad").path
    damage = record("a stride in quotes", "doc_stride is '5'", settings={"doc_stride": "5"})
    assert damage.says in refusal(damage, squad_version, tmp_path / "1", max_query_length=8)


def test_a_request_that_the_model_refuses_is_reported_in_its_place(version, tmp_path, monkeypatch):
    """The others of its batch are answered."""
    texts = ["the cat", "mat", "the mat", "sat"]
    (tmp_path / "in").write_text(
        "".join(json.dumps({"text_a": text, "text_b": "on"}) + "\n" for text in texts)
    )
    wanted = answers(version, tmp_path)
    real = tf.constant

    def constant(values, *arguments, **others):
        ids = np.asarray(values)
        if ids.ndim == 2 and toy.VOCABULARY.index("sat") in ids:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory left")
        return real(values, *arguments, **others)

    monkeypatch.setattr("official_bert.serving.model.tf.constant", constant)
    found = answers(version, tmp_path)
    for answer, expected in zip(found[:3], wanted[:3], strict=True):
        assert answer["label"] == expected["label"]
    assert "the prediction failed (no memory left)" in found[3]["error"]


def answers(version: pathlib.Path, folder: pathlib.Path) -> list[dict]:
    files = {"input_file": str(folder / "in"), "output_file": str(folder / "out")}
    predict.run(PredictOptions(model=str(version), **files, input_format="json", on_error="report"))
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]
