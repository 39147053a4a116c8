"""The names, types, defaults and required marks of the original's flags, checked in the scripts.

ORIGINAL states what the original has, and OURS, a line each, what differs on purpose.
"""

import re
import shlex
import xml.etree.ElementTree as ElementTree

import pytest

from tests.scripts import end_of, run_script

REQUIRED = "no default: the flag has to be given"

# What the trainings have in common.
TRAINING_FLAGS = {
    "bert_config_file": (str, REQUIRED),
    "output_dir": (str, REQUIRED),
    "init_checkpoint": (str, None),
    "max_seq_length": (int, 128),
    "do_train": (bool, False),
    "train_batch_size": (int, 32),
    "learning_rate": (float, 5e-5),
    "save_checkpoints_steps": (int, 1000),
    "use_tpu": (bool, False),
    "tpu_name": (str, None),
    "tpu_zone": (str, None),
    "gcp_project": (str, None),
    "master": (str, None),
    "num_tpu_cores": (int, 8),
    "iterations_per_loop": (int, 1000),
}
FINE_TUNING_FLAGS = TRAINING_FLAGS | {
    "vocab_file": (str, REQUIRED),
    "do_lower_case": (bool, True),
    "do_predict": (bool, False),
    "predict_batch_size": (int, 8),
    "num_train_epochs": (float, 3.0),
    "warmup_proportion": (float, 0.1),
}
ORIGINAL = {
    "create_pretraining_data.py": {
        "input_file": (str, REQUIRED),
        "output_file": (str, REQUIRED),
        "vocab_file": (str, REQUIRED),
        "do_lower_case": (bool, True),
        "do_whole_word_mask": (bool, False),
        "max_seq_length": (int, 128),
        "max_predictions_per_seq": (int, 20),
        "random_seed": (int, 12345),
        "dupe_factor": (int, 10),
        "masked_lm_prob": (float, 0.15),
        "short_seq_prob": (float, 0.1),
    },
    "run_pretraining.py": TRAINING_FLAGS
    | {
        "input_file": (str, REQUIRED),
        "max_predictions_per_seq": (int, 20),
        "do_eval": (bool, False),
        "eval_batch_size": (int, 8),
        "num_train_steps": (int, 100000),
        "num_warmup_steps": (int, 10000),
        "max_eval_steps": (int, 100),
    },
    "run_classifier.py": FINE_TUNING_FLAGS
    | {
        "data_dir": (str, REQUIRED),
        "task_name": (str, REQUIRED),
        "do_eval": (bool, False),
        "eval_batch_size": (int, 8),
    },
    "run_squad.py": FINE_TUNING_FLAGS
    | {
        "train_file": (str, None),
        "predict_file": (str, None),
        "max_seq_length": (int, 384),
        "doc_stride": (int, 128),
        "max_query_length": (int, 64),
        "n_best_size": (int, 20),
        "max_answer_length": (int, 30),
        "verbose_logging": (bool, False),
        "version_2_with_negative": (bool, False),
        "null_score_diff_threshold": (float, 0.0),
    },
    "extract_features.py": {
        "input_file": (str, REQUIRED),
        "output_file": (str, REQUIRED),
        "vocab_file": (str, REQUIRED),
        "bert_config_file": (str, REQUIRED),
        "init_checkpoint": (str, REQUIRED),
        "layers": (str, "-1,-2,-3,-4"),
        "max_seq_length": (int, 128),
        "do_lower_case": (bool, True),
        "batch_size": (int, 32),
        "use_tpu": (bool, False),
        "master": (str, None),
        "num_tpu_cores": (int, 8),
        "use_one_hot_embeddings": (bool, False),
    },
}

_SPLIT = "the text is split at its commas"
_FOLDER = "--model, or the folder of the checkpoint, may have the file"
_FILES_OF_A_MODEL = ("vocab_file", "bert_config_file", "init_checkpoint")
OURS = {
    **{
        (script, name): (str, None, _FOLDER)
        for script, stated in ORIGINAL.items()
        for name in _FILES_OF_A_MODEL
        if stated.get(name) == (str, REQUIRED)
    },
    ("create_pretraining_data.py", "input_file"): (list[str], REQUIRED, _SPLIT),
    ("create_pretraining_data.py", "output_file"): (list[str], REQUIRED, _SPLIT),
    ("run_pretraining.py", "input_file"): (list[str], REQUIRED, _SPLIT),
    ("run_classifier.py", "data_dir"): (
        str,
        None,
        "--task_name=text has flags for its files, others ask for it",
    ),
    ("run_squad.py", "null_score_diff_threshold"): (
        str,
        "0.0",
        "the value may also be the word auto",
    ),
}

# One command line of the original's README; test_original_commands.py and the tests of the scripts
# run the others.
ON_A_TPU = (
    "run_squad.py --vocab_file=x --bert_config_file=x --init_checkpoint=x --do_train=True "
    "--train_file=x --do_predict=True --predict_file=x --train_batch_size=24 --learning_rate=3e-5 "
    "--num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 "
    "--output_dir=gs://some_bucket/squad_large/ --use_tpu=True --tpu_name=x "
    "--version_2_with_negative=True"
)
TFHUB = (
    "run_classifier.py --task_name=MRPC --do_train=true --do_eval=true --data_dir=x "
    "--max_seq_length=128 "
    "--bert_hub_module_handle=https://tfhub.dev/google/bert_uncased_L-12_H-768_A-12/1 "
    "--output_dir=x"
)

EVERY_SCRIPT = pytest.mark.parametrize("script", ORIGINAL)


def ours(script: str) -> dict[str, tuple]:
    """Flag -> (type, default) as the script is to have it."""
    return {name: OURS.get((script, name), stated)[:2] for name, stated in ORIGINAL[script].items()}


def test_the_table_holds_every_flag_of_the_original():
    assert sum(map(len, ORIGINAL.values())) == 101
    for script, name in OURS:
        assert OURS[script, name][:2] != ORIGINAL[script][name], (
            f"{script} --{name} does not differ"
        )


XML_KINDS = {
    "bool": (bool, {"true": True, "false": False}.get),
    "int": (int, int),
    "float": (float, float),
    "string": (str, str),
    "comma separated list of strings": (list[str], lambda text: text.split(",")),
}


@EVERY_SCRIPT
def test_the_help_shows_the_types_and_defaults(script):
    found = {}
    for flag in ElementTree.fromstring(run_script(script, "--helpxml", status=1).stdout).iter(
        "flag"
    ):
        if flag.findtext("key") == "yes":  # absl's own are not of the script
            kind, read = XML_KINDS.get(flag.findtext("type"), (None, str))
            current = flag.findtext("current")
            found[flag.findtext("name")] = kind, None if current == "None" else read(current)
    stated = {
        name: (kind, None if default == REQUIRED else default)
        for name, (kind, default) in ours(script).items()
    }
    assert {name: found.get(name) for name in stated} == stated


@EVERY_SCRIPT
def test_the_required_flags_are_the_originals(script):
    missing = re.findall(r"--(\w+): must be given", end_of(script).sentence)
    assert sorted(missing) == sorted(
        name for name, (_, default) in ours(script).items() if default == REQUIRED
    )


def test_the_command_line_on_a_tpu_is_understood():
    # No unknown flag, no wrong value.
    assert run_script(*shlex.split(ON_A_TPU), "--only_check_args").stderr == ""


def test_the_command_line_of_the_hub_variant_is_refused_with_the_remedy():
    """It needed no --vocab_file and no --bert_config_file, so the script must not ask for these
    first.
    """
    stderr = run_script(*shlex.split(TFHUB), status=1).stderr
    assert "Hub modules are not supported" in stderr
    assert "--vocab_file, --bert_config_file and --init_checkpoint" in stderr
    assert stderr.count("\n") == 1
