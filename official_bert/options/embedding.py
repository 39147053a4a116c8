"""The options of run_embeddings.py and mine_hard_negatives.py."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, SIZE, are_settings, option
from official_bert.options.fine_tuning import CSV, DATA_FORMATS, NO_QUOTING, DataFilesOptions
from official_bert.options.serving import POOLINGS

# The parts of an example, and the usual names of their columns, in lower case.
COLUMNS = {
    "anchor": (
        "anchor",
        "query",
        "question",
        "sentence1",
        "sentence_a",
        "text_a",
        "text",
        "sentence",
    ),
    "positive": ("positive", "answer", "passage", "document", "sentence2", "sentence_b", "text_b"),
    "negative": ("negative", "negatives"),
    "label": ("label", "score", "similarity_score", "similarity", "relatedness_score"),
    "header": (),
}
LOSSES = ("multiple_negatives_ranking", "simcse", "cosent", "cosine_similarity", "triplet", "mse")
EVALUATIONS = ("sts", "pairs", "triplets", "retrieval", "clustering", "few_shot")


def _are_widths(texts: list[str]) -> bool:
    """Returns whether texts are numbers of components, each once."""
    if not all(text.isascii() and text.isdecimal() and len(text) < 8 for text in texts):
        return False
    widths = [int(text) for text in texts]
    return all(map(SIZE[0], widths)) and len(set(widths)) == len(widths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTables:
    """How the tables of texts that belong together are read."""

    columns: str | None = option(
        None,
        basic=True,
        check=(
            lambda text: are_settings(text, COLUMNS),
            'must have the form "anchor=question,positive=answer,negative=wrong,label=score,header=true", or be a part '
            "of that",
        ),
        help="The columns of the texts, by name or, with header=false, by number from 0, such as "
        "--columns=anchor=question,positive=answer. negative may be several columns, label is the "
        "score of a pair or the class of a text; label= leaves a column of that name out. Without "
        "this flag columns of usual names are read, in any case: anchor, query, sentence1, text; "
        "positive, answer, sentence2; negative, negative_1; label, score. Files .txt have one "
        "sentence a line.",
    )
    quoting: str = option(
        NO_QUOTING,
        choices=(NO_QUOTING, CSV),
        help="What a double quote is in a TSV file: none, a character as any other; csv, the bound "
        "of a field.",
    )
    data_format: str | None = option(
        None,
        choices=DATA_FORMATS,
        help="The form of tables whose names do not end in .tsv, .csv, .jsonl or .parquet.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(DataFilesOptions, TextTables):
    script: ClassVar[str] = "run_embeddings"
    task_name: ClassVar[str] = "embedding"

    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder with the files train, dev and test, each a .tsv, .csv, .jsonl, .parquet "
        "or .txt.",
    )
    loss: str = option(
        LOSSES[0],
        basic=True,
        choices=LOSSES,
        fixed_by_training=True,
        help="What the training minimises. multiple_negatives_ranking: for each first text, find "
        "its second among those of the whole batch, and among hard negatives if the examples have "
        "some. simcse: the same with one sentence under two dropout masks. cosent, "
        "cosine_similarity: order pairs, or let their cosine be, as their scores say. triplet: the "
        "second text nearer than the third. mse: the vectors of --teacher.",
    )
    matryoshka: list[str] | None = option(
        None,
        check=(_are_widths, "must be different positive whole numbers, separated by commas"),
        fixed_by_training=True,
        help="Apply the loss to the first components of the vectors, too: all wanted numbers of "
        "components, such as 768,384,128,64. Cut vectors can then be used (Kusupati et al., 2022).",
    )
    scale: float = option(
        20.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking", "simcse", "cosent")},
        help="What multiple_negatives_ranking, simcse and cosent multiply cosines by, the inverse "
        "of a temperature.",
    )
    symmetric: bool = option(
        False,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking", "simcse")},
        help="With multiple_negatives_ranking, find the first text among those of the batch by its "
        "second, too.",
    )
    triplet_margin: float = option(
        5.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("triplet",)},
        help="With triplet, by how much the third text must be farther, as a Euclidean distance.",
    )
    teacher: str | None = option(
        None,
        changes_training=True,
        names_model=True,
        help="With mse, the folder or the name of the model whose vectors are learned, as of "
        "SentenceEncoder.",
    )
    pooling: str | None = option(
        fallback=None,
        choices=POOLINGS,
        fixed_by_training=True,
        help="How the vectors of the tokens become one: their mean, that of [CLS], the maximum of "
        "each component, or mean_sqrt_len, their sum divided by the square root of their number. "
        "Without this flag, and the next two, the folder of the model decides if it is one of "
        "vectors; else the mean.",
    )
    projection: int | None = option(
        fallback=None,
        check=SIZE,
        fixed_by_training=True,
        help="The width of a linear layer behind the pooling; none without this flag.",
    )
    normalize: bool | None = option(
        fallback=None,
        fixed_by_training=True,
        help="Divide the vectors by their norms, so that a product of two is their cosine.",
    )
    eval_task: str | None = option(
        None,
        choices=EVALUATIONS,
        only_with={"do_eval": (), "eval_every": ()},
        help="What --do_eval measures: sts, how cosines follow the scores of pairs; pairs, how "
        "they tell pairs of label 1 from those of label 0; triplets; retrieval of the positives "
        "among all texts of the file, or, if pairs have a label, among those of the query; "
        "clustering by the label; few_shot, a classifier of the label that sees 8 and 16 examples "
        "of each, drawn from half of the file. Without this flag the columns decide.",
    )
    vectors: str | None = option(
        None,
        help="Evaluate, instead of a model, an export, or the vectors of another system: a .npy "
        "file with those of the different texts of --dev_file, in the order in which they come, as "
        "in test_texts.jsonl of --do_predict.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiningOptions(TextTables):
    after_a_stop: ClassVar[str] = "the same command goes on behind the lines that are finished"

    input_file: str = option(
        help="The pairs: TSV, CSV, JSON lines or Parquet files with names of columns, with commas "
        "between, or a glob."
    )
    model: str = option(
        help="The model of vectors that finds the negatives: an export of --task_name=embedding, "
        "or a folder of sentence-transformers."
    )
    output_file: str = option(
        help="The file to write, with a JSON object for each pair: anchor, positive, and negative, "
        "a list of texts, the nearest to the anchor first."
    )
    corpus_file: str | None = option(
        None,
        basic=True,
        help="The texts to choose from, one a line, or an .npz file of predict.py --index; by "
        "default all positives.",
    )
    num_negatives: int = option(
        5,
        basic=True,
        check=SIZE,
        help="The most negatives of a pair; one without so many gets fewer, or none.",
    )
    top_k: int = option(
        50,
        basic=True,
        check=SIZE,
        help="How many of the texts nearest to an anchor may become its negatives.",
    )
    skip_top: int = option(
        0,
        basic=True,
        check=NOT_NEGATIVE,
        help="How many of the nearest are left out, which may be unmarked positives.",
    )
    margin: float | None = option(
        None,
        basic=True,
        check=(lambda margin: 0 <= margin <= 2, "must lie between 0 and 2"),
        help="The cosine of a negative is at least this far below that of the positive.",
    )
    max_score: float | None = option(
        None,
        basic=True,
        check=(lambda score: -1 <= score <= 1, "must lie between -1 and 1"),
        help="The highest cosine of a negative with its anchor.",
    )
    batch_size: int = option(
        32, check=SIZE, help="The number of texts that the model is given at once."
    )
