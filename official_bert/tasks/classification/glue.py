"""The tasks of GLUE and XNLI: their files, labels, metrics and submission files."""

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from absl import logging

from official_bert.data.tables import Row, read_tsv
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.tasks.base import ORIGINAL_BUFFER_SIZE
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor, Layout, checked_label, read_layout

_HIGHEST_SCORE = 5.0  # of STS-B
_LABEL_HEADERS = ("label", "gold_label")
_AX_FILES = ("AX.tsv", "diagnostic.tsv", "AX/AX.tsv", "diagnostic/diagnostic.tsv")


class GlueProcessor(DataProcessor):
    """A GLUE task.

    Attributes:
            name: GLUE's name of the task.
            labels: in the order of the model's outputs; None in regression.
            train: layout of the training file.
            dev: layouts of the files for evaluation, by the suffix of their result files.
            test: layouts of the files for prediction, by the same suffix; their first column is GLUE's index.
            submissions: names of GLUE's submission files, by the same suffix.
            skip_short_rows: whether the labelled files are known to contain rows that lack columns.
    """

    name: ClassVar[str]
    labels: ClassVar[tuple[str, ...] | None] = ("0", "1")
    train: ClassVar[Layout]
    dev: ClassVar[dict[str, Layout]]
    test: ClassVar[dict[str, Layout]]
    submissions: ClassVar[dict[str, str]]
    skip_short_rows = False

    @property
    def needs_pairs(self) -> bool:
        """Every task of GLUE has either single texts or pairs."""
        return self.has_pairs

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        return read_layout(data_dir, self.train, self.labels, self.skip_short_rows)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return read_layout(data_dir, self.dev_layouts(data_dir)[""], self.labels, self.skip_short_rows)

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return read_layout(data_dir, self.test_layouts(data_dir)[""], self.labels)

    def get_labels(self) -> list[str] | None:
        return None if self.labels is None else list(self.labels)

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        return {
            suffix: read_layout(data_dir, layout, self.labels, self.skip_short_rows)
            for suffix, layout in _present(data_dir, self.dev_layouts(data_dir)).items()
        }

    def test_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        return {
            suffix: read_layout(data_dir, layout, self.labels)
            for suffix, layout in _present(data_dir, self.test_layouts(data_dir)).items()
        }

    def dev_layouts(self, data_dir: str) -> dict[str, Layout]:
        """Returns the attribute `dev`; AX derives the layouts from the files in the folder."""
        return self.dev

    def test_layouts(self, data_dir: str) -> dict[str, Layout]:
        """Returns the attribute `test`; AX derives the layouts from the files in the folder."""
        return self.test

    def write_submission(self, folder: str, data_dir: str, predictions: np.ndarray, suffix: str = "") -> str:
        """Writes the predictions of a test set in the format of GLUE's site and returns the path of the file.

        `predictions` are label ids, int[n], or scores, float[n], in the order of the test file.
        """
        ids = [row.field(0, "the index") for row in self.test_layouts(data_dir)[suffix].rows(data_dir)]
        files.make_folder(folder)
        path = os.path.join(folder, self.submissions[suffix])
        with writing.replacing(path) as file:
            file.write("index\tprediction\n")
            for number, answer in zip(ids, self._answers(predictions), strict=True):
                file.write(f"{number}\t{answer}\n")
        return path

    def _answers(self, predictions: np.ndarray) -> list[str]:
        if self.labels is None:
            return [f"{score:.6g}" for score in np.clip(predictions, 0.0, _HIGHEST_SCORE)]
        return [self.labels[number] for number in predictions]


def _present(data_dir: str, layouts: dict[str, Layout]) -> dict[str, Layout]:
    """Returns the first layout, whose file must exist, and those other layouts whose file exists."""
    present = {}
    for suffix, layout in layouts.items():
        if suffix and not files.exists(os.path.join(data_dir, layout.file)):
            logging.info("%s: has no %s, which is left out", data_dir, layout.file)
        else:
            present[suffix] = layout
    return present


class ColaProcessor(GlueProcessor):
    """CoLA: is a sentence acceptable English?"""

    name = "CoLA"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    has_pairs = False
    metrics, main_metric = ("accuracy", "matthews"), "matthews"
    train = Layout("train.tsv", "train", text_a=3, label=1, has_header=False)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=3, label=1, has_header=False)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=1)}
    submissions: ClassVar = {"": "CoLA.tsv"}


class Sst2Processor(GlueProcessor):
    """SST-2: is a phrase of a film review positive?"""

    name = "SST-2"
    has_pairs = False
    train = Layout("train.tsv", "train", text_a=0, label=1)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=0, label=1)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=1)}
    submissions: ClassVar = {"": "SST-2.tsv"}


class MrpcProcessor(GlueProcessor):
    """MRPC: do two sentences have the same meaning?"""

    name = "MRPC"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    metrics, main_metric = ("accuracy", "f1"), "f1"
    train = Layout("train.tsv", "train", text_a=3, text_b=4, label=0)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=3, text_b=4, label=0)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=3, text_b=4)}
    submissions: ClassVar = {"": "MRPC.tsv"}


class StsbProcessor(GlueProcessor):
    """STS-B: how similar in meaning are two sentences, from 0 to 5?"""

    name = "STS-B"
    metrics, main_metric = ("pearson", "spearman"), "spearman"
    is_regression = True
    labels = None
    train = Layout("train.tsv", "train", text_a=7, text_b=8, label=9)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=7, text_b=8, label=9)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=7, text_b=8)}
    submissions: ClassVar = {"": "STS-B.tsv"}


class QqpProcessor(GlueProcessor):
    """QQP: do two questions ask the same?"""

    name = "QQP"
    metrics, main_metric = ("accuracy", "f1"), "f1"
    train = Layout("train.tsv", "train", text_a=3, text_b=4, label=5)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=3, text_b=4, label=5)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=1, text_b=2)}
    submissions: ClassVar = {"": "QQP.tsv"}
    skip_short_rows = True


class MnliProcessor(GlueProcessor):
    """MNLI: does a sentence follow from another? The suffix "_mm" marks the sets from genres absent in training."""

    name = "MNLI"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    labels = ("contradiction", "entailment", "neutral")
    train = Layout("train.tsv", "train", text_a=8, text_b=9, label=-1, id_column=0)
    dev: ClassVar = {
        "": Layout("dev_matched.tsv", "dev_matched", text_a=8, text_b=9, label=-1, id_column=0),
        "_mm": Layout("dev_mismatched.tsv", "dev_mismatched", text_a=8, text_b=9, label=-1, id_column=0),
    }
    test: ClassVar = {
        "": Layout("test_matched.tsv", "test", text_a=8, text_b=9, id_column=0),
        "_mm": Layout("test_mismatched.tsv", "test_mismatched", text_a=8, text_b=9, id_column=0),
    }
    submissions: ClassVar = {"": "MNLI-m.tsv", "_mm": "MNLI-mm.tsv"}


class _SentencePairProcessor(GlueProcessor):
    """The file layout that several tasks share."""

    train = Layout("train.tsv", "train", text_a=1, text_b=2, label=3)
    dev: ClassVar = {"": Layout("dev.tsv", "dev", text_a=1, text_b=2, label=3)}
    test: ClassVar = {"": Layout("test.tsv", "test", text_a=1, text_b=2)}


class QnliProcessor(_SentencePairProcessor):
    """QNLI: does a sentence answer a question?"""

    name = "QNLI"
    labels = ("entailment", "not_entailment")
    submissions: ClassVar = {"": "QNLI.tsv"}


class RteProcessor(_SentencePairProcessor):
    """RTE: does a sentence follow from another?"""

    name = "RTE"
    labels = ("entailment", "not_entailment")
    submissions: ClassVar = {"": "RTE.tsv"}


class WnliProcessor(_SentencePairProcessor):
    """WNLI: does a sentence follow from the sentence whose pronoun it replaces?"""

    name = "WNLI"
    submissions: ClassVar = {"": "WNLI.tsv"}


class AxProcessor(GlueProcessor):
    """AX, GLUE's diagnostic set: a model trained on MNLI predicts it, and is evaluated if the file has labels."""

    name = "AX"
    metrics, main_metric = ("accuracy", "matthews"), "matthews"
    labels = MnliProcessor.labels
    submissions: ClassVar = {"": "AX.tsv"}

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        raise InputError("AX has no training file; train on MNLI, and predict AX with the model that comes out")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        sets = self.dev_sets(data_dir)
        if not sets:
            file = self.test_layouts(data_dir)[""].file
            raise InputError(
                f"{os.path.join(data_dir, file)}: has no column 'label' to evaluate with; predict it instead"
            )
        return sets[""]

    def dev_layouts(self, data_dir: str) -> dict[str, Layout]:
        layout = self.test_layouts(data_dir)[""]
        header = next(read_tsv(os.path.join(data_dir, layout.file)), None)
        names = [name.lower() for name in header.fields] if header else []
        label = next((names.index(name) for name in _LABEL_HEADERS if name in names), None)
        if label is None:
            logging.warning("%s: has no column 'label' to evaluate with", os.path.join(data_dir, layout.file))
            return {}
        return {"": layout._replace(label=label)}

    def test_layouts(self, data_dir: str) -> dict[str, Layout]:
        for file in _AX_FILES:
            if files.exists(os.path.join(data_dir, file)):
                return {"": Layout(file, "test", text_a=1, text_b=2, id_column=0)}
        raise InputError(f"{data_dir}: has none of {', '.join(_AX_FILES)}; check --data_dir")


# Keyed by GLUE's own names.
PROCESSORS = {
    processor.name: processor
    for processor in (
        ColaProcessor,
        Sst2Processor,
        MrpcProcessor,
        StsbProcessor,
        QqpProcessor,
        MnliProcessor,
        QnliProcessor,
        RteProcessor,
        WnliProcessor,
        AxProcessor,
    )
}


_LABELS = ("contradiction", "entailment", "neutral")
_OTHER_NAMES = {"contradictory": "contradiction"}  # label in the training files -> label
_LANGUAGE, _LABEL, _TEXT_A, _TEXT_B = 0, 1, 6, 7


def plain_name(task_name: str) -> str:
    """Removes what does not count in the name of a task: case, hyphens and underscores."""
    return task_name.lower().replace("-", "").replace("_", "")


def xnli_language(task_name: str) -> str | None:
    """Returns the language of a name of XNLI, such as XNLI-de, zh if it names none; None for another task."""
    found = re.fullmatch("xnli([a-z]{2})?", plain_name(task_name))
    return found and (found[1] or "zh")


class XnliProcessor(DataProcessor):
    """Trains on the machine-translated training file of a language and evaluates on the rows in that language."""

    needs_pairs = True
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE

    def __init__(self, language: str = "zh"):
        self.language = language

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Makes the processor of the language behind the name of the task; that of a subclass names none."""
        language = xnli_language(settings.get("task_name") or "")
        return cls(language) if language else cls()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        file = os.path.join("multinli", f"multinli.train.{self.language}.tsv")
        layout = Layout(file, "train", text_a=0, text_b=1, label=2)
        return read_layout(data_dir, layout, _LABELS, other_names=_OTHER_NAMES)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return [
            InputExample(
                f"dev-{row.line - 1}", *_texts(row), checked_label(row, row.field(_LABEL, "the label"), _LABELS)
            )
            for row in self._rows(data_dir, "xnli.dev.tsv")
        ]

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Reads the rows of `xnli.test.tsv`; the original had no test set."""
        return [
            InputExample(f"test-{row.line - 1}", *_texts(row), _LABELS[0])
            for row in self._rows(data_dir, "xnli.test.tsv")
        ]

    def get_labels(self) -> list[str]:
        return list(_LABELS)

    def _rows(self, data_dir: str, file: str) -> list[Row]:
        """Returns the rows in the language from a file that contains all languages."""
        path = os.path.join(data_dir, file)
        rows = list(read_tsv(path))[1:]
        in_language = [row for row in rows if row.fields[_LANGUAGE] == self.language]
        if not in_language:
            languages = sorted({row.fields[_LANGUAGE] for row in rows})
            raise InputError(
                f"{path}: has no row in the language {self.language!r}, but in {', '.join(languages[:20]) or 'none'}; "
                "write --task_name=XNLI-en, for instance"
            )
        return in_language


def _texts(row: Row) -> tuple[str, str]:
    return row.field(_TEXT_A, "the premise"), row.field(_TEXT_B, "the hypothesis")
