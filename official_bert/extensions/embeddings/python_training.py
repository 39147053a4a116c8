"""The training of `SentenceEncoder.train`, on texts in memory."""

from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.fine_tuning.python_training import TextTraining

# Flags that arguments replace, and flags of files.
_EXCLUDED_FLAGS = """
output_dir do_train do_eval do_predict search vectors
data_dir train_file dev_file test_file data_sets
anchor_column positive_column negative_columns label_column has_header quoting data_format
"""

TRAINING = TextTraining(
    function="SentenceEncoder.train",
    command="run_embeddings",
    family=EMBEDDING,
    excluded_flags=_EXCLUDED_FLAGS.split(),
    replacements={
        "--output_dir": "folder",
        "--init_checkpoint": "model",
        "--label_column": "labels",
        "name them with --anchor_column, --positive_column and --negative_columns": "give them in "
        "a tuple",
    },
)
