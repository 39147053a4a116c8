"""The settings of SQuAD from flags, and from what an export has recorded."""

import dataclasses

import pytest

from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.options.fine_tuning import SquadOptions
from official_bert.options.serving import ExportOptions
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import SquadTask

FILES = {"vocab_file": "v", "bert_config_file": "c"}


def test_flags_not_given_are_the_original_defaults():
    assert SquadRules.from_settings({}) == SquadRules()
    assert SquadRules.from_settings(vars(SquadOptions(**FILES, output_dir=""))) == SquadRules()
    exported = ExportOptions(**FILES, task_name="squad", export_dir="", init_checkpoint="")
    rules = SquadRules.from_settings(vars(resolve(exported).options))
    assert rules == dataclasses.replace(SquadRules(), max_seq_length=128)


def test_every_rule_is_a_flag_of_the_script():
    given = {
        "max_seq_length": 100, "doc_stride": 10, "max_query_length": 9, "do_lower_case": False,
        "strip_accents": True, "n_best_size": 3, "max_answer_length": 4, "version_2_with_negative": True,
        "null_score_diff_threshold": "-1.5", "length_aware_batches": True, "verbose_logging": True,
    }  # fmt: skip
    assert given.keys() == {field.name for field in dataclasses.fields(SquadRules)}
    rules = SquadRules.from_settings(vars(SquadOptions(**FILES, output_dir="", **given)))
    assert dataclasses.asdict(rules) == given | {"null_score_diff_threshold": -1.5}


@pytest.mark.parametrize("recorded", ["auto", None])
def test_a_threshold_that_was_to_be_tuned_is_not_known(recorded):
    settings = {"null_score_diff_threshold": recorded, "version_2_with_negative": True}
    rules = SquadRules.from_settings(settings)
    assert rules.is_tuned
    assert SquadTask(rules).main_metric == "best_f1"
    assert not dataclasses.replace(rules, version_2_with_negative=False).is_tuned
    assert not SquadRules.from_settings(settings | {"null_score_diff_threshold": 0.0}).is_tuned


def test_exports_record_what_they_are_asked_with():
    rules = SquadRules(null_score_diff_threshold=-2.5, doc_stride=7, length_aware_batches=True)
    assert SquadRules.from_settings(SquadTask(rules).settings()) == rules


def test_lengths_without_room_for_a_document_are_refused():
    SquadRules(max_seq_length=12, max_query_length=8).check_room()
    with pytest.raises(InputError, match="--max_seq_length=11: leaves no room for a document beside "):
        SquadRules(max_seq_length=11, max_query_length=8).check_room()
