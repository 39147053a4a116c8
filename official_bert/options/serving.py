"""The options of the scripts that use or convert a trained model: features, exports,
predictions, checkpoints.
"""

import dataclasses
from typing import ClassVar

from official_bert.core import CORE
from official_bert.options.fields import (
    MIN_SEQ_LENGTH,
    POSITIVE,
    PROBABILITY,
    SIZE,
    option,
)
from official_bert.options.fine_tuning import (
    LABEL_TYPES,
    SINGLE,
    WINDOW_POOLINGS,
    SquadServing,
    recorded,
)
from official_bert.options.shared import (
    ALLOW_MISSING_WEIGHTS,
    BFLOAT16,
    CHECKPOINT_FORMS,
    FLOAT32,
    ConfigOptions,
    PrecisionOptions,
    TokenizerOptions,
)

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "weighted_mean", "last")
TENSORS, EXAMPLES = "tensors", "examples"
STANDARD = "-"  # the name of standard input and standard output
SAVED_MODEL = "saved_model"  # the format of the core's exports


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions(ConfigOptions, TokenizerOptions, PrecisionOptions):
    """The flags of extract_features.py."""

    input_file: str = option(
        help="The text to read, with one example a line. The two texts of a pair are separated by "
        "' ||| '."
    )
    output_file: str = option(
        help="The file to write, with a JSON object for each line of the text."
    )
    init_checkpoint: str | None = option(
        None,
        help=f"The checkpoint with the model's weights: {CHECKPOINT_FORMS}. You need it unless "
        "you pass --model.",
    )
    allow_missing_weights: bool = option(False, help=ALLOW_MISSING_WEIGHTS)
    layers: str = option(
        "-1,-2,-3,-4",
        basic=True,
        help="The encoder layers whose output is written, in this order, separated by commas. 0 is "
        "the first layer, -1 the last.",
    )
    pooling: str | None = option(
        None,
        basic=True,
        choices=POOLINGS,
        help="Write one vector for each line, from the first layer in --layers. mean is the mean "
        "of the tokens' vectors, cls the vector of [CLS], max the maximum of each component, and "
        "mean_sqrt_len the sum divided by the square root of the number of tokens. weighted_mean "
        "counts the n-th token n times, and last is the vector of the last token. Without this "
        "flag, the vectors of all tokens are written.",
    )
    attentions: bool = option(
        False,
        help="Also write the attention probabilities of the layers in --layers: for each head, a "
        "row for each token with its attention to all tokens.",
    )
    max_seq_length: int | None = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        fixed_by_training=True,
        help="The maximum number of tokens of an example, special ones included. Longer examples "
        "are truncated, and shorter ones are padded.",
    )
    batch_size: int = option(
        32,
        basic=True,
        check=SIZE,
        help="The number of examples in a batch. The output does not depend on it.",
    )
    use_tpu: bool = option(
        False,
        help="Run on the TPU of --master. Without this flag the script runs on the first GPU or "
        "the CPU.",
    )
    master: str | None = option(
        None,
        help="The TPU that --use_tpu runs on: its name, its grpc:// address, or local on a TPU VM.",
    )
    num_tpu_cores: int = option(
        8,
        check=POSITIVE,
        help="The number of cores of the TPU. The script refuses a TPU that has another number.",
    )
    use_one_hot_embeddings: bool = option(
        False,
        help="Look up word embeddings with a product of one-hot vectors and the table, which is "
        "often faster on a TPU.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedOptions(
    ConfigOptions, TokenizerOptions, recorded(SquadServing, "squad", falls_back=True)
):
    """The properties of a trained model that its folder may lack."""

    task_name: str | None = option(
        None,
        basic=True,
        help="The task that the checkpoint was trained on: a task of run_classifier.py (such as "
        "CoLA, MNLI or text), squad, swag, codah or ner; pretraining for the vectors and the "
        "masked words of a pre-trained model; embedding for one vector of a text; or module:Class "
        "for a task of your own. The default is the task that the folder of the checkpoint "
        "records.",
    )
    init_checkpoint: str | None = option(
        None,
        help=f"The checkpoint to export: {CHECKPOINT_FORMS}. You need it unless you pass --model.",
    )
    max_seq_length: int | None = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        fixed_by_training=True,
        help="The number of tokens, special ones included, to which the export truncates text. The "
        "default is the length of the training. Requests of token ids may be as long as the model "
        "has positions.",
    )
    labels: list[str] | None = option(
        None,
        basic=True,
        read_by="",
        help="The labels of text or ner, separated by commas. The default is those that training "
        "wrote into the folder of the checkpoint.",
    )
    label_type: str | None = option(
        fallback=SINGLE,
        choices=LABEL_TYPES,
        fixed_by_training=True,
        read_by="",
        help="With text, the target of an example: single is one label, multi any number of "
        "labels, score a number.",
    )
    pooling: str | None = option(
        fallback=WINDOW_POOLINGS[0],
        choices=WINDOW_POOLINGS,
        fixed_by_training=True,
        read_by="--long_texts=windows",
        help="With a classifier of --long_texts=windows, its --pooling.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(ServedOptions):
    """The flags of export_saved_model."""

    export_dir: str = option(
        help="The folder that the model server watches. The export becomes a subfolder, named by "
        "the next version number."
    )
    export_text: bool = option(
        False,
        basic=True,
        help="Export a model that reads raw text (signature serving_text) instead of token ids and "
        "tf.Examples. It needs TensorFlow's built-in operations only, and a separate "
        "--export_dir.",
    )
    abstain_below: float | None = option(
        fallback=None,
        check=PROBABILITY,
        read_by="",
        help="With a single-label classifier, the probability below which the export predicts no "
        "label. The default is the --abstain_below of the training. With 0, every text gets a "
        "label.",
    )
    pre_tokenized: bool = option(
        False,
        read_by="",
        help="With a tagger, only blanks separate the words of a text, as in the files of "
        "run_ner.py. Without this flag, punctuation and ideographs are words of their own.",
    )
    dtype: str = option(
        FLOAT32,
        basic=True,
        choices=(FLOAT32, BFLOAT16),
        help="The type of the export's kernels, embedding tables and matrix products. bfloat16 "
        "halves the size of a SavedModel, and is faster on newer GPUs and CPUs with AMX or "
        "AVX512_BF16.",
    )
    estimator_signatures: str | None = option(
        None,
        choices=(TENSORS, EXAMPLES),
        help="With a classifier, make serving_default the signature of an Estimator's export of "
        "run_classifier.py's model, with probabilities as the only output, so that its clients "
        "need no change. The inputs of tensors are the ids, the mask, the segments and label_ids, "
        "which is ignored. That of examples is serialized tf.Examples.",
    )


TSV, JSON = "tsv", "json"
STOP, REPORT = "stop", "report"
POOLED, SEQUENCE = "pooled_output", "sequence_output"
POOLER, NO_POOLING = "pooler", "none"


class PredictorSettings:
    """Marks an options class of official-bert predict whose flags are also settings of
    official_bert.Predictor.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictorOptions(
    PredictorSettings,
    recorded(SquadServing, "SQuAD", " The default is the value of the export."),
):
    """How a model predicts."""

    model: str = option(
        help="The model: the folder of an exported version, an --export_dir with its newest "
        "version, the --output_dir of a training script, another folder of a model, or the name of "
        "one."
    )
    batch_size: int = option(
        32,
        basic=True,
        check=SIZE,
        help="The number of examples in a batch. The predictions do not depend on it.",
    )
    num_threads: int | None = option(
        None,
        check=SIZE,
        help="The number of threads of the computation, by default one for each processor.",
    )
    pooling: str | None = option(
        fallback=POOLER,
        basic=True,
        choices=(POOLER, NO_POOLING),
        help="The output of a pre-trained model for a text without [MASK]. pooler is one vector, "
        "the output of BERT's pooler; none is a vector for each token.",
    )
    abstain_below: float | None = option(
        None,
        check=PROBABILITY,
        help="With a single-label classifier, override its --abstain_below: predict no label below "
        "this probability. With 0, every text gets a label.",
    )
    pre_tokenized: bool | None = option(
        None,
        help="With a tagger, only blanks separate the words of a text, as in the files of "
        "run_ner.py. Without this flag, punctuation and ideographs are words of their own, as "
        "running text needs. An export of text keeps the value of its export.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictorOptions):
    """Flags of official-bert predict."""

    input_file: str = option(
        STANDARD, basic=True, help="The file to read, with one request a line; - is standard input."
    )
    output_file: str = option(
        STANDARD,
        basic=True,
        help="The file to write, with a JSON object for each line of the input, or the table with "
        "the predictions; - is standard output.",
    )
    input_format: str | None = option(
        None,
        basic=True,
        choices=(TSV, JSON),
        help="The format of a line. tsv: texts, separated by tabs. json: an object whose fields "
        "are text_a and text_b; text (ner); question and context; or context and ending0 to "
        "ending3. A field id is copied to the output. Other fields are ignored with a warning. The "
        "default is a table for files that end in .csv, .tsv, .jsonl or .parquet, and else tsv.",
    )
    on_error: str = option(
        STOP,
        basic=True,
        choices=(STOP, REPORT),
        help="What to do with an invalid line: stop ends the script with exit status 1, report "
        "writes an object with the field error for that line and continues.",
    )


TOP_K = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class HitOptions:
    """The flag that the searches of extensions share."""

    top_k: int | None = option(
        None,
        basic=True,
        check=SIZE,
        only_with={"search": (), "token_search": ()},
        help=f"With --search or --token_search, the number of texts in an answer; {TOP_K} without "
        "this flag.",
    )


FORMATS = ("tf1", "tf1_weights", "huggingface")
# The class of transformers for a head of one linear layer, by the family of its task.
MODEL_CLASSES = {
    name: family.huggingface_class
    for name, family in CORE.families.items()
    if family.conversion_tasks
}
# The families of the tasks that a conversion accepts.
FAMILIES = {
    task: name for name, family in CORE.families.items() for task in family.conversion_tasks
}
# The name of the task and its family, by the class of transformers.
CLASS_TASKS = {
    family.huggingface_class: ((family.conversion_tasks or family.tasks)[-1], name)
    for name, family in CORE.families.items()
    if family.huggingface_class
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """The flags of convert_checkpoint."""

    model: str = option(
        help="The checkpoint to convert: a TF1 checkpoint prefix or folder, the --output_dir of a "
        "training script, or a Hugging Face folder or its model.safetensors file, or the name of a "
        "model, which is downloaded."
    )
    output_dir: str = option(help="The folder where the script writes the converted checkpoint.")
    output_format: str = option(
        choices=FORMATS,
        help="The format to convert to: tf1 writes bert_model.ckpt, bert_config.json and "
        "vocab.txt; tf1_weights leaves out the Adam slots and global_step, which are two thirds of "
        "a training checkpoint; huggingface writes model.safetensors, config.json, vocab.txt, "
        "tokenizer.json, and for embedding models the files of sentence-transformers.",
    )
    task_name: str | None = option(
        None,
        choices=tuple(FAMILIES),
        help="With huggingface, the kind of task of a model whose head is one linear layer, "
        "because the weights do not show whether it classifies texts, tokens or choices. The "
        "default is that of the record in the checkpoint's folder.",
    )
    bert_config_file: str | None = option(
        None,
        help="The model's configuration; by default bert_config.json or config.json in the "
        "checkpoint's folder.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether the model reads lower-cased text, for the tokenizer_config.json in "
        "--output_dir. The default is that of the tokenizer_config.json or tokenizer.json in "
        "the checkpoint's folder, or true if there is none.",
    )
    vocab_file: str | None = option(
        None,
        help="The model's vocabulary; by default vocab.txt, or else tokenizer.json, in the "
        "checkpoint's folder.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthOptions(ConfigOptions, TokenizerOptions):
    """The flags of grow_vocab."""

    max_seq_length: ClassVar[int] = 1  # not a flag: the configuration may have any length

    model: str = option(help=f"The model: {CHECKPOINT_FORMS}.")
    words: str = option(
        help="The file of the new words, one on each line. A word that the model's tokenizer "
        "splits into several words, as at a hyphen, is rejected. One that is already a piece is "
        "ignored."
    )
    output_dir: str = option(
        help="The folder for the new model, in the format of the old one. The words replace "
        "[unusedN] in its vocabulary, or become new lines at its end."
    )
