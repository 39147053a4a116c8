"""Exports models in OpenVINO's own format: model.xml, and model.bin with the weights.

In: the ONNX files of a model, in float32. Out: the same graphs, in 8 bits after NNCF has measured
the ranges of their activations on examples.
"""

import contextlib
import io
import logging as standard_logging
import os
import tempfile
from importlib.metadata import version as metadata_version
from typing import Any

import numpy as np
from absl import logging

from official_bert.config import BertConfig
from official_bert.extensions.openvino.formats import ONNX, OPENVINO
from official_bert.features import EncodedSet
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.shared import FLOAT32, INT8
from official_bert.serving import conversion
from official_bert.serving.export_format import ConversionSource, import_runtime

_EXTRA = "nncf"
_MAX_EXAMPLES = 300
# NNCF sends statistics of its use to its makers unless this variable of the environment is set.
_WITHOUT_STATISTICS = "NNCF_CI"


def check_config(config: BertConfig) -> None:
    """Reject a model that the ONNX files cannot store from which the files are made.

    Args:
        config: the configuration of the model.

    Raises:
        InputError: the model has no ONNX form.
    """
    conversion.check_model(ONNX, config)


def write_openvino(source: ConversionSource, folder: str) -> str:
    """Write model.xml and model.bin, and <signature>.xml and .bin of each further signature.

    Args:
        source: the model and its signatures; with int8 also examples.
        folder: the folder of the files.

    Returns:
        The versions of OpenVINO, and of NNCF with int8.

    Raises:
        InputError: a signature has no ONNX form, or examples lack an input of it.
    """
    openvino = import_runtime("openvino", extra=_EXTRA)
    core = openvino.Core()
    with tempfile.TemporaryDirectory() as onnx_folder:
        conversion.convert(source._replace(dtype=FLOAT32), onnx_folder, [ONNX])
        for path in sorted(files.matching("*.onnx", onnx_folder)):
            model = core.read_model(path)
            signature = os.path.basename(path).removesuffix(".onnx")
            if source.dtype == INT8:
                assert source.calibration is not None, "the writer has read the examples"
                model = _quantize(model, signature, source.calibration)
            target = os.path.join(folder, f"{signature}.xml")
            openvino.save_model(model, target, compress_to_fp16=False)
    packages = [OPENVINO, _EXTRA] if source.dtype == INT8 else [OPENVINO]
    return " ".join(f"{name} {metadata_version(name)}" for name in packages)


def _quantize(model: Any, signature: str, examples: EncodedSet) -> Any:
    """Returns the model in 8 bits, with the ranges of activations on some examples."""
    os.environ.setdefault(_WITHOUT_STATISTICS, "1")
    nncf = import_runtime("nncf", extra=_EXTRA)
    nncf.set_log_level(standard_logging.ERROR)
    input_names = [value.get_any_name() for value in model.inputs]
    batches = _make_batches(examples, input_names, signature)
    logging.info("Measuring the ranges of the activations on %d examples ...", len(batches))
    # NNCF draws its progress bars on the standard output, on which commands print results.
    with contextlib.redirect_stdout(io.StringIO()):
        return nncf.quantize(
            model,
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            # Products of 8 bits overflow on processors without VNNI unless weights have 7 bits.
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=nncf.OverflowFix.ENABLE
            ),
        )


def _make_batches(
    examples: EncodedSet, input_names: list[str], signature: str
) -> list[dict[str, np.ndarray]]:
    """Returns the inputs of examples that are spread over a set.

    Each example has a batch of its own, because padding would count in the ranges.
    """
    num_examples = len(examples.lengths)
    num_rows = min(num_examples, _MAX_EXAMPLES)
    batches = []
    for row in np.linspace(0, num_examples, num_rows, endpoint=False).astype(int):
        features = examples.features(np.array([row]), int(examples.lengths[row]))
        if missing := [name for name in input_names if name not in features]:
            raise InputError(
                f"--dtype={INT8}: examples lack the input {missing[0]} of the signature "
                f"{signature}; give --dtype={FLOAT32}, or --export_format={ONNX}"
            )
        batches.append({name: np.asarray(features[name]) for name in input_names})
    return batches
