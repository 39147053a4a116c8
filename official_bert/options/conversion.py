"""What a conversion of a checkpoint is told. Every field is a flag of convert_checkpoint.py."""

import dataclasses

from official_bert.options.fields import option

FORMATS = ("tf1", "huggingface")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    input_checkpoint: str = option(
        help="The checkpoint to convert: a TF1 prefix or folder, an output_dir of a training script, or a "
        "Hugging Face folder or model.safetensors file."
    )
    output_dir: str = option(help="The folder where the converted checkpoint is written.")
    output_format: str = option(
        choices=FORMATS,
        help="tf1 writes bert_model.ckpt, bert_config.json and vocab.txt; huggingface writes model.safetensors, "
        "config.json and vocab.txt.",
    )
    strip_optimizer: bool = option(
        False,
        help="Leave out Adam slots and global_step (two thirds of a training checkpoint); the huggingface format "
        "never has them.",
    )
    hidden_act: str | None = option(
        None,
        help="Activation to write into the config instead of the checkpoint's own: gelu (the tanh form of the "
        "original), gelu_erf (the exact form), relu, tanh or linear.",
    )
    bert_config_file: str | None = option(
        None, help="The model's config; bert_config.json or config.json beside the checkpoint when not given."
    )
    vocab_file: str | None = option(
        None, help="The model's vocabulary; vocab.txt beside the checkpoint when not given."
    )
