"""Flags that do not go together, missing packages, and folders that are no complete export end in
one sentence.
"""

import importlib.util
import json
import shutil
import sys

import numpy as np
import pytest

from official_bert import BertConfig, Predictor, catalog
from official_bert.extensions.runtimes import opening
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.extensions.runtimes.options import EXPORT_FORMATS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from official_bert.serving.conversion import check_model
from official_bert.serving.exported_model import RECORD_FILE, OpenedExport
from official_bert.serving.model import open_model
from tests.extensions.runtimes.converted import formats
from tests.serving import exported


def export_options(folder, **flags):
    """The options of an export into a folder, of no checkpoint."""
    return catalog.options_class("export_saved_model")(export_dir=str(folder / "exports"), **flags)


def changed(name: str, change):
    """A change of a file of a version, by a function from bytes to bytes."""

    def apply(version):
        path = version / name
        data = path.read_bytes()
        path.write_bytes(change(data))

    return apply


def removed(name: str):
    """The removal of a file of a version."""

    def apply(version):
        (version / name).unlink()

    return apply


def record_with(**values):
    """A change of values of the record, and of those of its settings that have the same names."""

    def change(data):
        record = json.loads(data)
        record |= values
        settings = record["settings"]
        settings |= {name: value for name, value in values.items() if name in settings}
        return json.dumps(record).encode()

    return changed(RECORD_FILE, change)


@formats
@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            changed("MODEL.onnx", lambda data: data[:-100]),
            "MODEL.onnx: is not the file that was exported; copy the",
            id="truncated model",
        ),
        pytest.param(
            changed("MODEL.onnx", lambda data: b""),
            "MODEL.onnx: is not the file that was exported",
            id="empty model",
        ),
        pytest.param(
            record_with(converted=None),
            'export.json: converted: "sha256" is missing',
            id="no record of the conversion",
        ),
        pytest.param(
            record_with(converted={"sha256": {}}),
            "export.json: does not name MODEL.onnx; put the export's own file back",
            id="no hash of the model",
        ),
        pytest.param(
            record_with(converted={"sha256": {"MODEL.onnx": 7, "../x": "y"}}),
            "MODEL.onnx: is not the file that was exported",
            id="wrong hash of the model",
        ),
        pytest.param(
            record_with(max_seq_length=513),
            "export.json: max_seq_length is beyond the model's 512 positions",
            id="length beyond the positions",
        ),
        pytest.param(
            record_with(export_text=True),
            "export_text is True, but the model's signatures are serving_default",
            id="other signatures",
        ),
        pytest.param(
            changed("assets/vocab.txt", lambda data: data + b"more\n"),
            "vocab.txt: has .* lines, but the model was made",
            id="longer vocabulary",
        ),
        pytest.param(
            changed("assets.extra/labels.txt", lambda data: b"a\nb\n"),
            "export.json was written with other labels",
            id="other labels",
        ),
        pytest.param(
            removed("assets.extra/labels.txt"),
            "but the model answers labels; put it back",
            id="no labels",
        ),
        pytest.param(
            removed("assets.extra/bert_config.json"),
            "bert_config.json: no such file",
            id="no configuration",
        ),
        pytest.param(
            removed("assets/vocab.txt"),
            "vocab.txt: no such file",
            id="no vocabulary",
        ),
        pytest.param(
            removed(RECORD_FILE),
            "export.json: is missing",
            id="no record",
        ),
    ],
)
def test_a_changed_export_is_refused(
    export_format, change, message, tmp_path, tmp_path_factory, monkeypatch
):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version = tmp_path / "1"
    file = RUNTIMES[export_format].FILE
    shutil.copytree(made.path, version)
    # So that the table above has one name, with the ending of ONNX.
    (version / file).rename(version / "MODEL.onnx")
    monkeypatch.setattr(RUNTIMES[export_format], "FILE", "MODEL.onnx")
    monkeypatch.setitem(opening.FILES, export_format, "MODEL.onnx")
    monkeypatch.setattr(
        opening, "_is_tried", lambda one, dtype: one.name == EXPORT_FORMATS[export_format]
    )
    record = version / RECORD_FILE
    record.write_text(record.read_text().replace(file, "MODEL.onnx"))
    OpenedExport(str(tmp_path))
    change(version)
    with pytest.raises(InputError, match=message):
        Predictor(tmp_path)


@formats
def test_a_corrupt_model_with_its_digest_is_refused(export_format, tmp_path, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version = tmp_path / "1"
    shutil.copytree(made.path, version)
    name = RUNTIMES[export_format].FILE
    file = version / name
    file.write_bytes(b"no model")
    digest = files.sha256(str(file))
    write_record = record_with(converted={"sha256": {name: digest}})
    write_record(version)
    with pytest.raises(InputError, match="1: is no complete"):
        OpenedExport(str(version))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            {"export_format": ["litert"], "export_text": True},
            "--export_text: --export_format=litert has signatures of",
            id="texts in LiteRT",
        ),
        pytest.param(
            {"export_format": ["onnx", "saved_model"], "export_text": True},
            "--export_text: --export_format=onnx,saved_model has several formats",
            id="texts in two formats",
        ),
        pytest.param(
            {
                "export_format": ["onnx"],
                "export_text": True,
                "dtype": "int8",
                "max_loss": 0.1,
                "dev_file": __file__,
            },
            "--max_loss: is measured on exports that read tensors",
            id="the loss of an export of texts",
        ),
        pytest.param(
            {"export_format": ["litert"], "estimator_signatures": "tensors"},
            "--estimator_signatures: --export_format=",
            id="signatures of an Estimator in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert"], "dtype": "bfloat16"},
            "--dtype=bfloat16: is for SavedModels; give float32",
            id="bfloat16 in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert", "onnx"], "dtype": "float16"},
            "--dtype=float16: litert files cannot have it; give --export_format=onnx or another",
            id="float16 in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert", "saved_model"], "dtype": "int8"},
            "--dtype=int8: saved_model files cannot have it",
            id="8 bits in a SavedModel and LiteRT",
        ),
        pytest.param(
            {"dtype": "int8"},
            "--dtype=int8: saved_model files cannot have it; give --export_format=onnx or ",
            id="8 bits in a SavedModel",
        ),
    ],
)
def test_flags_that_do_not_go_together(flags, message, tmp_path):
    with pytest.raises(InputError, match=message):
        serving_model.export(export_options(tmp_path, **flags))
    assert not (tmp_path / "exports").exists()


def test_onnx_has_no_activation_of_a_caller():
    config = BertConfig(100, hidden_size=8, num_attention_heads=1, hidden_act=np.abs)
    message = "--export_format=onnx: the activation .* has no ONNX form; give a model with one of"
    with pytest.raises(InputError, match=message):
        check_model("onnx", config)
    check_model("litert", config)


@pytest.mark.parametrize(
    ("package", "export_format"),
    [
        pytest.param("ai_edge_litert", "litert", id="ai_edge_litert"),
        pytest.param("onnx", "onnx", id="onnx"),
        pytest.param("onnxruntime", "onnx", id="onnxruntime"),
    ],
)
def test_a_missing_package_is_named_with_its_list(package, export_format, tmp_path, monkeypatch):
    def find_spec(name):
        return None if name == package else "there"

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    options = export_options(tmp_path, export_format=[export_format])
    message = rf"{package}: is not installed; pip install 'official-bert\[runtimes\]'"
    with pytest.raises(InputError, match=message):
        serving_model.export(options)
    assert not (tmp_path / "exports").exists()


@formats
def test_a_runtime_that_is_not_installed(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    for name in ("ai_edge_litert.interpreter", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    message = r"cannot be imported .*; pip install 'official-bert\[runtimes\]'"
    with pytest.raises(InputError, match=message):
        Predictor(made.path)


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        pytest.param(
            "litert",
            "no model for it; it has those of tensorflow",
            id="absent model",
        ),
        pytest.param("x", "must be one of auto", id="unknown runtime"),
    ],
)
def test_a_runtime_that_an_export_does_not_have(runtime, message, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc")
    with pytest.raises(InputError, match=f"runtime='?{runtime}'?: .*{message}"):
        Predictor(made.path, runtime=runtime)
    trained_dir = made.path.parent.parent
    with pytest.raises(InputError, match=r"runtime=onnxruntime: .* is no export, which"):
        open_model(str(trained_dir), 1, settings={"runtime": "onnxruntime"})
