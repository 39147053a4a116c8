"""Folders of sentence-transformers' MultiVectorEncoder: written, read, and refused."""

import json
import pathlib
import shutil
import string

import numpy as np
import pytest

from official_bert import MultiVectorEncoder
from official_bert.io.errors import InputError
from tests.extensions.late_interaction.trained import TEXTS, write_model
from tests.scripts import end_of, flag_list, run_here
from tests.shown_progress import check_shown_progress

KINDS = [
    pytest.param({}, id="default"),
    pytest.param({"attend_to_expansion": True, "skip_punctuation": False}, id="attends"),
    pytest.param({"query_length": 0}, id="plain"),
    pytest.param({"query_marker": "[unused0]", "document_marker": "[unused1]"}, id="markers"),
]


def convert(model: str, folder: pathlib.Path, output_format: str = "huggingface") -> str:
    flags = {"model": model, "output_dir": folder, "output_format": output_format}
    run_here("convert_checkpoint", *flag_list(**flags))
    return str(folder)


def assert_same(encoder: MultiVectorEncoder, documents, queries):
    for token_vectors, expected in (
        (encoder.encode(TEXTS), documents),
        (encoder.encode_query(TEXTS), queries),
    ):
        assert np.diff(token_vectors.starts).tolist() == [len(one) for one in expected]
        np.testing.assert_allclose(token_vectors.values, np.concatenate(expected), atol=1e-5)


def vectors_of(encoder: MultiVectorEncoder):
    documents, queries = encoder.encode(TEXTS), encoder.encode_query(TEXTS)
    rows = range(len(TEXTS))
    return [documents.text(row) for row in rows], [queries.text(row) for row in rows]


def test_progress_is_shown_on_request(tmp_path, caplog):
    encoder = MultiVectorEncoder(write_model(tmp_path / "trained"))
    check_shown_progress(encoder, TEXTS, lambda a, b: np.array_equal(a.values, b.values), caplog)


@pytest.mark.parametrize("settings", KINDS)
def test_a_folder_goes_to_their_format_and_back(tmp_path, caplog, settings):
    trained = write_model(tmp_path / "trained", **settings)
    expected = vectors_of(MultiVectorEncoder(trained))
    theirs = convert(trained, tmp_path / "theirs")
    caplog.clear()
    assert_same(MultiVectorEncoder(theirs), *expected)
    assert "randomly initialised" not in caplog.text, "the projection is in a file of its own"
    assert_same(MultiVectorEncoder(convert(theirs, tmp_path / "back", "tf1")), *expected)
    ended = end_of("export_saved_model", *flag_list(model=theirs, export_dir=tmp_path / "export"))
    assert ended.status == 1
    assert "has its projection in a file of its own; convert the folder" in ended.sentence


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("2_MultiVectorMask/config.json", {"skiplist_words": ["a"]}, "leaves out"),
        ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "keep_only_token_ids"),
        (
            "1_Dense/config.json",
            {"activation_function": "torch.nn.modules.activation.Tanh"},
            "is no projection",
        ),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "min"}}, "strategy fixed"),
        ("sentence_bert_config.json", {"query_expansion": 5}, "sentence_bert_config.json"),
        ("sentence_bert_config.json", {"document_length": "long"}, "document_length is 'long'"),
        ("config_sentence_transformers.json", {"prompts": {"query": "query: "}}, "has prompts"),
        ("config_sentence_transformers.json", {"query_prefix": 5}, "its query_prefix is 5; write"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, name, values, message):
    folder = tmp_path / "theirs"
    convert(write_model(tmp_path / "trained"), folder)
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    with pytest.raises(InputError, match=message):
        MultiVectorEncoder(str(folder))
    output = tmp_path / "output"
    ended = end_of(
        "convert_checkpoint", *flag_list(model=folder, output_dir=output, output_format="tf1")
    )
    assert ended.status == 1
    assert message in ended.sentence
    assert not output.exists()


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize("settings", KINDS)
def test_sentence_transformers_reads_ours_and_we_read_theirs(tmp_path, settings):
    import sentence_transformers

    ours = convert(write_model(tmp_path / "trained", **settings), tmp_path / "ours")
    model = sentence_transformers.MultiVectorEncoder(ours, device="cpu")
    documents = [np.asarray(one) for one in model.encode_document(TEXTS)]
    queries = [np.asarray(one) for one in model.encode_query(TEXTS)]
    assert_same(MultiVectorEncoder(ours), documents, queries)
    model.save(str(tmp_path / "theirs"))
    assert_same(MultiVectorEncoder(str(tmp_path / "theirs")), documents, queries)


def make_pylate_folder(tmp_path: pathlib.Path, num_padding_rows: int = 0) -> tuple[str, str]:
    """Returns our folder of a model, and the one that PyLate 3 would write of it."""
    markers = {"query_marker": "[unused0]", "document_marker": "[unused1]"}
    trained = write_model(tmp_path / "trained", num_padding_rows, **markers)
    ours = convert(trained, tmp_path / "ours")
    folder = pathlib.Path(shutil.copytree(ours, tmp_path / "pylate"))
    modules = json.loads((folder / "modules.json").read_text())[:2]
    modules[0]["type"] = "sentence_transformers.models.Transformer"
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    for name in ("2_MultiVectorMask", "3_Normalize"):
        shutil.rmtree(folder / name)
    config = {
        "__version__": {"sentence_transformers": "4.0.2"},
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[unused0]",
        "document_prefix": "[unused1]",
        "query_length": 8,
        "document_length": 9,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        "do_query_expansion": True,
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    settings = {"max_seq_length": 9, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    dense = json.loads((folder / "1_Dense/config.json").read_text())
    names = ("in_features", "out_features", "bias", "activation_function")
    dense = {name: dense[name] for name in names} | {"use_residual": False}
    (folder / "1_Dense/config.json").write_text(json.dumps(dense))
    return ours, str(folder)


def test_a_folder_of_pylate_is_read(tmp_path):
    ours, folder = make_pylate_folder(tmp_path)
    expected = vectors_of(MultiVectorEncoder(ours))
    assert_same(MultiVectorEncoder(folder), *expected)
    assert_same(MultiVectorEncoder(convert(folder, tmp_path / "tf1", "tf1")), *expected)
    # Its defaults are those of PyLate.
    path = pathlib.Path(folder) / "config_sentence_transformers.json"
    config = json.loads(path.read_text())
    for name in ("skiplist_words", "do_query_expansion", "attend_to_expansion_tokens"):
        del config[name]
    path.write_text(json.dumps(config))
    assert_same(MultiVectorEncoder(folder), *expected)
    path.write_text(json.dumps(config | {"do_query_expansion": False}))
    counts = [len(vectors) for vectors in vectors_of(MultiVectorEncoder(folder))[1]]
    assert counts == [9, 9, 3, 7]


def test_a_marker_that_the_vocabulary_lacks_is_named(tmp_path):
    _, folder = make_pylate_folder(tmp_path)
    path = pathlib.Path(folder) / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"query_prefix": "[Q] "}))
    with pytest.raises(InputError, match=r"its marker '.Q.' is no word of the vocabulary, and"):
        MultiVectorEncoder(folder)


@pytest.mark.needs_extra("sentence_transformers")
def test_sentence_transformers_reads_a_folder_of_pylate_alike(tmp_path):
    import sentence_transformers

    _, folder = make_pylate_folder(tmp_path)
    model = sentence_transformers.MultiVectorEncoder(folder, device="cpu")
    documents = [np.asarray(one) for one in model.encode_document(TEXTS)]
    queries = [np.asarray(one) for one in model.encode_query(TEXTS)]
    assert_same(MultiVectorEncoder(folder), documents, queries)
