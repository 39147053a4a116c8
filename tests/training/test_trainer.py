"""Tests Trainer by real runs: the numbers of an update, and where a stopped run resumes."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records.framing import open_example_files
from official_bert.data.records.pretraining_input import training_dataset
from official_bert.features import pretraining_features
from official_bert.fine_tuning.pretrain import pretrain
from official_bert.options.training import PretrainingOptions
from official_bert.training.starting_point import seed_initial_weights
from tests import training_state
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.fine_tuning_runs import noted_batches, prepared, run
from tests.golden_model import FINAL_WEIGHTS, SLOTS, TRAINING_LOSSES, load_batch
from tests.shared import GOLDEN, in_test_long
from tests.training.rewinding import rewind
from tests.training.test_step import prepare

GELU = GOLDEN / "model_gelu"
PEAK = 1e-3


def assert_updated(name, old, new, rate):
    """Checks that one update of Adam leads from the old values of a weight to the new ones."""
    first_moment = new[f"{name}/adam_m"].astype(np.float64)
    second_moment = new[f"{name}/adam_v"].astype(np.float64)
    has_decay = not name.endswith(("bias", "gamma", "beta"))
    decay = 0.01 if has_decay else 0.0
    direction = first_moment / (np.sqrt(second_moment) + 1e-6) + decay * old[name]
    np.testing.assert_allclose(
        new[name],
        old[name] - rate * direction,
        rtol=0,
        atol=1.5e-7,
        err_msg=name,
    )


@pytest.mark.usefixtures("with_grappler")
@pytest.mark.parametrize("family", ["classification", "squad"])
def test_an_update_is_the_originals(family, tmp_path, monkeypatch):
    """Clipping at norm 1; Adam of 0.9, 0.999, 1e-6 without bias correction; decay of 0.01 but of
    LayerNorm and biases.

    All of it follows from what two updates leave: the first moments of the first are a tenth of the
    gradients.
    """
    drawn = noted_batches(monkeypatch)
    options = prepared(tmp_path, family, train=8)
    output_dir = tmp_path / "out"
    run(
        family,
        options,
        output_dir,
        do_train=True,
        learning_rate=PEAK,
        warmup_proportion=0.0,
        save_checkpoints_steps=1,
        keep_checkpoint_max=0,  # also that of step 0
    )
    before = checkpoint_values(output_dir / "model.ckpt-0")
    first = checkpoint_values(output_dir / "model.ckpt-1")
    second = checkpoint_values(output_dir / "model.ckpt-2")
    weights = {name for name in before if "adam" not in name}
    trained = {name for name in weights if f"{name}/adam_m" in before}
    untrained = {"global_step"}
    if family == "squad":
        untrained |= {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert weights - trained == untrained

    gradients = {}
    for name in trained:
        first_moment = first[f"{name}/adam_m"].astype(np.float64)
        gradients[name] = first_moment / 0.1
    square_sums = [np.sum(gradient**2) for gradient in gradients.values()]
    assert np.sqrt(sum(square_sums)) == pytest.approx(1.0, rel=1e-5)
    for name in trained:
        assert_updated(name, before, first, PEAK)
        assert_updated(name, first, second, PEAK / 2)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            first[f"{name}/adam_v"],
            0.001 * gradient**2,
            rtol=1e-5,
            atol=1e-30,
            err_msg=name,
        )

    # Pieces of the first batch that the second does not have: their gradient is 0 there.
    ids = [set(batch["input_ids"].ravel()) for batch in drawn]
    rows = sorted(ids[0] - ids[1])
    assert rows
    for slot, beta in (("adam_m", 0.9), ("adam_v", 0.999)):
        table = f"bert/embeddings/word_embeddings/{slot}"
        moments = first[table][rows]
        assert np.abs(moments).min() > 0
        np.testing.assert_allclose(second[table][rows], beta * moments, rtol=1e-6)


@pytest.mark.parametrize(
    "flags",
    [{"ema_decay": 0.9}, *in_test_long({})],
)
def test_a_stopped_fine_tuning_ends_as_one_that_was_not(tmp_path, flags):
    """A buffer of 100 examples that comes round the set many times, batches of many lengths,
    dropout in the head.
    """
    options = prepared(tmp_path, "original")

    def train(folder):
        run(
            "original",
            options,
            folder,
            do_train=True,
            num_train_epochs=3.0,
            save_checkpoints_steps=4,
            keep_checkpoint_max=0,
            steps_per_loop=3,
            **flags,
        )

    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    train(whole)
    rewind(whole, stopped, step=8)
    inputs = checkpoint_values(stopped / "input.ckpt-8-0")
    assert inputs["position/.ATTRIBUTES/VARIABLE_VALUE"] == 8 * 4
    train(stopped)
    losses = scalars(whole, "loss")
    assert sorted(losses) == list(range(1, 16))
    assert scalars(stopped, "loss") == {step: losses[step] for step in range(9, 16)}
    training_state.assert_equal(
        checkpoint_values(stopped / "model.ckpt-15"),
        checkpoint_values(whole / "model.ckpt-15"),
    )
    inputs = checkpoint_values(stopped / "input.ckpt-15-0")
    training_state.assert_equal(inputs, checkpoint_values(whole / "input.ckpt-15-0"))
    assert inputs["position/.ATTRIBUTES/VARIABLE_VALUE"] == 15 * 4
    assert inputs["seed/.ATTRIBUTES/VARIABLE_VALUE"] == 7
    assert inputs["key/.ATTRIBUTES/VARIABLE_VALUE"] > 0


@pytest.mark.usefixtures("with_grappler")
def test_resumes_the_originals_checkpoint(tmp_path):
    """Its weights, slots and step are gone on from; the input, of which it saved nothing, begins
    anew.
    """
    settings = json.loads((GELU / "training.json").read_text())
    half = 6
    total = settings["num_train_steps"]
    batches = [load_batch(GELU, kind) for kind in settings["batches"]]
    rows, seq = batches[0]["input_ids"].shape
    predictions = batches[0]["masked_lm_ids"].shape[1]
    records = str(tmp_path / "records.tfrecord")
    with open_example_files([records]) as files:
        for batch in batches:
            files.write({name: values.reshape(rows, -1) for name, values in batch.items()})
    out = tmp_path / "out"
    out.mkdir()
    for path in GELU.glob(f"model.ckpt-{half}.*"):
        shutil.copy(path, out)
    (out / "checkpoint").write_text(f'model_checkpoint_path: "/gone/model.ckpt-{half}"\n')
    pretrain(
        PretrainingOptions(
            bert_config_file=str(GELU / "bert_config.json"),
            input_file=[records],
            output_dir=str(out),
            do_train=True,
            train_batch_size=rows,
            max_seq_length=seq,
            max_predictions_per_seq=predictions,
            num_train_steps=total,
            num_warmup_steps=settings["num_warmup_steps"],
            learning_rate=settings["init_lr"],
            random_seed=7,
            log_every_steps=1,
        )
    )

    # The same batches through the step, which is tested against the recordings.
    features = pretraining_features(seq, predictions)
    repeated = prepare(GELU, f"model.ckpt-{half}")
    reader = tf.train.load_checkpoint(str(GELU / f"model.ckpt-{half}"))
    for name, variable in repeated.variables.items():
        variable.assign(reader.get_tensor(name))
    seed_initial_weights(7)
    expected = []
    for batch in training_dataset([records], features, rows, 7, limits={}).take(total - half):
        stack = {name: value[None] for name, value in batch.items()}
        expected.append(repeated.updates(stack, 1)["loss"])
    losses = scalars(out, "loss")
    assert sorted(losses) == list(range(half + 1, total + 1))
    np.testing.assert_allclose(
        list(losses.values()),
        expected,
        rtol=0,
        atol=TRAINING_LOSSES,
    )
    training_state.assert_close(
        checkpoint_values(out / f"model.ckpt-{total}"),
        {name: variable.numpy() for name, variable in repeated.variables.items()},
        weights=FINAL_WEIGHTS,
        first_moments=SLOTS,
    )
    training_state.assert_input_is_at(
        out / f"input.ckpt-{total}-0",
        [records],
        features,
        rows,
        seed=7,
        num_read=total - half,
    )
