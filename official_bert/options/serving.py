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

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len")
TENSORS, EXAMPLES = "tensors", "examples"
SAVED_MODEL = "saved_model"  # the format of the core's exports


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions(ConfigOptions, TokenizerOptions, PrecisionOptions):
    input_file: str = option(
        help="The text to read, with one example a line. The two texts of a pair are separated by "
        "' ||| '."
    )
    output_file: str = option(
        help="The file to write, with a JSON object for each line of the text."
    )
    init_checkpoint: str | None = option(
        None,
        help=f"The checkpoint with the model's weights: {CHECKPOINT_FORMS}. It must be given "
        "unless --model is.",
    )
    allow_missing_weights: bool = option(False, help=ALLOW_MISSING_WEIGHTS)
    layers: str = option(
        "-1,-2,-3,-4",
        basic=True,
        help="The encoder layers whose output is written, in this order, with commas: 0 is the "
        "first, -1 the last.",
    )
    pooling: str | None = option(
        None,
        basic=True,
        choices=POOLINGS,
        help="Write one vector for each line, from the first layer in --layers: the mean of the "
        "tokens' vectors, the vector of [CLS], the largest value of each coordinate, or with "
        "mean_sqrt_len the sum divided by the square root of the number of tokens. Without it, the "
        "vectors of all tokens are written.",
    )
    attentions: bool = option(
        False,
        help="Write the attention probabilities of the layers in --layers, too: for each head a "
        "row for each token, with the probabilities with which it attends to all tokens.",
    )
    max_seq_length: int | None = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        fixed_by_training=True,
        help="The number of tokens, special ones included, that an example may have. Longer "
        "examples are truncated, and the model sees shorter ones padded.",
    )
    batch_size: int = option(
        32,
        basic=True,
        check=SIZE,
        help="The number of examples in a batch. The output does not depend on it.",
    )
    use_tpu: bool = option(
        False,
        help="Run on the TPU that --master names. Without it the script runs on the first GPU or "
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
    """What a trained model is, as far as its folder does not say it."""

    task_name: str | None = option(
        None,
        basic=True,
        help="The task that the checkpoint was trained on: a task of run_classifier.py (such as "
        "CoLA, MNLI or text), squad, swag, codah or ner; pretraining for the vectors and the "
        "masked words of a pre-trained model; embedding for one vector of a text; or module:Class "
        "for a task of your own. Without this flag the folder of the checkpoint says what it was "
        "trained on.",
    )
    init_checkpoint: str | None = option(
        None,
        help=f"The checkpoint to export: {CHECKPOINT_FORMS}. It must be given unless --model is.",
    )
    max_seq_length: int | None = option(
        basic=True,
        fallback=128,
        check=MIN_SEQ_LENGTH,
        fixed_by_training=True,
        help="The number of tokens, special ones included, to which the export truncates text. "
        "Without this flag it is the length of the training. Requests that hold token ids may be "
        "as long as the model has positions.",
    )
    labels: list[str] | None = option(
        None,
        basic=True,
        read_by="",
        help="The labels of text or ner, separated by commas. Without this flag the script reads "
        "those that training wrote beside the checkpoint.",
    )
    label_type: str | None = option(
        fallback=SINGLE,
        choices=LABEL_TYPES,
        fixed_by_training=True,
        read_by="",
        help="With text, what an example has: single is one label, multi any number of labels, "
        "score a number.",
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
    export_dir: str = option(
        help="The folder that the model server watches; the export is a folder in it, named as the "
        "next version."
    )
    export_text: bool = option(
        False,
        basic=True,
        help="Export a model that reads raw text (signature serving_text) instead of token ids and "
        "tf.Examples, of TensorFlow's own operations. Give it an own --export_dir.",
    )
    dtype: str = option(
        FLOAT32,
        basic=True,
        choices=(FLOAT32, BFLOAT16),
        help="The type of the export's kernels and tables of embeddings, and of its matrix "
        "products. bfloat16 halves the size of a SavedModel, and is faster on devices that "
        "multiply it: newer GPUs and CPUs with AMX or AVX512_BF16.",
    )
    estimator_signatures: str | None = option(
        None,
        choices=(TENSORS, EXAMPLES),
        help="With a classifier, make serving_default the signature that an Estimator's export of "
        "run_classifier.py's model had, with the output probabilities alone, so that its clients "
        "need no change. tensors takes the ids, the mask, the segments and label_ids, which is "
        "ignored; examples takes serialized tf.Examples.",
    )


TSV, JSON = "tsv", "json"
STOP, REPORT = "stop", "report"
POOLED, SEQUENCE = "pooled_output", "sequence_output"
POOLER, NO_POOLING = "pooler", "none"


class PredictorSettings:
    """Marks an options class whose flags of official-bert predict are settings of
    official_bert.Predictor, too.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictorOptions(
    PredictorSettings,
    recorded(SquadServing, "SQuAD", " Without this flag the value of the export holds."),
):
    """How a model answers."""

    model: str = option(
        help="The exported model: the folder of a version, or an --export_dir, whose newest "
        "version is taken. The --output_dir of a training script, or another folder or the name of "
        "a model, needs no export."
    )
    batch_size: int = option(
        32,
        basic=True,
        check=SIZE,
        help="The number of examples that the model is given at once. The answers do not depend on "
        "it.",
    )
    num_threads: int | None = option(
        None,
        check=SIZE,
        help="The number of threads that the model computes with; by default all processors.",
    )
    pooling: str | None = option(
        fallback=POOLER,
        basic=True,
        choices=(POOLER, NO_POOLING),
        help="The answer of a pre-trained model to a text without [MASK]: one vector, the output "
        "of BERT's pooler, or with none a vector for each token.",
    )
    abstain_below: float | None = option(
        None,
        check=PROBABILITY,
        help="With a classifier of one label, another threshold than its --abstain_below: no label "
        "below this probability; with 0 every text gets one.",
    )
    split_punctuation: bool | None = option(
        None,
        help="With a tagger, whether punctuation and ideographs are words of their own, as in "
        "running text, or words are what blanks separate. By default the words of a model that "
        "run_ner.py trained are separated by blanks, as in its data, and those of a folder of "
        "transformers are split.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictorOptions):
    """Flags of official-bert predict."""

    input_file: str = option(
        "-", basic=True, help="The file to read, with one request a line; - is standard input."
    )
    output_file: str = option(
        "-",
        basic=True,
        help="The file to write, with a JSON object for each line of the input; - is standard "
        "output.",
    )
    input_format: str = option(
        TSV,
        basic=True,
        choices=(TSV, JSON),
        help="The form of a line. tsv: texts, separated by tabs. json: an object that names its "
        "texts: text_a and text_b; text (ner); question and context; or context and ending0 to "
        "ending3. The answer gets its id, if it has one; its other fields are ignored, with a "
        "warning.",
    )
    on_error: str = option(
        STOP,
        basic=True,
        choices=(STOP, REPORT),
        help="The reaction to a line that is no valid request: stop ends the script with exit "
        "status 1; report writes an object with the field error for that line and continues.",
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
        "tokenizer.json, and what sentence-transformers reads of vectors.",
    )
    task_name: str | None = option(
        None,
        choices=tuple(FAMILIES),
        help="With huggingface, a task like that of a model whose head is one linear layer, since "
        "its weights do not show whether it reads texts, tokens or choices. Without this flag the "
        "record beside the checkpoint says it.",
    )
    bert_config_file: str | None = option(
        None,
        help="The model's configuration; by default bert_config.json or config.json beside the "
        "checkpoint.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether the model reads lower-cased text, for the tokenizer_config.json in "
        "--output_dir. Without this flag the tokenizer_config.json or tokenizer.json beside the "
        "checkpoint tells, or else it does.",
    )
    vocab_file: str | None = option(
        None,
        help="The model's vocabulary; by default vocab.txt, or else tokenizer.json, beside the "
        "checkpoint.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthOptions(ConfigOptions, TokenizerOptions):
    max_seq_length: ClassVar[int] = 1  # no flag: the configuration is read for texts of any length

    model: str = option(help=f"The model: {CHECKPOINT_FORMS}.")
    words: str = option(
        help="The new words, one on each line. A word that the model's tokenizer splits into "
        "several, as at a hyphen, is refused, and one that is a piece already is left out."
    )
    output_dir: str = option(
        help="The new folder for the model, in the format of the old one. The words replace "
        "[unusedN] in its vocabulary, or get new lines at its end."
    )
