"""The training of `SentenceEncoder.train`, on texts in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert import catalog
from official_bert.data.text_tables import make_examples
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.fine_tuning import earlier_training, python_training
from official_bert.io import progress, reading
from official_bert.io.errors import naming_arguments

_COMMAND = "run_embeddings"
# Flags that arguments replace, and flags of files.
_EXCLUDED_FLAGS = """
output_dir do_train do_eval do_predict search vectors
data_dir train_file dev_file test_file data_sets set_sampling main_set
anchor_column positive_column negative_columns label_column has_header quoting data_format
"""
# The parts of messages about flags that are no arguments, and what they are in a call.
_REPLACEMENTS = {
    "--output_dir": "folder",
    "--init_checkpoint": "model",
    "--label_column": "labels",
    "name them with --anchor_column, --positive_column and --negative_columns": "give them in a "
    "tuple",
}


def train(
    folder: str | os.PathLike,
    sets: Mapping[str, tuple[Iterable, Iterable | None]],
    model: str | os.PathLike | None,
    flags: Mapping[str, Any],
    handling: python_training.Handling,
) -> dict[str, float] | None:
    """Trains a model of embeddings in a folder.

    Args:
        folder: the folder.
        sets: the examples and the labels of the set train and, if there is one, dev.
        model: the folder or the name of the model to begin with.
        flags: further flags of run_embeddings by name.
        handling: what is done with a folder that holds another training.

    Returns:
        The metrics of the dev set; None without one.

    Raises:
        InputError: an argument, the data or the folder cannot be used.
    """
    fields = python_training.list_arguments(_COMMAND, _EXCLUDED_FLAGS.split())
    with naming_arguments(fields, _REPLACEMENTS):
        examples = {name: make_examples(*data, name) for name, data in sets.items()}
        values = python_training.check_flags(flags, fields, "SentenceEncoder.train", _COMMAND)
        with progress.shown_in_python(bool(handling.verbose)):
            options = catalog.options_class(_COMMAND)(
                output_dir=os.fspath(folder),
                model=model and os.fspath(model),
                do_train=True,
                do_eval="dev" in sets,
                **values,
            )
        digest = earlier_training.rows_digest(example[1:] for example in examples["train"])
        python_training.train_in_folder(options, EMBEDDING, examples, digest, handling)
    if "dev" not in sets:
        return None
    return reading.read_metrics(os.path.join(options.output_dir, "eval_results.txt"))
