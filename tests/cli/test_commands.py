"""The table of commands, and the console command `official-bert` as a process without an
installation.
"""

import re
import subprocess

import pytest

import official_bert as package
from official_bert import catalog
from official_bert.cli import commands
from official_bert.cli.completion import completion_script
from official_bert.cli.help_text import is_required
from official_bert.extension import STAGES
from official_bert.options.fields import flag_fields
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
def test_without_a_command_it_lists_all_commands_in_the_order_of_a_project(words):
    text = official_bert(*words).stdout
    assert text.startswith("usage: official-bert COMMAND [--flag=value ...]\n")
    stages = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    # Extensions, which somebody may have deleted, have the commands of some stages.
    used_stages = {command.stage for command in catalog.commands().values()}
    assert stages == [stage for stage in STAGES if stage in used_stages]
    parts = re.split(r"^  (\w+)$", text, flags=re.MULTILINE)
    names = parts[1::2]
    assert sorted(names) == sorted(catalog.commands())
    places = [STAGES.index(catalog.commands()[name].stage) for name in names]
    assert places == sorted(places)
    for name, part in zip(names, parts[2::2], strict=True):
        joined = " ".join(part.replace("\\\n", " ").split())
        command = catalog.commands()[name]
        assert joined.startswith(f"{command.summary} official-bert {name} {command.example}")


@pytest.mark.parametrize("name", list(catalog.commands()))
def test_the_example_of_a_command_has_its_flags(name):
    """It has all flags that are needed, and no others than the command has."""
    example = catalog.commands()[name].example
    words, _, launched = example.partition(" -- ")
    typed = {word.partition("=")[0].removeprefix("--") for word in words.split() if "--" in word}
    fields = {field.name: field for field in flag_fields(catalog.options_class(name))}
    assert typed <= fields.keys()
    assert {name for name, field in fields.items() if is_required(field)} <= typed
    assert bool(launched) == (name == "launch")


def complete(shell_script: str, *words: str) -> list[str]:
    """The words that bash offers for the last of some words."""
    typed = " ".join(f"'{word}'" for word in ("official-bert", *words))
    program = (
        f"{shell_script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _official_bert\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return ended.stdout.split()


def test_bash_completes_commands_and_flags():
    shell_script = official_bert("--completion=bash").stdout.removesuffix("[]\n")
    assert complete(shell_script, "run_") == [
        name for name in catalog.commands() if name.startswith("run_")
    ]
    assert complete(shell_script, "run-ner", "--do_t") == ["--do_train"]
    assert complete(shell_script, "run_ner", "--num_train_e") == ["--num_train_epochs="]
    assert complete(shell_script, "run_ner", "--nodo_p") == ["--nodo_predict"]
    assert complete(shell_script, "build_vocab", "--do_t") == []


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "complete -o default -F _official_bert official-bert"),
        (
            "fish",
            "complete -c official-bert -n '__fish_seen_subcommand_from run_ner' -l do_train",
        ),
        (
            "fish",
            "complete -c official-bert -n '__fish_seen_subcommand_from run_ner' -l data_dir -r -F",
        ),
    ],
)
def test_other_shells_complete_too(shell, line):
    assert line in completion_script(shell).splitlines()


def test_an_unknown_shell_is_refused():
    stderr = official_bert("--completion=tcsh", status=1).stderr
    assert stderr == "official-bert: --completion=tcsh: must be one of bash, zsh, fish\n"


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
