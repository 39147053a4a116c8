"""docs/first_project.md: its commands and its Python code, from one CSV file to an export."""

import json
import re
import shlex

import pytest

from official_bert import catalog
from official_bert.cli.help_text import basic_fields
from tests import toy
from tests.extensions.tables.tickets import read_csv
from tests.scripts import run_here
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "first_project.md").read_text(encoding="utf-8")
MAKE_TICKETS, NOTEBOOK_CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL)
QUICKSTART_MODEL = "quickstart_output/short/bert"


def split_command(command: str, folder: object) -> list[str]:
    """Returns the words of a command, with the model of the page and a folder in place of /tmp."""
    line = command.replace("\\\n", "").replace("$MODEL", QUICKSTART_MODEL)
    return shlex.split(line.replace("/tmp", str(folder)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of the page's user, with the tickets and a model."""
    monkeypatch.chdir(tmp_path)
    exec(MAKE_TICKETS, {})
    toy.make_bert_base_dir(tmp_path / QUICKSTART_MODEL)
    return tmp_path


def test_the_commands_run_to_an_export_that_abstains(folder):
    _, train, _, abstain, predict, export, serve, query = COMMANDS
    assert COMMANDS[0] == f"export MODEL={QUICKSTART_MODEL}\n"
    assert split_command(abstain, folder)[:-1] == split_command(train, folder)
    for command in (abstain, predict, export):
        program, name, *words = split_command(command, folder)
        assert program == "official-bert"
        run_here(name, *words)

    tickets = read_csv(folder / "tickets.csv")
    predictions = read_csv(folder / "tickets_with_teams.csv")
    assert len(predictions) == 400
    for ticket, prediction in zip(tickets, predictions, strict=True):
        is_answered = float(prediction.pop("probability")) >= 0.8
        assert bool(prediction.pop("label")) == is_answered
        assert prediction == ticket
    (description,) = (folder / "tickets_export").glob("*/assets.extra/export.json")
    assert json.loads(description.read_text())["settings"]["abstain_below"] == 0.8

    assert f"--model=tickets={folder}/tickets_export" in split_command(serve, folder)
    request = json.loads(split_command(query, folder)[-1])
    assert list(map(type, request["instances"])) == [str]


@pytest.mark.needs_extra("pandas")
def test_the_python_code_runs(folder, capsys):
    names = {}
    exec(NOTEBOOK_CODE.replace("/tmp", str(folder)), names)
    assert names["classifier"].metrics["eval_accuracy"] > 0.2
    assert "[400 rows" in capsys.readouterr().out


def test_the_commands_fit_in_80_columns():
    lines = [line for command in COMMANDS for line in command.splitlines()]
    assert [line for line in lines if len(line) > 80] == []
    assert len(COMMANDS) == 8


def test_the_help_shows_each_training_flag():
    """--help lists few of the many flags; a reader of the page finds these there."""
    _, train, *_ = COMMANDS
    flags = re.findall(r"--(\w+)", train)
    names = [field.name for field in basic_fields(catalog.options_class("run_classifier"))]
    assert sorted(set(flags) - set(names)) == []
