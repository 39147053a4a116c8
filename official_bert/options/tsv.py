"""What run_classifier.py is told of TSV files of the user's own."""

import dataclasses

from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TsvOptions:
    """Flags that only go with --task_name=tsv."""

    text_a_column: str = option("0", help="tsv: column of the text, by name or number (from 0).")
    text_b_column: str | None = option(None, help="tsv: column of the second text of a pair.")
    label_column: str = option("-1", help="tsv: column of the label.")
    labels: list[str] | None = option(
        None, help="tsv: all labels, separated by commas; learnt from the training file when not given."
    )
    has_header: bool = option(True, help="tsv: whether the first line names the columns.")
    multi_label: bool = option(False, help="tsv: whether an example may have several labels.")
    label_separator: str = option(",", help="tsv: what stands between the labels of an example.")
    regression: bool = option(False, help="tsv: whether the label is a score.")
