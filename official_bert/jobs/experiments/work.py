"""How much a step computes: sequences, their length, predictions and frozen layers, by its flags.

In: the configuration of a model, checked flags, a task. Out: `Work`, which an estimate of the cost turns into
operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from official_bert.io.errors import InputError
from official_bert.jobs.experiments.definitions import Flags, Task
from official_bert.jobs.experiments.steps import Work
from official_bert.options.fields import parse_settings
from official_bert.options.fine_tuning import PAPER, SEARCHED

# The scripts' own values of flags that a declaration may leave out.
NUM_TRAIN_STEPS = 100_000
_BATCH_SIZE, _LENGTH, _NUM_PREDICTIONS, _NUM_EPOCHS = 32, 128, 20, 3.0
_LENGTHS = {"run_squad": 384}
_LEFT_TO_RIGHT = ("attention_direction", "left_to_right")


def pretraining_work(config: Mapping[str, Any], flags: Flags) -> Work:
    """Returns the work of a phase of a pre-training.

    Args:
        config: the fields of bert_config.json.
        flags: of run_pretraining.py.
    """
    length = int(flags.get("max_seq_length", _LENGTH))
    num_updates = int(flags.get("num_train_steps", NUM_TRAIN_STEPS))
    predicts_each_token = _LEFT_TO_RIGHT in config.items()
    return Work(
        tuple(config.items()),
        length,
        num_trained=int(flags.get("train_batch_size", _BATCH_SIZE)) * num_updates,
        num_predictions=length - 1
        if predicts_each_token
        else int(flags.get("max_predictions_per_seq", _NUM_PREDICTIONS)),
    )


def fine_tuning_work(
    config: Mapping[str, Any], task: Task, recipe: Flags, is_evaluated: bool, path: str
) -> Work:
    """Returns the work of a fine-tuning, or of all trials of a search.

    Args:
        config: the fields of bert_config.json.
        task: the task.
        recipe: the flags of the script.
        is_evaluated: whether an evaluation follows the training.
        path: the file of the experiment, for messages.

    Raises:
        InputError: what a search tries is no list of numbers.
    """
    passes, num_trials = float(recipe.get("num_train_epochs", _NUM_EPOCHS)), 1
    if search := recipe.get("search", ""):
        given = {} if search == PAPER else parse_settings(search, SEARCHED)
        texts = {name: text for name, text in (SEARCHED | given).items() if name != "restarts"}
        tried = {name: _numbers(text, name, path) for name, text in texts.items()}
        for values in tried.values():
            num_trials *= len(values)
        epochs = tried["num_train_epochs"]
        passes = sum(epochs) / len(epochs)
    trained, evaluated = task.examples
    return Work(
        tuple(config.items()),
        int(recipe.get("max_seq_length", _LENGTHS.get(task.script, _LENGTH))),
        num_trained=round(num_trials * passes * trained * task.sequences),
        num_evaluated=num_trials * evaluated * task.sequences * is_evaluated,
        num_frozen_layers=config["num_hidden_layers"] if recipe.get("feature_layers") else 0,
    )


def _numbers(value: Any, name: str, path: str) -> list[float]:
    words = value if isinstance(value, list) else str(value).split(",")
    try:
        return [float(word) for word in words]
    except ValueError:
        raise InputError(
            f"{path}, or the scale or the task that it uses: {name} is {value!r}; write numbers with commas between "
            "them"
        ) from None
