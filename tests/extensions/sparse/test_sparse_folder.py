"""Folders of sentence-transformers' SparseEncoder: written, read, and refused if they differ."""

import json
import pathlib

import pytest

from official_bert import Predictor, SparseEncoder
from official_bert.extensions.sparse.sparse_folder import SparseModules
from official_bert.io.errors import InputError
from tests.extensions.sparse.trained import TEXTS, write_model
from tests.scripts import end_of, flag_list, run_here

KINDS = [
    pytest.param("model", {}, id="model"),
    pytest.param("idf", {"max_terms": 5}, id="idf"),
    pytest.param("lookup", {"term_activation": "log1p_relu"}, id="lookup"),
]


def convert(model: str, folder: pathlib.Path, output_format: str = "huggingface") -> str:
    flags = {"model": model, "output_dir": folder, "output_format": output_format}
    run_here("convert_checkpoint", *flag_list(**flags))
    return str(folder)


def assert_same(ours: SparseEncoder, documents, queries):
    assert abs(ours.encode(TEXTS) - documents).max() < 2e-6
    assert abs(ours.encode_query(TEXTS) - queries).max() < 2e-6


@pytest.mark.parametrize(("query_encoder", "settings"), KINDS)
def test_a_folder_goes_to_their_format_and_back(tmp_path, query_encoder, settings):
    trained = write_model(tmp_path / "trained", query_encoder, **settings)
    encoder = SparseEncoder(trained)
    expected = encoder.encode(TEXTS), encoder.encode_query(TEXTS)
    theirs = convert(trained, tmp_path / "theirs")
    assert_same(SparseEncoder(theirs), *expected)
    modules = SparseModules.load(theirs)
    assert modules.max_terms == settings.get("max_terms")
    assert modules.term_activation == settings.get("term_activation", "relu")
    assert (modules.query_encoder, modules.max_seq_length) == (query_encoder, 12)
    back = convert(theirs, tmp_path / "back", "tf1")
    assert_same(SparseEncoder(back), *expected)
    settings_back = json.loads((tmp_path / "back/task.json").read_text())["settings"]
    assert settings_back["max_seq_length"] == 12


def test_their_folder_is_served_and_trained_further(tmp_path):
    encoders = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    theirs = convert(write_model(tmp_path / "trained"), tmp_path / "theirs")
    words = dict(SparseEncoder(theirs).decode(SparseEncoder(theirs).encode(TEXTS[0]))[0])
    assert Predictor(theirs).terms(TEXTS[0]) == pytest.approx(words, abs=2e-6)
    with pytest.raises(InputError, match="open it with SparseEncoder"):
        encoders.SentenceEncoder(theirs)


@pytest.mark.parametrize(
    ("query_encoder", "name", "values", "message"),
    [
        ("model", "1_SpladePooling/config.json", {"pooling_strategy": "sum"}, "pools by sum"),
        ("model", "1_SpladePooling/config.json", {"activation_function": "x"}, "with x"),
        (
            "model",
            "sentence_bert_config.json",
            {"transformer_task": "feature-extraction"},
            "transformer_task is 'feature-extraction'",
        ),
        ("model", "sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length -1"),
        ("model", "config_sentence_transformers.json", {"max_active_dims": 0}, "is 0; write"),
        (
            "model",
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}},
            "has prompts",
        ),
        ("idf", "router_config.json", {"structure": []}, "router_config.json"),
        ("idf", "router_config.json", {"structure": {"query": 1}}, "for the route query"),
        ("idf", "query_0_SparseStaticEmbedding/config.json", {"path": "idf.json"}, "idf.json"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, query_encoder, name, values, message):
    folder = tmp_path / "theirs"
    convert(write_model(tmp_path / "trained", query_encoder), folder)
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    with pytest.raises(InputError, match=message):
        SparseEncoder(str(folder))
    output = tmp_path / "output"
    flags = flag_list(model=folder, output_dir=output, output_format="tf1")
    ended = end_of("convert_checkpoint", *flags)
    assert ended.status == 1
    assert message in ended.sentence
    assert not output.exists()


def test_other_modules_are_refused(tmp_path):
    folder = tmp_path / "theirs"
    convert(write_model(tmp_path / "trained"), folder)
    path = folder / "modules.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:1]))
    with pytest.raises(InputError, match="lists the modules MLMTransformer; only"):
        SparseEncoder(str(folder))


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize(("query_encoder", "settings"), KINDS)
def test_sentence_transformers_reads_ours_and_we_read_theirs(tmp_path, query_encoder, settings):
    import sentence_transformers

    trained = write_model(tmp_path / "trained", query_encoder, **settings)
    ours = convert(trained, tmp_path / "ours")
    model = sentence_transformers.SparseEncoder(ours, device="cpu")
    documents = model.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
    queries = model.encode_query(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert documents.any()
    assert_same(SparseEncoder(ours), documents, queries)
    model.save(str(tmp_path / "theirs"))
    assert_same(SparseEncoder(str(tmp_path / "theirs"), max_seq_length=12), documents, queries)
