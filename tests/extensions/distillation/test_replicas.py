"""Distillation on several replicas has the numbers of one device."""

import pytest

from tests import fine_tuning_runs
from tests.commands.pretraining_run import flags_of, make_base
from tests.scripts import flag_list, run_here, run_script
from tests.test_replicas import (
    assert_replicas_equal_it,
    assert_same_pretraining,
    run_of_family,
)
from tests.toy import make_bert_base_dir


@pytest.mark.long
@pytest.mark.parametrize("flags", [{}, {"jit_compile": True, "num_accumulation_steps": 2}])
def test_replicas_learn_from_a_teacher_as_one_device(tmp_path, flags):
    base, teacher = (
        make_base(tmp_path / "base"),
        make_bert_base_dir(tmp_path / "teacher", num_hidden_layers=2),
    )
    alone = {
        "bert_config_file": base / "no_dropout.json",
        "input_file": base / "padded.tfrecord",
        "do_eval": True,
    }
    alone |= {
        "teacher": teacher,
        "distillation": "logits,hidden,attention_relations",
        "vocab_file": base / "vocab.txt",
    }
    alone |= {"max_eval_steps": 2, "distillation_weight": 0.5}
    run_here("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "one", **alone)))
    mirrored = {"distribution_strategy": "mirrored", "num_devices": 2, **flags}
    run_script(
        "run_pretraining.py",
        *flag_list(**flags_of(base, tmp_path / "several", **alone, **mirrored)),
    )
    assert_same_pretraining(tmp_path / "one", tmp_path / "several", 2)


@pytest.mark.long
@pytest.mark.parametrize("family", ["classification", "tagging", "squad"])
def test_replicas_learn_the_outputs_of_a_teacher_as_one_device(tmp_path, family):
    trained = fine_tuning_runs.prepared(tmp_path, family)
    fine_tuning_runs.run(family, trained, tmp_path / "teacher", do_train=True)
    options = run_of_family(tmp_path, family, teacher=str(tmp_path / "teacher"))
    assert_replicas_equal_it(tmp_path, family, options, 2)
