"""A checkpoint with its configuration in one folder, as the original's models were released.

In: a checkpoint, or tensors and a configuration. Out: the configuration of the checkpoint, or bert_model.ckpt and
bert_config.json. The other files of a model's folder are those of model_folder.py.
"""

import os
from collections.abc import Mapping

import numpy as np
from absl import logging

from official_bert import files, writing
from official_bert.checkpoints import huggingface, tf1
from official_bert.checkpoints.loading import Checkpoint
from official_bert.config import LEFT_TO_RIGHT, BertConfig
from official_bert.errors import InputError
from official_bert.model_folder import BEST_FOLDER, CONFIG_NAME, ModelFolder

TF1_NAME = "bert_model.ckpt"


def read_config_beside(checkpoint: Checkpoint) -> BertConfig:
    """Reads the configuration beside a checkpoint; that of a best checkpoint may lie one folder higher.

    Raises:
        InputError: there is none, or no model can be built from it.
    """
    path = ModelFolder(checkpoint.path).config_file
    if path:
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
    if config.direction == LEFT_TO_RIGHT:
        logging.warning(
            "The config says attention_direction left_to_right: the original BERT does not know it, and its tokens "
            "would attend to both sides"
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
