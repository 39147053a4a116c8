"""Damaged JSON and state: configurations, data, exports, histories, files of logits and requests."""

import io
import json
import math
import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import predict
from official_bert.config import BertConfig
from official_bert.fine_tuning import search
from official_bert.io import reading
from official_bert.io.errors import InputError
from official_bert.options.serving import PredictOptions
from official_bert.serving.predictor import Predictor
from official_bert.tasks.squad.answers import RawResult, read_logits, write_logits
from official_bert.training.evaluation import PeriodicEvaluation
from tests import toy
from tests.hostile.rows import Row, check, edit_json, model_flags, table
from tests.serving import exported

DIGITS = "9" * 5000
NESTED = "[" * 100_000

# --- configurations


def config_row(name: str, content: str | bytes | dict, *says: str) -> Row:
    """A run of data extraction with this bert_config.json, or these changes of the good one."""

    def make(folder):
        path = folder / "bert_config.json"
        if isinstance(content, dict):
            edit_json(path, **content)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        toy.write_text(folder, "the cat\n", "in.txt")
        return [
            *model_flags(folder),
            f"--input_file={folder}/in.txt",
            f"--output_file={folder}/out.jsonl",
            "--layers=-1",
        ]

    return Row(name, "extract_features.py", make, says=("bert_config.json", *says))


CONFIGS = [
    config_row("empty", "", "line 1, column 1: no JSON"),
    config_row("half a file", '{"vocab_size": 5,\n "hidden', "line 2, column 2: no JSON"),
    config_row("a list", "[1, 2]", "must hold a JSON object"),
    config_row("4,000 digits of a rate", {"hidden_dropout_prob": 10**4000}, "hidden_dropout_prob must be a number"),
    config_row("a range of nan", {"initializer_range": math.nan}, "initializer_range must be 0 or positive, got nan"),
    config_row("true as a number", {"num_hidden_layers": True}, "num_hidden_layers must be a positive whole number"),
    config_row("a text as a number", {"hidden_size": "16"}, "hidden_size must be a positive whole number, got '16'"),
    config_row("an activation of 0", {"hidden_act": 0}, "hidden_act must be one of", "got 0"),
    config_row("the name of a method", {"validate": 1}, "'validate' is no field of a model config; remove it"),
    config_row("a nested field", '{"more": ' + "[" * 600 + "]" * 600 + "}", "nested too deep"),
    config_row("a model type in a list", {"model_type": ["bert"]}, "model_type is ['bert']"),
    config_row("Hugging Face's list of activations", {"model_type": "bert", "hidden_act": ["gelu"]}, "hidden_act ["),
]  # fmt: skip


@table(CONFIGS)
def test_configurations(row, folder):
    check(row, folder)


def test_a_config_keeps_what_it_does_not_know(tmp_path):
    (tmp_path / "c.json").write_text('{"vocab_size": 50, "architectures": ["x"], "note": null}')
    fields = BertConfig.from_json_file(str(tmp_path / "c.json")).to_dict()
    assert (fields["architectures"], fields["note"]) == (["x"], None)


# --- SQuAD


def squad_row(name: str, content: str | bytes, *says: str) -> Row:
    def make(folder):
        path = folder / "questions.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [
            *model_flags(folder),
            f"--train_file={path}",
            f"--output_dir={folder}/out",
            "--max_seq_length=48",
            "--max_query_length=8",
            "--doc_stride=12",
            "--do_train",
        ]

    return Row(name, "run_squad.py", make, says=("questions.json", *says), leaves=("out/*",))


def questions(**changes) -> str:
    """A file of one question with some fields changed; `start` is that of its answer."""
    answer = {"text": "cat", "answer_start": changes.pop("start", 4)}
    question = {"id": "1", "question": "who", "answers": [answer]} | changes
    return json.dumps({"data": [{"paragraphs": [{"context": "the cat sat", "qas": [question]}]}]})


SQUAD = [
    squad_row("squad: not UTF-8", b'{"data": "caf\xe9"}', "byte 13 is no utf-8; save the file as UTF-8"),
    squad_row("squad: a list", "[]", 'is no object; it should be one with the field "data"'),
    squad_row("squad: true as the start", questions(start=True), '"answer_start" is not a whole number'),
    squad_row("squad: an object as the question", questions(question={}), '"question" is not a text'),
    squad_row("squad: a text as the answers", questions(answers="cat"), '"answers" is not a list'),
]  # fmt: skip


@table(SQUAD)
def test_questions(row, folder):
    check(row, folder)


# --- run state


class State(NamedTuple):
    """A damaged file of a run's state, and what reading it says."""

    name: str
    content: str
    says: str


class _Best:
    output_dir, latest = "best", "best/model.ckpt-2"

    def latest_step(self):
        return 2


def test_lines_of_a_history_that_are_none_are_passed_over(tmp_path):
    """Half a line, a list, a line without its step or of another metric; the files of older versions, too."""
    rows = [{"step": 2, "f1": 0.5}, [4], {"f1": 0.5}, {"step": 4, "f1": None, "loss": 3}, {"step": 6, "loss": 1},
            {"step": 6, "f1": "high"}, {"step": "6", "f1": 1}, {"step": 12, "f1": 1}]  # fmt: skip
    for name, kind in (("run.jsonl", {"type": "evaluation"}), ("eval_history.jsonl", {})):
        lines = [json.dumps(kind | row if isinstance(row, dict) else row) for row in rows]
        folder = tmp_path / name.removesuffix(".jsonl")
        folder.mkdir()
        (folder / name).write_text("\n".join([*lines, lines[0][:-4]]))
        found = PeriodicEvaluation(str(folder), str(folder), 2, None, "f1", dict, best=_Best(), first_step=10)
        assert found._values == {2: 0.5, 4: None}


HEADER = "run\ttrain_batch_size\tlearning_rate\tnum_train_epochs\trandom_seed\teval_accuracy\tbest\n"
RESULTS = [
    State("an empty file's line", "\n", "line 1: is no row of a search's results"),
    State("a short header", "run\tscore\n", "line 1: is no row"),
    State("half a row", HEADER + "a\t16\t5e-05\t2", "line 2: is no row of a search's results; remove it, or delete"),
    State("a word for a number", HEADER + "a\tmany\t5e-05\t2.0\t0\t0.5\t*\n", "line 2: is no row"),
]


@pytest.mark.parametrize("state", RESULTS, ids=lambda state: state.name)
def test_results_of_a_search(state, tmp_path):
    (tmp_path / search.RESULTS_FILE).write_text(state.content)
    with pytest.raises(InputError) as refused:
        search._read_results(str(tmp_path))
    assert f"{tmp_path}/search_results.tsv: {state.says}" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"), [("[]", "search.json: is no object"), ("", "search.json: line 1, column 1: no JSON")]
)
def test_flags_of_a_search(content, says, tmp_path):
    from official_bert.options.fine_tuning import ClassificationOptions

    (tmp_path / search.FLAGS_FILE).write_text(content)
    options = ClassificationOptions(
        task_name="tsv", vocab_file="v", bert_config_file="c", data_dir="d", output_dir=str(tmp_path)
    )
    with pytest.raises(InputError) as refused:
        search._check_same_flags(options)
    assert says in str(refused.value)


# --- files of logits

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


LOGITS = [
    ("no archive", b"hello"),
    ("half an archive", arrays()[:300]),
    ("a flipped byte", arrays().replace(b"\x00\x00\x80\x3f", b"\x00\x00\x81\x3f", 1)),
    ("an array of terabytes", of_terabytes()),
    ("no ids", arrays(unique_ids=None)),
    ("objects", arrays(unique_ids=np.array([{}, {}], object))),
    ("other lengths", arrays(start_logits=np.ones((3, 3), np.float32))),
    ("texts as logits", arrays(end_logits=np.full((2, 3), "a"))),
    ("logits of nan", arrays(end_logits=np.full((2, 3), np.nan, np.float32))),
    ("a list of what it is made from", arrays(made_from=np.array("[1]"))),
]


@pytest.mark.parametrize(("name", "content"), LOGITS, ids=[name for name, _ in LOGITS])
def test_files_of_logits(name, content, tmp_path):
    path = tmp_path / "logits.npz"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_logits(str(path), MADE_FROM)
    said = str(refused.value)
    assert said.startswith(f"{path}: no file of logits (")
    assert said.endswith("); predict again in its folder")
    assert "\n" not in said


@pytest.mark.parametrize("count", [0, 2])
def test_good_logits_are_read(tmp_path, count):
    results = [RawResult(k, np.float32([k, 1]), np.float32([2, k])) for k in range(count)]
    write_logits(str(tmp_path / "l.npz"), results, MADE_FROM)
    found = read_logits(str(tmp_path / "l.npz"), MADE_FROM)
    assert [(one.unique_id, *one.start_logits, *one.end_logits) for one in found] == [
        (k, k, 1, 2, k) for k in range(count)
    ]


# --- exports


@pytest.fixture(scope="module")
def version(tmp_path_factory) -> pathlib.Path:
    return exported.shared_export(tmp_path_factory, "mrpc").path


@pytest.fixture(scope="module")
def squad_version(tmp_path_factory) -> pathlib.Path:
    return exported.shared_export(tmp_path_factory, "squad").path


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


RECORD, LABELS, VOCAB = "assets.extra/export.json", "assets.extra/labels.txt", "assets/vocab.txt"
MORE_PIECES = "".join(f"{piece}\n" for piece in [*toy.VOCABULARY, *(f"p{n}" for n in range(30))])
EXPORTS = [
    written("record: a list", RECORD, "[]", "export.json: is no object"),
    written("record: empty", RECORD, "", "export.json: line 1, column 1: no JSON"),
    written("record: absent", RECORD, None, "export.json: is missing"),
    record("record: no family", '"family" is missing', family=None),
    record("record: an unknown family", "there is no module 'nonsense'", family="nonsense:Task"),
    record("record: a family without a class", "official_bert", family="official_bert:Task"),
    record("record: a list as flags", '"flags" is not an object', flags=[]),
    record("record: no length", '"max_seq_length" is not a whole number', settings={"max_seq_length": None}),
    record("record: a length of 0", "max_seq_length must be positive", settings={"max_seq_length": 0}),
    record("record: a text as truth", '"do_lower_case" is not true', settings={"do_lower_case": "no"}),
    record("record: text that is none", "no signature serving_text", settings={"export_text": True}),
    record("record: three texts", "has 3 as num_texts", settings={"num_texts": 3}),
    written("labels: absent", LABELS, None, "labels.txt: no such file, but the model answers labels"),
    written("labels: one more", LABELS, "0\n1\n2\n", "labels.txt: has 3 labels, but the model has 2 outputs"),
    written("vocabulary: absent", VOCAB, None, "vocab.txt: no such file"),
    written("vocabulary: of a larger model", VOCAB, MORE_PIECES, f"made for vocab_size {len(toy.VOCABULARY)}"),
    written("vocabulary: no [CLS]", VOCAB, "the\n[SEP]\n[UNK]\n", "vocab.txt: lacks [CLS]"),
    written("graph: noise", "saved_model.pb", b"\xff" * 99, "is no complete SavedModel ("),
    written("weights: no index", "variables/variables.index", None, "is no complete SavedModel ("),
    written("weights: empty", "variables/variables.data-00000-of-00001", b"", "is no complete SavedModel ("),
    written("fingerprint: noise", "fingerprint.pb", b"\xff" * 30, ""),
]  # fmt: skip


@pytest.mark.parametrize("damage", EXPORTS, ids=lambda damage: damage.name)
def test_exports(damage, version, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(version, folder)
    damage.make(folder)
    if not damage.says:
        assert Predictor(str(folder))("the cat", "sat")["label"]
        return
    with pytest.raises(InputError) as refused:
        Predictor(str(folder))
    assert damage.says in str(refused.value)
    assert "\n" not in str(refused.value)


SQUAD_RECORDS = [
    record("a stride in quotes", "doc_stride is '5'", settings={"doc_stride": "5"}),
    record("a version of 2", "version_2_with_negative is 2", settings={"version_2_with_negative": 2}),
    record("a threshold in a list", "null_score_diff_threshold is [0]", settings={"null_score_diff_threshold": [0]}),
]  # fmt: skip


@pytest.mark.parametrize("damage", SQUAD_RECORDS, ids=lambda damage: damage.name)
def test_exports_of_squad(damage, squad_version, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(squad_version, folder)
    damage.make(folder)
    with pytest.raises(InputError) as refused:
        Predictor(str(folder), max_query_length=8)
    assert damage.says in str(refused.value)


# --- requests of predict.py

REQUESTS = [
    (f'{{"text_a": {DIGITS}}}', "no JSON (Exceeds the limit"),
    (NESTED, "no JSON (maximum recursion depth"),
    ('{"text_a": 1e999, "text_b": "b"}', "the field text_a is no text"),
    ('{"text_a": "a", "text_b": "b", "text_a": 3}', "the field text_a is no text"),
    ("NaN", "no JSON object"),
    ("\x00", "no JSON (Expecting value"),
    ('{"text_a": "a"} {"text_a": "b"}', "no JSON (Extra data"),
    ('{"text_a": "\\udc00", "text_b": "b"}', "half of a surrogate pair"),
    ('{"TEXT_A": "a"}', "the fields text_a, text_b are missing"),
]


def test_every_bad_request_is_reported_in_its_place(version, tmp_path):
    good = '{"text_a": "the cat", "text_b": "sat"}'
    lines = [line for bad, _ in REQUESTS for line in (good, bad)]
    (tmp_path / "in").write_text("\n".join(lines))
    found = answers(version, tmp_path)
    assert all(one["label"] for one in found[::2])
    for (_, says), one in zip(REQUESTS, found[1::2], strict=True):
        assert one.keys() == {"error"}
        assert says in one["error"]


def test_a_request_that_the_model_refuses_is_reported_in_its_place(version, tmp_path, monkeypatch):
    """The others of its batch are answered."""
    texts = ["the cat", "mat", "the mat", "sat"]
    (tmp_path / "in").write_text("".join(json.dumps({"text_a": text, "text_b": "on"}) + "\n" for text in texts))
    wanted = answers(version, tmp_path)
    real = tf.constant

    def constant(values, *arguments, **others):
        ids = np.asarray(values)
        if ids.ndim == 2 and toy.VOCABULARY.index("sat") in ids:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory left")
        return real(values, *arguments, **others)

    monkeypatch.setattr("official_bert.serving.model.tf.constant", constant)
    found = answers(version, tmp_path)
    assert [one["label"] for one in found[:3]] == [one["label"] for one in wanted[:3]]
    assert "cannot answer (no memory left)" in found[3]["error"]


def answers(version: pathlib.Path, folder: pathlib.Path) -> list[dict]:
    predict.run(
        PredictOptions(
            model=str(version),
            input_file=str(folder / "in"),
            output_file=str(folder / "out"),
            input_format="json",
            on_error="report",
        )
    )
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


# --- the reader itself


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "line 1, column 1: no JSON (Expecting value)"),
        (b"{\n1: 2}", "line 2, column 1: no JSON (Expecting property name"),
        (b"\xef\xbb\xbf{", "no JSON"),
        (b'"\xff"', "byte 1 is no utf-8"),
        (DIGITS.encode(), "no JSON (Exceeds the limit"),
        (NESTED.encode(), "no JSON (maximum recursion depth"),
        (b"{} {}", "line 1, column 4: no JSON (Extra data)"),
    ],
)
def test_the_reader_of_json(text, says):
    with pytest.raises(InputError) as refused:
        reading.parse_json(text)
    assert says in str(refused.value)


def test_a_byte_order_mark_is_ignored():
    assert reading.parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
