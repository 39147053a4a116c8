"""XNLI: the task of MNLI in fifteen languages, in the file layout of its own site."""

import os
from collections.abc import Mapping
from typing import Any, Self

from official_bert.data.tables import Row, read_tsv
from official_bert.errors import InputError
from official_bert.tasks.base import ORIGINAL_BUFFER_SIZE
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor, Layout, checked_label, read_layout

_LABELS = ("contradiction", "entailment", "neutral")
_OTHER_NAMES = {"contradictory": "contradiction"}  # label in the training files -> label
_LANGUAGE, _LABEL, _TEXT_A, _TEXT_B = 0, 1, 6, 7


class XnliProcessor(DataProcessor):
    """Trains on the machine-translated training file of a language and evaluates on the rows in that language.

    Args:
        language: code as in the files: ar, bg, de, el, en, es, fr, hi, ru, sw, th, tr, ur, vi or zh.
    """

    needs_pairs = True
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE

    def __init__(self, language: str = "zh"):
        self.language = language

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Makes the processor of --xnli_language, which exports do not record."""
        return cls(settings.get("xnli_language", "zh"))

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        file = os.path.join("multinli", f"multinli.train.{self.language}.tsv")
        layout = Layout(file, "train", text_a=0, text_b=1, label=2)
        return read_layout(data_dir, layout, _LABELS, other_names=_OTHER_NAMES)

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return [
            InputExample(
                f"dev-{row.line - 1}",
                *_texts(row),
                checked_label(row, row.field(_LABEL, "the label"), _LABELS),
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
        """Returns the rows in the language from a file that contains all languages.

        Raises:
            InputError: there is no such file, or it has no row in the language.
        """
        path = os.path.join(data_dir, file)
        rows = list(read_tsv(path))[1:]
        in_language = [row for row in rows if row.fields[_LANGUAGE] == self.language]
        if not in_language:
            languages = sorted({row.fields[_LANGUAGE] for row in rows})
            raise InputError(
                f"{path}: has no row in the language {self.language!r}, but in {', '.join(languages[:20]) or 'none'}; "
                "set --xnli_language"
            )
        return in_language


def _texts(row: Row) -> tuple[str, str]:
    return row.field(_TEXT_A, "the premise"), row.field(_TEXT_B, "the hypothesis")
