"""Many heads on one encoder: an export that answers with several fine-tuned models, and its
reader.
"""

from official_bert.extension import Command, Extension, Family

_HERE = "official_bert.extensions.many_heads"

EXTENSION = Extension(
    name="many_heads",
    summary="Exports several fine-tuned models with equal encoders as one model, and reads it.",
    commands={
        "export_heads": Command(
            options=f"{_HERE}.options:HeadExportOptions",
            function=f"{_HERE}.export:run",
            check=f"{_HERE}.options:check_folders",
            summary="Exports fine-tuned models with equal encoders as one SavedModel or ONNX file.",
            stage="Use the model",
            example="--heads=intent=intent_output,pii=pii_output --export_dir=heads --export_text",
        )
    },
    families={"heads": Family(task=f"{_HERE}.heads_task:HeadsTask")},
    options={"predict": f"{_HERE}.options:HeadChoice"},
    hooks={
        "predictor_methods": f"{_HERE}.predictor_methods:methods",
        "predictor_model": f"{_HERE}.head_model:choose_head",
    },
)
