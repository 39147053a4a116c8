"""What holds for every script of the repository root, whatever it does; the list is read from
the folder.
"""

import ast
import re
import signal
from dataclasses import MISSING, Field

import pytest

from official_bert import catalog
from official_bert.cli.help_text import ORDER, basic_fields, find_heading
from official_bert.options.fields import flag_fields
from tests.scripts import command_line, end_of, flag_list, run_interpreter, run_script
from tests.shared import ROOT

SCRIPTS = sorted(path.name for path in ROOT.glob("*.py"))
COMMANDS = list(catalog.commands())
# A flag and its help, to the next flag or the end of the part.
FLAG_HELP = re.compile(r"^ +--(?:\[no\])?(\w+):[ \n]((?:.|\n(?!\n|  --))*)", re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_slow_and_lists_what_a_beginner_needs(command):
    """A script of a user that asks for --help first goes on, with status 0, where absl ended it
    with 1.
    """
    finished = run_interpreter(*command_line(command), "--help", PYTHONPROFILEIMPORTTIME="1")
    loaded = {
        line.rpartition("|")[2].strip()
        for line in finished.stderr.splitlines()
        if "import time:" in line
    }
    assert "official_bert.io.errors" in loaded
    assert loaded & {"numpy", "tensorflow", "keras", "matplotlib", "multiprocessing"} == set()

    text = finished.stdout
    assert catalog.commands()[command].summary in " ".join(text.split())
    assert "--helpfull shows " in text
    basic = basic_fields(catalog.options_class(command))
    assert len(basic) <= 20
    assert_flags_stand_under_headings(text, command, basic)


@pytest.mark.parametrize("command", COMMANDS)
def test_helpfull_lists_every_flag(command):
    finished = run_script(command, "--helpfull")
    all_fields = flag_fields(catalog.options_class(command))
    assert_flags_stand_under_headings(finished.stdout, command, all_fields)


def assert_flags_stand_under_headings(text: str, command: str, fields: list[Field]):
    options_class = catalog.options_class(command)
    expected_flags = {}
    expected_headings = set()
    for field in fields:
        heading = find_heading(options_class, field)
        is_required = field.default is MISSING
        expected_flags[field.name] = (heading, is_required)
        expected_headings.add(heading)

    flags = {}
    headings = []
    for part in re.split(r"\n\n(?=[A-Z])", text):
        heading, _, _ = part.partition(":\n")
        if heading not in ORDER:
            continue
        headings.append(heading)
        for name, help_text in FLAG_HELP.findall(part):
            if not help_text.startswith("Alias"):
                flags[name] = (heading, "(required)" in help_text)
    assert headings == sorted(expected_headings, key=ORDER.index)
    assert flags == expected_flags


MAX_FLAGS = 235  # of all commands; the newest is that of one head of an export


def test_the_commands_have_few_flags_and_run_classifier_83():
    names = {
        command: {field.name for field in flag_fields(catalog.options_class(command))}
        for command in COMMANDS
    }
    assert len(set().union(*names.values())) <= MAX_FLAGS
    assert len(names["run_classifier"]) <= 83


def test_the_scripts_are_those_of_the_original_and_two_tasks_more():
    """All other commands are `official-bert NAME`."""
    originals = "create_pretraining_data extract_features run_classifier run_pretraining run_squad"
    names = sorted([*originals.split(), "run_ner", "run_swag"])
    assert [f"{name}.py" for name in names] == SCRIPTS
    for script in SCRIPTS:
        source = (ROOT / script).read_text(encoding="utf-8")
        tree = ast.parse(source)
        name = script.removesuffix(".py")
        *_, main_block = tree.body
        *_, last_statement = main_block.body
        assert ast.unparse(last_statement) == f"commands.run_command('{name}')"
        docstring = ast.get_docstring(tree)
        summary = " ".join(docstring.split())
        assert summary == catalog.commands()[name].summary


def test_the_originals_scripts_alone_ignore_unknown_flags():
    commands = catalog.commands().items()
    assert {name for name, command in commands if command.ignores_unknown_flags} == {
        "create_pretraining_data",
        "extract_features",
        "run_classifier",
        "run_pretraining",
        "run_squad",
    }


def test_importing_every_script_defines_no_flag_and_loads_no_tensorflow():
    modules = [script.removesuffix(".py") for script in SCRIPTS]
    code = (
        "import sys\nfrom absl import app, flags, logging  # their own flags are not ours\nbefore "
        f"= set(flags.FLAGS)\nimport {', '.join(modules)}\nprint(sorted(set(flags.FLAGS) - "
        "before))\nprint([name for name in ('tensorflow', 'keras', 'tensorflow_text') if name in "
        "sys.modules])\n"
    )
    assert run_interpreter("-c", code).stdout == "[]\n[]\n"


def test_unknown_missing_and_wrong_flags_end_in_one_sentence(tmp_path):
    absent = tmp_path / "absent.json"
    flags = flag_list(vocab_file=absent, input_file=absent, do_lower=False, dupe_factor=0)
    ended = end_of("create_pretraining_data.py", *flags)
    assert ended.status == 1
    assert "--output_file: must be given\n--dupe_factor=0: must be positive" in ended.sentence
    flags = flag_list(
        vocab_file=absent, input_file=absent, do_lower=False, output_file=tmp_path / "out"
    )
    stderr = run_script("create_pretraining_data.py", *flags, status=1).stderr
    assert "unknown flag: --do_lower=False; did you mean --do_lower_case? (--nostrict" in stderr
    flags.append("--nostrict_flags")
    stderr = run_script("create_pretraining_data.py", *flags, status=1).stderr
    assert "unknown flag, ignored: --do_lower=False; did you mean --do_lower_case?" in stderr
    assert f"{absent}: no such file" in stderr
    assert "Traceback" not in stderr


def test_ctrl_c_while_tensorflow_is_imported_is_one_sentence(tmp_path):
    """However early or late in the import it comes."""
    slow = tmp_path / "tensorflow.py"
    slow.write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    flags = [f"--{name}={tmp_path}" for name in ("task_name", "data_dir", "output_dir")]
    # Ignored where a shell runs this in background.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command = [ROOT / "run_classifier.py", *flags, "--do_train"]
        finished = run_interpreter(*command, status=130, PYTHONPATH=f"{tmp_path}:{ROOT}")
    finally:
        signal.signal(signal.SIGINT, previous)
    assert (
        finished.stderr
        == f"{ROOT}/run_classifier.py: interrupted; the same command resumes the training\n"
    )
