"""Makes a model of a folder with its weights and configuration, and writes such a folder.

In: a class of models and a checkpoint of any supported format; or a model. Out: the model with these weights; or a
folder in the format of the original's releases or of Hugging Face. It imports TensorFlow, and so it is imported late.
"""

import inspect
import os

import keras

from official_bert import model_folder, writing
from official_bert.checkpoints import (
    huggingface,
    load_checkpoint,
    named_variables,
    names,
    open_checkpoint,
    released,
)
from official_bert.checkpoints.loading import Checkpoint
from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.model_folder import LABELS_NAME, VOCAB_NAME, ModelFolder
from official_bert.tokenization import FullTokenizer, write_vocabulary
from official_bert.tokenizer_config import TokenizerConfig

FORMATS = {"tf1": f"{released.TF1_NAME}.index", "huggingface": huggingface.WEIGHTS_FILE}
# What may be missing, because fine-tuning learns it.
_DRAWN = ("bert/pooler/", "cls/", "output_", *names.NEW_SCOPES)


def load(model_class, folder: str, arguments: dict) -> keras.Model:
    """Makes a model with the configuration and the weights of a folder, as `from_pretrained` says.

    Args:
        model_class: a subclass of ConfiguredModel.
        folder: a path for `open_checkpoint`.
        arguments: further arguments of the class.
    """
    _check_arguments(model_class, arguments)
    checkpoint = open_checkpoint(folder)
    config = released.read_config_beside(checkpoint)
    if model_class.has_open_outputs and arguments.get("num_outputs") is None:
        arguments = arguments | {"num_outputs": _num_outputs(checkpoint)}
    model = model_class(config, **arguments)
    report = load_checkpoint(model, checkpoint.path)
    report.check_complete(_DRAWN, "so that it is no whole encoder; give a checkpoint of a BERT model")
    return model


def save(model, folder: str, form: str, tokenizer: FullTokenizer | None):
    """Writes a folder that `load` reads, as `save_pretrained` says."""
    if form not in FORMATS:
        raise InputError(f"format={form!r}: must be one of {', '.join(FORMATS)}")
    released.check_free(folder, FORMATS[form])
    variables = named_variables(model)
    if form == "huggingface":
        unknown = [name for name in variables if names.to_huggingface(name) is None]
        if unknown:
            raise InputError(f"format={form!r}: has no name for {unknown[0]}; save the model as tf1")
    if tokenizer is not None:
        _check_vocabulary(tokenizer, model.config)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    with writing.replacing_folder(folder) as temporary:
        if tokenizer is not None:
            write_vocabulary(tokenizer.vocab, os.path.join(temporary, VOCAB_NAME))
            model_folder.write_beside(temporary, None, _tokenizer_config(tokenizer, model.config))
        if form == "tf1":
            released.write(temporary, tensors, model.config)
        else:
            huggingface.write(temporary, tensors, model.config, model.huggingface_class)


def _check_arguments(model_class, arguments: dict):
    """Refuses arguments that the constructor of a class does not have; one of the user's own may take any."""
    parameters = inspect.signature(model_class.__init__).parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [name for name in parameters if name not in ("self", "config")]
    for name in arguments:
        if name not in known:
            raise InputError(
                f"{name}: {model_class.__name__} has no such argument; it has {', '.join(known)}"
            )


def _num_outputs(checkpoint: Checkpoint) -> int:
    """Returns the number of outputs of the head in a checkpoint, or of the labels beside it.

    Raises:
        InputError: there is neither.
    """
    if huggingface.LINEAR_HEAD in checkpoint.shapes:
        return checkpoint.shapes[huggingface.LINEAR_HEAD][0]
    labels = ModelFolder(checkpoint.path).labels()
    if labels:
        return len(labels)
    raise InputError(
        f"{checkpoint.path}: has no {huggingface.LINEAR_HEAD}, and no {LABELS_NAME} lies beside it; give num_outputs"
    )


def _tokenizer_config(tokenizer: FullTokenizer, config: BertConfig) -> TokenizerConfig:
    basic = tokenizer.basic_tokenizer
    return TokenizerConfig(basic.do_lower_case, basic.strip_accents, config.max_position_embeddings)


def _check_vocabulary(tokenizer: FullTokenizer, config: BertConfig):
    num_ids = 1 + max(tokenizer.vocab.values())
    if num_ids > config.vocab_size:
        raise InputError(
            f"tokenizer: its vocabulary has {num_ids} lines, and the model was made for vocab_size "
            f"{config.vocab_size}; give the tokenizer of the model"
        )
