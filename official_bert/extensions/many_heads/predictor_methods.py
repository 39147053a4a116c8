"""The method of official_bert.Predictor for one head of an export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from official_bert.serving.predictor import Predictor


def head(predictor: Predictor, name: str, **settings: Any) -> Predictor:
    """Returns a Predictor of one head of an export of many heads, which shares its weights.

        predictor = official_bert.Predictor("heads")
        predictor("book a table")  # {"intent": {"label": ...}, "pii": {"tags": ...}}
        predictor.head("intent").classify("book a table")  # {"label": ..., "score": ...}

    Args:
        predictor: an export of many heads.
        name: the name of the head.
        **settings: settings of Predictor for this head, such as abstain_below=0.5.

    Raises:
        InputError: the model has no such head, or a setting is not for it.
    """
    from official_bert.extensions.many_heads.head_model import choose_head

    model = choose_head(predictor.model, {"head": name})
    return type(predictor).from_model(model, **settings)


def methods() -> Mapping[str, Callable]:
    """Returns the methods of Predictor, by name."""
    return {"head": head}
