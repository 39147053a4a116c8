"""The options of run_classifier.py for TSV files of the user's own."""

import dataclasses

from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TsvOptions:
    """Flags that only go with --task_name=tsv."""

    text_a_column: str = option(
        "0", help="With tsv, the column of the text: its name, or its number counted from 0."
    )
    text_b_column: str | None = option(
        None, help="With tsv, the column of the second text if the examples are pairs: its name or number."
    )
    label_column: str = option(
        "-1", help="With tsv, the column of the label: its name or number; -1 is the last column."
    )
    labels: list[str] | None = option(
        None,
        help="With tsv, all labels, separated by commas. Without this flag the script takes them from the training "
        "file.",
    )
    has_header: bool = option(True, help="With tsv, read the first line as the names of the columns.")
    multi_label: bool | None = option(otherwise=False, help="With tsv, let an example have several labels.")
    label_separator: str = option(
        ",", help="With tsv and --multi_label, the text that separates the labels of an example."
    )
    regression: bool | None = option(otherwise=False, help="With tsv, read the label as a score to predict.")
