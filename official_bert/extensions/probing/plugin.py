"""Names the evaluations of the extension; importing it loads none of them."""

from collections.abc import Mapping

_EVALUATIONS = "official_bert.extensions.probing.evaluations"


def embedding_evaluations() -> Mapping[str, str]:
    """Returns `module:name` of the evaluations by their names in --eval_task."""
    return {
        "clustering": f"{_EVALUATIONS}:CLUSTERING",
        "few_shot": f"{_EVALUATIONS}:FEW_SHOT",
    }
