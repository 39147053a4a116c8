"""The folder of a released model: a checkpoint with its configuration, vocabulary and labels beside it.

In: a checkpoint, or tensors and a configuration. Out: the configuration of the checkpoint, or the files of a folder.
"""

import os
from collections.abc import Mapping

import numpy as np
from absl import logging

from official_bert import files, reading, writing
from official_bert.checkpoints import huggingface, tf1
from official_bert.checkpoints.folder import BEST_FOLDER
from official_bert.checkpoints.loading import Checkpoint
from official_bert.config import BertConfig
from official_bert.errors import InputError

TF1_NAME = "bert_model.ckpt"
CONFIG_NAME = "bert_config.json"
VOCAB_NAME = "vocab.txt"
LABELS_NAME = "labels.txt"


def read_config_beside(checkpoint: Checkpoint) -> BertConfig:
    """Reads the configuration beside a checkpoint; that of a best checkpoint may lie one folder higher.

    Raises:
        InputError: there is none, or no model can be built from it.
    """
    folders = [checkpoint.folder]
    if os.path.basename(checkpoint.folder) == BEST_FOLDER:
        folders.append(os.path.dirname(checkpoint.folder))
    paths = [
        os.path.join(folder, name) for folder in folders for name in (CONFIG_NAME, huggingface.CONFIG_FILE)
    ]
    for path in filter(files.exists, paths):
        content = reading.read_json(path)
        if isinstance(content, dict) and "num_attention_heads" in content:  # else it is of another program
            config = BertConfig.from_json_file(path)
            config.validate(path)
            return config
    raise InputError(
        f"{checkpoint.path}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} of a model lies beside it; copy the "
        "model's configuration there"
    )


def write(folder: str, tensors: Mapping[str, np.ndarray], config: BertConfig):
    """Writes bert_config.json and bert_model.ckpt.

    Args:
        folder: an existing folder.
        tensors: arrays by TF1 name.
        config: the configuration of the model.
    """
    if config.hidden_act == "gelu_erf":
        logging.warning(
            "The config says gelu_erf: the original BERT does not know it and computes the tanh form for gelu; "
            "convert_checkpoint.py --hidden_act=gelu writes that into the config instead"
        )
    with writing.replacing(os.path.join(folder, CONFIG_NAME)) as file:
        file.write(config.to_json_string())
    tf1.write(os.path.join(folder, TF1_NAME), tensors)


def check_free(folder: str, ours: str):
    """Refuses a folder whose readers would take another checkpoint than the one that is to be written there.

    Args:
        folder: need not exist.
        ours: the name of the file of our own that may be there and is replaced.

    Raises:
        InputError: the folder holds another checkpoint.
    """
    there = sorted(name.rstrip("/") for name in files.list_folder(folder)) if files.is_folder(folder) else []
    for name in there:
        is_checkpoint = name.endswith(".index") or huggingface.is_weights_file(name)
        if name != ours and (is_checkpoint or name in ("checkpoint", BEST_FOLDER, huggingface.SHARDS_FILE)):
            raise InputError(
                f"{folder}: holds another checkpoint ({name}), which would be read instead; name another folder"
            )
