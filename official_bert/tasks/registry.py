"""The tasks of run_classifier.py by name."""

from collections.abc import Callable

from official_bert.errors import InputError
from official_bert.options.classifier import ClassifierOptions
from official_bert.tasks import glue
from official_bert.tasks.processor import DataProcessor
from official_bert.tasks.tsv import TsvProcessor
from official_bert.tasks.xnli import XnliProcessor

ORIGINAL_TASKS = ("cola", "mnli", "mrpc", "xnli")


def _tsv(options: ClassifierOptions) -> DataProcessor:
    return TsvProcessor(
        options.text_a_column,
        options.text_b_column,
        options.label_column,
        has_header=options.has_header,
        labels=options.labels,
        is_multi_label=options.multi_label,
        label_separator=options.label_separator,
        is_regression=options.regression,
    )


_OTHERS: dict[str, Callable[[ClassifierOptions], DataProcessor]] = {
    "xnli": lambda options: XnliProcessor(options.xnli_language),
    "tsv": _tsv,
}


def make_processor(options: ClassifierOptions) -> DataProcessor:
    """The processor of --task_name.

    Raises:
        InputError: no such task.
    """
    name = glue.plain_name(options.task_name)
    if name in _OTHERS:
        return _OTHERS[name](options)
    found = glue.find(name)
    if found is None:
        raise InputError(
            f"Task not found: {options.task_name}; it is one of {', '.join((*glue.NAMES, *_OTHERS))}"
        )
    return found()
