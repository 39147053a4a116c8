"""The ONNX files of all families have the outputs of their Keras models, in 32, 16 and 8 bits."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling import BertClassifier, BertModel, BertTagger
from official_bert.tasks import registry
from tests import toy
from tests.serving import exported
from tests.serving.answers import TOLERANCE, assert_near

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from official_bert.extensions.onnx_files import onnx_writer
from tests.extensions.onnx_files import onnx_models
from tests.extensions.onnx_files.onnx_models import (
    compile_onnx,
    compute_in_tensorflow,
    make_config,
)

pytestmark = pytest.mark.needs_extra("onnx", "onnxruntime")

SHAPES = [(1, 9), (3, 9), (3, 33)]
EXTENSION_FAMILIES = {
    "embedding": {},
    "embedding, projected": {"projection": 8, "normalize": False},
    "reranking": {},
    "sparse_embedding": {"max_terms": 5},
    "late_interaction": {"token_width": 8, "query_length": 12},
}
POOLINGS = ("cls", "max", "mean_sqrt_len", "weighted_mean", "last")


def make_task(kind: str, tokenizer: FullTokenizer, config: BertConfig):
    """The task of a family, as an export makes it."""
    if kind in exported.KINDS:
        task = exported.make_task(kind)
    else:
        family = kind.split(",")[0]
        try:
            task = registry.make_task(family, EXTENSION_FAMILIES[kind])
        except InputError:
            pytest.skip(f"the extension of {family} is not installed")
    return task.for_checkpoint(set(), tokenizer, config) if kind == "late_interaction" else task


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    return FullTokenizer(toy.write_vocabulary(folder))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int8_weights"])
@pytest.mark.parametrize("kind", [*exported.KINDS, *EXTENSION_FAMILIES])
def test_every_family_in_every_type(kind, dtype, tokenizer):
    config = make_config(vocab_size=len(toy.VOCABULARY))
    task = make_task(kind, tokenizer, config)
    model = task.build_model(config, use_one_hot_embeddings=False)
    onnx_models.draw_weights(model)
    outputs = functools.partial(task.serving_outputs, model)
    run = compile_onnx(outputs, dtype, num_choices=task.num_choices)
    for size, length in SHAPES:
        features = exported.batch(kind, size, length)
        if dtype == "int8" and kind == "sparse_embedding":
            continue  # The words of nearly equal weights change their places.
        assert_near(run(features), compute_in_tensorflow(outputs, features), dtype)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_poolings(pooling, tokenizer):
    config = make_config(vocab_size=len(toy.VOCABULARY))
    try:
        task = registry.make_task("embedding", {"pooling": pooling})
    except InputError:
        pytest.skip("the extension of embeddings is not installed")
    model = task.build_model(config, use_one_hot_embeddings=False)
    onnx_models.draw_weights(model)
    outputs = functools.partial(task.serving_outputs, model)
    run = compile_onnx(outputs)
    for size, length in SHAPES:
        features = exported.batch("embedding", size, length)
        assert_near(run(features), compute_in_tensorflow(outputs, features), "float32")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        pytest.param(
            "embedding",
            {"query_prompt": "the cat: ", "include_prompt": False},
            id="prompts of embeddings",
        ),
        pytest.param("late_interaction", {"token_width": 8, "query_length": 12}, id="long queries"),
        pytest.param("late_interaction", {"token_width": 8, "query_length": 5}, id="short queries"),
        pytest.param("sparse_embedding", {"query_encoder": "lookup"}, id="queries looked up"),
        pytest.param("pretraining", {}, id="masked words"),
    ],
)
def test_further_signatures(kind, values, tokenizer):
    config = make_config(vocab_size=len(toy.VOCABULARY))
    if kind == "pretraining":
        task = exported.make_task(kind)
    else:
        try:
            task = registry.make_task(kind, values)
        except InputError as error:
            pytest.skip(str(error))
        task = task.for_checkpoint(set(), tokenizer, config)
    model = task.build_model(config, use_one_hot_embeddings=False)
    onnx_models.draw_weights(model)
    signatures = task.feature_signatures(model) | task.further_signatures(model)
    assert signatures
    for outputs in signatures.values():
        names = [*exported.batch(kind, 1, 9), "masked_lm_positions"]
        run = compile_onnx(outputs, names=names)
        for size, length in SHAPES:
            features = exported.batch(kind, size, length)
            features["masked_lm_positions"] = np.int32([[1, length - 1]] * size)
            assert_near(run(features), compute_in_tensorflow(outputs, features), "float32")


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_act": "gelu_erf"},
        {"hidden_act": "relu"},
        {"hidden_act": "tanh"},
        {"hidden_act": "linear"},
        {"hidden_act": None},
        {"num_attention_heads": 1},
        {"num_attention_heads": 64},
        {"attention_direction": "left_to_right"},
        {"type_vocab_size": 3},
        {"max_position_embeddings": 33},
    ],
    ids=str,
)
@pytest.mark.parametrize("reads_first_token", [False, True])
def test_configurations(fields, reads_first_token):
    config = make_config(**fields)
    model = BertClassifier(config, 3) if reads_first_token else BertModel(config)
    onnx_models.draw_weights(model)

    def outputs(features: dict) -> dict:
        result = model(features)
        if reads_first_token:
            return {"logits": result}
        return {
            "embedding_output": result.embedding_output,
            "first_layer": result.all_encoder_layers[0],
            "sequence_output": result.sequence_output,
            "pooled_output": result.pooled_output,
        }

    for dtype in ("float32", "int8"):
        run = compile_onnx(outputs, dtype)
        for size, length in SHAPES:
            features = exported.batch("tsv", size, length)
            assert_near(run(features), compute_in_tensorflow(outputs, features), dtype)


def test_padding_alone_attends_to_every_position():
    model = BertModel(make_config())
    onnx_models.draw_weights(model)
    features = exported.batch("tsv", 2, 9)
    features["input_mask"][1] = 0

    def outputs(features: dict) -> dict:
        return {"pooled_output": model(features).pooled_output}

    expected = compute_in_tensorflow(outputs, features)["pooled_output"]
    computed = compile_onnx(outputs)(features)["pooled_output"]
    np.testing.assert_allclose(computed, expected, atol=2e-3)


def test_trained_adapters_are_in_the_kernels():
    model = BertClassifier(make_config(), 2)
    model.bert.encoder.stack[0].attention.heads.query.enable_lora(4)
    onnx_models.draw_weights(model)
    features = exported.batch("tsv", 2, 9)

    def outputs(features: dict) -> dict:
        return {"logits": model(features)}

    expected = compute_in_tensorflow(outputs, features)
    assert_near(compile_onnx(outputs)(features), expected, "float32")


def test_8_bits_keep_tokens_with_large_values_from_changing_others():
    """One token of each text is a hundred times as large; each row has its own scale."""
    from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
    from official_bert.extensions.onnx_files.onnx_products import PRODUCTS

    draws = np.random.default_rng(1)
    kernel = draws.normal(size=(64, 128)).astype(np.float32)
    table = draws.normal(size=(4, 64)).astype(np.float32)
    table[3] *= 100
    graph = OnnxGraph()
    rows = graph.node("Gather", graph.constant(table), "input_ids")
    value = PRODUCTS["int8"](graph).multiply(rows, kernel)
    outputs = {"product": (value, np.float32, ["batch", "length", 128])}
    content = graph.model({"input_ids": ["batch", "length"]}, outputs, {})
    ids = np.int32([[0, 1, 2, 3]])
    (product,) = onnx_models.open_session(content).run(None, {"input_ids": ids})
    expected = table @ kernel
    differences = np.abs(product[0] - expected).max(-1) / np.abs(expected).max(-1)
    assert (differences < 0.03).all()
    assert (differences > 0).all()


def test_8_bits_in_branches_and_after_them():
    """The 8 bits of an input are computed in each branch, because others cannot read them."""
    from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
    from official_bert.extensions.onnx_files.onnx_products import PRODUCTS

    draws = np.random.default_rng(1)
    kernels = draws.normal(size=(3, 64, 96)).astype(np.float32)
    rows = draws.normal(size=(4, 64)).astype(np.float32)
    graph = OnnxGraph()
    products = PRODUCTS["int8"](graph)
    x = graph.node("Gather", graph.constant(rows), "ids")
    is_first = graph.node("Equal", graph.node("Size", "ids"), graph.constant(np.int64(2)))
    (branch,) = graph.branch(
        is_first,
        then=lambda: [products.multiply(x, kernels[0])],
        otherwise=lambda: [products.multiply(x, kernels[1])],
        dtypes=[np.float32],
    )
    total = graph.node("Add", branch, products.multiply(x, kernels[2]))
    content = graph.model({"ids": ["rows"]}, {"y": (total, np.float32, ["rows", 96])}, {})
    session = onnx_models.open_session(content)
    for ids, kernel in (([1, 3], kernels[0]), ([2, 0, 1], kernels[1])):
        (y,) = session.run(None, {"ids": np.int32(ids)})
        np.testing.assert_allclose(y, rows[ids] @ (kernel + kernels[2]), atol=1.0)


@pytest.mark.parametrize("num_rows", [1, 4096, 65])
def test_8_bits_of_two_neighbours_fit_into_16_bits(num_rows):
    """Processors without VNNI add two products with the largest input, 255, in 16 bits."""
    from official_bert.extensions.onnx_files import onnx_products

    draws = np.random.default_rng(1)
    kernel = draws.normal(size=(num_rows, 4096 // num_rows + 1)).astype(np.float32)
    kernel[:, 0] = 1.0
    integers, scales = onnx_products._quantize_kernel(kernel)
    assert integers.dtype == np.int8
    np.testing.assert_allclose(integers * scales, kernel, atol=scales.max() * 0.501)
    sizes = np.abs(integers.astype(np.int32))
    pairs = sizes[0 : num_rows // 2 * 2 : 2] + sizes[1::2]
    assert (255 * pairs < 2**15).all()
    assert sizes.max() > 63


def test_the_file_names_its_inputs_types_and_writer():
    import onnx

    model = BertClassifier(make_config(), 3)
    content = onnx_writer.write_signature(
        lambda features: {"logits": model(features)},
        onnx_writer.list_inputs(("input_ids", "input_mask", "segment_ids"), None),
        "float32",
        {"signature": "serving_default", "labels": json.dumps(["no", "yes"])},
    )
    file = onnx.load_model_from_string(content)
    onnx.checker.check_model(file, full_check=True)
    assert file.producer_name == "official_bert"
    assert file.ir_version == 9
    assert [(opset.domain, opset.version) for opset in file.opset_import] == [("", 20)]
    fields = {field.key: field.value for field in file.metadata_props}
    assert fields == {"signature": "serving_default", "labels": '["no", "yes"]'}
    dimensions = {}
    for value in [*file.graph.input, *file.graph.output]:
        shape = value.type.tensor_type.shape
        dimensions[value.name] = [part.dim_param or part.dim_value for part in shape.dim]
    assert dimensions == {
        "input_ids": ["batch", "length"],
        "input_mask": ["batch", "length"],
        "segment_ids": ["batch", "length"],
        "logits": ["batch", 3],
    }


def test_weights_are_in_the_file_once():
    import onnx

    model = BertModel(make_config(vocab_size=5000))

    def outputs(features: dict) -> dict:
        first = model(features).sequence_output
        swapped = features | {"input_ids": features["segment_ids"]}
        return {"a": first, "b": model(swapped).sequence_output}

    inputs = onnx_writer.list_inputs(("input_ids", "input_mask", "segment_ids"), None)
    content = onnx_writer.write_signature(outputs, inputs, "float32", {})
    names = [tensor.name for tensor in onnx.load_model_from_string(content).graph.initializer]
    assert len(names) == len(set(names))
    num_weights = sum(int(np.prod(variable.shape)) for variable in model.weights)
    assert len(content) < 4 * 1.1 * num_weights


def test_wrong_inputs_are_errors_of_the_runtime():
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    model = BertClassifier(make_config(max_position_embeddings=16), 3)
    run = compile_onnx(lambda features: {"logits": model(features)})
    valid = exported.batch("tsv", 2, 9)
    changes = [
        {"input_ids": np.full((2, 9), 10**6, np.int32)},
        {"segment_ids": np.full((2, 9), 7, np.int32)},
        {"input_mask": np.ones((2, 8), np.int32)},
        {"input_ids": np.ones(9, np.int32)},
        exported.batch("tsv", 2, 17),
    ]
    for change in changes:
        with pytest.raises((errors.InvalidArgument, errors.Fail, errors.RuntimeException)):
            run(valid | change)
    with pytest.raises(errors.InvalidArgument):
        run(valid | {"input_ids": valid["input_ids"].astype(np.float32)})
    assert run(valid)["logits"].shape == (2, 3)
    (empty,) = run({name: values[:0] for name, values in valid.items()}).values()
    assert empty.shape == (0, 3)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_bilstms_above_the_encoder(num_layers):
    config = make_config(num_bilstm_layers=num_layers)
    tagger = BertTagger(config, 3)
    classifier = BertClassifier(config, 3)
    onnx_models.draw_weights(tagger)
    onnx_models.draw_weights(classifier)

    def outputs(features: dict) -> dict:
        return {"tags": tagger(features), "logits": classifier(features)}

    run = compile_onnx(outputs)
    for size, length in SHAPES:
        features = exported.batch("ner", size, length)
        assert_near(run(features), compute_in_tensorflow(outputs, features), "float32")
    features["input_mask"][-1] = 0
    tags = run(features)["tags"]
    np.testing.assert_allclose(
        tags[-1], compute_in_tensorflow(outputs, features)["tags"][-1], atol=TOLERANCE
    )


@pytest.mark.parametrize("layers", ["embeddings", "second_to_last", "sum_all", "concat_last_four"])
def test_taggers_on_layers_of_an_encoder(layers):
    feature_based = pytest.importorskip("official_bert.extensions.feature_based.model")
    model = feature_based.BertFeatureTagger(make_config(), 3, feature_layers=layers)
    onnx_models.draw_weights(model)

    def outputs(features: dict) -> dict:
        return {"logits": model(features)}

    run = compile_onnx(outputs)
    for size, length in SHAPES:
        features = exported.batch("ner", size, length)
        assert_near(run(features), compute_in_tensorflow(outputs, features), "float32")


def test_a_head_of_other_operations_is_refused():
    model = BertClassifier(make_config(), 3)
    message = r"--export_format=onnx: .* BitwiseAnd .* has no ONNX form; give --export_format=li"
    with pytest.raises(InputError, match=message):
        compile_onnx(lambda features: {"bits": tf.bitwise.bitwise_and(features["input_ids"], 1)})
    # Models outside of the conversion still run in TensorFlow.
    assert model(exported.batch("tsv", 2, 9)).shape == (2, 3)


def test_kernels_of_8_bits_stay_in_the_file():
    """Graphs of constants are evaluated, and these must not be."""
    import onnx

    from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
    from official_bert.extensions.onnx_files.onnx_products import PRODUCTS

    draws = np.random.default_rng(1)
    kernel = draws.normal(size=(64, 96)).astype(np.float32)
    graph = OnnxGraph()
    value = PRODUCTS["int8_weights"](graph).multiply(graph.cast("x", np.float32), kernel)
    content = graph.model({"x": ["rows", 64]}, {"y": (value, np.float32, ["rows", 96])}, {})
    model = onnx.load_from_string(content)
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    integers = next(array for array in arrays if array.dtype == np.int8)
    scales = next(array for array in arrays if array.shape == (96,))
    assert integers.shape == kernel.shape
    np.testing.assert_allclose(scales, np.abs(kernel).max(axis=0) / 127, rtol=1e-6)
    assert np.abs(integers * scales - kernel).max() <= 0.51 * scales.max()
    assert np.abs(integers).max(axis=0).tolist() == [127] * 96
