import numpy as np
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.tasks.pretraining.objective import PretrainingObjective, is_correct
from official_bert.training.starting_point import seed_initial_weights
from tests import toy
from tests.commands.pretraining_run import write_records
from tests.commands.test_run_pretraining import first_batches
from tests.golden_model import losses_of, named_weights

OF_NEXT_SENTENCES = {
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
}


def test_without_next_sentences_the_loss_and_its_gradients_are_those_of_the_masked_words(tmp_path):
    seed_initial_weights(1)
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG))
    (batch,) = first_batches(write_records(tmp_path / "records"), 1, 8)
    expected = losses_of(model, batch)
    objective = PretrainingObjective(model, 8, use_next_sentence_loss=False)
    names, variables = zip(*named_weights(model), strict=True)
    with tf.GradientTape() as tape:
        loss, sums = objective.loss(batch, objective.totals(batch), None)
    gradients = dict(zip(names, tape.gradient(loss, variables), strict=True))
    np.testing.assert_allclose(loss, expected.masked_lm, rtol=1e-6)
    np.testing.assert_allclose(sums["loss"], expected.masked_lm, rtol=1e-6)
    np.testing.assert_allclose(sums["next_sentence_loss"] / 8, expected.next_sentence, rtol=1e-6)
    assert {name for name, gradient in gradients.items() if gradient is None} == OF_NEXT_SENTENCES
    sums = {name: float(value) for name, value in sums.items()}
    whole = objective.metrics_of_all(sums, 8)
    assert whole["loss"] == whole["masked_lm_loss"]


def test_only_the_highest_logit_is_right_or_one_that_equals_it():
    logits = np.float32([[1, 1.005], [1, 1], [2, 1]])
    assert is_correct(logits, np.int32([0, 0, 0])).numpy().tolist() == [0, 1, 1]
