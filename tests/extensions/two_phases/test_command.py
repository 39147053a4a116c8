"""Pre-training in two phases, on the sample text with a tiny model, with a kill in each phase."""

import dataclasses
import json
import pathlib
import signal

import numpy as np
import pytest

from official_bert import InputError
from official_bert.checkpoints.folder import newest
from official_bert.extensions.two_phases import command
from official_bert.extensions.two_phases.options import TwoPhaseOptions
from official_bert.training import run_log
from tests import toy
from tests.commands.pretraining_run import checkpoint_values
from tests.scripts import run_here
from tests.shared import ROOT

NUM_STEPS = 20
PEAK = 1e-3


@pytest.fixture
def options(tmp_path) -> TwoPhaseOptions:
    """A run of 18 updates on 32 tokens and 2 on 64."""
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | {"max_position_embeddings": 64}))
    return TwoPhaseOptions(
        input_file=[str(ROOT / "sample_text.txt")],
        vocab_file=toy.write_vocabulary(tmp_path),
        bert_config_file=str(config),
        output_dir=str(tmp_path / "out"),
        num_train_steps=NUM_STEPS,
        num_warmup_steps=4,
        learning_rate=PEAK,
        train_batch_size=4,
        max_seq_length=32,
        phase2_max_seq_length=64,
        dupe_factor=2,
        training_flags=("--random_seed=5", "--log_every_steps=1", "--keep_checkpoint_max=0"),
    )


class Here:
    """Runs the commands in this process; `stops` are the numbers of commands that are killed."""

    def __init__(self):
        self.names = []
        self.stops = {}

    def __call__(self, name, *flags):
        self.names.append(name)
        extra = self.stops.pop(len(self.names), ())
        run_here(name, *flags, *extra)
        if extra:
            raise KeyboardInterrupt


@pytest.fixture
def here(monkeypatch) -> Here:
    runner = Here()
    monkeypatch.setattr(command, "_run", runner)
    return runner


def read_values(folder: pathlib.Path, name: str) -> list[tuple[int, float]]:
    lines = run_log.read(str(folder), run_log.TRAIN)
    return [(line["step"], line[name]) for line in lines]


def expected_rates() -> np.ndarray:
    """The learning rate after each number of updates, by the schedule of one training."""
    steps = np.arange(NUM_STEPS + 1)
    return np.where(steps < 4, PEAK * steps / 4, PEAK * (1 - steps / NUM_STEPS))


def test_both_phases_have_one_line_and_one_optimizer_and_resume(options, here, tmp_path):
    out = tmp_path / "out"
    # The first phase is stopped after 10 updates, and the second after its first one.
    here.stops = {3: ["--stop_at_step=10"]}
    with pytest.raises(KeyboardInterrupt):
        command.run(options)
    assert here.names == ["create_pretraining_data"] * 2 + ["run_pretraining"]
    here.names.clear()
    here.stops = {2: ["--stop_at_step=19"]}
    with pytest.raises(KeyboardInterrupt):
        command.run(options)
    here.names.clear()
    command.run(options)
    assert here.names == ["run_pretraining"], "the first phase is finished"

    # One schedule over both phases.
    rates = dict(read_values(out / "model", "learning_rate"))
    assert sorted(rates) == list(range(1, NUM_STEPS + 1))
    expected = expected_rates()
    for step, rate in rates.items():
        assert rate == pytest.approx(expected[step], rel=1e-5), step

    # The sequences of each phase, by the flags of each run.
    starts = run_log.read(str(out / "model"), run_log.START)
    lengths = [(line["flags"]["max_seq_length"], line["first_step"]) for line in starts]
    assert lengths == [(32, 0), (32, 10), (64, 18), (64, 19)]
    last = checkpoint_values(newest(str(out / "model")))
    assert int(last["global_step"]) == NUM_STEPS
    # The moments of the first phase are still there: 0.9 of a moment remains after an update.
    before = checkpoint_values(out / "model" / "model.ckpt-18")
    after = checkpoint_values(out / "model" / "model.ckpt-19")
    name = "bert/encoder/layer_0/output/dense/kernel/adam_v"
    assert before[name].max() > 0
    assert (after[name] >= 0.998 * before[name]).all()
    # Only the second phase trains the last positions.
    table = "bert/embeddings/position_embeddings"
    moved = np.abs(last[table] - before[table]).max(axis=1)
    assert moved[40:].max() > 10 * np.abs(before[f"{table}/adam_m"])[40:].max() + 1e-7


def test_an_uninterrupted_training_of_both_phases_has_the_same_weights(options, here, tmp_path):
    command.run(options)
    other = dataclasses.replace(options, output_dir=str(tmp_path / "other"))
    here.names.clear()
    here.stops = {3: ["--stop_at_step=7"]}
    with pytest.raises(KeyboardInterrupt):
        command.run(other)
    command.run(other)
    whole, resumed = (
        checkpoint_values(tmp_path / name / "model" / f"model.ckpt-{NUM_STEPS}")
        for name in ("out", "other")
    )
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_a_new_schedule_begins_with_the_weights_of_the_first_phase(options, here, tmp_path):
    options = dataclasses.replace(
        options, new_schedule=True, num_warmup_steps=None, phase2_learning_rate=2e-3
    )
    command.run(options)
    out = tmp_path / "out"
    first = checkpoint_values(out / "phase1" / "model.ckpt-18")
    second = checkpoint_values(out / "phase2" / "model.ckpt-0")
    for name, value in second.items():
        if "adam" in name:
            assert not value.any(), name
        elif name != "global_step":
            np.testing.assert_array_equal(value, first[name], err_msg=name)
    (start,) = run_log.read(str(out / "phase2"), run_log.START)
    names = ("num_train_steps", "num_warmup_steps", "learning_rate", "max_predictions_per_seq")
    assert [start["flags"][name] for name in names] == [2, 0, 2e-3, 10]


def test_what_would_fail_in_the_second_phase_is_refused_at_once(options, here):
    def refuse(message: str, **changes):
        with pytest.raises(InputError, match=message):
            command.run(dataclasses.replace(options, **changes))
        assert not here.names
        assert not pathlib.Path(options.output_dir).exists()

    refuse("is also the length of the first phase", phase2_max_seq_length=32)
    refuse("max_position_embeddings is 64, .* up to 128 tokens", phase2_max_seq_length=128)
    refuse("--learning_rate=1: .* give it before --", training_flags=("--learning_rate=1",))
    refuse("--model=x: pretrain_two_phases sets this flag", training_flags=("--model=x",))
    refuse(
        r"--dtyp=bfloat16: run_pretraining has no such flag; did you mean --dtype\?$",
        training_flags=("--dtyp=bfloat16",),
    )
    refuse("--dtype=bfloat61: must be one of ", training_flags=("--dtype=bfloat61",))
    refuse(
        "--save_checkpoints_steps=many: must be a whole number",
        training_flags=("--nojit_compile", "--save_checkpoints_steps=many"),
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--nojit_compile", "--dtype=float32", "--verbosity=-1"),
        ("--dtype", "bfloat16", "-jit_compile=false", "--nologtostderr"),
        ("--distillation=logits,hidden", "--tpu=here", "--train_batch_size_ramp=16,32"),
    ],
)
def test_flags_of_the_trainings_pass(options, here, monkeypatch, words):
    monkeypatch.setattr(command, "_make_records", lambda options, length: None)
    monkeypatch.setattr(
        command, "_run", lambda name, *flags: here.names.append(flags[-len(words) :])
    )
    command.run(dataclasses.replace(options, training_flags=words))
    assert here.names == [words] * 2


def test_records_of_other_flags_are_refused(options, here, capsys):
    here.stops = {3: ["--stop_at_step=1"]}
    with pytest.raises(KeyboardInterrupt):
        command.run(options)
    records = f"{options.output_dir}/records-32"
    here.names.clear()
    with pytest.raises(InputError) as error:
        command.run(dataclasses.replace(options, dupe_factor=3))
    assert str(error.value) == (
        f"--dupe_factor=3: the records in {records} were made with 2; delete the folder, or name "
        "another --output_dir"
    )
    assert not here.names
    capsys.readouterr()
    here.stops = {1: ["--stop_at_step=2"]}
    with pytest.raises(KeyboardInterrupt):
        command.run(options)
    assert (
        f"{records} has the records of an earlier run with these flags." in capsys.readouterr().out
    )


def test_a_failure_to_make_records_leaves_no_empty_folder(options, monkeypatch):
    monkeypatch.setattr(command, "_PROGRAM", ("python3", "-c", "import sys; sys.exit(1)"))
    with pytest.raises(SystemExit):
        command.run(options)
    assert list(pathlib.Path(options.output_dir).iterdir()) == []

    def leave_a_shard(*words: str):
        (pathlib.Path(options.output_dir) / "records-32" / "shard").touch()
        raise SystemExit(1)

    monkeypatch.setattr(command, "_run", leave_a_shard)
    with pytest.raises(SystemExit):
        command.run(options)
    assert (pathlib.Path(options.output_dir) / "records-32" / "shard").exists()


def test_the_paper_has_10_000_updates_of_warm_up_and_a_tenth_of_long_sequences(options):
    paper = dataclasses.replace(options, num_train_steps=1_000_000, num_warmup_steps=None)
    first, second = command.plan_phases(paper)
    assert first.flags == second.flags | {"stop_at_step": 900_000}
    assert second.flags == {
        "num_train_steps": 1_000_000,
        "num_warmup_steps": 10_000,
        "learning_rate": PEAK,
    }


def test_a_failing_command_ends_with_its_status(monkeypatch, capfd):
    monkeypatch.setattr(command, "_PROGRAM", ("python3", "-c", "import sys; sys.exit(3)"))
    with pytest.raises(SystemExit) as ended:
        command._run("run_pretraining", "--input_file=a b")
    assert ended.value.code == 3
    assert "$ official-bert run_pretraining \\\n    '--input_file=a b'" in capfd.readouterr().out
    killed = f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"
    monkeypatch.setattr(command, "_PROGRAM", ("python3", "-c", killed))
    with pytest.raises(SystemExit) as ended:
        command._run("run_pretraining")
    assert ended.value.code == 128 + signal.SIGTERM
