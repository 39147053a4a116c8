"""The package on a system without the modules, signals and functions that Windows lacks.

They are hidden in a process of its own. This shows what the package needs of Python, and not how
Windows behaves.
"""

import ast
import json
import pathlib

import numpy as np
import pytest
from packaging.requirements import Requirement

from tests import toy
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here, run_interpreter
from tests.shared import ROOT

HIDDEN_MODULES = ("fcntl", "resource", "termios", "pwd", "grp")
HIDDEN_SIGNALS = ("SIGHUP", "SIGKILL", "SIGALRM", "alarm", "setitimer", "pthread_sigmask")
HIDDEN_FUNCTIONS = (
    "killpg",
    "fork",
    "forkpty",
    "setsid",
    "getpgid",
    "getuid",
    "mkfifo",
    "pread",
    "pwrite",
    "register_at_fork",
    "sched_getaffinity",
    "sched_setaffinity",
    "EX_TEMPFAIL",
)
HIDE = f"""
import os, signal, sys
for name in {HIDDEN_MODULES}:
    sys.modules[name] = None
for module, names in ((signal, {HIDDEN_SIGNALS}), (os, {HIDDEN_FUNCTIONS})):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
# The modules of packages that are optional, and that need a hidden module on this system.
OPTIONAL = ("apache_beam", "ray")
# The packages of the extra `serve`, which may not be installed.
SERVER_PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
IMPORT_ALL = f"""
import importlib, pkgutil
import official_bert
count = 0
for module in pkgutil.walk_packages(official_bert.__path__, "official_bert."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        source = open(importlib.util.find_spec(module.name).origin).read()
        is_optional = str(error.name).split(".")[0] in {SERVER_PACKAGES}
        is_optional |= any(f"import {{name}}" in source for name in {OPTIONAL})
        assert is_optional, (module.name, error)
    count += 1
print(count)
"""
RUN = """
from official_bert.cli import commands
sys.argv = ["official-bert", *sys.argv[1:]]
commands.main()
"""


def test_every_module_can_be_imported():
    ended = run_interpreter("-c", HIDE + IMPORT_ALL, PYTHONPATH=str(ROOT))
    assert int(ended.stdout) > 300


def run_hidden(command: str, flags: list[str]):
    run_interpreter("-c", HIDE + RUN, command, *flags, PYTHONPATH=str(ROOT))


def run_whole(command: str, flags: list[str]):
    run_here(command, *flags)


def write_rows(path: pathlib.Path):
    """Write random words with labels that they do not decide."""
    draws = np.random.default_rng(4)
    rows = ["label\ttext"]
    for label in ["rain", "sun"] * 8:
        words = draws.choice(toy.VOCABULARY[5:], 6)
        text = " ".join(words)
        rows.append(f"{label}\t{text}")
    path.write_text("\n".join(rows) + "\n")


def test_a_classifier_is_trained_and_answers(tmp_path):
    """The metrics and the answers are those of a process that has everything."""
    rows = tmp_path / "rows.tsv"
    texts = tmp_path / "texts.txt"
    write_rows(rows)
    texts.write_text("the cat sat on the mat\nit was a sunny day\n")
    training = {
        "task_name": "text",
        "model": toy.make_bert_base_dir(tmp_path / "model"),
        "train_file": rows,
        "dev_file": rows,
        "do_train": True,
        "do_eval": True,
        "train_batch_size": 4,
        "num_train_epochs": 1,
        "max_seq_length": 12,
        "random_seed": 5,
    }
    for name, run in (("hidden", run_hidden), ("whole", run_whole)):
        folder = tmp_path / name
        answers = folder / "answers.jsonl"
        run("run_classifier", flag_list(**training, output_dir=folder))
        run("predict", flag_list(model=folder, input_file=texts, output_file=answers))
    losses = []
    answers = []
    for name in ("hidden", "whole"):
        losses.append(figures(tmp_path / name)["eval_loss"])
        lines = (tmp_path / name / "answers.jsonl").read_text().splitlines()
        answers.append([json.loads(line)["probabilities"] for line in lines])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    hidden_answers, whole_answers = answers
    assert len(hidden_answers) == 2
    for probabilities, expected in zip(hidden_answers, whole_answers, strict=True):
        assert probabilities.keys() == {"rain", "sun"}
        assert probabilities == pytest.approx(expected, abs=1e-4)


def list_hidden_names(path: pathlib.Path) -> list[str]:
    """List the names in a source that a system may lack."""
    hidden = {f"os.{name}" for name in HIDDEN_FUNCTIONS}
    hidden |= {f"signal.{name}" for name in HIDDEN_SIGNALS}
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in hidden:
            names.append(ast.unparse(node))
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
            names += [name for name in modules if name in (*HIDDEN_MODULES, "msvcrt")]
    return names


def test_only_one_module_reads_what_windows_lacks():
    package = ROOT / "official_bert"
    home = package / "io" / "operating_system.py"
    assert len(list_hidden_names(home)) > 5
    offences = {}
    for path in package.rglob("*.py"):
        names = list_hidden_names(path)
        if names and path != home:
            offences[str(path.relative_to(ROOT))] = names
    assert offences == {}


def test_tensorflow_text_is_left_out_on_windows():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("tensorflow-text")]
    marker = Requirement(line).marker
    assert not marker.evaluate({"sys_platform": "win32"})
    assert marker.evaluate({"sys_platform": "linux"})
    assert marker.evaluate({"sys_platform": "darwin"})
