"""Losses and files of choices, against numpy."""

import numpy as np

from official_bert.data.model_inputs import ModelInputs
from official_bert.tasks.choice.examples import EncodedChoices
from official_bert.tasks.choice.task import ChoiceTask
from tests.tasks.classification.test_task import Answering

LOGITS = np.float32([[2.0, -1.0, 0.5, 0.0], [0.0, 0.0, 3.0, 1.0]])


def test_a_softmax_over_the_choices():
    batch = {"label_ids": np.int32([0, 3])}
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    expected = -np.log(softmax[[0, 1], [0, 3]])
    np.testing.assert_allclose(ChoiceTask().losses(Answering(LOGITS), batch), expected, rtol=1e-6)
    np.testing.assert_array_equal(ChoiceTask().weights(batch), [1.0, 1.0])
    outputs = {name: np.asarray(value) for name, value in ChoiceTask().outputs(Answering(LOGITS), batch).items()}
    np.testing.assert_allclose(outputs["probabilities"], softmax, rtol=1e-6)
    np.testing.assert_allclose(outputs["loss"], expected, rtol=1e-6)
    encoded = EncodedChoices(ModelInputs([([1], 1)] * 8), batch["label_ids"])
    assert ChoiceTask().metrics(encoded, outputs) == {"eval_accuracy": 0.5}


def test_probabilities_are_written_a_line_an_example(tmp_path):
    probabilities = np.float32([[0.5, 0.25, 0.125, 0.125]])
    assert ChoiceTask().write_predictions(str(tmp_path), None, {"probabilities": probabilities}) is None
    assert (tmp_path / "test_results.tsv").read_text() == "0.5\t0.25\t0.125\t0.125\n"
