"""Budgets that keep the package readable, by measures that no packing can meet.

- Statements by room: what a stranger has to read. Docstrings, comments and blank lines are free.
- Expression nodes a line of code: how much stands on a line.
- Flags: the list of each command. A new flag needs a line there, a line in a guide, and a reason.
"""

import ast
import collections
import functools
import pathlib
from typing import NamedTuple

from official_bert import catalog
from official_bert.options.fields import flag_fields
from tests.shared import ROOT

PACKAGE = ROOT / "official_bert"
FLAGS = ROOT / "tests" / "flags_by_command.txt"

# Statements of the core by room, as many as there were when the budget was set. Who raises one has
# looked for what can go, or become an extension.
MAX_STATEMENTS = {
    "checkpoints": 1210,
    "cli": 504,
    "commands": 1184,
    "compat": 245,
    "data": 3809,
    "fine_tuning": 1238,
    "graph_text": 636,
    "io": 1562,
    "metrics": 522,
    "modeling": 1199,
    "modules": 1935,
    "optimization": 360,
    "options": 539,
    "serving": 1395,
    "tasks": 4145,
    "training": 2055,
}
MAX_LONG_SIGNATURES = 25  # functions of more than 6 arguments, each with a reason at its noqa
MAX_STATEMENTS_OF_AN_EXTENSION = 1200
# An extension with a reason for more.
MAX_STATEMENTS_OF_LARGE_EXTENSIONS = {
    # A compiler: it writes whole models, with their tokenizer, by the operations of a runtime that
    # has no tokenizer and no rows of different lengths. Each operation is a function of a table.
    "extensions/onnx_files": 1510,
}
# Expression nodes a line of code: the mean of the package, of a file in it, and of the tests.
MAX_MEAN_DENSITY = 4.0
MAX_FILE_DENSITY = 5.0
# Files in which each line adds a node to a graph, with its inputs and attributes.
MAX_DENSITY_OF_GRAPH_WRITERS = 5.8
GRAPH_WRITERS = (
    "extensions/onnx_files/onnx_encoder.py",
    "extensions/onnx_files/onnx_products.py",
    "extensions/onnx_files/onnx_ragged.py",
    "extensions/onnx_files/onnx_ragged_operations.py",
    "extensions/onnx_files/onnx_tokenizer.py",
    "extensions/onnx_files/onnx_vectors.py",
    "graph_text/vectors.py",
)
MAX_MEAN_DENSITY_OF_TESTS = 4.2


class Measure(NamedTuple):
    """The size of a source: statements, expression nodes, and lines of code.

    Docstrings count in none of them; comments and blank lines are no lines of code.
    """

    statements: int
    expressions: int
    lines: int

    @property
    def density(self) -> float:
        return self.expressions / max(1, self.lines)


def docstrings(tree: ast.Module) -> list[ast.Expr]:
    """The statements that are docstrings of modules, classes and functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    return [node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None]


def measured(source: str) -> Measure:
    tree = ast.parse(source)
    documentation = docstrings(tree)
    texts = [statement.value for statement in documentation]
    nodes = list(ast.walk(tree))
    documented_lines = {
        number
        for statement in documentation
        for number in range(statement.lineno, statement.end_lineno + 1)
    }
    code = [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in documented_lines
    ]
    return Measure(
        statements=sum(isinstance(node, ast.stmt) for node in nodes) - len(documentation),
        expressions=sum(isinstance(node, ast.expr) for node in nodes) - len(texts),
        lines=len(code),
    )


@functools.cache
def measures(folder: pathlib.Path) -> dict[str, Measure]:
    """The measures of all sources below a folder by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): measured(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }


def room_of(path: str) -> str:
    """The room of a file: the name of its folder, of an extension with it, else "modules"."""
    parts = path.split("/")
    if parts[0] == "extensions" and len(parts) > 2:
        return f"extensions/{parts[1]}"
    return parts[0] if len(parts) > 1 else "modules"


def statements_by_room() -> dict[str, int]:
    statements = collections.Counter()
    for path, measure in measures(PACKAGE).items():
        statements[room_of(path)] += measure.statements
    return statements


def mean_density(folder: pathlib.Path) -> float:
    files = measures(folder).values()
    return sum(one.expressions for one in files) / sum(one.lines for one in files)


def test_a_measure_counts_neither_docstrings_nor_comments():
    source = '"""A\nmodule."""\n\nx = 1  # one\n\n\ndef f():\n    """Returns."""\n    # why\n    return x\n'
    # x, 1 and the returned x; the assignment, the function and the return.
    assert measured(source) == Measure(statements=3, expressions=3, lines=3)


def test_no_room_of_the_core_has_more_statements_than_its_budget():
    core = {
        room: count
        for room, count in statements_by_room().items()
        if not room.startswith("extensions")
    }
    assert core.keys() == MAX_STATEMENTS.keys()
    assert {room: count for room, count in core.items() if count > MAX_STATEMENTS[room]} == {}


def test_no_extension_is_large():
    sizes = statements_by_room()
    assert {
        room: count
        for room, count in sizes.items()
        if room.startswith("extensions/")
        and count > MAX_STATEMENTS_OF_LARGE_EXTENSIONS.get(room, MAX_STATEMENTS_OF_AN_EXTENSION)
    } == {}


def test_lines_are_not_packed():
    assert mean_density(PACKAGE) <= MAX_MEAN_DENSITY
    assert mean_density(ROOT / "tests") <= MAX_MEAN_DENSITY_OF_TESTS
    limits = dict.fromkeys(GRAPH_WRITERS, MAX_DENSITY_OF_GRAPH_WRITERS)
    dense = {
        path: round(measure.density, 2)
        for path, measure in measures(PACKAGE).items()
        if measure.density > limits.get(path, MAX_FILE_DENSITY)
    }
    assert dense == {}


def test_few_functions_have_many_arguments():
    marks = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "noqa: PLR0913" in line
    ]
    assert len(marks) <= MAX_LONG_SIGNATURES, marks
    assert all(" - " in mark for mark in marks), marks


def flag_lines() -> list[str]:
    """The flags of each command, a line each."""
    lines = []
    for command in sorted(catalog.commands()):
        names = sorted(field.name for field in flag_fields(catalog.options_class(command)))
        lines.append(f"{command}: {' '.join(names)}")
    return lines


def test_the_flags_of_the_commands_are_those_of_the_list():
    """A new flag needs a line in a guide and a reason; write it into the list then."""
    assert flag_lines() == FLAGS.read_text(encoding="utf-8").splitlines()
