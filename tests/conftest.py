"""Skips the tests that need what is not there: real data in `shared`, optional packages, programs.

Toy models are traced and optimised hundreds of times, so a test process saves what costs time there
and changes values by rounding at most: see `save_time`. AS_SHIPPED=1 runs the tests with the
settings that users have.

A marker says what a test needs; an environment variable that is 1 says that all of that kind must
be there, so that a test without it runs, and fails. Tests of one module that lack the same are
skipped as one, with the reason and the command that mends it. Ctrl-C reaches every test, also in a
run that a shell has started in the background. Between two files a process lets go of models and of
the memory that its heap keeps.
"""

import collections
import ctypes
import gc
import os
import signal
import sys

import pytest

from tests import processor_time, shared

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the real Hugging Face Hub
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)  # with it, scripts print what TensorFlow has to say
# Toy products gain nothing from a second thread, and each core has a test process.
if not shared.AS_SHIPPED:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

NEEDS = {
    "needs_shared": ("REQUIRE_SHARED", shared.absent_of_shared),
    "needs_extra": ("REQUIRE_EXTRAS", shared.absent_extras),
    "needs_program": ("REQUIRE_PROGRAMS", shared.absent_programs),
}

# The files and folders of `pytest -m core`: what the original does, without exports, other runtimes
# and experiments.
CORE = (
    "cli",
    "checkpoints/test_names.py",
    "checkpoints/test_tf1.py",
    "checkpoints/test_manager.py",
    "compat",
    "data",
    "io",
    "metrics",
    "modeling/test_bert.py",
    "modeling/test_layers.py",
    "modeling/test_attention.py",
    "modeling/test_pretrainer.py",
    "modeling/test_task_models.py",
    "optimization/test_adam.py",
    "optimization/test_schedules.py",
    "options",
    "tasks/classification/test_glue.py",
    "tasks/squad/test_answers.py",
    "tasks/squad/test_examples.py",
    "tasks/squad/test_windows.py",
    "test_config.py",
    "test_docs.py",
    "test_golden.py",
    "test_imports.py",
    "test_original_commands.py",
    "test_original_flags.py",
    "test_scripts.py",
    "test_tokenization.py",
    "training/test_step.py",
)


def pytest_addoption(parser: pytest.Parser):
    processor_time.add_options(parser)


def pytest_configure(config: pytest.Config):
    processor_time.register(config)


def is_core(item: pytest.Item) -> bool:
    path = item.path.relative_to(shared.ROOT / "tests")
    return any(path.is_relative_to(name) for name in CORE) and not item.get_closest_marker("long")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_itemcollected(item: pytest.Item):
    if is_core(item):
        item.add_marker("core")


def absences(item: pytest.Item) -> tuple[str, ...]:
    """What an item needs and has not, as far as it may be skipped for that."""
    return tuple(
        absence
        for name, (variable, find_absent) in NEEDS.items()
        if os.environ.get(variable) != "1"
        for marker in item.iter_markers(name)
        for absence in find_absent(*marker.args)
    )


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    alike = collections.defaultdict(list)
    for item in items:
        if reasons := absences(item):
            alike[item.path, reasons].append(item)
    surplus = set()
    for (_, reasons), (first, *others) in alike.items():
        count = "1 test needs" if not others else f"{1 + len(others)} tests need"
        first.add_marker(pytest.mark.skip(f"{count} {' and '.join(dict.fromkeys(reasons))}"))
        surplus.update(others)
    config.hook.pytest_deselected(items=list(surplus))
    # Each worker of pytest-xdist begins with a half of this list. The slow files, which train and
    # export, come late in the alphabet; begun last, one of them would run alone for minutes.
    kept = [item for item in items if item not in surplus]
    items[:] = sorted(kept, key=lambda item: item.path, reverse=True)


def pytest_collection_finish():
    if "tensorflow" in sys.modules and not shared.AS_SHIPPED:
        save_time()


def save_time():
    """Saves a quarter of the time that a toy model takes, once the modules are imported.

    - Python looks for cycles among new objects, less often, and not among the million objects of
      the imported modules.
    - TensorFlow's graph optimizer, Grappler, is off; scripts that run as processes, and
      `with_grappler`, have it.
    - Operations of a graph do not note the Python stack that made them, which error messages of
      TensorFlow would show.
    """
    import tensorflow as tf
    from tensorflow.python.util import tf_stack

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: stack


@pytest.fixture
def with_grappler():
    """For tests that compare with recordings: the graph optimizer of TensorFlow is on, as users
    have it.
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not shared.AS_SHIPPED})


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """The models of one file of tests are freed before the next, and their memory is returned."""
    if nextitem and nextitem.path != item.path and "tensorflow" in sys.modules:
        from official_bert.training import memory

        memory.forget_models()
        if sys.platform == "linux":
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """The tokenizer of the toy vocabulary."""
    from official_bert.tokenization import FullTokenizer
    from tests import toy

    return FullTokenizer(toy.write_vocabulary(tmp_path_factory.mktemp("toy")))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of the toy model."""
    from tests import toy

    return toy.make_bert_base_dir(tmp_path_factory.mktemp("toy") / "base")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_arrives():
    """A shell starts background jobs, such as a whole test run, with the signal ignored; their
    children inherit it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
