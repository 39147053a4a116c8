"""Writes the folder of each task of a joint training: a model that every command can use.

OUTPUT/tasks/NAME/    the files of model_dir.py, bert_model.ckpt, eval_results.txt
"""

from __future__ import annotations

import os

from official_bert.checkpoints import loading, open_checkpoint
from official_bert.checkpoints.names import (
    ENCODER,
    GLOBAL_STEP,
    is_training_state,
    list_adapters,
)
from official_bert.checkpoints.weights_in_use import WeightsInUse
from official_bert.config import BertConfig

TASKS = "tasks"
HEADS_SCOPE = "task_heads"  # the scope of the heads among the weights of a joint training


def task_folder(output_dir: str, name: str) -> str:
    """Returns the folder of a task.

    Args:
        output_dir: the folder of the joint training.
        name: the name of the task's table.
    """
    return os.path.join(output_dir, TASKS, name)


def write_weights(output_dir: str, name: str, config: BertConfig) -> None:
    """Writes the encoder and the head of a task into its folder.

    The matrices of LoRA stay apart from the kernels, so that a reader can tell the base model.

    Args:
        output_dir: the folder of the joint training. Its best checkpoint is read if there is one,
            else its newest.
        name: the name of the task's table.
        config: the configuration of the model.
    """
    checkpoint = open_checkpoint(output_dir)
    assert isinstance(checkpoint, WeightsInUse), "a training writes TF1 checkpoints"
    scope = f"{HEADS_SCOPE}/{name}/"
    tensors = {}
    for weight_name in checkpoint.shapes:
        if not weight_name.startswith((*ENCODER, scope)) or is_training_state(weight_name):
            continue
        tensors[weight_name.removeprefix(scope)] = checkpoint.read_base(weight_name)
        if adapters := checkpoint.read_adapters(weight_name):
            tensors.update(zip(list_adapters(weight_name), adapters, strict=True))
    tensors[GLOBAL_STEP] = checkpoint.read(GLOBAL_STEP)
    loading.write(task_folder(output_dir, name), tensors, config)
