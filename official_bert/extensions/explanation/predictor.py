"""The method `explain` of Predictor."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from official_bert.extensions.explanation.attributions import (
    INTEGRATED,
    PAD,
    TIMES_INPUT,
    ZERO,
    Attributor,
)
from official_bert.io.errors import InputError
from official_bert.serving.predictor import Predictor, split_requests


def methods() -> Mapping[str, Callable]:
    """Returns the methods of Predictor that this extension adds."""
    return {"explain": explain}


def explain(
    predictor: Predictor,
    *texts: str | tuple[str, ...] | list,
    label: str | None = None,
    method: str = INTEGRATED,
    baseline: str = PAD,
    steps: int = 50,
) -> Any:
    """Returns how much each word of a text or a pair speaks for a label, or for a score; for a
    list, a list.

    It needs the folder of a trained model, no export. The attributions sum up to the difference
    that the words make for the logit of the label, or for the score, but for `completeness`. The
    formulas and their sources are in extensions/explanation/attributions.py.

    Args:
        texts: a text, a pair, or a list of these.
        label: the label to explain; by default the most probable one.
        method: "integrated_gradients" or "gradient_x_input".
        baseline: where integrated gradients begin: "pad" or "zero".
        steps: number of steps of integrated gradients.

    Returns:
        `label`, `score`, `completeness` and `words`, each with `text` (the name of its text),
        `word`, `start`, `end` and `attribution`.
    """
    predictor.check_method("classify", caller="explain")
    _check_arguments(method, baseline, steps)
    attributor = Attributor(predictor.model, predictor.columns, predictor.batch_size)
    requests, is_one = split_requests(texts)
    explanations = [
        attributor.explain(
            request, answer, label=label, method=method, baseline=baseline, steps=steps
        )
        for request, answer in zip(requests, predictor.answers(requests), strict=True)
    ]
    return explanations[0] if is_one else explanations


def _check_arguments(method: str, baseline: str, steps: int):
    """Raises InputError for an argument of `explain` that has no such value."""
    for name, value, choices in (
        ("method", method, (INTEGRATED, TIMES_INPUT)),
        ("baseline", baseline, (PAD, ZERO)),
    ):
        if value not in choices:
            raise InputError(f"{name}={value!r}: must be one of {', '.join(choices)}")
    if not isinstance(steps, numbers.Integral) or steps < 1:
        raise InputError(f"steps={steps!r}: must be a whole number, and at least 1")
