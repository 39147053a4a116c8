"""Reads and writes the files by which sentence-transformers describes the modules of a model.

    modules.json                         the modules in their order: the class and folder of each
    config_sentence_transformers.json    the class of the model, its prompts and similarity
    sentence_bert_config.json            the settings of the encoder, such as its maximum length
    1_Pooling/config.json                the settings of another module, in its folder

In: the folder of a model. Out: `Module`s and settings. What the modules compute is up to the
extension that reads them.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert.added_tokens import SENTENCE_CONFIG_NAME
from official_bert.checkpoints import huggingface
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import check_object, field, has_type
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.version import __version__

MODULES_NAME = "modules.json"
CONFIG_NAME = SENTENCE_CONFIG_NAME
ENCODER_CONFIG_NAME = "sentence_bert_config.json"
MODULE_CONFIG_NAME = "config.json"
SINGLE_VECTOR = "SentenceTransformer"  # the class of a folder that names none
_PACKAGE = "sentence_transformers."
_ENTRY_FIELDS = ("idx", "path", "type")


class Module(NamedTuple):
    """An entry of modules.json.

    Attributes:
        kind: the result of `get_kind`.
        subfolder: the name of the module's folder; empty for the folder of the model.
        folder: the path of the module's folder.
    """

    kind: str
    subfolder: str
    folder: str


def get_kind(class_path: str) -> str:
    """Returns the name of a module's class.

    Args:
        class_path: the class with its packages, as modules.json has it.

    Returns:
        The last part of the path; the whole path for a class of another package.
    """
    if not class_path.startswith(_PACKAGE):
        return class_path
    return class_path.rpartition(".")[2]


def read_entries(folder: str) -> list[Any]:
    """Reads the entries of modules.json, which may be of another program.

    Args:
        folder: the folder of a model.

    Returns:
        The entries, unchecked; none if the file is missing or of another program.

    Raises:
        InputError: the file is not JSON.
    """
    path = os.path.join(folder, MODULES_NAME)
    if not files.exists(path):
        return []
    content = reading.read_json(files.check_model_file(path))
    entries = content if isinstance(content, list) else [content]
    objects = [entry for entry in entries if isinstance(entry, dict)]
    is_usable = any(not entry.keys().isdisjoint(_ENTRY_FIELDS) for entry in objects)
    return entries if is_usable else []


def read_modules(folder: str) -> list[Module]:
    """Reads the modules of a model.

    Args:
        folder: the folder of the model.

    Returns:
        The modules; none if modules.json is missing or of another program.

    Raises:
        InputError: the file is damaged.
    """
    path = os.path.join(folder, MODULES_NAME)
    modules = []
    for entry in read_entries(folder):
        class_path = field(entry, "type", str, path)
        subfolder = field(entry, "path", str, path)
        module = Module(
            kind=get_kind(class_path),
            subfolder=subfolder,
            folder=os.path.join(folder, subfolder),
        )
        modules.append(module)
    return modules


def find_encoder(folder: str) -> str:
    """Returns the folder of a model's encoder, which older folders have as a subfolder.

    Args:
        folder: the folder of a model, of which only the first module has to be an encoder.

    Raises:
        InputError: modules.json is not JSON.
    """
    entries = read_entries(folder)
    if not entries or not isinstance(entries[0], dict):
        return folder
    subfolder = entries[0].get("path")
    if not isinstance(subfolder, str) or not subfolder:
        return folder
    return os.path.join(folder, subfolder)


def has_modules(folder: str) -> bool:
    """Returns whether a folder has a modules.json of sentence-transformers.

    Args:
        folder: the folder of a model.

    Raises:
        InputError: the file is not JSON.
    """
    return bool(read_entries(folder))


def read_model_type(folder: str) -> str:
    """Returns the class of a model, such as SparseEncoder.

    Args:
        folder: the folder of the model.

    Raises:
        InputError: the file of the settings is damaged.
    """
    return read_settings(folder, CONFIG_NAME).get("model_type", SINGLE_VECTOR)


def is_model(folder: str, model_type: str) -> bool:
    """Returns whether a folder has a modules.json, and names a class of sentence-transformers.

    Args:
        folder: the folder of a model.
        model_type: the name of the class.

    Raises:
        InputError: the file of the settings is damaged.
    """
    modules_file = os.path.join(folder, MODULES_NAME)
    return files.exists(modules_file) and read_model_type(folder) == model_type


def read_settings(folder: str, name: str = MODULE_CONFIG_NAME) -> dict[str, Any]:
    """Reads a file of settings.

    Args:
        folder: the folder of a model, or of one of its modules.
        name: the name of the file.

    Returns:
        The settings; none if there is no such file.

    Raises:
        InputError: the content is not a JSON object.
    """
    path = os.path.join(folder, name)
    if not files.exists(path):
        return {}
    settings = reading.read_json(files.check_model_file(path))
    return check_object(settings, path)


def find_length(encoder: str, name: str = "max_seq_length") -> Any:
    """Returns the maximum number of tokens of a text, unchecked.

    Args:
        encoder: the folder of the encoder.
        name: the name of the setting in sentence_bert_config.json.

    Returns:
        The setting, or else the maximum length of the tokenizer; None without both.

    Raises:
        InputError: a file is damaged.
    """
    length = read_settings(encoder, ENCODER_CONFIG_NAME).get(name)
    if length:
        return length
    tokenizer = TokenizerConfig.read(encoder)
    return tokenizer.model_max_length if tokenizer else None


def is_count(value: Any) -> bool:
    """Returns whether a setting is a positive whole number, or None.

    Args:
        value: the setting, as JSON has it.
    """
    return value is None or (has_type(value, int) and value >= 1)


def check_count(value: Any, name: str, where: str) -> None:
    """Checks that a setting is a positive whole number, or None.

    Args:
        value: the setting, as JSON has it.
        name: the name of the setting, for the error.
        where: the file or folder of the setting, for the error.

    Raises:
        InputError: the setting is something else.
    """
    if not is_count(value):
        raise InputError(f"{where}: {name} is {value!r}; write a positive whole number")


def refuse_prompts(folder: str, models: str) -> None:
    """Checks that a model puts no prompts before its texts.

    Args:
        folder: the folder of the model.
        models: the models that have no prompts, for the error.

    Raises:
        InputError: the model has prompts.
    """
    prompts = read_settings(folder, CONFIG_NAME).get("prompts")
    if isinstance(prompts, dict) and any(prompts.values()):
        raise InputError(f"{folder}: has prompts, which {models} here cannot put before texts")


def list_files(folder: str, names: Iterable[str] = ()) -> list[str]:
    """Returns the names of the files and subfolders that describe the modules of a model.

    Args:
        folder: the folder of the model.
        names: names beside those of the three files and of the modules.

    Returns:
        The names of those that exist.

    Raises:
        InputError: modules.json is damaged.
    """
    modules_path = os.path.join(folder, MODULES_NAME)
    paths = [field(entry, "path", str, modules_path) for entry in read_entries(folder)]
    subfolders = [subfolder for subfolder in paths if subfolder]
    all_names = [
        MODULES_NAME,
        CONFIG_NAME,
        ENCODER_CONFIG_NAME,
        *subfolders,
        *names,
    ]
    return [name for name in all_names if files.exists(os.path.join(folder, name))]


def make_entries(class_paths: Mapping[str, str]) -> list[dict[str, Any]]:
    """Makes the entries of modules.json.

    Args:
        class_paths: the class of each module with its packages, by the name of the module's
            folder.
    """
    return [
        {
            "idx": number,
            "name": str(number),
            "path": subfolder,
            "type": class_path,
        }
        for number, (subfolder, class_path) in enumerate(class_paths.items())
    ]


def make_config(**fields: Any) -> dict[str, Any]:
    """Makes the content of config_sentence_transformers.json.

    Args:
        **fields: the settings, beside the version of the program that writes them.
    """
    return {"__version__": {"official_bert": __version__}, **fields}


def write_settings(folder: str, contents: Mapping[str, Any]) -> None:
    """Writes files of settings, and makes their folders.

    Args:
        folder: the folder of a model.
        contents: the content of each file by its path in the folder.
    """
    for name, content in contents.items():
        path = os.path.join(folder, name)
        files.make_folder(os.path.dirname(path))
        with writing.replacing(path) as file:
            file.write(json.dumps(content, indent=2) + "\n")


def write_weights(folder: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes the weights of a module, and makes its folder.

    Args:
        folder: the folder of the module.
        tensors: the weights by name.
    """
    files.make_folder(folder)
    # safetensors writes the memory of an array as it is, whatever its strides are.
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    weights_path = os.path.join(folder, huggingface.WEIGHTS_FILE)
    huggingface.write_tensors(weights_path, contiguous)
