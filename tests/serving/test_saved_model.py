"""Exports that read text, from a C program and in a clean process; test_predictor.py compares
them with the scripts.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest

from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.options.serving import ExportOptions
from official_bert.serving import export
from official_bert.serving import model as serving_model
from official_bert.serving.export import check_text_export
from tests import toy
from tests.serving import c_runner, exported
from tests.serving.answers import TOLERANCE, assert_same, call, signatures_of
from tests.serving.exported import Exported, export_options, make_checkpoint
from tests.shared import in_test_long

LONG = " ".join(toy.TEXT.split())
FIRST = ["the cat sat.", "", LONG * 20, "Zebra caf\u00e9 \u5317\u4eac!", "  "]
SECOND = ["", "", "rain", LONG, "\u200d"]
INPUTS = {
    "ner": {"text": FIRST},
    # Of equal endings rounding would choose one.
    "swag": {
        "context": FIRST,
        "endings": [[second, "park", "a day", LONG[4:]] for second in SECOND],
    },
    "squad": {"question": SECOND, "context": FIRST},
}
PAIR = {"text_a": FIRST, "text_b": SECOND}


@pytest.fixture(scope="module")
def made_of(tmp_path_factory) -> Callable[[str], Exported]:
    """A function from a kind of task to its export."""

    def made(kind: str) -> Exported:
        flags = exported.SQUAD_2 if kind == "squad" else {}
        return exported.shared_export(tmp_path_factory, kind, export_text=True, **flags)

    return made


def strings(texts) -> np.ndarray:
    return np.vectorize(str.encode, otypes=[object])(np.array(texts, object))


@pytest.mark.needs_program("cc")
@pytest.mark.parametrize(
    "kind", ["squad", *in_test_long("mrpc", "ner", "pretraining", "sts-b", "swag", "tsv")]
)
def test_a_c_program_gets_the_same_answers(made_of, kind, tmp_path_factory):
    made = made_of(kind)
    inputs = {name: strings(texts) for name, texts in INPUTS.get(kind, PAIR).items()}
    one = {name: texts[3:4] for name, texts in inputs.items()}
    requests = [("serving_text", inputs), ("serving_text", one)]
    assert "serving_default" in signatures_of(made.path)
    found = c_runner.run(c_runner.build(tmp_path_factory), made.path, requests)
    for answer, (name, request) in zip(found, requests, strict=True):
        assert_same(answer, call(signatures_of(made.path)[name], request))


IN_A_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf

version, question, context = sys.argv[1:]
serve = tf.saved_model.load(version).signatures["serving_text"]
answer = serve(question=tf.constant([question]), context=tf.constant([context]))
print(json.dumps([answer["answer"].numpy()[0].decode(), answer["score"].numpy()[0].item()]))
print([name for name in sys.modules if name.startswith("official_bert")])
"""


def test_a_clean_process_answers(made_of, tmp_path):
    """Without this package, from another folder, and lower-casing also where `I` is not the
    capital of `i`.
    """
    made = made_of("squad")
    question, context = "the cat IN", LONG.upper()
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            IN_A_CLEAN_PROCESS,
            shutil.copytree(made.path, tmp_path / "moved"),
            question,
            context,
        ],
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "tr_TR.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    answered, modules, end = finished.stdout.split("\n")
    assert (modules, end) == ("[]", "")
    inputs = {"question": strings([question]), "context": strings([context])}
    expected = call(signatures_of(made.path)["serving_text"], inputs)
    assert json.loads(answered) == [
        expected["answer"][0].decode(),
        pytest.approx(expected["score"][0], abs=TOLERANCE),
    ]


def test_what_cannot_be_exported_is_said(tmp_path):
    with pytest.raises(InputError, match="--export_text: the task has no graph that reads text"):
        check_text_export(types.SimpleNamespace(text_inputs={}))
    make_checkpoint(tmp_path, "squad")
    options = export_options(tmp_path, "squad", export_text=True, max_query_length=21)
    with pytest.raises(InputError, match="--max_seq_length=24: leaves no room for a document"):
        serving_model.export(options)


TASKS = """
from official_bert.tasks.tagging.task import TaggingTask

class Broken(TaggingTask):
    def serving_outputs(self, model, features):
        return {"scores": model(features) * features["first"]}

class Silent(TaggingTask):
    def serving_outputs(self, model, features):
        raise NotImplementedError
"""


def test_a_task_that_cannot_be_exported_is_not_trained(tmp_path, monkeypatch, caplog):
    (tmp_path / "made_up_tagging.py").write_text(TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    make_checkpoint(tmp_path / "model", "ner")
    (tmp_path / "train.txt").write_text("the O\ncat B-X\nsat I-X\n\n" * 8)
    flags = {
        "data_dir": str(tmp_path),
        "model": str(tmp_path / "model"),
        "do_train": True,
        "train_batch_size": 8,
    }
    options = ClassificationOptions(
        task_name="made_up_tagging:Broken", output_dir=str(tmp_path / "out"), **flags
    )
    place = r"KeyError in .*made_up_tagging.py, line 6: 'first'\); correct it$"
    with pytest.raises(
        InputError, match=rf"its model could not be exported after the training \({place}"
    ):
        fine_tune(options)
    assert not list((tmp_path / "out").glob("model.ckpt*"))
    fine_tune(dataclasses.replace(options, task_name="made_up_tagging:Silent"))
    assert (
        "--task_name=made_up_tagging:Silent: its model cannot be exported (NotImplementedError)"
        in caplog.text
    )
    assert list((tmp_path / "out").glob("model.ckpt*"))


@pytest.mark.parametrize(
    ("task_name", "export_text", "is_warned"),
    [("mrpc", False, False), ("mrpc", True, True), ("sst-2", False, True)],
)
def test_versions_of_another_kind_are_warned_of(
    tmp_path, caplog, task_name, export_text, is_warned
):
    record = {"task_name": "mrpc", "settings": {"export_text": False}}
    (tmp_path / "3" / "assets.extra").mkdir(parents=True)
    (tmp_path / "3" / "assets.extra" / "export.json").write_text(json.dumps(record))
    options = ExportOptions(task_name=task_name, export_dir=str(tmp_path), export_text=export_text)
    export.warn_about_other_versions(task_name, options, export.make_writer(options))
    assert ("holds versions of another task or with other signatures" in caplog.text) is is_warned
