#!/usr/bin/env python3
"""Refuses names that do not say what a value is, such as `found`, `of_texts` or `bounds_of`.

In: files and folders of Python. Out: a line for each name, and exit status 1 if there is one.

    python tools/check_names.py official_bert run_classifier.py

The script reads the names that a file defines: modules, functions, classes, arguments, variables,
attributes and import aliases. It does not read the names that a file merely uses.
"""

import ast
import itertools
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

# Words that no name contains. They say that somebody found, gave or owned the value.
REFUSED_WORDS = {"found", "given", "own", "said", "taught"}
# Words that no name starts with.
REFUSED_FIRST_WORDS = {"as", "asked", "by", "drawn", "in", "kept", "made", "of", "told", "wanted"}
# Words that are no name alone. `known_labels` is plain English.
REFUSED_ALONE = {"known"}
# "X of Y" is "Y X", but for these verbs and idioms: warn_of_truncation, is_out_of_time.
PHRASE_STARTS = {"out", "warn", "warned"}

# Name -> why it stays.
EXCEPTIONS: dict[str, str] = {
    "in_features": "the name of PyTorch's Linear, which a config.json has",
    "index_of": "a public method of Predictor and SentenceEncoder",
}


class Name(NamedTuple):
    """A name that a file defines, and its line."""

    line: int
    text: str


def split_words(name: str) -> list[str]:
    """Returns the words of a name in lower case: `_isOutOf_scope` has is, out, of and scope."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [word.lower() for word in words]


def explain_refusal(name: str) -> str | None:
    """Returns what is wrong with a name, or None for a good one."""
    words = split_words(name)
    if not words or name in EXCEPTIONS:
        return None
    if words[0] in REFUSED_FIRST_WORDS:
        return f"starts with {words[0]!r}"
    for word in words:
        if word in REFUSED_WORDS:
            return f"contains {word!r}"
    if len(words) == 1 and words[0] in REFUSED_ALONE:
        return "does not say what the value is"
    for before, word in itertools.pairwise(words):
        if word == "of" and before not in PHRASE_STARTS:
            return "contains 'of': write Y_X for X_of_Y"
    return None


def _list_node_names(node: ast.AST) -> list[str]:
    """Returns the names that a node of a syntax tree defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case ast.Attribute(attr=name, ctx=ast.Store()):
            return [name]
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def list_names(source: str) -> Iterator[Name]:
    """Yields the names that the source code of a module defines."""
    for node in ast.walk(ast.parse(source)):
        for text in _list_node_names(node):
            yield Name(node.lineno, text)


def list_files(paths: list[str]) -> Iterator[pathlib.Path]:
    """Yields the files of Python among some paths and in the folders among them."""
    for path in map(pathlib.Path, paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def check_file(path: pathlib.Path) -> list[str]:
    """Returns a message for each refused name of a file, and for the name of its module."""
    names = [Name(1, path.stem), *list_names(path.read_text(encoding="utf-8"))]
    messages = []
    for name in sorted(set(names)):
        reason = explain_refusal(name.text)
        if reason:
            messages.append(f"{path}:{name.line}: {name.text}: {reason}")
    return messages


def main(paths: list[str]) -> int:
    """Prints the refused names of files and folders and returns the exit status."""
    messages = [message for path in list_files(paths) for message in check_file(path)]
    for message in messages:
        print(message)
    if messages:
        print(f"{len(messages)} names do not say what their value is. Name the value instead.")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
