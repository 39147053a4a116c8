"""Fine-tunes a classifier on texts in memory: `official_bert.Classifier`, with run_classifier.py
underneath.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert import catalog
from official_bert.data.tables import Row
from official_bert.fine_tuning import earlier_training
from official_bert.fine_tuning.run import fine_tune
from official_bert.io import errors, reading
from official_bert.io.errors import InputError, did_you_mean
from official_bert.model_dir import has_checkpoints
from official_bert.model_source import resolve
from official_bert.options.fields import kind_of
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE
from official_bert.serving.predictor import Predictor, check_value
from official_bert.tasks.registry import CLASSIFICATION

_COMMAND = "run_classifier"
# Flags in whose place `train` has arguments, or that are of files.
_OWN = """
task_name labels output_dir do_train do_eval do_predict search columns data_dir train_file dev_file test_file
data_format quoting
"""


class ClassificationData(NamedTuple):
    """Texts, or pairs of texts, and their labels.

    A label is a text or a whole number; or a score, a number with a point; or a list of any number
    of labels.
    """

    texts: list
    labels: list

    @classmethod
    def from_lists(cls, texts: Iterable, labels: Iterable) -> Self:
        texts, labels = ([_plain(value) for value in values] for values in (texts, labels))
        if len(texts) != len(labels):
            raise InputError(
                f"{len(texts)} texts and {len(labels)} labels are given; give each text its label"
            )
        return cls(texts, labels)

    @classmethod
    def from_frame(
        cls, frame: Any, text: str | Iterable[str] = "text", label: str = "label"
    ) -> Self:
        """Takes columns of a pandas frame; `text` names that of the text, or the two of a pair."""
        if isinstance(text, str):
            return cls.from_lists(frame[text], frame[label])
        return cls.from_lists(zip(*(frame[name] for name in text), strict=True), frame[label])

    @property
    def label_type(self) -> str:
        """The --label_type that fits the labels."""
        if any(isinstance(label, list) for label in self.labels):
            return MULTI
        is_score = any(isinstance(label, float) for label in self.labels)
        return (
            SCORE
            if is_score and not any(isinstance(label, str) for label in self.labels)
            else SINGLE
        )

    def warn_of_whole_scores(self):
        """Warns of scores that may be classes: pandas has whole numbers with a point in a column
        that lacks some.
        """
        if self.label_type == SCORE and all(
            float(label).is_integer() for label in self.labels if label is not None
        ):
            errors.warn(
                "labels: numbers with a point are learnt as scores, and all of these are whole; "
                "pass whole numbers or texts for classes, or label_type=%r for scores",
                SCORE,
            )

    def rows(self, set_name: str) -> list[Row]:
        """Returns the rows of a table, of which the first has the names of the columns."""
        fields = [
            [*(text if isinstance(text, list) else [text]), label]
            for text, label in zip(self.texts, self.labels, strict=True)
        ]
        names = (
            ["text_a", "text_b", "label"] if fields and len(fields[0]) == 3 else ["text_a", "label"]
        )
        rows = [
            Row(set_name, number, values, "row") for number, values in enumerate([names, *fields])
        ]
        for row in rows:
            if len(row.fields) != len(names):
                raise row.error(
                    f"has {len(row.fields) - 1} texts and the first row {len(names) - 1}; give as "
                    "many"
                )
        return rows


class Classifier(Predictor):
    """A classifier that `train` has trained; it answers texts as every `Predictor`.

    Attributes:
        metrics: those of the dev set by name, as in eval_results.txt; None without a dev set.
    """

    metrics: dict[str, float] | None = None

    @classmethod
    def train(
        cls,
        folder: str | os.PathLike,
        texts: Iterable | ClassificationData,
        labels: Iterable | None = None,
        dev: tuple[Iterable, Iterable] | ClassificationData | None = None,
        model: str | os.PathLike | None = None,
        *,
        overwrite: bool = False,
        resume: bool = False,
        **flags: Any,
    ) -> Self:
        """Trains a model in a folder, as run_classifier.py does; the same call again resumes a run
        that was killed.

        A folder with a training on other data or with other arguments is an error, unless you say
        what to do with it.

            classifier = Classifier.train("tickets_model", texts, labels, dev=(more_texts, more_labels), model="bert")
            classifier.classify("My parcel is late.")  # {"label": "delivery", "score": ...}

        Args:
            texts: texts, or pairs of texts; or ClassificationData, without `labels`.
            dev: what the trained model is evaluated on.
            model: the folder of the model to begin with.
            overwrite: whether a training on other data or with other arguments is replaced.
            resume: whether such a training goes on, on these data and with these arguments.
            **flags: further flags of run_classifier.py by name, such as num_train_epochs=4.
        """
        if isinstance(texts, ClassificationData) != (labels is None):
            raise InputError(
                "labels: give the labels of the texts, or texts as ClassificationData without "
                "labels"
            )
        if dev is not None and (
            not isinstance(dev, tuple) or len(dev) != 2 or any(isinstance(one, str) for one in dev)
        ):
            raise InputError("dev: must be a pair, (texts, labels), or ClassificationData")
        data = texts if labels is None else ClassificationData.from_lists(texts, labels)
        sets = {"train": data.rows("train")}
        if dev is not None:
            sets["dev"] = ClassificationData.from_lists(*dev).rows("dev")
            if sets["dev"][0].fields != sets["train"][0].fields:
                raise InputError(
                    "dev: one of the two sets has pairs of texts, the other single texts; give "
                    "both alike"
                )
        if "label_type" not in flags:
            data.warn_of_whole_scores()
        options = catalog.options_class(_COMMAND)(
            task_name="text",
            output_dir=os.fspath(folder),
            columns=",".join(f"{name}={name}" for name in sets["train"][0].fields),
            do_train=True,
            do_eval=dev is not None,
            **{"label_type": data.label_type, "model": model and os.fspath(model)}
            | _checked(flags),
        )
        if overwrite and resume:
            raise InputError("overwrite, resume: exclude each other; give one of the two")
        digest = earlier_training.rows_digest(sets["train"])
        differences = ""
        if has_checkpoints(options.output_dir) and not resume:
            now = dataclasses.asdict(resolve(options, CLASSIFICATION).options)
            differences = earlier_training.find_differences(
                options.output_dir, now, digest, type(options)
            )
        if differences and not overwrite:
            raise InputError(
                f"{options.output_dir}: holds a model that was trained differently: {differences}; "
                "give overwrite=True to replace it, resume=True to go on with its training, or "
                "another folder"
            )
        replacing = contextlib.nullcontext()
        if differences or earlier_training.was_killed_while_replacing(options.output_dir):
            replacing = earlier_training.replaced(options.output_dir, holds_other=bool(differences))
        with replacing:
            fine_tune(options, sets, {earlier_training.DATA_FACT: digest})
        trained = cls(folder)
        if dev is not None:
            trained.metrics = reading.read_metrics(
                os.path.join(options.output_dir, "eval_results.txt")
            )
        return trained


def _checked(flags: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of flags, which must be known and as their flags take them."""
    fields = dataclasses.fields(catalog.options_class(_COMMAND))
    fields_by_name = {field.name: field for field in fields if field.name not in _OWN.split()}
    for name, value in flags.items():
        if name not in fields_by_name:
            remedy = (
                did_you_mean(name, fields_by_name) or "run_classifier.py --helpfull lists the flags"
            )
            raise InputError(f"{name}: Classifier.train takes no such flag; {remedy}")
        check_value(fields_by_name[name], value)
    return {
        name: float(value) if kind_of(fields_by_name[name]) is float else value
        for name, value in flags.items()
    }


def _plain(value: Any) -> Any:
    """Returns a text or a label as JSON has it; None for one that pandas lacks."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and value != value else value
