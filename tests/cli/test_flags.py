"""absl flags made from options classes, tested with a made-up script that runs as a process."""

import contextlib
import dataclasses
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from official_bert.cli import flags, help_text
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
from official_bert.io.progress import Status, updated_line


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
        updated_line.show(Status("half of it is done", None, 0.0, time.monotonic()))
        updated_line.draw()
        logging.warning("a line")
        log_example(["token"], True, lambda: [])
        updated_line.show(Status("nearly all of it is done", None, 0.0, time.monotonic()))
        updated_line.draw()
        raise InputError("the end")
    if options.seed == 6:
        log_example(["token"], True, lambda: ["label: yes"])
        logging.warning("odd")
    print(json.dumps(dataclasses.asdict(options)))


if __name__ == "__main__":
    flags.run(lambda: main, Options, "", os.environ.get("IGNORES_UNKNOWN_FLAGS") == "1")
'''


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "made_up.py"
    path.write_text(SCRIPT)
    return path


@contextlib.contextmanager
def _children_hear_signals():
    """Restores the default reaction of child processes to signals.

    A shell ignores Ctrl-C in background jobs, and nohup ignores SIGHUP, and children inherit that.
    A preexec_fn could also reset it, but may hang in a process with threads.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(script, *arguments, status=0, as_original=False):
    """Runs a script; with `as_original` it ignores unknown flags."""
    with _children_hear_signals():
        finished = subprocess.run(
            [sys.executable, script, *arguments],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "IGNORES_UNKNOWN_FLAGS": str(int(as_original))},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert finished.returncode == status, finished.stderr
    return finished


DEFAULTS = {
    "verbose": False,
    "input_file": ["a.txt"],
    "output_file": "out",
    "output_files": None,
    "do_train": False,
    "batch_size": 32,
    "rate": 5e-5,
    "tpu_name": None,
    "seed": None,
    "more": None,
    "strip": None,
    "kind": "plain",
}


def test_flags_become_the_values_of_options(script):
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
        "verbose": True,
        "input_file": ["a", "b*"],
        "batch_size": 8,
        "rate": 1e-3,
        "tpu_name": "x",
        "seed": 0,
        "strip": False,
        "kind": "fancy",
    }


def test_a_flagfile_is_replaced_by_its_lines(script, tmp_path):
    """Of a repeated flag the last value counts."""
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
    options = json.loads(run(script, *words).stdout)
    assert options == DEFAULTS | {
        "input_file": ["a", "b"],
        "rate": 1e-3,
        "batch_size": 16,
        "verbose": True,
        "seed": 1,
    }


UNKNOWN = ("--use_gpu", "--output_dir=o")  # resembles no flag; a flag of another command


def test_the_originals_scripts_ignore_unknown_flags_with_a_warning(script):
    assert "max_steps" not in flags._all_flags()
    words = ("--input_file=a", *UNKNOWN, "--batch_size=4")
    finished = run(script, *words, as_original=True)
    assert json.loads(finished.stdout)["batch_size"] == 4  # the flags after them are read
    assert "unknown flag, ignored: --use_gpu\n" in finished.stderr
    assert "unknown flag, ignored: --output_dir=o\n" in finished.stderr


def test_other_commands_ignore_unknown_flags_of_a_flagfile(script, tmp_path):
    """Several commands may share it."""
    flagfile = tmp_path / "shared.flags"
    flagfile.write_text("\n".join(("--input_file=a", *UNKNOWN)))
    assert "ignored: --use_gpu\n" in run(script, f"--flagfile={flagfile}").stderr
    stderr = run(script, f"--flagfile={flagfile}", "--output_dir=o", status=1).stderr
    assert "unknown flag: --output_dir=o (--nostrict_flags ignores unknown flags)\n" in stderr
    stderr = run(script, f"--flagfile={flagfile}", "--output_dir=o", "--nostrict_flags").stderr
    assert "unknown flag, ignored: --output_dir=o\n" in stderr


def test_a_misspelt_flag_is_ignored_only_on_request(script):
    words = ("--input_file=a", "--nostrict_flags", "--dotrain=true", "--noverbos")
    stderr = run(script, *words).stderr
    assert "unknown flag, ignored: --dotrain=true; did you mean --do_train?\n" in stderr
    assert "unknown flag, ignored: --noverbos; did you mean --noverbose?\n" in stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--input_file=a", "--batch_size=0"],
            "py: --batch_size=0: must be positive",
            id="number out of range",
        ),
        pytest.param(
            ["--input_file=a", "--batch_size=many"],
            "py: --batch_size=many: must be a whole number\n",
            id="word instead of a number",
        ),
        pytest.param(["--input_file=a", "--kind=odd"], "plain|fancy", id="unknown choice"),
        pytest.param([], "made_up.py: --input_file: must be given\n", id="missing flag"),
        pytest.param(
            ["--input_file=a", "--output_file="],
            "--output_file=: a name is empty; give one",
            id="empty name",
        ),
        pytest.param(
            ["--input_file=a", "--output_files="],
            "--output_files=[]: a name is empty; give one",
            id="empty list of names",
        ),
        pytest.param(
            ["--input_file=a", "-bert_hub_module_handle=b"],
            "py: --bert_hub_module_handle: Hub modules are not supported",
            id="flag of the original",
        ),
        pytest.param(
            ["--input_file=a", "--eval_every=500"],
            "py: --eval_every: this flag is now --eval_every_steps or --eval_every_epochs",
            id="former flag eval_every",
        ),
        pytest.param(
            ["--input_file=a", "--columns=text_a=text,label=kind"],
            "py: --columns: this flag is now --text_a_column, --text_b_column, --label_column",
            id="former flag columns",
        ),
        pytest.param(
            ["--flagfile={0}/words"],
            "the word 'word' belongs to no flag",
            id="stray word in a flagfile",
        ),
        pytest.param(
            ["--flagfile={0}/bytes"],
            "py: --flagfile: has bytes that are not text",
            id="flagfile of bytes",
        ),
        pytest.param(
            ["--flagfile={0}/absent"],
            "Unable to open flagfile: [Errno 2] No such file or directory",
            id="absent flagfile",
        ),
        pytest.param(
            ["--input_file=a", "--use_gpu", "--output_dir=o"],
            "py: unknown flag: --use_gpu, --output_dir=o (--nostrict_flags ignores unknown "
            "flags)\n",
            id="unknown flags",
        ),
        pytest.param(
            ["--input_file=a", "--dotrain=true", "--noverbos"],
            "py: unknown flag: --dotrain=true; did you mean --do_train?, --noverbos; did you mean "
            "--noverbose? (--nostrict_flags ignores unknown flags)\n",
            id="misspelt flags",
        ),
        pytest.param(
            ["--input_file=a", "--strict_flags", "--dotrain", "--use_gpu=1"],
            "py: unknown flag, which --strict_flags refuses: --dotrain; did you mean --do_train?, "
            "--use_gpu=1\n",
            id="unknown flags with --strict_flags",
        ),
    ],
)
def test_wrong_flags_end_in_one_sentence(script, tmp_path, arguments, message):
    (tmp_path / "words").write_text("--input_file=a\n--unknown=1\nword\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    words = [argument.format(tmp_path) for argument in arguments]
    stderr = run(script, *words, status=1).stderr
    assert message in stderr
    assert stderr.count("\n") == 1


def test_the_originals_scripts_refuse_misspelt_flags_alone(script):
    words = ("--input_file=a", "--use_gpu", "--noverbos")
    stderr = run(script, *words, status=1, as_original=True).stderr
    assert "unknown flag: --noverbos; did you mean --noverbose? (--nostrict" in stderr


@pytest.mark.parametrize("as_original", [False, True])
def test_a_misspelt_flag_of_a_flagfile_is_refused(script, tmp_path, as_original):
    flagfile = tmp_path / "shared.flags"
    flagfile.write_text("--input_file=a\n--noverbos\n")
    stderr = run(script, f"--flagfile={flagfile}", status=1, as_original=as_original).stderr
    assert "unknown flag: --noverbos; did you mean --noverbose? (--nostrict" in stderr


def test_a_negated_flag_of_another_command_is_not_misspelt(tmp_path):
    """One of create_pretraining_data, which resembles a flag of run_pretraining."""
    flagfile = tmp_path / "shared.flags"
    flagfile.write_text(f"--nosplit_sentences\n--input_file=absent\n--output_dir={tmp_path}/out\n")
    ended = end_of("run_pretraining.py", f"--flagfile={flagfile}", "--bert_config_file=absent")
    assert "unknown flag, ignored: --nosplit_sentences\n" in ended.log
    assert "nothing to do: give --do_train" in ended.sentence


def test_errors_that_the_user_can_fix_end_in_one_sentence(script, tmp_path):
    stderr = run(script, "--input_file=a", "--kind=fancy", "--seed=1", status=1).stderr
    assert stderr == f"{script}: data.txt: line 3 is odd; mend it\n"
    absent = tmp_path / "absent.txt"
    stderr = run(script, f"--input_file={absent}", "--seed=2", status=1).stderr
    assert stderr == f"{script}: {absent}: No such file or directory\n"
    stderr = run(script, "--input_file=a", "--seed=3", status=1).stderr
    assert "Traceback" in stderr, "a defect keeps its traceback"


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        pytest.param("SIGINT", 130, "interrupted", id="SIGINT"),
        pytest.param(
            "SIGTERM",
            143,
            "terminated; files that were not complete are deleted",
            id="SIGTERM",
        ),
        pytest.param(
            "SIGHUP",
            129,
            "terminated; files that were not complete are deleted",
            id="SIGHUP",
        ),
    ],
)
def test_a_signal_leaves_no_unfinished_file(script, tmp_path, name, status, sentence):
    arguments = (f"--input_file={tmp_path}/out", "--seed=4", f"--tpu={name}")
    assert run(script, *arguments, status=status).stderr == f"{script}: {sentence}\n"
    stderr = run(script, *arguments, "--do_train", status=status).stderr
    assert stderr.endswith("; the same command resumes the training\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flag", "expected_lines"),
    [
        pytest.param((), ["First example: token", "odd"], id="default"),
        pytest.param(("--verbosity=-1",), ["odd"], id="warnings"),
        pytest.param(("--verbosity=-2",), [], id="errors"),
        pytest.param(
            ("--verbosity=1",),
            ["*** Example ***", "label: yes", "odd"],
            id="details",
        ),
    ],
)
def test_verbosity_chooses_the_log_lines(script, flag, expected_lines):
    log_lines = run(script, "--input_file=a", "--seed=6", *flag).stderr.splitlines()
    assert [line.split("] ")[1] for line in log_lines] == expected_lines


def test_a_terminal_shows_lines_and_sentences_without_prefix_in_place_of_the_bar(script):
    test_end, script_end = pty.openpty()
    command = [sys.executable, script, "--input_file=a", "--seed=5"]
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stderr=script_end):
        os.close(script_end)
        output = b""
        with contextlib.suppress(OSError):  # the terminal raises it when its other end is closed
            while chunk := os.read(test_end, 1000):
                output += chunk
    os.close(test_end)
    erased = "\r\x1b[2K"
    assert output.decode().split("\r\n") == [
        f"{erased}half of it is done, 00:00:00 left{erased}WARNING: a line",
        "First example: token",
        f"{erased}nearly all of it is done, 00:00:00 left{erased}{script}: the end",
        "",
    ]


def test_a_pipe_gets_the_format_that_programs_read(script):
    first, second = run(script, "--input_file=a", "--seed=6").stderr.splitlines()
    place = r"\d{4} [\d:.]+ +\d+ \w+\.py:\d+\]"
    assert re.fullmatch(f"I{place} First example: token", first)
    assert re.fullmatch(f"W{place} odd", second)


def test_help_lists_the_basic_flags_and_helpfull_all_under_headings(script):
    basic_text = (
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
    assert text.startswith(basic_text)
    assert "--rate" not in text
    assert " more flags and those of every script" in text
    text = run(script, "--helpfull").stdout
    assert text.startswith(basic_text)
    for line in (
        "  --kind: <plain|fancy>: The kind.\n    (default: 'plain')\n",
        "  --tpu_name: A name.\n  --tpu: Alias for --tpu_name.\n",
        "\n\nEvery script:\n",
    ):
        assert line in text


def test_help_lists_the_flags_in_the_order_of_a_run():
    names = [field.name for field in help_text.basic_fields(ClassificationOptions)]
    expected = """
    task_name model data_dir train_file dev_file test_file text_a_column text_b_column
    label_column output_dir do_train do_eval do_predict max_seq_length train_batch_size
    learning_rate num_train_epochs random_seed
    """
    assert [name for name in names if name in expected.split()] == expected.split()


def test_an_example_has_lines_that_a_shell_joins():
    example = help_text.format_example(
        "official-bert run", "--first=" + "a" * 60 + " --second --third"
    )
    assert example == (
        "  official-bert run \\\n      --first=" + "a" * 60 + " \\\n      --second --third"
    )
    assert help_text.format_example("run_ner.py", "--do_eval") == "  python run_ner.py --do_eval"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run_ner.py", "--help"], id="script"),
        pytest.param(["-c", "from official_bert.cli.commands import main; main()"], id="command"),
    ],
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


def test_a_boolean_flag_is_true_or_false():
    ended = end_of("run_ner.py", "--output_dir=o", "--do_eval=yess")
    assert ended.sentence == "run_ner.py: --do_eval=yess: must be true or false"


@pytest.mark.parametrize(
    ("options_class", "name", "heading"),
    [
        (ClassificationOptions, "task_name", help_text.NEEDED),
        (ClassificationOptions, "model", help_text.MODEL),
        (ClassificationOptions, "vocab_file", help_text.MODEL),
        (ClassificationOptions, "class_weights", help_text.THIS_SCRIPT),
        (ClassificationOptions, "text_a_column", help_text.TEXT),
        (ClassificationOptions, "num_train_epochs", help_text.COMMON),
        (ClassificationOptions, "tpu_zone", help_text.DEVICES),
        # SquadOptions declares it again.
        (SquadOptions, "length_aware_batches", help_text.THIS_SCRIPT),
    ],
)
def test_help_shows_a_flag_under_its_heading(options_class, name, heading):
    (field,) = (field for field in dataclasses.fields(options_class) if field.name == name)
    assert help_text.find_heading(options_class, field) == heading


WORDS = """
import dataclasses
from official_bert.cli import flags, help_text
from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    folders: tuple[str, ...] = option((), is_first_word=True, help="The folders.")
    rate: float = option(5e-5, help="The rate.")


def run(options):
    print(options.folders, options.rate)


if __name__ == "__main__":
    flags.run(lambda: run, Options)
"""


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["a", "b c", "--rate=2"], "('a', 'b c') 2.0\n"),
        (["--rate=2"], "() 2.0\n"),
        (["--help"], "usage: script.py FOLDERS ... --flag=value ...\n"),
    ],
)
def test_several_words_come_before_the_flags(words, printed, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(WORDS)
    finished = subprocess.run(
        [sys.executable, str(path), *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed in finished.stdout.replace(str(path), "script.py")
