"""The options of further formats: of export_saved_model, and of what opens an export."""

import dataclasses

from official_bert.options.fields import PROBABILITY, option
from official_bert.options.fine_tuning import AUTO
from official_bert.options.serving import SAVED_MODEL, PredictorSettings
from official_bert.options.shared import BFLOAT16, FLOAT16, FLOAT32, INT8, INT8_WEIGHTS
from official_bert.serving.export_format import export_formats, format_runtimes

TENSORFLOW = "tensorflow"
# Format of an export -> what computes it.
EXPORT_FORMATS = {SAVED_MODEL: TENSORFLOW}
for _format in export_formats().values():
    EXPORT_FORMATS[_format.name] = _format.runtime
_RUNTIME_NAMES = dict.fromkeys(runtime.name for runtime in format_runtimes())


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """What official-bert export_saved_model gets from this extension; --dtype is the core's with
    int8.
    """

    dtype: str = option(
        FLOAT32,
        basic=True,
        choices=(FLOAT32, BFLOAT16, FLOAT16, INT8, INT8_WEIGHTS),
        help="The type of the export's kernels and tables of embeddings, and of its matrix "
        "products. bfloat16 halves the size of a SavedModel, and is faster on devices that "
        "multiply it: newer GPUs and CPUs with AMX or AVX512_BF16. float16 halves the size of an "
        "ONNX file, and is faster on GPUs. int8, of the other formats, is a quarter of the size "
        "and faster on CPUs. int8_weights, of ONNX files, has the same size, is closer to float32, "
        "and is for OpenVINO. int8 in openvino needs --dev_file or --data_dir.",
    )
    export_format: list[str] | None = option(
        None,
        basic=True,
        check=(
            lambda names: {*names} <= {*EXPORT_FORMATS},
            f"must be of {', '.join(EXPORT_FORMATS)}",
        ),
        help="What runs the export: TensorFlow and its server (saved_model, the default), "
        "onnxruntime (onnx, a file model.onnx), LiteRT on CPUs and phones (litert, "
        "model.tflite), or OpenVINO (openvino, model.xml and model.bin). onnx and litert need the "
        "extra official-bert[runtimes], and openvino needs official-bert[nncf]. Of several, "
        "separated by commas, official-bert predict takes the fastest.",
    )
    mediapipe: bool = option(
        False,
        help="With --export_format=litert, also writes mediapipe.tflite, which MediaPipe's text "
        "classifier or text embedder calls with a text in apps for phones. It is for uncased "
        "classifiers and embeddings of one text.",
    )
    max_loss: float | None = option(
        None,
        check=PROBABILITY,
        help="With --dtype=int8 or int8_weights, the share of the task's metric on the development "
        "set that 8 bits may cost, such as 0.005 for half a percent. The script measures both, and "
        "exports nothing if more is lost.",
    )
    dev_file: str | None = option(
        None,
        help="With --max_loss, the development set, in the form of the training. With "
        "--export_format=openvino --dtype=int8, the ranges of the activations come from its texts.",
    )
    data_dir: str | None = option(
        None,
        help="The folder with the development set under its usual name, in place of --dev_file.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeOptions(PredictorSettings):
    """What official-bert predict and Predictor get from this extension."""

    runtime: str = option(
        AUTO,
        choices=(AUTO, TENSORFLOW, *_RUNTIME_NAMES),
        help="What computes an export. auto times each installed runtime of its formats on a small "
        "batch when it opens the model, and keeps the fastest.",
    )
