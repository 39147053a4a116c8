"""A small model of late interaction with random weights, in the folder of a training."""

import pathlib

import numpy as np

from official_bert.checkpoints import named_variables, tf1
from official_bert.config import BertConfig
from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
from official_bert.model_dir import TaskRecord, write_companion_files
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

TEXTS = ["The cat sat on the mat.", "A train left the station at noon.", "", "the the . rain"]


def write_model(folder: pathlib.Path, num_padding_rows: int = 0, **settings) -> str:
    """Writes a model whose vectors have 8 components.

    The table of its word embeddings ends in rows that no piece of the vocabulary has.
    """
    folder.mkdir(parents=True)
    # The mark [.] is in the vocabulary; other punctuation is not.
    pieces = [*toy.VOCABULARY, "[unused0]", "[unused1]"]
    vocab_file = toy.write_vocabulary(folder, pieces)
    sizes = {"vocab_size": len(pieces) + num_padding_rows}
    config = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT | sizes)
    (folder / "bert_config.json").write_text(config.to_json_string())
    draws = np.random.default_rng(3)
    tensors = {}
    for name, variable in named_variables(BertMultiVectorEncoder(config, 8)).items():
        tensors[name] = np.float32(draws.normal(0, 0.3, variable.shape))
    tf1.write(str(folder / "bert_model.ckpt"), tensors)
    recorded = {"token_width": 8, "query_length": 8, "max_seq_length": 9} | settings
    record = TaskRecord("late_interaction", "late_interaction", recorded)
    write_companion_files(str(folder), vocab_file, TokenizerConfig(), record, None)
    return str(folder)
