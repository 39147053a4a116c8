"""The files of sentence-transformers: their modules, settings and names."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy

from official_bert.checkpoints import sentence_transformers
from official_bert.checkpoints.sentence_transformers import Module
from official_bert.io.errors import InputError
from official_bert.version import __version__

CLASS_PATHS = {
    "": "sentence_transformers.models.Transformer",
    "1_Pooling": "sentence_transformers.models.Pooling",
    "2_Own": "my_package.Own",
}


def write_folder(path: pathlib.Path, **settings) -> str:
    contents = {
        "modules.json": sentence_transformers.make_entries(CLASS_PATHS),
        "config_sentence_transformers.json": sentence_transformers.make_config(**settings),
        "1_Pooling/config.json": {"pooling_mode": "mean"},
    }
    sentence_transformers.write_settings(str(path), contents)
    return str(path)


def test_modules_are_written_and_read(tmp_path):
    folder = write_folder(tmp_path)
    assert json.loads((tmp_path / "modules.json").read_text())[1] == {
        "idx": 1,
        "name": "1",
        "path": "1_Pooling",
        "type": "sentence_transformers.models.Pooling",
    }
    # A class of another package keeps its packages: it may compute something else.
    assert sentence_transformers.read_modules(folder) == [
        Module("Transformer", "", f"{folder}/"),
        Module("Pooling", "1_Pooling", f"{folder}/1_Pooling"),
        Module("my_package.Own", "2_Own", f"{folder}/2_Own"),
    ]
    pooling = f"{folder}/1_Pooling"
    assert sentence_transformers.read_settings(pooling) == {"pooling_mode": "mean"}
    assert sentence_transformers.read_settings(folder) == {}


@pytest.mark.parametrize("content", [None, [], {}, {"scripts": ["a.js"]}, ["a.js"], 5])
def test_a_modules_json_of_another_program_has_no_modules(tmp_path, content):
    if content is not None:
        (tmp_path / "modules.json").write_text(json.dumps(content))
    folder = str(tmp_path)
    assert not sentence_transformers.has_modules(folder)
    assert sentence_transformers.read_modules(folder) == []
    assert sentence_transformers.find_encoder(folder) == folder


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"idx": 0, "type": "a.Transformer"}]', '"path" is missing; give it a text'),
        ('[{"idx": 0, "type": 3, "path": ""}]', '"type" is not a text'),
        ('[{"idx": 0, "type": "a.B", "path": ""}, 7]', "is not an object"),
        ('{"idx": 0}', '"type" is missing'),
        ("[{", "modules.json"),
    ],
)
def test_a_damaged_modules_json_is_refused(tmp_path, content, message):
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(InputError, match=message):
        sentence_transformers.read_modules(str(tmp_path))


def test_the_encoder_may_be_in_a_subfolder(tmp_path):
    entries = sentence_transformers.make_entries({"0_Transformer": "a.Transformer"})
    sentence_transformers.write_settings(str(tmp_path), {"modules.json": entries})
    assert sentence_transformers.find_encoder(str(tmp_path)) == f"{tmp_path}/0_Transformer"


def test_the_class_of_a_model(tmp_path):
    sparse = write_folder(tmp_path / "sparse", model_type="SparseEncoder", prompts={})
    plain = write_folder(tmp_path / "plain")
    config = json.loads((tmp_path / "sparse/config_sentence_transformers.json").read_text())
    assert config == {
        "__version__": {"official_bert": __version__},
        "model_type": "SparseEncoder",
        "prompts": {},
    }
    assert sentence_transformers.read_model_type(plain) == "SentenceTransformer"
    assert sentence_transformers.is_model(sparse, "SparseEncoder")
    assert not sentence_transformers.is_model(sparse, "MultiVectorEncoder")
    assert not sentence_transformers.is_model(plain, "SparseEncoder")
    (tmp_path / "sparse/modules.json").unlink()
    assert not sentence_transformers.is_model(sparse, "SparseEncoder")


def test_settings_that_are_no_object_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InputError, match=r"config\.json: is not an object"):
        sentence_transformers.read_settings(str(tmp_path))


def test_the_length_is_that_of_the_encoder_or_of_its_tokenizer(tmp_path):
    folder = str(tmp_path)
    assert sentence_transformers.find_length(folder) is None
    tokenizer = {"do_lower_case": True, "model_max_length": 64}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert sentence_transformers.find_length(folder) == 64
    settings = {"max_seq_length": None, "document_length": 48}
    sentence_transformers.write_settings(folder, {"sentence_bert_config.json": settings})
    assert sentence_transformers.find_length(folder) == 64
    assert sentence_transformers.find_length(folder, "document_length") == 48


@pytest.mark.parametrize("value", [0, -1, 1.5, "12", True, [3]])
def test_a_count_is_a_positive_whole_number(value):
    with pytest.raises(InputError, match=r"folder: its length is .*; write a positive whole"):
        sentence_transformers.check_count(value, "its length", "folder")


def test_counts(tmp_path):
    for value in (None, 1, 512):
        sentence_transformers.check_count(value, "its length", "folder")


@pytest.mark.parametrize("prompts", [None, {}, {"query": ""}])
def test_models_without_prompts(tmp_path, prompts):
    sentence_transformers.refuse_prompts(write_folder(tmp_path, prompts=prompts), "our models")


def test_prompts_are_refused(tmp_path):
    folder = write_folder(tmp_path, prompts={"query": "query: ", "document": ""})
    with pytest.raises(InputError, match="prompts, which our models here cannot put before texts"):
        sentence_transformers.refuse_prompts(folder, "our models")


def test_the_names_of_the_files(tmp_path):
    folder = write_folder(tmp_path)
    (tmp_path / "router_config.json").write_text("{}")
    names = ("router_config.json", "query_0_Lookup")
    assert sentence_transformers.list_files(folder, names) == [
        "modules.json",
        "config_sentence_transformers.json",
        "1_Pooling",
        "router_config.json",
    ]


def test_weights_are_written_in_the_order_of_their_indices(tmp_path):
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    sentence_transformers.write_weights(str(tmp_path / "1_Dense"), {"weight": kernel.T})
    tensors = safetensors.numpy.load_file(tmp_path / "1_Dense/model.safetensors")
    np.testing.assert_array_equal(tensors["weight"], [[0, 3], [1, 4], [2, 5]])


def test_the_names_of_the_files_need_no_class(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    path = tmp_path / "modules.json"
    path.write_text('[{"path": "1_Pooling"}]')
    folder = str(tmp_path)
    assert sentence_transformers.list_files(folder) == ["modules.json", "1_Pooling"]
    path.write_text('[{"path": 5}]')
    with pytest.raises(InputError, match='"path" is not a text'):
        sentence_transformers.list_files(folder)
