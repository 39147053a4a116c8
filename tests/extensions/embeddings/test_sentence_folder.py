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
from official_bert.commands import convert_checkpoint, grow_vocab
from official_bert.config import BertConfig
from official_bert.extensions.embeddings.options import EMBEDDING, EmbeddingOptions
from official_bert.extensions.embeddings.sentence_folder import Dense, SentenceModules, write
from official_bert.model_dir import ModelFolder
from official_bert.model_source import resolve
from official_bert.options.serving import ConversionOptions, GrowthOptions
from official_bert.serving.model import build
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.extensions.embeddings.served import serving_options

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
}
EACH_POOLING = pytest.mark.parametrize(
    ("pooling", "normalize", "projection"),
    [("mean", True, 5), ("cls", False, None), ("max", True, None), ("mean_sqrt_len", False, 5)],
)


def trained(base, folder, **settings) -> str:
    """The output_dir of a training on the toy model."""
    checkpoint, draws = open_checkpoint(str(base)), np.random.default_rng(4)
    tensors = {
        name: checkpoint.read(name) for name in checkpoint.shapes if name.startswith("bert/")
    }
    if width := settings.get("projection"):
        sizes = {"projection/kernel": (16, width), "projection/bias": width}
        tensors |= {
            name: draws.normal(size=size).astype(np.float32) for name, size in sizes.items()
        }
    tf1.write(str(folder / "model.ckpt-7"), tensors)
    checkpoint_folder.write_state(str(folder), ["model.ckpt-7"])
    record = model_dir.TaskRecord("embedding", "embedding", settings)
    config = BertConfig.from_json_file(str(base / "bert_config.json"))
    model_dir.write(
        str(folder), config, str(base / "vocab.txt"), TokenizerConfig(True, None, 512), record
    )
    return str(folder)


def converted(folder: str, out, output_format: str = "huggingface") -> str:
    convert_checkpoint.run(
        ConversionOptions(model=folder, output_dir=str(out), output_format=output_format)
    )
    return str(out)


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
    folder = trained(base, tmp_path / "trained", **settings)
    model, tokenizer = BertModel.from_pretrained(folder), FullTokenizer.from_pretrained(folder)
    vectors = [
        model(**tokenizer(text, max_seq_length=9)).sequence_output.numpy()[0] for text in TEXTS
    ]
    wanted = np.stack([POOLS[pooling](of_text) for of_text in vectors])
    if projection:
        wanted = wanted @ open_checkpoint(folder).read("projection/kernel")
        wanted += open_checkpoint(folder).read("projection/bias")
    if normalize:
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    caplog.clear()
    there = converted(folder, tmp_path / "there")
    assert "Left out" not in caplog.text
    again = converted(there, tmp_path / "again")
    os.remove(f"{again}/vocab.txt")  # which the newest sentence-transformers does not write
    back = converted(there, tmp_path / "back", "tf1")
    caplog.clear()
    for path in (folder, there, again, back):
        encoder = SentenceEncoder(path)
        assert "does not use" not in caplog.text
        assert encoder.max_seq_length == 9
        np.testing.assert_allclose(encoder.encode(TEXTS), wanted, atol=3e-6)
    if not projection:
        for path in (folder, there, again):
            built = build(serving_options(model=path))
            assert (built.task.pooling, built.task.normalize) == (pooling, normalize)
            assert built.options.max_seq_length == 9


def test_the_files(base, tmp_path):
    there = converted(
        trained(base, tmp_path / "trained", pooling="mean_sqrt_len", projection=5),
        tmp_path / "there",
    )
    file_names = (
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "config.json",
        "tokenizer.json",
    )
    contents = {name: json.loads((tmp_path / "there" / name).read_text()) for name in file_names}
    assert [(one["path"], one["type"]) for one in contents["modules.json"]] == [
        (
            "" if kind == "Transformer" else f"{number}_{kind}",
            f"sentence_transformers.models.{kind}",
        )
        for number, kind in enumerate(["Transformer", "Pooling", "Dense", "Normalize"])
    ]
    assert contents["1_Pooling/config.json"] == {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": True,
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
    assert not any(
        "linear" in name or "proj" in name
        for name in safetensors.numpy.load_file(f"{there}/model.safetensors")
    )
    kernel = open_checkpoint(str(tmp_path / "trained")).read("projection/kernel")
    weights = safetensors.numpy.load_file(f"{there}/2_Dense/model.safetensors")
    np.testing.assert_array_equal(weights["linear.weight"], kernel.T)
    assert os.path.isdir(f"{there}/3_Normalize")


def test_the_modules_of_a_folder_become_a_record_in_the_originals_format(tmp_path):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    write(str(folder), SentenceModules(str(folder), (), "max", 9), 16)
    out = converted(str(folder), tmp_path / "out", "tf1")
    record = ModelFolder(out).task()
    assert (record.family, record.settings) == (
        EMBEDDING,
        {"pooling": "max", "normalize": False, "max_seq_length": 9},
    )
    assert SentenceModules.load(out)[1:4] == ((), "max", 9)
    for settings, rule in (
        ({"truncate_dim": 4}, "truncate_dim=4"),
        ({"similarity_fn_name": "dot"}, "similarity_fn_name=dot"),
    ):
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
        with pytest.raises(
            InputError,
            match=f"has {rule}, for which only folders of Hugging Face have a file; give",
        ):
            converted(str(folder), tmp_path / "out2", "tf1")


def test_prompts_that_the_originals_format_cannot_hold_are_named(tmp_path, caplog):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    prompts = {"query": "query: ", "document": ""}
    write(str(folder), SentenceModules(str(folder), (), "max", 9, prompts=prompts), 16)
    converted(str(folder), tmp_path / "out", "tf1")
    assert "the prompts query ('query: '); put them before the texts" in caplog.text


def nested(tmp_path) -> str:
    """An older folder of sentence-transformers, whose encoder is in a subfolder."""
    folder, encoder = tmp_path / "old", tmp_path / "old" / "0_Transformer"
    folder.mkdir()
    os.rename(
        converted(str(toy.make_bert_base_dir(tmp_path / "base")), tmp_path / "encoder"), encoder
    )
    (encoder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 9, "do_lower_case": false}'
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    modules = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    listed = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return str(folder)


@pytest.mark.parametrize("output_format", ["huggingface", "tf1"])
def test_an_encoder_in_a_subfolder_is_converted_with_its_modules(tmp_path, output_format):
    folder = nested(tmp_path)
    out = converted(folder, tmp_path / "out", output_format)
    vectors = [SentenceEncoder(path, normalize=True).encode(TEXTS) for path in (folder, out)]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    assert SentenceModules.load(out)[1:4] == ((), "max", 9)
    (tmp_path / "words.txt").write_text("unheard\n")
    grown = str(tmp_path / "grown")
    grow_vocab.run(GrowthOptions(model=folder, words=str(tmp_path / "words.txt"), output_dir=grown))
    np.testing.assert_allclose(
        SentenceEncoder(grown, normalize=True).encode(TEXTS), vectors[0], atol=1e-6
    )


def test_others_name_the_encoder_in_a_subfolder(tmp_path):
    folder = nested(tmp_path)
    way = (
        f"{folder}/0_Transformer; .*official-bert convert_checkpoint --model={folder} "
        "--output_format=huggingface"
    )
    for attempt in (
        lambda: build(serving_options(model=folder)),
        lambda: resolve(EmbeddingOptions(model=folder, output_dir="o")),
    ):
        with pytest.raises(InputError, match=way):
            attempt()


def test_what_is_written_is_read(tmp_path):
    kernel, bias = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.float32)
    further = ("cls", 33, True, 2, {"q": "query: "}, "q", "dot")
    made = SentenceModules(str(tmp_path), (Dense(kernel, bias, "tanh"), "Normalize"), *further)
    write(str(tmp_path), made, 4)
    (dense, last), *others = SentenceModules.read(str(tmp_path))[1:]
    assert (last, *others) == ("Normalize", *further)
    np.testing.assert_array_equal(dense.kernel, kernel)
    np.testing.assert_array_equal(dense.bias, bias)
    assert dense.activation == "tanh"
    config = tmp_path / "2_Dense" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_residual": True}))
    with pytest.raises(InputError, match="2_Dense: adds its input to its output"):
        SentenceModules.read(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "median"}, "pooling='median': must be one of mean, cls, max, mean_sqrt_len"),
        ({"max_seq_length": "9"}, "its max_seq_length is '9'; write a positive whole number"),
    ],
)
def test_a_wrong_record_is_named(base, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        SentenceEncoder(trained(base, tmp_path / "trained", **settings))


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
    ours = converted(trained(base, tmp_path / "trained", **settings), tmp_path / "ours")
    wanted = SentenceEncoder(ours).encode(TEXTS)
    model = sentence_transformers.SentenceTransformer(ours, device="cpu")
    assert model.max_seq_length == 9
    np.testing.assert_allclose(model.encode(TEXTS), wanted, rtol=1e-6, atol=1e-6)
    fast = transformers.AutoTokenizer.from_pretrained(ours, use_fast=True)
    assert fast(TEXTS)["input_ids"] == [
        FullTokenizer.from_pretrained(ours)(text)["input_ids"][0].tolist() for text in TEXTS
    ]
    model.save(str(tmp_path / "theirs"))
    np.testing.assert_allclose(
        SentenceEncoder(str(tmp_path / "theirs")).encode(TEXTS), wanted, rtol=1e-6, atol=1e-6
    )
