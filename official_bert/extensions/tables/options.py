"""The flags of tables: those of their columns, and of the columns that predictions add."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import COMMON, TEXT, option
from official_bert.options.fine_tuning import CSV, DATA_FORMATS, NO_QUOTING


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputTableOptions:
    """How official-bert predict reads a table, and what it adds to the table."""

    text_columns: list[str] | None = option(
        None,
        basic=True,
        help="With a table, the columns of the texts of a request, separated by commas, in the "
        "order of the model's texts: the text, or the texts of a pair; question and context; or "
        "context and ending0 to ending3. The default is the columns of the training, or columns of "
        "the usual names.",
    )
    all_probabilities: bool = option(
        False,
        basic=True,
        help="With a table, add a column for each label, with its probability.",
    )
    data_format: str | None = option(
        None,
        choices=DATA_FORMATS,
        help="Read the input as a table of this format, whatever its name ends in.",
    )
    has_header: bool | None = option(
        None,
        help="With a table in TSV or CSV, whether its first line names the columns. Without a "
        "header, columns are numbers from 0. The default is the value of the training, or true.",
    )
    quoting: str | None = option(
        None,
        choices=(NO_QUOTING, CSV),
        help="With a table in TSV, how it uses double quotes. With none they are ordinary "
        "characters, with csv they enclose fields. The default is the value of the training, or "
        "none.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionTableOptions:
    """What --do_predict adds to the test table."""

    chapter: ClassVar[str] = TEXT

    all_probabilities: bool = option(
        False,
        help="With text and --do_predict, the table of predictions has a column for each label, "
        "with its probability.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """The development set of people who have one file."""

    chapter: ClassVar[str] = COMMON

    dev_fraction: float | None = option(
        None,
        basic=True,
        check=(lambda share: 0.0 < share < 1.0, "must be between 0 and 1, such as 0.15 for 15 %"),
        changes_training=True,
        help="The share of the training file that becomes the development set, such as 0.15. It is "
        "drawn at random, by the same seed in each run, with the same shares of the labels as the "
        "file.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTrainingOptions(PredictionTableOptions, SplitOptions):
    """What the extension adds to run_classifier."""
