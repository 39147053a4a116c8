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
    check_label,
    read_layout,
)
from official_bert.tasks.classification.settings import ClassificationSettings

_HIGHEST_SCORE = 5.0  # Scores of STS-B are from 0 to 5.
_NLI_LABELS = ("contradiction", "entailment", "neutral")
# AX is distributed under several names, and some releases have labels.
_LABEL_HEADERS = ("label", "gold_label")
_AX_FILES = ("AX.tsv", "diagnostic.tsv", "AX/AX.tsv", "diagnostic/diagnostic.tsv")


class GlueProcessor(DataProcessor):
    """The processor of a GLUE task.

    Attributes:
        name: the name that GLUE gives the task.
        labels: the labels in the order of the model's outputs; None in regression.
        labelled: the layout of the files for training and evaluation.
        unlabelled: the layout of the files for prediction.
        has_index: whether the first column of a file for prediction is GLUE's index, which files
            for GLUE's site need.
        dev_files: the files for evaluation by the suffix of their result files.
        test_files: the files for prediction by the suffix of their result files.
        submissions: suffix -> GLUE's name of the submission file, if it is not the task's name.
        skip_short_rows: whether rows of labelled files that lack columns are skipped.
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
        """Whether an example has a second text."""
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
        return read_layout(
            os.path.join(data_dir, file),
            guid=file.removesuffix(".tsv"),
            layout=self.labelled,
            labels=self.labels,
            skip_short_rows=self.skip_short_rows,
        )

    def _read_unlabelled(self, data_dir: str, suffix: str) -> list[InputExample]:
        guid = self.test_files[suffix].removesuffix(".tsv") if suffix else "test"
        path = self._test_path(data_dir, suffix)
        examples = read_layout(path, guid, self.unlabelled, self.labels)
        # A file in the layout of a labelled file may have labels or ids in the column of the texts.
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
        """Write the predictions of a test set in the format of GLUE's site.

        Args:
            folder: the folder of the new file.
            data_dir: the folder of the data set, whose test file has the indices.
            predictions: label ids, int[n], or scores, float[n], in the order of the test file.
            suffix: the suffix of the test set.

        Returns:
            The path of the file.
        """
        rows = self.unlabelled.rows(self._test_path(data_dir, suffix))
        indices = [row.field(0, "the index") for row in rows]
        files.make_folder(folder)
        path = os.path.join(folder, self.submissions.get(suffix, f"{self.name}.tsv"))
        with writing.replacing(path) as file:
            file.write("index\tprediction\n")
            for index, answer in zip(indices, self._answers(predictions), strict=True):
                file.write(f"{index}\t{answer}\n")
        return path

    def _answers(self, predictions: np.ndarray) -> list[str]:
        if self.labels is None:
            scores = np.clip(predictions, 0.0, _HIGHEST_SCORE)
            return [f"{score:.6g}" for score in scores]
        return [self.labels[number] for number in predictions]


def _present(data_dir: str, names: dict[str, str]) -> dict[str, str]:
    """Returns the first file, which must exist, and the other files that exist."""
    present = {}
    for suffix, name in names.items():
        if suffix and not files.exists(os.path.join(data_dir, name)):
            logging.info("%s: has no %s; skipping it", data_dir, name)
        else:
            present[suffix] = name
    return present


class ColaProcessor(GlueProcessor):
    """CoLA: is a sentence acceptable English?"""

    name = "CoLA"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    metrics = ("accuracy", "matthews")
    main_metric = "matthews"
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
    metrics = ("accuracy", "f1")
    main_metric = "f1"
    labelled = Layout(text_a=3, text_b=4, label=0)
    unlabelled = Layout(text_a=3, text_b=4)


class StsbProcessor(GlueProcessor):
    """STS-B: how similar in meaning are two sentences, from 0 to 5?"""

    name = "STS-B"
    metrics = ("pearson", "spearman")
    main_metric = "spearman"
    is_regression = True
    labels = None
    labelled = Layout(text_a=7, text_b=8, label=9)
    unlabelled = Layout(text_a=7, text_b=8)


class QqpProcessor(GlueProcessor):
    """QQP: do two questions ask the same?"""

    name = "QQP"
    metrics = ("accuracy", "f1")
    main_metric = "f1"
    labelled = Layout(text_a=3, text_b=4, label=5)
    skip_short_rows = True


class MnliProcessor(GlueProcessor):
    """MNLI: does a sentence follow from another?

    The sets with the suffix "_mm" have the genres that are absent from the training set.
    """

    name = "MNLI"
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    labels = _NLI_LABELS
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
    """AX, GLUE's diagnostic set for models trained on MNLI; a file with labels is evaluated."""

    name = "AX"
    metrics = ("accuracy", "matthews")
    main_metric = "matthews"
    labels = _NLI_LABELS
    unlabelled = Layout(text_a=1, text_b=2, id_column=0)

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        raise InputError("AX has no training file; train a model on MNLI, and predict AX with it")

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
        for label_name in _LABEL_HEADERS:
            if label_name in names:
                layout = self.unlabelled._replace(label=names.index(label_name))
                return {"": read_layout(path, "test", layout, self.labels)}
        logging.warning("%s: has no column 'label' to evaluate with", path)
        return {}

    def _test_path(self, data_dir: str, suffix: str = "") -> str:
        for file in _AX_FILES:
            path = os.path.join(data_dir, file)
            if files.exists(path):
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


# Label in XNLI's training files -> label.
_OTHER_NAMES = {"contradictory": "contradiction"}
# The columns of XNLI's files for evaluation and prediction.
_LANGUAGE = 0
_LABEL = 1
_TEXT_A = 6
_TEXT_B = 7


def plain_name(task_name: str) -> str:
    """Return the name of a task without its case, hyphens and underscores, for comparison.

    Args:
        task_name: the value of --task_name.
    """
    return task_name.lower().replace("-", "").replace("_", "")


def xnli_language(task_name: str) -> str | None:
    """Return the language that a name of XNLI such as XNLI-de has; the default is zh.

    Args:
        task_name: the value of --task_name.

    Returns:
        The language; None if the name is not one of XNLI.
    """
    match = re.fullmatch("xnli([a-z]{2})?", plain_name(task_name))
    if match is None:
        return None
    return match[1] or "zh"


class XnliProcessor(DataProcessor):
    """The processor of XNLI in one language.

    The training file of a language is machine-translated; the other files have all languages.

    Attributes:
        language: the code of the language, such as de.
    """

    needs_pairs = True
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    labels: ClassVar[tuple[str, ...]] = _NLI_LABELS

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
            guid="train",
            layout=Layout(text_a=0, text_b=1, label=2),
            labels=self.labels,
            other_names=_OTHER_NAMES,
        )

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        rows = self._rows(data_dir, "xnli.dev.tsv")
        labels = [check_label(row, row.field(_LABEL, "the label"), self.labels) for row in rows]
        return [_example("dev", row, label) for row, label in zip(rows, labels, strict=True)]

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        rows = self._rows(data_dir, "xnli.test.tsv")
        return [_example("test", row, self.labels[0]) for row in rows]

    def get_labels(self) -> list[str]:
        return list(self.labels)

    def _rows(self, data_dir: str, file: str) -> list[Row]:
        """Returns the rows in the language from a file that contains all languages."""
        path = os.path.join(data_dir, file)
        rows = list(read_tsv(path))[1:]
        language_rows = [row for row in rows if row.fields[_LANGUAGE] == self.language]
        if not language_rows:
            languages = sorted({row.fields[_LANGUAGE] for row in rows})
            raise InputError(
                f"{path}: has no row in the language {self.language!r}, but in "
                f"{', '.join(languages[:20]) or 'none'}; write --task_name=XNLI-en, for instance"
            )
        return language_rows


def _example(set_name: str, row: Row, label: str) -> InputExample:
    return InputExample(
        guid=f"{set_name}-{row.line - 1}",
        text_a=row.field(_TEXT_A, "the premise"),
        text_b=row.field(_TEXT_B, "the hypothesis"),
        label=label,
    )
