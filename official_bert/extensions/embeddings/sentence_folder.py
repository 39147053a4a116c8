"""How a model turns a text into its embedding, as its folder says it.

In: a folder with modules.json of sentence-transformers, or with task.json of a training here. Out:
SentenceModules; `write` writes them as sentence-transformers reads them.
"""

import os
from typing import Any, NamedTuple, Self

from official_bert.checkpoints import dense_module, sentence_transformers
from official_bert.checkpoints.dense_module import Dense
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.checkpoints.sentence_transformers import check_count, read_settings
from official_bert.data.prompts import Prompts
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.io import errors, files
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.options.serving import POOLINGS
from official_bert.tokenizer_config import TokenizerConfig

COSINE = "cosine"
_SIMILARITIES = (COSINE, "dot", "euclidean", "manhattan")
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
        modules = sentence_transformers.read_modules(folder)
        if not modules:
            return None
        kinds = [module.kind for module in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or not {"Dense", NORMALIZE}.issuperset(
            kinds[2:]
        ):
            path = os.path.join(folder, sentence_transformers.MODULES_NAME)
            raise InputError(
                f"{path}: lists the modules {', '.join(kinds)}; only Transformer, Pooling, then "
                "Dense and Normalize can be used"
            )
        encoder, pooling = (module.folder for module in modules[:2])
        layers = (
            NORMALIZE if module.kind == NORMALIZE else dense_module.read(module.folder)
            for module in modules[2:]
        )
        encoder_settings = read_settings(encoder, sentence_transformers.ENCODER_CONFIG_NAME)
        include_prompt = read_settings(pooling).get("include_prompt")
        return cls(
            encoder,
            tuple(layers),
            _read_pooling(pooling),
            sentence_transformers.find_length(encoder),
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
        check_count(self.max_seq_length, "its max_seq_length", where)
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
    class_paths = {
        path: f"sentence_transformers.models.{kind}"
        for path, kind in zip(paths, kinds, strict=True)
    }
    config = sentence_transformers.make_config(
        prompts=dict(modules.prompts.texts),
        default_prompt_name=modules.prompts.default_name,
        similarity_fn_name=modules.similarity,
    )
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
        sentence_transformers.MODULES_NAME: sentence_transformers.make_entries(class_paths),
        sentence_transformers.ENCODER_CONFIG_NAME: {
            "max_seq_length": modules.max_seq_length,
            "do_lower_case": modules.lowers,
        },
        sentence_transformers.CONFIG_NAME: config,
        f"{paths[1]}/config.json": pooling_config,
    }
    for path in paths[1:]:
        files.make_folder(os.path.join(folder, path))
    for path, layer in zip(paths[2:], modules.layers, strict=True):
        if isinstance(layer, Dense):
            dense_module.write(os.path.join(folder, path), layer)
    sentence_transformers.write_settings(folder, contents)


def _library_settings(folder: str, include_prompt: Any) -> dict[str, Any]:
    """Returns the settings in config_sentence_transformers.json, by the fields of
    SentenceModules; the pooling has the setting `include_prompt`.
    """
    path = os.path.join(folder, sentence_transformers.CONFIG_NAME)
    settings = read_settings(folder, sentence_transformers.CONFIG_NAME)
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
    check_count(width, "truncate_dim", path)
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


def _read_pooling(folder: str) -> str:
    """Returns the one pooling of a Pooling module; newer files name it, older ones have a truth
    value for each.
    """
    settings = read_settings(folder)
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
