"""run_pretraining.py: the original's commands, a stop and a kill, its flags, files and folders."""

import functools
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.checkpoints import load_checkpoint
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
from official_bert.features import pretraining_features
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training import calls, precision, run_log
from official_bert.training.starting_point import seed_initial_weights
from tests import toy, training_state
from tests.checkpoints.sample import pretraining_shapes
from tests.commands.pretraining_run import (
    PREDICTIONS,
    SEQ,
    checkpoint_values,
    first_batches,
    flags_of,
    make_base,
    scalars,
    write_records,
)
from tests.fine_tuning_runs import figures
from tests.golden_model import losses_of
from tests.scripts import (
    end_of,
    flag_list,
    forked_python,
    run_here,
    run_recorded,
    run_script,
    wait_for,
)
from tests.shared import ROOT, in_test_long
from tests.training.rewinding import rewind

SCRIPT = "run_pretraining.py"
DIVERGING = {"learning_rate": 1e9, "num_warmup_steps": 0}
STEPS = 400  # of a run that is long enough to be stopped within


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def run(base, output_dir, **changes) -> str:
    """Runs the script with some flags changed, and returns its log."""
    return run_here(SCRIPT, *flag_list(**flags_of(base, output_dir, **changes))).stderr


@pytest.fixture(scope="module")
def made(base, tmp_path_factory):
    """A function that makes each run of 10 steps once, and gives its folder."""

    @functools.cache
    def folder_of(config: str = "bert_config.json", records: str = "records.tfrecord", **flags):
        folder = tmp_path_factory.mktemp("run")
        run(base, folder, bert_config_file=base / config, input_file=base / records, **flags)
        return folder

    return folder_of


def pretrained_model(base, **changes) -> BertPretrainer:
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG | changes))
    load_checkpoint(model, str(base / "bert_model.ckpt"))
    return model


@pytest.mark.usefixtures("with_grappler")
def test_the_originals_evaluation_is_reproduced(tmp_path):
    _, recorded = run_recorded("run_pretraining", tmp_path, run_here)
    actual, expected = figures(tmp_path), figures(recorded("eval_results.txt").parent)
    assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, rel=2e-5, abs=2e-5)


def test_the_originals_readme_commands(base, tmp_path):
    """Data creation and pre-training as the README has them, /tmp being a fresh folder."""
    run_here(
        "create_pretraining_data.py",
        *flag_list(
            input_file=ROOT / "sample_text.txt",
            output_file=tmp_path / "tf_examples.tfrecord",
            vocab_file=base / "vocab.txt",
            do_lower_case=True,
            max_seq_length=128,
            max_predictions_per_seq=20,
            masked_lm_prob=0.15,
            random_seed=12345,
            dupe_factor=5,
        ),
    )
    output = tmp_path / "pretraining_output"
    finished = run_script(
        SCRIPT,
        *flag_list(
            input_file=tmp_path / "tf_examples.tfrecord",
            output_dir=output,
            do_train=True,
            do_eval=True,
            bert_config_file=base / "bert_config.json",
            init_checkpoint=base / "bert_model.ckpt",
            train_batch_size=32,
            max_seq_length=128,
            max_predictions_per_seq=20,
            num_train_steps=20,
            num_warmup_steps=10,
            learning_rate=2e-5,
        ),
    )
    results = figures(output)
    assert results["global_step"] == 20
    assert sorted(results) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "next_sentence_accuracy",
        "next_sentence_loss",
    ]
    assert {path.name for path in output.iterdir() if not path.name.startswith("events.")} == {
        "bert_config.json",
        "checkpoint",
        "eval",
        "eval_results.txt",
        "run.jsonl",
        "task.json",
        "tokenizer_config.json",
        "vocab.txt",
        *(
            f"{kind}.{end}"
            for kind in ("model.ckpt-0", "model.ckpt-20", "input.ckpt-0-0", "input.ckpt-20-0")
            for end in ("index", "data-00000-of-00001")
        ),
    }
    # The original's file has no perplexity; the log and TensorBoard do, where training has the same
    # tags.
    perplexity = math.exp(results["masked_lm_loss"])
    found = scalars(output / "eval", "masked_lm_perplexity")
    assert found == {20: pytest.approx(perplexity, rel=1e-5)}
    (logged,) = re.findall(r"  masked_lm_perplexity   = (\S+)\n", finished.stderr)
    assert float(logged) == pytest.approx(perplexity, rel=1e-5)
    rows = run_log.read(str(output), run_log.TRAIN)
    assert [row["step"] for row in rows] == [10, 20]
    for tag in (
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "masked_lm_perplexity",
        "next_sentence_loss",
    ):
        assert sorted(scalars(output / "eval", tag)) == [20]
        assert scalars(output, tag) == pytest.approx({row["step"]: row[tag] for row in rows})
    assert "perplexity" not in next(
        line for line in finished.stderr.splitlines() if "step 10/20" in line
    )
    assert "30 trainable variables with" in finished.stderr
    assert "all from the checkpoint" in finished.stderr
    assert "***** Eval results *****" in finished.stderr
    assert "port.cc" not in finished.stderr, "TensorFlow's start-up messages are shown"

    values = checkpoint_values(output / "model.ckpt-20")
    weights = pretraining_shapes(BertConfig.from_dict(toy.BERT_CONFIG))
    slots = {
        f"{name}/{slot}": shape for name, shape in weights.items() for slot in ("adam_m", "adam_v")
    }
    assert {name: value.shape for name, value in values.items()} == weights | slots | {
        "global_step": ()
    }
    assert values["global_step"] == 20


@pytest.mark.parametrize(
    "strategy", ["one_device", pytest.param("mirrored", marks=pytest.mark.long)]
)
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
        "num_devices": {"mirrored": 2}.get(strategy),
    }
    output = tmp_path / "ended"
    whole, ended = (
        flag_list(**flags_of(base, tmp_path / name, **changes)) for name in ("whole", "ended")
    )
    run_script(SCRIPT, *whole)

    process = started_until(output / "model.ckpt-100.index", sys.executable, ended)
    process.terminate()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 143, log[-3000:]
    step = int(latest_checkpoint(str(output)).rpartition("-")[2])
    assert 100 <= step < STEPS
    assert f"Stopped after step {step}; {output}/model.ckpt-{step} is saved" in log
    assert run_log.read(str(output), run_log.TRAIN)[-1]["step"] == step, "no update is lost"

    process = started_until(
        output / f"input.ckpt-{(step // 50 + 1) * 50}-0.index", forked_python(), ended
    )
    process.kill()
    _, log = process.communicate(timeout=60)
    assert f"Restored checkpoint {output}/model.ckpt-{step}" in log
    assert not (output / f"model.ckpt-{STEPS}.index").exists()

    assert "Restored checkpoint" in run_script(SCRIPT, *ended).stderr
    expected = checkpoint_values(tmp_path / "whole" / f"model.ckpt-{STEPS}")
    training_state.assert_equal(checkpoint_values(output / f"model.ckpt-{STEPS}"), expected)
    for name in ("whole", "ended"):
        training_state.assert_input_is_at(
            tmp_path / name / f"input.ckpt-{STEPS}-0",
            [str(base / "records.tfrecord")],
            pretraining_features(SEQ, PREDICTIONS),
            batch_size=8,
            seed=7,
            num_read=STEPS,
        )
    moved = checkpoint_values(base / "bert_model.ckpt")
    assert any(np.abs(expected[name] - value).max() > 1e-3 for name, value in moved.items())


def started_until(file, python: str, flags: list[str]) -> subprocess.Popen:
    """Starts the script with an interpreter, and waits for a file of its run."""
    process = subprocess.Popen(
        [python, SCRIPT, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    wait_for(file.exists, process)
    return process


def test_the_rate_and_the_losses_are_those_of_each_step(made):
    rates = scalars(made(), "learning_rate")
    # After g updates the next one has LR(g): 1e-4 g/2 below 2, then 1e-4 (1 - g/10).
    expected = {g: 1e-4 * (g / 2 if g < 2 else 1 - g / 10) for g in range(1, 11)}
    assert rates == pytest.approx(expected, rel=1e-5, abs=1e-12)
    # Random ids over 50 words and a coin: the loss of a fresh model is near ln 50 + ln 2.
    assert abs(scalars(made(), "loss")[1] - math.log(50) - math.log(2)) < 0.5


def test_evaluation_without_training_takes_the_initial_checkpoint_and_files_of_its_own(
    base, tmp_path
):
    held_out = write_records(tmp_path / "held_out.tfrecord", count=32, seed=9)
    run(
        base,
        tmp_path / "out",
        do_train=False,
        do_eval=True,
        eval_input_file=held_out,
        max_eval_steps=3,
    )
    model = pretrained_model(base)
    batches = [losses_of(model, batch) for batch in first_batches(held_out, 3, 8)]
    found = figures(tmp_path / "out")
    assert found["global_step"] == 0
    np.testing.assert_allclose(
        found["loss"], np.mean([batch.total for batch in batches]), rtol=1e-5
    )
    next_losses = [batch.next_sentence for batch in batches]
    np.testing.assert_allclose(found["next_sentence_loss"], np.mean(next_losses), rtol=1e-5)
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_every_record_is_evaluated_once(base, tmp_path):
    """64 records in batches of 24, the last of which has 16, as one batch computes them without
    this code.
    """
    run(base, tmp_path, do_train=False, do_eval=True, max_eval_steps=0, eval_batch_size=24)
    found, model = figures(tmp_path), pretrained_model(base)
    (batch,) = first_batches(base / "records.tfrecord", 1, 64)
    losses, outputs = losses_of(model, batch), model(batch)
    np.testing.assert_allclose(found["masked_lm_loss"], losses.masked_lm, rtol=1e-5)
    np.testing.assert_allclose(found["next_sentence_loss"], losses.next_sentence, rtol=1e-5)
    np.testing.assert_allclose(found["loss"], losses.total, rtol=1e-5)
    is_right = np.argmax(outputs.masked_lm_logits, -1) == batch["masked_lm_ids"].reshape(-1)
    weights = batch["masked_lm_weights"].reshape(-1)
    assert weights.sum() < len(weights)
    np.testing.assert_allclose(
        found["masked_lm_accuracy"], np.average(is_right, weights=weights), rtol=1e-6
    )
    labels = batch["next_sentence_labels"].reshape(-1)
    is_right = np.argmax(outputs.next_sentence_logits, -1) == labels
    np.testing.assert_allclose(found["next_sentence_accuracy"], is_right.mean(), rtol=1e-6)


def test_random_weights_are_only_evaluated_on_purpose(base, tmp_path):
    flags = {"do_train": False, "do_eval": True, "max_eval_steps": 2, "init_checkpoint": None}
    with pytest.raises(
        InputError, match=r"--init_checkpoint: is not given, .* the weights would be random"
    ):
        run(base, tmp_path, **flags)
    run(base, tmp_path, **flags, allow_missing_weights=True)
    # Nothing is learnt: about the loss of guessing one of 50 words.
    assert figures(tmp_path)["masked_lm_loss"] == pytest.approx(math.log(50), abs=0.2)


def test_a_folder_goes_on_with_other_flags_where_it_stopped(base, tmp_path):
    """Also with another type, on other records, and without its input file, as one of TF1."""
    log = run(base, tmp_path, num_train_steps=2, random_seed=None)
    assert "with other flags than before" not in log
    log = run(
        base, tmp_path, num_train_steps=4, random_seed=None, optimizer_type="lamb", dtype="float16"
    )
    assert "other records" not in log
    assert (
        f"{tmp_path} goes on from step 2 with other flags than before: --dtype=float16 (float32 "
        "before), "
        "--optimizer_type=lamb (adamw before), --num_train_steps=4 (2 before)\n" in log
    )
    assert loss_scale_in(tmp_path / "input.ckpt-4-0") == {
        "loss_scale": 2.0**15,
        "updates_at_loss_scale": 2,
    }
    changes = {"dtype": "bfloat16", "train_batch_size": 4}
    other = write_records(tmp_path / "other.tfrecord", seed=5)
    run(base, tmp_path, num_train_steps=6, random_seed=None, input_file=other, **changes)
    assert loss_scale_in(tmp_path / "input.ckpt-6-0") == {}
    for path in tmp_path.glob("input.ckpt-*"):
        path.unlink()
    run(base, tmp_path, num_train_steps=7, random_seed=None)
    run(base, tmp_path, num_train_steps=7, random_seed=None)  # nothing left to do
    lines = run_log.read(str(tmp_path), run_log.START)
    assert len({line["seed"] for line in lines[:3]}) == 1, "the drawn seed stays with the run"
    assert lines[1]["flags"]["num_train_steps"] == 4
    assert sorted(scalars(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6, 7]
    assert checkpoint_values(tmp_path / "model.ckpt-7")["global_step"] == 7


def test_the_same_seed_gives_the_same_run(base, tmp_path, monkeypatch):
    """Whatever the number of steps in a call into TensorFlow, which a slow machine makes one by
    one.
    """
    fresh = {"init_checkpoint": None, "num_train_steps": 3, "log_every_steps": 3}
    run(base, tmp_path / "a", **fresh)
    monkeypatch.setattr(calls, "CALL_SECS", 1e-9)
    run(base, tmp_path / "b", **fresh)
    a, b = (checkpoint_values(tmp_path / name / "model.ckpt-3") for name in "ab")
    training_state.assert_equal(a, b)
    (row,), (other,) = (run_log.read(str(tmp_path / name), run_log.TRAIN) for name in "ab")
    assert [row[name] for name in ("loss", "gradient_norm")] == [
        other[name] for name in ("loss", "gradient_norm")
    ]
    # The weights that a run begins with follow its seed.
    table = "bert/embeddings/word_embeddings"
    first_values = checkpoint_values(tmp_path / "a" / "model.ckpt-0")[table]
    for seed, is_same in ((7, True), (8, False)):
        seed_initial_weights(seed)
        model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
        assert np.array_equal(first_values, np.asarray(model.bert.embedding_table)) is is_same


def loss_scale_in(prefix) -> dict[str, float]:
    """The state of the loss scale beside a checkpoint."""
    reader, ending = tf.train.load_checkpoint(str(prefix)), "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [name for name in reader.get_variable_to_shape_map() if "loss_scale" in name]
    return {name.removesuffix(ending): reader.get_tensor(name) for name in names}


@pytest.mark.parametrize("dtype", ["float16", *in_test_long("bfloat16")])
def test_a_run_in_16_bits_resumes_with_the_same_bits(base, made, tmp_path, dtype, monkeypatch):
    """The loss scale is doubled after three updates, so that it stands between two values when
    the run stops.
    """
    monkeypatch.setattr(precision, "GROWTH_UPDATES", 3)
    flags = {"dtype": dtype, "num_accumulation_steps": 2}
    whole, resumed = (tmp_path / name for name in ("whole", "resumed"))
    run(base, whole, **flags, save_checkpoints_steps=4)
    rewind(whole, resumed, step=4)
    run(base, resumed, **flags)
    expected = checkpoint_values(whole / "model.ckpt-10")
    assert {value.dtype for value in expected.values()} == {
        np.dtype(np.float32),
        np.dtype(np.int64),
    }
    training_state.assert_equal(checkpoint_values(resumed / "model.ckpt-10"), expected)
    scale, again = (loss_scale_in(folder / "input.ckpt-10-0") for folder in (whole, resumed))
    assert (
        scale
        == again
        == ({} if dtype == "bfloat16" else {"loss_scale": 2.0**18, "updates_at_loss_scale": 1})
    )
    assert not any("scale" in name for name in expected), "a TF1 program knows no loss scale"

    log = run_log.read(str(whole), run_log.TRAIN)
    if dtype == "float16":
        assert [row["loss_scale"] / 2**15 for row in log] == [1, 1, 2, 2, 2, 4, 4, 4, 8, 8]
        assert {row["skipped_updates"] for row in log} == {0}
    # In float32 with the same dropout masks.
    losses = [
        list(scalars(folder, "loss").values()) for folder in (made(num_accumulation_steps=2), whole)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-4 if dtype == "bfloat16" else 2e-5)
    assert losses[0] != losses[1]


def test_reports_and_the_summary_of_two_runs_and_old_checkpoints_go(base, tmp_path):
    """The norm is that of the gradient, before clipping."""
    flags = {"num_warmup_steps": 0, "learning_rate": 1e-3, "log_every_steps": 2}
    run(base, tmp_path, **flags, num_train_steps=6)
    run(
        base, tmp_path, **flags, num_train_steps=10, save_checkpoints_steps=2, keep_checkpoint_max=2
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
        row, updates_per_second = rows[step], rows[step]["examples_per_second"] / 8
        tokens = row["tokens_per_second"] / updates_per_second
        assert tokens == pytest.approx(positions / 2, rel=0.2)  # half of a random mask is padding
        assert 2 * tokens == pytest.approx(round(2 * tokens))  # of two whole updates
        assert 0.01 < row["gradient_norm"] < 100
        assert row["memory_mb"] > 100
    first, second = run_log.read(str(tmp_path), run_log.END)
    assert (first["ended"], first["updates"], first["last_step"], first["restarts"]) == (
        "finished",
        6,
        6,
        0,
    )
    assert (second["ended"], second["updates"], second["last_step"], second["restarts"]) == (
        "finished",
        4,
        10,
        1,
    )
    assert second["total_wall_secs"] == pytest.approx(first["wall_secs"] + second["wall_secs"])
    assert second["last_checkpoint"] == str(tmp_path / "model.ckpt-10")
    assert second["final_loss"] == pytest.approx(rows[10]["loss"], rel=1e-6)
    assert second["skipped_updates"] == 0


def test_the_gradient_norm_is_that_of_the_whole_batch(base, made):
    """The first update, by a tape around the objective."""
    model = pretrained_model(base, **toy.NO_DROPOUT)
    limits = pretraining_limits(len(toy.VOCABULARY), 2, SEQ)
    features = pretraining_features(SEQ, PREDICTIONS)
    seed_initial_weights(7)
    (batch,) = training_dataset([str(base / "padded.tfrecord")], features, 8, 7, limits).take(1)
    objective = PretrainingObjective(model, 8)
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.totals(batch), None)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    expected = np.sqrt(sum(np.sum(np.square(tf.convert_to_tensor(one))) for one in gradients))
    for flags in ({}, {"num_accumulation_steps": 4}):
        row, *_ = run_log.read(
            str(made("no_dropout.json", "padded.tfrecord", **flags)), run_log.TRAIN
        )
        assert row["gradient_norm"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "records", "flags"),
    [
        ("no_dropout.json", "padded.tfrecord", {"num_accumulation_steps": 4}),
        ("bert_config.json", "records.tfrecord", {"recompute_layers": True}),
        *in_test_long(
            (
                "no_dropout.json",
                "records.tfrecord",
                {"recompute_layers": True, "jit_compile": True, "num_accumulation_steps": 2},
            ),
            (
                "no_dropout.json",
                "padded.tfrecord",
                {"recompute_layers": True, "num_accumulation_steps": 2},
            ),
        ),
    ],
)
def test_parts_and_recomputation_give_the_numbers_of_the_plain_run(made, config, records, flags):
    """The micro-batches have unequal numbers of predictions; recomputed layers draw the same
    masks again.
    """
    folders = made(config, records), made(config, records, **flags)
    losses = [scalars(folder, "loss") for folder in folders]
    weights = [checkpoint_values(folder / "model.ckpt-10") for folder in folders]
    differences = [abs(losses[0][step] - losses[1][step]) for step in range(1, 11)]
    assert max(differences) < 1e-5
    training_state.assert_close(weights[1], weights[0], weights=1e-6, first_moments=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False}, "nothing to do: give --do_train or --do_eval"),
        ({"input_file": "absent-*.tfrecord"}, "--input_file: no file matches 'absent-"),
        ({"eval_input_file": "absent", "do_eval": True}, "--eval_input_file: no file matches"),
        ({"bert_config_file": "absent.json"}, "absent.json"),
        ({"init_checkpoint": "absent.ckpt"}, "absent.ckpt: no checkpoint there"),
        ({"max_seq_length": 513}, "--max_seq_length=513.*max_position_embeddings=512"),
        ({"max_seq_length": 23}, r"records.tfrecord: record 0 \(from 0\).*24 values where 23"),
        ({"random_seed": 2**63}, "--random_seed=9223372036854775808: must fit 64 bits"),
        (
            DIVERGING | {"dtype": "float16"},
            "float16 overflows whatever the loss scale is, which has sunk to 0.5; lower "
            "--learning_rate",
        ),
        *(
            (
                {"train_batch_size_ramp": ramp, "train_batch_size_boundaries": shares},
                f"--train_batch_size_{message}",
            )
            for ramp, shares, message in (
                ("12", "0.5", "ramp=12: '12' must be a larger multiple of .* here 8, than"),
                ("16,8", "0.5,0.7", "ramp=16,8: '8' must be a larger multiple"),
                ("many", "0.5", "ramp=many: 'many' must be a larger multiple"),
                ("16,32", "0.5,0.5", "boundaries=0.5,0.5: '0.5' must be .* at least an update"),
                ("16", "1", "boundaries=1: '1' must be a share of the updates"),
                ("16", "late", "boundaries=late: 'late' must be a share of the updates"),
                ("16,32", "0.5", "ramp=16,32: has 2 sizes, and --train_batch_size_boundaries 1 sh"),
            )
        ),
        (
            {"train_batch_size_ramp": "16:0.5,32:0.7"},
            "--train_batch_size_ramp=16:0.5,32:0.7: the sizes and their boundaries are now "
            "--train_batch_size_ramp=16,32 --train_batch_size_boundaries=0.5,0.7",
        ),
        (
            {"train_batch_size_boundaries": "0.5"},
            "--train_batch_size_boundaries=0.5: has no effect without --train_batch_size_ramp",
        ),
        ({"max_train_hours": 0}, "--max_train_hours=0"),
        # Of masks that cannot be drawn; no vocabulary lies beside the config.
        ({"dynamic_masking": True, "vocab_file": None}, "--dynamic_masking: needs the vocabulary"),
        (
            {"do_whole_word_mask": True},
            "--do_whole_word_mask: the records have their masks; give --dynamic_masking",
        ),
        ({"masked_lm_prob": 0.2}, "--masked_lm_prob: the records have their masks"),
    ],
)
def test_what_cannot_be_used_is_named(base, tmp_path, changes, message):
    config = tmp_path / "bert_config.json"
    config.write_text((base / "bert_config.json").read_text())
    flags = {
        "bert_config_file": config,
        "init_checkpoint": None,
        "vocab_file": base / "vocab.txt",
    } | changes
    ended = end_of(SCRIPT, *flag_list(**flags_of(base, tmp_path / "out", **flags)))
    assert re.search(message, ended.sentence)
    assert "\n" not in ended.sentence


@pytest.mark.long
def test_the_memory_is_that_of_a_micro_batch(base, tmp_path):
    """Four of them against one, of a model that is large enough for its activations to be seen."""
    config = toy.BERT_CONFIG | {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
    }
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    peaks = []
    for count in (1, 4):
        changes = {
            "train_batch_size": 256 * count,
            "num_accumulation_steps": count,
            "num_train_steps": 3,
        }
        files = {"bert_config_file": tmp_path / "bert_config.json", "init_checkpoint": None}
        run_script(SCRIPT, *flag_list(**flags_of(base, tmp_path / str(count), **files, **changes)))
        peaks.append(run_log.read(str(tmp_path / str(count)), "end")[0]["memory_mb"])
    assert peaks[1] < 1.2 * peaks[0]


def test_larger_batches_hold_the_records_that_come_next(base, tmp_path):
    """With a rate of 0 the losses of an update are those of its parts, which a run without the
    ramp has one by one.
    """
    flags = {
        "bert_config_file": base / "no_dropout.json",
        "learning_rate": 0.0,
        "train_batch_size": 4,
    }
    run(base, tmp_path / "plain", **flags, num_train_steps=16)
    ramp_flags = {"train_batch_size_ramp": "8,12", "train_batch_size_boundaries": "0.25,0.75"}
    run(base, tmp_path / "ramp", **flags, **ramp_flags, num_train_steps=8)
    plain, ramp = (
        list(scalars(tmp_path / name, "next_sentence_loss").values()) for name in ("plain", "ramp")
    )
    parts = [1, 1, 2, 2, 2, 2, 3, 3]
    expected = [
        np.mean(plain[end - count : end])
        for count, end in zip(parts, np.cumsum(parts), strict=True)
    ]
    np.testing.assert_allclose(ramp, expected, rtol=1e-5)


def test_without_next_sentence_loss_pooler_and_head_stay(base, tmp_path):
    run(base, tmp_path, use_next_sentence=False, num_train_steps=3, do_eval=True, max_eval_steps=0)
    before, after = (
        checkpoint_values(base / "bert_model.ckpt"),
        checkpoint_values(tmp_path / "model.ckpt-3"),
    )
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }
    found = figures(tmp_path)
    assert found["loss"] == found["masked_lm_loss"]


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
    whole, resumed = (tmp_path / name for name in ("whole", "resumed"))
    run(base, whole, **changes)
    rewind(whole, resumed, step=4)
    run(base, resumed, **changes)
    expected = checkpoint_values(whole / "model.ckpt-10")
    training_state.assert_equal(checkpoint_values(resumed / "model.ckpt-10"), expected)
    assert figures(resumed) == figures(whole)
    # An evaluation may have fixed masks: its numbers are those of a run without --dynamic_masking.
    evaluation = {"do_train": False, "do_eval": True, "max_eval_steps": 0}
    fixed = tmp_path / "fixed"
    run(base, fixed, **evaluation, init_checkpoint=whole)
    run(base, whole, **changes | evaluation, eval_input_file=base / "records.tfrecord")
    assert figures(whole) == pytest.approx(figures(fixed) | {"global_step": 10}, abs=1e-6)
    # Masks and records are no longer those of the beginning.
    os.utime(tmp_path / "records-00001-of-00002.gz", ns=(0, 2**62))
    log = run(
        base,
        resumed,
        **changes | {"masked_lm_prob": 0.5, "do_whole_word_mask": False, "num_train_steps": 11},
    )
    assert "--do_whole_word_mask=False (True before), --masked_lm_prob=0.5 (0.15 before)" in log
    assert (
        f"files were written anew under the same names: {tmp_path}/records-00001-of-00002.gz; if "
        "they hold" in log
    )
    losses = list(scalars(whole, "masked_lm_loss").values())
    assert len({round(loss, 5) for loss in losses}) == len(losses), (
        "no batch has the masks of another"
    )
