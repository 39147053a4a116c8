"""The options of a model's files: configuration, vocabulary, checkpoint, and how text is tokenized."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import option

ALLOW_MISSING_WEIGHTS = (
    "Use the model although its checkpoint lacks weights, which are then random, or has layers that the model leaves "
    "out. Without this flag that is an error, except at the start of training."
)
CHECKPOINT_FORMS = (
    "a TF1 checkpoint prefix or folder, the --output_dir of a training script, or a Hugging Face folder"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The folder of a model, which stands for the flags of its files.

    Attributes:
        optional_files: flags of files that a run can do without.
    """

    optional_files: ClassVar[tuple[str, ...]] = ()

    model: str | None = option(
        None,
        help="The folder of a model: the --output_dir of a training script, the folder of a released model, or a "
        "Hugging Face folder. It stands for --vocab_file, --bert_config_file and --init_checkpoint, as far as the "
        "script has them, and for how the model reads text.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigOptions(ModelOptions):
    """Where the model's configuration is."""

    bert_config_file: str | None = option(
        None,
        help="The model's configuration: bert_config.json of the original, or config.json of Hugging Face. It must be "
        "given unless --model is, or the checkpoint's folder has it.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions(ModelOptions):
    """How text becomes WordPiece tokens."""

    vocab_file: str | None = option(
        None,
        help="The WordPiece vocabulary of the model, a text file with one piece a line. It must be given unless "
        "--model is, or the checkpoint's folder has it.",
    )
    do_lower_case: bool | None = option(
        otherwise=True,
        help="Lower-case the text. Uncased models need this; cased models need --nodo_lower_case. Without this flag "
        "the tokenizer_config.json of the model's folder decides, if there is one.",
    )
    strip_accents: bool | None = option(
        otherwise=None,
        help="Remove accents from the text, which also takes the syllables of Korean apart. Without this flag the "
        "tokenizer removes accents when it lower-cases, as the original does, unless the tokenizer_config.json of the "
        "model's folder says otherwise.",
    )
