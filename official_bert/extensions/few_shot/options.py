"""The flags of run_few_shot."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, NOT_NEGATIVE, POSITIVE, SIZE, option
from official_bert.options.table_columns import TableFormat

COSINE_SIMILARITY, RANKING = "cosine_similarity", "multiple_negatives_ranking"
LOSSES = (COSINE_SIMILARITY, RANKING, "cosent")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShotOptions(TableFormat):
    train_file: str = option(
        basic=True,
        help="The training examples, at least two of each label: a .tsv, .csv, .jsonl or .parquet.",
    )
    dev_file: str | None = option(
        None, basic=True, help="Examples to evaluate the classifier on, in a file of the same form."
    )
    model: str = option(
        basic=True,
        names_model=True,
        help="The encoder to begin with: the folder or the name of a model. One of sentence "
        "embeddings needs far fewer examples than a pre-trained BERT.",
    )
    output_dir: str = option(
        basic=True,
        help="The folder of the classifier. Its folder encoder has the trained encoder.",
    )
    text_a_column: str | None = option(
        None,
        basic=True,
        help="The column of the text, by name or by number from 0. Without this flag it is the "
        "column called text, text_a, sentence or sentence1, or the only one besides the label.",
    )
    label_column: str | None = option(
        None,
        basic=True,
        help="The column of the label. Without this flag it is the column called label or labels, "
        "or the only one besides the text.",
    )
    loss: str = option(
        COSINE_SIMILARITY,
        choices=LOSSES,
        help="How the encoder learns from pairs, as in run_embeddings. cosine_similarity: the "
        "cosine is 1 for two texts of a label and 0 for texts of two labels. cosent: the "
        "cosines of the first are larger. multiple_negatives_ranking: find a text of the same "
        "label among those of the batch, which is for many labels.",
    )
    num_pairs: int = option(
        20,
        check=SIZE,
        help="For each text, the number of pairs with texts of its label. As many pairs are with "
        "texts of other labels.",
    )
    train_encoder: bool = option(
        True,
        help="Train the encoder. Without it, only the logistic regression is trained, which takes "
        "seconds.",
    )
    num_train_epochs: float = option(
        1.0, basic=True, check=POSITIVE, help="The number of passes over the pairs."
    )
    learning_rate: float = option(2e-5, basic=True, check=POSITIVE, help="The learning rate.")
    train_batch_size: int = option(16, check=SIZE, help="The number of pairs in a batch.")
    max_seq_length: int = option(
        128, basic=True, check=MIN_SEQ_LENGTH, help="The number of tokens to which texts are cut."
    )
    regularization: float = option(
        1.0,
        check=POSITIVE,
        help="The inverse strength of the regularization of the logistic regression, the C of "
        "scikit-learn.",
    )
    random_seed: int = option(0, check=NOT_NEGATIVE, help="The seed of the pairs and the training.")

    @property
    def resume_hint(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command continues"


def check_paths(options: FewShotOptions) -> None:
    """Check the tables and the model.

    Args:
        options: the flags of the command.

    Raises:
        InputError: one of them is missing.
    """
    # The import is here, because --help needs no check.
    from official_bert.commands import first_checks

    first_checks.check_tables(options.train_file, "train_file")
    if options.dev_file:
        first_checks.check_tables(options.dev_file, "dev_file")
    first_checks.check_checkpoint(options.model)
