"""Tasks by name: those of the tables, and those of modules outside the package."""

import sys

import pytest

from official_bert.errors import InputError
from official_bert.options.classifier import ClassifierOptions
from official_bert.tasks import glue
from official_bert.tasks.registry import load, make_processor
from official_bert.tasks.swag import SwagTask
from official_bert.tasks.tsv import TsvProcessor
from official_bert.tasks.xnli import XnliProcessor

MODULE = """
from official_bert.tasks.glue import RteProcessor
from official_bert.tasks.swag import SwagTask

class Mine(RteProcessor):
    def get_labels(self):
        return ["yes", "no"]
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Names of modules that stand in a folder of PYTHONPATH."""
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "tasks.py").write_text(MODULE)
    (tmp_path / "made_up_broken.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("made_up")]:
        del sys.modules[name]


def named(task_name):
    return make_processor(
        ClassifierOptions(
            task_name=task_name,
            data_dir="",
            output_dir="",
            bert_config_file="",
            vocab_file="",
            text_a_column="t",
        )
    )


@pytest.mark.parametrize(
    ("task_name", "kind"),
    [
        ("CoLA", glue.ColaProcessor),
        ("sst2", glue.Sst2Processor),
        ("STS_B", glue.StsbProcessor),
        ("xnli", XnliProcessor),
        ("TSV", TsvProcessor),
    ],
)
def test_case_hyphens_and_underscores_do_not_count(task_name, kind):
    assert type(named(task_name)) is kind


def test_a_class_outside_the_package_goes_by_its_module(modules):
    assert named("made_up_package.tasks:Mine").get_labels() == ["yes", "no"]
    assert isinstance(load("made_up_package.tasks:SwagTask"), SwagTask)


@pytest.mark.parametrize(
    ("task_name", "sentence"),
    [
        ("quora", "Task not found: quora; it is one of CoLA, .*, xnli, tsv, or module:Class"),
        ("made_up_absent:Mine", "there is no module 'made_up_absent'; put its folder on PYTHONPATH"),
        ("made_up_package.absent:Mine", "there is no module 'made_up_package.absent'"),
        ("made_up_absent.tasks:Mine", "there is no module 'made_up_absent.tasks'"),
        (":Mine", "there is no module ''"),
        ("made_up_package.tasks:Yours", "tasks.py defines no 'Yours'"),
        ("made_up_package.tasks:", "tasks.py defines no ''"),
        ("made_up_package.tasks:SwagTask", "is no DataProcessor; run the task's own script"),
        ("collections:OrderedDict", "is neither a DataProcessor nor has it all that tasks/base.py asks"),
    ],
)
def test_what_names_no_task_is_said(modules, task_name, sentence):
    with pytest.raises(InputError, match=sentence):
        named(task_name)


def test_what_a_module_lacks_is_no_fault_of_the_name(modules):
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        load("made_up_broken:Mine")
