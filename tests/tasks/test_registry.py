"""Tests finding tasks by name: those of the tables, and those of modules outside the package."""

import sys

import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.glue import XnliProcessor
from official_bert.tasks.classification.text import TextProcessor
from official_bert.tasks.registry import canonical_name, find, is_same, load, make_task, task_family

# One in the package's own way, and one as people have written them for the original.
MODULE = """
import os

from run_classifier import DataProcessor, InputExample

from official_bert import tokenization
from official_bert.tasks.classification.glue import RteProcessor
from official_bert.tasks.base import Task
from official_bert.tasks.choice.task import ChoiceTask

class Mine(RteProcessor):
    def get_labels(self):
        return ["yes", "no"]

class Unfinished(Task):
    def build_model(self, config, use_one_hot_embeddings):
        pass

class Own(Task):
    build_model = encode = metrics = objective = outputs = read = serving_outputs = write_predictions = None

class Theirs(DataProcessor):
    def get_train_examples(self, data_dir):
        return self._create_examples(self._read_tsv(os.path.join(data_dir, "train.tsv")), "train")

    def _create_examples(self, lines, set_type):
        examples = []
        for (i, line) in enumerate(lines):
            text_a = tokenization.convert_to_unicode(line[0])
            examples.append(InputExample(guid="%s-%s" % (set_type, i), text_a=text_a, text_b=None, label=line[1]))
        return examples
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


def processor_of(task_name):
    return (
        find(task_name, "run_classifier").make({"task_name": task_name, "labels": None}).processor
    )


@pytest.mark.parametrize(
    ("task_name", "kind", "language"),
    [
        ("CoLA", glue.ColaProcessor, None),
        ("STS_B", glue.StsbProcessor, None),
        ("X-NLI", XnliProcessor, "zh"),
        ("xnli_de", XnliProcessor, "de"),
        ("TSV", TextProcessor, None),
        ("text", TextProcessor, None),
    ],
)
def test_case_hyphens_and_underscores_do_not_count(task_name, kind, language):
    processor = processor_of(task_name)
    assert type(processor) is kind
    assert getattr(processor, "language", None) == language


@pytest.mark.parametrize(
    ("task_name", "family"),
    [
        ("swag", "choice"),
        ("CODAH", "choice"),
        ("ner", "tagging"),
        ("squad", "squad"),
        ("pretraining", "pretraining"),
    ],
)
def test_every_family_is_there(task_name, family):
    assert type(make_task(task_name, {})).__name__ == f"{family.title()}Task"
    assert task_family(task_name) == family


def test_the_earlier_name_of_a_task_names_it_still():
    assert is_same("text", "TSV")
    assert not is_same("text", "CoLA")
    # Which earlier versions read, too.
    assert [canonical_name(name) for name in ("TSV", "Text")] == ["tsv", "text"]


def test_a_class_outside_the_package_goes_by_its_module(modules):
    assert processor_of("made_up_package.tasks:Mine").get_labels() == ["yes", "no"]
    assert task_family("made_up_package.tasks:Mine") == "classification"
    assert isinstance(
        find("made_up_package.tasks:ChoiceTask", "run_classifier").make({}), ChoiceTask
    )
    assert task_family("made_up_package.tasks:ChoiceTask") == "made_up_package.tasks:ChoiceTask"


def test_a_processor_written_for_the_original_works(modules, tmp_path):
    (tmp_path / "train.tsv").write_text('"un chat"\tyes\n')
    theirs = processor_of("made_up_package.tasks:Theirs")
    assert theirs.get_train_examples(str(tmp_path)) == [
        InputExample("train-0", '"un chat"', None, "yes")
    ]
    with pytest.raises(NotImplementedError):
        theirs.get_dev_examples(str(tmp_path))
    assert theirs._read_tsv(str(tmp_path / "train.tsv"), quotechar='"') == [["un chat", "yes"]]


@pytest.mark.parametrize(
    ("task_name", "sentence"),
    [
        ("quora", "Task not found: quora; give one of CoLA, .*, XNLI, text, .*or module:Class"),
        (
            "made_up_package.absent:Mine",
            "no module 'made_up_package.absent'; put its folder on PYTHONPATH",
        ),
        ("made_up_absent.tasks:Mine", "there is no module 'made_up_absent.tasks'"),
        (":Mine", "there is no module ''"),
        ("made_up_package.tasks:Yours", "tasks.py defines no class 'Yours'"),
        ("made_up_package.tasks:__name__", "tasks.py defines no class '__name__'"),
        ("sys:Mine", "built-in defines no class 'Mine'"),
        ("swag", "Task not found: swag"),
        (
            "collections:OrderedDict",
            "is neither a DataProcessor nor a Task of official_bert/tasks/base.py",
        ),
        (
            "made_up_package.tasks:Unfinished",
            "lacks encode, metrics, objective, outputs, read, serving_outputs",
        ),
    ],
)
def test_what_names_no_task_is_said(modules, task_name, sentence):
    with pytest.raises(InputError, match=sentence):
        processor_of(task_name)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("text_a_column", "1"),
        ("has_header", False),
        ("label_separator", ";"),
        ("quoting", "csv"),
        ("label_type", "multi"),
        ("class_weights", ["1"]),
        ("long_texts", "windows"),
        ("abstain_below", 0.5),
    ],
)
def test_flags_that_a_class_does_not_read_are_refused(modules, flag, value):
    own = find("made_up_package.tasks:Own", "run_classifier")
    assert (
        own.make(
            {"task_name": own.name, "label_type": "single", "quoting": "none", flag: None}
        ).settings()
        == {}
    )
    with pytest.raises(
        InputError, match=f"^--{flag}: .*made_up_package.tasks:Own.*; leave it out$"
    ):
        own.make({"task_name": own.name, flag: value})


def test_what_a_module_lacks_is_no_fault_of_the_name(modules):
    with pytest.raises(
        InputError, match=r"ModuleNotFoundError in .*made_up_broken.py, line 1: .*nowhere_at_all"
    ):
        load("made_up_broken:Mine")
