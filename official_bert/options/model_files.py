"""The options of the configuration and of the tokenizer, which many scripts share."""

import dataclasses

from official_bert.options.fields import option

ALLOW_MISSING_WEIGHTS = (
    "Use the model although its checkpoint lacks weights, which are then random, or has layers that the model leaves "
    "out. Without this flag that is an error, except at the start of training."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """Where the model's configuration is."""

    bert_config_file: str = option(
        help="The model's configuration: bert_config.json of the original, or config.json of Hugging Face."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """How text becomes WordPiece tokens."""

    vocab_file: str = option(help="The WordPiece vocabulary of the model, a text file with one piece a line.")
    do_lower_case: bool = option(
        True, help="Lower-case the text. Uncased models need this; cased models need --nodo_lower_case."
    )
    strip_accents: bool | None = option(
        None,
        help="Remove accents from the text, which also takes the syllables of Korean apart. Without this flag the "
        "tokenizer removes accents when it lower-cases, as the original does.",
    )
