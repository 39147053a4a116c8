"""Few-shot classification: contrastive training of an encoder, then a logistic regression; and
classification without examples.
"""

from official_bert.extension import Command, Extension, Family

_HERE = "official_bert.extensions.few_shot"

EXTENSION = Extension(
    name="few_shot",
    summary="Classifies texts after a training on few examples of each label, or on none.",
    commands={
        "run_few_shot": Command(
            options=f"{_HERE}.options:FewShotOptions",
            function=f"{_HERE}.command:run",
            check=f"{_HERE}.options:check_paths",
            summary="Trains a classifier on few examples of each label: first the encoder on pairs "
            "of texts, then a logistic regression on its vectors.",
            stage="Fine-tune",
            example="--train_file=few.tsv --dev_file=dev.tsv --model=my_encoder "
            "--output_dir=my_classifier",
        )
    },
    families={
        "few_shot": Family(
            task=f"{_HERE}.task:FewShotTask",
            script="run_classifier",
            variants=f"{_HERE}.variants:TASKS",
        )
    },
    hooks={
        "classifier_trainings": f"{_HERE}.command:classifier_trainings",
        "predictor_methods": f"{_HERE}.zero_shot:predictor_methods",
    },
    keras_modules=(f"{_HERE}.model",),
)
