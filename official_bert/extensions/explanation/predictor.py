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
    Settings,
)
from official_bert.extensions.explanation.html import Explanation, mark_entities
from official_bert.io.errors import InputError
from official_bert.serving.predictor import Predictor, split_requests


def methods() -> Mapping[str, Callable]:
    """Return the methods of Predictor that this extension adds, by name."""
    return {"explain": explain, "mark_entities": mark_entities}


def explain(
    predictor: Predictor,
    *texts: str | tuple[str, ...] | list,
    label: str | None = None,
    method: str = INTEGRATED,
    baseline: str = PAD,
    steps: int = 50,
) -> Any:
    """Return how much each word of a text or a pair contributes to a label, or to a score.

    This needs the folder of a trained model; exports do not work. The sum of the attributions is
    the change of the label's logit, or of the score, between the baseline and the text. The error
    of this sum is `completeness`. The formulas and their sources are in
    extensions/explanation/attributions.py.

    Args:
        predictor: the opened model.
        texts: a text, a pair, or a list of these.
        label: the label to explain; by default the most probable one.
        method: "integrated_gradients" or "gradient_x_input".
        baseline: the embeddings at which integrated gradients start: "pad" or "zero".
        steps: number of steps of integrated gradients.

    Returns:
        An `Explanation`, a dict with `label`, `score`, `completeness` and `words`. Each word has
        `text` (the name of its text), `word`, `start`, `end` and `attribution`. The method `html`
        of the explanation shows the words in colours. A list of requests gives a list.

    Raises:
        InputError: the model has no gradients of words, or an argument is invalid.
    """
    predictor.check_method("classify", caller="explain")
    _check_arguments(method, baseline, steps)
    attributor = Attributor(predictor.model, predictor.columns, predictor.batch_size)
    settings = Settings(label, method, baseline, steps)
    requests, is_one = split_requests(texts)
    explanations = []
    for request, answer in zip(requests, predictor.answers(requests), strict=True):
        values = attributor.explain(request, answer, settings)
        named_texts = dict(zip(predictor.columns, request, strict=False))
        explanations.append(Explanation(values, named_texts))
    return explanations[0] if is_one else explanations


def _check_arguments(method: str, baseline: str, steps: int):
    _check_choice("method", method, (INTEGRATED, TIMES_INPUT))
    _check_choice("baseline", baseline, (PAD, ZERO))
    if not isinstance(steps, numbers.Integral) or steps < 1:
        raise InputError(f"steps={steps!r}: must be a whole number, and at least 1")


def _check_choice(name: str, value: str, choices: tuple[str, ...]):
    if value not in choices:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(choices)}")
