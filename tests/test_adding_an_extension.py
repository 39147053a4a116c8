"""docs/adding_an_extension.md: its folder is written into a copy of the package, and its command
runs.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests import toy
from tests.scripts import MAIN
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "adding_an_extension.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (official_bert/\S+)\n(.*?)```", PAGE, re.DOTALL))
(COMMAND,) = re.findall(r"```shell\nofficial-bert (.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the package with the folder of the page, and nothing else."""
    folder = tmp_path_factory.mktemp("repository")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "official_bert", folder / "official_bert", ignore=ignored)
    for name, source in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return folder


def run(repository, *words: str, status: int = 0) -> subprocess.CompletedProcess:
    finished = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == status, finished.stderr
    return finished


def test_the_folder_alone_adds_the_command(repository, tmp_path):
    assert len(FILES) == 3
    assert (
        "\n  count_tokens\n"
        "    Counts the tokens of a text.\n"
        "      official-bert count_tokens --vocab_file=vocab.txt --text=mat\n"
    ) in run(repository).stdout
    command = COMMAND.replace("\\\n", " ")
    words = shlex.split(command.replace("$MODEL/vocab.txt", str(toy.write_vocabulary(tmp_path))))
    # The cat sat on the mat and the full stop are words of the toy vocabulary.
    assert run(repository, *words).stdout == "7\n"


def test_what_a_user_can_mend_is_a_sentence(repository, tmp_path):
    vocab_file = toy.write_vocabulary(tmp_path)
    ended = run(repository, "count_tokens", f"--vocab_file={vocab_file}", "--text=", status=1)
    assert ended.stderr.endswith("official-bert count_tokens: --text: is empty; give a text\n")
