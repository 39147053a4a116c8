"""The table of commands, and the console command `official-bert` as a process without an
installation.
"""

import subprocess

import pytest

import official_bert as package
from official_bert import catalog
from official_bert.cli import commands
from tests.scripts import run_interpreter


def official_bert(*words: str, status: int = 0) -> subprocess.CompletedProcess:
    """Runs the code of the installed command, and checks that it loads no heavy package."""
    program = (
        "import sys; sys.argv[0] = '/usr/bin/official-bert'\nimport atexit; "
        "atexit.register(lambda: print([n for n in ('tensorflow', 'keras') if n in sys.modules]))\n"
        "from official_bert.cli.commands import main; main()"
    )
    finished = run_interpreter("-c", program, *words, status=status)
    assert finished.stdout.endswith("[]\n"), "a command loads TensorFlow before it needs it"
    return finished


@pytest.mark.parametrize(
    "words", [pytest.param([], id="no words"), pytest.param(["--help"], id="--help")]
)
def test_without_a_command_it_lists_all_commands(words):
    lines = official_bert(*words).stdout.splitlines()
    assert lines[0] == "usage: official-bert COMMAND [--flag=value ...]"
    rows = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert rows == [[name, command.summary] for name, command in catalog.commands().items()]


def test_the_version_is_that_of_the_package():
    assert official_bert("--version").stdout == f"official-bert {package.__version__}\n[]\n"


@pytest.mark.parametrize("name", ["run_ner", "run-ner"])
def test_help_of_a_command(name):
    text = official_bert(name, "--help").stdout
    assert text.startswith(catalog.commands()["run_ner"].summary)
    assert f"\nusage: official-bert {name} --flag=value ...\n" in text
    assert "--[no]do_predict:" in text


def test_messages_name_the_command():
    stderr = official_bert("run-ner", "--document_context=perhaps", status=1).stderr
    assert stderr.startswith("official-bert run-ner: ")
    assert "--document_context=perhaps" in stderr


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        pytest.param("run-clasifier", "did you mean run_classifier?", id="misspelled"),
        pytest.param("run_squad.py", "did you mean run_squad?", id="name of a script"),
        pytest.param("--do_train", "official-bert --help lists the commands", id="flag"),
    ],
)
def test_an_unknown_command_is_refused_with_the_most_similar_one(name, remedy):
    assert commands.unknown(name) == f"there is no command {name!r}; {remedy}"


def test_an_unknown_command_ends_in_one_sentence():
    stderr = official_bert("predicts", "--model=x", status=1).stderr
    assert stderr == "official-bert: there is no command 'predicts'; did you mean predict?\n"
