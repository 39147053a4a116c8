"""predict.py as a process: what a user at a terminal and what a shell pipe see."""

import json
import subprocess
import sys

import pytest

from tests.scripts import flag_list
from tests.serving import exported
from tests.shared import ROOT


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return exported.shared_export(tmp_path_factory, "mrpc").path.parent


def start(model_dir, *others: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "predict.py"), *flag_list(model=model_dir), *others]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ask(process: subprocess.Popen, line: str) -> dict:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_line_is_answered_before_the_next_one_is_there(model_dir):
    process = start(model_dir, "--on_error=report")
    first = ask(process, "the cat\ta cat")
    assert sum(first["probabilities"].values()) == pytest.approx(1.0)
    error = "the model takes 2 texts (text_a, text_b), 1 given"
    assert ask(process, "the cat") == {"error": error}
    assert ask(process, "the cat\ta cat") == first
    rest, log = process.communicate()
    assert (rest, process.returncode) == ("", 0)
    devices, warning = log.splitlines()
    assert devices.endswith("Devices: /device:CPU:0; strategy one_device, number of replicas 1")
    assert warning.endswith("standard input: 1 of 3 lines are no requests")


def test_a_reader_that_leaves_ends_the_job_quietly(model_dir, tmp_path):
    (tmp_path / "in.tsv").write_text("the cat\ta cat\n" * 20000)
    process = start(model_dir, f"--input_file={tmp_path / 'in.tsv'}")
    assert json.loads(process.stdout.readline())["label"] in ("0", "1")
    process.stdout.close()
    (devices,) = process.stderr.read().splitlines()
    assert "Devices: " in devices
    assert process.wait(timeout=60) == 0
