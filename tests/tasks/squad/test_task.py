import dataclasses

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
from tests.tasks.squad.sample import LENGTHS, toy_windows, write_squad


def test_the_loss_of_a_span():
    start_logits = np.float32(
        [
            [1.0, 2.0, 0.5],
            [0.0, -1.0, 3.0],
            [0.2, 0.3, 0.4],
        ]
    )
    end_logits = np.float32(
        [
            [0.0, 0.0, 1.0],
            [2.0, 1.0, 0.0],
            [1.0, 1.0, 1.0],
        ]
    )
    features = {
        "start_positions": np.array([1, 2, 3]),
        "end_positions": np.array([2, 0, -1]),
    }

    def cross_entropy(logits, position):
        return np.log(np.exp(logits).sum()) - logits[position]

    def loss_of(row, start, end):
        start_loss = cross_entropy(start_logits[row], start)
        end_loss = cross_entropy(end_logits[row], end)
        return (start_loss + end_loss) / 2

    def model(features):
        return start_logits, end_logits

    task = SquadTask()
    losses = np.asarray(task.losses(model, features))
    expected = [
        loss_of(0, start=1, end=2),
        loss_of(1, start=2, end=0),
        0.0,  # both positions lie outside
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    np.testing.assert_array_equal(task.weights(features), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("threshold", "exact"),
    [
        pytest.param(0.0, 50.0, id="an answer that leads"),
        pytest.param(-10.0, 0.0, id="an answer that leads by ten"),
    ],
)
def test_metrics_of_a_set(threshold, exact, tmp_path):
    """The answer to the first question is certain in its first window; nothing else is above "no
    answer".
    """
    examples, windows = toy_windows(tmp_path, is_training=False)
    gold = [
        Question("q1", ["Driver"]),
        Question("q2", ["noon"]),
    ]
    rules = SquadRules(
        **LENGTHS,
        version_2_with_negative=True,
        null_score_diff_threshold=threshold,
    )
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path))
    encoded = encode_questions(examples, tokenizer, rules, gold)
    logits = np.zeros((len(windows), 14), np.float32)
    logits[:, 0] = 2.0
    position = windows[0].tokens.index("driver")
    logits[0, position] = 5.0
    outputs = {
        "start_logits": logits,
        "end_logits": logits,
    }
    results = SquadTask(rules).metrics(encoded, outputs)
    assert results["exact"] == exact


FILES = {
    "vocab_file": "v",
    "bert_config_file": "c",
}


def rules_of(options) -> SquadRules:
    return SquadRules.from_values(vars(options))


def test_flags_not_given_are_the_original_defaults():
    assert SquadRules.from_values({}) == SquadRules()
    script_options = SquadOptions(**FILES, output_dir="")
    assert rules_of(script_options) == SquadRules()
    export_options = ExportOptions(
        **FILES,
        task_name="squad",
        export_dir="",
        init_checkpoint="",
    )
    rules = rules_of(resolve(export_options).options)
    assert rules == dataclasses.replace(SquadRules(), max_seq_length=128)


def test_every_rule_is_a_flag_of_the_script():
    flags = {
        "max_seq_length": 100,
        "doc_stride": 10,
        "max_query_length": 9,
        "do_lower_case": False,
        "strip_accents": True,
        "n_best_size": 3,
        "max_answer_length": 4,
        "version_2_with_negative": True,
        "null_score_diff_threshold": "-1.5",
        "length_aware_batches": True,
        "verbose_logging": True,
    }
    assert flags.keys() == {field.name for field in dataclasses.fields(SquadRules)}
    options = SquadOptions(**FILES, output_dir="", **flags)
    rules = rules_of(options)
    assert dataclasses.asdict(rules) == flags | {"null_score_diff_threshold": -1.5}
    settings = SquadTask(rules).settings()
    recorded = SquadRules.from_values(settings)
    assert recorded == dataclasses.replace(rules, verbose_logging=recorded.verbose_logging)


@pytest.mark.parametrize("version_2_with_negative", [False, True])
def test_questions_without_an_answer(version_2_with_negative, tmp_path, caplog):
    answers = [{"text": "cat", "answer_start": 4}]
    questions = [{"id": name, "question": "Who?", "answers": answers} for name in "ab"]
    unanswered = {
        "id": "c",
        "question": "What?",
        "answers": [],
        "is_impossible": True,
    }
    questions.append(unanswered)
    path = write_squad(tmp_path, questions, "The cat sat.")
    rules = SquadRules(version_2_with_negative=version_2_with_negative)
    files = DataFiles(None, {"test": path})
    (read,) = SquadTask(rules).read(files, "test").values()
    assert len(read.gold) == 3
    if version_2_with_negative:
        assert caplog.messages == []
    else:
        (message,) = caplog.messages
        assert (
            "squad.json: 1 of 3 questions have no answer and count as wrong; for files of SQuAD "
            "2.0, pass --version_2"
        ) in message


@pytest.mark.parametrize("recorded", ["auto", None])
def test_a_threshold_that_was_to_be_tuned_is_not_known(recorded):
    settings = {
        "null_score_diff_threshold": recorded,
        "version_2_with_negative": True,
    }
    rules = SquadRules.from_values(settings)
    assert rules.is_tuned
    assert SquadTask(rules).main_metric == "best_f1"
    assert not dataclasses.replace(rules, version_2_with_negative=False).is_tuned
    tuned = SquadRules.from_values(settings | {"null_score_diff_threshold": 0.0})
    assert not tuned.is_tuned


IGNORED = "--null_score_diff_threshold=-1.5: is ignored without --version_2_with_negative"


@pytest.mark.parametrize(
    ("threshold", "has_negatives", "warnings"),
    [
        pytest.param("-1.5", False, [IGNORED], id="another threshold without negatives"),
        pytest.param("-1.5", True, [], id="another threshold with negatives"),
        pytest.param("0.0", False, [], id="the default without negatives"),
    ],
)
def test_a_threshold_without_negatives_is_warned_of(threshold, has_negatives, warnings, caplog):
    values = {
        "null_score_diff_threshold": threshold,
        "version_2_with_negative": has_negatives,
    }
    SquadRules.from_values(values)
    assert caplog.messages == warnings


def test_lengths_without_room_for_a_document_are_refused():
    SquadRules(max_seq_length=12, max_query_length=8).check_room()
    too_short = SquadRules(max_seq_length=11, max_query_length=8)
    message = "--max_seq_length=11: leaves no room for a document beside "
    with pytest.raises(InputError, match=message):
        too_short.check_room()
