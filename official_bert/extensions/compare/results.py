"""The results of a comparison: rows in a file, a table, and a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from official_bert.extensions.compare.picture import PicturePoint, draw_points
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError, brief

ROWS_FILE, TABLE_FILE, PICTURE_FILE = "comparison.jsonl", "comparison.md", "comparison.svg"
Row = dict[str, Any]


def mark_front(rows: Sequence[Row]) -> None:
    """Set `is_on_front` of rows: no other one is at least as good in both quality and time.

    Of rows with the same quality and time, all are on the front.

    Args:
        rows: the rows, with `quality` and `ms_per_text`.
    """
    for row in rows:
        row["is_on_front"] = not any(_beats(other, row) for other in rows)


def _beats(row: Row, other: Row) -> bool:
    gain = row["quality"] - other["quality"]
    saved_ms = other["ms_per_text"] - row["ms_per_text"]
    is_better = gain > 0 or saved_ms > 0
    return gain >= 0 and saved_ms >= 0 and is_better


def read_rows(output_dir: str) -> list[Row]:
    """Read the rows of an earlier run; there are none without its file.

    Args:
        output_dir: the folder of the comparison.

    Raises:
        InputError: a line is not a JSON object.
    """
    path = os.path.join(output_dir, ROWS_FILE)
    if not files.exists(path):
        return []
    rows = []
    for number, line in enumerate(reading.read_lines(path), 1):
        if line.strip():
            rows.append(_parse_row(line, f"{path}: line {number}"))
    return rows


def _parse_row(line: str, where: str) -> Row:
    try:
        value = reading.parse_json(line)
    except ValueError as error:
        raise InputError(
            f"{where}: is no JSON ({brief(error)}); delete the line and run again"
        ) from error
    return reading.check_object(value, where)


def append_row(output_dir: str, row: Row) -> None:
    """Append the row of a finished point.

    Args:
        output_dir: the folder of the comparison.
        row: the row.
    """
    writing.append_line(os.path.join(output_dir, ROWS_FILE), json.dumps(row))


def write_results(
    output_dir: str,
    rows: Sequence[Row],
    earlier_rows: Sequence[Row],
    facts: Mapping[str, str],
) -> str:
    """Write the rows, the table and the picture.

    Args:
        output_dir: the folder of the comparison.
        rows: the rows of all points.
        earlier_rows: the rows of an earlier run. Those of other points stay in the file.
        facts: what the table says about the measurement: name -> value.

    Returns:
        The table.
    """
    rows = sorted(rows, key=lambda row: row["ms_per_text"])
    table = _make_table(rows)
    rows_file = os.path.join(output_dir, ROWS_FILE)
    with writing.replacing(rows_file) as file:
        names = {row["name"] for row in rows}
        other_rows = [row for row in earlier_rows if row.get("name") not in names]
        file.writelines(json.dumps(row) + "\n" for row in [*rows, *other_rows])
    commands = "\n".join(f"{row['command']}  # {row['name']}" for row in rows)
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    with writing.replacing(os.path.join(output_dir, TABLE_FILE)) as file:
        file.write(
            f"# Quality, speed and size\n\n{table}\n\n"
            + "\n".join(lines)
            + f"\n\n![The quality by milliseconds]({PICTURE_FILE})\n\n"
            + f"These commands make the exports:\n\n```shell\n{commands}\n```\n"
        )
    points = [
        PicturePoint(row["ms_per_text"], row["quality"], row["name"], row["is_on_front"])
        for row in rows
    ]
    with writing.replacing(os.path.join(output_dir, PICTURE_FILE)) as file:
        file.write(draw_points(points, "milliseconds for a text", rows[0]["metric"]))
    return table


def _make_table(rows: Sequence[Row]) -> str:
    metric = rows[0]["metric"]
    heads = [
        "model, format, weights",
        metric,
        "ms a text",
        "texts a second",
        "MB",
        "Pareto-optimal",
    ]
    cells = []
    for row in rows:
        cells.append(
            [
                row["name"],
                f"{row['quality']:.4f}",
                f"{row['ms_per_text']:.2f}",
                f"{row['texts_per_second']:.0f}",
                f"{row['megabytes']:.1f}",
                "yes" if row["is_on_front"] else "",
            ]
        )
    return writing.markdown_table(heads, cells, "--:")
