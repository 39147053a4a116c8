"""The versions of a SavedModel in a watched folder are numbered and complete, also after kills
and races.
"""

import concurrent.futures
import errno
import functools
import pathlib
import signal
import threading
import time

import pytest
import tensorflow as tf

from official_bert.io.errors import InputError
from official_bert.serving import export
from tests.scripts import run_python

FILES = {
    "assets/vocab.txt": b"[PAD]\n",
    "assets.extra/labels.txt": b"0\n1\n",
}
COMPLETE = {
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
    *FILES,
}


def tiny(weight: float = 2.0) -> tuple[dict, export.ExportedModel]:
    """Signatures of a model that multiplies, and the model."""
    used = tf.Variable(weight)
    unused = tf.Variable([1.0, 1.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serving_default(x):
        return {"y": x * used}

    signatures = {"serving_default": serving_default}
    return signatures, export.ExportedModel(signatures, {"used": used, "unused": unused})


def export_tiny(folder: pathlib.Path, weight: float = 2.0, extra_files=FILES) -> str:
    signatures, model = tiny(weight)
    write = functools.partial(export.save, model, signatures)
    return export.write_version(str(folder), write, extra_files)


def complete(version: pathlib.Path) -> bool:
    return all((version / name).exists() for name in COMPLETE)


def answer(version) -> float:
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    return serve(x=tf.constant([1.0]))["y"].numpy()[0]


def test_versions_are_numbered_behind_the_highest(tmp_path):
    folder = tmp_path / "new" / "exports"
    assert export_tiny(folder, 2.0) == str(folder / "1")
    (folder / "1").rename(folder / "41")
    (folder / "notes").mkdir()
    (folder / "100.partial").mkdir()
    (folder / ".version-1.tmp-4194305").mkdir()  # of a process that was killed: it goes
    assert export_tiny(folder, 3.0) == str(folder / "42")
    assert export.list_versions(str(folder)) == [41, 42]
    assert answer(folder / "41") == 2.0
    assert answer(folder / "42") == 3.0
    assert (folder / "42" / "assets" / "vocab.txt").read_bytes() == b"[PAD]\n"
    assert {path.name for path in folder.iterdir()} == {"41", "42", "notes", "100.partial"}


def test_only_weights_that_are_read_are_held(tmp_path):
    version = export_tiny(tmp_path)
    names = tf.train.load_checkpoint(f"{version}/variables/variables").get_variable_to_shape_map()
    assert set(names) == {
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "model_weights/used/.ATTRIBUTES/VARIABLE_VALUE",
    }


def test_a_watcher_sees_complete_versions_only(tmp_path):
    seen = set()
    halves = []
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            for version in tmp_path.iterdir():
                if version.name.isdigit():
                    seen.add(version.name)
                    if not complete(version):
                        halves.append(version.name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(1, 4):
            export_tiny(tmp_path)
            while str(number) not in seen and watcher.is_alive():
                time.sleep(0.01)
    finally:
        stop.set()
        watcher.join()
    assert seen == {"1", "2", "3"}
    assert halves == []


def test_exports_at_the_same_time_get_different_numbers(tmp_path, monkeypatch):
    models = [tiny(weight) for weight in (2.0, 3.0, 4.0, 5.0)]
    both_have_looked = threading.Barrier(len(models))
    read = export.list_versions
    first_look = set()

    def list_versions(export_dir):
        versions = read(export_dir)
        thread = threading.get_ident()
        if thread not in first_look:
            first_look.add(thread)
            both_have_looked.wait(timeout=60)
        return versions

    monkeypatch.setattr(export, "list_versions", list_versions)

    def write_version(write):
        return export.write_version(str(tmp_path), write, FILES)

    writers = [functools.partial(export.save, model, signatures) for signatures, model in models]
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        versions = list(pool.map(write_version, writers))
    assert sorted(versions) == [str(tmp_path / name) for name in "1234"]
    assert sorted(answer(version) for version in versions) == [2.0, 3.0, 4.0, 5.0]
    assert all(complete(pathlib.Path(version)) for version in versions)


class Failing(dict):
    """Files of which the second cannot be had."""

    def __init__(self, fail):
        super().__init__(FILES)
        self._fail = fail

    def items(self):
        first, *_ = super().items()
        yield first
        self._fail()


def test_a_failed_export_leaves_nothing(tmp_path):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    message = rf"--export_dir={tmp_path}: cannot be written \(No space left"
    with pytest.raises(InputError, match=message):
        export_tiny(tmp_path, extra_files=Failing(full))

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_tiny(tmp_path, extra_files=Failing(interrupted))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: no folder can be made there"):
        export_tiny(tmp_path / "file")


def test_a_killed_export_leaves_no_version_and_hinders_nobody(tmp_path):
    code = (
        "import os, pathlib, signal, sys\nfrom tests.serving import test_export\nkill = lambda: "
        "os.kill(os.getpid(), signal.SIGKILL)\n"
        f"test_export.export_tiny(pathlib.Path({str(tmp_path)!r}), "
        "extra_files=test_export.Failing(kill))\n"
    )
    run_python("-c", code, status=-signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".version-")
    assert export_tiny(tmp_path) == str(tmp_path / "1")
    assert answer(tmp_path / "1") == 2.0
    assert not left.exists()
