"""A small sparse model that was trained once for all tests of a module."""

import pathlib

import numpy as np

from official_bert.checkpoints import named_variables, tf1
from official_bert.config import BertConfig
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.model_dir import TaskRecord, write_companion_files
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

TEXTS = [
    "The cat sat on the mat.",
    "A train left the station at noon.",
    "",
    "the the rain",
]


def write_model(folder: pathlib.Path, query_encoder: str = "model", **settings) -> str:
    """Writes a model with weights that are large enough to give different words for each text."""
    folder.mkdir(parents=True)
    vocab_file = toy.write_vocabulary(folder)
    config = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT | {"initializer_range": 0.3})
    (folder / "bert_config.json").write_text(config.to_json_string())
    model = BertSparseEncoder(config, query_encoder, settings.get("term_activation", "relu"))
    draws = np.random.default_rng(3)
    tensors = {}
    for name, variable in named_variables(model).items():
        tensors[name] = np.float32(draws.normal(0, 0.3, variable.shape))
    if query_encoder != "model":
        tensors["query_lookup/weights"] = np.abs(tensors["query_lookup/weights"])
    tf1.write(str(folder / "bert_model.ckpt"), tensors)
    record = TaskRecord(
        "sparse_embedding",
        "sparse_embedding",
        {"query_encoder": query_encoder, "max_seq_length": 12, **settings},
    )
    write_companion_files(str(folder), vocab_file, TokenizerConfig(), record, None)
    return str(folder)
