"""The most frequent label as the prediction for WNLI, which the paper submitted to GLUE's site."""

from official_bert.extension import Extension, Family

EXTENSION = Extension(
    name="majority",
    summary="Predicts the most frequent label for WNLI, as the paper did.",
    families={
        "majority": Family(
            task="official_bert.extensions.majority.task:MajorityTask",
            script="run_classifier",
            variants="official_bert.extensions.majority.variants:TASKS",
        )
    },
)
