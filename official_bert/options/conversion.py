"""The options of converting a checkpoint. Every field is a flag of convert_checkpoint.py."""

import dataclasses

from official_bert.options.fields import option

FORMATS = ("tf1", "huggingface")
MODEL_CLASSES = ("BertForSequenceClassification", "BertForTokenClassification", "BertForMultipleChoice")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    input_checkpoint: str = option(
        alias="model",
        help="The checkpoint to convert: a TF1 checkpoint prefix or folder, the --output_dir of a training script, "
        "or a Hugging Face folder or its model.safetensors file.",
    )
    output_dir: str = option(help="The folder where the script writes the converted checkpoint.")
    output_format: str = option(
        choices=FORMATS,
        help="The format to convert to: tf1 writes bert_model.ckpt, bert_config.json and vocab.txt; huggingface "
        "writes model.safetensors, config.json and vocab.txt.",
    )
    strip_optimizer: bool = option(
        False,
        help="Leave out the Adam slots and global_step, which are two thirds of a training checkpoint. The "
        "huggingface format never has them.",
    )
    hidden_act: str | None = option(
        None,
        help="The activation to write into the configuration instead of the checkpoint's own: gelu (the original's "
        "tanh form), gelu_erf (the exact form), relu, tanh or linear.",
    )
    model_class: str | None = option(
        None,
        choices=MODEL_CLASSES,
        help="With huggingface, the class of a model whose head is one linear layer, since its weights do not show "
        "whether it reads texts, tokens or choices. Without this flag the script takes the class from the record that "
        "training wrote beside the checkpoint.",
    )
    bert_config_file: str | None = option(
        None,
        help="The model's configuration. Without this flag the script reads bert_config.json or config.json beside "
        "the checkpoint.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether the model reads lower-cased text, for the tokenizer_config.json in --output_dir. Without this "
        "flag the tokenizer_config.json beside the checkpoint tells, or else whether the vocabulary has capitals.",
    )
    vocab_file: str | None = option(
        None,
        help="The model's vocabulary. Without this flag the script reads vocab.txt beside the checkpoint.",
    )
