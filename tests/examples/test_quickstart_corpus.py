"""The quickstart's corpus keeps only the prose of help texts and docstrings, and its parts have no common sentence."""

import importlib.util
import subprocess
import sys

import pytest

from tests.shared import ROOT

SCRIPT = ROOT / "examples" / "quickstart_corpus.py"

PAGE = """
Mapping *types*
***************

A *mapping* object maps built-
in values, e.g. "numbers", to objects.  There is only one standard
type (see below).  Can it be changed?

   >>> a = {}
   >>> a["x"] = 1

   mapping ::= "{" [pairs] "}"

+---------+---------+
| Key     | Value   |
+---------+---------+

* The first point is about keys of
  the mapping.

len(d)

   Return the number of items in the dictionary.

class dict(mapping)

Second section
==============

Too short for us: yes. This one is left alone by us.
"""


@pytest.fixture(scope="module")
def corpus():
    spec = importlib.util.spec_from_file_location("quickstart_corpus", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_running_text_is_kept_as_sentences(corpus):
    assert corpus.documents(corpus.HEADING.split(PAGE)[::3]) == [
        [
            "A mapping object maps built-in values, e.g. numbers, to objects.",
            "There is only one standard type (see below).",
            "Can it be changed?",
            "The first point is about keys of the mapping.",
            "Return the number of items in the dictionary.",
        ]
    ]


MODULE = '''"""Reads and writes tables. A table has rows and columns."""

import nothing_of_that_name


class Table(object):
    """A table of numbers in memory.

    Args:
      rows: The number of its rows, which is
        at least one.
      dtype (str): A type of `numbers`. Must be known to all.
    """

    def sum(self):
        """
        Add all numbers of the table.

        Parameters
        ----------
        axis, other : None or int
            The axis along which the numbers are added.

        >>> Table(3).sum()
        """

    async def close(self): "No row is written after this."


def undocumented():
    return "This is a text and not a docstring."
'''


def test_a_module_gives_the_prose_of_its_docstrings(corpus, tmp_path):
    (tmp_path / "a.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def :")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "b.py").write_text(MODULE)
    (tmp_path / "c.py").write_text('"""Short one."""')
    assert corpus.documents(map(corpus.paragraphs_of_docstrings, corpus.docstrings(tmp_path))) == [
        [
            "Reads and writes tables.",
            "A table has rows and columns.",
            "A table of numbers in memory.",
            "The number of its rows, which is at least one.",
            "A type of numbers.",
            "Must be known to all.",
            "Add all numbers of the table.",
            "The axis along which the numbers are added.",
            "No row is written after this.",
        ]
    ]


def test_the_parts_are_files_of_documents_without_a_common_sentence(tmp_path):
    files = tmp_path / "train.txt", tmp_path / "held_out.txt"
    command = [sys.executable, SCRIPT, f"--train_file={files[0]}", f"--held_out_file={files[1]}"]
    subprocess.run([*command, "--docstrings_of=python,numpy"], check=True, capture_output=True)
    train, held_out = (file.read_text(encoding="utf-8") for file in files)
    documents = [[part.split("\n") for part in text.strip().split("\n\n")] for text in (train, held_out)]
    assert len(documents[0]) > 400
    assert len(documents[1]) > 5
    assert min(len(document) for part in documents for document in part) >= 3
    train_sentences, held_out_sentences = ({s for document in part for s in document} for part in documents)
    assert not train_sentences & held_out_sentences
    share = len(held_out_sentences) / (len(train_sentences) + len(held_out_sentences))
    assert 0.1 <= share < 0.2
    assert any("a new array" in sentence for sentence in train_sentences)  # of numpy
