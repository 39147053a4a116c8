"""Tickets with a message, a team and other columns, which the tests of tables train on."""

import csv
import pathlib
from collections.abc import Iterable, Sequence

WORDS_BY_TEAM = {"cats, dogs": "cat", "trains": "train"}
COLUMNS = ("ticket id", "Message", "Team", "Channel")


def make_rows(count: int, first: int = 0) -> list[list[str]]:
    """Returns tickets of two teams by turns; a message has commas, quotes and line breaks."""
    rows = []
    for number in range(first, first + count):
        team = list(WORDS_BY_TEAM)[number % 2]
        message = f'the {WORDS_BY_TEAM[team]}, was "on"\nthe mat {number}'
        rows.append([f"T-{number}", message, team, "mail"])
    return rows


def write_csv(
    path: pathlib.Path, rows: Iterable[Sequence[str]], names: Sequence[str] = COLUMNS
) -> pathlib.Path:
    """Writes a CSV file with the names of the columns; returns its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def read_csv(path: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
