"""Fine-tunes a classifier on texts in memory: `official_bert.Classifier`.

It calls the function of run_classifier.py.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from absl import logging

from official_bert import catalog
from official_bert.checkpoints.folder import run_folders
from official_bert.data.tables import Row, plain_value
from official_bert.fine_tuning import earlier_training, python_training
from official_bert.io import errors, files, progress, reading
from official_bert.io.errors import InputError, naming_arguments
from official_bert.model_dir import ModelFolder, write_record
from official_bert.options.fields import find_fault
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE, ClassificationOptions
from official_bert.options.training import BIAS_CORRECTED
from official_bert.serving.predictor import Predictor
from official_bert.tasks.registry import CLASSIFICATION

_COMMAND = "run_classifier"
_DEV_SHARE = "dev_fraction"  # a flag of the extension tables
# Flags that arguments of `train` replace, and flags of files.
_EXCLUDED_FLAGS = """
task_name labels output_dir do_train do_eval do_predict search
data_dir train_file dev_file test_file
dev_fraction all_probabilities
text_a_column text_b_column label_column has_header label_separator data_format quoting
"""
# The parts of messages about flags that are no arguments, and what they are in a call.
_REPLACEMENTS = {
    "--text_a_column=text_a": "the text",
    "--text_b_column=text_b": "the second text",
    "--label_column": "labels",
    "--output_dir": "folder",
    "--dev_fraction": "dev",
    "name those of the zeros and ones in their order, --labels=a,b": "use "
    "ClassificationData.from_frame(frame, label=['a', 'b'])",
    "--nodo_lower_case": "do_lower_case=False",
    "--init_checkpoint": "model",
}
# With fewer texts than these, the defaults of the original make too few updates to learn anything:
# Mosbach et al. (2021) and Zhang et al. (2021) train longer, and correct Adam's bias.
_FEW_TEXTS, _VERY_FEW_TEXTS = 1000, 200
_DESCRIBED_METRICS = ("eval_accuracy", "eval_macro_f1", "eval_micro_f1", "eval_spearman")
_FEW_BATCH_SIZE, _FEW_EPOCHS, _FEW_UPDATES = 16, 20, 200
_MIN_EPOCHS = 3  # the default of the original


class ClassificationData(NamedTuple):
    """Texts, or pairs of texts, and their labels.

    A label is a text or a whole number; or a score, a number with a point; or a list of any number
    of labels.

    Example:
        ```python
        from official_bert import ClassificationData

        data = ClassificationData.from_lists(
            [("It rained.", "The street is wet."), ("It rained.", "A train left.")],
            ["follows", "does not follow"],
        )
        data.texts[0]  # ["It rained.", "The street is wet."]
        data.label_type  # "single"
        ```
    """

    texts: list
    labels: list

    @classmethod
    def from_lists(cls, texts: Iterable, labels: Iterable) -> Self:
        """Makes the data from separate lists.

        Args:
            texts: the texts; a pair is a list or a tuple of two texts. Arrays and columns of pandas
                work, too.
            labels: the label of each text.

        Raises:
            InputError: there are not as many texts as labels.
        """
        texts, labels = ([plain_value(value) for value in values] for values in (texts, labels))
        if len(texts) != len(labels):
            raise InputError(
                f"{len(texts)} texts and {len(labels)} labels are given; give each text its label"
            )
        return cls(texts, labels)

    @classmethod
    def from_frame(
        cls, frame: Any, text: str | Iterable[str] = "text", label: str | Iterable[str] = "label"
    ) -> "ClassificationData":
        """Makes the data from columns of a pandas frame.

        Args:
            frame: the frame.
            text: the name of the column with the texts; for pairs, the names of the two columns.
            label: the name of the column with the labels; or the names of several columns with
                zeros and ones, each of which is a label. If each row has a single one, it is the
                label of the text; otherwise a text has several labels.

        Raises:
            InputError: one of several columns has another value than zero and one.
        """
        text_columns = [text] if isinstance(text, str) else list(text)
        texts = frame[text] if isinstance(text, str) else _zip_columns(frame, text_columns)
        labels = frame[label] if isinstance(label, str) else _read_indicators(frame, list(label))
        data = _FrameData(*cls.from_lists(texts, labels))
        data.columns = dict(zip(("text_a", "text_b"), text_columns, strict=False))
        return data

    @property
    def label_type(self) -> str:
        """The --label_type that fits the labels."""
        types = {type(label) for label in self.labels}
        if any(issubclass(one, list) for one in types):
            return MULTI
        has_scores = any(issubclass(one, float) for one in types)
        has_texts = any(issubclass(one, str) for one in types)
        return SCORE if has_scores and not has_texts else SINGLE

    def warn_of_whole_scores(self) -> None:
        """Warns of scores that may be classes.

        A column of pandas with whole numbers has floats if some of them are missing.
        """
        numbers = [label for label in self.labels if label is not None]
        if self.label_type == SCORE and all(float(number).is_integer() for number in numbers):
            errors.warn(
                "labels: numbers with a point are learnt as scores, and all of these are whole; "
                "pass whole numbers or texts for classes, or label_type=%r for scores",
                SCORE,
            )

    def rows(self, set_name: str) -> list[Row]:
        """Returns the rows of a table; the first has the names of the columns.

        Args:
            set_name: the name of the set, such as "train", for messages.

        Raises:
            InputError: some rows have single texts, others pairs.
        """
        fields = []
        for text, label in zip(self.texts, self.labels, strict=True):
            texts = text if isinstance(text, list) else [text]
            fields.append([*texts, label])
        names = ["text_a", "label"]
        if fields and len(fields[0]) == 3:
            names = ["text_a", "text_b", "label"]
        rows = []
        for number, values in enumerate([names, *fields]):
            rows.append(Row(set_name, number, values, "row"))
        for row in rows:
            if len(row.fields) != len(names):
                raise row.error(
                    f"has {len(row.fields) - 1} texts and the first row {len(names) - 1}; give as "
                    "many"
                )
        return rows


class _FrameData(ClassificationData):
    """Data of a frame, whose columns of texts the folder of the model records.

    Attributes:
        columns: role -> the name of the column.
    """

    columns: dict[str, str]


class _ClassifierType(type):
    """The type of `Classifier`, to which extensions add class methods."""

    def __getattr__(cls, name: str) -> Any:
        return catalog.bind_member("classifier_trainings", cls, name)

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *catalog.members("classifier_trainings")]


class Classifier(Predictor, metaclass=_ClassifierType):
    """A classifier that `train` has trained; it answers texts as every `Predictor`.

    Extensions add other trainings, such as few_shot: help(Classifier.few_shot) describes one.

    Attributes:
        metrics: those of the dev set by name, as in eval_results.txt; None without a dev set.

    Example:
        ```python
        from official_bert import Classifier

        texts = ["The cat sat on the mat.", "A train left the station."] * 16
        labels = ["animal", "vehicle"] * 16
        classifier = Classifier.train(
            "/tmp/my_model",
            texts,
            labels,
            model="quickstart_output/full/bert",
            learning_rate=3e-4,
            overwrite=True,
        )
        classifier.classify("A train left the station.")  # {"label": "vehicle", "score": ...}
        ```
    """

    metrics: dict[str, float] | None = None

    @classmethod
    def train(  # noqa: PLR0913 - each is named in a call
        cls,
        folder: str | os.PathLike,
        texts: Iterable | ClassificationData,
        labels: Iterable | None = None,
        dev: tuple[Iterable, Iterable] | ClassificationData | float | None = None,
        model: str | os.PathLike | None = None,
        *,
        overwrite: bool = False,
        resume: bool = False,
        verbose: int = 1,
        **flags: Any,
    ) -> Self:
        """Trains a model in a folder, as run_classifier.py does; the same call again resumes a run
        that was killed.

        A folder with a training on other data or with other arguments is an error, unless you say
        what to do with it.

            classifier = Classifier.train(
                "tickets_model", texts, labels, dev=(more_texts, more_labels), model="bert"
            )
            classifier.classify("My parcel is late.")  # {"label": "delivery", "score": ...}

        Args:
            folder: the folder of the trained model.
            texts: texts, or pairs of texts; or ClassificationData, without `labels`.
            labels: the label of each text, as ClassificationData describes them.
            dev: what the trained model is evaluated on: texts and labels, or a share of `texts`,
                such as 0.15, which it is not trained on.
            model: the folder of the model to begin with.
            overwrite: whether a training on other data or with other arguments is replaced.
            resume: whether such a training resumes, on these data and with these arguments.
            verbose: 1 shows the progress and the result, on a terminal and in a notebook as a bar;
                0 shows nothing.
            **flags: further flags of run_classifier.py by name, such as num_train_epochs=4. For
                fewer than 1,000 texts, the defaults make at least 200 updates, in batches of 16 and
                with the bias of Adam corrected, and for fewer than 200 at least 20 epochs.

        Raises:
            InputError: an argument, the data or the folder cannot be used.
        """
        with naming_arguments(_list_arguments(), _REPLACEMENTS):
            data = _training_data(texts, labels)
            sets = _table_rows(data, dev)
            with progress.shown_in_python(bool(verbose)):
                names = sets["train"][0].fields
                options = _make_options(folder, data, names, dev, model, flags)
            python_training.train_in_folder(
                options,
                CLASSIFICATION,
                sets,
                earlier_training.rows_digest(row.fields for row in sets["train"]),
                python_training.Handling(overwrite, resume, verbose),
            )
        if isinstance(data, _FrameData):
            _record_columns(options.output_dir, data.columns)
        trained = cls(options.output_dir)
        if options.do_eval:
            trained.metrics = reading.read_metrics(
                os.path.join(options.output_dir, "eval_results.txt")
            )
        return trained

    def describe(self) -> Mapping[str, object]:
        """Returns what the classifier is, for people, with the metrics of the dev set."""
        metrics = {
            name: value
            for name, value in (self.metrics or {}).items()
            if name in _DESCRIBED_METRICS
        }
        return {**super().describe(), **metrics}


def _record_columns(output_dir: str, columns: Mapping[str, str]):
    """Adds the columns of the texts to the records in the model's folders."""
    for folder in run_folders(output_dir):
        record = ModelFolder(folder).task() if files.is_folder(folder) else None
        if record is not None:
            settings = {**record.settings, "columns": dict(columns)}
            write_record(folder, record._replace(settings=settings))


def few_texts_flags(num_texts: int, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values of flags that the caller does not pass, for few texts, and logs them.

    Args:
        num_texts: the number of texts of the training set.
        flags: the flags that the caller passes.
    """
    if num_texts >= _FEW_TEXTS or not num_texts:
        return {}
    batch_size = flags.get("train_batch_size", _FEW_BATCH_SIZE)
    num_epochs = _FEW_EPOCHS if num_texts < _VERY_FEW_TEXTS else _MIN_EPOCHS
    if isinstance(batch_size, int):
        num_epochs = max(num_epochs, math.ceil(_FEW_UPDATES * batch_size / num_texts))
    defaults = {
        "train_batch_size": _FEW_BATCH_SIZE,
        "num_train_epochs": num_epochs,
        "optimizer_type": BIAS_CORRECTED,
    }
    chosen = {name: value for name, value in defaults.items() if name not in flags}
    if chosen:
        arguments = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        sentence = (
            f"{num_texts} texts are few, so the training uses {arguments}; pass other values to "
            "change them"
        )
        logging.info("%s", sentence)
        progress.show_result(sentence)
    return chosen


def _training_data(
    texts: Iterable | ClassificationData, labels: Iterable | None
) -> ClassificationData:
    if isinstance(texts, ClassificationData) and labels is None:
        return texts
    if isinstance(texts, ClassificationData) or labels is None:
        raise InputError(
            "labels: give the labels of the texts, or texts as ClassificationData without labels"
        )
    return ClassificationData.from_lists(texts, labels)


def _make_options(
    folder: str | os.PathLike,
    data: ClassificationData,
    column_names: Sequence[str],
    dev: Any,
    model: str | os.PathLike | None,
    flags: Mapping[str, Any],
) -> ClassificationOptions:
    """Returns the flags of the run; raises InputError for arguments that are no flags."""
    if "label_type" not in flags:
        data.warn_of_whole_scores()
    options_class = catalog.options_class(_COMMAND)
    values: dict[str, Any] = {"label_type": data.label_type}
    share = 0.0
    if _is_share(dev):
        share = float(dev)
        fields = {field.name: field for field in dataclasses.fields(options_class)}
        if _DEV_SHARE not in fields:
            raise InputError("dev: a share needs the extension tables; give (texts, labels)")
        if fault := find_fault(fields[_DEV_SHARE], share):
            raise InputError(f"dev={dev!r}: {fault}")
        values[_DEV_SHARE] = share
    values |= few_texts_flags(round(len(data.texts) * (1 - share)), flags)
    values["model"] = model and os.fspath(model)
    values |= python_training.check_flags(
        flags, _list_arguments(), "Classifier.train", "run_classifier.py"
    )
    return options_class(
        task_name="text",
        output_dir=os.fspath(folder),
        do_train=True,
        do_eval=dev is not None,
        **{f"{name}_column": name for name in column_names},
        **values,
    )


def _is_share(dev: Any) -> bool:
    """Returns whether the dev set is a share of the texts."""
    return isinstance(dev, (int, float)) and not isinstance(dev, bool)


def _table_rows(data: ClassificationData, dev: Any) -> dict[str, list[Row]]:
    """Returns the rows of the training set and, if there is one, of the dev set."""
    sets = {"train": data.rows("train")}
    if dev is None or _is_share(dev):
        return sets
    is_pair = isinstance(dev, tuple) and len(dev) == 2
    if not is_pair or any(isinstance(part, str) for part in dev):
        raise InputError(
            "dev: must be a pair, (texts, labels), ClassificationData, or a share of the texts, "
            "such as 0.15"
        )
    sets["dev"] = ClassificationData.from_lists(*dev).rows("dev")
    if sets["dev"][0].fields != sets["train"][0].fields:
        raise InputError(
            "dev: one of the two sets has pairs of texts, the other single texts; give both alike"
        )
    return sets


def _list_arguments() -> dict[str, dataclasses.Field]:
    """Returns the fields of the flags that are arguments of `train`, by name."""
    return python_training.list_arguments(_COMMAND, _EXCLUDED_FLAGS.split())


def _zip_columns(frame: Any, names: Iterable[str]) -> Iterable[tuple]:
    """Returns the values of each row in some columns of a frame."""
    return zip(*(frame[name] for name in names), strict=True)


def _read_indicators(frame: Any, names: list[str]) -> list:
    """Returns the labels of each row from a column of zeros and ones for each label."""
    all_labels = []
    for number, values in enumerate(_zip_columns(frame, names)):
        bits = plain_value(values)
        for name, bit in zip(names, bits, strict=True):
            if bit not in (0, 1):
                raise InputError(
                    f"label: row {number}: the column {name} has {bit!r}; give columns of zeros "
                    "and ones, or the name of one column"
                )
        all_labels.append([name for name, bit in zip(names, bits, strict=True) if bit])
    if all(len(labels) == 1 for labels in all_labels):
        return [label for (label,) in all_labels]
    return all_labels
