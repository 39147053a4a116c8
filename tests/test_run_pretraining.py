"""run_pretraining.py as its users start it: the original's commands, several replicas, a kill in the middle."""

import json
import math
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.features import pretraining_features
from official_bert.training import run_log
from tests import toy, training_state
from tests.checkpoints.sample import pretraining_shapes
from tests.commands.pretraining_run import PREDICTIONS, SEQ, checkpoint_values, flags_of, scalars, write_records
from tests.scripts import flag_list, run_here, run_recorded, run_script
from tests.shared import ROOT, in_test_long


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A toy $BERT_BASE_DIR with records beside it."""
    folder = toy.make_bert_base_dir(tmp_path_factory.mktemp("base"))
    write_records(folder / "records.tfrecord")
    write_records(folder / "padded.tfrecord", is_padded=True)
    config = toy.BERT_CONFIG | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "no_dropout.json").write_text(json.dumps(config))
    return folder


def test_the_originals_evaluation_is_reproduced(tmp_path):
    _, recorded = run_recorded("run_pretraining", tmp_path, run_here)

    def lines(path):
        return [line.split(" = ") for line in path.read_text().splitlines()]

    actual = lines(tmp_path / "eval_results.txt")
    expected = lines(recorded("eval_results.txt"))
    assert [key for key, _ in actual] == [key for key, _ in expected]
    for (key, value), (_, recorded_value) in zip(actual, expected, strict=True):
        np.testing.assert_allclose(float(value), float(recorded_value), rtol=2e-5, atol=2e-5, err_msg=key)
    assert (tmp_path / "eval_results.txt").read_text().endswith("\n")


def test_the_originals_readme_commands(base, tmp_path):
    """Data creation and pre-training as the README has them, /tmp being a fresh folder."""
    run_script(
        "create_pretraining_data.py",
        *flag_list(
            input_file="./sample_text.txt", output_file=tmp_path / "tf_examples.tfrecord",
            vocab_file=base / "vocab.txt", do_lower_case=True, max_seq_length=128, max_predictions_per_seq=20,
            masked_lm_prob=0.15, random_seed=12345, dupe_factor=5,
        ),
    )  # fmt: skip
    output = tmp_path / "pretraining_output"
    finished = run_script(
        "run_pretraining.py",
        *flag_list(
            input_file=tmp_path / "tf_examples.tfrecord", output_dir=output, do_train=True, do_eval=True,
            bert_config_file=base / "bert_config.json", init_checkpoint=base / "bert_model.ckpt",
            train_batch_size=32, max_seq_length=128, max_predictions_per_seq=20, num_train_steps=20,
            num_warmup_steps=10, learning_rate=2e-5,
        ),
    )  # fmt: skip
    results = dict(line.split(" = ") for line in (output / "eval_results.txt").read_text().splitlines())
    assert results["global_step"] == "20"
    assert sorted(results) == [
        "global_step", "loss", "masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy", "next_sentence_loss",
    ]  # fmt: skip
    assert {path.name for path in output.iterdir() if not path.name.startswith("events.")} == {
        "bert_config.json", "checkpoint", "eval", "eval_results.txt", "model_card.md", "run.jsonl", "task.json",
        "tokenizer_config.json", "vocab.txt",
        *(f"{kind}.{end}" for kind in ("model.ckpt-0", "model.ckpt-20", "input.ckpt-0-0", "input.ckpt-20-0")
          for end in ("index", "data-00000-of-00001")),
    }  # fmt: skip
    # The original's file has no perplexity; the log and TensorBoard do, where training has the same tags.
    perplexity = math.exp(float(results["masked_lm_loss"]))
    found = scalars(output / "eval", "masked_lm_perplexity")
    assert found == {20: pytest.approx(perplexity, rel=1e-5)}
    (logged,) = re.findall(r"  masked_lm_perplexity   = (\S+)\n", finished.stderr)
    assert float(logged) == pytest.approx(perplexity, rel=1e-5)
    tags = ("loss", "masked_lm_accuracy", "masked_lm_loss", "masked_lm_perplexity", "next_sentence_loss")
    rows = run_log.read(str(output), run_log.TRAIN)
    assert [row["step"] for row in rows] == [10, 20]
    for tag in tags:
        assert sorted(scalars(output / "eval", tag)) == [20]
        assert scalars(output, tag) == pytest.approx({row["step"]: row[tag] for row in rows})
    assert "perplexity" not in next(line for line in finished.stderr.splitlines() if "step 10/20" in line)
    assert "30 trainable variables with" in finished.stderr
    assert "all from the checkpoint" in finished.stderr
    assert "*INIT_FROM_CKPT*" not in finished.stderr  # with --verbosity=1
    assert "***** Eval results *****" in finished.stderr
    assert "port.cc" not in finished.stderr, "TensorFlow's start-up messages are shown"

    values = checkpoint_values(output / "model.ckpt-20")
    weights = pretraining_shapes(toy_config())
    slots = {f"{name}/{slot}": shape for name, shape in weights.items() for slot in ("adam_m", "adam_v")}
    assert {name: value.shape for name, value in values.items()} == weights | slots | {"global_step": ()}
    assert len(values) == 91
    assert values["global_step"] == 20


def toy_config():
    from official_bert import BertConfig

    return BertConfig.from_dict(toy.BERT_CONFIG)


@pytest.mark.parametrize(
    ("count", "flags"),
    [
        (2, {"packed_sequences": True}),
        *in_test_long((2, {}), (2, {"jit_compile": True}), (1, {}), (4, {})),
        *in_test_long((4, {"jit_compile": True}), (4, {"packed_sequences": True})),
    ],
)
def test_replicas_equal_one_device(base, tmp_path, count, flags):
    """The device has no flags, so that with them the replicas are compared with another computation, too."""
    alone = {"bert_config_file": base / "no_dropout.json", "input_file": base / "padded.tfrecord"}
    mirrored = alone | {"distribution_strategy": "mirrored", "num_train_steps": 10, "steps_per_loop": 5}
    runs = {"one": alone, "several": mirrored | {"num_devices": count} | flags}
    for name, changes in runs.items():
        run = run_here if name == "one" else run_script  # two strategies in one process clash
        evaluation = {"do_eval": True, "max_eval_steps": 0, "eval_batch_size": 12}  # the last batch has 4 of 64
        run("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / name, **evaluation, **changes)))

    losses = {name: scalars(tmp_path / name, "loss") for name in runs}
    assert sorted(losses["one"]) == list(range(1, 11))
    assert len({round(loss, 4) for loss in losses["one"].values()}) > 5, "the losses move"
    weights = {name: checkpoint_values(tmp_path / name / "model.ckpt-10") for name in runs}
    evaluations = {name: scalars(tmp_path / name / "eval", "loss")[10] for name in runs}
    for step, loss in losses["one"].items():
        np.testing.assert_allclose(losses["several"][step], loss, atol=1e-5)
    np.testing.assert_allclose(evaluations["several"], evaluations["one"], atol=1e-5)
    training_state.assert_close(weights["several"], weights["one"], weights=1e-6, first_moments=1e-7)
    records = run_log.read(str(tmp_path / "several"), run_log.START)
    assert [record["num_replicas"] for record in records] == [count]
    largest = max(abs(losses["several"][step] - loss) for step, loss in losses["one"].items())
    print(
        f"{count} replicas {flags} and one device: 10 losses within {largest:.2g}, {len(weights['one'])} tensors "
        f"compared, evaluations {evaluations}"
    )


MASKS_OF_TWO_REPLICAS = """
import tensorflow as tf
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
    return dropout(tf.ones([64, 64]), 0.5, step_seed(3, step, replica), index=1)

compiled = tf.function(mask, jit_compile=True)
for step in (0, 0, 1):
    a, b = strategy.experimental_local_results(tf.function(lambda: strategy.run(mask, args=(step,)))())
    by_xla = strategy.experimental_local_results(tf.function(lambda: strategy.run(compiled, args=(step,)))())
    differing = sum(int(tf.math.count_nonzero(one != other)) for one, other in zip((a, b), by_xla))
    agreement = tf.reduce_mean(tf.cast(a == b, tf.float32)).numpy()
    print(agreement, tf.reduce_sum(a * tf.range(64.0)).numpy(), differing)
"""


def test_replicas_draw_masks_of_their_own():
    finished = subprocess.run(
        [sys.executable, "-c", MASKS_OF_TWO_REPLICAS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (agreement, first, _), (_, repeated, _), (other_agreement, second, _) = lines = [
        list(map(float, line.split())) for line in finished.stdout.splitlines()
    ]
    print("share of equal decisions of two replicas, sum of the first mask, values in which XLA's differ:", lines)
    for share in (agreement, other_agreement):
        assert abs(share - 0.5) < 0.04, "two independent coins agree half of the time"
    assert first == repeated
    assert first != second
    assert [differing for _, _, differing in lines] == [0, 0, 0]


@pytest.mark.parametrize("strategy", ["one_device", pytest.param("mirrored", marks=pytest.mark.long)])
def test_a_killed_run_ends_as_one_that_was_not(base, tmp_path, strategy):
    changes = {
        "num_train_steps": 400, "save_checkpoints_steps": 50, "log_every_steps": 50, "steps_per_loop": 7,
        "distribution_strategy": strategy, "num_devices": {"mirrored": 2}.get(strategy),
    }  # fmt: skip
    whole, killed = (flag_list(**flags_of(base, tmp_path / name, **changes)) for name in ("whole", "killed"))
    run = run_here if strategy == "one_device" else run_script
    run("run_pretraining.py", *whole)

    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run_pretraining.py"), *killed], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not (tmp_path / "killed" / "input.ckpt-100-0.index").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "model.ckpt-400.index").exists()

    resumed = run_script("run_pretraining.py", *killed)
    assert "Restored checkpoint" in resumed.stderr
    expected = checkpoint_values(tmp_path / "whole" / "model.ckpt-400")
    training_state.assert_equal(checkpoint_values(tmp_path / "killed" / "model.ckpt-400"), expected)
    for name in ("whole", "killed"):
        training_state.assert_input_is_at(
            tmp_path / name / "input.ckpt-400-0",
            [str(base / "records.tfrecord")], pretraining_features(SEQ, PREDICTIONS),
            batch_size=8, seed=7, num_read=400,
        )  # fmt: skip
    print(f"{strategy}: {len(expected)} tensors of step 400 with the same bits, and the input at batch 400")
    moved = checkpoint_values(base / "bert_model.ckpt")
    assert any(np.abs(expected[name] - value).max() > 1e-3 for name, value in moved.items())


@pytest.mark.parametrize("strategy", ["one_device", pytest.param("mirrored", marks=pytest.mark.long)])
def test_sigterm_saves_and_the_same_command_goes_on_at_that_step(base, tmp_path, strategy):
    changes = {
        "num_train_steps": 400, "save_checkpoints_steps": 50, "log_every_steps": 50, "steps_per_loop": 7,
        "distribution_strategy": strategy, "num_devices": {"mirrored": 2}.get(strategy),
    }  # fmt: skip
    whole, stopped = (flag_list(**flags_of(base, tmp_path / name, **changes)) for name in ("whole", "stopped"))
    run = run_here if strategy == "one_device" else run_script
    run("run_pretraining.py", *whole)

    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run_pretraining.py"), *stopped], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    output, deadline = tmp_path / "stopped", time.monotonic() + 300
    while not (output / "model.ckpt-100.index").exists():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.terminate()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 143, log[-3000:]
    step = int(latest_checkpoint(str(output)).rpartition("-")[2])
    assert 100 <= step < 400
    assert f"Stopped after step {step}; {output}/model.ckpt-{step} is saved" in log
    assert run_log.read(str(output), run_log.TRAIN)[-1]["step"] == step, "no update is lost"

    resumed = run_script("run_pretraining.py", *stopped)
    assert f"Restored checkpoint {output}/model.ckpt-{step}" in resumed.stderr
    expected = checkpoint_values(tmp_path / "whole" / "model.ckpt-400")
    training_state.assert_equal(checkpoint_values(output / "model.ckpt-400"), expected)
    print(f"SIGTERM saved step {step}; {len(expected)} tensors at the end are equal, bit by bit")
