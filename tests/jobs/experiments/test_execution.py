"""The running of steps, with scripts of a few lines in the place of ours: once each, in order, past failures."""

import contextlib
import json
import os
import signal
import textwrap
import threading
import time

import pytest

from official_bert.io.errors import Terminated
from official_bert.jobs.experiments import execution, results
from official_bert.jobs.experiments.child import RUNNING_FILE
from official_bert.jobs.experiments.steps import Layout, Output, Own, Step

SCRIPT = """
import os, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
print("begins", flags.get("name"))
with open("order.txt", "a") as file:
    file.write(flags["name"] + "\\n")
is_mended = os.path.exists("mended")
if not is_mended:
    time.sleep(float(flags.get("secs", 0)))
if flags.get("fails") and not is_mended:
    sys.exit("it went wrong")
for name in ("model.ckpt-1", "eval_results.txt"):
    with open(os.path.join(flags["output_dir"], name), "w") as file:
        file.write("f1 = 0.5\\n")
"""


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(textwrap.dedent(SCRIPT))
    return Layout("steps", "data", {}, ".")


def step(name: str, *needed: Step, kind: str = "fine-tuning", **flags) -> Step:
    given = {"name": name, "output_dir": Own(), **flags}
    if needed:
        given["needs"] = tuple(map(Output, needed))
    return Step(kind, name, "toy", tuple(given.items()))


def order(tmp_path) -> list[str]:
    return (tmp_path / "order.txt").read_text().split()


def test_each_step_runs_once_and_after_its_inputs(layout, tmp_path):
    first, second = step("first"), step("second")
    last = step("last", first, second)
    assert execution.execute([first, second, last], layout, 2) == []
    assert order(tmp_path)[-1] == "last"
    assert execution.execute([first, second, last, step("more")], layout, 1) == []
    assert order(tmp_path)[2:] == ["last", "more"]
    assert results.read_result(layout, last)["metrics"] == {"f1": 0.5}


def test_no_more_steps_run_at_a_time_than_asked_for(layout, tmp_path):
    steps = [step(f"s{number}", secs=0.3) for number in range(4)]
    most = 0

    def watch():
        nonlocal most
        while not done.wait(0.02):
            begun = len(order(tmp_path)) if (tmp_path / "order.txt").exists() else 0
            most = max(most, begun - sum(results.read_result(layout, each) is not None for each in steps))

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    assert execution.execute(steps, layout, 2) == []
    done.set()
    watcher.join()
    assert most == 2


def test_a_failure_stops_only_what_needs_it(layout, tmp_path):
    bad = step("bad", fails=True)
    steps = [bad, step("after", bad), step("other")]
    (failure,) = execution.execute(steps, layout, 1)
    assert (failure.step, failure.status) == (bad, 1)
    assert failure.log_end.splitlines() == ["begins bad", "it went wrong"]
    sentence = execution.sentence_of([failure])
    assert f"{layout.folder(bad)}/log.txt" in sentence
    assert sentence.endswith("it went wrong")
    assert order(tmp_path) == ["bad", "other"]
    (tmp_path / "mended").touch()
    assert execution.execute(steps, layout, 1) == []
    assert order(tmp_path)[2:] == ["bad", "after"]


def test_checkpoints_are_deleted_when_no_step_needs_them(layout, tmp_path):
    model, tuned = step("model", kind="pretraining"), step("tuned")
    test = step("test", tuned, model, kind="test", fails=True)

    def has_checkpoint(each):
        return os.path.exists(os.path.join(layout.output(each), "model.ckpt-1"))

    execution.execute([model, tuned, test], layout, 1)
    assert has_checkpoint(tuned)  # which the failed step needs
    (tmp_path / "mended").touch()
    execution.execute([model, tuned, test], layout, 1)
    assert has_checkpoint(model)
    assert not has_checkpoint(tuned)
    # A later step that needs the model has it trained again.
    other = step("other", tuned, kind="test")
    assert execution.pending_steps([model, tuned, test, other], layout) == [tuned, other]
    assert execution.execute([model, tuned, test, other], layout, 1) == []
    assert order(tmp_path) == ["model", "tuned", "test", "test", "tuned", "other"]


def test_a_signal_ends_the_children_and_the_next_run_goes_on(layout, tmp_path, monkeypatch):
    quick, slow = step("quick"), step("slow", secs=600)
    folder, numbers = tmp_path / layout.folder(slow), []
    real = execution._Execution._collect

    def collect(self):
        real(self)
        if len(self._running) == 1 and (tmp_path / "order.txt").exists() and "slow" in order(tmp_path):
            numbers.append(int((folder / RUNNING_FILE).read_text()))
            os.kill(numbers[0], 0)  # it is there
            raise Terminated(15)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(execution._Execution, "_collect", collect)
            with pytest.raises(Terminated):
                execution.execute([quick, slow], layout, 1)
        assert has_ended(numbers[0], within_secs=10)
    finally:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)
    assert execution.pending_steps([quick, slow], layout) == [slow]
    assert (folder / "log.txt").exists()
    assert not (folder / "result.json").exists()

    (tmp_path / "mended").touch()
    assert execution.execute([quick, slow], layout, 1) == []
    assert order(tmp_path) == ["quick", "slow", "slow"]
    assert results.read_result(layout, slow)["is_resumed"]


def has_ended(number: int, within_secs: float) -> bool:
    """Waits for the end of a process, and tells whether it came."""
    deadline = time.monotonic() + within_secs
    while time.monotonic() < deadline:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_configurations_are_written(layout, tmp_path):
    made = Step("pretraining", "x", "toy", (("name", "x"), ("output_dir", Own())), (("hidden_size", 16),))
    assert execution.execute([made], layout, 1) == []
    assert json.loads((tmp_path / layout.config_file(made)).read_text()) == {"hidden_size": 16}
