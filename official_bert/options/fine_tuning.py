"""What every fine-tuning script is told beside what every trainer is."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, PROBABILITY, option
from official_bert.options.search import SearchOptions
from official_bert.options.training import TrainingOptions

EXPORT_TEXT = (
    "Whether the export reads raw text (signature serving_text) instead of token ids and tf.Examples. A server needs "
    "tensorflow_text's ops to load it, which TensorFlow Serving has; export into a folder of its own."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions, SearchOptions):
    """Flags that the fine-tuning scripts share.

    Attributes:
        scoring_flags: flags with which a run evaluates after training and does nothing else, for a search.
        development_set: the set that evaluations during training read.
    """

    scoring_flags: ClassVar[Mapping[str, bool]] = {"do_eval": True, "do_predict": False}
    development_set: ClassVar[str] = "dev"

    vocab_file: str = option(help="The vocabulary file that the BERT model was trained on.")
    do_lower_case: bool = option(
        True, help="Whether to lower case the input text: True for uncased models, False for cased ones."
    )
    strip_accents: bool | None = option(
        None, help="Whether to strip accents; as --do_lower_case when not given, like the original."
    )
    do_predict: bool = option(False, help="Whether to run the model in inference mode on the test set.")
    predict_batch_size: int = option(8, check=POSITIVE, help="Examples in one prediction batch.")
    num_train_epochs: float = option(3.0, check=NOT_NEGATIVE, help="Passes over the training set.")
    warmup_proportion: float = option(
        0.1, check=PROBABILITY, help="Share of the updates that are learning rate warm-up."
    )
    shuffle_buffer_size: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="Examples that are shuffled at a time; 0 shuffles the whole set each epoch. When not given: 100 for "
        "the original's tasks, like the original, and 0 for the others.",
    )
    length_aware_batches: bool = option(
        True,
        help="Whether a batch is padded to its longest example instead of --max_seq_length (never on TPU).",
    )
    freeze_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="Encoder layers, counted from the input, that stay as they are, and with them the embeddings: 0 freezes "
        "only those.",
    )
    eval_every_steps: int = option(
        0,
        check=NOT_NEGATIVE,
        help="Updates between two evaluations on the dev set (SQuAD: --predict_file) during training; 0 for none. The "
        "checkpoint that is best by the task's metric is kept in output_dir/best, and what follows training uses it.",
    )
    eval_every_epochs: float = option(
        0.0, check=NOT_NEGATIVE, help="The same in passes over the training set; 0 for none."
    )
    early_stopping_patience: int | None = option(
        None,
        check=POSITIVE,
        help="Evaluations without a better one after which training stops; never when not given.",
    )
    export_dir: str | None = option(
        None,
        help="Folder that a server watches: after training the model becomes the next version in it, as "
        "export_saved_model.py makes it.",
    )
    export_text: bool = option(False, help=EXPORT_TEXT)

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train, dev or test; None for that in --data_dir."""
        return None

    @property
    def evaluates_during_training(self) -> bool:
        """Whether the flags ask for evaluations during training."""
        return self.do_train and bool(self.eval_every_steps or self.eval_every_epochs)
