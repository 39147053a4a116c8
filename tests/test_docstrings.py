"""Docstrings of the package: a public function says what each of its arguments means.

Ruff's D417 checks that a section `Args:` names all arguments; this test, that there is one. A
method whose base class has the method needs none: the contract stands there.
"""

import ast
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.shared import ROOT

PACKAGE = ROOT / "official_bert"


class PublicFunction(NamedTuple):
    """A public function of a module, or a public method of a public class.

    Attributes:
        node: its definition.
        class_name: the name of its class; "" for a function of a module.
    """

    node: ast.FunctionDef
    class_name: str

    @property
    def arguments(self) -> list[str]:
        arguments = self.node.args
        names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
        return [name for name in names if name not in ("self", "cls")]

    @property
    def is_overload(self) -> bool:
        return any(ast.unparse(one) == "overload" for one in self.node.decorator_list)

    @property
    def has_args(self) -> bool:
        return "Args:" in (ast.get_docstring(self.node) or "")


class Classes:
    """The classes of the package by their names, with the names of their bases and methods."""

    def __init__(self, trees: list[ast.Module]):
        self._bases: dict[str, list[str]] = {}
        self._methods: dict[str, set[str]] = {}
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._bases[node.name] = [
                        ast.unparse(base).rpartition(".")[2] for base in node.bases
                    ]
                    self._methods[node.name] = {
                        each.name for each in node.body if isinstance(each, ast.FunctionDef)
                    }

    def overrides(self, class_name: str, method: str) -> bool:
        """Returns whether a base of the class has the method.

        A base of the same name is a class of Keras or of another module, whose methods these
        classes override.
        """
        return any(
            base == class_name
            or method in self._methods.get(base, ())
            or self.overrides(base, method)
            for base in self._bases.get(class_name, ())
        )


def public_functions(tree: ast.Module) -> Iterator[PublicFunction]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield PublicFunction(node, "")
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    yield PublicFunction(method, node.name)


def functions_without_args(sources: dict[str, str]) -> list[str]:
    """Returns the public functions with arguments that no docstring describes."""
    trees = {path: ast.parse(source) for path, source in sources.items()}
    classes = Classes(list(trees.values()))
    return [
        f"{path}: {function.node.name}"
        for path, tree in trees.items()
        for function in public_functions(tree)
        if function.arguments
        and not function.has_args
        and not function.is_overload
        and not classes.overrides(function.class_name, function.node.name)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param('def f(x):\n    """Adds."""', ["a.py: f"], id="a function without Args"),
        pytest.param('def f(x):\n    """Adds.\n\n    Args:\n        x: it."""', [], id="with Args"),
        pytest.param("def f(): pass", [], id="without arguments"),
        pytest.param("def _f(x): pass", [], id="a private function"),
        pytest.param("class _A:\n    def f(self, x): pass", [], id="a private class"),
        pytest.param("class A:\n    def f(self, x): pass", ["a.py: f"], id="a method"),
        pytest.param(
            "class A:\n    def f(self, x): pass\nclass B(A):\n    def f(self, x): pass",
            ["a.py: f"],
            id="only the contract of a method",
        ),
        pytest.param(
            "class A(keras.A):\n    def f(self, x): pass",
            [],
            id="a class that extends its namesake",
        ),
    ],
)
def test_what_is_listed(source, expected):
    assert functions_without_args({"a.py": source}) == expected


def test_public_functions_describe_their_arguments():
    sources = {
        path.relative_to(PACKAGE).as_posix(): pathlib.Path(path).read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert functions_without_args(sources) == []
