"""The options of the fine-tuning scripts: what they share, and what each of them adds."""

import dataclasses
import math
from typing import ClassVar

from official_bert.options.fields import (
    COMMON,
    LENGTH,
    LENGTH_OR_NONE,
    MIN_SEQ_LENGTH,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    SIZE,
    TEXT,
    option,
    value_type,
)
from official_bert.options.shared import TokenizerOptions
from official_bert.options.training import TrainingOptions

PAPER, GLUE = "paper", "glue"  # the searches with a name


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions, TokenizerOptions):
    """Flags that the fine-tuning scripts share; scripts with several tasks have the flag
    `task_name`.

    The attributes replace flags that some scripts lack.

    Attributes:
        has_dev_set: whether there is a development set. run_squad has none: it scores its test
            set.
        do_eval: whether the model is evaluated on the development set.
        calibrate: whether probabilities are calibrated on the development set.
        data_dir: the folder with the data files.
    """

    chapter: ClassVar[str] = COMMON
    length_flag: ClassVar[str] = "num_train_epochs"
    warmup_flag: ClassVar[str] = "warmup_proportion"
    script: ClassVar[str]
    task_name: ClassVar[str]
    has_dev_set: ClassVar[bool] = False
    # Without annotations they are no fields, which would hide those of the scripts that have them.
    do_eval = False
    calibrate = False
    data_dir = None
    # run_squad.py has a flag, because the original ranks padding positions.
    length_aware_batches: ClassVar[bool] = True

    max_seq_length: int = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        changes_training=True,
        fixed_after_training=True,
        help="The maximum number of tokens of an input, special ones included. run_swag.py "
        "truncates longer examples, run_ner.py splits them.",
    )
    do_predict: bool = option(
        False,
        basic=True,
        help="Write the predictions for the test set, or in run_squad.py for --predict_file.",
    )
    predict_batch_size: int = option(
        8, check=SIZE, help="The number of examples in a prediction batch."
    )
    num_train_epochs: float = option(
        3.0,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The number of passes over the training set, such as 2.5.",
    )
    warmup_proportion: float = option(
        0.1,
        check=PROBABILITY,
        changes_training=True,
        help="The proportion of all updates during which the learning rate warms up; 0.1 is the "
        "first tenth.",
    )
    shuffle_buffer_size: int | None = option(
        None,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The number of examples in the shuffle buffer; 0 shuffles the whole training set for "
        "each pass. The default is the original's 100 for SQuAD and the tasks of the original, and "
        "0 for others.",
    )
    num_bilstm_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        fixed_by_training=True,
        help="The number of bidirectional LSTM layers, with random initial weights, between "
        "the encoder and the task's head, as in the paper's ablation. The bert_config.json in "
        "--output_dir records it. The default is that of the configuration, usually 0.",
    )
    eval_every_steps: int | None = option(
        None,
        check=POSITIVE,
        changes_training=True,
        help="Evaluate the model every N updates during training: on the development set, or in "
        "run_squad.py on --predict_file. The folder best in --output_dir keeps the checkpoint with "
        "the best value of the task's metric. Evaluation and prediction after the training use it.",
    )
    eval_every_epochs: float | None = option(
        None,
        check=POSITIVE,
        changes_training=True,
        help="Evaluate the model every N passes over the training set, such as 0.5; see "
        "--eval_every_steps.",
    )
    early_stopping_patience: int | None = option(
        None,
        check=POSITIVE,
        changes_training=True,
        only_with={"eval_every_steps": (), "eval_every_epochs": ()},
        help="Stop the training after this many evaluations in a row without a better result.",
    )
    search: str | None = option(
        None,
        help="Train a model for each combination of values, each in its own folder in "
        "--output_dir. paper takes the values of the paper's appendix A.3, and glue those of its "
        "section 4.1. A TOML file has lists of values for learning_rate, train_batch_size and "
        "num_train_epochs, by default those of the paper, and seeds (or restarts), the number of "
        "runs of each combination. Their seeds count upwards from --random_seed, or from 0. "
        "search_results.tsv lists the results, and the best run keeps its checkpoints.",
    )

    @property
    def evaluates_during_training(self) -> bool:
        """Whether the model is evaluated every few updates."""
        return self.do_train and self.eval_interval_flag is not None

    @property
    def eval_interval_flag(self) -> str | None:
        """The flag that sets how often the training evaluates; None without one."""
        if self.eval_every_steps is not None:
            return "eval_every_steps"
        return None if self.eval_every_epochs is None else "eval_every_epochs"

    @property
    def steps(self) -> dict[str, bool]:
        """Whether the run has each step, by the name of its flag, in their order."""
        evaluation = {"do_eval": self.do_eval} if self.has_dev_set else {}
        return {"do_train": self.do_train, **evaluation, "do_predict": self.do_predict}

    @property
    def set_files(self) -> dict[str, str | None]:
        """The files of the sets train, dev and test that flags name."""
        return dict.fromkeys(("train", "dev", "test"))

    @property
    def dev_batch_size(self) -> int:
        """The number of examples in a batch of an evaluation."""
        return self.predict_batch_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFilesOptions(FineTuningOptions):
    """The flags of the fine-tuning scripts with training, development and test files."""

    has_dev_set: ClassVar[bool] = True

    chapter: ClassVar[str] = COMMON

    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder that holds the task's data files under their usual names.",
    )
    train_file: str | None = option(
        None,
        basic=True,
        help="The training file to read instead of the one in --data_dir. For tables, you can give "
        "several files and globs.",
    )
    dev_file: str | None = option(
        None, basic=True, help="The development file to read instead of the one in --data_dir."
    )
    test_file: str | None = option(
        None, basic=True, help="The test file to read instead of the one in --data_dir."
    )
    do_eval: bool = option(False, basic=True, help="Evaluate the model on the development set.")
    eval_batch_size: int = option(
        8, check=SIZE, help="The number of examples in an evaluation batch."
    )

    @property
    def set_files(self) -> dict[str, str | None]:
        """The files of the sets train, dev and test that flags name."""
        return {"train": self.train_file, "dev": self.dev_file, "test": self.test_file}

    @property
    def dev_batch_size(self) -> int:
        """The number of examples in a batch of an evaluation."""
        return self.eval_batch_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """A flag of the scripts whose models compute probabilities of labels."""

    calibrate: bool = option(
        False,
        help="Calibrate the probabilities on the development set after the training, by a "
        "temperature that divides the logits (Guo et al., 2017). A probability of 0.9 then means "
        "that nine of ten predictions are right. The folder of the model records the temperature, "
        "and predictions and exports use it.",
    )


SINGLE, MULTI, SCORE = "single", "multi", "score"
LABEL_TYPES = (SINGLE, MULTI, SCORE)
NO_QUOTING, CSV = "none", "csv"
DATA_FORMATS = ("tsv", CSV, "jsonl", "parquet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Flags that only go with --task_name=text, also called tsv."""

    chapter: ClassVar[str] = TEXT

    text_a_column: str | None = option(
        None,
        basic=True,
        help="With text, the column of the text, by name or by number from 0; negative numbers "
        "count from the end. Names match in any case. Without this flag it is the column of the "
        "training, or the column called text, text_a, sentence or sentence1. If there is none, it "
        "is the only remaining column, or the first of two.",
    )
    text_b_column: str | None = option(
        None,
        basic=True,
        help="With text, the column of the second text of pairs. An empty value ignores a column "
        "called text_b or sentence2.",
    )
    label_column: str | None = option(
        None,
        basic=True,
        help="With text, the column of the label. Without this flag it is the column called label "
        "or labels, with --label_type=score label or score. If there is none, it is the only "
        "remaining column, or the last of two.",
    )
    has_header: bool = option(
        fallback=True,
        help="With text, whether the first line of a TSV or CSV file names the columns. Without a "
        "header, columns are numbers from 0. The default is the value of the training, or true.",
    )
    label_separator: str = option(
        ",",
        help="With text and --label_type=multi, what separates the labels of an example. In a "
        'shell, quote a semicolon: --label_separator=";".',
    )
    quoting: str = option(
        fallback=NO_QUOTING,
        choices=(NO_QUOTING, CSV),
        help="With text, how a TSV file uses double quotes. With none they are ordinary "
        "characters. With csv, as pandas and Excel write, they enclose fields, which may contain "
        "tabs and line breaks; a quote within a field is doubled.",
    )
    data_format: str | None = option(
        None,
        choices=DATA_FORMATS,
        help="With text, the format of the data files. All but parquet may be compressed with "
        "gzip. The default follows from their names: .tsv, .csv, .jsonl or .json (JSON lines), "
        ".parquet.",
    )
    labels: list[str] | None = option(
        None,
        help="With text, all labels, separated by commas. The default is those of the training "
        "file.",
    )
    label_type: str | None = option(
        fallback=SINGLE,
        choices=LABEL_TYPES,
        fixed_by_training=True,
        help="With text, the target of an example: single is one label, multi any number of "
        "labels, score a number.",
    )


TRUNCATE, WINDOWS = "truncate", "windows"
WINDOW_POOLINGS = ("mean", "max", "first")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationOptions(DataFilesOptions, TextOptions, CalibrationOptions):
    """The flags of run_classifier.py."""

    script: ClassVar[str] = "run_classifier"

    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder of the task's data: train.tsv, dev.tsv and test.tsv, or other tables with "
        "--task_name=text. --train_file, --dev_file and --test_file name other files.",
    )
    task_name: str = option(
        help="The task: one of GLUE, such as CoLA, SST-2, MRPC or MNLI, in any case, with or "
        "without hyphens; XNLI, or XNLI-de for a language other than zh; text (or tsv) for files "
        "of your own; or module:Class for a DataProcessor or a Task of your own.",
        hint_if_missing="give text for a table of your own, with --data_dir or --train_file, or a "
        "task of GLUE such as SST-2",
    )
    max_seq_length: int = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        changes_training=True,
        fixed_after_training=True,
        help="The maximum number of tokens of an example, [CLS] and [SEP] included. --long_texts "
        "says how longer examples are read.",
    )
    long_texts: str | None = option(
        fallback=TRUNCATE,
        choices=(TRUNCATE, WINDOWS),
        fixed_by_training=True,
        help="How texts of more than --max_seq_length tokens are read: truncate ignores their "
        "ends, windows reads all of a text in overlapping windows. In training, each window has "
        "the label of the text and a share of its weight. Otherwise --pooling combines their "
        "logits. Not for pairs.",
    )
    doc_stride: int | None = option(
        fallback=128,
        check=LENGTH,
        changes_training=True,
        only_with={"long_texts": (WINDOWS,)},
        help="With --long_texts=windows, the number of tokens from the start of a window to the "
        "start of the next.",
    )
    pooling: str | None = option(
        fallback=WINDOW_POOLINGS[0],
        choices=WINDOW_POOLINGS,
        fixed_by_training=True,
        only_with={"long_texts": (WINDOWS,)},
        help="With --long_texts=windows, how the logits of a text's windows are combined: their "
        "mean, the maximum of each label, or those of the first window.",
    )
    class_weights: list[str] | None = option(
        None,
        fixed_by_training=True,
        help="The weights of the labels in the training loss, separated by commas, in the order of "
        "the labels.",
    )
    abstain_below: float | None = option(
        fallback=None,
        check=PROBABILITY,
        help="Abstain: predict no label for a text if the most probable label is less probable "
        "than this, such as 0.7. A label of the development set that the training set lacks is "
        "then out of scope: the right prediction for it is no label.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOptions(DataFilesOptions):
    """The flags of run_swag.py."""

    script: ClassVar[str] = "run_swag"

    task_name: str = option(
        "swag",
        basic=True,
        choices=("swag", "codah"),
        help="The data set: swag reads train.csv, val.csv and test.csv of --data_dir, or .jsonl "
        "and .parquet with the same columns; codah reads train.tsv, dev.tsv and test.tsv.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingOptions(DataFilesOptions, CalibrationOptions):
    """The flags of run_ner.py."""

    script: ClassVar[str] = "run_ner"

    task_name: str = option(
        "ner",
        help="The task: ner, feature_based (a BiLSTM on an encoder that is not trained), or "
        "module:Class for a Task of your own.",
    )
    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder with the files train, dev and test, each with the suffix .conll, .txt, "
        ".json, .jsonl or .parquet.",
    )
    do_lower_case: bool = option(
        fallback=True,
        fixed_by_training=True,
        help="Lower-case the text. Uncased models need this; cased models, such as the paper's for "
        "named entities, need --nodo_lower_case.",
    )
    document_context: bool = option(
        False,
        changes_training=True,
        help="Fill each window with the text around the sentence in its document, as in the paper. "
        "The files need a -DOCSTART- line before each document.",
    )


AUTO = "auto"


def _is_threshold(text: str) -> bool:
    try:
        return text == AUTO or not math.isnan(float(text))
    except ValueError:
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadServing:
    """How questions are cut into windows, and answers are chosen."""

    doc_stride: int = option(
        128,
        check=LENGTH,
        changes_training=True,
        help="The number of tokens from the start of a window of a long document to the start of "
        "the next.",
    )
    max_query_length: int = option(
        64,
        check=LENGTH_OR_NONE,
        changes_training=True,
        help="The maximum number of tokens of a question. Longer questions are truncated.",
    )
    n_best_size: int = option(
        20,
        check=LENGTH,
        help="The number of start and end positions to consider in each window, and the number of "
        "best answers to keep for each question.",
    )
    max_answer_length: int = option(
        30, check=LENGTH, help="The maximum number of tokens of an answer."
    )
    version_2_with_negative: bool = option(
        False,
        basic=True,
        changes_training=True,
        help="Allow questions without an answer, as in SQuAD 2.0.",
    )
    null_score_diff_threshold: float = option(
        0.0,
        check=(lambda odds: not math.isnan(odds), "must be a number"),
        help="The null odds above which a question is left unanswered. A run with "
        "--null_score_diff_threshold=auto writes the best value into eval_results.txt.",
    )
    length_aware_batches: bool = option(
        False,
        changes_training=True,
        help="Pad a prediction batch to its longest window only, except on a TPU. This is faster, "
        "but a few answers may differ, because the original also ranks padding positions.",
    )


def recorded(options_class: type, task: str, hint: str = "", falls_back: bool = False) -> type:
    """Return an options class with the flags of another, whose defaults come from a model's record.

    Args:
        options_class: the other class.
        task: the name of the task, which the help text of each flag mentions.
        hint: the end of each help text.
        falls_back: whether the defaults of `options_class` apply where there is no record.
    """
    fields = []
    for field in dataclasses.fields(options_class):
        metadata = dict(field.metadata)
        text = metadata["help"]
        metadata["help"] = f"With {task}, {text[0].lower()}{text[1:]}{hint}"
        metadata["basic"] = False
        metadata["read_by"] = ""
        if falls_back:
            metadata["fallback"] = field.default
        optional_field = dataclasses.field(default=None, metadata=metadata)
        fields.append((field.name, value_type(field) | None, optional_field))
    return dataclasses.make_dataclass(options_class.__name__, fields, frozen=True, kw_only=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions(SquadServing, FineTuningOptions):
    """The flags of run_squad.py."""

    script: ClassVar[str] = "run_squad"
    task_name: ClassVar[str] = "squad"

    train_file: str | None = option(
        None,
        basic=True,
        help="The questions to train on: train-v2.0.json or the like, or a table with its columns.",
    )
    predict_file: str | None = option(
        None,
        basic=True,
        help="The questions to answer: dev-v2.0.json or the like, or a table with its columns.",
    )
    max_seq_length: int = option(
        basic=True,
        fallback=384,
        check=LENGTH,
        changes_training=True,
        fixed_after_training=True,
        help="The number of tokens of a window together with its question and the special tokens.",
    )
    verbose_logging: bool = option(
        False, help="Log every answer whose text could not be located in the words of the document."
    )
    null_score_diff_threshold: str = option(
        "0.0",
        check=(
            _is_threshold,
            f"must be a number or {AUTO}; the file of {AUTO} is --null_score_diff_file=FILE",
        ),
        help="The null odds above which a question of SQuAD 2.0 is left unanswered. auto chooses "
        "the threshold with the best F1 on --null_score_diff_file, or without that flag on "
        "--predict_file.",
    )
    null_score_diff_file: str | None = option(
        None,
        only_with={"null_score_diff_threshold": (AUTO,)},
        help="The questions with answers, in SQuAD's format, on which "
        "--null_score_diff_threshold=auto chooses the threshold.",
    )
    ensemble_dirs: list[str] | None = option(
        None,
        help="The --output_dir folders of several runs that predicted the same files, separated by "
        "commas. The script averages their logits instead of running a model.",
    )

    @property
    def set_files(self) -> dict[str, str | None]:
        """The files of the sets train, dev and test that flags name."""
        return {"train": self.train_file, "dev": None, "test": self.predict_file}
