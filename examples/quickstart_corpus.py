#!/usr/bin/env python3
"""Makes an English corpus of the documentation that is on every machine with this project's
packages.

In: an installed Python with its help texts (`pydoc_data.topics`) and docstrings, and the docstrings
of packages of requirements.txt; no module is imported. Out: two text files, a training part and a
held-out part, in the format that create_pretraining_data.py reads: one sentence on each line and a
blank line between documents. A document is a section of a help text, or the docstrings of a module.

    python examples/quickstart_corpus.py --train_file=train.txt --held_out_file=held_out.txt
"""

import argparse
import ast
import importlib.util
import itertools
import pathlib
import random
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pydoc_data.topics import topics

HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}\n", re.MULTILINE)
LIST_MARK = re.compile(r"^([*-]|\d+\.|\[\d+\]) +")
CODE = re.compile(r">>>|::=|\.\.\. |[=|+-]{4}|\w=\w|[{};_\\]|\s[=<>]+\s")
SENTENCE_END = re.compile(r"(?<=[.!?:])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.) +(?=[A-Z(“])")

# Of docstrings: the titles of their parts, and the names and types that stand before a description.
TITLE = re.compile(r"^\s*[A-Z]\w+:\s*$", re.MULTILINE)
NAME = re.compile(r"^\s*[*`]*\w+[`]*(?: \([^()]*\))?: (?=\S)", re.MULTILINE)
TYPE = re.compile(r"^\s*\w+(?:, \w+)* : .*$", re.MULTILINE)

DOCSTRING_PACKAGES = "python,keras,numpy,tensorflow"  # all takes half a minute, and gives 4 MB
NOT_READ = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}  # folders

DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef

MIN_SENTENCES = 3  # per document, because the next-sentence task needs several
MIN_WORDS = 4  # per sentence


def help_texts() -> Iterator[str]:
    """Yields the sections of Python's help texts."""
    for name in sorted(topics):
        yield from HEADING.split(topics[name])[::3]


def find_folder(package: str) -> pathlib.Path:
    """Returns the folder of an installed package's modules, without an import of the package."""
    if package == "python":
        return pathlib.Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        sys.exit(f"--docstrings_of: no package {package} is installed; leave it out, or install it")
    return pathlib.Path(spec.submodule_search_locations[0])


def docstrings(folder: pathlib.Path) -> Iterator[str]:
    """Yields a text for each module under a folder, its docstrings in the order of the file;
    imports nothing.
    """
    for path in sorted(folder.rglob("*.py")):
        if NOT_READ.isdisjoint(path.relative_to(folder).parts):
            try:
                with warnings.catch_warnings(action="ignore"):  # of odd escapes
                    module = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):  # a template, or a sample of bad code
                continue
            nodes = [node for node in ast.walk(module) if isinstance(node, DOCUMENTED)]
            nodes.sort(key=lambda node: getattr(node, "lineno", 0))
            yield "\n\n".join(filter(None, map(ast.get_docstring, nodes)))


def keep_paragraphs(text: str) -> str:
    """Makes each description of an argument a paragraph without the name, and takes the titles
    out.
    """
    text = HEADING.sub("\n\n", text)
    for mark in (TITLE, TYPE, NAME):
        text = mark.sub("\n\n", text)
    return text


def documents(texts: Iterable[str]) -> list[list[str]]:
    """Makes a document of sentences of each text.

    The texts quote each other. A repeated sentence is kept only where it occurs first, so that no
    held-out sentence is also a training sentence.

    Args:
        texts: texts with blank lines between paragraphs.

    Returns:
        The documents, each a list of at least `MIN_SENTENCES` sentences.
    """
    seen = set()
    unique_documents = []
    for text in texts:
        new = [sentence for sentence in prose(text) if not (sentence in seen or seen.add(sentence))]
        if len(new) >= MIN_SENTENCES:
            unique_documents.append(new)
    return unique_documents


def prose(text: str) -> Iterator[str]:
    """Yields the sentences of a running text, without code, tables, grammars and signatures."""
    for block in re.split(r"\n\s*\n", text):
        paragraph = ""
        for line in map(str.strip, block.strip().split("\n")):
            broken_at_hyphen = re.search(r"\w-$", paragraph)
            paragraph += line if broken_at_hyphen or not paragraph else f" {line}"
        paragraph = re.sub(r"\s+", " ", LIST_MARK.sub("", paragraph))
        if re.match(r'["*A-Z]', paragraph) and re.search(r"[.:!?]\)?$", paragraph):
            for sentence in SENTENCE_END.split(re.sub(r'[*"`]', "", paragraph)):
                if len(sentence.split()) >= MIN_WORDS and not CODE.search(sentence):
                    yield sentence


def write(path: str, documents: list[list[str]]):
    pathlib.Path(path).write_text(
        "\n".join("\n".join(document) + "\n" for document in documents), encoding="utf-8"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--held_out_file", required=True)
    parser.add_argument(
        "--held_out_share", type=float, default=0.1, help="share of the sentences, whole documents"
    )
    parser.add_argument(
        "--random_seed", type=int, default=12345, help="decides which documents are held out"
    )
    parser.add_argument(
        "--docstrings_of",
        default=DOCSTRING_PACKAGES,
        help="comma separated packages whose docstrings are read beside the help texts; python is "
        "its standard library; nothing means the help texts alone",
    )
    arguments = parser.parse_args()

    folders = map(find_folder, filter(None, arguments.docstrings_of.split(",")))
    modules = map(keep_paragraphs, itertools.chain.from_iterable(map(docstrings, folders)))
    all_documents = documents(itertools.chain(help_texts(), modules))
    random.Random(arguments.random_seed).shuffle(all_documents)
    sentences_before = itertools.accumulate(map(len, all_documents), initial=0)
    num_held_out_sentences = arguments.held_out_share * sum(map(len, all_documents))
    num_held_out = sum(before < num_held_out_sentences for before in sentences_before)
    for path, part in (
        (arguments.held_out_file, all_documents[:num_held_out]),
        (arguments.train_file, all_documents[num_held_out:]),
    ):
        write(path, part)
        words = sum(len(sentence.split()) for document in part for sentence in document)
        print(f"{path}: {len(part)} documents, {sum(map(len, part))} sentences, {words} words")


if __name__ == "__main__":
    main()
