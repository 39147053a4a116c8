"""The arguments and output names of transformers, for the tokenizer and the models."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.huggingface_api"

EXTENSION = Extension(
    name="huggingface_api",
    summary="Understands the arguments of transformers' tokenizers and models.",
    hooks={
        "model_input_names": f"{_HERE}.models:model_input_names",
        "pretrained_arguments": f"{_HERE}.models:pretrained_arguments",
        "encoder_output_members": f"{_HERE}.models:encoder_output_members",
        "pretraining_output_members": f"{_HERE}.models:pretraining_output_members",
        "tokenizer_call": f"{_HERE}.tokenizer_inputs:tokenizer_call",
        "tokenizer_members": f"{_HERE}.tokenizer_members:tokenizer_members",
    },
)
