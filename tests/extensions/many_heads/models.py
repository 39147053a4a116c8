"""Small fine-tuned models, as folders without a training."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert import model_dir
from official_bert.checkpoints import named_variables, tf1
from official_bert.config import BertConfig
from official_bert.modeling import BertModel
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

LENGTH = 24
CONFIG = toy.BERT_CONFIG | {"num_hidden_layers": 2}


class Kind(NamedTuple):
    """A kind of task: the fields of its record, its labels and the number of its outputs."""

    task_name: str
    family: str
    settings: dict[str, Any]
    labels: list[str] | None
    num_outputs: int


KINDS = {
    "single": Kind("text", "classification", {"num_texts": 1}, ["left", "right", "up"], 3),
    "pairs": Kind("text", "classification", {"num_texts": 2, "text_b_column": "b"}, ["n", "y"], 2),
    "score": Kind("text", "classification", {"num_texts": 1, "label_type": "score"}, None, 1),
    "multi": Kind("text", "classification", {"num_texts": 1, "label_type": "multi"}, ["a", "b"], 2),
    "long": Kind(
        "text",
        "classification",
        {"num_texts": 1, "long_texts": "windows", "doc_stride": 8},
        ["x", "y"],
        2,
    ),
    "choices": Kind("swag", "choice", {}, None, 1),
    "tags": Kind("ner", "tagging", {"pre_tokenized": False}, ["O", "B-X", "I-X"], 3),
    "vectors": Kind("embedding", "embedding", {"pooling": "mean", "normalize": True}, None, 0),
}


def draw_encoder(seed: int, **fields) -> dict[str, np.ndarray]:
    """Weights that are so large that answers differ."""
    config = BertConfig.from_dict(CONFIG | fields)
    random = np.random.default_rng(seed)
    deviation = 0.8 / config.hidden_size**0.5
    weights = {}
    for name, variable in named_variables(BertModel(config)).items():
        mean = 1.0 if name.endswith("gamma") else 0.0
        weights[name] = random.normal(mean, deviation, variable.shape).astype(np.float32)
    return weights


def write_model(
    folder: pathlib.Path,
    kind_name: str,
    encoder: Mapping[str, np.ndarray],
    seed: int,
    *,
    do_lower_case: bool = True,
    length: int = LENGTH,
    pieces=toy.VOCABULARY,
    further: Mapping[str, np.ndarray] | None = None,
    **fields,
) -> pathlib.Path:
    """Writes a model with a head and a pooler that are drawn from the seed."""
    kind = KINDS[kind_name]
    random = np.random.default_rng(seed)
    config_fields = CONFIG | {"vocab_size": len(pieces)} | fields
    width = config_fields["hidden_size"]

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0.0, 1.6 / width**0.5, shape).astype(np.float32)

    weights = dict(encoder)
    weights["bert/pooler/dense/kernel"] = draw(width, width)
    if kind.num_outputs:
        weights["output_weights"] = draw(kind.num_outputs, width)
        weights["output_bias"] = draw(kind.num_outputs)
    folder.mkdir(parents=True)
    settings = {"max_seq_length": length, **kind.settings}
    config = BertConfig.from_dict(config_fields)
    model_dir.write(
        str(folder),
        config,
        toy.write_vocabulary(folder, pieces),
        TokenizerConfig(do_lower_case, None, 512),
        model_dir.TaskRecord(kind.task_name, kind.family, settings),
        kind.labels,
    )
    tf1.write(str(folder / "bert_model.ckpt"), weights | dict(further or {}))
    return folder
