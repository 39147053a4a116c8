"""Mixed precision: what is computed in 16 bits, what an overflow of float16 does, and the type
that devices want.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.io import processor
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.shared import DistributionOptions
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training import distribution, precision
from official_bert.training.distribution import make_strategy, split_over_replicas
from official_bert.training.loop import compiled_steps
from official_bert.training.precision import LossScale, check_dtype, choose, computing_in
from official_bert.training.step import TrainingStep
from tests import fine_tuning_runs, toy, training_state
from tests.golden_model import (
    golden,  # noqa: F401  a fixture
    load_batch,
    load_pretrainer,
    losses_of,
    named_weights,
)
from tests.graphs import PRODUCTS, gradient_graph
from tests.scripts import run_python
from tests.shared import GOLDEN, in_test_long
from tests.training.test_step import prepare

GELU = GOLDEN / "model_gelu"


def size(values) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def relative_size(difference, expected) -> float:
    """The size of a difference as a share of the size of what was expected."""
    return size(difference) / size(expected)


@pytest.mark.parametrize(
    ("dtype", "outputs", "losses"),
    [("bfloat16", 3e-2, 2e-2), ("float16", 3e-3, 2e-3)],
)
def test_the_recordings_within_the_precision_of_16_bits(golden, dtype, outputs, losses):  # noqa: F811
    """Outputs agree within a share of their size, the root of their mean square."""
    with computing_in(dtype):
        model = load_pretrainer(golden)
    batch = load_batch(golden, "usual")
    recorded = np.load(golden / "usual_outputs.npz")
    found = model(batch)
    actual = {
        "layers": np.stack(found.encoded.all_encoder_layers),
        "pooled_output": tf.cast(found.encoded.pooled_output, tf.float32),
        "masked_lm_log_probs": found.masked_lm_log_probs,
        "next_sentence_log_probs": found.next_sentence_log_probs,
    }
    differences = []
    for name, values in actual.items():
        differences.append(relative_size(values - recorded[name], recorded[name]))
    loss_difference = losses_of(model, batch).total - recorded["total_loss"]
    assert abs(float(loss_difference)) < losses
    assert outputs / 10 < max(differences) < outputs


@pytest.mark.usefixtures("with_grappler")
@pytest.mark.parametrize(
    ("name", "num_micro_batches"),
    [
        ("model_gelu", 2),
        *in_test_long(("model_gelu", 1), ("model_relu16types", 3)),
    ],
)
def test_a_run_in_bfloat16_stays_near_the_originals(name, num_micro_batches):
    """Twelve updates, of whole batches and of parts of them; weights are compared by the
    distance they have moved.
    """
    with computing_in("bfloat16"):
        run = prepare(GOLDEN / name, "bert_model.ckpt", num_micro_batches=num_micro_batches)
    recorded = np.load(GOLDEN / name / "training.npz")
    weights = [name for name in run.variables if "adam" not in name and name != "global_step"]

    def distances_to_recording() -> np.ndarray:
        distances = [run.variables[name].numpy() - recorded[name] for name in weights]
        return np.concatenate([one.ravel() for one in distances])

    moved = distances_to_recording()
    losses = run.losses(run.settings["steps"])
    loss_differences = np.subtract(losses, recorded["losses"])
    assert relative_size(loss_differences, recorded["losses"]) < 5e-3
    assert 1e-3 < relative_size(distances_to_recording(), moved) < 0.15


def types_of(model, kinds) -> set[tuple[str, str]]:
    """(kind of operation, type of its result) of the operations of these kinds in a forward and
    a backward pass.
    """
    features = load_batch(GELU, "usual")
    batch = {name: tf.constant(values) for name, values in features.items()}
    objective = PretrainingObjective(model, batch_size=len(batch["input_ids"]))

    def compute_loss() -> tf.Tensor:
        loss, _ = objective.loss(batch, objective.totals(batch), None)
        return loss

    types = set()
    for operation in gradient_graph(model, compute_loss).get_operations():
        if operation.type in kinds:
            result = operation.outputs[0]
            types.add((operation.type, result.dtype.name))
    return types


def test_products_are_in_16_bits_and_softmax_and_weights_in_float32():
    with computing_in("bfloat16"):
        config = BertConfig.from_dict(toy.BERT_CONFIG | {"vocab_size": 1000})
        model = BertPretrainer(config)
    assert {weight.dtype for weight in model.weights} == {"float32"}
    # The products in float32 are those of the segments' table and of the head with two outputs.
    float32 = {
        ("MatMul", "float32"),
        ("Softmax", "float32"),
        ("BatchMatMulV2", "float32"),
    }
    assert types_of(model, (*PRODUCTS, "Softmax")) - float32 == {
        ("MatMul", "bfloat16"),
        ("BatchMatMulV2", "bfloat16"),
    }
    assert ("Softmax", "bfloat16") not in types_of(model, ("Softmax",))
    out = model(load_batch(GELU, "usual"))
    assert out.masked_lm_logits.dtype == tf.float32
    assert out.next_sentence_logits.dtype == tf.float32
    assert out.encoded.pooled_output.dtype == tf.bfloat16
    assert BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG)).compute_dtype == "float32"


def test_gradients_of_biases_are_summed_in_float32():
    """600 equal terms of 1/256: in bfloat16 the sum would stop growing at 1."""
    with computing_in("bfloat16"):
        model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    layer = model.bert.encoder.stack[0].attention.heads.query
    with tf.GradientTape() as tape:
        outputs = layer(tf.zeros([600, 16]))
        loss = tf.reduce_sum(tf.cast(outputs, tf.float32)) / 256
    np.testing.assert_allclose(
        tape.gradient(loss, layer.bias.value),
        np.full(16, 600 / 256),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "family",
    [
        "classification",
        *in_test_long("squad", "choice", "tagging", "regression", "embedding"),
    ],
)
def test_fine_tuning_evaluates_and_predicts_nearly_as_in_float32(
    tmp_path_factory, tmp_path, family
):
    also = {} if family == "squad" else {"do_eval": True}
    whole = fine_tuning_runs.shared_run(tmp_path_factory, family, **also)
    folders = [whole.output_dir]
    for dtype in ("bfloat16", "float16"):
        folders.append(tmp_path / dtype)
        fine_tuning_runs.run(
            family,
            whole.options,
            folders[-1],
            do_train=True,
            do_predict=True,
            dtype=dtype,
            **also,
        )
    predictions_file = fine_tuning_runs.FAMILIES[family].predictions
    losses = []
    predictions = []
    for folder in folders:
        metrics = fine_tuning_runs.figures(folder)
        losses.append([value for name, value in metrics.items() if "loss" in name])
        numbers = fine_tuning_runs.predicted_numbers(folder / predictions_file)
        predictions.append(np.zeros(0) if numbers is None else numbers)
    for number in (1, 2):
        assert losses[number] == pytest.approx(losses[0], rel=0.1)
        if family not in ("squad", "embedding"):
            assert losses[number] != losses[0]
        np.testing.assert_allclose(predictions[number], predictions[0], atol=0.15)


def test_a_tpu_is_told_to_take_bfloat16(monkeypatch):
    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: True)
    check_dtype("bfloat16", None)
    with pytest.raises(
        InputError,
        match="--dtype=float16: a TPU does not multiply it; give --dtype=bfloat16",
    ):
        check_dtype("float16", None)


def state_of(loss_scale: LossScale) -> tuple[float, int]:
    scale, num_good_updates = loss_scale.state.values()
    return float(scale.numpy()), int(num_good_updates.numpy())


def test_the_scale_is_halved_at_an_overflow_and_doubled_after_good_updates():
    loss_scale = LossScale()
    adjust = tf.function(loss_scale.adjust)
    assert state_of(loss_scale) == (2.0**15, 0)
    for _ in range(precision.GROWTH_UPDATES - 1):
        adjust(tf.constant(True))
    assert state_of(loss_scale) == (2.0**15, 1999)
    adjust(tf.constant(True))
    assert state_of(loss_scale) == (2.0**16, 0)
    adjust(tf.constant(True))
    adjust(tf.constant(False))
    assert state_of(loss_scale) == (2.0**15, 0)
    loss_scale.restore({"loss_scale": 4096, "updates_at_loss_scale": 17}.get)
    loss_scale.restore(lambda name: None)
    assert state_of(loss_scale) == (4096.0, 17)


class PoisonedObjective(PretrainingObjective):
    """The loss of a part of a batch whose first id is 1 is infinite."""

    def loss(self, features, totals, dropout_seed):
        loss, sums = super().loss(features, totals, dropout_seed)
        first_ids = features["input_ids"][:, 0]
        is_poisoned = tf.reduce_any(first_ids == 1)
        return loss * tf.where(is_poisoned, np.inf, 1.0), sums


class Training:
    """A training of the toy model without dropout in float16."""

    def __init__(self, strategy, **step_options):
        self.strategy = strategy
        with strategy.scope(), computing_in("float16"):
            tf.keras.utils.set_random_seed(3)
            model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT))
            pairs = named_weights(model)
            self.optimizer = AdamWeightDecayOptimizer(1e-3)
            self.loss_scale = LossScale()
            self.optimizer.build(pairs)
            step = TrainingStep(
                PoisonedObjective(model, batch_size=8),
                [variable for _, variable in pairs],
                self.optimizer,
                run_seed=1,
                loss_scale=self.loss_scale,
                **step_options,
            )
        self.run = compiled_steps(strategy, step)
        self.variables = {
            **dict(pairs),
            **self.optimizer.slots,
            "global_step": self.optimizer.global_step,
        }

    def step(self, seed: int, poisoned_row: int | None = None) -> dict:
        """Makes an update of random examples, of which one may be poisoned; returns the sums."""
        features = split_over_replicas(self.strategy, batch(seed, poisoned_row))
        sums = self.run(features, 1)
        self.loss_scale.count_skipped(1 - round(sums["updates"]))
        return sums

    def values(self) -> dict[str, np.ndarray]:
        """Weights, slots and step on every replica."""
        values = {}
        for name, variable in self.variables.items():
            copies = self.strategy.experimental_local_results(variable)
            for replica, value in enumerate(copies):
                values[f"{name} {replica}"] = value.numpy()
        return values


def batch(seed: int, poisoned_row: int | None) -> dict[str, tf.Tensor]:
    """[1, 8, ...] of every feature."""
    draws = np.random.default_rng(seed)
    vocab_size = len(toy.VOCABULARY)
    ids = draws.integers(5, vocab_size, (1, 8, 16))
    if poisoned_row is not None:
        ids[0, poisoned_row, 0] = 1
    features = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": draws.integers(1, 16, (1, 8, 3)),
        "masked_lm_ids": draws.integers(5, vocab_size, (1, 8, 3)),
        "next_sentence_labels": draws.integers(0, 2, (1, 8, 1)),
    }
    tensors = {name: tf.constant(values, tf.int32) for name, values in features.items()}
    return tensors | {"masked_lm_weights": tf.ones([1, 8, 3])}


def skips_an_overflow(strategy, poisoned_row: int, **step_options) -> dict[str, float]:
    """Trains over an overflow, which must leave everything as it was; returns the sums of the
    update after it.
    """
    training = Training(strategy, **step_options)
    training.step(0)
    before = training.values()
    sums = training.step(1, poisoned_row)
    assert sums.pop("tokens") == 8 * 16
    assert set(sums.values()) == {0.0}, "a skipped update adds nothing to any sum of metrics"
    training_state.assert_equal(training.values(), before)
    assert state_of(training.loss_scale) == (2.0**14, 0)
    assert training.loss_scale.num_skipped == 1
    sums = training.step(2)
    assert sums["updates"] == 1.0
    assert int(training.optimizer.global_step.numpy()) == 2
    after = training.values()
    weights = [name for name in before if "adam" not in name]
    moved = [name for name in weights if not np.array_equal(before[name], after[name])]
    assert len(moved) > len(before) / 4
    return sums


def overflows_on_the_second_replica():
    """What the subprocess runs: the poisoned example is the seventh of eight, on replica 1 of 2,
    in its second part.
    """
    options = DistributionOptions(distribution_strategy="mirrored", num_devices=2)
    strategy = make_strategy(options)
    accumulated = skips_an_overflow(strategy, 6, num_micro_batches=2)
    clipped_alone = skips_an_overflow(strategy, 6, clips_per_replica=True)
    print(json.dumps([accumulated, clipped_alone]))


@pytest.mark.long
def test_an_overflow_on_one_replica_skips_the_update_on_all():
    """With accumulation the overflow is in a later part; the sums are those of one device within
    float16.
    """
    ran = run_python(
        "-c",
        "from tests.training.test_precision import overflows_on_the_second_replica as run; run()",
    )
    accumulated, clipped_alone = json.loads(ran.stdout.splitlines()[-1])
    alone = skips_an_overflow(tf.distribute.get_strategy(), 6)
    assert accumulated == pytest.approx(alone, rel=2e-3)
    assert clipped_alone["gradient_norm"] > 1.01 * alone["gradient_norm"], (
        "the norm of a half is that of more noise"
    )


ONE = tf.distribute.get_strategy()


@pytest.fixture
def device(monkeypatch):
    """Sets the kind of device, the flags of its processor, and the GPUs' compute capabilities."""

    def pretend(kind="CPU", flags=None, capabilities=(), folder=None):
        monkeypatch.setattr(precision, "device_kind", lambda strategy: kind)
        if folder:
            info = folder / "cpuinfo"
            monkeypatch.setattr(processor, "CPU_INFO", info)
            if flags is not None:
                info.write_text(
                    "processor\t: 0\nmodel name\t: amx_bf16 inside\nflags\t\t: "
                    f"{flags}\n\nprocessor\t: 1\n"
                )
        monkeypatch.setattr(
            tf.config,
            "list_physical_devices",
            lambda kind: list(range(len(capabilities))),
        )
        details = []
        for one in capabilities:
            details.append({} if one is None else {"compute_capability": one})
        monkeypatch.setattr(
            tf.config.experimental,
            "get_device_details",
            lambda number: details[number],
        )

    return pretend


@pytest.mark.parametrize(
    ("flags", "expected", "reason"),
    [
        pytest.param(
            "fpu avx512_bf16 amx_bf16 amx_tile",
            "bfloat16",
            "the processor has AMX",
            id="AMX",
        ),
        pytest.param(
            "fpu avx512_bf16",
            "bfloat16",
            "the processor has AVX512_BF16",
            id="AVX512_BF16",
        ),
        pytest.param(
            "fpu avx2 avx512f",
            "float32",
            "the devices do not multiply bfloat16",
            id="neither",
        ),
        pytest.param(
            None,
            "float32",
            "the devices do not multiply bfloat16",
            id="no Linux",
        ),
    ],
)
def test_auto_follows_the_processor(device, tmp_path, caplog, flags, expected, reason):
    device(flags=flags, folder=tmp_path)
    with caplog.at_level("INFO", logger="absl"):
        assert choose("auto", ONE) == (expected, {"dtype": expected})
    assert f"--dtype=auto: {expected}, since {reason}" in caplog.text


@pytest.mark.parametrize(
    ("kind", "capabilities", "expected"),
    [
        pytest.param("TPU", [], "bfloat16", id="TPU"),
        pytest.param("GPU", [(9, 0), (8, 0)], "bfloat16", id="new GPUs"),
        pytest.param("GPU", [(9, 0), (7, 5)], "float32", id="an old GPU"),
        pytest.param("GPU", [None], "float32", id="unknown GPU"),
    ],
)
def test_auto_follows_the_accelerator(device, kind, capabilities, expected):
    device(kind=kind, capabilities=capabilities)
    assert choose("auto", ONE)[0] == expected


def test_only_bfloat16_is_warned_of_where_auto_would_not_take_it(device, tmp_path, caplog):
    device(flags="fpu avx2", folder=tmp_path)
    assert choose("float32", ONE) == ("float32", {})
    assert choose("float16", ONE) == ("float16", {})
    device(kind="TPU")
    assert choose("bfloat16", ONE) == ("bfloat16", {})
    assert not caplog.records
    device(flags="fpu avx2", folder=tmp_path)
    assert choose("bfloat16", ONE) == ("bfloat16", {})
    assert "--dtype=bfloat16: the devices are not known to multiply it" in caplog.text
