"""Pre-training and fine-tuning on several replicas: all that they do has the numbers of one device.

The sets end in a batch that is not full and that the replicas do not divide.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.training import run_log
from tests import fine_tuning_runs
from tests.commands.pretraining_run import checkpoint_values, flags_of, make_base, scalars
from tests.hostile.rows import edit_json
from tests.scripts import flag_list, run_here, run_python, run_script
from tests.shared import in_test_long
from tests.training_state import assert_close

BATCH_SIZE = 8  # of 14 examples
# Replicas and micro-batches draw the masks that their examples have on one device.
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}


def run_described(family: str, described: str):
    """A run of which the options are given as JSON, in a process that calls it before TensorFlow
    has done anything.
    """
    kind = fine_tuning_runs.FAMILIES[family]
    kind.run(kind.make_options(**json.loads(described)))


def program_of(family: str, options, output_dir: pathlib.Path, **changes) -> str:
    """A Python program that makes such a run."""
    described = json.dumps(dataclasses.asdict(options) | changes | {"output_dir": str(output_dir)})
    return (
        f"from tests.test_replicas import run_described; run_described({family!r}, {described!r})"
    )


@pytest.mark.parametrize(
    ("family", "count", "flags"),
    [
        ("squad", 2, {"num_accumulation_steps": 2, "recompute_layers": True}),
        *in_test_long(
            ("classification", 2, {}),
            ("embedding", 2, {}),
            ("embedding", 2, {"num_accumulation_steps": 2}),
            ("embedding", 2, {"jit_compile": True}),
            ("embedding", 4, {}),
            ("reranking", 2, {"num_accumulation_steps": 2}),
            ("classification", 4, {}),
            ("squad", 4, {}),
            *[
                (family, count, {})
                for family in ("choice", "tagging", "regression", "multi-label")
                for count in (2, 4)
            ],
        ),
    ],
)
def test_replicas_train_evaluate_and_predict_as_one_device(tmp_path, family, count, flags):
    options = run_of_family(tmp_path, family)
    assert_replicas_equal_it(tmp_path, family, options, count, **flags)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "config", "flags"),
    [
        ("classification", {"attention_direction": "left_to_right"}, {"num_bilstm_layers": 1}),
        ("classification", {}, {"ema_decay": 0.9}),
        # With this scale no gradient is so large that it is clipped.
        (
            "embedding",
            {},
            {"gradient_clipping": "per_replica", "scale": 0.02, "num_accumulation_steps": 2},
        ),
    ],
)
def test_replicas_train_variants_as_one_device(tmp_path, family, config, flags):
    options = run_of_family(tmp_path, family, config, **flags)
    assert_replicas_equal_it(tmp_path, family, options, 2)


def read_latest_values(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The values of the newest checkpoint of a folder."""
    return checkpoint_values(latest_checkpoint(str(folder)))


def assert_replicas_equal_it(tmp_path: pathlib.Path, family: str, options, count: int, **flags):
    """The run of tmp_path/one again on several replicas, in a process of its own, into
    tmp_path/several.
    """
    mirrored = {"distribution_strategy": "mirrored", "num_devices": count, **flags}
    run_python("-c", program_of(family, options, tmp_path / "several", **mirrored))
    assert_same_results(family, tmp_path / "one", tmp_path / "several", count)


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        {"dtype": "float16", "num_accumulation_steps": 2},
        {"all_reduce_dtype": "bfloat16"},
    ],
)
def test_a_loss_of_the_whole_batch_is_that_of_one_device_within_16_bits(tmp_path, flags):
    options = run_of_family(tmp_path, "embedding")
    mirrored = {"distribution_strategy": "mirrored", "num_devices": 2, **flags}
    run_python("-c", program_of("embedding", options, tmp_path / "several", **mirrored))
    for name in ("loss", "gradient_norm"):
        values = scalars(tmp_path / "several", name)
        expected_values = scalars(tmp_path / "one", name)
        assert values == pytest.approx(expected_values, rel=5e-3), name
        assert values != expected_values
    several = read_latest_values(tmp_path / "several")
    one = read_latest_values(tmp_path / "one")
    for name, before in checkpoint_values(options.init_checkpoint).items():
        if name in one and not name.endswith("key/bias"):  # whose gradient is 0 but for rounding
            difference = np.linalg.norm(several[name] - one[name])
            movement = np.linalg.norm(one[name] - before)
            assert difference <= 0.15 * movement, name


@pytest.mark.parametrize("dtype", ["float32", *in_test_long("bfloat16")])
def test_parts_of_batches_of_any_length_train_as_whole_batches(tmp_path, dtype):
    """On one device, where a step is compiled for every length at once."""
    options = run_of_family(tmp_path, "classification", dtype=dtype)
    fine_tuning_runs.run("classification", options, tmp_path / "parts", num_accumulation_steps=2)
    parts = read_latest_values(tmp_path / "parts")
    one = read_latest_values(tmp_path / "one")
    if dtype == "float32":
        assert_close(parts, one, weights=5e-6, first_moments=1e-6)
        return
    for name, before in checkpoint_values(options.init_checkpoint).items():
        difference = np.linalg.norm(one[name] - parts[name])
        movement = np.linalg.norm(one[name] - before)
        assert difference <= 0.3 * movement + 1e-6, name


def run_of_family(
    tmp_path: pathlib.Path, family: str, config: Mapping = MappingProxyType({}), **changes
):
    """Trains, evaluates and predicts on one device into tmp_path/one, and returns the options of
    that run.
    """
    options = fine_tuning_runs.prepared(tmp_path, family)
    edit_json(pathlib.Path(options.bert_config_file), **DROPOUT | config)
    given = {"train_batch_size": 4, "learning_rate": 1e-4, "predict_batch_size": BATCH_SIZE}
    given |= {"do_train": True, "do_predict": True}
    if family != "squad":
        given |= {"do_eval": True, "eval_batch_size": BATCH_SIZE}
    options = dataclasses.replace(options, **given | changes, output_dir=str(tmp_path / "one"))
    fine_tuning_runs.FAMILIES[family].run(options)
    return options


def assert_same_results(family: str, one: pathlib.Path, several: pathlib.Path, num_replicas: int):
    """The run on several replicas has the results, the predictions and the weights of that on
    one device.
    """
    results = fine_tuning_runs.figures(several)
    expected_results = fine_tuning_runs.figures(one)
    assert results == pytest.approx(expected_results, abs=1e-5)

    name = fine_tuning_runs.FAMILIES[family].predictions
    predictions = fine_tuning_runs.predicted_numbers(several / name)
    expected_predictions = fine_tuning_runs.predicted_numbers(one / name)
    if expected_predictions is None:
        assert (several / name).read_text() == (one / name).read_text()
    else:
        np.testing.assert_allclose(predictions, expected_predictions, atol=1e-5)

    values = read_latest_values(several)
    expected_values = read_latest_values(one)
    assert_close(values, expected_values, weights=5e-6, first_moments=1e-6)
    (start,) = run_log.read(str(several), run_log.START)
    assert start["num_replicas"] == num_replicas


RAMP = {"train_batch_size_ramp": "16", "train_batch_size_boundaries": "0.5"}


@pytest.mark.parametrize(
    ("count", "both", "flags"),
    [
        (2, {}, {}),
        *in_test_long(
            (2, RAMP, {}),
            (2, RAMP, {"jit_compile": True}),
            (1, RAMP, {}),
            (4, RAMP, {}),
            (4, RAMP, {"jit_compile": True}),
        ),
    ],
)
def test_replicas_pretrain_as_one_device(tmp_path, count, both, flags):
    """The device has no flags, so that with them the replicas are compared with another
    computation, too.
    """
    base = make_base(tmp_path / "base")
    # A growing batch has its examples in another order on replicas, and so other masks.
    config = "no_dropout.json" if both else "bert_config.json"
    alone = {"bert_config_file": base / config, "input_file": base / "padded.tfrecord"}
    # The last batch has 4 of 64.
    alone |= {"do_eval": True, "max_eval_steps": 0, "eval_batch_size": 12}
    alone |= both
    mirrored = {
        "distribution_strategy": "mirrored",
        "num_devices": count,
        "steps_per_loop": 5,
        **flags,
    }
    run_here("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "one", **alone)))
    # Two strategies in one process clash.
    run_script(
        "run_pretraining.py",
        *flag_list(**flags_of(base, tmp_path / "several", **alone, **mirrored)),
    )
    assert_same_pretraining(tmp_path / "one", tmp_path / "several", count)


def assert_same_pretraining(one: pathlib.Path, several: pathlib.Path, num_replicas: int):
    """The 10 steps on several replicas have the losses, the evaluation and the weights of those
    on one device.
    """
    expected_losses = scalars(one, "loss")
    assert sorted(expected_losses) == list(range(1, 11))
    rounded_losses = {round(loss, 4) for loss in expected_losses.values()}
    assert len(rounded_losses) > 5, "the losses move"
    losses = scalars(several, "loss")
    assert losses == pytest.approx(expected_losses, abs=1e-5)

    expected_eval_losses = scalars(one / "eval", "loss")
    eval_losses = scalars(several / "eval", "loss")
    assert eval_losses[10] == pytest.approx(expected_eval_losses[10], abs=1e-5)

    values = checkpoint_values(several / "model.ckpt-10")
    expected_values = checkpoint_values(one / "model.ckpt-10")
    assert_close(values, expected_values, weights=1e-6, first_moments=1e-7)
    (start,) = run_log.read(str(several), run_log.START)
    assert start["num_replicas"] == num_replicas


MASKS_OF_TWO_REPLICAS = """
import tensorflow as tf
from official_bert.modeling.dropout_masks import part_seed
from official_bert.modeling.layers import dropout
from official_bert.options.training import PretrainingOptions
from official_bert.training.distribution import make_strategy
from official_bert.training.step import step_seed

options = PretrainingOptions(
    bert_config_file="", input_file=[], output_dir="", distribution_strategy="mirrored", num_devices=2
)
strategy = make_strategy(options)

def mask(step):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    seed = part_seed(step_seed(3, step), 16 * replica, 16)  # of 16 examples with 4 rows each
    return dropout(tf.ones([64, 64]), 0.5, seed, index=1)

compiled = tf.function(mask, jit_compile=True)
for step in (0, 0, 1):
    a, b = strategy.experimental_local_results(tf.function(lambda: strategy.run(mask, args=(step,)))())
    by_xla = strategy.experimental_local_results(tf.function(lambda: strategy.run(compiled, args=(step,)))())
    differing = sum(int(tf.math.count_nonzero(one != other)) for one, other in zip((a, b), by_xla))
    agreement = tf.reduce_mean(tf.cast(a == b, tf.float32)).numpy()
    whole = dropout(tf.ones([128, 64]), 0.5, step_seed(3, step), index=1)
    differing += int(tf.math.count_nonzero(whole != tf.concat([a, b], axis=0)))
    print(agreement, tf.reduce_sum(a * tf.range(64.0)).numpy(), differing)
"""


def test_replicas_draw_the_masks_that_their_examples_have_in_the_whole_batch():
    lines = [
        list(map(float, line.split()))
        for line in run_python("-c", MASKS_OF_TWO_REPLICAS).stdout.splitlines()
    ]
    (agreement, first, _), (_, repeated, _), (other_agreement, second, _) = lines
    for share in (agreement, other_agreement):
        assert abs(share - 0.5) < 0.04, "two independent coins agree half of the time"
    assert first == repeated
    assert first != second
    assert [differing for _, _, differing in lines] == [0, 0, 0]
