"""The checkpoints of a run: the files in the folder after each save, which are found, and what a
restart restores.
"""

import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import CheckpointManager, tf1
from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints.manager import LoneWorker
from official_bert.io.errors import Diverged, InputError

DATA = "data-00000-of-00001"


def variables(step: int = 0, weight: float = 1.0) -> dict[str, tf.Variable]:
    return {
        "w": tf.Variable([weight, weight]),
        "w/adam_m": tf.Variable([0.5, 0.25]),
        "w/adam_v": tf.Variable([0.125, 2.0]),
        "global_step": tf.Variable(step, dtype=tf.int64),
    }


def advance(saved_variables: dict[str, tf.Variable], step: int):
    saved_variables["global_step"].assign(step)
    saved_variables["w"].assign([step, -step])


def models_in(folder) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".index"))


def test_weights_slots_and_step_come_back(tmp_path):
    saved_variables = variables()
    manager = CheckpointManager(str(tmp_path / "new" / "run"), saved_variables)
    assert (manager.latest, manager.latest_step(), manager.restore()) == (None, None, False)
    advance(saved_variables, 20)
    manager.save(20)
    assert manager.latest_step() == 20
    assert manager.latest == str(tmp_path / "new" / "run" / "model.ckpt-20")

    other = variables(step=1, weight=9.0)
    other["w/adam_v"].assign([7.0, 7.0])
    state = tf.train.Checkpoint(position=tf.Variable(5))
    assert CheckpointManager(str(tmp_path / "new" / "run"), other).restore(state) is True
    assert int(state.position) == 5, "without a saved input it starts anew"
    assert other["w"].numpy().tolist() == [20.0, -20.0]
    assert other["w/adam_v"].numpy().tolist() == [0.125, 2.0]
    assert int(other["global_step"]) == 20


def test_the_input_goes_on_where_it_was(tmp_path):
    def make_input():
        iterator = iter(tf.data.Dataset.range(100).shuffle(10, seed=3))
        return iterator, tf.train.Checkpoint(iterator=iterator, seed=tf.Variable(0, dtype=tf.int64))

    iterator, state = make_input()
    for _ in range(7):
        next(iterator)
    state.seed.assign(42)
    CheckpointManager(str(tmp_path), variables(step=7)).save(7, state)
    expected = [int(next(iterator)) for _ in range(5)]

    iterator, state = make_input()
    CheckpointManager(str(tmp_path), variables()).restore(state)
    assert [int(next(iterator)) for _ in range(5)] == expected
    assert int(state.seed) == 42
    assert models_in(tmp_path) == ["input.ckpt-7-0.index", "model.ckpt-7.index"]


def test_every_worker_may_have_its_own_input(tmp_path):
    """The checkpoint is listed when all workers have written theirs."""

    waited = []

    class Worker(LoneWorker):
        def wait(self):
            assert not (tmp_path / "checkpoint").exists()
            assert (tmp_path / "input.ckpt-3-1.index").exists()
            waited.append(self.index)

    def manager(worker, **values):
        saved_variables = variables(**values)
        return CheckpointManager(
            str(tmp_path), saved_variables, workers=Worker(worker), saves_all_inputs=True
        )

    for worker in (1, 0):
        state = tf.train.Checkpoint(position=tf.Variable(100 + worker))
        manager(worker, step=3).save(3, state)
        assert waited.pop() == worker
    for worker in (0, 1):
        state = tf.train.Checkpoint(position=tf.Variable(0))
        manager(worker).restore(state)
        assert int(state.position) == 100 + worker


def test_workers_with_one_input_have_the_position_of_worker_0(tmp_path):
    state = tf.train.Checkpoint(position=tf.Variable(101))
    CheckpointManager(str(tmp_path), variables(step=3), workers=LoneWorker(1)).save(3, state)
    assert models_in(tmp_path) == []
    CheckpointManager(str(tmp_path), variables(step=3)).save(
        3,
        tf.train.Checkpoint(position=tf.Variable(100)),
    )
    CheckpointManager(str(tmp_path), variables(), workers=LoneWorker(1)).restore(state)
    assert int(state.position) == 100


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'model_checkpoint_path: "model.ckpt-9"\n'])
def test_a_state_file_without_a_checkpoint_stops_the_run(tmp_path, content):
    CheckpointManager(str(tmp_path), variables()).save(3)
    before = (tmp_path / "model.ckpt-3.index").read_bytes()
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(InputError, match=r"checkpoint: (is corrupt|names no existing checkpoint)"):
        CheckpointManager(str(tmp_path), variables()).restore()
    assert (tmp_path / "model.ckpt-3.index").read_bytes() == before


def saved_run(folder, steps=(10, 20, 30)) -> CheckpointManager:
    """Saves checkpoints whose inputs have the step's tenth as seed, and returns the manager of a
    new process.
    """
    saved_variables = variables()
    manager = CheckpointManager(str(folder), saved_variables, keep_max=0)
    for step in steps:
        advance(saved_variables, step)
        manager.save(step, tf.train.Checkpoint(seed=tf.Variable(step // 10)))
    return CheckpointManager(str(folder), variables(), keep_max=0)


def test_another_worker_may_replace_the_list_while_it_is_read(tmp_path, monkeypatch):
    for step in (10, 20):
        (tmp_path / f"model.ckpt-{step}.index").touch()
    checkpoint_folder.write_state(str(tmp_path), ["model.ckpt-10"])
    read = tf.train.get_checkpoint_state

    def read_before_the_chief_saves(folder):
        state = read(folder)
        checkpoint_folder.write_state(folder, ["model.ckpt-10", "model.ckpt-20"])
        return state

    monkeypatch.setattr(tf.train, "get_checkpoint_state", read_before_the_chief_saves)
    assert checkpoint_folder.newest(str(tmp_path)) == f"{tmp_path}/model.ckpt-10"


@pytest.mark.parametrize(
    "name",
    [
        "model.ckpt-30.index",
        f"model.ckpt-30.{DATA}",
        "input.ckpt-30-0.index",
        f"input.ckpt-30-0.{DATA}",
    ],
)
def test_a_corrupt_checkpoint_is_passed_over_once_and_for_all(tmp_path, name, caplog):
    """The older one gives the weights, the step and the seed; the next list has no corrupt one."""
    manager = saved_run(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:20])
    assert manager.read_newest_valid(manager.restore)
    assert f"{tmp_path}/{name} is corrupt (" in caplog.text
    assert (
        f"training goes on from step 20, that of the older {tmp_path}/model.ckpt-20" in caplog.text
    )
    assert manager.variables["w"].numpy().tolist() == [20.0, -20.0]
    assert (manager.latest_step(), manager.saved_input_value("seed")) == (20, 2)
    manager.remove_leftovers()
    assert (tmp_path / name).exists()

    advance(manager.variables, 25)
    manager.save(25)
    listed = checkpoint_folder.list_checkpoints(str(tmp_path))
    assert [path.rpartition("-")[2] for path in listed] == ["10", "20", "25"]
    advance(manager.variables, 30)
    manager.save(30, tf.train.Checkpoint(seed=tf.Variable(9)))
    again = CheckpointManager(str(tmp_path), variables())
    assert again.restore()
    assert (again.latest_step(), again.saved_input_value("seed")) == (30, 9)


def test_a_saved_input_is_sealed(tmp_path):
    manager = saved_run(tmp_path)
    path = tmp_path / f"input.ckpt-30-0.{DATA}"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        InputError,
        match=r"input\.ckpt-30-0: cannot be read \(its bytes do not fit their ch",
    ):
        manager.saved_input_value("seed")
    path.write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"input\.ckpt-30-0: .*cannot be read.*the input starts from its beginning",
    ):
        manager.saved_input_value("seed")


def test_all_workers_pass_over_the_same_checkpoints(tmp_path):
    """The input state of worker 1 is corrupt, and worker 0 finds it, too."""
    for worker in (1, 0):
        for step in (10, 20):
            manager = CheckpointManager(
                str(tmp_path),
                variables(step),
                keep_max=0,
                workers=LoneWorker(worker),
                saves_all_inputs=True,
            )
            manager.save(step, tf.train.Checkpoint(seed=tf.Variable(step)))
    (tmp_path / f"input.ckpt-20-1.{DATA}").write_bytes(b"")
    for worker in (0, 1):
        manager = CheckpointManager(
            str(tmp_path),
            variables(),
            keep_max=0,
            workers=LoneWorker(worker),
            saves_all_inputs=True,
        )
        assert (
            manager.read_newest_valid(lambda manager=manager: manager.saved_input_value("seed"))
            == 10
        )
        assert manager.latest_step() == 10


def test_if_no_checkpoint_is_whole_or_fits_the_newest_is_named(tmp_path):
    manager = saved_run(tmp_path)
    for step in (10, 20, 30):
        (tmp_path / f"model.ckpt-{step}.{DATA}").write_bytes(b"")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(
        InputError,
        match=r"model\.ckpt-30: global_step cannot be read .*; copy its files again",
    ):
        manager.read_newest_valid(manager.restore)
    assert sorted(os.listdir(tmp_path)) == before

    manager = saved_run(tmp_path / "other")
    manager.variables["other"] = tf.Variable(1.0)
    with pytest.raises(InputError, match=r"model\.ckpt-30: cannot resume, since it lacks other"):
        manager.read_newest_valid(manager.restore)


def test_an_input_of_another_kind_is_an_error(tmp_path):
    CheckpointManager(str(tmp_path), variables(step=3)).save(
        3,
        tf.train.Checkpoint(a=tf.Variable(1)),
    )
    with pytest.raises(
        InputError,
        match=r"input\.ckpt-3-0: the state of the input cannot be restored",
    ):
        CheckpointManager(str(tmp_path), variables()).restore(
            tf.train.Checkpoint(b=tf.Variable([1.0, 2.0]))
        )


def test_the_newest_are_kept_and_the_folder_can_be_moved(tmp_path):
    run = tmp_path / "run"
    saved_variables = variables()
    manager = CheckpointManager(str(run), saved_variables, keep_max=2)
    for step in (10, 20, 30):
        advance(saved_variables, step)
        manager.save(step, tf.train.Checkpoint(position=tf.Variable(step)))
    assert models_in(run) == [
        f"{kind}.ckpt-{end}.index"
        for kind, end in (("input", "20-0"), ("input", "30-0"), ("model", 20), ("model", 30))
    ]
    assert (run / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-30"\n'
        'all_model_checkpoint_paths: "model.ckpt-20"\n'
        'all_model_checkpoint_paths: "model.ckpt-30"\n'
    )
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    # A new process: only the file knows of the earlier run's checkpoints.
    manager = CheckpointManager(str(moved), saved_variables, keep_max=2)
    assert manager.latest == str(moved / "model.ckpt-30")
    manager.save(40)
    assert models_in(moved) == [
        "input.ckpt-30-0.index",
        "model.ckpt-30.index",
        "model.ckpt-40.index",
    ]
    manager.save(40)  # the same step again replaces it
    assert checkpoint_folder.list_checkpoints(str(moved)) == [
        str(moved / "model.ckpt-30"),
        str(moved / "model.ckpt-40"),
    ]


def test_zero_keeps_all_and_foreign_files_stay(tmp_path):
    saved_variables = variables()
    (tmp_path / "eval_results.txt").write_text("loss = 1\n")
    tf1.write(
        str(tmp_path / "model.ckpt-1"), saved_variables
    )  # not in the checkpoint file: not ours to delete
    tf1.write(str(tmp_path / "elsewhere" / "model.ckpt-2"), saved_variables)
    tf.compat.v1.train.update_checkpoint_state(
        str(tmp_path),
        str(tmp_path / "elsewhere" / "model.ckpt-2"),
    )
    manager = CheckpointManager(str(tmp_path), saved_variables, keep_max=0)
    for step in range(3, 10):
        manager.save(step)
    assert models_in(tmp_path) == [f"model.ckpt-{step}.index" for step in (1, *range(3, 10))]
    CheckpointManager(str(tmp_path), saved_variables, keep_max=1).save(10)
    assert models_in(tmp_path) == ["model.ckpt-1.index", "model.ckpt-10.index"]
    assert models_in(tmp_path / "elsewhere") == ["model.ckpt-2.index"]
    assert (tmp_path / "eval_results.txt").exists()


@pytest.mark.parametrize("saves_in_background", [False, True])
@pytest.mark.parametrize("killed_in", ["write", "write_state", "remove"])
def test_a_kill_while_saving_loses_only_that_save(
    tmp_path, monkeypatch, killed_in, saves_in_background
):
    def die(*_):
        raise KeyboardInterrupt

    saved_variables = variables()
    manager = CheckpointManager(
        str(tmp_path),
        saved_variables,
        keep_max=1,
        saves_in_background=saves_in_background,
    )
    advance(saved_variables, 10)
    manager.save(10, tf.train.Checkpoint(position=tf.Variable(10)))
    manager.wait()
    advance(saved_variables, 20)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_folder if killed_in == "write_state" else tf1, killed_in, die)
        with pytest.raises(KeyboardInterrupt):
            manager.save(20, tf.train.Checkpoint(position=tf.Variable(20))) or manager.wait()

    survivor = 20 if killed_in == "remove" else 10
    other, state = variables(), tf.train.Checkpoint(position=tf.Variable(0))
    manager = CheckpointManager(str(tmp_path), other, keep_max=1)
    assert manager.restore(state)
    assert other["w"].numpy().tolist() == [survivor, -survivor]
    assert int(state.position) == survivor
    advance(other, 20)
    manager.save(20, state)
    assert manager.latest_step() == 20


class HeldWriting:
    """A manager whose thread stays in front of each writing of weights until `wait` is called;
    `log` has the order.
    """

    def __init__(self, folder, saved_variables, monkeypatch):
        self.manager, self.log = (
            CheckpointManager(str(folder), saved_variables, saves_in_background=True),
            [],
        )
        self.begun, self._may_go_on = threading.Event(), threading.Event()
        self._write, self._find, self._wait = tf1.write, tf1.find_invalid, self.manager.wait
        monkeypatch.setattr(tf1, "write", self.write)
        monkeypatch.setattr(
            tf1,
            "find_invalid",
            lambda variables: self.log.append("checked") or self._find(variables),
        )
        monkeypatch.setattr(self.manager, "wait", self.wait)

    def write(self, prefix, values):
        self.begun.set()
        assert self._may_go_on.wait(60)
        self._write(prefix, values)
        self.log.append(os.path.basename(prefix))

    def wait(self, if_ended=False):
        if self.begun.is_set() and not if_ended:
            self._may_go_on.set()
        return self._wait(if_ended)


def test_the_values_of_the_step_are_written_while_the_variables_go_on(tmp_path, monkeypatch):
    """The thread is held in front of its writing, while variables are changed in all ways, until
    the next save.
    """
    saved_variables = variables()
    held = HeldWriting(tmp_path, saved_variables, monkeypatch)
    advance(saved_variables, 10)
    position = tf.Variable(10)
    held.manager.save(10, tf.train.Checkpoint(position=position))
    assert held.begun.wait(60)
    assert held.manager.wait(if_ended=True) is None

    @tf.function(jit_compile=True)
    def update():
        saved_variables["w"].assign_add([1.0, 1.0])
        saved_variables["w/adam_m"].assign(2.0 * saved_variables["w/adam_m"])

    update()
    saved_variables["w"].scatter_update(tf.IndexedSlices(tf.constant([7.0]), tf.constant([0])))
    saved_variables["w/adam_v"][:1].assign([9.0])
    saved_variables["w/adam_v"].assign_sub([1.0, 1.0])
    saved_variables["global_step"].assign_add(10)
    position.assign(20)
    assert saved_variables["w/adam_v"].numpy().tolist() == [8.0, 1.0]
    assert (models_in(tmp_path), held.manager.latest, held.log) == (
        ["input.ckpt-10-0.index"],
        None,
        ["checked"],
    )

    held.manager.save(20)
    assert held.manager.wait() == str(tmp_path / "model.ckpt-20")
    assert held.log == ["checked", "model.ckpt-10", "checked", "model.ckpt-20"], (
        "the second save waits for the first"
    )
    assert held.manager.wait() is None
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-10"\n')
    other, state = variables(), tf.train.Checkpoint(position=tf.Variable(0))
    assert CheckpointManager(str(tmp_path), other).restore(state)
    found = {name: variable.numpy().tolist() for name, variable in other.items()}
    assert found == {
        "w": [10.0, -10.0],
        "w/adam_m": [0.5, 0.25],
        "w/adam_v": [0.125, 2.0],
        "global_step": 10,
    }
    assert int(state.position) == 10


def test_a_write_that_failed_is_said_once_with_its_sentence(tmp_path):
    saved_variables = variables()
    manager = CheckpointManager(str(tmp_path), saved_variables, saves_in_background=True)
    manager.save(10)
    assert manager.wait() == str(tmp_path / "model.ckpt-10")
    (tmp_path / f"model.ckpt-20.{DATA}" / "full").mkdir(parents=True)
    manager.save(20)
    with pytest.raises(
        InputError,
        match=r"model\.ckpt-20: cannot be written \(.*; make room or name another folder",
    ):
        manager.save(30)
    assert (manager.wait(), manager.latest) == (None, str(tmp_path / "model.ckpt-10"))
    assert models_in(tmp_path) == ["model.ckpt-10.index"]


def test_the_chief_looks_through_the_values_for_all_workers(tmp_path):
    saved_variables, answers = variables(), []
    saved_variables["w"].assign([np.nan, 0.0])

    class WithInvalidChief(LoneWorker):
        def any_worker(self, condition):
            answers.append(condition)
            return True

    CheckpointManager(str(tmp_path), saved_variables, workers=LoneWorker(1)).save(3)
    for worker, workers in ((0, LoneWorker()), (1, WithInvalidChief(1))):
        manager = CheckpointManager(str(tmp_path), saved_variables, workers=workers)
        with pytest.raises(
            Diverged,
            match=f"since {'the chief finds them invalid' if worker else 'w holds nan'}",
        ):
            manager.save(3)
    assert answers == [False]
    assert not os.listdir(tmp_path)


def test_what_a_kill_left_of_old_checkpoints_goes(tmp_path):
    saved_variables = variables()
    manager = CheckpointManager(str(tmp_path), saved_variables, keep_max=3)
    for step in (10, 20, 30):
        manager.save(step, tf.train.Checkpoint(position=tf.Variable(step)))
    newest = tmp_path / "model.ckpt-30.index"
    content, before = newest.read_bytes(), sorted(os.listdir(tmp_path))
    newest.unlink()
    CheckpointManager(str(tmp_path), saved_variables, keep_max=1).remove_leftovers()
    newest.write_bytes(content)
    assert sorted(os.listdir(tmp_path)) == before, "without the newest an older one is needed"

    (tmp_path / "model.ckpt-10.index").unlink()  # the kill came while it was deleted
    for name in ("model.ckpt-20.index", f"model.ckpt-20.{DATA}", "input.ckpt-20-0.index"):
        (tmp_path / name).unlink()
    CheckpointManager(str(tmp_path), saved_variables, keep_max=1).remove_leftovers()
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "input.ckpt-30-0.data-00000-of-00001", "input.ckpt-30-0.index",
        "model.ckpt-30.data-00000-of-00001", "model.ckpt-30.index",
    ]  # fmt: skip
    assert (tmp_path / "checkpoint").read_text().count("model.ckpt-") == 2


def test_what_diverged_is_not_saved(tmp_path):
    saved_variables = variables(step=3)
    manager = CheckpointManager(str(tmp_path), saved_variables)
    manager.save(3)
    saved_variables["w/adam_v"].assign([1.0, 3e30])
    with pytest.raises(
        Diverged,
        match=r"the weights of step 4 are not saved, since w/adam_v holds 3e\+30",
    ):
        manager.save(4)
    assert models_in(tmp_path) == ["model.ckpt-3.index"]


def test_a_run_of_another_model_is_not_resumed_in_part(tmp_path):
    saved_variables = variables(step=5)
    CheckpointManager(
        str(tmp_path), saved_variables | {"layer_9/kernel": saved_variables["w"]}
    ).save(5)
    before = saved_variables["w"].numpy().tolist()
    saved_variables["w"].assign(saved_variables["w"] + 1)
    with pytest.raises(
        InputError,
        match=r"cannot resume, since the model has no layer_9/kernel; give the config",
    ):
        CheckpointManager(str(tmp_path), saved_variables).restore()
    assert saved_variables["w"].numpy().tolist() == [value + 1 for value in before], (
        "nothing was restored"
    )

    CheckpointManager(
        str(tmp_path), {key: saved_variables[key] for key in ("w", "global_step")}
    ).save(5)
    with pytest.raises(
        InputError,
        match=r"model\.ckpt-5: cannot resume, since it lacks w/adam_m, w/adam_v;",
    ):
        CheckpointManager(str(tmp_path), saved_variables).restore()
    wider = {"w": tf.Variable([1.0, 2.0, 3.0]), "global_step": saved_variables["global_step"]}
    with pytest.raises(
        InputError,
        match=r"w has shape \[2\] in the checkpoint and \[3\] in the model",
    ):
        CheckpointManager(str(tmp_path), wider).restore()
    tf1.write(str(tmp_path / "model.ckpt-6"), {"w": saved_variables["w"]})
    checkpoint_folder.write_state(str(tmp_path), ["model.ckpt-6"])
    with pytest.raises(InputError, match="no global_step"):
        CheckpointManager(str(tmp_path), saved_variables).latest_step()


def test_a_checkpoint_is_found_by_prefix_folder_and_state_file(tmp_path):
    path = str(tmp_path)
    assert checkpoint_folder.find_prefix(path) is None
    assert checkpoint_folder.find_prefix(str(tmp_path / "bert_model.ckpt")) is None
    tf1.write(str(tmp_path / "bert_model.ckpt"), {"a": np.float32(1)})
    tf1.write(str(tmp_path / "input.ckpt-5-0"), {"a": np.float32(1)})
    assert checkpoint_folder.find_prefix(str(tmp_path / "bert_model.ckpt")) == str(
        tmp_path / "bert_model.ckpt"
    )
    assert checkpoint_folder.find_prefix(path) == str(tmp_path / "bert_model.ckpt")
    tf1.write(str(tmp_path / "model.ckpt-5"), {"a": np.float32(2)})
    with pytest.raises(InputError, match=r"bert_model\.ckpt, model\.ckpt-5"):
        checkpoint_folder.find_prefix(path)
    checkpoint_folder.write_state(path, ["bert_model.ckpt", "model.ckpt-5"])
    assert checkpoint_folder.find_prefix(path) == str(tmp_path / "model.ckpt-5")
    assert tf.train.latest_checkpoint(path) == str(tmp_path / "model.ckpt-5")


def test_all_checkpoints_can_go_and_other_files_stay(tmp_path, monkeypatch):
    manager = CheckpointManager(str(tmp_path), {"global_step": tf.Variable(0, dtype=tf.int64)})
    checkpoint_folder.remove_all(str(tmp_path))  # nothing there
    manager.save(1, tf.train.Checkpoint(position=tf.Variable(0)))
    manager.save(2)
    (tmp_path / "model.ckpt-3.writing").mkdir()
    (tmp_path / "model.ckpt-3.writing" / "part.index").write_text("")
    (tmp_path / "eval_results.txt").write_text("")
    deleted, delete = [], checkpoint_folder._delete
    monkeypatch.setattr(
        checkpoint_folder,
        "_delete",
        lambda path: deleted.append(path) or delete(path),
    )
    checkpoint_folder.remove_all(str(tmp_path))
    # A kill leaves no list of files that are gone.
    assert deleted[0] == str(tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]
    assert manager.latest is None
