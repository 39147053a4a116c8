"""absl flags made from options classes, tested with a made-up script that runs as a process."""

import contextlib
import dataclasses
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from official_bert.cli import flags
from official_bert.options.fine_tuning import ClassificationOptions, SquadOptions
from tests.scripts import end_of
from tests.shared import ROOT

SCRIPT = '''
"""A made-up script."""

import dataclasses
import json
import os
import signal
import sys
import time

from absl import logging

from official_bert.cli import flags; from official_bert.io import writing
from official_bert.data.model_inputs import log_example
from official_bert.io.errors import InputError
from official_bert.options.fields import POSITIVE, option
from official_bert.io.progress import updated_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared:
    verbose: bool = option(False, basic=True, help="Say more.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Shared):
    input_file: list[str] = option(help="Files to read.")
    output_file: str = option("out", help="The file to write.")
    output_files: list[str] | None = option(None, help="Files to write.")
    do_train: bool = option(False, help="Whether the run can be resumed.")
    batch_size: int = option(32, check=POSITIVE, help="Examples in a batch.")
    rate: float = option(5e-5, help="The rate.")
    tpu_name: str | None = option(None, alias="tpu", help="A name.")
    seed: int | None = option(None, help="A seed.")
    more: str | None = option(None, help="More.")
    strip: bool | None = option(None, help="As the other says when not given.")
    kind: str = option("plain", choices=("plain", "fancy"), help="The kind.")

    @property
    def resume_hint(self):
        return "the same command resumes the training" if self.do_train else ""


def main(options):
    if options.kind == "fancy" and options.seed == 1:
        raise InputError("data.txt: line 3 is odd; mend it")
    if options.seed == 2:
        open(options.input_file[0])
    if options.seed == 3:
        raise RuntimeError("a defect")
    if options.seed == 4:
        with writing.replacing(options.input_file[0]):
            os.kill(os.getpid(), getattr(signal, options.tpu_name))
            time.sleep(60)
    if options.seed == 5:
        updated_line.show("half of it is done")
        logging.warning("a line")
        updated_line.show("nearly all of it is done")
        raise InputError("the end")
    if options.seed == 6:
        log_example(["token"], True, lambda: ["label: yes"])
        logging.warning("odd")
    print(json.dumps(dataclasses.asdict(options)))


if __name__ == "__main__":
    flags.run(lambda: main, Options)
'''


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "made_up.py"
    path.write_text(SCRIPT)
    return path


@contextlib.contextmanager
def _children_hear_signals():
    """A shell starts background jobs with Ctrl-C ignored, and nohup with SIGHUP, and children
    inherit that.

    A preexec_fn could reset it, too, but may hang in a process that has threads.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(script, *arguments, status=0):
    with _children_hear_signals():
        finished = subprocess.run(
            [sys.executable, script, *arguments],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert finished.returncode == status, finished.stderr
    return finished


DEFAULTS = {
    "verbose": False, "input_file": ["a.txt"], "output_file": "out", "output_files": None, "do_train": False,
    "batch_size": 32, "rate": 5e-5, "tpu_name": None, "seed": None, "more": None, "strip": None, "kind": "plain",
}  # fmt: skip


def test_values(script):
    assert json.loads(run(script, "--input_file=a.txt").stdout) == DEFAULTS
    arguments = (
        "--input_file=a,b*",
        "--batch_size",
        "8",
        "--rate=1e-3",
        "--tpu=x",
        "--seed=0",
        "--kind=fancy",
    )
    assert json.loads(run(script, *arguments, "--verbose", "--nostrip").stdout) == DEFAULTS | {
        "verbose": True, "input_file": ["a", "b*"], "batch_size": 8, "rate": 1e-3, "tpu_name": "x", "seed": 0,
        "strip": False, "kind": "fancy",
    }  # fmt: skip


def test_a_flagfile_stands_for_its_lines(script, tmp_path):
    """In its place among the flags: the last value counts."""
    flagfile = tmp_path / "usual.flags"
    (tmp_path / "inner").write_text("--batch_size=8\n--seed=1\n")
    flagfile.write_text(
        f"# Mine.\r\n--input_file=a,b\n\n --rate=1e-3 \n--flagfile={tmp_path}/inner\n--verbose\n"
    )
    words = (
        "--rate=2",
        "--flagfile",
        flagfile,
        f"-flagfile={tmp_path}/inner",
        "--batch_size=16",
        "--strict_flags",
    )
    given = json.loads(run(script, *words).stdout)
    assert given == DEFAULTS | {
        "input_file": ["a", "b"], "rate": 1e-3, "batch_size": 16, "verbose": True, "seed": 1,
    }  # fmt: skip


def test_unknown_flags_are_named_and_left_alone(script):
    finished = run(
        script, "--input_file=a", "--dotrain=true", "--use_gpu", "--noverbos", "--batch_size=4"
    )
    assert json.loads(finished.stdout)["batch_size"] == 4  # what comes behind them is still read
    assert "unknown flag, ignored: --dotrain=true; did you mean --do_train?\n" in finished.stderr
    assert "unknown flag, ignored: --noverbos; did you mean --noverbose?\n" in finished.stderr
    assert "unknown flag, ignored: --use_gpu\n" in finished.stderr  # which resembles none


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--input_file=a", "--batch_size=0"], "py: --batch_size=0: must be positive"),
        (
            ["--input_file=a", "--batch_size=many"],
            "py: --batch_size=many: must be a whole number\n",
        ),
        (["--input_file=a", "--kind=odd"], "plain|fancy"),
        ([], "made_up.py: --input_file: must be given\n"),
        (["--input_file=a", "--output_file="], "--output_file=: a name is empty; give one"),
        (["--input_file=a", "--output_files="], "--output_files=[]: a name is empty; give one"),
        (
            ["--input_file=a", "-bert_hub_module_handle=b"],
            "py: --bert_hub_module_handle: Hub modules are not supported",
        ),
        (
            ["--input_file=a", "--eval_every=500"],
            "py: --eval_every: this flag is now --eval_every_steps or --eval_every_epochs",
        ),
        (
            ["--input_file=a", "--columns=text_a=text,label=kind"],
            "py: --columns: this flag is now --text_a_column, --text_b_column, --label_column",
        ),
        (["--flagfile={0}/words"], "the word 'word' belongs to no flag"),
        (["--flagfile={0}/bytes"], "py: --flagfile: has bytes that are not text"),
        (["--flagfile={0}/absent"], "Unable to open flagfile: [Errno 2] No such file or directory"),
        (
            ["--input_file=a", "--strict_flags", "--dotrain", "--use_gpu=1"],
            "py: unknown flag, which --strict_flags refuses: --dotrain; did you mean --do_train?, "
            "--use_gpu=1\n",
        ),
    ],
)
def test_wrong_flags_end_in_one_sentence(script, tmp_path, arguments, named):
    (tmp_path / "words").write_text("--input_file=a\n--unknown=1\nword\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    stderr = run(script, *(argument.format(tmp_path) for argument in arguments), status=1).stderr
    assert named in stderr
    assert stderr.count("\n") == 1


def test_what_the_user_can_mend_ends_in_one_sentence(script, tmp_path):
    stderr = run(script, "--input_file=a", "--kind=fancy", "--seed=1", status=1).stderr
    assert stderr == f"{script}: data.txt: line 3 is odd; mend it\n"
    absent = tmp_path / "absent.txt"
    stderr = run(script, f"--input_file={absent}", "--seed=2", status=1).stderr
    assert stderr == f"{script}: {absent}: No such file or directory\n"
    assert "Traceback" in run(script, "--input_file=a", "--seed=3", status=1).stderr, "of a defect"


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "terminated; files that were not complete are deleted"),
        ("SIGHUP", 129, "terminated; files that were not complete are deleted"),
    ],
)
def test_a_signal_leaves_no_unfinished_file(script, tmp_path, name, status, said):
    arguments = (f"--input_file={tmp_path}/out", "--seed=4", f"--tpu={name}")
    assert run(script, *arguments, status=status).stderr == f"{script}: {said}\n"
    of_training = run(script, *arguments, "--do_train", status=status).stderr
    assert of_training.endswith("; the same command resumes the training\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ((), ["First example: token", "odd"]),
        (("--verbosity=-1",), ["odd"]),
        (("--verbosity=-2",), []),
        (("--verbosity=1",), ["*** Example ***", "label: yes", "odd"]),
    ],
)
def test_verbosity_is_obeyed(script, given, lines):
    logged = run(script, "--input_file=a", "--seed=6", *given).stderr.splitlines()
    assert [line.split("] ")[1] for line in logged] == lines


def test_on_a_terminal_lines_and_sentences_take_the_place_of_progress(script):
    ours, its = pty.openpty()
    command = [sys.executable, script, "--input_file=a", "--seed=5"]
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stderr=its):
        os.close(its)
        written = b""
        with contextlib.suppress(OSError):  # how a terminal says that its other end is closed
            while more := os.read(ours, 1000):
                written += more
    os.close(ours)
    first, second, _ = written.decode().split("\r\n")
    assert first.startswith(f"\rhalf of it is done\r{' ' * 18}\rW")
    assert first.endswith("] a line")
    assert second == f"\rnearly all of it is done\r{' ' * 24}\r{script}: the end"


def test_help_lists_the_needed_flags_and_helpfull_all_under_headings(script):
    needed = (
        f"A made-up script.\n\nusage: {script} --flag=value ...\n\n"
        "Needed:\n"
        "  --input_file: Files to read.\n"
        "    (required)\n"
        "    (a comma separated list)\n\n"
        "This script:\n"
        "  --[no]verbose: Say more.\n"
        "    (default: 'false')\n"
    )
    text = run(script, "-help").stdout
    assert text.startswith(needed)
    assert "--rate" not in text
    assert " more flags and those of every script" in text
    text = run(script, "--helpfull").stdout
    assert text.startswith(needed)
    for line in (
        "  --kind: <plain|fancy>: The kind.\n    (default: 'plain')\n",
        "  --tpu_name: A name.\n  --tpu: Alias for --tpu_name.\n",
        "\n\nEvery script:\n",
    ):
        assert line in text


@pytest.mark.parametrize(
    "command",
    [["run_ner.py", "--help"], ["-c", "from official_bert.cli.commands import main; main()"]],
)
def test_a_reader_of_the_help_may_close_the_pipe(command):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write_end)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"), [(["--do_eval=yess"], "--do_eval=yess: must be true or false")]
)
def test_a_flag_without_a_value_it_can_have_is_said_plainly(arguments, sentence):
    ended = end_of("run_ner.py", "--output_dir=o", *arguments)
    assert ended.sentence == f"run_ner.py: {sentence}"


@pytest.mark.parametrize(
    ("options_class", "name", "heading"),
    [
        (ClassificationOptions, "task_name", flags.NEEDED),
        (ClassificationOptions, "model", flags.MODEL),
        (ClassificationOptions, "vocab_file", flags.MODEL),
        (ClassificationOptions, "class_weights", flags.THIS_SCRIPT),
        (ClassificationOptions, "text_a_column", flags.TEXT),
        (ClassificationOptions, "num_train_epochs", flags.COMMON),
        (ClassificationOptions, "tpu_zone", flags.DEVICES),
        # Which has a default of its own there.
        (SquadOptions, "length_aware_batches", flags.THIS_SCRIPT),
    ],
)
def test_a_flag_stands_under_its_heading(options_class, name, heading):
    (field,) = (field for field in dataclasses.fields(options_class) if field.name == name)
    assert flags.find_heading(options_class, field) == heading
