"""Joint training of several tasks over one encoder, with a head for each task."""

from official_bert.extension import Command, Extension, Family

_HERE = "official_bert.extensions.multitask"

EXTENSION = Extension(
    name="multitask",
    summary="Trains several tasks at once over one encoder, with a head for each.",
    commands={
        "run_multitask": Command(
            options=f"{_HERE}.options:MultitaskOptions",
            function="official_bert.fine_tuning.run:fine_tune",
            check="official_bert.commands.first_checks:check_fine_tuning",
            summary="Fine-tunes BERT on several tasks at once, with a head for each task.",
            stage="Fine-tune",
            example="--model=bert --data_sets=tasks.toml --do_train --do_eval --output_dir=joint",
        )
    },
    families={
        "multitask": Family(
            task=f"{_HERE}.task:MultitaskTask",
            script="run_multitask",
            tasks=("multitask",),
            head_weights=("task_heads/",),
        )
    },
    hooks={"fine_tuning": f"{_HERE}.plugin:MultitaskPlugin"},
)
