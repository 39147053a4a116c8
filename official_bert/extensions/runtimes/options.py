"""The options of further formats: of export_saved_model, and of what opens an export."""

import dataclasses

from official_bert.options.fields import PROBABILITY, option
from official_bert.options.fine_tuning import AUTO
from official_bert.options.serving import SAVED_MODEL, PredictorSettings
from official_bert.options.shared import BFLOAT16, FLOAT32

ONNX, LITERT = "onnx", "litert"
# Format of an export -> what computes it.
EXPORT_FORMATS = {SAVED_MODEL: "tensorflow", ONNX: "onnxruntime", LITERT: "litert"}
FLOAT16, INT8 = "float16", "int8"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """What official-bert export_saved_model gets from this extension; --dtype is the core's with
    int8.
    """

    dtype: str = option(
        FLOAT32,
        basic=True,
        choices=(FLOAT32, BFLOAT16, FLOAT16, INT8),
        help="The type of the export's kernels and tables of embeddings, and of its matrix "
        "products. bfloat16 halves the size of a SavedModel, and is faster on devices that "
        "multiply it: newer GPUs and CPUs with AMX or AVX512_BF16. float16 halves the size of an "
        "ONNX file, and is faster on GPUs. int8, of the other formats, is a quarter of the size "
        "and faster on CPUs.",
    )
    export_format: list[str] | None = option(
        None,
        basic=True,
        check=(
            lambda names: {*names} <= {*EXPORT_FORMATS},
            f"must be of {', '.join(EXPORT_FORMATS)}",
        ),
        help="What runs the export: TensorFlow and its server (saved_model, the default), "
        "onnxruntime (onnx, a file model.onnx), or LiteRT on CPUs and phones (litert, "
        "model.tflite). These two need the extra official-bert[runtimes]. Of several, separated by "
        "commas, official-bert predict takes the fastest.",
    )
    max_loss: float | None = option(
        None,
        check=PROBABILITY,
        help="With --dtype=int8, the share of the task's metric on the development set that 8 bits "
        "may cost, such as 0.005 for half a percent. The script measures both, and exports nothing "
        "if more is lost.",
    )
    dev_file: str | None = option(
        None, help="With --max_loss, the development set, in the form of the training."
    )
    data_dir: str | None = option(
        None,
        help="With --max_loss, the folder with the development set under its usual name, in place "
        "of --dev_file.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeOptions(PredictorSettings):
    """What official-bert predict and Predictor get from this extension."""

    runtime: str = option(
        AUTO,
        choices=(AUTO, *EXPORT_FORMATS.values()),
        help="What computes an export of several formats. auto answers a small batch with each "
        "that is installed, when it opens the model, and keeps the fastest.",
    )
