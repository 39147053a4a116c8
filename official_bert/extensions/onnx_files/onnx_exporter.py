"""Exports models as ONNX files."""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version as metadata_version
from typing import NamedTuple

from official_bert.extensions.onnx_files import onnx_writer
from official_bert.extensions.onnx_files.onnx_format import FILE
from official_bert.extensions.onnx_files.onnx_translator import TracedCall
from official_bert.extensions.onnx_files.traced_tokenizer import TracedTokenizer
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.graph_text.text_reader import TextReader
from official_bert.io import files
from official_bert.serving.export import TrainedModel
from official_bert.serving.export_format import ConversionSource
from official_bert.serving.exported_model import DEFAULT
from official_bert.version import __version__


class _Signature(NamedTuple):
    """A signature before it is written.

    Attributes:
        outputs: a function from its inputs to its outputs.
        inputs: name of an input -> its dimensions.
        text_calls: the calls by which the outputs read texts; None if they read tensors.
    """

    outputs: onnx_writer.Outputs
    inputs: Mapping[str, Sequence[str | int]]
    text_calls: Sequence[TracedCall] | None = None


def write_onnx(source: ConversionSource, folder: str) -> str:
    """Write model.onnx, and <signature>.onnx of each further signature.

    Args:
        source: the model and its signatures.
        folder: the folder of the files.

    Returns:
        The versions of the writer and of its package.
    """
    built = source.built
    make = _make_text_signature if source.reads_text else _make_tensor_signature
    for name in source.signatures:
        signature = make(built, name)
        metadata = {
            "signature": name,
            "task_name": built.task_name,
            "dtype": source.dtype,
            "labels": json.dumps([str(label) for label in built.task.labels or ()]),
        }
        content = onnx_writer.write_signature(
            signature.outputs, signature.inputs, source.dtype, metadata, signature.text_calls
        )
        file_name = FILE if name == DEFAULT else f"{name}.onnx"
        with files.open_file(os.path.join(folder, file_name), "wb") as file:
            file.write(content)
    return f"official_bert {__version__} onnx {metadata_version('onnx')}"


def _make_tensor_signature(built: TrainedModel, name: str) -> _Signature:
    task, model = built.task, built.model
    position_outputs = task.further_signatures(model)
    outputs_by_signature = {
        DEFAULT: functools.partial(task.serving_outputs, model),
        **task.feature_signatures(model),
        **position_outputs,
    }
    input_names = ENCODER_INPUTS
    if name in position_outputs:
        input_names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    inputs = onnx_writer.list_inputs(input_names, task.num_choices)
    return _Signature(outputs_by_signature[name], inputs)


def _make_text_signature(built: TrainedModel, name: str) -> _Signature:
    task, model = built.task, built.model
    tokenizer = TracedTokenizer(built.tokenizer)
    reader = TextReader(built.tokenizer.vocab, built.max_seq_length, tokenizer)
    outputs_by_signature = {
        DEFAULT: functools.partial(task.serving_text, model, reader=reader),
        **task.further_signatures(model, reader),
    }
    inputs = onnx_writer.list_text_inputs(task.text_inputs)
    return _Signature(outputs_by_signature[name], inputs, tokenizer.calls)
