"""How a model turns a text into its embedding, as its folder says it.

In: a folder with modules.json of sentence-transformers, or with task.json of a training here. Out:
SentenceModules; `write` writes them as sentence-transformers reads them.
"""

import json
import os
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert.checkpoints import huggingface
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.data.prompts import Prompts
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.io import errors, files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import check_object, field, has_type
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.options.serving import POOLINGS
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.version import __version__

MODULES_NAME = "modules.json"
CONFIG_NAME = "config_sentence_transformers.json"
ENCODER_CONFIG_NAME = "sentence_bert_config.json"
_SENTENCE_TRANSFORMER = "SentenceTransformer"
COSINE = "cosine"
_SIMILARITIES = (COSINE, "dot", "euclidean", "manhattan")
_MODULE_FIELDS = ("idx", "path", "type")
NORMALIZE = "Normalize"
# Of a trained model: float32[in, out], float32[out].
PROJECTION = ("projection/kernel", "projection/bias")
# Our names by sentence-transformers': the longer ones are those of its older files.
_POOLINGS = {
    "mean_tokens": "mean",
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean_tokens": "weighted_mean",
    "lasttoken": "last",
}
_SHORT_POOLINGS = {"weightedmean": "weighted_mean"}  # the short names that are not ours
# Of torch.
_ACTIVATIONS = {
    "Identity": "linear",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
}


class Dense(NamedTuple):
    """A dense layer behind the pooling: the `activation`, by its name in Keras, of vectors @
    kernel.T + bias.
    """

    kernel: np.ndarray  # float32[out, in]
    bias: np.ndarray  # float32[out]
    activation: str = "linear"


class SentenceModules(NamedTuple):
    """The way from a text to its vector; the defaults are a plain folder's."""

    encoder: str  # its folder
    layers: tuple[Dense | str, ...] = (NORMALIZE,)  # behind the pooling
    pooling: str = "mean"
    max_seq_length: int | None = None
    lowers: bool = False  # whether a text is lower-cased before the tokenizer reads it
    # The number of components of a vector that are kept, behind all layers.
    truncate_dim: int | None = None
    prompts: Prompts = Prompts()
    similarity: str = COSINE  # how the vectors are to be compared

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read the way from a text to its vector in a folder.

        Args:
            folder: the folder of a model.

        Returns:
            The content of modules.json, else of the record of a training, else the defaults.

        Raises:
            InputError: a file is damaged, or has a module that cannot be used.
        """
        modules = cls.read(folder)
        if modules is not None:
            return modules
        record = ModelFolder(folder).task()
        if record and record.family == EMBEDDING:
            return cls._from_training(folder, record.settings)
        return cls(folder)

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """Reads modules.json and the modules that it names; None if there is no such file of
        sentence-transformers.

        Args:
            folder: the folder of a model.

        Raises:
            InputError: a file is damaged, or has a module that cannot be used.
        """
        entries = _read_module_entries(folder)
        if not entries:
            return None
        path = os.path.join(folder, MODULES_NAME)
        kinds = [field(entry, "type", str, path) for entry in entries]
        kinds = [
            kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind
            for kind in kinds
        ]
        if kinds[:2] != ["Transformer", "Pooling"] or not {"Dense", NORMALIZE}.issuperset(
            kinds[2:]
        ):
            raise InputError(
                f"{path}: lists the modules {', '.join(kinds)}; only Transformer, Pooling, then "
                "Dense and Normalize can be used"
            )
        encoder, pooling, *others = (
            os.path.join(folder, field(entry, "path", str, path)) for entry in entries
        )
        encoder_settings = _settings(encoder, ENCODER_CONFIG_NAME)
        length = encoder_settings.get("max_seq_length") or getattr(
            TokenizerConfig.read(encoder), "model_max_length", None
        )
        layers = (
            kind if kind == NORMALIZE else _dense(path)
            for kind, path in zip(kinds[2:], others, strict=True)
        )
        include_prompt = _settings(pooling).get("include_prompt")
        return cls(
            encoder,
            tuple(layers),
            _read_pooling(pooling),
            length,
            encoder_settings.get("do_lower_case") is True,
            **_library_settings(folder, include_prompt),
        )._checked(encoder)

    @classmethod
    def _from_training(cls, folder: str, settings: dict[str, Any]) -> Self:
        """Returns what a training has recorded."""
        layers = (NORMALIZE,) if settings.get("normalize", True) else ()
        if settings.get("projection"):
            kernel, bias = map(open_checkpoint(folder).read, PROJECTION)
            layers = (Dense(kernel.T, bias), *layers)
        return cls(
            folder,
            layers,
            settings.get("pooling", "mean"),
            settings.get("max_seq_length"),
            prompts=Prompts.from_settings(settings),
        )._checked(folder)

    @property
    def is_normalized(self) -> bool:
        """Whether the vectors have the norm 1, so that their dot products are their cosines."""
        return self.layers[-1:] == (NORMALIZE,) and self.truncate_dim is None

    def record(self) -> TaskRecord:
        """Returns the record of a training with this pooling; it has no field for what
        `rules_without_field` lists.
        """
        settings = {
            "pooling": self.pooling,
            "normalize": NORMALIZE in self.layers,
            "max_seq_length": self.max_seq_length,
        }
        recorded_settings = {name: value for name, value in settings.items() if value is not None}
        recorded_settings |= self.prompts.to_record()
        return TaskRecord(EMBEDDING, EMBEDDING, recorded_settings)

    def rules_without_field(self, tokenizer: TokenizerConfig | None) -> list[str]:
        """Describes the rules that only SentenceEncoder applies, and no task.json or export
        records.

        Args:
            tokenizer: the configuration of the encoder's tokenizer; None leaves out the rule of a
                cased tokenizer.

        Returns:
            The rules in words, for messages.
        """
        rules = {
            "a Dense module": any(isinstance(layer, Dense) for layer in self.layers),
            f"truncate_dim={self.truncate_dim}": self.truncate_dim is not None,
            "do_lower_case beside a cased tokenizer": self.lowers_beside(tokenizer),
        }
        return [rule for rule, is_there in rules.items() if is_there]

    def lowers_beside(self, tokenizer: TokenizerConfig | None) -> bool:
        """Tells whether texts are lower-cased before a cased tokenizer, as only SentenceEncoder
        does it.

        Args:
            tokenizer: the configuration of the encoder's tokenizer; None for no cased one.
        """
        return bool(self.lowers and tokenizer and tokenizer.do_lower_case is False)

    def _checked(self, where: str) -> Self:
        length = self.max_seq_length
        if length is not None and (not has_type(length, int) or length < 1):
            raise InputError(
                f"{where}: its max_seq_length is {length!r}; write a positive whole number"
            )
        return self


def write(folder: str, modules: SentenceModules, hidden_size: int) -> None:
    """Write modules.json and the files that it names.

    The files of the encoder itself are not written here.

    Args:
        folder: the folder of the encoder.
        modules: the way from a text to its vector.
        hidden_size: the width of the encoder.
    """
    kinds = [
        "Transformer",
        "Pooling",
        *("Dense" if isinstance(layer, Dense) else layer for layer in modules.layers),
    ]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    entries = []
    for number, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        entries.append(
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
    config = {
        "__version__": {"official_bert": __version__},
        "prompts": dict(modules.prompts.texts),
        "default_prompt_name": modules.prompts.default_name,
        "similarity_fn_name": modules.similarity,
    }
    if modules.truncate_dim is not None:
        config["truncate_dim"] = modules.truncate_dim
    if modules.prompts.query_length is not None:
        errors.warn(
            "max_query_seq_length=%d: sentence-transformers has no such setting; its queries may "
            "have as many tokens as other texts",
            modules.prompts.query_length,
        )
    pooling_config: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    if not modules.prompts.is_pooled:
        pooling_config["include_prompt"] = False
    for theirs, ours in _POOLINGS.items():
        pooling_config[f"pooling_mode_{theirs}"] = ours == modules.pooling
    contents = {
        MODULES_NAME: entries,
        ENCODER_CONFIG_NAME: {
            "max_seq_length": modules.max_seq_length,
            "do_lower_case": modules.lowers,
        },
        CONFIG_NAME: config,
        f"{paths[1]}/config.json": pooling_config,
    }
    for path in paths[1:]:
        files.make_folder(os.path.join(folder, path))
    for path, layer in zip(paths[2:], modules.layers, strict=True):
        if isinstance(layer, Dense):
            contents[f"{path}/config.json"] = _make_dense_config(layer)
            huggingface.write_tensors(
                os.path.join(folder, path, huggingface.WEIGHTS_FILE),
                {
                    "linear.weight": np.ascontiguousarray(layer.kernel),
                    "linear.bias": layer.bias,
                },
            )
    for name, content in contents.items():
        with writing.replacing(os.path.join(folder, name)) as file:
            file.write(json.dumps(content, indent=2) + "\n")


def _make_dense_config(layer: Dense) -> dict[str, Any]:
    """Returns the content of the config.json of a dense layer."""
    name = next(name for name, value in _ACTIVATIONS.items() if value == layer.activation)
    module = "linear" if name == "Identity" else "activation"
    out_features, in_features = layer.kernel.shape
    return {
        "in_features": in_features,
        "out_features": out_features,
        "bias": True,
        "activation_function": f"torch.nn.modules.{module}.{name}",
    }


def has_modules(folder: str) -> bool:
    """Return whether a folder has a modules.json of sentence-transformers.

    Args:
        folder: the folder of a model.

    Returns:
        True if it has one; False if it has none, or that of another program.
    """
    return bool(_read_module_entries(folder))


def is_single_vector(folder: str) -> bool:
    """Return whether a folder of sentence-transformers is of its class SentenceTransformer.

    Its other classes, such as SparseEncoder, name themselves in a file.

    Args:
        folder: the folder of the model.
    """
    model_type = _settings(folder, CONFIG_NAME).get("model_type", _SENTENCE_TRANSFORMER)
    return model_type == _SENTENCE_TRANSFORMER


def _read_module_entries(folder: str) -> list[Any]:
    """Returns the entries of modules.json, none if the file is missing or of another program."""
    path = os.path.join(folder, MODULES_NAME)
    if not files.exists(path):
        return []
    content = reading.read_json(files.check_model_file(path))
    entries = content if isinstance(content, list) else [content]
    is_usable = any(
        isinstance(entry, dict) and not entry.keys().isdisjoint(_MODULE_FIELDS) for entry in entries
    )
    return entries if is_usable else []


def encoder_folder(folder: str) -> str:
    """Returns the folder of a model's encoder, which older folders of sentence-transformers have
    as a subfolder.

    Args:
        folder: the folder of the model.

    Raises:
        InputError: modules.json cannot be read.
    """
    entries = _read_module_entries(folder)
    path = entries[0].get("path") if entries and isinstance(entries[0], dict) else None
    return os.path.join(folder, path) if isinstance(path, str) and path else folder


def module_files(folder: str) -> list[str]:
    """Returns the names of the files and subfolders that say how a folder of
    sentence-transformers makes vectors.

    Args:
        folder: the folder of the model, which `has_modules`.

    Returns:
        The names in the folder of those that exist.

    Raises:
        InputError: modules.json is damaged.
    """
    modules_path = os.path.join(folder, MODULES_NAME)
    folders = [field(entry, "path", str, modules_path) for entry in _read_module_entries(folder)]
    names = [MODULES_NAME, CONFIG_NAME, ENCODER_CONFIG_NAME, *filter(None, folders)]
    return [name for name in names if files.exists(os.path.join(folder, name))]


def _library_settings(folder: str, include_prompt: Any) -> dict[str, Any]:
    """Returns the settings in config_sentence_transformers.json, by the fields of
    SentenceModules; the pooling has the setting `include_prompt`.
    """
    path, settings = os.path.join(folder, CONFIG_NAME), _settings(folder, CONFIG_NAME)
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(prompt, str) for prompt in prompts.values()
    ):
        raise InputError(f"{path}: prompts is {prompts!r}; write a text for each name")
    name = settings.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise InputError(
            f"{path}: default_prompt_name is {name!r}, which is none of the prompts; add its text "
            "to them"
        )
    width = settings.get("truncate_dim")
    if width is not None and (not has_type(width, int) or width < 1):
        raise InputError(f"{path}: truncate_dim is {width!r}; write a positive whole number")
    similarity = settings.get("similarity_fn_name") or COSINE
    if similarity not in _SIMILARITIES:
        raise InputError(
            f"{path}: similarity_fn_name is {similarity!r}; write one of {', '.join(_SIMILARITIES)}"
        )
    return {
        "truncate_dim": width,
        "prompts": Prompts(prompts, name, include_prompt is not False),
        "similarity": similarity,
    }


def _settings(folder: str, name: str = "config.json") -> dict[str, Any]:
    """Returns the content of a module's file, empty if there is none."""
    path = os.path.join(folder, name)
    return check_object(reading.read_json(path), path) if files.exists(path) else {}


def _read_pooling(folder: str) -> str:
    """Returns the one pooling of a Pooling module; newer files name it, older ones have a truth
    value for each.
    """
    settings = _settings(folder)
    pooling_mode = settings.get("pooling_mode", [])
    modes = [pooling_mode] if isinstance(pooling_mode, str) else list(pooling_mode)
    modes += [
        name.removeprefix("pooling_mode_")
        for name, is_on in settings.items()
        if "_mode_" in name and is_on
    ]
    names = _POOLINGS | _SHORT_POOLINGS
    poolings = {names.get(mode, mode) for mode in modes}
    if len(poolings) != 1 or not poolings <= set(POOLINGS):
        names = " with ".join(sorted(map(str, poolings))) or "not named"
        raise InputError(
            f"{folder}: the pooling is {names}; only one of {', '.join(POOLINGS)} can be used"
        )
    return poolings.pop()


def _dense(folder: str) -> Dense:
    """Reads a Dense module."""
    settings = _settings(folder)
    module, _, name = str(settings.get("activation_function", "")).rpartition(".")
    if not module.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise InputError(
            f"{folder}: the activation {name!r} is not one of {', '.join(_ACTIVATIONS)} of torch"
        )
    if settings.get("use_residual"):
        raise InputError(
            f"{folder}: adds its input to its output (use_residual), which is not supported"
        )
    weights = open_checkpoint(folder)
    if set(weights.shapes) not in ({"linear.weight"}, {"linear.weight", "linear.bias"}):
        raise InputError(f"{folder}: its weights are not those of a Dense; fetch them again")
    kernel = weights.read("linear.weight")
    bias = (
        weights.read("linear.bias")
        if len(weights.shapes) == 2
        else np.zeros(len(kernel), np.float32)
    )
    return Dense(kernel, bias, _ACTIVATIONS[name])
