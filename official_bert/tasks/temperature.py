"""The temperature of a model's logits, which --calibrate fits: what the tasks with probabilities
of labels share.
"""

import os

import numpy as np
from absl import logging

from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type
from official_bert.metrics import calibration


def check_temperature(temperature: float | None) -> float | None:
    """Returns the temperature of a model's record after validating it.

    Args:
        temperature: the recorded value; None if the model is not calibrated.

    Raises:
        InputError: the value is no temperature.
    """
    return check_number(
        name="temperature",
        value=temperature,
        lowest=calibration.LOWEST,
        highest=calibration.HIGHEST,
    )


def check_number(name: str, value: float | None, lowest: float, highest: float) -> float | None:
    """Returns a number of a model's record after validating it.

    Args:
        name: the name of the number, for the error message.
        value: the recorded value; None if the record has none.
        lowest: the smallest valid value.
        highest: the largest valid value.

    Raises:
        InputError: the value is no number, or out of bounds.
    """
    if value is None or (has_type(value, float) and lowest <= value <= highest):
        return value
    raise InputError(
        f"the model's record (task.json or export.json) has {name} {value!r}, which no training "
        "wrote; restore the file, or export the model again"
    )


def fitted(logits: np.ndarray, targets: np.ndarray) -> float:
    """Returns the best temperature of a development set, and logs it.

    Args:
        logits: float[n, labels], the logits of the predictions.
        targets: int[n], the ids of the labels. If an example may have several labels: int[n,
            labels], 0 or 1 for each.
    """
    temperature = calibration.best_temperature(logits, targets)
    logging.info("  Temperature = %.4f, of %d predictions", temperature, len(targets))
    if not 1.01 * calibration.LOWEST < temperature < 0.99 * calibration.HIGHEST:
        logging.warning(
            "The temperature is at its bound: is the set too small, or the model not trained?"
        )
    return temperature


def scores(logits: np.ndarray, targets: np.ndarray, temperature: float) -> dict[str, float]:
    """Returns the calibration errors of logits as they are and divided by a temperature.

    Args:
        logits: float[n, labels], the logits of the predictions.
        targets: the labels, as for `fitted`.
        temperature: the temperature of the model.

    Returns:
        The errors as `eval_ece` and `eval_ece_calibrated`.
    """
    before = calibration.reliability(logits / 1.0, targets)
    after = calibration.reliability(logits / temperature, targets)
    return {"eval_ece": before.error, "eval_ece_calibrated": after.error}


def write_reliability(
    folder: str,
    suffix: str,
    logits: np.ndarray,
    targets: np.ndarray,
    temperature: float,
) -> None:
    """Writes a reliability diagram as a table: a line for each bin, before and after the
    calibration.

    A line has the bounds of the bin, the number of predictions whose probability is above the lower
    bound and not above the upper one, their mean probability, and the share of them that is
    correct.

    Args:
        folder: the folder of the file, reliability.tsv.
        suffix: the suffix of the set in the name of the file.
        logits: float[n, labels], the logits of the predictions.
        targets: the labels, as for `fitted`.
        temperature: the temperature of the model.
    """
    file_name = calibration.RELIABILITY_FILE.format(suffix)
    path = os.path.join(folder, file_name)
    before = calibration.reliability(logits / 1.0, targets)
    after = calibration.reliability(logits / temperature, targets)
    names = ["count", "probability", "accuracy"]
    head = ["from", "to", *names, *(f"{name}_calibrated" for name in names)]
    num_bins = len(before.counts)
    bounds = [round(number / num_bins, 6) for number in range(num_bins + 1)]
    rows = zip(bounds[:-1], bounds[1:], *before, *after, strict=True)
    with writing.replacing(path) as file:
        for row in (head, *rows):
            line = "\t".join(map(str, row))
            file.write(f"{line}\n")
    logging.info("Wrote %s", path)
