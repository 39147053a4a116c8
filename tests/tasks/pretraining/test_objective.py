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

LEFT_TO_RIGHT = BertConfig.from_dict(toy.BERT_CONFIG | {"attention_direction": "left_to_right"})
OF_NEXT_SENTENCES = {
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
}


def loss_without_next_sentences(model, objective, batch):
    names, variables = zip(*named_weights(model), strict=True)
    with tf.GradientTape() as tape:
        loss, sums = objective.loss(batch, objective.totals(batch), None)
    gradients = dict(zip(names, tape.gradient(loss, variables), strict=True))
    assert {name for name, gradient in gradients.items() if gradient is None} == OF_NEXT_SENTENCES
    return loss, sums


def test_without_next_sentences_the_loss_and_its_gradients_are_those_of_the_masked_words(tmp_path):
    seed_initial_weights(1)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    (batch,) = first_batches(write_records(tmp_path / "records"), 1, 8)
    expected = losses_of(model, batch)
    objective = PretrainingObjective(model, 8, use_next_sentence_loss=False)
    loss, sums = loss_without_next_sentences(model, objective, batch)
    np.testing.assert_allclose(loss, expected.masked_lm, rtol=1e-6)
    np.testing.assert_allclose(sums["loss"], expected.masked_lm, rtol=1e-6)
    np.testing.assert_allclose(sums["next_sentence_loss"] / 8, expected.next_sentence, rtol=1e-6)
    sums = {name: float(value) for name, value in sums.items()}
    whole = objective.set_metrics(sums, 8)
    assert whole["loss"] == whole["masked_lm_loss"]


def test_only_the_highest_logit_is_right_or_one_that_equals_it():
    logits = np.float32([[1, 1.005], [1, 1], [2, 1]])
    assert is_correct(logits, np.int32([0, 0, 0])).numpy().tolist() == [0, 1, 1]


def objective_gradients(objective, batch) -> tuple:
    """Computes the sums and the gradients of an objective in a graph."""

    @tf.function
    def compute():
        variables = objective.pretrainer.trainable_variables
        with tf.GradientTape() as tape:
            loss, sums = objective.loss(batch, objective.totals(batch), None)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        return sums, {
            variable.path: gradient
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is not None
        }

    return compute()


@pytest.mark.parametrize("objective_class", [PretrainingObjective, LeftToRightObjective])
def test_the_loss_by_blocks_equals_the_loss_of_the_logits(objective_class, tmp_path, monkeypatch):
    seed_initial_weights(1)
    config = toy.BERT_CONFIG
    if objective_class is LeftToRightObjective:
        config = config | {"attention_direction": "left_to_right"}
    objective = objective_class(BertPretrainer(BertConfig.from_dict(config)), 8)
    batch = some_batch(tmp_path)
    assert vocabulary_loss.is_available()
    sums, gradients = objective_gradients(objective, batch)
    monkeypatch.setattr(vocabulary_loss, "is_available", lambda: False)
    logits_sums, logits_gradients = objective_gradients(objective, batch)
    assert gradients.keys() == logits_gradients.keys()
    for name, value in logits_sums.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    for name, gradient in logits_gradients.items():
        actual = tf.convert_to_tensor(gradients[name])
        expected = tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6, err_msg=name)


def numpy_ids(batch: dict) -> np.ndarray:
    ids = np.array(batch["input_ids"])
    for row, column in np.argwhere(batch["masked_lm_weights"]):
        ids[row, batch["masked_lm_positions"][row, column]] = batch["masked_lm_ids"][row, column]
    return ids


def some_batch(tmp_path) -> dict:
    """A batch whose records mask each position at most once, as real ones do."""
    (batch,) = first_batches(write_records(tmp_path / "records", is_padded=True), 1, 8)
    batch = {name: np.array(values) for name, values in batch.items()}
    batch["input_mask"][:, :8] = 1
    orders = [np.random.default_rng(row).permutation(8) for row in range(8)]
    return batch | {"masked_lm_positions": np.array(orders)[:, :PREDICTIONS]}


def test_masked_words_are_put_back_and_padding_puts_back_nothing(tmp_path):
    batch = some_batch(tmp_path)
    assert 0 < batch["masked_lm_weights"].sum() < 8 * PREDICTIONS
    restored = unmasked_ids(batch, len(toy.VOCABULARY)).numpy()
    np.testing.assert_array_equal(restored, numpy_ids(batch))
    assert (restored != batch["input_ids"]).any()


def test_the_loss_left_to_right_is_the_mean_over_the_next_tokens(tmp_path):
    seed_initial_weights(1)
    model, batch = BertPretrainer(LEFT_TO_RIGHT), some_batch(tmp_path)
    objective = LeftToRightObjective(model, 8)
    loss, sums = loss_without_next_sentences(model, objective, batch)

    ids = numpy_ids(batch)
    inputs = {
        "input_ids": ids,
        "input_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    log_probs = model(inputs).masked_lm_log_probs.numpy()[:, :-1]  # [B, S-1, V]
    at_next = np.take_along_axis(log_probs, ids[:, 1:, None], axis=-1)[..., 0]
    is_token = batch["input_mask"][:, 1:] == 1
    np.testing.assert_allclose(loss, -at_next[is_token].mean(), rtol=1e-5)
    correct = (log_probs.argmax(-1) == ids[:, 1:])[is_token]
    metrics = objective.set_metrics({name: float(value) for name, value in sums.items()}, 8)
    assert metrics["next_token_accuracy"] == np.float32(correct.mean())
    np.testing.assert_allclose(
        [metrics["loss"], metrics["next_token_loss"]], -at_next[is_token].mean(), rtol=1e-5
    )

    # Replicas and accumulation cut a batch: each part's share, with the totals of the whole.
    parts = [
        {name: values[rows] for name, values in batch.items()}
        for rows in (slice(0, 3), slice(3, 8))
    ]
    totals = [objective.totals(part) for part in parts]
    whole = {name: sum(total[name] for total in totals) for name in totals[0]}
    shares = [float(objective.loss(part, whole, None)[0]) for part in parts]
    np.testing.assert_allclose(sum(shares), loss, rtol=1e-6)


def test_the_script_trains_and_evaluates_left_to_right(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    write_records(base / "records.tfrecord")
    config = json.loads((base / "bert_config.json").read_text()) | {
        "attention_direction": "left_to_right"
    }
    (base / "ltr_config.json").write_text(json.dumps(config))
    flags = flags_of(
        base, tmp_path / "out", bert_config_file=base / "ltr_config.json", init_checkpoint=None
    )
    flags |= {"do_eval": True, "max_eval_steps": 0, "learning_rate": 1e-2}
    run_here("run_pretraining.py", *flag_list(**flags))
    results = dict(
        line.split(" = ") for line in (tmp_path / "out/eval_results.txt").read_text().splitlines()
    )
    assert list(results) == ["global_step", "loss", "next_token_accuracy", "next_token_loss"]
    losses = scalars(tmp_path / "out", "loss")
    assert losses[10] < losses[1]
    saved = json.loads((tmp_path / "out/bert_config.json").read_text())
    assert saved["attention_direction"] == "left_to_right"
    flags |= {"bert_config_file": base / "bert_config.json", "num_train_steps": 12}
    end = end_of("run_pretraining.py", *flag_list(**flags))
    assert "its direction is left_to_right, and bidirectional by --bert_config_file" in end.sentence
