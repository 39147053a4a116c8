"""The flags of export_heads."""

import dataclasses
import re

from official_bert import model_hub
from official_bert.io.errors import InputError
from official_bert.options.fields import option
from official_bert.options.serving import SAVED_MODEL, PredictorSettings
from official_bert.options.shared import BFLOAT16, FLOAT16, FLOAT32, INT8, INT8_WEIGHTS
from official_bert.serving.export_format import export_formats

# A name is a part of the names of signatures and outputs.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# The signatures of all heads, other fields of an answer of official-bert predict, and a path of a
# server.
_RESERVED_NAMES = re.compile(r"serving_.*|error|id|truncated|metadata")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadExportOptions:
    """The models, and how they are exported."""

    heads: list[str] = option(
        names_model=True,
        help="The models, each as NAME=FOLDER, separated by commas. A folder is the --output_dir "
        "of a training. The name becomes a signature of the export.",
        hint_if_missing="give --heads=NAME=FOLDER,NAME=FOLDER with the folders of trained models",
    )
    export_dir: str = option(
        help="The folder that the model server watches. The export becomes a subfolder, named by "
        "the next version number."
    )
    export_text: bool = option(
        False,
        basic=True,
        help="Export a model that reads raw text instead of token ids. It needs the built-in "
        "operations of TensorFlow or onnxruntime only.",
    )
    dtype: str = option(
        FLOAT32,
        choices=(FLOAT32, BFLOAT16, FLOAT16, INT8, INT8_WEIGHTS),
        help="The type of the export's kernels, embedding tables and matrix products. bfloat16 "
        "halves the size of a SavedModel, and float16 that of an ONNX file. int8 is a quarter of "
        "the size, for the other formats.",
    )
    export_format: str = option(
        SAVED_MODEL,
        basic=True,
        choices=(SAVED_MODEL, *export_formats()),
        help="What runs the export: TensorFlow and its server (saved_model, the default), or "
        "another runtime, such as onnxruntime (onnx), which computes all heads. onnx and litert "
        "need the extra official-bert[runtimes], openvino needs official-bert[nncf].",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadChoice(PredictorSettings):
    """What official-bert predict and Predictor get from this extension."""

    head: str | None = option(
        None,
        basic=True,
        help="With an export of many heads, the head that answers. The answers are those of its "
        "own model. Without this flag, all heads answer, and a result has a field for each.",
    )


def parse_heads(options: HeadExportOptions) -> dict[str, str]:
    """Returns the folder of each head by its name.

    Args:
        options: the flags of the export.

    Raises:
        InputError: a head has no name or no folder, or two heads have the same name.
    """
    folders: dict[str, str] = {}
    for head in options.heads:
        name, _, folder = head.partition("=")
        if not folder:
            raise InputError(f"--heads: {head!r} is not NAME=FOLDER; give each folder a name")
        if not _NAME.fullmatch(name) or _RESERVED_NAMES.fullmatch(name):
            raise InputError(
                f"--heads: {name!r} cannot be a name, which has small letters, digits and "
                "underscores, begins with a letter and not with serving_, and is not error, id, "
                "metadata or truncated; change it"
            )
        if name in folders:
            raise InputError(
                f"--heads: {name} names {folders[name]} and {folder}; give each head another name"
            )
        folders[name] = folder
    return folders


def check_folders(options: HeadExportOptions) -> None:
    """Checks the folders of the heads before TensorFlow is imported.

    Args:
        options: the flags of the export.

    Raises:
        InputError: a folder does not exist.
    """
    for name, folder in parse_heads(options).items():
        path = model_hub.local_path(folder)
        if not model_hub.has_files(path):
            raise InputError(f"--heads: {name}={folder}: no such folder; check the path")
