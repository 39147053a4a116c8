"""The options that all fine-tuning scripts share, beside those of every trainer."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, PROBABILITY, SIZE, option
from official_bert.options.model_files import TokenizerOptions
from official_bert.options.precision import EXPORT_DTYPE, EXPORT_DTYPES, FLOAT32
from official_bert.options.search import SearchOptions
from official_bert.options.training import TrainingOptions

EXPORT_TEXT = (
    "Export a model that reads raw text (signature serving_text) instead of token ids and tf.Examples. A server that "
    "loads it needs the ops of tensorflow_text, which TensorFlow Serving has. Such models need an --export_dir of "
    "their own."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions, TokenizerOptions, SearchOptions):
    """Flags that the fine-tuning scripts share.

    Attributes:
        scoring_flags: flags with which a run evaluates after training and does nothing else, for a search.
        development_set: the set that evaluations during training read.
        prediction_flags: flags that only change predictions; a search that is continued may change them.
        large_files: globs of the large files in output_dir that a run can make again.
    """

    scoring_flags: ClassVar[Mapping[str, bool]] = {"do_eval": True, "do_predict": False}
    development_set: ClassVar[str] = "dev"
    prediction_flags: ClassVar[tuple[str, ...]] = ("do_predict", "predict_batch_size", "test_file")
    large_files: ClassVar[tuple[str, ...]] = ("*.tf_record",)

    do_predict: bool = option(
        False, help="Write the predictions for the test set, or in run_squad.py for --predict_file."
    )
    predict_batch_size: int = option(8, check=SIZE, help="The number of examples in a prediction batch.")
    num_train_epochs: float = option(
        3.0, check=NOT_NEGATIVE, help="The number of passes over the training set. It need not be whole."
    )
    warmup_proportion: float = option(
        0.1,
        check=PROBABILITY,
        help="The proportion of all updates during which the learning rate warms up; 0.1 is the first tenth.",
    )
    shuffle_buffer_size: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="The number of examples in the buffer that shuffles the training set; 0 shuffles the whole set anew for "
        "each epoch. Without this flag the original's tasks have a buffer of 100, like the original, and the other "
        "tasks 0.",
    )
    length_aware_batches: bool = option(
        True,
        help="Pad a batch to its longest example instead of --max_seq_length. On a TPU batches are always padded to "
        "--max_seq_length.",
    )
    freeze_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="The number of encoder layers, counted from the input, whose variables are frozen together with the "
        "embeddings. 0 freezes the embeddings only. Without this flag all variables are trainable.",
    )
    num_bilstm_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="The number of bidirectional LSTM layers, with random initial weights, between encoder and head of "
        "the task, as in the paper's ablation. The bert_config.json in --output_dir keeps it. Without this flag it is "
        "that of the configuration, usually 0.",
    )
    eval_every_steps: int = option(
        0,
        check=NOT_NEGATIVE,
        help="Evaluate the model during training, on the development set or in run_squad.py on --predict_file, "
        "whenever this many updates are done. output_dir/best keeps the checkpoint that is best by the task's "
        "metric, and evaluation and prediction after training use it. 0 means never.",
    )
    eval_every_epochs: float = option(
        0.0,
        check=NOT_NEGATIVE,
        help="The same as --eval_every_steps, counted in passes over the training set. 0 means never.",
    )
    early_stopping_patience: int | None = option(
        None,
        check=POSITIVE,
        help="Stop training when this many evaluations in a row have brought no better result. Without this flag "
        "training does not stop early.",
    )
    export_dir: str | None = option(
        None,
        help="The folder that a model server watches. After training the script exports the model into it as the "
        "next version, like export_saved_model.py.",
    )
    export_text: bool = option(False, help=EXPORT_TEXT)
    export_dtype: str = option(FLOAT32, choices=EXPORT_DTYPES, help=EXPORT_DTYPE)

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train, dev or test; None for that in --data_dir."""
        return None

    @property
    def evaluates_during_training(self) -> bool:
        """Whether the flags ask for evaluations during training."""
        return self.do_train and bool(self.eval_every_steps or self.eval_every_epochs)
