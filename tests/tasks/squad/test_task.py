import dataclasses
import json

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.metrics.squad import Question
from official_bert.model_source import resolve
from official_bert.options.fine_tuning import SquadOptions
from official_bert.options.serving import ExportOptions
from official_bert.tasks.base import DataFiles
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

    def cross_entropy(logits, position):
        return np.log(np.exp(logits).sum()) - logits[position]

    losses = np.asarray(SquadTask().losses(lambda features: (start, end), features))
    expected = [
        (cross_entropy(start[0], 1) + cross_entropy(end[0], 2)) / 2,
        (cross_entropy(start[1], 2) + cross_entropy(end[1], 0)) / 2,
        0.0,  # both positions lie outside
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    np.testing.assert_array_equal(SquadTask().weights(features), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(("threshold", "exact"), [(0.0, 50.0), (-10.0, 0.0)])
def test_metrics_of_a_set(threshold, exact, tmp_path):
    """The answer to the first question is certain in its first window; nothing else is above "no
    answer".
    """
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


FILES = {"vocab_file": "v", "bert_config_file": "c"}


def test_flags_not_given_are_the_original_defaults():
    assert SquadRules.from_values({}) == SquadRules()
    assert SquadRules.from_values(vars(SquadOptions(**FILES, output_dir=""))) == SquadRules()
    exported = ExportOptions(**FILES, task_name="squad", export_dir="", init_checkpoint="")
    rules = SquadRules.from_values(vars(resolve(exported).options))
    assert rules == dataclasses.replace(SquadRules(), max_seq_length=128)


def test_every_rule_is_a_flag_of_the_script():
    given = {
        "max_seq_length": 100, "doc_stride": 10, "max_query_length": 9, "do_lower_case": False,
        "strip_accents": True, "n_best_size": 3, "max_answer_length": 4, "version_2_with_negative": True,
        "null_score_diff_threshold": "-1.5", "length_aware_batches": True, "verbose_logging": True,
    }  # fmt: skip
    assert given.keys() == {field.name for field in dataclasses.fields(SquadRules)}
    rules = SquadRules.from_values(vars(SquadOptions(**FILES, output_dir="", **given)))
    assert dataclasses.asdict(rules) == given | {"null_score_diff_threshold": -1.5}
    recorded = SquadRules.from_values(SquadTask(rules).settings())
    assert recorded == dataclasses.replace(rules, verbose_logging=recorded.verbose_logging)


@pytest.mark.parametrize("version_2_with_negative", [False, True])
def test_questions_without_an_answer(version_2_with_negative, tmp_path, caplog):
    answers = [{"text": "cat", "answer_start": 4}]
    questions = [{"id": name, "question": "Who?", "answers": answers} for name in "ab"]
    questions.append({"id": "c", "question": "What?", "answers": [], "is_impossible": True})
    path = tmp_path / "dev.json"
    path.write_text(
        json.dumps({"data": [{"paragraphs": [{"context": "The cat sat.", "qas": questions}]}]})
    )
    task = SquadTask(SquadRules(version_2_with_negative=version_2_with_negative))
    (read,) = task.read(DataFiles(None, {"test": str(path)}), "test").values()
    assert len(read.gold) == 3
    message = (
        "dev.json: 1 of 3 questions have no answer and count as wrong; for files of SQuAD 2.0, "
        "pass --version_2"
    )
    assert [message in text for text in caplog.messages] == [True] * (not version_2_with_negative)


@pytest.mark.parametrize("recorded", ["auto", None])
def test_a_threshold_that_was_to_be_tuned_is_not_known(recorded):
    settings = {"null_score_diff_threshold": recorded, "version_2_with_negative": True}
    rules = SquadRules.from_values(settings)
    assert rules.is_tuned
    assert SquadTask(rules).main_metric == "best_f1"
    assert not dataclasses.replace(rules, version_2_with_negative=False).is_tuned
    assert not SquadRules.from_values(settings | {"null_score_diff_threshold": 0.0}).is_tuned


@pytest.mark.parametrize(
    ("threshold", "has_negatives"), [("-1.5", False), ("-1.5", True), ("0.0", False)]
)
def test_a_threshold_without_negatives_is_warned_of(threshold, has_negatives, caplog):
    SquadRules.from_values(
        {"null_score_diff_threshold": threshold, "version_2_with_negative": has_negatives}
    )
    message = "--null_score_diff_threshold=-1.5: is ignored without --version_2_with_negative"
    assert caplog.messages == [message] * (threshold == "-1.5" and not has_negatives)


def test_lengths_without_room_for_a_document_are_refused():
    SquadRules(max_seq_length=12, max_query_length=8).check_room()
    with pytest.raises(
        InputError, match="--max_seq_length=11: leaves no room for a document beside "
    ):
        SquadRules(max_seq_length=11, max_query_length=8).check_room()
