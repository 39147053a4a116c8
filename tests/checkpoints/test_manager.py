"""The checkpoints of a run: the files in the folder after each save, which are found, and what a
restart restores.
"""

import functools
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


def manager_in(folder, saved_variables, **settings) -> CheckpointManager:
    return CheckpointManager(str(folder), saved_variables, **settings)


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


def checkpoint_of(**values) -> tf.train.Checkpoint:
    """The state of an input that consists of some variables."""
    variables = {name: tf.Variable(value) for name, value in values.items()}
    return tf.train.Checkpoint(**variables)


def test_weights_slots_and_step_come_back(tmp_path):
    run = str(tmp_path / "new" / "run")
    saved_variables = variables()
    manager = manager_in(run, saved_variables)
    assert manager.latest is None
    assert manager.latest_step() is None
    assert manager.restore() is False
    advance(saved_variables, 20)
    manager.save(20)
    assert manager.latest_step() == 20
    assert manager.latest == f"{run}/model.ckpt-20"

    other = variables(step=1, weight=9.0)
    other["w/adam_v"].assign([7.0, 7.0])
    state = checkpoint_of(position=5)
    restorer = manager_in(run, other)
    assert restorer.restore(state) is True
    assert int(state.position) == 5, "without a saved input it starts anew"
    assert other["w"].numpy().tolist() == [20.0, -20.0]
    assert other["w/adam_v"].numpy().tolist() == [0.125, 2.0]
    assert int(other["global_step"]) == 20


def test_the_input_goes_on_where_it_was(tmp_path):
    def make_input():
        dataset = tf.data.Dataset.range(100).shuffle(10, seed=3)
        iterator = iter(dataset)
        seed = tf.Variable(0, dtype=tf.int64)
        return iterator, tf.train.Checkpoint(iterator=iterator, seed=seed)

    def read_5_values(iterator) -> list[int]:
        return [int(next(iterator)) for _ in range(5)]

    iterator, state = make_input()
    for _ in range(7):
        next(iterator)
    state.seed.assign(42)
    manager = manager_in(tmp_path, variables(step=7))
    manager.save(7, state)
    expected = read_5_values(iterator)

    iterator, state = make_input()
    manager = manager_in(tmp_path, variables())
    manager.restore(state)
    assert read_5_values(iterator) == expected
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
        return manager_in(
            tmp_path,
            variables(**values),
            workers=Worker(worker),
            saves_all_inputs=True,
        )

    for worker in (1, 0):
        state = checkpoint_of(position=100 + worker)
        manager(worker, step=3).save(3, state)
        assert waited.pop() == worker
    for worker in (0, 1):
        state = checkpoint_of(position=0)
        manager(worker).restore(state)
        assert int(state.position) == 100 + worker


def test_workers_with_one_input_have_the_position_of_worker_0(tmp_path):
    state = checkpoint_of(position=101)
    worker_1 = manager_in(tmp_path, variables(step=3), workers=LoneWorker(1))
    worker_1.save(3, state)
    assert models_in(tmp_path) == []
    chief = manager_in(tmp_path, variables(step=3))
    chief.save(3, checkpoint_of(position=100))
    worker_1 = manager_in(tmp_path, variables(), workers=LoneWorker(1))
    worker_1.restore(state)
    assert int(state.position) == 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            b"\xff\xfe\x00",
            "checkpoint: is corrupt",
            id="a corrupt file",
        ),
        pytest.param(
            b'model_checkpoint_path: "model.ckpt-9"\n',
            "checkpoint: names no existing checkpoint",
            id="an absent checkpoint",
        ),
    ],
)
def test_a_state_file_without_a_checkpoint_stops_the_run(tmp_path, content, message):
    manager_in(tmp_path, variables()).save(3)
    index = tmp_path / "model.ckpt-3.index"
    before = index.read_bytes()
    (tmp_path / "checkpoint").write_bytes(content)
    manager = manager_in(tmp_path, variables())
    with refusal(message):
        manager.restore()
    assert index.read_bytes() == before


def saved_run(folder, steps=(10, 20, 30)) -> CheckpointManager:
    """Saves checkpoints whose inputs have the step's tenth as seed, and returns the manager of a
    new process.
    """
    saved_variables = variables()
    manager = manager_in(folder, saved_variables, keep_max=0)
    for step in steps:
        advance(saved_variables, step)
        manager.save(step, checkpoint_of(seed=step // 10))
    return manager_in(folder, variables(), keep_max=0)


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
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:20])
    assert manager.read_newest_valid(manager.restore)
    assert f"{path} is corrupt (" in caplog.text
    older = f"{tmp_path}/model.ckpt-20"
    assert f"training resumes from step 20, that of the older {older}" in caplog.text
    assert manager.variables["w"].numpy().tolist() == [20.0, -20.0]
    assert manager.latest_step() == 20
    assert manager.saved_input_value("seed") == 2
    manager.remove_leftovers()
    assert path.exists()

    advance(manager.variables, 25)
    manager.save(25)
    listed = checkpoint_folder.list_checkpoints(str(tmp_path))
    assert listed == [
        f"{tmp_path}/model.ckpt-10",
        f"{tmp_path}/model.ckpt-20",
        f"{tmp_path}/model.ckpt-25",
    ]
    advance(manager.variables, 30)
    manager.save(30, checkpoint_of(seed=9))
    again = manager_in(tmp_path, variables())
    assert again.restore()
    assert again.latest_step() == 30
    assert again.saved_input_value("seed") == 9


def test_a_saved_input_is_sealed(tmp_path):
    manager = saved_run(tmp_path)
    path = tmp_path / f"input.ckpt-30-0.{DATA}"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    message = r"input\.ckpt-30-0: cannot be read \(its bytes do not fit their ch"
    with refusal(message):
        manager.saved_input_value("seed")
    path.write_bytes(b"")
    message = r"input\.ckpt-30-0: .*cannot be read.*the input starts from its beginning"
    with refusal(message):
        manager.saved_input_value("seed")


def test_all_workers_pass_over_the_same_checkpoints(tmp_path):
    """The input state of worker 1 is corrupt, and worker 0 finds it, too."""

    def manager_of(worker: int, **values) -> CheckpointManager:
        return manager_in(
            tmp_path,
            variables(**values),
            keep_max=0,
            workers=LoneWorker(worker),
            saves_all_inputs=True,
        )

    for worker in (1, 0):
        for step in (10, 20):
            manager = manager_of(worker, step=step)
            manager.save(step, checkpoint_of(seed=step))
    (tmp_path / f"input.ckpt-20-1.{DATA}").write_bytes(b"")
    for worker in (0, 1):
        manager = manager_of(worker)
        read_seed = functools.partial(manager.saved_input_value, "seed")
        assert manager.read_newest_valid(read_seed) == 10
        assert manager.latest_step() == 10


def test_if_no_checkpoint_is_whole_or_fits_the_newest_is_named(tmp_path):
    manager = saved_run(tmp_path)
    for step in (10, 20, 30):
        (tmp_path / f"model.ckpt-{step}.{DATA}").write_bytes(b"")
    before = sorted(os.listdir(tmp_path))
    message = r"model\.ckpt-30: global_step cannot be read .*; copy its files again"
    with refusal(message):
        manager.read_newest_valid(manager.restore)
    assert sorted(os.listdir(tmp_path)) == before

    manager = saved_run(tmp_path / "other")
    manager.variables["other"] = tf.Variable(1.0)
    with refusal(r"model\.ckpt-30: cannot resume, since it lacks other"):
        manager.read_newest_valid(manager.restore)


def test_an_input_of_another_kind_is_an_error(tmp_path):
    saver = manager_in(tmp_path, variables(step=3))
    saver.save(3, checkpoint_of(a=1))
    manager = manager_in(tmp_path, variables())
    other_state = checkpoint_of(b=[1.0, 2.0])
    with refusal(r"input\.ckpt-3-0: the state of the input cannot be restored"):
        manager.restore(other_state)


def test_the_newest_are_kept_and_the_folder_can_be_moved(tmp_path):
    run = tmp_path / "run"
    saved_variables = variables()
    manager = manager_in(run, saved_variables, keep_max=2)
    for step in (10, 20, 30):
        advance(saved_variables, step)
        manager.save(step, checkpoint_of(position=step))
    assert models_in(run) == [
        "input.ckpt-20-0.index",
        "input.ckpt-30-0.index",
        "model.ckpt-20.index",
        "model.ckpt-30.index",
    ]
    assert (run / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-30"\n'
        'all_model_checkpoint_paths: "model.ckpt-20"\n'
        'all_model_checkpoint_paths: "model.ckpt-30"\n'
    )
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    # A new process: only the file knows of the earlier run's checkpoints.
    manager = manager_in(moved, saved_variables, keep_max=2)
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


def test_the_checkpoint_of_step_0_goes_after_the_next(tmp_path):
    saved_variables = variables()
    manager = manager_in(tmp_path, saved_variables, keep_max=3)
    manager.save(0)
    assert models_in(tmp_path) == ["model.ckpt-0.index"]
    for step in (10, 20):
        saved_variables["global_step"].assign(step)
        manager.save(step)
    assert models_in(tmp_path) == ["model.ckpt-10.index", "model.ckpt-20.index"]
    assert checkpoint_folder.list_checkpoints(str(tmp_path)) == [
        f"{tmp_path}/model.ckpt-{step}" for step in (10, 20)
    ]


def test_zero_keeps_all_and_foreign_files_stay(tmp_path):
    saved_variables = variables()
    (tmp_path / "eval_results.txt").write_text("loss = 1\n")
    # It is not in the checkpoint file: not ours to delete.
    tf1.write(str(tmp_path / "model.ckpt-1"), saved_variables)
    elsewhere = tmp_path / "elsewhere"
    listed = str(elsewhere / "model.ckpt-2")
    tf1.write(listed, saved_variables)
    tf.compat.v1.train.update_checkpoint_state(str(tmp_path), listed)
    manager = manager_in(tmp_path, saved_variables, keep_max=0)
    for step in range(3, 10):
        manager.save(step)
    names = [f"model.ckpt-{step}.index" for step in range(3, 10)]
    assert models_in(tmp_path) == ["model.ckpt-1.index", *names]
    manager = manager_in(tmp_path, saved_variables, keep_max=1)
    manager.save(10)
    assert models_in(tmp_path) == ["model.ckpt-1.index", "model.ckpt-10.index"]
    assert models_in(elsewhere) == ["model.ckpt-2.index"]
    assert (tmp_path / "eval_results.txt").exists()


@pytest.mark.parametrize("saves_in_background", [False, True])
@pytest.mark.parametrize("killed_in", ["write", "write_state", "remove"])
def test_a_kill_while_saving_loses_only_that_save(
    tmp_path, monkeypatch, killed_in, saves_in_background
):
    def die(*_):
        raise KeyboardInterrupt

    saved_variables = variables()
    manager = manager_in(
        tmp_path,
        saved_variables,
        keep_max=1,
        saves_in_background=saves_in_background,
    )
    advance(saved_variables, 10)
    manager.save(10, checkpoint_of(position=10))
    manager.wait()
    advance(saved_variables, 20)
    state = checkpoint_of(position=20)
    module = checkpoint_folder if killed_in == "write_state" else tf1
    with monkeypatch.context() as patch:
        patch.setattr(module, killed_in, die)
        with pytest.raises(KeyboardInterrupt):
            manager.save(20, state) or manager.wait()

    survivor = 20 if killed_in == "remove" else 10
    other = variables()
    state = checkpoint_of(position=0)
    manager = manager_in(tmp_path, other, keep_max=1)
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
        self.manager = manager_in(
            folder,
            saved_variables,
            saves_in_background=True,
        )
        self.log = []
        self.begun = threading.Event()
        self._may_go_on = threading.Event()
        self._write = tf1.write
        self._find_invalid = tf1.find_invalid
        self._wait = self.manager.wait
        monkeypatch.setattr(tf1, "write", self.write)
        monkeypatch.setattr(tf1, "find_invalid", self.find_invalid)
        monkeypatch.setattr(self.manager, "wait", self.wait)

    def find_invalid(self, variables):
        self.log.append("checked")
        return self._find_invalid(variables)

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
    first_weight = tf.IndexedSlices(tf.constant([7.0]), tf.constant([0]))
    saved_variables["w"].scatter_update(first_weight)
    second_moments = saved_variables["w/adam_v"]
    second_moments[:1].assign([9.0])
    second_moments.assign_sub([1.0, 1.0])
    saved_variables["global_step"].assign_add(10)
    position.assign(20)
    assert second_moments.numpy().tolist() == [8.0, 1.0]
    assert models_in(tmp_path) == ["input.ckpt-10-0.index"]
    assert held.manager.latest is None
    assert held.log == ["checked"]

    held.manager.save(20)
    assert held.manager.wait() == str(tmp_path / "model.ckpt-20")
    # The second save waits for the first.
    assert held.log == [
        "checked",
        "model.ckpt-10",
        "checked",
        "model.ckpt-20",
    ]
    assert held.manager.wait() is None
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-10"\n')
    other = variables()
    state = checkpoint_of(position=0)
    assert manager_in(tmp_path, other).restore(state)
    restored = {name: variable.numpy().tolist() for name, variable in other.items()}
    assert restored == {
        "w": [10.0, -10.0],
        "w/adam_m": [0.5, 0.25],
        "w/adam_v": [0.125, 2.0],
        "global_step": 10,
    }
    assert int(state.position) == 10


def test_a_write_that_failed_is_said_once_with_its_sentence(tmp_path):
    saved_variables = variables()
    manager = manager_in(tmp_path, saved_variables, saves_in_background=True)
    manager.save(10)
    assert manager.wait() == str(tmp_path / "model.ckpt-10")
    (tmp_path / f"model.ckpt-20.{DATA}" / "full").mkdir(parents=True)
    manager.save(20)
    message = r"model\.ckpt-20: cannot be written \(.*; make room or name another folder"
    with refusal(message):
        manager.save(30)
    assert manager.wait() is None
    assert manager.latest == str(tmp_path / "model.ckpt-10")
    assert models_in(tmp_path) == ["model.ckpt-10.index"]


def test_the_chief_looks_through_the_values_for_all_workers(tmp_path):
    saved_variables = variables()
    saved_variables["w"].assign([np.nan, 0.0])
    answers = []

    class WithInvalidChief(LoneWorker):
        def any_worker(self, condition):
            answers.append(condition)
            return True

    def manager_of(workers: LoneWorker) -> CheckpointManager:
        return manager_in(tmp_path, saved_variables, workers=workers)

    manager_of(LoneWorker(1)).save(3)
    with pytest.raises(Diverged, match="since w holds nan"):
        manager_of(LoneWorker()).save(3)
    with pytest.raises(Diverged, match="since the chief finds them invalid"):
        manager_of(WithInvalidChief(1)).save(3)
    assert answers == [False]
    assert not os.listdir(tmp_path)


def test_what_a_kill_left_of_old_checkpoints_goes(tmp_path):
    saved_variables = variables()
    manager = manager_in(tmp_path, saved_variables, keep_max=3)
    for step in (10, 20, 30):
        manager.save(step, checkpoint_of(position=step))
    newest = tmp_path / "model.ckpt-30.index"
    content = newest.read_bytes()
    before = sorted(os.listdir(tmp_path))
    newest.unlink()
    manager = manager_in(tmp_path, saved_variables, keep_max=1)
    manager.remove_leftovers()
    newest.write_bytes(content)
    assert sorted(os.listdir(tmp_path)) == before, "without the newest an older one is needed"

    (tmp_path / "model.ckpt-10.index").unlink()  # the kill came while it was deleted
    for name in ("model.ckpt-20.index", f"model.ckpt-20.{DATA}", "input.ckpt-20-0.index"):
        (tmp_path / name).unlink()
    manager = manager_in(tmp_path, saved_variables, keep_max=1)
    manager.remove_leftovers()
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "input.ckpt-30-0.data-00000-of-00001",
        "input.ckpt-30-0.index",
        "model.ckpt-30.data-00000-of-00001",
        "model.ckpt-30.index",
    ]
    assert (tmp_path / "checkpoint").read_text().count("model.ckpt-") == 2


def test_what_diverged_is_not_saved(tmp_path):
    saved_variables = variables(step=3)
    manager = manager_in(tmp_path, saved_variables)
    manager.save(3)
    saved_variables["w/adam_v"].assign([1.0, 3e30])
    message = r"the weights of step 4 are not saved, since w/adam_v holds 3e\+30"
    with pytest.raises(Diverged, match=message):
        manager.save(4)
    assert models_in(tmp_path) == ["model.ckpt-3.index"]


def test_a_run_of_another_model_is_not_resumed_in_part(tmp_path):
    run = str(tmp_path)
    saved_variables = variables(step=5)
    weights = saved_variables["w"]
    larger = saved_variables | {"layer_9/kernel": weights}
    manager_in(run, larger).save(5)
    weights.assign(weights + 1)
    changed = weights.numpy().tolist()
    assert changed == [2.0, 2.0]
    message = r"cannot resume, since the model has no layer_9/kernel; give the config"
    with refusal(message):
        manager_in(run, saved_variables).restore()
    assert weights.numpy().tolist() == changed, "nothing was restored"

    smaller = {"w": weights, "global_step": saved_variables["global_step"]}
    manager_in(run, smaller).save(5)
    message = r"model\.ckpt-5: cannot resume, since it lacks w/adam_m, w/adam_v;"
    with refusal(message):
        manager_in(run, saved_variables).restore()
    wider = smaller | {"w": tf.Variable([1.0, 2.0, 3.0])}
    message = r"w has shape \[2\] in the checkpoint and \[3\] in the model"
    with refusal(message):
        manager_in(run, wider).restore()
    tf1.write(f"{run}/model.ckpt-6", {"w": weights})
    checkpoint_folder.write_state(run, ["model.ckpt-6"])
    manager = manager_in(run, saved_variables)
    with refusal("no global_step"):
        manager.latest_step()


def test_a_checkpoint_is_found_by_prefix_folder_and_state_file(tmp_path):
    path = str(tmp_path)
    released = f"{path}/bert_model.ckpt"
    trained = f"{path}/model.ckpt-5"
    find_prefix = checkpoint_folder.find_prefix
    assert find_prefix(path) is None
    assert find_prefix(released) is None
    tf1.write(released, {"a": np.float32(1)})
    tf1.write(f"{path}/input.ckpt-5-0", {"a": np.float32(1)})
    assert find_prefix(released) == released
    assert find_prefix(path) == released
    tf1.write(trained, {"a": np.float32(2)})
    with refusal(r"bert_model\.ckpt, model\.ckpt-5"):
        find_prefix(path)
    checkpoint_folder.write_state(path, ["bert_model.ckpt", "model.ckpt-5"])
    assert find_prefix(path) == trained
    assert tf.train.latest_checkpoint(path) == trained


def test_all_checkpoints_can_go_and_other_files_stay(tmp_path, monkeypatch):
    saved_variables = {"global_step": tf.Variable(0, dtype=tf.int64)}
    manager = manager_in(tmp_path, saved_variables)
    checkpoint_folder.remove_all(str(tmp_path))  # nothing there
    manager.save(1, checkpoint_of(position=0))
    manager.save(2)
    unfinished = tmp_path / "model.ckpt-3.writing"
    unfinished.mkdir()
    (unfinished / "part.index").write_text("")
    (tmp_path / "eval_results.txt").write_text("")
    deleted = []
    delete = checkpoint_folder._delete

    def delete_and_record(path):
        deleted.append(path)
        return delete(path)

    monkeypatch.setattr(checkpoint_folder, "_delete", delete_and_record)
    checkpoint_folder.remove_all(str(tmp_path))
    # A kill leaves no list of files that are gone.
    assert deleted[0] == str(tmp_path / "checkpoint")
    assert os.listdir(tmp_path) == ["eval_results.txt"]
    assert manager.latest is None
