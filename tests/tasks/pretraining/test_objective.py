import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import vocabulary_loss
from official_bert.tasks.pretraining.objective import (
    LeftToRightObjective,
    PretrainingObjective,
    is_correct,
    unmasked_ids,
)
from official_bert.training.starting_point import seed_initial_weights
from tests import toy
from tests.commands.pretraining_run import (
    PREDICTIONS,
    first_batches,
    flags_of,
    scalars,
    write_records,
)
from tests.golden_model import losses_of, named_weights
from tests.scripts import end_of, flag_list, run_here

LEFT_TO_RIGHT = {"attention_direction": "left_to_right"}
LEFT_TO_RIGHT_CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | LEFT_TO_RIGHT)
NEXT_SENTENCE_WEIGHTS = {
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
}


def assert_close(actual, expected, rtol: float = 1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def as_floats(sums: dict) -> dict[str, float]:
    return {name: float(value) for name, value in sums.items()}


def loss_without_next_sentences(model, objective, batch):
    """Computes the loss and the sums, and checks which weights have no gradient."""
    variables = dict(named_weights(model))
    totals = objective.totals(batch)
    with tf.GradientTape() as tape:
        loss, sums = objective.loss(batch, totals, None)
    gradients = tape.gradient(loss, variables)
    without_gradient = {name for name in gradients if gradients[name] is None}
    assert without_gradient == NEXT_SENTENCE_WEIGHTS
    return loss, sums


def test_without_next_sentences_the_loss_and_its_gradients_are_those_of_the_masked_words(tmp_path):
    seed_initial_weights(1)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    records = write_records(tmp_path / "records")
    (batch,) = first_batches(records, 1, 8)
    expected = losses_of(model, batch)
    objective = PretrainingObjective(model, 8, use_next_sentence_loss=False)
    loss, sums = loss_without_next_sentences(model, objective, batch)
    assert_close(loss, expected.masked_lm)
    assert_close(sums["loss"], expected.masked_lm)
    next_sentence_loss = sums["next_sentence_loss"] / 8
    assert_close(next_sentence_loss, expected.next_sentence)
    metrics = objective.set_metrics(as_floats(sums), 8)
    assert metrics["loss"] == metrics["masked_lm_loss"]


def test_only_the_highest_logit_is_right_or_one_that_equals_it():
    logits = np.float32(
        [
            [1, 1.005],
            [1, 1],
            [2, 1],
        ]
    )
    targets = np.int32([0, 0, 0])
    assert is_correct(logits, targets).numpy().tolist() == [0, 1, 1]


def objective_gradients(objective, batch) -> tuple:
    """Computes the sums and the gradients of an objective in a graph."""

    @tf.function
    def compute():
        weights = objective.pretrainer.trainable_variables
        variables = {weight.path: weight.value for weight in weights}
        totals = objective.totals(batch)
        with tf.GradientTape() as tape:
            loss, sums = objective.loss(batch, totals, None)
        gradients = tape.gradient(loss, variables)
        used_names = [name for name in gradients if gradients[name] is not None]
        return sums, {name: gradients[name] for name in used_names}

    return compute()


@pytest.mark.parametrize("objective_class", [PretrainingObjective, LeftToRightObjective])
def test_the_loss_by_blocks_equals_the_loss_of_the_logits(objective_class, tmp_path, monkeypatch):
    seed_initial_weights(1)
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    if objective_class is LeftToRightObjective:
        config = LEFT_TO_RIGHT_CONFIG
    objective = objective_class(BertPretrainer(config), 8)
    batch = some_batch(tmp_path)
    assert vocabulary_loss.is_available()
    sums, gradients = objective_gradients(objective, batch)
    monkeypatch.setattr(vocabulary_loss, "is_available", lambda: False)
    logits_sums, logits_gradients = objective_gradients(objective, batch)
    assert gradients.keys() == logits_gradients.keys()
    for name, value in logits_sums.items():
        np.testing.assert_allclose(
            sums[name],
            value,
            rtol=1e-5,
            atol=1e-6,
            err_msg=name,
        )
    for name, gradient in logits_gradients.items():
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradients[name]),
            tf.convert_to_tensor(gradient),
            rtol=1e-4,
            atol=1e-6,
            err_msg=name,
        )


def numpy_ids(batch: dict) -> np.ndarray:
    """The ids of a batch with the masked ones put back."""
    ids = np.array(batch["input_ids"])
    positions = batch["masked_lm_positions"]
    masked_ids = batch["masked_lm_ids"]
    for row, column in np.argwhere(batch["masked_lm_weights"]):
        position = positions[row, column]
        ids[row, position] = masked_ids[row, column]
    return ids


def some_batch(tmp_path) -> dict:
    """A batch whose records mask each position at most once, as real ones do."""
    records = write_records(tmp_path / "records", is_padded=True)
    (batch,) = first_batches(records, 1, 8)
    batch = {name: np.array(values) for name, values in batch.items()}
    batch["input_mask"][:, :8] = 1
    positions = []
    for row in range(8):
        order = np.random.default_rng(row).permutation(8)
        positions.append(order[:PREDICTIONS])
    return batch | {"masked_lm_positions": np.array(positions)}


def test_masked_words_are_put_back_and_padding_puts_back_nothing(tmp_path):
    batch = some_batch(tmp_path)
    num_masked = batch["masked_lm_weights"].sum()
    assert 0 < num_masked < 8 * PREDICTIONS
    restored = unmasked_ids(batch, len(toy.VOCABULARY)).numpy()
    np.testing.assert_array_equal(restored, numpy_ids(batch))
    assert (restored != batch["input_ids"]).any()


def test_the_loss_left_to_right_is_the_mean_over_the_next_tokens(tmp_path):
    seed_initial_weights(1)
    model = BertPretrainer(LEFT_TO_RIGHT_CONFIG)
    batch = some_batch(tmp_path)
    objective = LeftToRightObjective(model, 8)
    loss, sums = loss_without_next_sentences(model, objective, batch)

    ids = numpy_ids(batch)
    inputs = {
        "input_ids": ids,
        "input_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    log_probs = model(inputs).masked_lm_log_probs.numpy()
    log_probs = log_probs[:, :-1]  # [B, S-1, V]
    next_ids = ids[:, 1:]
    next_mask = batch["input_mask"][:, 1:]
    is_token = next_mask == 1
    token_log_probs = log_probs[is_token]
    token_ids = next_ids[is_token]
    next_log_probs = token_log_probs[np.arange(len(token_ids)), token_ids]
    expected_loss = -next_log_probs.mean()
    assert_close(loss, expected_loss, rtol=1e-5)
    is_right = token_log_probs.argmax(-1) == token_ids
    accuracy = is_right.mean()
    metrics = objective.set_metrics(as_floats(sums), 8)
    assert metrics["next_token_accuracy"] == np.float32(accuracy)
    assert_close(metrics["loss"], expected_loss, rtol=1e-5)
    assert_close(metrics["next_token_loss"], expected_loss, rtol=1e-5)

    # Replicas and accumulation cut a batch: each part's share, with the totals of the whole.
    first_part = {name: values[:3] for name, values in batch.items()}
    second_part = {name: values[3:] for name, values in batch.items()}
    first_totals = objective.totals(first_part)
    second_totals = objective.totals(second_part)
    totals = {name: first_totals[name] + second_totals[name] for name in first_totals}
    first_share, _ = objective.loss(first_part, totals, None)
    second_share, _ = objective.loss(second_part, totals, None)
    sum_of_shares = float(first_share) + float(second_share)
    assert_close(sum_of_shares, loss)


def test_the_script_trains_and_evaluates_left_to_right(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    output_dir = tmp_path / "out"
    write_records(base / "records.tfrecord")
    config_file = base / "bert_config.json"
    left_to_right_file = base / "ltr_config.json"
    config = json.loads(config_file.read_text())
    left_to_right_file.write_text(json.dumps(config | LEFT_TO_RIGHT))
    flags = flags_of(
        base,
        output_dir,
        bert_config_file=left_to_right_file,
        init_checkpoint=None,
    )
    flags |= {
        "do_eval": True,
        "max_eval_steps": 0,
        "learning_rate": 1e-2,
    }
    run_here("run_pretraining.py", *flag_list(**flags))
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    names = [line.split(" = ")[0] for line in lines]
    assert names == [
        "global_step",
        "loss",
        "next_token_accuracy",
        "next_token_loss",
    ]
    losses = scalars(output_dir, "loss")
    assert losses[10] < losses[1]
    saved = json.loads((output_dir / "bert_config.json").read_text())
    assert saved["attention_direction"] == "left_to_right"
    flags |= {
        "bert_config_file": config_file,
        "num_train_steps": 12,
    }
    end = end_of("run_pretraining.py", *flag_list(**flags))
    assert "its direction is left_to_right, and bidirectional by --bert_config_file" in end.sentence
