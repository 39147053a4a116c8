"""Predictor and official-bert predict read an export of many heads: each head gives the answers of
its own model, and a text is encoded once for all of them.
"""

import collections
import csv
import json
import pathlib
import shutil
from typing import Any, NamedTuple

import pytest

from official_bert import Predictor
from official_bert.io.errors import InputError
from official_bert.serving.exported_model import RECORD_FILE
from official_bert.serving.model import Export
from tests.extensions.many_heads.models import draw_encoder, write_model
from tests.extensions.many_heads.test_export import (
    LONG_TEXT,
    TEXTS,
    draw_adapters,
    list_heads,
    run_heads,
)
from tests.extensions.many_heads.test_other_formats import (
    needs_litert,
    needs_onnx,
    needs_onnxruntime,
)
from tests.hostile.rows import edit_json
from tests.scripts import end_of, flag_list, run_here
from tests.serving.answers import TOLERANCE

REQUESTS = [*TEXTS, LONG_TEXT, "rain", "the mat, the cat."]
HEADS = ("single", "multi", "tags", "vectors")


class Kind(NamedTuple):
    """A kind of export: the flags of export_heads, and the heads that are fast to make in it."""

    flags: dict[str, Any]
    heads: tuple[str, ...]


TENSORS = Kind({}, HEADS)
TEXT = Kind({"export_text": True}, ("single", "tags"))
ONNX = Kind({"export_format": "onnx"}, HEADS)
ONNX_TEXT = Kind({"export_format": "onnx", "export_text": True}, ("single", "multi", "vectors"))
LITERT = Kind({"export_format": "litert"}, ("multi", "tags"))
has_onnx = [needs_onnx, needs_onnxruntime]
has_litert = [needs_litert, pytest.mark.needs_extra("ai_edge_litert")]
KINDS = [
    pytest.param(TENSORS, id="SavedModel of tensors"),
    pytest.param(TEXT, id="SavedModel of text"),
    pytest.param(ONNX, id="ONNX of tensors", marks=has_onnx),
    pytest.param(ONNX_TEXT, id="ONNX of text", marks=has_onnx),
    pytest.param(LITERT, id="LiteRT", marks=has_litert),
]


def assert_close(answer, expected):
    """Equal answers; numbers within the tolerance of exports, because batches differ."""
    if isinstance(expected, dict):
        assert list(answer) == list(expected)
        for name, value in expected.items():
            assert_close(answer[name], value)
    elif isinstance(expected, list):
        assert len(answer) == len(expected)
        for value, expected_value in zip(answer, expected, strict=True):
            assert_close(value, expected_value)
    elif isinstance(expected, float):
        assert answer == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE)
    else:
        assert answer == expected


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, pathlib.Path]:
    """Models with equal encoders of one layer."""
    folder = tmp_path_factory.mktemp("models")
    fields = {"num_hidden_layers": 1}
    encoder = draw_encoder(1, **fields)
    heads = [name for name in HEADS if name in list_heads()]
    return {
        name: write_model(folder / name, name, encoder, seed, **fields)
        for seed, name in enumerate([*heads, "pairs"])
    }


@pytest.fixture(scope="module")
def expected(folders) -> dict[str, list]:
    """The answers of each model alone, from its folder."""
    return {
        name: Predictor(folder)(REQUESTS) for name, folder in folders.items() if name != "pairs"
    }


@pytest.fixture(scope="module")
def export_once(folders, tmp_path_factory):
    """A function from a kind of export to its folder."""
    versions: dict[str, pathlib.Path] = {}

    def export(kind: Kind = TENSORS) -> pathlib.Path:
        key = json.dumps(kind.flags)
        if key not in versions:
            heads = {name: folders[name] for name in kind.heads if name in folders}
            versions[key] = run_heads(heads, tmp_path_factory.mktemp("export"), **kind.flags)
        return versions[key]

    return export


@pytest.fixture(scope="module", params=KINDS)
def kind_and_predictor(request, export_once) -> tuple[Kind, Predictor]:
    """An export that has answered, because the first answer of a graph takes seconds."""
    version = export_once(request.param)
    predictor = Predictor(version.parent)
    predictor("rain")
    return request.param, predictor


def test_each_head_answers_as_its_own_model(kind_and_predictor, expected):
    kind, predictor = kind_and_predictor
    answers = predictor(REQUESTS)
    names = list(predictor.heads)
    assert names == [name for name in kind.heads if name in expected]
    for number, answer in enumerate(answers):
        assert_close(answer, {name: expected[name][number] for name in names})
    assert_close(predictor(REQUESTS[0]), answers[0])
    # In a SavedModel of text, one head that names its text otherwise.
    for name in ["tags"] if kind == TEXT else names:
        assert_close(predictor.head(name)(REQUESTS), expected[name])
    assert expected["single"][3]["truncated"]


def test_a_head_has_the_methods_and_settings_of_its_model(export_once, expected, folders):
    predictor = Predictor(export_once())
    assert f"heads='{', '.join(predictor.heads)}'" in repr(predictor)
    text = REQUESTS[0]
    single = predictor.head("single")
    assert_close(single.classify(text), Predictor(folders["single"]).classify(text))
    assert predictor.head("single", abstain_below=1.0)(text)["label"] is None
    assert Predictor(predictor.path, head="single", abstain_below=1.0)(text)["label"] is None
    assert_close(Predictor(predictor.path, head="single")(REQUESTS), expected["single"])
    assert_close(predictor.heads["tags"].tag(text), expected["tags"][0]["entities"])
    with pytest.raises(InputError, match=r"^/.*/1: is an export; open the folder of its training"):
        single.export("elsewhere")


class Calls:
    """The rows and the signatures that an export computes, and the functions that it calls."""

    def __init__(self, monkeypatch):
        self.num_rows = collections.Counter()
        call = Export.__call__

        def count(export, signature, inputs):
            self.num_rows[signature] += len(next(iter(inputs.values())))
            return call(export, signature, inputs)

        monkeypatch.setattr(Export, "__call__", count)


def test_all_heads_share_the_computation_of_a_text(export_once, monkeypatch):
    predictor = Predictor(export_once(TEXT))
    calls = Calls(monkeypatch)
    predictor(REQUESTS)
    assert calls.num_rows == {"serving_text": len(REQUESTS)}


def test_all_heads_share_the_computation_of_tokens(export_once, monkeypatch):
    """The tagger reads other tokens of the long text alone: its windows."""
    predictor = Predictor(export_once())
    calls = Calls(monkeypatch)
    predictor([*TEXTS, "rain"])  # a text twice
    assert calls.num_rows == {"serving_default": len(TEXTS)}
    predictor(LONG_TEXT)
    assert 1 < calls.num_rows["serving_default"] - len(TEXTS) < 10
    assert calls.num_rows.keys() == {"serving_default"}
    predictor.head("tags")("rain")
    assert calls.num_rows["tags"] == 1


@pytest.mark.parametrize(
    "flags", [pytest.param({}, id="tensors"), pytest.param(ONNX_TEXT.flags, marks=has_onnx)]
)
def test_a_head_of_single_texts_reads_the_first_text_of_a_pair(folders, flags, tmp_path):
    heads = {name: folders[name] for name in ("single", "pairs")}
    predictor = Predictor(run_heads(heads, tmp_path, **flags))
    pairs = [(LONG_TEXT, "rain"), ("rain", "the cat sat"), ("rain", "")]
    answers = predictor(pairs)
    singles = Predictor(folders["single"])([first for first, _ in pairs])
    for answer, pair, single in zip(answers, pairs, singles, strict=True):
        assert_close(answer, {"single": single, "pairs": Predictor(folders["pairs"])(pair)})
    with pytest.raises(InputError, match=r"the model takes 2 texts \(text_a, text_b\), 1 given"):
        predictor("rain")


def test_heads_with_different_adapters_answer_as_their_models(tmp_path):
    encoder = draw_encoder(1)
    heads = {
        "a": write_model(tmp_path / "a", "single", encoder, 1, further=draw_adapters(1)),
        "b": write_model(tmp_path / "b", "tags", encoder, 2, further=draw_adapters(2)),
    }
    answers = Predictor(run_heads(heads, tmp_path / "heads"))(TEXTS)
    for name, folder in heads.items():
        assert_close([answer[name] for answer in answers], Predictor(folder)(TEXTS))


def test_predict_writes_a_field_for_each_head(export_once, expected, tmp_path):
    version = export_once()
    (tmp_path / "in.txt").write_text("\n".join(REQUESTS))
    files = [f"--input_file={tmp_path / 'in.txt'}", f"--output_file={tmp_path / 'out'}"]
    run_here("predict", f"--model={version}", *files)
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    for number, answer in enumerate(rows):
        assert_close(answer, {name: answers[number] for name, answers in expected.items()})
    # One head has the rows of its model.
    run_here("predict", f"--model={version}", "--head=tags", *files)
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert_close(rows, expected["tags"])


def test_a_table_gets_the_columns_of_each_head(export_once, expected, tmp_path):
    with open(tmp_path / "in.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in REQUESTS)])
    files = [f"--input_file={tmp_path / 'in.csv'}", f"--output_file={tmp_path / 'out.csv'}"]
    run_here("predict", f"--model={export_once()}", *files)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {"text", "single_label", "single_probability", "multi_labels", "tags_tags"}
    assert rows[0].keys() >= {*columns, "tags_entities"}
    for row, single, multi in zip(rows, expected["single"], expected["multi"], strict=True):
        assert row["single_label"] == single["label"]
        probability = max(single["probabilities"].values())
        assert float(row["single_probability"]) == pytest.approx(probability, abs=TOLERANCE)
        assert row["multi_labels"] == ",".join(multi["labels"])


def change_head(name: str, **changes):
    def change(folder: pathlib.Path):
        path = folder / RECORD_FILE
        settings = json.loads(path.read_text())["settings"]
        settings["heads"][name] = {**settings["heads"].get(name, {}), **changes}
        edit_json(path, settings=settings)

    return change


def change_settings(**changes):
    def change(folder: pathlib.Path):
        settings = json.loads((folder / RECORD_FILE).read_text())["settings"]
        edit_json(folder / RECORD_FILE, settings=settings | changes)

    return change


def make_earlier_export(folder: pathlib.Path):
    (folder / RECORD_FILE).rename(folder / "assets.extra/heads.json")


DAMAGES = {
    "an earlier export": (
        make_earlier_export,
        "export.json: is missing, and with it how text is read; export the model again with "
        "official-bert export_saved_model, or several heads with export_heads",
    ),
    "no heads": (change_settings(heads={}), "export.json: settings: heads has no head; put the"),
    "a list of heads": (change_settings(heads=[]), '"heads" is not an object'),
    "a text as a head": (change_settings(heads={"single": "x"}), "heads: single: is not an object"),
    "an absent head": (
        change_settings(heads={"single": {}}),
        'heads: single: "task_name" is missing',
    ),
    "no settings": (change_head("tags", settings={}), 'heads: tags: settings: "export_text" is'),
    "an unknown family": (
        change_head("tags", family="nonsense:Task"),
        "there is no module 'nonsense'",
    ),
    "other labels": (
        change_head("single", label_names=["a", "b", "c"]),
        "heads: single: label_names are not those of the export; put the export's own file back",
    ),
    "labels that are no texts": (
        change_head("single", label_names=[1]),
        "heads: single: label_names must be a list of texts; export the heads again",
    ),
    "no labels": (
        change_head("single", label_names=None),
        "heads: single: label_names are not those of the export",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_named(name, export_once, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(export_once(), folder)
    damage, sentence = DAMAGES[name]
    damage(folder)
    ended = end_of("predict", f"--model={folder}")
    assert ended.status == 1
    assert sentence in ended.sentence


def test_a_head_without_outputs_is_named(export_once, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(export_once(), folder)
    settings = json.loads((folder / RECORD_FILE).read_text())["settings"]
    settings["heads"]["other"] = settings["heads"]["single"]
    edit_json(folder / RECORD_FILE, settings=settings)
    with pytest.raises(InputError, match=r"heads: the model has no outputs of other; put the"):
        Predictor(folder)


def test_wrong_heads_and_settings_are_named(export_once, folders):
    version = export_once()
    names = ", ".join(name for name in folders if name != "pairs")
    for arguments, sentence in {
        ("--head=other",): f"head=other: {version} has the heads {names}; name one",
        ("--abstain_below=0.5",): f"{version}, a model of heads, has no such setting",
        ("--head=tags", "--abstain_below=0.5"): "a model of ner, has no such setting",
    }.items():
        ended = end_of("predict", f"--model={version}", *arguments)
        assert ended.status == 1
        assert sentence in ended.sentence
    ended = end_of("predict", *flag_list(model=folders["tags"], head="tags"))
    assert ended.status == 1
    assert f"head=tags: {folders['tags']} is a model of ner alone; leave it out" in ended.sentence
    with pytest.raises(InputError, match=r"is a model of ner alone"):
        Predictor(folders["tags"]).head("tags")
    with pytest.raises(InputError, match=r"a model of the task heads, which has no classify\(\)"):
        Predictor(version).classify("rain")
