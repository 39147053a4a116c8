"""run_pretraining.py: the original's commands, its flags, numbers, files and messages.

What happens after stops, kills and further runs is in test_run_pretraining_resumption.py.
"""

import functools
import json
import math
import re

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.checkpoints import load_checkpoint
from official_bert.data.records.pretraining_input import pretraining_limits, training_dataset
from official_bert.features import pretraining_features
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training import calls, run_log
from official_bert.training.starting_point import seed_initial_weights
from tests import toy, training_state
from tests.checkpoints.sample import pretraining_shapes
from tests.commands.pretraining_run import (
    PREDICTIONS,
    SCRIPT,
    SEQ,
    checkpoint_values,
    first_batches,
    flags_of,
    make_base,
    run,
    scalars,
    write_records,
)
from tests.fine_tuning_runs import figures
from tests.golden_model import losses_of
from tests.scripts import end_of, flag_list, run_here, run_recorded, run_script
from tests.shared import ROOT

TRAINING_RECORDS = "The evaluation reads the records of the training"
DIVERGING = {"learning_rate": 1e9, "num_warmup_steps": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


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
    """The model of the initial checkpoint."""
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG | changes))
    load_checkpoint(model, str(base / "bert_model.ckpt"))
    return model


@pytest.mark.usefixtures("with_grappler")
def test_the_originals_evaluation_is_reproduced(tmp_path):
    _, recorded = run_recorded("run_pretraining", tmp_path, run_here)
    actual = figures(tmp_path)
    expected = figures(recorded("eval_results.txt").parent)
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
    assert TRAINING_RECORDS in finished.stderr
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
    names = {path.name for path in output.iterdir()}
    event_files = {name for name in names if name.startswith("events.")}
    checkpoint_files = set()
    for prefix in ("model.ckpt-20", "input.ckpt-20-0"):
        checkpoint_files |= {f"{prefix}.index", f"{prefix}.data-00000-of-00001"}
    assert names - event_files == {
        "bert_config.json",
        "checkpoint",
        "eval",
        "eval_results.txt",
        "run.jsonl",
        "task.json",
        "tokenizer_config.json",
        "vocab.txt",
        *checkpoint_files,
    }
    # The original's file has no perplexity; the log and TensorBoard do, where training has the same
    # tags.
    perplexity = pytest.approx(math.exp(results["masked_lm_loss"]), rel=1e-5)
    assert scalars(output / "eval", "masked_lm_perplexity") == {20: perplexity}
    (logged,) = re.findall(r"  masked_lm_perplexity   = (\S+)\n", finished.stderr)
    assert float(logged) == perplexity
    rows = run_log.read(str(output), run_log.TRAIN)
    assert [row["step"] for row in rows] == list(range(1, 21))
    for tag in (
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "masked_lm_perplexity",
        "next_sentence_loss",
    ):
        values = {row["step"]: row[tag] for row in rows}
        assert sorted(scalars(output / "eval", tag)) == [20]
        assert scalars(output, tag) == pytest.approx(values)
    first_line, *_ = [line for line in finished.stderr.splitlines() if "step 10/20" in line]
    assert "perplexity" not in first_line
    assert "30 trainable variables with" in finished.stderr
    assert "all from the checkpoint" in finished.stderr
    assert "***** Eval results *****" in finished.stderr
    assert "port.cc" not in finished.stderr, "TensorFlow's start-up messages are shown"

    values = checkpoint_values(output / "model.ckpt-20")
    shapes = {name: value.shape for name, value in values.items()}
    expected = {"global_step": ()}
    for name, shape in pretraining_shapes(BertConfig.from_dict(toy.BERT_CONFIG)).items():
        expected[name] = shape
        expected[f"{name}/adam_m"] = shape
        expected[f"{name}/adam_v"] = shape
    assert shapes == expected
    assert values["global_step"] == 20


def test_the_rate_and_the_losses_are_those_of_each_step(made):
    # After g updates the next one has LR(g): 1e-4 g/2 below 2, then 1e-4 (1 - g/10).
    expected = {1: 1e-4 / 2}
    for g in range(2, 11):
        expected[g] = 1e-4 * (1 - g / 10)
    rates = scalars(made(), "learning_rate")
    assert rates == pytest.approx(expected, rel=1e-5, abs=1e-12)
    # Random ids over 50 words and a coin: the loss of a fresh model is near ln 50 + ln 2.
    first_loss = scalars(made(), "loss")[1]
    assert abs(first_loss - math.log(50) - math.log(2)) < 0.5


def test_evaluation_without_training_takes_the_initial_checkpoint_and_files_of_its_own(
    base, tmp_path
):
    held_out = write_records(tmp_path / "held_out.tfrecord", count=32, seed=9)
    log = run(
        base,
        tmp_path / "out",
        do_train=False,
        do_eval=True,
        eval_input_file=held_out,
        max_eval_steps=3,
    )
    assert TRAINING_RECORDS not in log
    model = pretrained_model(base)
    batches = [losses_of(model, batch) for batch in first_batches(held_out, 3, 8)]
    results = figures(tmp_path / "out")
    loss = np.mean([batch.total for batch in batches])
    next_sentence_loss = np.mean([batch.next_sentence for batch in batches])
    assert results["global_step"] == 0
    np.testing.assert_allclose(results["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(results["next_sentence_loss"], next_sentence_loss, rtol=1e-5)
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_every_record_is_evaluated_once(base, tmp_path):
    """64 records in batches of 24, the last of which has 16, as one batch computes them without
    this code.
    """
    # An earlier training had the same records.
    flags = {"input_file": [str(base / "records.tfrecord")]}
    run_log.write(str(tmp_path), run_log.START, {"num_updates": 3, "flags": flags})
    log = run(base, tmp_path, do_train=False, do_eval=True, max_eval_steps=0, eval_batch_size=24)
    assert TRAINING_RECORDS in log
    results = figures(tmp_path)
    model = pretrained_model(base)
    (batch,) = first_batches(base / "records.tfrecord", 1, 64)
    losses = losses_of(model, batch)
    np.testing.assert_allclose(results["masked_lm_loss"], losses.masked_lm, rtol=1e-5)
    np.testing.assert_allclose(results["next_sentence_loss"], losses.next_sentence, rtol=1e-5)
    np.testing.assert_allclose(results["loss"], losses.total, rtol=1e-5)

    outputs = model(batch)
    predicted_ids = np.argmax(outputs.masked_lm_logits, -1)
    is_right = predicted_ids == batch["masked_lm_ids"].reshape(-1)
    weights = batch["masked_lm_weights"].reshape(-1)
    assert weights.sum() < len(weights)
    accuracy = np.average(is_right, weights=weights)
    np.testing.assert_allclose(results["masked_lm_accuracy"], accuracy, rtol=1e-6)

    predicted_labels = np.argmax(outputs.next_sentence_logits, -1)
    is_right = predicted_labels == batch["next_sentence_labels"].reshape(-1)
    np.testing.assert_allclose(results["next_sentence_accuracy"], is_right.mean(), rtol=1e-6)

    tokens = np.bincount(batch["masked_lm_ids"].reshape(-1)[weights > 0])
    labels = np.bincount(batch["next_sentence_labels"].reshape(-1))
    constant = (
        f"Accuracy of constant predictions: always the most frequent token "
        f"{tokens.max() / tokens.sum():.1%}, always the more frequent next-sentence label "
        f"{labels.max() / labels.sum():.1%}"
    )
    assert constant in log


def test_random_weights_are_only_evaluated_on_purpose(base, tmp_path):
    flags = {
        "do_train": False,
        "do_eval": True,
        "max_eval_steps": 2,
        "init_checkpoint": None,
    }
    message = r"--init_checkpoint: is not given, .* the weights would be random"
    with pytest.raises(InputError, match=message):
        run(base, tmp_path, **flags)
    run(base, tmp_path, **flags, allow_missing_weights=True)
    # Nothing is learnt: about the loss of guessing one of 50 words.
    assert figures(tmp_path)["masked_lm_loss"] == pytest.approx(math.log(50), abs=0.2)


def test_the_same_seed_gives_the_same_run(base, tmp_path, monkeypatch):
    """Whatever the number of steps in a call into TensorFlow, which a slow machine makes one by
    one.
    """
    flags = {
        "init_checkpoint": None,
        "num_train_steps": 3,
        "log_every_steps": 3,
        "keep_checkpoint_max": 0,  # also that of step 0
    }
    one = tmp_path / "one"
    other = tmp_path / "other"
    run(base, one, **flags)
    monkeypatch.setattr(calls, "CALL_SECS", 1e-9)
    run(base, other, **flags)
    training_state.assert_equal(
        checkpoint_values(one / "model.ckpt-3"),
        checkpoint_values(other / "model.ckpt-3"),
    )
    (row,) = run_log.read(str(one), run_log.TRAIN)
    (other_row,) = run_log.read(str(other), run_log.TRAIN)
    assert row["loss"] == other_row["loss"]
    assert row["gradient_norm"] == other_row["gradient_norm"]
    # The weights that a run begins with follow its seed.
    first_values = checkpoint_values(one / "model.ckpt-0")["bert/embeddings/word_embeddings"]
    assert np.array_equal(first_values, initial_word_embeddings(seed=7))
    assert not np.array_equal(first_values, initial_word_embeddings(seed=8))


def initial_word_embeddings(seed: int) -> np.ndarray:
    """The word embeddings of a new model that is initialised with a seed."""
    seed_initial_weights(seed)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    return np.asarray(model.bert.embedding_table)


def test_the_gradient_norm_is_that_of_the_whole_batch(base, made):
    """The first update, by a tape around the objective."""
    model = pretrained_model(base, **toy.NO_DROPOUT)
    limits = pretraining_limits(len(toy.VOCABULARY), 2, SEQ)
    features = pretraining_features(SEQ, PREDICTIONS)
    seed_initial_weights(7)
    dataset = training_dataset([str(base / "padded.tfrecord")], features, 8, 7, limits)
    (batch,) = dataset.take(1)
    objective = PretrainingObjective(model, 8)
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.totals(batch), None)
    weights = [weight.value for weight in model.trainable_variables]
    square_sums = []
    for gradient in tape.gradient(loss, weights):
        squares = np.square(tf.convert_to_tensor(gradient))
        square_sums.append(np.sum(squares))
    expected = np.sqrt(sum(square_sums))
    for flags in ({}, {"num_accumulation_steps": 4}):
        folder = made("no_dropout.json", "padded.tfrecord", **flags)
        row, *_ = run_log.read(str(folder), run_log.TRAIN)
        assert row["gradient_norm"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "records", "flags"),
    [
        pytest.param(
            "bert_config.json",
            "padded.tfrecord",
            {"num_accumulation_steps": 4},
            id="micro-batches",
        ),
        pytest.param(
            "bert_config.json",
            "records.tfrecord",
            {"recompute_layers": True},
            id="recomputation",
        ),
        pytest.param(
            "bert_config.json",
            "records.tfrecord",
            {
                "recompute_layers": True,
                "jit_compile": True,
                "num_accumulation_steps": 2,
            },
            id="recomputation, micro-batches, XLA",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "bert_config.json",
            "padded.tfrecord",
            {"recompute_layers": True, "num_accumulation_steps": 2},
            id="recomputation, micro-batches",
            marks=pytest.mark.long,
        ),
    ],
)
def test_parts_and_recomputation_give_the_numbers_of_the_plain_run(made, config, records, flags):
    """The micro-batches have unequal numbers of predictions; recomputed layers draw the same
    masks again.
    """
    plain = made(config, records)
    changed = made(config, records, **flags)
    losses = scalars(changed, "loss")
    expected = scalars(plain, "loss")
    for step in range(1, 11):
        assert abs(losses[step] - expected[step]) < 1e-5
    training_state.assert_close(
        checkpoint_values(changed / "model.ckpt-10"),
        checkpoint_values(plain / "model.ckpt-10"),
        weights=1e-6,
        first_moments=1e-7,
    )


def bad_ramp(ramp: str, shares: str, message: str, name: str):
    """A case of flags of a growing batch size, and the end of the message about them."""
    return pytest.param(
        {"train_batch_size_ramp": ramp, "train_batch_size_boundaries": shares},
        f"--train_batch_size_{message}",
        id=name,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"do_train": False},
            "nothing to do: give --do_train or --do_eval",
            id="nothing to do",
        ),
        pytest.param(
            {"input_file": "absent-*.tfrecord"},
            "--input_file: no file matches 'absent-",
            id="absent records",
        ),
        pytest.param(
            {"eval_input_file": "absent", "do_eval": True},
            "--eval_input_file: no file matches",
            id="absent records of the evaluation",
        ),
        pytest.param(
            {"bert_config_file": "absent.json"},
            "absent.json",
            id="absent config",
        ),
        pytest.param(
            {"init_checkpoint": "absent.ckpt"},
            "absent.ckpt: no checkpoint there",
            id="absent checkpoint",
        ),
        pytest.param(
            {"max_seq_length": 513},
            "--max_seq_length=513.*max_position_embeddings=512",
            id="longer than the position embeddings",
        ),
        pytest.param(
            {"max_seq_length": 23},
            r"records.tfrecord: record 0 \(from 0\).*24 values where 23",
            id="other length than the records",
        ),
        pytest.param(
            {"random_seed": 2**63},
            "--random_seed=9223372036854775808: must fit 64 bits",
            id="seed of 65 bits",
        ),
        pytest.param(
            DIVERGING | {"dtype": "float16"},
            "float16 overflows whatever the loss scale is, which has sunk to 0.5; lower "
            "--learning_rate",
            id="overflows of float16",
        ),
        bad_ramp(
            ramp="12",
            shares="0.5",
            message="ramp=12: '12' must be a larger multiple of .* here 8, than",
            name="ramp: no multiple",
        ),
        bad_ramp(
            ramp="16,8",
            shares="0.5,0.7",
            message="ramp=16,8: '8' must be a larger multiple",
            name="ramp: sizes that fall",
        ),
        bad_ramp(
            ramp="many",
            shares="0.5",
            message="ramp=many: 'many' must be a larger multiple",
            name="ramp: a word as a size",
        ),
        bad_ramp(
            ramp="16,32",
            shares="0.5,0.5",
            message="boundaries=0.5,0.5: '0.5' must be .* at least an update",
            name="ramp: equal boundaries",
        ),
        bad_ramp(
            ramp="16",
            shares="1",
            message="boundaries=1: '1' must be a share of the updates",
            name="ramp: a boundary at the end",
        ),
        bad_ramp(
            ramp="16",
            shares="late",
            message="boundaries=late: 'late' must be a share of the updates",
            name="ramp: a word as a boundary",
        ),
        bad_ramp(
            ramp="16,32",
            shares="0.5",
            message="ramp=16,32: has 2 sizes, and --train_batch_size_boundaries 1 sh",
            name="ramp: too few boundaries",
        ),
        pytest.param(
            {"train_batch_size_ramp": "16:0.5,32:0.7"},
            "--train_batch_size_ramp=16:0.5,32:0.7: the sizes and their boundaries are now "
            "--train_batch_size_ramp=16,32 --train_batch_size_boundaries=0.5,0.7",
            id="ramp: the former notation",
        ),
        pytest.param(
            {"train_batch_size_boundaries": "0.5"},
            "--train_batch_size_boundaries=0.5: has no effect without --train_batch_size_ramp",
            id="boundaries without a ramp",
        ),
        pytest.param(
            {"max_train_hours": 0},
            "--max_train_hours=0",
            id="no time",
        ),
        # There is no vocabulary beside the config.
        pytest.param(
            {"dynamic_masking": True, "vocab_file": None},
            "--dynamic_masking: needs the vocabulary",
            id="dynamic masks without a vocabulary",
        ),
        pytest.param(
            {"do_whole_word_mask": True},
            "--do_whole_word_mask: the records have their masks; give --dynamic_masking",
            id="whole words of records with masks",
        ),
        pytest.param(
            {"masked_lm_prob": 0.2},
            "--masked_lm_prob: the records have their masks",
            id="share of masks of records with masks",
        ),
    ],
)
def test_what_cannot_be_used_is_named(base, tmp_path, changes, message):
    config = tmp_path / "bert_config.json"
    config.write_text((base / "bert_config.json").read_text())
    files = {
        "bert_config_file": config,
        "init_checkpoint": None,
        "vocab_file": base / "vocab.txt",
    }
    flags = flags_of(base, tmp_path / "out", **files | changes)
    ended = end_of(SCRIPT, *flag_list(**flags))
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

    def measure_memory(num_micro_batches: int) -> float:
        folder = tmp_path / str(num_micro_batches)
        flags = flags_of(
            base,
            folder,
            bert_config_file=tmp_path / "bert_config.json",
            init_checkpoint=None,
            train_batch_size=256 * num_micro_batches,
            num_accumulation_steps=num_micro_batches,
            num_train_steps=3,
        )
        run_script(SCRIPT, *flag_list(**flags))
        (line,) = run_log.read(str(folder), "end")
        return line["memory_mb"]

    expected = measure_memory(1)
    assert measure_memory(4) < 1.2 * expected


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
    ramp_flags = {
        "train_batch_size_ramp": "8,12",
        "train_batch_size_boundaries": "0.25,0.75",
    }
    run(base, tmp_path / "ramp", **flags, **ramp_flags, num_train_steps=8)
    part_losses = iter(scalars(tmp_path / "plain", "next_sentence_loss").values())
    expected = []
    for num_parts in (1, 1, 2, 2, 2, 2, 3, 3):
        parts = [next(part_losses) for _ in range(num_parts)]
        expected.append(np.mean(parts))
    assert not list(part_losses)
    losses = scalars(tmp_path / "ramp", "next_sentence_loss")
    np.testing.assert_allclose(list(losses.values()), expected, rtol=1e-5)


def test_without_next_sentence_loss_pooler_and_head_stay(base, tmp_path):
    run(
        base,
        tmp_path,
        use_next_sentence=False,
        num_train_steps=3,
        do_eval=True,
        max_eval_steps=0,
    )
    before = checkpoint_values(base / "bert_model.ckpt")
    after = checkpoint_values(tmp_path / "model.ckpt-3")
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }
    results = figures(tmp_path)
    assert results["loss"] == results["masked_lm_loss"]
