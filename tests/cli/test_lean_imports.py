"""The imports of TensorFlow and Keras in a command: what they leave out, and that nothing else
lacks it.
"""

import gc
import sys

import pytest

from official_bert.cli import commands, flags, lean_imports
from official_bert.cli.lean_imports import install, without_unused_packages
from tests.scripts import run_interpreter

_IN_A_COMMAND = """
import gc, importlib.util, sys
from official_bert.cli import lean_imports
lean_imports.install()
names = list(lean_imports.UNUSED_PACKAGES)
installed = [name for name in names if importlib.util.find_spec(name)]
import tensorflow as tf
import keras
print([name for name in names if name in sys.modules])
for name in installed:
    assert importlib.import_module(name).__name__ == name
print(tf.reduce_sum(keras.ops.ones([2, 3])).numpy())
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_tensorflow_and_keras_do_without_the_packages():
    lines = run_interpreter("-c", _IN_A_COMMAND).stdout.splitlines()
    assert lines == ["[]", "6.0", "True True"]


@pytest.fixture
def package(monkeypatch, tmp_path) -> str:
    """The name of a package that a lean import hides."""
    (tmp_path / "plots.py").write_text("IS_HERE = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean_imports, "UNUSED_PACKAGES", {"plots": "pictures"})
    monkeypatch.delitem(sys.modules, "plots", raising=False)
    return "plots"


def test_a_package_is_missing_only_inside(package):
    with without_unused_packages():
        with pytest.raises(ModuleNotFoundError):
            __import__(package)
        with without_unused_packages():  # the import of Keras inside that of TensorFlow
            pass
        with pytest.raises(ModuleNotFoundError):
            __import__(package)
    assert __import__(package).IS_HERE


def test_a_package_that_is_loaded_stays(package):
    module = __import__(package)
    with without_unused_packages():
        assert __import__(package) is module
    assert sys.modules[package] is module


def test_an_import_that_fails_leaves_no_trace(package):
    def fail():
        with without_unused_packages():
            assert not gc.isenabled()
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()
    assert package not in sys.modules


def test_the_collector_stays_off_if_it_was_off():
    gc.disable()
    try:
        with without_unused_packages():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_command_installs_the_finder_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(flags, "run", lambda *arguments, **settings: None)
    num_finders = len(sys.meta_path)
    commands.run_command("predict")
    commands.run_command("predict")
    assert len(sys.meta_path) == num_finders + 1
    install()
    assert len(sys.meta_path) == num_finders + 1
