"""The folder of a trained sentence encoder is read by its record, and written as
sentence-transformers reads it.
"""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

from official_bert import BertModel, FullTokenizer, InputError, SentenceEncoder, model_dir
from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import open_checkpoint, tf1
from official_bert.checkpoints.dense_module import Dense
from official_bert.commands import convert_checkpoint, grow_vocab
from official_bert.config import BertConfig
from official_bert.data.prompts import Prompts
from official_bert.extensions.embeddings.options import EMBEDDING, EmbeddingOptions
from official_bert.extensions.embeddings.sentence_folder import SentenceModules, write
from official_bert.model_dir import ModelFolder
from official_bert.model_source import resolve
from official_bert.options.serving import ConversionOptions, GrowthOptions
from official_bert.serving.model import build
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.extensions.embeddings.served import serving_options
from tests.hostile.rows import edit_json

TEXTS = [
    "The cat sat on the mat. It was a sunny day in the park.",
    "",
    "A train left.",
    "Nobody was on board.",
    "Rain",
]
POOLS = {
    "mean": lambda vectors: vectors.mean(0),
    "cls": lambda vectors: vectors[0],
    "max": lambda vectors: vectors.max(0),
    "mean_sqrt_len": lambda vectors: vectors.sum(0) / len(vectors) ** 0.5,
    "weighted_mean": lambda vectors: np.average(vectors, 0, range(1, 1 + len(vectors))),
    "last": lambda vectors: vectors[-1],
}
EACH_POOLING = pytest.mark.parametrize(
    ("pooling", "normalize", "projection"),
    [
        pytest.param("mean", True, 5, id="mean, projected and normalized"),
        pytest.param("cls", False, None, id="first token"),
        pytest.param("max", True, None, id="maximum, normalized"),
        pytest.param("mean_sqrt_len", False, 5, id="mean by root of the length, projected"),
        pytest.param("weighted_mean", True, None, id="weighted mean, normalized"),
        pytest.param("last", True, None, id="last token, normalized"),
    ],
)


def write_trained(base, folder, **settings) -> str:
    """Write the output_dir of a training on the toy model, and return it."""
    checkpoint = open_checkpoint(str(base))
    names = [name for name in checkpoint.shapes if name.startswith("bert/")]
    tensors = {name: checkpoint.read(name) for name in names}
    width = settings.get("projection")
    if width:
        generator = np.random.default_rng(4)
        kernel = generator.normal(size=(16, width))
        bias = generator.normal(size=width)
        tensors["projection/kernel"] = np.float32(kernel)
        tensors["projection/bias"] = np.float32(bias)
    tf1.write(str(folder / "model.ckpt-7"), tensors)
    checkpoint_folder.write_state(str(folder), ["model.ckpt-7"])
    config = BertConfig.from_json_file(str(base / "bert_config.json"))
    model_dir.write(
        str(folder),
        config,
        str(base / "vocab.txt"),
        TokenizerConfig(True, None, 512),
        model_dir.TaskRecord("embedding", "embedding", settings),
    )
    return str(folder)


def convert(folder: str, output_dir, output_format: str = "huggingface") -> str:
    """Convert a folder of a model, and return the new folder."""
    options = ConversionOptions(
        model=folder,
        output_dir=str(output_dir),
        output_format=output_format,
    )
    convert_checkpoint.run(options)
    return str(output_dir)


def compute_vectors(folder: str, pooling: str, normalize: bool, projection: int | None):
    """Compute the vectors of all texts, one at a time, with at most 9 tokens."""
    model = BertModel.from_pretrained(folder)
    tokenizer = FullTokenizer.from_pretrained(folder)
    pool = POOLS[pooling]
    pooled = []
    for text in TEXTS:
        outputs = model(**tokenizer(text, max_seq_length=9))
        (piece_vectors,) = outputs.sequence_output.numpy()
        pooled.append(pool(piece_vectors))
    vectors = np.stack(pooled)
    if projection:
        checkpoint = open_checkpoint(folder)
        vectors = vectors @ checkpoint.read("projection/kernel")
        vectors += checkpoint.read("projection/bias")
    if normalize:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


@EACH_POOLING
def test_the_vectors_are_those_of_the_record(
    base, tmp_path, caplog, pooling, normalize, projection
):
    settings = {
        "pooling": pooling,
        "normalize": normalize,
        "projection": projection,
        "max_seq_length": 9,
    }
    folder = write_trained(base, tmp_path / "trained", **settings)
    expected = compute_vectors(folder, pooling, normalize, projection)

    caplog.clear()
    there = convert(folder, tmp_path / "there")
    assert "Left out" not in caplog.text
    again = convert(there, tmp_path / "again")
    os.remove(f"{again}/vocab.txt")  # which the newest sentence-transformers does not write
    back = convert(there, tmp_path / "back", "tf1")

    caplog.clear()
    for path in (folder, there, again, back):
        encoder = SentenceEncoder(path)
        assert "does not use" not in caplog.text
        assert encoder.max_seq_length == 9
        vectors = encoder.encode(TEXTS)
        np.testing.assert_allclose(vectors, expected, atol=3e-6)

    if not projection:
        for path in (folder, there, again):
            built = build(serving_options(model=path))
            assert built.task.pooling == pooling
            assert built.task.normalize == normalize
            assert built.options.max_seq_length == 9


def test_the_files(base, tmp_path):
    trained = write_trained(
        base,
        tmp_path / "trained",
        pooling="mean_sqrt_len",
        projection=5,
    )
    folder = tmp_path / "converted"
    convert(trained, folder)

    file_names = (
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "config.json",
        "tokenizer.json",
    )
    contents = {}
    for name in file_names:
        text = (folder / name).read_text()
        contents[name] = json.loads(text)
    paths_and_types = [(module["path"], module["type"]) for module in contents["modules.json"]]
    assert paths_and_types == [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        ("2_Dense", "sentence_transformers.models.Dense"),
        ("3_Normalize", "sentence_transformers.models.Normalize"),
    ]
    assert contents["1_Pooling/config.json"] == {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": True,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": False,
    }
    assert contents["2_Dense/config.json"] == {
        "in_features": 16,
        "out_features": 5,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    assert contents["sentence_bert_config.json"] == {"max_seq_length": None, "do_lower_case": False}
    assert contents["config_sentence_transformers.json"]["similarity_fn_name"] == "cosine"
    assert contents["config.json"]["architectures"] == ["BertModel"]
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    for name in tensors:
        assert "linear" not in name
        assert "proj" not in name
    kernel = open_checkpoint(trained).read("projection/kernel")
    dense = safetensors.numpy.load_file(folder / "2_Dense" / "model.safetensors")
    np.testing.assert_array_equal(dense["linear.weight"], kernel.T)
    assert (folder / "3_Normalize").is_dir()


def write_modules(folder, **others):
    """Write files of sentence-transformers for the maximum of at most 9 tokens into a folder."""
    modules = SentenceModules(str(folder), (), "max", 9, **others)
    write(str(folder), modules, 16)


def assert_has_modules(folder: str):
    """Assert that a folder has the modules of `write_modules`."""
    modules = SentenceModules.load(folder)
    assert modules.layers == ()
    assert modules.pooling == "max"
    assert modules.max_seq_length == 9


def test_the_modules_of_a_folder_become_a_record_in_the_originals_format(tmp_path):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    write_modules(folder)

    output_dir = convert(str(folder), tmp_path / "out", "tf1")

    record = ModelFolder(output_dir).task()
    assert record.family == EMBEDDING
    assert record.settings == {
        "pooling": "max",
        "normalize": False,
        "max_seq_length": 9,
    }
    assert_has_modules(output_dir)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        pytest.param({"truncate_dim": 4}, "truncate_dim=4", id="truncated vectors"),
        pytest.param({"similarity_fn_name": "dot"}, "similarity_fn_name=dot", id="similarity"),
    ],
)
def test_modules_that_the_originals_format_cannot_hold_are_refused(tmp_path, settings, rule):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    write_modules(folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    message = f"has {rule}, for which only folders of Hugging Face have a file; give"
    with pytest.raises(InputError, match=message):
        convert(str(folder), tmp_path / "out", "tf1")


def test_the_record_in_the_originals_format_has_the_prompts(tmp_path):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    prompts = Prompts({"query": "query: ", "document": ""}, "query", is_pooled=False)
    write_modules(folder, prompts=prompts)
    output_dir = convert(str(folder), tmp_path / "out", "tf1")
    assert SentenceModules.load(output_dir).prompts == prompts
    back = convert(output_dir, tmp_path / "back")
    assert SentenceModules.read(back).prompts == prompts


def write_nested(tmp_path) -> str:
    """Write an older folder of sentence-transformers, whose encoder is in a subfolder."""
    base = toy.make_bert_base_dir(tmp_path / "base")
    folder = tmp_path / "old"
    encoder = folder / "0_Transformer"
    pooling = folder / "1_Pooling"
    folder.mkdir()
    convert(str(base), encoder)
    (encoder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 9, "do_lower_case": false}'
    )
    pooling.mkdir()
    (pooling / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    modules = [
        {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return str(folder)


def encode_normalized(folder: str) -> np.ndarray:
    encoder = SentenceEncoder(folder, normalize=True)
    return encoder.encode(TEXTS)


@pytest.mark.parametrize("output_format", ["huggingface", "tf1"])
def test_an_encoder_in_a_subfolder_is_converted_with_its_modules(tmp_path, output_format):
    folder = write_nested(tmp_path)
    expected = encode_normalized(folder)

    output_dir = convert(folder, tmp_path / "out", output_format)
    vectors = encode_normalized(output_dir)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert_has_modules(output_dir)

    words = tmp_path / "words.txt"
    words.write_text("unheard\n")
    grown = str(tmp_path / "grown")
    options = GrowthOptions(model=folder, words=str(words), output_dir=grown)
    grow_vocab.run(options)
    vectors = encode_normalized(grown)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_others_name_the_encoder_in_a_subfolder(tmp_path):
    folder = write_nested(tmp_path)
    message = (
        f"{folder}/0_Transformer; .*official-bert convert_checkpoint --model={folder} "
        "--output_format=huggingface"
    )
    with pytest.raises(InputError, match=message):
        build(serving_options(model=folder))
    with pytest.raises(InputError, match=message):
        resolve(EmbeddingOptions(model=folder, output_dir="o"))


def test_what_is_written_is_read(tmp_path):
    folder = str(tmp_path)
    kernel = np.float32(
        [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9, 10, 11],
        ]
    )
    bias = np.float32([0, 1, 2])
    layers = (Dense(kernel, bias, "tanh"), "Normalize")
    prompts = Prompts({"q": "query: "}, "q", is_pooled=False)
    others = ("cls", 33, True, 2, prompts, "dot")
    write(folder, SentenceModules(folder, layers, *others), 4)

    _, layers_read, *others_read = SentenceModules.read(folder)

    dense, last = layers_read
    assert last == "Normalize"
    assert tuple(others_read) == others
    np.testing.assert_array_equal(dense.kernel, kernel)
    np.testing.assert_array_equal(dense.bias, bias)
    assert dense.activation == "tanh"

    edit_json(tmp_path / "2_Dense" / "config.json", use_residual=True)
    with pytest.raises(InputError, match="2_Dense: adds its input to its output"):
        SentenceModules.read(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"pooling": "median"},
            "pooling='median': must be one of mean, cls, max, mean_sqrt_len",
            id="unknown pooling",
        ),
        pytest.param(
            {"max_seq_length": "9"},
            "its max_seq_length is '9'; write a positive whole number",
            id="length as a text",
        ),
    ],
)
def test_a_wrong_record_is_named(base, tmp_path, settings, message):
    folder = write_trained(base, tmp_path / "trained", **settings)
    with pytest.raises(InputError, match=message):
        SentenceEncoder(folder)


@pytest.mark.needs_extra("sentence_transformers")
@EACH_POOLING
def test_sentence_transformers_reads_ours_and_we_read_theirs(
    base, tmp_path, pooling, normalize, projection
):
    import sentence_transformers
    import transformers

    settings = {
        "pooling": pooling,
        "normalize": normalize,
        "projection": projection,
        "max_seq_length": 9,
    }
    trained = write_trained(base, tmp_path / "trained", **settings)
    ours = convert(trained, tmp_path / "ours")
    expected = SentenceEncoder(ours).encode(TEXTS)
    model = sentence_transformers.SentenceTransformer(ours, device="cpu")
    assert model.max_seq_length == 9
    vectors = model.encode(TEXTS)
    # A component is a sum of terms as large as the largest one, and differs by their rounding.
    tolerance = 1e-6 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(vectors, expected, rtol=1e-6, atol=tolerance)

    tokenizer = FullTokenizer.from_pretrained(ours)
    ids = [tokenizer(text)["input_ids"][0].tolist() for text in TEXTS]
    fast_tokenizer = transformers.AutoTokenizer.from_pretrained(ours, use_fast=True)
    assert fast_tokenizer(TEXTS)["input_ids"] == ids

    theirs = str(tmp_path / "theirs")
    model.save(theirs)
    vectors = SentenceEncoder(theirs).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=1e-6, atol=1e-6)
