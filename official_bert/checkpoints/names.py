"""Translates the names of weights: TF1 checkpoint <-> layer path <-> Hugging Face.

The path of a variable in this project is its TF1 name, or that name after the name of the model.
The table therefore has two columns. In: a name of one kind. Out: the name of the other kind, and
whether the matrix is transposed.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from official_bert import catalog
from official_bert.io.errors import InputError

GLOBAL_STEP = "global_step"
SLOTS = ("adam_m", "adam_v")
AVERAGE = "ema"  # the slot of a weight's average
# Keras' names of the two matrices of LoRA. Their scope is that of the kernel to which their product
# is added.
ADAPTERS = ("lora_kernel_a", "lora_kernel_b")


class Entry(NamedTuple):
    """The two names of a weight.

    Attributes:
        tf1: the name in a TF1 checkpoint, where kernels are [in, out] and the weights of small
            heads are [out, in].
        huggingface: the name in a Hugging Face checkpoint, where all matrices are [out, in].
        transposed: whether the matrix of one is the transposed matrix of the other.
    """

    tf1: str
    huggingface: str
    transposed: bool = False


def _dense(tf1: str, huggingface: str) -> tuple[Entry, Entry]:
    return (
        Entry(f"{tf1}/kernel", f"{huggingface}.weight", transposed=True),
        Entry(f"{tf1}/bias", f"{huggingface}.bias"),
    )


def _norm(tf1: str, huggingface: str) -> tuple[Entry, Entry]:
    return (
        Entry(f"{tf1}/LayerNorm/beta", f"{huggingface}.LayerNorm.bias"),
        Entry(f"{tf1}/LayerNorm/gamma", f"{huggingface}.LayerNorm.weight"),
    )


def _head(tf1: str, huggingface: str) -> tuple[Entry, Entry]:
    return (
        Entry(f"{tf1}output_weights", f"{huggingface}.weight"),
        Entry(f"{tf1}output_bias", f"{huggingface}.bias"),
    )


def _layer_scope(scope: str) -> tuple[str, str]:
    """Returns both names of a scope in a layer; N stands for the number of the layer."""
    dotted_scope = scope.replace("/", ".")
    return f"bert/encoder/layer_N/{scope}", f"bert.encoder.layer.N.{dotted_scope}"


_TABLE = (
    Entry("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight"),
    Entry("bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings.weight"),
    Entry("bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings.weight"),
    *_norm("bert/embeddings", "bert.embeddings"),
    *_dense(*_layer_scope("attention/self/query")),
    *_dense(*_layer_scope("attention/self/key")),
    *_dense(*_layer_scope("attention/self/value")),
    *_dense(*_layer_scope("attention/output/dense")),
    *_norm(*_layer_scope("attention/output")),
    *_dense(*_layer_scope("intermediate/dense")),
    *_dense(*_layer_scope("output/dense")),
    *_norm(*_layer_scope("output")),
    *_dense("bert/pooler/dense", "bert.pooler.dense"),
    *_dense("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
    *_norm("cls/predictions/transform", "cls.predictions.transform"),
    Entry("cls/predictions/output_bias", "cls.predictions.bias"),
    *_head("cls/seq_relationship/", "cls.seq_relationship"),
    *_head("cls/squad/", "qa_outputs"),
    *_head("", "classifier"),
)
_SCOPES = ("bert", "cls")
DISTILLATION = "distillation"  # the scope of the maps from a student's vectors to its teacher's
# Scopes that the original does not have. The name of a model must not begin with one. Extensions
# have others.
_NEW_SCOPES = ("bilstm", DISTILLATION)
# The prefixes of all weights that are not a head's. A Hugging Face name that is not in the table
# keeps its dots.
ENCODER = ("bert/", "bert.", "bilstm/")
# The prefix of the heads of a pre-training, and those of all its weights.
PRETRAINED_HEADS = "cls/"
PRETRAINED = ("bert/", "bert.", PRETRAINED_HEADS)
_TF1_ENTRIES = {entry.tf1: entry for entry in _TABLE}
_HUGGING_FACE_ENTRIES = {entry.huggingface: entry for entry in _TABLE}

# The output matrix of the masked LM head, equal to the word embeddings.
TIED_TABLE = "cls.predictions.decoder.weight"
# TF1 name of a weight -> the Hugging Face name of a tensor that copies it in some files.
COPIES = {
    "bert/embeddings/word_embeddings": TIED_TABLE,
    "cls/predictions/output_bias": "cls.predictions.decoder.bias",
}
# Tensors that copy other weights or are no weights.
_REDUNDANT = re.compile(
    r"(bert\.)?embeddings\.(position_ids|token_type_ids)|cls\.predictions\.decoder\.(weight|bias)"
)
_OLD_NORM = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}


def from_path(path: str) -> str:
    """Returns the TF1 name of a variable.

    - Usually it is the whole path, or the part after the name of the model.
    - For a model inside others, it is the part that begins with `bert` or `cls`.
    - For a layer that the original does not have, it is the part that begins with its scope, such
      as `bilstm`.
    - Another path that is not in the table is returned unchanged.

    Args:
        path: the Keras path of the variable.
    """
    parts = path.split("/")
    for start, part in enumerate(parts):
        if part.startswith(_list_new_scopes()):
            return "/".join(parts[start:])
    for start in range(len(parts)):
        below = "/".join(parts[start:])
        may_begin = start <= 1 or parts[start] in _SCOPES
        if may_begin and to_huggingface(below) is not None:
            return below
    return path


def head_weights() -> tuple[str, ...]:
    """Returns the prefixes of the TF1 names of all heads' weights."""
    prefixes: list[str] = []
    for family in catalog.families().values():
        prefixes.extend(family.head_weights)
    return tuple(prefixes)


@functools.cache
def _list_new_scopes() -> tuple[str, ...]:
    """Returns the scopes that the original does not have, those of extensions' heads included."""
    scopes = list(_NEW_SCOPES)
    for extension in catalog.extensions():
        for family in extension.families.values():
            scopes += [name.partition("/")[0] for name in family.head_weights if "/" in name]
    return tuple(scopes)


def to_huggingface(tf1: str) -> Entry | None:
    """Returns the entry of a TF1 name, or None if the table has none.

    Args:
        tf1: the TF1 name of a weight, without the name of a model before it.
    """
    return _find(_TF1_ENTRIES, tf1)


def from_huggingface(name: str) -> Entry | None:
    """Returns the entry of a Hugging Face name, or None if the table has none.

    Args:
        name: the name, with or without the prefix `bert.`. The weights of a layer norm may have
            their old names, gamma and beta.
    """
    for old, new in _OLD_NORM.items():
        name = name.replace(old, new)
    entry = _find(_HUGGING_FACE_ENTRIES, name)
    return entry or _find(_HUGGING_FACE_ENTRIES, f"bert.{name}")


def is_redundant(huggingface: str) -> bool:
    """Returns whether a Hugging Face tensor copies a weight or is none, such as position ids.

    Args:
        huggingface: the name of the tensor in a file of Hugging Face.
    """
    return _REDUNDANT.fullmatch(huggingface) is not None


def is_training_state(tf1: str) -> bool:
    """Returns whether only a training needs a variable: the step, a slot, or a map to a teacher.

    Args:
        tf1: the TF1 name of the variable.
    """
    return (
        tf1 == GLOBAL_STEP
        or tf1.startswith(DISTILLATION)
        or tf1.rpartition("/")[2] in (*SLOTS, AVERAGE)
    )


def is_adapter(name: str) -> bool:
    """Returns whether a TF1 name or a Keras path is that of a matrix of LoRA.

    Args:
        name: the name of a variable. Only its last part is read.
    """
    return name.rpartition("/")[2] in ADAPTERS


def list_adapters(kernel: str) -> list[str]:
    """Returns the names of the two matrices of LoRA of a weight; none if it is not a kernel.

    Args:
        kernel: the TF1 name of the weight.
    """
    scope, _, last = kernel.rpartition("/")
    return [f"{scope}/{name}" for name in ADAPTERS if last == "kernel"]


def find_families(shapes: Mapping[str, Sequence[int]], path: str) -> set[str]:
    """Returns the families of tasks that have the heads of a checkpoint; none for an encoder alone.

    If one head belongs to a family, heads that belong to none are ignored.

    Args:
        shapes: TF1 name -> shape of each weight.
        path: the path of the model, for the error.

    Raises:
        InputError: no head belongs to a family.
    """
    families: set[str] = set()
    unknown: list[str] = []
    family_records = catalog.families().items()
    for name, shape in shapes.items():
        if is_training_state(name) or name.startswith(ENCODER) or not len(shape):
            continue
        matches = [
            family for family, record in family_records if name.startswith(record.head_weights)
        ]
        if not matches:
            unknown.append(name)
        families.update(matches)
    if unknown and not families:
        raise InputError(
            f"{path}: has {unknown[0]}, the head of no known task; name its task, module:Class for "
            "one of your own, with official-bert export_saved_model --task_name=..., or use the "
            "encoder alone: BertModel.from_pretrained(folder).save_pretrained(new_folder, "
            "tokenizer=...)"
        )
    return families


def num_layers(tf1_names: Iterable[str]) -> int:
    """Returns the number of encoder layers of a checkpoint.

    Args:
        tf1_names: the names of its weights.
    """
    matches = [re.match(r"bert/encoder/layer_(\d+)/", name) for name in tf1_names]
    layer_numbers = [int(match[1]) for match in matches if match]
    return 1 + max(layer_numbers, default=-1)


def _find(table: dict[str, Entry], name: str) -> Entry | None:
    """Returns the entry of a name, in which the number of a layer replaces N."""
    match = re.search(r"encoder[./]layer[._](\d+)[./]", name)
    if match is None:
        return table.get(name)
    start, end = match.span(1)
    entry = table.get(f"{name[:start]}N{name[end:]}")
    if entry is None:
        return None
    number = match[1]
    return Entry(
        entry.tf1.replace("layer_N", f"layer_{number}"),
        entry.huggingface.replace("layer.N", f"layer.{number}"),
        entry.transposed,
    )
