"""Explanations of a classifier's answers: how much each word speaks for a label."""

from official_bert.extension import Extension

EXTENSION = Extension(
    name="explanation",
    summary="Explains which words of a text speak for the answer of a classifier.",
    hooks={"predictor_methods": "official_bert.extensions.explanation.predictor:methods"},
)
