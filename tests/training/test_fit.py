"""Tests Trainer.fit with made-up steps: its calls, batches, hooks, reports, checkpoints and
ends.
"""

import concurrent.futures
import dataclasses
import itertools
import signal
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertPretrainer
from official_bert.checkpoints import CheckpointManager, tf1
from official_bert.config import BertConfig
from official_bert.io import progress
from official_bert.io.errors import Diverged, InputError, Terminated
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training import calls, distribution, loop, run_log, trainer
from official_bert.training.batches import BATCHES_AHEAD, ExampleBatches, RecordBatches
from official_bert.training.calls import Ramp
from official_bert.training.plan import TrainPlan
from official_bert.training.time_limit import TimeLimit
from official_bert.training.trainer import Trainer
from official_bert.training.workers import Workers
from tests import toy


@pytest.mark.parametrize(
    ("is_tpu", "flags", "steps_per_loop", "log_every_steps"),
    [
        pytest.param(False, {}, 10, 100, id="defaults"),
        pytest.param(
            False,
            {"steps_per_loop": 3, "iterations_per_loop": 2},
            3,
            100,
            id="steps per loop, no TPU",
        ),
        # A loop ends at a log point. On TPU it is the other way round.
        pytest.param(False, {"log_every_steps": 7}, 7, 7, id="frequent log lines"),
        pytest.param(
            True,
            {"iterations_per_loop": 200, "log_every_steps": 300},
            200,
            400,
            id="short loops on TPU",
        ),
        pytest.param(
            True,
            {"iterations_per_loop": 1000, "log_every_steps": 100},
            250,
            1000,
            id="long loops on TPU",
        ),
    ],
)
def test_loops(monkeypatch, is_tpu, flags, steps_per_loop, log_every_steps):
    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: is_tpu)
    options = ClassificationOptions(
        task_name="",
        data_dir="",
        output_dir="",
        vocab_file="",
        bert_config_file="",
        save_checkpoints_steps=250,
        **flags,
    )
    made_up = types.SimpleNamespace(options=options, strategy=None, num_train_steps=5000)
    made_up.log_every_steps = Trainer.log_every_steps.fget(made_up)
    assert made_up.log_every_steps == log_every_steps
    assert Trainer.steps_per_loop.fget(made_up) == steps_per_loop


@pytest.mark.parametrize(
    ("num_train_steps", "log_every_steps"),
    [(1, 1), (39, 1), (105, 5), (1999, 99), (2000, 100), (1_000_000, 100)],
)
def test_a_short_training_has_a_line_every_5_percent(monkeypatch, num_train_steps, log_every_steps):
    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: False)
    options = types.SimpleNamespace(log_every_steps=None)
    made_up = types.SimpleNamespace(options=options, strategy=None, num_train_steps=num_train_steps)
    assert Trainer.log_every_steps.fget(made_up) == log_every_steps


class MadeUp:
    """A trainer of a real model, whose steps are made up: it notes the steps of each call, and
    what is saved.
    """

    key = 1

    def __init__(self, folder, monkeypatch, num_train_steps, max_train_hours=None, **flags):
        monkeypatch.setattr(calls, "CALL_SECS", 1e9)
        self.state = tf.train.Checkpoint(
            key=tf.Variable(1),
            seed=tf.Variable(7),
        )
        self.calls = []
        self.saved = []
        self.updates = iter(())
        self.batches_run = 0
        options = ClassificationOptions(
            task_name="",
            data_dir="",
            output_dir=str(folder),
            do_train=True,
            train_batch_size=4,
            **{"log_every_steps": 100} | flags,
        )
        config = BertConfig.from_dict(toy.BERT_CONFIG)
        one_device = tf.distribute.get_strategy()
        plan = TrainPlan(
            run_dir=str(folder),
            build_model=lambda: BertPretrainer(config),
            num_train_steps=num_train_steps,
            num_warmup_steps=0,
            max_train_hours=max_train_hours,
        )
        self.trainer = Trainer(options, one_device, config, plan)
        monkeypatch.setattr(
            self.trainer,
            "step_function",
            lambda *_: self.run_steps,
        )
        monkeypatch.setattr(
            self.trainer.checkpoints,
            "save",
            lambda step, state: self.saved.append(step),
        )

    def have_run(self, num_batches):
        self.batches_run += num_batches

    def run_steps(self, batches, num_steps):
        """Makes the next number of `updates`, or all steps; the others overflow."""
        self.calls.append(num_steps)
        made = next(self.updates, num_steps)
        self.trainer.optimizer.global_step.assign_add(made)
        if self.trainer._loss_scale:
            for index in range(num_steps):
                self.trainer._loss_scale.adjust(tf.constant(index < made))
        return {
            "loss": 2.0 * made,
            "gradient_norm": 1.0 * made,
            "tokens": 64.0,
            "updates": float(made),
        }

    def fit(self, hooks=(), batches=None, ramp=None):
        kind = {
            "tensorboard_only": (),
            "progress": lambda sums, n: {"loss": sums["loss"] / n},
        }
        objective = types.SimpleNamespace(number=1, **kind)
        objective.for_batches = lambda number: types.SimpleNamespace(number=number, **kind)
        self.trainer.fit(objective, batches or self, hooks, ramp)

    def logged(self) -> list[tuple[int, float]]:
        """Step and loss of each progress line."""
        lines = run_log.read(self.trainer.options.output_dir, run_log.TRAIN)
        return [(line["step"], line["loss"]) for line in lines]


class Clock:
    """Counts the batches that a reader has begun, and the steps that a device has ended."""

    lengths = np.full(16, 8)  # of the examples of a set

    def __init__(self):
        self.begun = 0
        self.ended = 0
        self._changed = threading.Condition()

    def features(self, rows, length):
        """Reads a batch of a set; the first row alone is read for its shape, and all rows for
        their digest.
        """
        with self._changed:
            self.begun += len(rows) == 4
            self._changed.notify_all()
        return {"input_ids": np.zeros((len(rows), length), np.int32)}

    def records(self):
        while True:
            yield self.features(np.arange(4), 8)

    def end_of_a_step(self, _):
        """Waits for the next batch to be begun: without reading beside the computation, in vain."""

        def is_next_begun():
            return self.begun > self.ended + 1

        with self._changed:
            assert self._changed.wait_for(is_next_begun, timeout=60)
            self.ended += 1


@pytest.mark.parametrize("source", ["records", "examples"])
@pytest.mark.parametrize("steps_per_loop", [1, 2, 10, 100])
def test_the_batches_of_the_next_loop_are_read_while_the_devices_run_this_one(
    tmp_path, monkeypatch, source, steps_per_loop
):
    made_up = MadeUp(
        tmp_path,
        monkeypatch,
        1 + 9 + 2 * steps_per_loop,
        steps_per_loop=steps_per_loop,
    )
    clock = Clock()
    calls = []
    strategy = tf.distribute.get_strategy()
    if source == "records":
        spec = {"input_ids": tf.TensorSpec([4, 8], tf.int32)}
        dataset = tf.data.Dataset.from_generator(clock.records, output_signature=spec)
        batches = RecordBatches(dataset.prefetch(BATCHES_AHEAD), strategy, seed=0, key=0)
    else:
        batches = ExampleBatches(
            clock,
            strategy,
            4,
            0,
            buffer_size=0,
            max_length=8,
            pad_to_longest=True,
        )

    class Device:
        sum_names = ("loss", "gradient_norm", "tokens")

        def update(self, features):
            ids = tf.reshape(features["input_ids"], [4, 8])
            end_of_step = tf.numpy_function(clock.end_of_a_step, [ids], [])
            with tf.control_dependencies([end_of_step]):
                made_up.trainer.optimizer.global_step.assign_add(1)
            return dict.fromkeys(self.sum_names, tf.constant(0.0))

    run = loop.compiled_steps(strategy, Device())

    def run_steps(batches, num_steps):
        calls.append(num_steps)
        return run(batches, num_steps)

    made_up.run_steps = run_steps
    made_up.fit(batches=batches)
    assert clock.ended == sum(calls) == made_up.trainer.num_train_steps
    assert max(calls) == steps_per_loop
    assert clock.begun <= clock.ended + BATCHES_AHEAD + 1, "few batches are in memory"


class NotedHook:
    """Notes its calls, and stops the training at a step."""

    def __init__(self, every_steps, stops_at=None):
        self.every_steps = every_steps
        self.stops_at = stops_at
        self.calls = []

    def __call__(self, step, metrics):
        self.calls.append((step, metrics.get("loss")))
        return step == self.stops_at


def test_hooks_are_called_after_a_checkpoint_and_may_stop_the_training(tmp_path, monkeypatch):
    flags = {
        "log_every_steps": 4,
        "save_checkpoints_steps": 6,
        "steps_per_loop": 3,
    }
    made_up = MadeUp(tmp_path, monkeypatch, 20, **flags)
    hooks = NotedHook(5), NotedHook(7, stops_at=14)
    made_up.fit(hooks)
    assert made_up.calls == [1, 3, 1, 1, 1, 1, 2, 2, 2]
    assert made_up.saved == [0, 5, 6, 7, 10, 12, 14]
    assert hooks[0].calls == [(5, 2.0), (10, 2.0)]
    assert hooks[1].calls == [(7, 2.0), (14, 2.0)]
    # The last line is of what was left.
    assert made_up.logged() == [(step, 2.0) for step in (4, 8, 10, 12, 14)]


def test_a_training_ends_with_its_time_at_the_rate_of_its_end(tmp_path, monkeypatch, caplog):
    """The clock goes on by a second with each reading: once at the start, and once a call."""
    monkeypatch.setattr(
        TimeLimit,
        "clock",
        itertools.count().__next__,
    )
    flags = {
        "log_every_steps": 4,
        "save_checkpoints_steps": 6,
        "steps_per_loop": 2,
        "learning_rate": 1e-3,
    }
    made_up = MadeUp(
        tmp_path,
        monkeypatch,
        1000,
        max_train_hours=8 / 3600,
        **flags,
    )
    hook = NotedHook(7)
    rates = []
    # The last updates overflow.
    made_up.updates = iter([1, 2, 1, 2, 1, 1, 2, 0])

    def run_steps(batches, num_steps):
        rate = made_up.trainer.optimizer.current_rate()
        rates.append(float(rate))
        return MadeUp.run_steps(made_up, batches, num_steps)

    made_up.run_steps = run_steps
    made_up.fit([hook])
    assert made_up.calls == [1, 2, 1, 2, 1, 1, 2, 2]
    expected_rates = [1e-3 * (1 - used / 8) for used in range(8)]
    np.testing.assert_allclose(rates, expected_rates, rtol=1e-4)
    # The end is saved and evaluated.
    assert made_up.saved == [0, 6, 7, 10]
    assert hook.calls == [(7, 2.0), (10, 2.0)]
    assert [step for step, _ in made_up.logged()] == [4, 8, 10]
    (end,) = run_log.read(str(tmp_path), run_log.END)
    assert end["ended"] == "finished"
    assert end["last_step"] == 10
    assert int(made_up.state.train_millisecs) == 8000
    assert made_up.trainer.num_updates == 0
    made_up.fit([hook])
    assert len(made_up.calls) == 8
    assert "has already reached step 10 and its hours are over" in caplog.text
    assert (
        "to train longer, raise --max_train_hours; to train again, use another --output_dir"
        in caplog.text
    )
    # A command that also evaluates is as it should be.
    options = made_up.trainer.options
    caplog.set_level("INFO", logger="absl")

    def find_level(do_eval: bool) -> str:
        caplog.clear()
        made_up.trainer.options = dataclasses.replace(options, do_eval=do_eval)
        made_up.fit([hook])
        (record,) = [one for one in caplog.records if "Nothing to train" in one.getMessage()]
        return record.levelname

    assert find_level(do_eval=False) == "WARNING"
    assert find_level(do_eval=True) == "INFO"
    # A call in Python returns the trained model.
    with progress.shown_in_python(False):
        assert find_level(do_eval=False) == "INFO"


@pytest.mark.parametrize(
    ("hours", "num_train_steps"),
    [
        pytest.param(None, 12, id="updates"),
        pytest.param(12 / 3600, 24, id="time"),
    ],
)
def test_larger_batches_begin_at_a_share_of_the_updates_or_of_the_time(
    tmp_path, monkeypatch, hours, num_train_steps
):
    monkeypatch.setattr(
        TimeLimit,
        "clock",
        itertools.count().__next__,
    )
    made_up = MadeUp(
        tmp_path,
        monkeypatch,
        num_train_steps,
        hours,
        log_every_steps=5,
        steps_per_loop=2 if hours is None else 1,
    )
    sizes = []

    def step_function(objective, num_batches):
        assert objective.number == num_batches

        def run_steps(batches, num_steps):
            sizes.extend([num_batches] * num_steps)
            return made_up.run_steps(batches, num_steps)

        return run_steps

    monkeypatch.setattr(made_up.trainer, "step_function", step_function)
    starts = (0, num_train_steps // 2, num_train_steps * 3 // 4)
    made_up.fit(ramp=Ramp(starts, (1, 2, 6)))
    assert sizes == [1] * 6 + [2] * 3 + [6] * 3
    # No line is of two sizes.
    assert [step for step, _ in made_up.logged()] == [5, 6, 9, 10, 12]
    # The first update of each size, which compiles, is not measured.
    measured = made_up.trainer._report._measured
    assert measured.examples == 4 * (5 * 1 + 2 * 2 + 2 * 6)
    assert made_up.batches_run == 6 + 3 * 2 + 3 * 6


class Saving(MadeUp):
    """A made-up training that saves at 0, 6, 12, ...; `before_writing` is called with the path of
    the weights of step 6 before they are written.
    """

    def __init__(self, folder, monkeypatch, before_writing):
        super().__init__(folder, monkeypatch, 20, save_checkpoints_steps=6, steps_per_loop=3)
        self.checkpoints = self.trainer.checkpoints
        real_write = tf1.write

        def write(prefix, values):
            if prefix.endswith("-6"):
                before_writing(prefix)
            real_write(prefix, values)

        monkeypatch.setattr(self.checkpoints, "save", self.save)
        monkeypatch.setattr(tf1, "write", write)

    def save(self, step, state):
        CheckpointManager.save(self.checkpoints, step, state)
        self.saved.append(step)

    def written(self) -> list[int]:
        """The steps of the checkpoints that the log has."""
        lines = run_log.read(self.checkpoints.output_dir, run_log.CHECKPOINT)
        return [line["step"] for line in lines]


def test_a_checkpoint_that_cannot_be_written_ends_the_training_before_the_next(
    tmp_path, monkeypatch
):
    def fail(prefix):
        raise InputError(f"{prefix}: cannot be written (No space left on device); make room")

    made_up = Saving(tmp_path, monkeypatch, fail)

    def run_steps(drawn, num_steps):
        writing = made_up.checkpoints._writing
        concurrent.futures.wait([writing] if writing else [], timeout=60)
        return MadeUp.run_steps(made_up, drawn, num_steps)

    made_up.run_steps = run_steps
    with pytest.raises(InputError, match=r"model\.ckpt-6: cannot be written \(No space"):
        made_up.fit()
    assert made_up.calls == [1, 3, 2, 3]
    assert made_up.written() == [0]
    (end,) = run_log.read(str(tmp_path), run_log.END)
    assert end["ended"] == "InputError"
    assert end["last_checkpoint"] == str(tmp_path / "model.ckpt-0")


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM"])
def test_a_stopped_training_ends_when_its_checkpoint_is_written(tmp_path, monkeypatch, caplog, end):
    """The thread is held in its writing until somebody waits for it; after SIGTERM that is
    before the other workers.
    """
    begun = threading.Event()
    may_go_on = threading.Event()

    def hold(prefix):
        begun.set()
        assert may_go_on.wait(60)

    made_up = Saving(tmp_path, monkeypatch, hold)
    wait = made_up.checkpoints.wait
    before_others = []

    def wait_for_writing(if_ended=False):
        if 6 in made_up.saved and not if_ended:
            may_go_on.set()
        return wait(if_ended)

    def run_steps(drawn, num_steps):
        if made_up.trainer.global_step >= 6:
            assert begun.wait(60)
            raise KeyboardInterrupt
        return MadeUp.run_steps(made_up, drawn, num_steps)

    def max_steps(calls, step_secs, is_interrupted):
        return 0 if end == "SIGTERM" and made_up.trainer.global_step == 6 else 3

    made_up.run_steps = run_steps
    monkeypatch.setattr(made_up.checkpoints, "wait", wait_for_writing)
    monkeypatch.setattr(calls.Calls, "agree_on_max_steps", max_steps)
    monkeypatch.setattr(
        made_up.trainer.workers,
        "wait",
        lambda: before_others.append(made_up.checkpoints.latest),
    )
    with pytest.raises(KeyboardInterrupt if end == "Ctrl-C" else Terminated):
        made_up.fit()
    newest = str(tmp_path / "model.ckpt-6")
    assert before_others == ([None] if end == "Ctrl-C" else [None, newest])
    assert f"Stopped after step 6; {newest} is saved" in caplog.text
    assert made_up.checkpoints.latest == newest
    assert made_up.written() == [0, 6]


@pytest.mark.parametrize(
    ("ends_by_time", "call_secs", "has_signal", "expected"),
    [
        (True, 0.3, False, [1, 3, 3]),
        (True, 17.0, False, [1, 1, 1]),
        (True, 0.3, True, [1]),
        (False, 0.3, False, [1, 9, 200]),  # a TPU
    ],
)
def test_a_call_ends_after_a_second(monkeypatch, ends_by_time, call_secs, has_signal, expected):
    """The first call compiles, and makes a single update; so does the next one up to step 10."""
    clock = [0.0]
    num_steps = []
    monkeypatch.setattr(calls.time, "monotonic", lambda: clock[0])

    def run_steps(batches, count):
        num_steps.append(count)
        clock[0] += call_secs * count
        return {}

    stops = calls.Stops(
        first_step=0,
        num_train_steps=10_000,
        steps_per_loop=200,
        log_every_steps=10_000,
        save_every_steps=(),
    )
    run = calls.Calls(
        compile_steps=lambda multiple: run_steps,
        batches=types.SimpleNamespace(have_run=lambda count: None),
        report=types.SimpleNamespace(add=lambda count, sums: count),
        stops=stops,
        ramp=calls.Ramp(),
        limit=None,
        workers=Workers(tf.distribute.get_strategy()),
        ends_by_time=ends_by_time,
    )
    step = 0
    for _ in expected:
        call = run.run(step, lambda: signal.SIGTERM if has_signal else None)
        step = call.step
        assert call.is_progress
        assert call.is_interrupted == has_signal
    assert num_steps == expected


def test_a_run_that_goes_on_calls_the_hooks_of_its_step_first(tmp_path, monkeypatch):
    made_up = MadeUp(tmp_path, monkeypatch, 20)
    made_up.trainer.optimizer.global_step.assign(10)
    hooks = NotedHook(5, stops_at=10), NotedHook(7)
    made_up.fit(hooks)
    assert made_up.calls == []
    assert hooks[0].calls == [(10, None)]
    assert hooks[1].calls == []
    made_up.trainer.optimizer.global_step.assign(20)
    made_up.fit(hooks)
    assert made_up.calls == []
    assert hooks[1].calls == [(20, None)]


def test_a_loss_scale_below_one_stops_the_training_and_skipped_updates_do_not_count(
    tmp_path, monkeypatch
):
    flags = {
        "log_every_steps": 4,
        "save_checkpoints_steps": 6,
        "steps_per_loop": 3,
        "dtype": "float16",
    }
    made_up = MadeUp(tmp_path, monkeypatch, 40, **flags)
    made_up.updates = iter([1, 3, 0, 2, 1, *[0] * 99])
    with pytest.raises(
        Diverged,
        match=r"float16 overflows .* has sunk to 0.\d*; lower --learning_rate",
    ):
        made_up.fit()
    # 1 + 3 updates are step 4; none; 2 of 2 are step 6; 1 of 2 is step 7; then none.
    assert made_up.logged() == [(4, 2.0)]
    assert made_up.saved == [0, 6]


@pytest.mark.parametrize(
    ("flag", "is_tpu", "has_xla", "compiles", "warnings"),
    [
        pytest.param(True, False, True, True, 0, id="XLA"),
        pytest.param(False, False, False, False, 0, id="not wanted"),
        pytest.param(True, True, False, False, 0, id="TPU"),
        pytest.param(True, False, False, False, 1, id="without XLA"),
    ],
)
def test_compiles_where_tensorflow_can(
    monkeypatch, caplog, flag, is_tpu, has_xla, compiles, warnings
):
    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: is_tpu)
    monkeypatch.setattr(trainer, "has_xla", lambda: has_xla)
    made_up = types.SimpleNamespace(options=types.SimpleNamespace(jit_compile=flag), strategy=None)
    assert Trainer.compiles_by_xla(made_up) is compiles
    assert (
        caplog.text.count("--jit_compile has no effect: tensorflow-tpu cannot compile for the CPU")
        == warnings
    )
