"""Windows as batches, and the loss of a span."""

import numpy as np
import pytest

from official_bert.metrics.squad import Question
from official_bert.tasks.squad.records import record_arrays
from official_bert.tasks.squad.task import (
    AnswerRules,
    EncodedQuestions,
    EncodedWindows,
    SquadTask,
    WindowCollector,
)
from tests.tasks.squad.sample import toy_windows


def collected(windows) -> dict:
    collector = WindowCollector()
    for window in windows:
        collector.add(window)
    return collector.arrays()


def test_batches_are_the_records(tmp_path):
    _, windows = toy_windows(tmp_path, is_training=True)
    encoded = EncodedWindows(**collected(windows))
    rows = np.array([5, 0, 7, 7])
    records = record_arrays([windows[row] for row in rows], is_training=True)
    batch = encoded.features(rows, 14)
    for name in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[name], records[name])
        np.testing.assert_array_equal(encoded.features(rows[1:2], 12)[name], records[name][1:2, :12])
    for name in ("start_positions", "end_positions"):
        np.testing.assert_array_equal(batch[name], records[name][:, 0])
    assert {value.dtype for value in batch.values()} == {np.dtype(np.int32)}


def test_no_positions_in_prediction(tmp_path):
    encoded = EncodedWindows(**collected(toy_windows(tmp_path, is_training=False)[1]))
    assert sorted(encoded.features(np.array([0]), 14)) == ["input_ids", "input_mask", "segment_ids"]


def test_the_loss_of_a_span():
    start = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [0.2, 0.3, 0.4]], np.float32)
    end = np.array([[0.0, 0.0, 1.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0]], np.float32)
    features = {"start_positions": np.array([1, 2, 3]), "end_positions": np.array([2, 0, -1])}

    def model(features):
        return start, end

    def cross_entropy(logits, position):
        return np.log(np.exp(logits).sum()) - logits[position]

    losses = np.asarray(SquadTask().losses(model, features))
    expected = [
        (cross_entropy(start[0], 1) + cross_entropy(end[0], 2)) / 2,
        (cross_entropy(start[1], 2) + cross_entropy(end[1], 0)) / 2,
        0.0,  # both positions lie outside
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    np.testing.assert_array_equal(SquadTask().weights(features), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(("threshold", "exact"), [(0.0, 50.0), (-10.0, 0.0)])
def test_metrics_of_a_set(threshold, exact, tmp_path):
    """The answer to the first question is certain in its first window; nothing else is above "no answer"."""
    examples, windows = toy_windows(tmp_path, is_training=False)
    gold = [Question("q1", ["Driver"]), Question("q2", ["noon"])]
    encoded = EncodedQuestions(**collected(windows), examples=examples, windows=windows, gold=gold)
    start, end = np.zeros((2, len(windows), 14), np.float32)
    start[:, 0] = end[:, 0] = 2.0
    place = windows[0].tokens.index("driver")
    start[0, place] = end[0, place] = 5.0
    task = SquadTask(AnswerRules(version_2_with_negative=True), threshold)
    results = task.metrics(encoded, {"start_logits": start, "end_logits": end})
    assert results["exact"] == exact
    assert results["total"] == 2
