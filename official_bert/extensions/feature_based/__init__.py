"""Feature-based tagging: a BiLSTM on the layers of an encoder that is not trained."""

from official_bert.extension import Extension, Family

_HERE = "official_bert.extensions.feature_based"

EXTENSION = Extension(
    name="feature_based",
    summary="Tags words by a BiLSTM on the layers of an encoder that is not trained.",
    families={
        "feature_tagging": Family(
            task=f"{_HERE}.task:FeatureTaggingTask",
            script="run_ner",
            tasks=("feature_based",),
            head_weights=("features/",),
        )
    },
    options={"run_ner": f"{_HERE}.options:FeatureOptions"},
    keras_modules=(f"{_HERE}.model",),
)
