"""run_pretraining.py after a stop, a kill or an earlier run: where it resumes, and with what."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.cli.tensorflow_environment import ONEDNN
from official_bert.features import pretraining_features
from official_bert.io.processor import instruction_sets
from official_bert.training import precision, run_log
from tests import toy, training_state
from tests.commands.pretraining_run import (
    PREDICTIONS,
    SCRIPT,
    SEQ,
    checkpoint_values,
    flags_of,
    make_base,
    run,
    scalars,
    write_records,
)
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, forked_python, run_here, run_script, wait_for
from tests.shared import ROOT, in_test_long
from tests.training.rewinding import rewind

STEPS = 400  # of a run that is long enough to be stopped within


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize("strategy", ["one_device", *in_test_long("mirrored")])
def test_a_stopped_and_a_killed_run_ends_as_one_that_was_not(base, tmp_path, strategy):
    """SIGTERM saves, and the same command goes on at that step; SIGKILL leaves the last
    checkpoint.
    """
    changes = {
        "num_train_steps": STEPS,
        "save_checkpoints_steps": 50,
        "log_every_steps": 50,
        "steps_per_loop": 7,
        "distribution_strategy": strategy,
        "num_devices": 2 if strategy == "mirrored" else None,
    }
    whole = tmp_path / "whole"
    output = tmp_path / "ended"
    flags = flag_list(**flags_of(base, output, **changes))
    run_script(SCRIPT, *flag_list(**flags_of(base, whole, **changes)))

    # Stopped by SIGTERM.
    process = started_until(output / "model.ckpt-100.index", sys.executable, flags)
    process.terminate()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 143, log[-3000:]
    _, _, step = latest_checkpoint(str(output)).rpartition("-")
    step = int(step)
    assert 100 <= step < STEPS
    assert f"Stopped after step {step}; {output}/model.ckpt-{step} is saved" in log
    last_row = run_log.read(str(output), run_log.TRAIN)[-1]
    assert last_row["step"] == step, "no update is lost"

    # Resumed, and killed after the next checkpoint.
    next_checkpoint = (step // 50 + 1) * 50
    process = started_until(
        output / f"input.ckpt-{next_checkpoint}-0.index",
        forked_python(),
        flags,
    )
    process.kill()
    _, log = process.communicate(timeout=60)
    assert f"Restored checkpoint {output}/model.ckpt-{step}" in log
    assert not (output / f"model.ckpt-{STEPS}.index").exists()

    # Resumed to its end.
    assert "Restored checkpoint" in run_script(SCRIPT, *flags).stderr
    expected = checkpoint_values(whole / f"model.ckpt-{STEPS}")
    training_state.assert_equal(checkpoint_values(output / f"model.ckpt-{STEPS}"), expected)
    for folder in (whole, output):
        training_state.assert_input_is_at(
            folder / f"input.ckpt-{STEPS}-0",
            [str(base / "records.tfrecord")],
            pretraining_features(SEQ, PREDICTIONS),
            batch_size=8,
            seed=7,
            num_read=STEPS,
        )
    initial_values = checkpoint_values(base / "bert_model.ckpt")
    distances = [np.abs(expected[name] - value) for name, value in initial_values.items()]
    assert max(distance.max() for distance in distances) > 1e-3


def started_until(file, python: str, flags: list[str]) -> subprocess.Popen:
    """Starts the script with an interpreter, and waits for a file of its run.

    A new interpreter has to compute by the same products as a forked process. That has imported
    TensorFlow before the script could enable oneDNN, as it does on processors without AVX-512.
    """
    environment = dict(os.environ)
    if "avx512f" not in instruction_sets():
        environment[ONEDNN] = "0"
    process = subprocess.Popen(
        [python, SCRIPT, *flags],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(file.exists, process)
    return process


def test_a_folder_goes_on_with_other_flags_where_it_stopped(base, tmp_path):
    """Also with another type, on other records, and without its input file, as one of TF1."""
    log = run(base, tmp_path, num_train_steps=2, random_seed=None)
    assert "with other flags than before" not in log
    log = run(
        base,
        tmp_path,
        num_train_steps=4,
        random_seed=None,
        optimizer_type="lamb",
        dtype="float16",
    )
    assert "other records" not in log
    changed_flags = (
        "--dtype=float16 (float32 before), --optimizer_type=lamb (adamw before), "
        "--num_train_steps=4 (2 before)\n"
    )
    message = f"{tmp_path} resumes from step 2 with other flags than before: {changed_flags}"
    assert message in log
    assert loss_scale_in(tmp_path / "input.ckpt-4-0") == {
        "loss_scale": 2.0**15,
        "updates_at_loss_scale": 2,
    }
    run(
        base,
        tmp_path,
        num_train_steps=6,
        random_seed=None,
        input_file=write_records(tmp_path / "other.tfrecord", seed=5),
        dtype="bfloat16",
        train_batch_size=4,
    )
    assert loss_scale_in(tmp_path / "input.ckpt-6-0") == {}
    for path in tmp_path.glob("input.ckpt-*"):
        path.unlink()
    run(base, tmp_path, num_train_steps=7, random_seed=None)
    # Nothing is left to do.
    run(base, tmp_path, num_train_steps=7, random_seed=None)
    lines = run_log.read(str(tmp_path), run_log.START)
    seeds = {line["seed"] for line in lines[:3]}
    assert len(seeds) == 1, "the drawn seed stays with the run"
    assert lines[1]["flags"]["num_train_steps"] == 4
    assert sorted(scalars(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6, 7]
    assert checkpoint_values(tmp_path / "model.ckpt-7")["global_step"] == 7


def loss_scale_in(prefix) -> dict[str, float]:
    """The state of the loss scale beside a checkpoint."""
    reader = tf.train.load_checkpoint(str(prefix))
    state = {}
    for name in reader.get_variable_to_shape_map():
        if "loss_scale" in name:
            short_name = name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
            state[short_name] = reader.get_tensor(name)
    return state


@pytest.mark.parametrize("dtype", ["float16", *in_test_long("bfloat16")])
def test_a_run_in_16_bits_resumes_with_the_same_bits(base, tmp_path, dtype, monkeypatch):
    """The loss scale is doubled after three updates, so that it stands between two values when
    the run stops.
    """
    monkeypatch.setattr(precision, "GROWTH_UPDATES", 3)
    flags = {"dtype": dtype, "num_accumulation_steps": 2}
    whole = tmp_path / "whole"
    resumed = tmp_path / "resumed"
    run(base, whole, **flags, save_checkpoints_steps=4)
    rewind(whole, resumed, step=4)
    run(base, resumed, **flags)
    expected = checkpoint_values(whole / "model.ckpt-10")
    assert {value.dtype.name for value in expected.values()} == {"float32", "int64"}
    training_state.assert_equal(checkpoint_values(resumed / "model.ckpt-10"), expected)
    loss_scale = {}
    if dtype == "float16":
        loss_scale = {"loss_scale": 2.0**18, "updates_at_loss_scale": 1}
    assert loss_scale_in(whole / "input.ckpt-10-0") == loss_scale
    assert loss_scale_in(resumed / "input.ckpt-10-0") == loss_scale
    assert not any("scale" in name for name in expected), "a TF1 program knows no loss scale"

    log = run_log.read(str(whole), run_log.TRAIN)
    if dtype == "float16":
        assert [row["loss_scale"] / 2**15 for row in log] == [1, 1, 2, 2, 2, 4, 4, 4, 8, 8]
        assert {row["skipped_updates"] for row in log} == {0}
    # In float32 with the same dropout masks.
    float32_dir = tmp_path / "float32"
    run(base, float32_dir, num_accumulation_steps=2)
    expected_losses = list(scalars(float32_dir, "loss").values())
    losses = list(scalars(whole, "loss").values())
    tolerance = 2e-4 if dtype == "bfloat16" else 2e-5
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance)
    assert losses != expected_losses


def test_reports_and_the_summary_of_two_runs_and_old_checkpoints_go(base, tmp_path):
    """The norm is that of the gradient, before clipping."""
    flags = {
        "num_warmup_steps": 0,
        "learning_rate": 1e-3,
        "log_every_steps": 2,
    }
    run(base, tmp_path, **flags, num_train_steps=6)
    run(
        base,
        tmp_path,
        **flags,
        num_train_steps=10,
        save_checkpoints_steps=2,
        keep_checkpoint_max=2,
    )
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "input.ckpt-10-0.index",
        "input.ckpt-8-0.index",
        "model.ckpt-10.index",
        "model.ckpt-8.index",
    ]
    rows = {row["step"]: row for row in run_log.read(str(tmp_path), run_log.TRAIN)}
    positions = 8 * SEQ
    for step in (4, 6, 10):
        row = rows[step]
        updates_per_second = row["examples_per_second"] / 8
        tokens = row["tokens_per_second"] / updates_per_second
        # Half of a random mask is padding.
        assert tokens == pytest.approx(positions / 2, rel=0.2)
        # They are those of two whole updates.
        assert 2 * tokens == pytest.approx(round(2 * tokens))
        assert 0.01 < row["gradient_norm"] < 100
        assert row["memory_mb"] > 100
    first, second = run_log.read(str(tmp_path), run_log.END)
    assert first["ended"] == "finished"
    assert first["updates"] == 6
    assert first["last_step"] == 6
    assert first["restarts"] == 0
    assert second["ended"] == "finished"
    assert second["updates"] == 4
    assert second["last_step"] == 10
    assert second["restarts"] == 1
    total_secs = first["wall_secs"] + second["wall_secs"]
    assert second["total_wall_secs"] == pytest.approx(total_secs)
    assert second["last_checkpoint"] == str(tmp_path / "model.ckpt-10")
    assert second["final_loss"] == pytest.approx(rows[10]["loss"], rel=1e-6)
    assert second["skipped_updates"] == 0


def test_masks_are_drawn_anew_in_each_pass_and_a_resumed_run_draws_the_same(base, tmp_path):
    """Records without masks, in compressed shards beside their manifest, from text to an
    evaluation.
    """
    run_here(
        "create_pretraining_data.py",
        "--generator=sharded",
        "--dynamic_masking",
        "--dupe_factor=2",
        "--num_shards=2",
        *flag_list(
            input_file=toy.write_text(tmp_path),
            output_file=tmp_path / "records.gz",
            vocab_file=base / "vocab.txt",
            max_seq_length=SEQ,
        ),
    )
    manifest = json.loads((tmp_path / "records.manifest.json").read_text())
    assert manifest["flags"]["dynamic_masking"] is True
    assert manifest["counts"]["predictions"] == 0
    changes = {
        "input_file": tmp_path / "records*",
        "vocab_file": base / "vocab.txt",
        "dynamic_masking": True,
        "do_whole_word_mask": True,
        "do_eval": True,
        "max_eval_steps": 0,
        "save_checkpoints_steps": 4,
    }
    whole = tmp_path / "whole"
    resumed = tmp_path / "resumed"
    run(base, whole, **changes)
    rewind(whole, resumed, step=4)
    run(base, resumed, **changes)
    expected = checkpoint_values(whole / "model.ckpt-10")
    training_state.assert_equal(checkpoint_values(resumed / "model.ckpt-10"), expected)
    assert figures(resumed) == figures(whole)
    # An evaluation may have fixed masks: its numbers are those of a run without --dynamic_masking.
    evaluation = {
        "do_train": False,
        "do_eval": True,
        "max_eval_steps": 0,
    }
    fixed = tmp_path / "fixed"
    run(base, fixed, **evaluation, init_checkpoint=whole)
    run(base, whole, **changes | evaluation, eval_input_file=base / "records.tfrecord")
    expected_results = figures(fixed) | {"global_step": 10}
    assert figures(whole) == pytest.approx(expected_results, abs=1e-6)
    # Masks and records are no longer those of the beginning.
    os.utime(tmp_path / "records-00001-of-00002.gz", ns=(0, 2**62))
    other_masks = {
        "masked_lm_prob": 0.5,
        "do_whole_word_mask": False,
        "num_train_steps": 11,
    }
    log = run(base, resumed, **changes | other_masks)
    assert "--do_whole_word_mask=False (True before), --masked_lm_prob=0.5 (0.15 before)" in log
    new_file = f"{tmp_path}/records-00001-of-00002.gz"
    assert f"files were written anew under the same names: {new_file}; if they hold" in log
    losses = scalars(whole, "masked_lm_loss").values()
    distinct_losses = {round(loss, 5) for loss in losses}
    assert len(distinct_losses) == len(losses), "no batch has the masks of another"
