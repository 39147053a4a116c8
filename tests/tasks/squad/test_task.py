"""The loss of a span, and the metrics of a set."""

import numpy as np
import pytest

from official_bert.metrics.squad import Question
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.squad.windows import encode_questions
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.tasks.squad.sample import LENGTHS, toy_windows


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
    rules = SquadRules(**LENGTHS, version_2_with_negative=True, null_score_diff_threshold=threshold)
    encoded = encode_questions(examples, FullTokenizer(toy.write_vocabulary(tmp_path)), rules, gold)
    start, end = np.zeros((2, len(windows), 14), np.float32)
    start[:, 0] = end[:, 0] = 2.0
    place = windows[0].tokens.index("driver")
    start[0, place] = end[0, place] = 5.0
    results = SquadTask(rules).metrics(encoded, {"start_logits": start, "end_logits": end})
    assert results["exact"] == exact
    assert results["total"] == 2
