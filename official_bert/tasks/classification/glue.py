"""The tasks of GLUE and XNLI: their files, labels, metrics and submission files."""

import os
import re
from typing import ClassVar, Self

import numpy as np
from absl import logging

from official_bert.data.tables import Row, read_tsv
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.tasks.base import ORIGINAL_BUFFER_SIZE
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import (
    DataProcessor,
    Layout,
    checked_label,
    read_layout,
)
from official_bert.tasks.classification.settings import ClassificationSettings

_HIGHEST_SCORE = 5.0  # of STS-B
_LABEL_HEADERS = ("label", "gold_label")
_AX_FILES = ("AX.tsv", "diagnostic.tsv", "AX/AX.tsv", "diagnostic/diagnostic.tsv")


class GlueProcessor(DataProcessor):
    """A GLUE task, with GLUE's name.

    Attributes:
        labels: in the order of the model's outputs; None in regression.
        labelled: layout of the files for training and evaluation.
        unlabelled: layout of the files for prediction.
        has_index: whether their first column is GLUE's index, as the files for GLUE's site need it.
        dev_files, test_files: the files for evaluation and for prediction, by the suffix of their
            result files.
        submissions: GLUE's submission files, by the same suffix, if they are not named like the
            task.
        skip_short_rows: whether the labelled files are known to contain rows that lack columns.
    """

    name: ClassVar[str]
    labels: ClassVar[tuple[str, ...] | None] = ("0", "1")
    labelled: ClassVar[Layout] = Layout(text_a=1, text_b=2, label=3)
    unlabelled: ClassVar[Layout] = Layout(text_a=1, text_b=2)
    dev_files: ClassVar[dict[str, str]] = {"": "dev.tsv"}
    test_files: ClassVar[dict[str, str]] = {"": "test.tsv"}
    submissions: ClassVar[dict[str, str]] = {}
    has_index = True
    skip_short_rows = False

    @property
    def has_pairs(self) -> bool:
        return self.unlabelled.text_b is not None

    needs_pairs = has_pairs

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        return self._read_labelled(data_dir, "train.tsv")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self._read_labelled(data_dir, self.dev_files[""])

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return self._read_unlabelled(data_dir, "")

    def get_labels(self) -> list[str] | None:
        return None if self.labels is None else list(self.labels)

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        present = _present(data_dir, self.dev_files)
        return {suffix: self._read_labelled(data_dir, file) for suffix, file in present.items()}

    def test_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        return {
            suffix: self._read_unlabelled(data_dir, suffix)
            for suffix in _present(data_dir, self.test_files)
        }

    def _read_labelled(self, data_dir: str, file: str) -> list[InputExample]:
        path, guid = os.path.join(data_dir, file), file.removesuffix(".tsv")
        return read_layout(path, guid, self.labelled, self.labels, self.skip_short_rows)

    def _read_unlabelled(self, data_dir: str, suffix: str) -> list[InputExample]:
        guid = self.test_files[suffix].removesuffix(".tsv") if suffix else "test"
        path = self._test_path(data_dir, suffix)
        examples = read_layout(path, guid, self.unlabelled, self.labels)
        # In the layout of a labelled file the column may have the labels or the ids of the texts.
        if all(example.text_a.isdecimal() for example in examples):
            raise InputError(
                f"{path}: each text, in column {self.unlabelled.text_a + 1}, is a number, the "
                f"first {examples[0].text_a}; give the columns of {self.name}'s test set, which "
                "are not those of its dev set"
            )
        return examples

    def _test_path(self, data_dir: str, suffix: str) -> str:
        return os.path.join(data_dir, self.test_files[suffix])

    def write_submission(
        self, folder: str, data_dir: str, predictions: np.ndarray, suffix: str = ""
    ) -> str:
        """Writes the predictions of a test set in the format of GLUE's site and returns the path of
        the file.

        `predictions` are label ids, int[n], or scores, float[n], in the order of the test file.
        """
        rows = self.unlabelled.rows(self._test_path(data_dir, suffix))
        ids = [row.field(0, "the index") for row in rows]
        files.make_folder(folder)
        path = os.path.join(folder, self.submissions.get(suffix, f"{self.name}.tsv"))
        with writing.replacing(path) as file:
            file.write("index\tprediction\n")
            for number, answer in zip(ids, self._answers(predictions), strict=True):
                file.write(f"{number}\t{answer}\n")
        return path

    def _answers(self, predictions: np.ndarray) -> list[str]:
        if self.labels is None:
            return [f"{score:.6g}" for score in np.clip(predictions, 0.0, _HIGHEST_SCORE)]
        return [self.labels[number] for number in predictions]


def _present(data_dir: str, names: dict[str, str]) -> dict[str, str]:
    """Returns the first file, which must exist, and those other files that exist."""
    present = {}
    for suffix, name in names.items():
        if suffix and not files.exists(os.path.join(data_dir, name)):
            logging.info("%s: has no %s, which is left out", data_dir, name)
        else:
            present[suffix] = name
    return present


class ColaProcessor(GlueProcessor):
    """CoLA: is a sentence acceptable English?"""

    name = "CoLA"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    metrics, main_metric = ("accuracy", "matthews"), "matthews"
    labelled = Layout(text_a=3, label=1, has_header=False)
    unlabelled = Layout(text_a=1)


class Sst2Processor(GlueProcessor):
    """SST-2: is a phrase of a film review positive?"""

    name = "SST-2"
    labelled = Layout(text_a=0, label=1)
    unlabelled = Layout(text_a=1)


class MrpcProcessor(GlueProcessor):
    """MRPC: do two sentences have the same meaning?"""

    name = "MRPC"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    metrics, main_metric = ("accuracy", "f1"), "f1"
    labelled = Layout(text_a=3, text_b=4, label=0)
    unlabelled = Layout(text_a=3, text_b=4)


class StsbProcessor(GlueProcessor):
    """STS-B: how similar in meaning are two sentences, from 0 to 5?"""

    name = "STS-B"
    metrics, main_metric = ("pearson", "spearman"), "spearman"
    is_regression = True
    labels = None
    labelled = Layout(text_a=7, text_b=8, label=9)
    unlabelled = Layout(text_a=7, text_b=8)


class QqpProcessor(GlueProcessor):
    """QQP: do two questions ask the same?"""

    name = "QQP"
    metrics, main_metric = ("accuracy", "f1"), "f1"
    labelled = Layout(text_a=3, text_b=4, label=5)
    skip_short_rows = True


class MnliProcessor(GlueProcessor):
    """MNLI: does a sentence follow from another? The suffix "_mm" marks the sets from genres
    absent in training.
    """

    name = "MNLI"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    labels = ("contradiction", "entailment", "neutral")
    labelled = Layout(text_a=8, text_b=9, label=-1, id_column=0)
    unlabelled = Layout(text_a=8, text_b=9, id_column=0)
    dev_files: ClassVar = {"": "dev_matched.tsv", "_mm": "dev_mismatched.tsv"}
    test_files: ClassVar = {"": "test_matched.tsv", "_mm": "test_mismatched.tsv"}
    submissions: ClassVar = {"": "MNLI-m.tsv", "_mm": "MNLI-mm.tsv"}


class QnliProcessor(GlueProcessor):
    """QNLI: does a sentence answer a question?"""

    name = "QNLI"
    labels = ("entailment", "not_entailment")


class RteProcessor(GlueProcessor):
    """RTE: does a sentence follow from another?"""

    name = "RTE"
    labels = ("entailment", "not_entailment")


class WnliProcessor(GlueProcessor):
    """WNLI: does a sentence follow from the sentence whose pronoun it replaces?"""

    name = "WNLI"


class AxProcessor(GlueProcessor):
    """AX, GLUE's diagnostic set: a model trained on MNLI predicts it, and is evaluated if the
    file has labels.
    """

    name = "AX"
    metrics, main_metric = ("accuracy", "matthews"), "matthews"
    labels = MnliProcessor.labels
    unlabelled = Layout(text_a=1, text_b=2, id_column=0)

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        raise InputError(
            "AX has no training file; train on MNLI, and predict AX with the model that comes out"
        )

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        sets = self.dev_sets(data_dir)
        if not sets:
            path = self._test_path(data_dir)
            raise InputError(f"{path}: has no column 'label' to evaluate with; predict it instead")
        return sets[""]

    def dev_sets(self, data_dir: str) -> dict[str, list[InputExample]]:
        path = self._test_path(data_dir)
        header = next(read_tsv(path), None)
        names = [name.lower() for name in header.fields] if header else []
        label = next((names.index(name) for name in _LABEL_HEADERS if name in names), None)
        if label is None:
            logging.warning("%s: has no column 'label' to evaluate with", path)
            return {}
        return {"": read_layout(path, "test", self.unlabelled._replace(label=label), self.labels)}

    def _test_path(self, data_dir: str, suffix: str = "") -> str:
        for file in _AX_FILES:
            if files.exists(path := os.path.join(data_dir, file)):
                return path
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


_OTHER_NAMES = {"contradictory": "contradiction"}  # label in the training files -> label
_LANGUAGE, _LABEL, _TEXT_A, _TEXT_B = 0, 1, 6, 7


def plain_name(task_name: str) -> str:
    """Removes what does not count in the name of a task: case, hyphens and underscores."""
    return task_name.lower().replace("-", "").replace("_", "")


def xnli_language(task_name: str) -> str | None:
    """Returns the language of a name of XNLI, such as XNLI-de, zh if it names none; None for
    another task.
    """
    found = re.fullmatch("xnli([a-z]{2})?", plain_name(task_name))
    return found and (found[1] or "zh")


class XnliProcessor(DataProcessor):
    """Trains on the machine-translated training file of a language and evaluates on the rows in
    that language.
    """

    needs_pairs = True
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    labels = MnliProcessor.labels

    def __init__(self, language: str = "zh"):
        self.language = language

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self:
        language = xnli_language(settings.task_name or "")
        return cls(language) if language else cls()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        path = os.path.join(data_dir, "multinli", f"multinli.train.{self.language}.tsv")
        return read_layout(
            path,
            "train",
            Layout(text_a=0, text_b=1, label=2),
            self.labels,
            other_names=_OTHER_NAMES,
        )

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        rows = self._rows(data_dir, "xnli.dev.tsv")
        labels = [checked_label(row, row.field(_LABEL, "the label"), self.labels) for row in rows]
        return [_example("dev", row, label) for row, label in zip(rows, labels, strict=True)]

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return [
            _example("test", row, self.labels[0]) for row in self._rows(data_dir, "xnli.test.tsv")
        ]

    def get_labels(self) -> list[str]:
        return list(self.labels)

    def _rows(self, data_dir: str, file: str) -> list[Row]:
        """Returns the rows in the language from a file that contains all languages."""
        path = os.path.join(data_dir, file)
        rows = list(read_tsv(path))[1:]
        in_language = [row for row in rows if row.fields[_LANGUAGE] == self.language]
        if not in_language:
            languages = sorted({row.fields[_LANGUAGE] for row in rows})
            raise InputError(
                f"{path}: has no row in the language {self.language!r}, but in "
                f"{', '.join(languages[:20]) or 'none'}; write --task_name=XNLI-en, for instance"
            )
        return in_language


def _example(set_name: str, row: Row, label: str) -> InputExample:
    text_a, text_b = row.field(_TEXT_A, "the premise"), row.field(_TEXT_B, "the hypothesis")
    return InputExample(f"{set_name}-{row.line - 1}", text_a, text_b, label)
