"""The commands of README, the guides and the contributing page: they exist, and so do their flags.

Other tests run those of some guides; these parse all of them.
"""

import re
import shlex

import pytest

from tests.shared import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL_BLOCK = re.compile(r"^```shell\n(.*?)^```", re.DOTALL | re.MULTILINE)
# A word that ends a command.
ENDS = re.compile(r"^(\||>|<|&|;|&&|\|\|)$")
# The flags of each command; another test keeps this file up to date.
LINES = (ROOT / "tests" / "flags_by_command.txt").read_text(encoding="utf-8").splitlines()
FLAGS = {name: set(flags.split()) for name, _, flags in (line.partition(":") for line in LINES)}
# The command that a guide adds as an example.
EXAMPLES = {"count_tokens"}
# The flags that every script has, and those of absl.
COMMON_FLAGS = {"flagfile", "help", "strict_flags", "verbosity"}


def list_commands(text: str) -> list[list[str]]:
    """Returns the words of each command of this project in the shell blocks of a page."""
    commands = []
    for block in SHELL_BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = split_words(line.removeprefix("$ "))
            for start, word in enumerate(words[:-1]):
                is_script = word == "python" and re.fullmatch(r"(\w+)\.py", words[start + 1])
                if word == "official-bert" or is_script:
                    commands.append(cut_command(words[start + 1 :]))
    return commands


def split_words(line: str) -> list[str]:
    """Returns the words of a line; none of a line that is no command, as of an output."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation of several lines
        return []


def cut_command(words: list[str]) -> list[str]:
    end = next((place for place, word in enumerate(words) if ENDS.match(word)), len(words))
    return words[:end]


def find_faults(words: list[str]) -> list[str]:
    """Returns the name of an unknown command, or its unknown flags."""
    name, *rest = words
    name = name.removesuffix(".py")
    if not re.fullmatch(r"\w+", name) or name in EXAMPLES:  # a flag, or the image of Docker
        return []
    if name not in FLAGS:
        return [name]
    own_words = rest
    if "--" in rest:  # launch, run_experiment: the flags of another command
        own_words = rest[: rest.index("--")]
    known = COMMON_FLAGS | FLAGS[name]
    faults = []
    for word in own_words:
        if match := re.match(r"--(\w+)", word):
            flag = match[1]
            if flag not in known and flag.removeprefix("no") not in known:
                faults.append(f"{name} --{flag}")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_flags_exist(page):
    faults = []
    for words in list_commands(page.read_text(encoding="utf-8")):
        faults += find_faults(words)
    assert faults == []


def test_commands_are_found():
    text = """
```shell
$ echo 'a | b' | official-bert predict --model=x --no_such_flag
{"output": 1}
python run_classifier.py --task_name=text \\
  --nodo_train > log
official-bert no_such_command
```
"""
    commands = list_commands(text)
    assert commands == [
        ["predict", "--model=x", "--no_such_flag"],
        ["run_classifier.py", "--task_name=text", "--nodo_train"],
        ["no_such_command"],
    ]
    faults = [find_faults(words) for words in commands]
    assert faults == [["predict --no_such_flag"], [], ["no_such_command"]]


def test_pages_have_commands():
    counts = [len(list_commands(page.read_text(encoding="utf-8"))) for page in PAGES]
    assert sum(counts) > 80
