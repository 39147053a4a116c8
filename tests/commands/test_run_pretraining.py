"""Tests a pre-training run with its flags, files and folders, in one process."""

import functools
import json
import math
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.checkpoints import load_checkpoint
from official_bert.commands import create_pretraining_data
from official_bert.data.records.pretraining_input import count_records, pretraining_limits, training_dataset
from official_bert.features import pretraining_features
from official_bert.fine_tuning.pretrain import pretrain
from official_bert.modeling.flops import training_flops
from official_bert.options.data_tools import PretrainingDataOptions
from official_bert.options.training import PretrainingOptions
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training import precision, run_log
from official_bert.training.starting_point import seed_initial_weights
from tests import toy, training_state
from tests.commands.pretraining_run import PREDICTIONS, SEQ, checkpoint_values, flags_of, scalars, write_records
from tests.golden_model import losses_of
from tests.scripts import flag_list, run_here, run_script

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = toy.make_bert_base_dir(tmp_path_factory.mktemp("base"))
    write_records(folder / "records.tfrecord")
    write_records(folder / "padded.tfrecord", is_padded=True)
    return folder


def run(folder, output_dir, **changes):
    flags = {name: str(v) if not isinstance(v, (bool, int, float, list)) else v
             for name, v in flags_of(folder, output_dir, **changes).items()}  # fmt: skip
    for name in ("input_file", "eval_input_file"):
        if name in flags:
            flags[name] = str(flags[name]).split(",")
    pretrain(PretrainingOptions(**flags))


def results(output_dir) -> dict[str, float]:
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def test_the_rate_and_the_losses_are_those_of_each_step(base, tmp_path):
    run(base, tmp_path)
    rates = scalars(tmp_path, "learning_rate")
    # After g updates the next one has LR(g): 1e-4 g/2 below 2, then 1e-4 (1 - g/10).
    expected = {g: 1e-4 * (g / 2 if g < 2 else 1 - g / 10) for g in range(1, 11)}
    assert sorted(rates) == sorted(expected)
    for step, rate in expected.items():
        assert math.isclose(rates[step], rate, rel_tol=1e-5, abs_tol=1e-12)
    # Random ids over 50 words and a coin: the loss of a fresh model is near ln 50 + ln 2.
    assert abs(scalars(tmp_path, "loss")[1] - math.log(50) - math.log(2)) < 0.5


def test_evaluation_without_training_takes_the_initial_checkpoint(base, tmp_path):
    run(base, tmp_path / "given", do_train=False, do_eval=True, max_eval_steps=3)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    load_checkpoint(model, str(base / "bert_model.ckpt"))
    batches = [losses_of(model, batch) for batch in first_batches(base / "records.tfrecord", 3, 8)]

    found = results(tmp_path / "given")
    assert found["global_step"] == 0
    np.testing.assert_allclose(found["loss"], np.mean([batch.total for batch in batches]), rtol=1e-5)
    next_losses = [batch.next_sentence for batch in batches]
    np.testing.assert_allclose(found["next_sentence_loss"], np.mean(next_losses), rtol=1e-5)
    assert not (tmp_path / "given" / "checkpoint").exists()


def test_every_record_is_evaluated_once(base, tmp_path):
    """64 records in batches of 24, the last of which has 16, as one batch computes them without this code."""
    run(base, tmp_path / "all", do_train=False, do_eval=True, max_eval_steps=0, eval_batch_size=24)
    found = results(tmp_path / "all")
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    load_checkpoint(model, str(base / "bert_model.ckpt"))
    (batch,) = first_batches(base / "records.tfrecord", 1, 64)
    losses, outputs = losses_of(model, batch), model(batch)
    np.testing.assert_allclose(found["masked_lm_loss"], losses.masked_lm, rtol=1e-5)
    np.testing.assert_allclose(found["next_sentence_loss"], losses.next_sentence, rtol=1e-5)
    np.testing.assert_allclose(found["loss"], losses.total, rtol=1e-5)
    is_right = np.argmax(outputs.masked_lm_logits, -1) == batch["masked_lm_ids"].reshape(-1)
    weights = batch["masked_lm_weights"].reshape(-1)
    assert weights.sum() < len(weights)
    np.testing.assert_allclose(found["masked_lm_accuracy"], np.average(is_right, weights=weights), rtol=1e-6)
    labels = batch["next_sentence_labels"].reshape(-1)
    is_right = np.argmax(outputs.next_sentence_logits, -1) == labels
    np.testing.assert_allclose(found["next_sentence_accuracy"], is_right.mean(), rtol=1e-6)

    run(base, tmp_path / "large", do_train=False, do_eval=True, max_eval_steps=0, eval_batch_size=100)
    assert results(tmp_path / "large") == pytest.approx(found, rel=1e-5)


def first_batches(path, count, batch_size):
    from official_bert.data.records.framing import read_examples

    records = [record for _, record in read_examples(str(path))]
    for k in range(count):
        rows = records[k * batch_size : (k + 1) * batch_size]
        yield {
            name: np.stack([row[name] for row in rows]).astype(np.float32 if "weights" in name else np.int32)
            for name in rows[0]
        }


def test_a_folder_goes_on_where_it_stopped_and_stops_at_the_total(base, tmp_path, caplog):
    run(base, tmp_path, num_train_steps=4, random_seed=None)
    seeds = [line["seed"] for line in run_log.read(str(tmp_path), run_log.START)]
    assert "with other flags than before" not in caplog.text
    run(base, tmp_path, num_train_steps=6, random_seed=None, optimizer_type="lamb")
    assert (
        f"{tmp_path} goes on from step 4 with other flags than before: --optimizer_type=lamb (adamw before), "
        "--num_train_steps=6 (4 before)\n" in caplog.text
    )
    caplog.clear()
    run(base, tmp_path, num_train_steps=6, random_seed=None)  # nothing left to do
    assert "with other flags than before" not in caplog.text
    lines = run_log.read(str(tmp_path), run_log.START)
    assert [line["seed"] for line in lines] == seeds * 3, "the drawn seed stays with the run"
    assert lines[1]["flags"]["num_train_steps"] == 6
    assert sorted(scalars(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6]
    assert checkpoint_values(tmp_path / "model.ckpt-6")["global_step"] == 6


def test_other_records_start_the_input_anew(base, tmp_path):
    run(base, tmp_path, num_train_steps=2)
    other = write_records(tmp_path / "other.tfrecord", seed=5)
    run(base, tmp_path, num_train_steps=4, input_file=other, train_batch_size=4)
    assert checkpoint_values(tmp_path / "model.ckpt-4")["global_step"] == 4


def test_a_run_without_its_input_file_goes_on_as_one_of_tf1(base, tmp_path):
    run(base, tmp_path, num_train_steps=3)
    for path in tmp_path.glob("input.ckpt-*"):
        path.unlink()
    run(base, tmp_path, num_train_steps=5)
    assert checkpoint_values(tmp_path / "model.ckpt-5")["global_step"] == 5


def test_old_checkpoints_go(base, tmp_path):
    run(base, tmp_path, num_train_steps=8, save_checkpoints_steps=2, keep_checkpoint_max=2)
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "input.ckpt-6-0.index", "input.ckpt-8-0.index", "model.ckpt-6.index", "model.ckpt-8.index",
    ]  # fmt: skip


def test_evaluation_on_files_of_its_own(base, tmp_path):
    held_out = write_records(tmp_path / "held_out.tfrecord", count=16, seed=9)
    run(base, tmp_path / "a", do_train=False, do_eval=True, eval_input_file=held_out, max_eval_steps=2)
    run(base, tmp_path / "b", do_train=False, do_eval=True, input_file=held_out, max_eval_steps=2)
    run(base, tmp_path / "c", do_train=False, do_eval=True, max_eval_steps=2)
    assert results(tmp_path / "a") == results(tmp_path / "b") != results(tmp_path / "c")


def test_random_weights_are_only_evaluated_on_purpose(base, tmp_path):
    flags = {"do_train": False, "do_eval": True, "max_eval_steps": 2, "init_checkpoint": None}
    with pytest.raises(InputError, match=r"--init_checkpoint: is not given, .* the weights would be random"):
        run(base, tmp_path, **flags)
    run(base, tmp_path, **flags, allow_missing_weights=True)
    # Nothing is learnt: about the loss of guessing one of 50 words.
    assert results(tmp_path)["masked_lm_loss"] == pytest.approx(math.log(50), abs=0.2)


def test_the_same_seed_gives_the_same_run(base, tmp_path):
    fresh = {"init_checkpoint": None, "num_train_steps": 3}
    run(base, tmp_path / "a", **fresh)
    run(base, tmp_path / "b", **fresh, steps_per_loop=2)
    run(base, tmp_path / "c", **fresh | {"random_seed": 8})
    a, b, c = (checkpoint_values(tmp_path / name / "model.ckpt-3") for name in "abc")
    for name, value in a.items():
        assert value.tobytes() == b[name].tobytes(), name
    table = "bert/embeddings/word_embeddings"
    assert np.abs(a[table] - c[table]).max() > 1e-2


def loss_scale_in(prefix) -> dict[str, float]:
    """The state of the loss scale beside a checkpoint."""
    reader, ending = tf.train.load_checkpoint(str(prefix)), "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [name for name in reader.get_variable_to_shape_map() if "loss_scale" in name]
    return {name.removesuffix(ending): reader.get_tensor(name) for name in names}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_run_in_16_bits_resumes_with_the_same_bits(base, tmp_path, dtype, monkeypatch):
    """The loss scale is doubled after three updates, so that it stands between two values when the run stops."""
    monkeypatch.setattr(precision, "GROWTH_UPDATES", 3)
    common = {"dtype": dtype, "num_accumulation_steps": 2}
    run(base, tmp_path / "whole", **common, save_checkpoints_steps=4)
    (tmp_path / "resumed").mkdir()
    for path in (tmp_path / "whole").glob("*.ckpt-4*"):
        shutil.copy(path, tmp_path / "resumed")
    (tmp_path / "resumed" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    run(base, tmp_path / "resumed", **common)
    wholes, resumed = (tmp_path / name for name in ("whole", "resumed"))
    expected = checkpoint_values(wholes / "model.ckpt-10")
    assert {value.dtype for value in expected.values()} == {np.dtype(np.float32), np.dtype(np.int64)}
    training_state.assert_equal(checkpoint_values(resumed / "model.ckpt-10"), expected)
    scale, again = (loss_scale_in(folder / "input.ckpt-10-0") for folder in (wholes, resumed))
    assert scale == again == ({} if dtype == "bfloat16" else {"loss_scale": 2.0**18, "updates_at_loss_scale": 1})
    print(dtype, len(expected), "tensors with the same bits;", scale)
    assert not any("scale" in name for name in expected), "a TF1 program knows no loss scale"

    log = run_log.read(str(wholes), run_log.TRAIN)
    if dtype == "float16":
        assert [row["loss_scale"] / 2**15 for row in log] == [1, 1, 2, 2, 2, 4, 4, 4, 8, 8]
        assert {row["skipped_updates"] for row in log} == {0}
    float32 = tmp_path / "float32"
    run(base, float32)
    losses = [list(scalars(folder, "loss").values()) for folder in (float32, wholes)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2 if dtype == "bfloat16" else 2e-3)
    assert losses[0] != losses[1]


def test_a_folder_may_change_its_type(base, tmp_path):
    for number, dtype in enumerate(("float32", "float16", "bfloat16", "float16"), 1):
        run(base, tmp_path, dtype=dtype, num_train_steps=2 * number)
        found = loss_scale_in(tmp_path / f"input.ckpt-{2 * number}-0")
        assert found == ({"loss_scale": 2.0**15, "updates_at_loss_scale": 2} if dtype == "float16" else {})
    assert checkpoint_values(tmp_path / "model.ckpt-8")["global_step"] == 8


def test_reports_and_the_summary_of_two_runs(base, tmp_path):
    """The MFU is the count of operations a second over the peak; the norm is that of the gradient, before clipping."""
    flags = {"peak_flops": 1e12, "num_warmup_steps": 0, "learning_rate": 1e-3}
    run(base, tmp_path, **flags, num_train_steps=6, log_every_steps=2)
    run(base, tmp_path, **flags, num_train_steps=10, log_every_steps=2)
    rows = {row["step"]: row for row in run_log.read(str(tmp_path), run_log.TRAIN)}
    tokens, flops = 8 * SEQ, training_flops(BertConfig.from_dict(toy.BERT_CONFIG), 8, SEQ, PREDICTIONS)
    for step in (4, 6, 10):
        row, updates_per_second = rows[step], rows[step]["examples_per_second"] / 8
        assert row["tokens_per_second"] == pytest.approx(tokens * updates_per_second)
        assert row["mfu"] == pytest.approx(flops * updates_per_second / 1e12)
        assert 0.01 < row["gradient_norm"] < 100
        assert row["memory_mb"] > 100
    first, second = read_summaries(tmp_path)
    assert (first["ended"], first["updates"], first["last_step"], first["restarts"]) == ("finished", 6, 6, 0)
    assert (second["ended"], second["updates"], second["last_step"], second["restarts"]) == ("finished", 4, 10, 1)
    assert second["total_wall_secs"] == pytest.approx(first["wall_secs"] + second["wall_secs"])
    assert second["last_checkpoint"] == str(tmp_path / "model.ckpt-10")
    assert second["final_loss"] == pytest.approx(rows[10]["loss"], rel=1e-6)
    assert second["skipped_updates"] == 0
    assert second["peak_flops"] == 1e12
    assert second["mfu"] > 0


def test_the_gradient_norm_is_that_of_the_whole_batch(base, tmp_path):
    """The first update, by a tape around the objective."""
    config = tmp_path / "no_dropout.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | NO_DROPOUT))
    for name, flags in (("whole", {}), ("parts", {"num_accumulation_steps": 4, "jit_compile": True})):
        run(base, tmp_path / name, bert_config_file=config, num_train_steps=1, **flags)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG | NO_DROPOUT))
    load_checkpoint(model, str(base / "bert_model.ckpt"))
    limits = pretraining_limits(len(toy.VOCABULARY), 2, SEQ)
    features = pretraining_features(SEQ, PREDICTIONS)
    seed_initial_weights(7)
    (batch,) = training_dataset([str(base / "records.tfrecord")], features, 8, 7, limits).take(1)
    objective = PretrainingObjective(model, 8)
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.totals(batch), None)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    expected = np.sqrt(sum(np.sum(np.square(tf.convert_to_tensor(one))) for one in gradients))
    for name in ("whole", "parts"):
        (row,) = run_log.read(str(tmp_path / name), run_log.TRAIN)
        assert row["gradient_norm"] == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def plain_run(base, tmp_path_factory):
    """Returns a function that runs a configuration once, without flags, and gives the run's folder."""

    @functools.cache
    def folder_of(config_json: str, records: str):
        folder = tmp_path_factory.mktemp("plain")
        (folder / "config.json").write_text(config_json)
        run(base, folder / "run", bert_config_file=folder / "config.json", input_file=base / records)
        return folder / "run"

    return folder_of


@pytest.mark.parametrize(
    ("flags", "dropouts"),
    [
        ({"num_accumulation_steps": 4}, NO_DROPOUT),
        ({"recompute_layers": True}, {}),
        ({"recompute_layers": True, "jit_compile": True, "num_accumulation_steps": 2}, NO_DROPOUT),
        ({"packed_sequences": True}, NO_DROPOUT),
        ({"packed_sequences": True, "recompute_layers": True, "num_accumulation_steps": 2}, NO_DROPOUT),
    ],
)
def test_parts_and_recomputation_give_the_numbers_of_the_plain_run(base, plain_run, tmp_path, flags, dropouts):
    """The micro-batches have unequal numbers of predictions; recomputed layers draw the same masks again."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | dropouts))
    records = "padded.tfrecord" if "packed_sequences" in flags else "records.tfrecord"
    run(base, tmp_path / "other", bert_config_file=config, input_file=base / records, **flags)
    folders = plain_run(config.read_text(), records), tmp_path / "other"
    losses = [scalars(folder, "loss") for folder in folders]
    weights = [checkpoint_values(folder / "model.ckpt-10") for folder in folders]
    differences = [abs(losses[0][step] - losses[1][step]) for step in range(1, 11)]
    print(f"{flags}: 10 losses within {max(differences):.2g}, {len(weights[0])} tensors compared")
    assert max(differences) < 1e-5
    training_state.assert_close(weights[1], weights[0], weights=1e-6, first_moments=1e-7)


def test_an_evaluation_of_packed_sequences_has_the_numbers_of_padded_ones(base, tmp_path):
    results = []
    for name, packed in (("padded", False), ("packed", True)):
        flags = {"do_train": False, "do_eval": True, "packed_sequences": packed}
        run(base, tmp_path / name, input_file=base / "padded.tfrecord", **flags)
        lines = (tmp_path / name / "eval_results.txt").read_text().splitlines()
        results.append({key: float(value) for key, value in (line.split(" = ") for line in lines)})
    assert results[1] == pytest.approx(results[0], abs=1e-5)


def test_packed_sequences_need_steps_of_any_size(base, tmp_path):
    with pytest.raises(InputError, match="--packed_sequences: does not go with --jit_compile"):
        run(base, tmp_path, packed_sequences=True, jit_compile=True)


def test_a_training_that_fails_has_a_summary_too(base, tmp_path):
    with pytest.raises(InputError, match="the loss is"):
        run(base, tmp_path, learning_rate=1e30, num_warmup_steps=0)
    (row,) = read_summaries(tmp_path)
    assert (row["ended"], row["last_checkpoint"]) == ("Diverged", str(tmp_path / "model.ckpt-0"))


def read_summaries(output_dir) -> list[dict]:
    return run_log.read(str(output_dir), run_log.END)


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
        ({"learning_rate": 1e30, "num_warmup_steps": 0}, "the loss is .* lower --learning_rate"),
        (
            {"learning_rate": 1e30, "num_warmup_steps": 0, "dtype": "float16"},
            "float16 overflows whatever the loss scale is, which has sunk to 0.5; lower --learning_rate",
        ),
    ],
)
def test_what_cannot_be_used_is_named(base, tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as refusal:
        run(base, tmp_path, **changes)
    assert "\n" not in str(refusal.value)


def test_a_number_written_as_text_is_named_with_its_file(base, tmp_path):
    config = tmp_path / "text.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | {"max_position_embeddings": "512"}))
    with pytest.raises(InputError, match=r"text\.json: max_position_embeddings must be .*, got '512'"):
        run(base, tmp_path / "out", bert_config_file=config)


def test_ids_beyond_the_vocabulary_name_file_and_record(base, tmp_path):
    config = tmp_path / "small.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | {"vocab_size": 49}))
    with pytest.raises(InputError, match=r"records.tfrecord: record \d+ .*(input|masked_lm)_ids holds 49"):
        run(base, tmp_path / "out", bert_config_file=config, init_checkpoint=None)


def test_damage_in_the_middle_names_file_and_record(base, tmp_path):
    damaged = bytearray((base / "records.tfrecord").read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "damaged.tfrecord").write_bytes(damaged)
    with pytest.raises(InputError, match=r"damaged.tfrecord: record \d+"):
        run(base, tmp_path / "out", input_file=tmp_path / "damaged.tfrecord")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"do_eval": True, "eval_batch_size": 3, "num_devices": 2, "distribution_strategy": "mirrored"},
            "--eval_batch_size=3 cannot be shared evenly by 2 replicas",
        ),
        ({"random_seed": 2**63}, "--random_seed=9223372036854775808: must fit 64 bits"),
    ],
)
def test_wrong_flags_are_refused_before_training(base, tmp_path, flags, sentence):
    arguments = flag_list(**flags_of(base, tmp_path / "out", **flags))
    finished = run_script("run_pretraining.py", *arguments, status=1)  # logical CPUs are set once a process
    assert sentence in finished.stderr
    assert not (tmp_path / "out").exists()


def test_without_next_sentence_loss_pooler_and_head_stay(base, tmp_path):
    run(base, tmp_path, use_next_sentence=False, num_train_steps=3, do_eval=True, max_eval_steps=0)
    before, after = checkpoint_values(base / "bert_model.ckpt"), checkpoint_values(tmp_path / "model.ckpt-3")
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }
    found = results(tmp_path)
    assert found["loss"] == found["masked_lm_loss"]


def test_sharded_gzip_is_read_by_a_glob_that_matches_its_manifest(base, tmp_path):
    options = PretrainingDataOptions(
        input_file=[toy.write_text(tmp_path)],
        output_file=[str(tmp_path / "toy.gz")],
        vocab_file=toy.write_vocabulary(tmp_path),
        generator="sharded",
        num_shards=2,
        max_seq_length=SEQ,
        max_predictions_per_seq=PREDICTIONS,
    )
    create_pretraining_data.run(options)
    manifest = json.loads((tmp_path / "toy.manifest.json").read_text())
    flags = {"input_file": tmp_path / "toy*", "num_train_steps": 2, "do_eval": True, "max_eval_steps": 0}
    run(base, tmp_path / "out", **flags)
    names = sorted(path.name for path in tmp_path.glob("toy*"))
    assert names == ["toy-00000-of-00002.gz", "toy-00001-of-00002.gz", "toy.manifest.json"]
    assert manifest["counts"]["records"] == count_records([str(tmp_path / name) for name in names[:2]])
    assert results(tmp_path / "out")["global_step"] == 2


def test_masks_are_drawn_anew_in_each_pass_and_a_resumed_run_draws_the_same(base, tmp_path):
    """Records without masks, from text to an evaluation."""
    text = toy.write_text(tmp_path)
    run_here(
        "create_pretraining_data.py", "--generator=sharded", "--dynamic_masking", f"--input_file={text}",
        f"--output_file={tmp_path}/records", f"--vocab_file={base}/vocab.txt", f"--max_seq_length={SEQ}",
        "--dupe_factor=2", "--num_shards=1",
    )  # fmt: skip
    manifest = json.loads((tmp_path / "records.manifest.json").read_text())
    assert manifest["flags"]["dynamic_masking"] is True
    assert manifest["counts"]["predictions"] == 0
    changes = {
        "input_file": str(tmp_path / "records-00000-of-00001"), "vocab_file": base / "vocab.txt",
        "dynamic_masking": True, "do_whole_word_mask": True, "do_eval": True, "max_eval_steps": 0,
        "save_checkpoints_steps": 4,
    }  # fmt: skip
    run(base, tmp_path / "whole", **changes)
    run(base, tmp_path / "resumed", **changes)
    (tmp_path / "resumed" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    run(base, tmp_path / "resumed", **changes)
    expected = checkpoint_values(tmp_path / "whole" / "model.ckpt-10")
    training_state.assert_equal(checkpoint_values(tmp_path / "resumed" / "model.ckpt-10"), expected)
    assert results(tmp_path / "resumed") == results(tmp_path / "whole")
    losses = list(scalars(tmp_path / "whole", "masked_lm_loss").values())
    assert len({round(loss, 5) for loss in losses}) == len(losses), "no batch has the masks of another"
    print(f"{len(expected)} tensors of a resumed run with dynamic masks are equal, bit by bit")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dynamic_masking": True, "vocab_file": None}, "--dynamic_masking: needs the vocabulary"),
        ({"do_whole_word_mask": True}, "--do_whole_word_mask: the records have their masks; give --dynamic_masking"),
        ({"masked_lm_prob": 0.2}, "--masked_lm_prob: the records have their masks"),
        ({"dynamic_masking": True, "ngram_masking": 2}, "masks spans of whole words; add --do_whole_word_mask"),
        ({"dynamic_masking": True}, "has masks already; leave out --dynamic_masking"),
    ],
)
def test_masks_that_cannot_be_drawn_are_refused(base, tmp_path, changes, sentence):
    config = tmp_path / "bert_config.json"  # with no vocabulary beside it
    config.write_text((base / "bert_config.json").read_text())
    given = {"bert_config_file": config, "init_checkpoint": None, "vocab_file": base / "vocab.txt"} | changes
    with pytest.raises(InputError, match=re.escape(sentence)):
        run(base, tmp_path / "out", **given)
