"""Writes mediapipe.tflite: a model that MediaPipe's text tasks call with a text.

In: a classifier or an embedding model that reads one text. Out: a TFLite file with one input
shape, one output, and metadata with the tokenizer, the vocabulary and the labels.
"""

import os
import tempfile
from typing import Any, NamedTuple

import tensorflow as tf

from official_bert.checkpoints import named_variables
from official_bert.extensions.runtimes import tflite_metadata
from official_bert.extensions.runtimes.tflite_metadata import ModelNote, TensorNote
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_dir import LABELS_NAME, join_lines
from official_bert.options.fine_tuning import WINDOWS
from official_bert.options.shared import INT8
from official_bert.serving.export import ExportedModel, TrainedModel, save
from official_bert.serving.exported_model import DEFAULT
from official_bert.serving.signatures import Signature
from official_bert.tokenization import vocabulary_lines

FILE = "mediapipe.tflite"
VOCAB_NAME = "vocab.txt"
_SPECIAL_PIECES = ("[UNK]", "[CLS]", "[SEP]")
# Our input -> the name by which MediaPipe finds it, and its description.
_INPUTS = {
    "input_ids": ("ids", "The ids of the tokens; 0 is padding."),
    "input_mask": ("mask", "1 for a token, and 0 for padding."),
    "segment_ids": ("segment_ids", "0, because the model reads one text."),
}
# Our output -> what the metadata has about it.
_OUTPUTS = {
    "probabilities": TensorNote("probability", "The probability of each label.", LABELS_NAME),
    "embedding": TensorNote("embedding", "The embedding of the text."),
}


class TextTask(NamedTuple):
    """A model that MediaPipe can serve.

    Attributes:
        built: the model.
        signature: the function of the file, of int32[1, max_seq_length] each.
        output: the name of its output.
    """

    built: TrainedModel
    signature: Signature
    output: str


def make_text_task(built: TrainedModel) -> TextTask:
    """Build the graph of the file.

    Args:
        built: the model.

    Raises:
        InputError: MediaPipe cannot serve the model.
    """
    _check_inputs(built)
    _check_tokenizer(built)
    spec = tf.TensorSpec([1, built.max_seq_length], tf.int32)

    @tf.function(input_signature=[spec] * len(ENCODER_INPUTS), autograph=False)
    def compute_output(
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        tensors = (input_ids, input_mask, segment_ids)
        features = dict(zip(ENCODER_INPUTS, tensors, strict=True))
        return _select_output(built, built.task.serving_outputs(built.model, features))

    (output,) = compute_output.get_concrete_function().structured_outputs
    return TextTask(built, compute_output, output)


def _select_output(built: TrainedModel, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the output that MediaPipe reads; raises InputError if there is none."""
    for name in _OUTPUTS:
        if name in outputs and outputs[name].shape.rank == 2:
            return {name: outputs[name]}
    raise _refuse(built, f"its outputs are {', '.join(outputs)}")


def _refuse(built: TrainedModel, reason: str) -> InputError:
    """Returns the error for a model that MediaPipe cannot serve."""
    return InputError(
        "--mediapipe: MediaPipe serves classifiers and embeddings of one text, and not a model of "
        f"--task_name={built.task_name} ({reason}); leave the flag out"
    )


def _check_inputs(built: TrainedModel) -> None:
    """Rejects a model that reads something else than the start of one text."""
    task = built.task
    settings = task.settings()
    # None stands for a text or a pair.
    num_texts = settings.get("num_texts", len(task.text_inputs))
    if task.num_choices is not None or num_texts not in (1, None):
        raise _refuse(built, "it does not read one text")
    if settings.get("long_texts") == WINDOWS:
        raise InputError(
            f"--mediapipe: the model reads long texts in windows (--long_texts={WINDOWS}), and "
            "MediaPipe truncates them; leave the flag out, or train without --long_texts"
        )
    prompts = settings.get("prompts") or {}
    if prompt := prompts.get(settings.get("default_prompt_name")):
        raise InputError(
            f"--mediapipe: the model puts the prompt {prompt!r} before each text, and MediaPipe "
            "has no prompts; leave the flag out"
        )


def _check_tokenizer(built: TrainedModel) -> None:
    """Rejects a tokenizer that MediaPipe does not have."""
    tokenizer = built.tokenizer
    if not tokenizer.basic_tokenizer.do_lower_case:
        raise InputError(
            "--mediapipe: the model is cased (--do_lower_case=False), and MediaPipe lower-cases "
            "the letters A to Z of each text; use an uncased model, or leave the flag out"
        )
    for piece in _SPECIAL_PIECES:
        if piece not in tokenizer.vocab:
            raise InputError(
                f"--mediapipe: {built.vocab_file} lacks {piece}, which MediaPipe needs; leave the "
                "flag out"
            )


def write_text_task(text_task: TextTask, dtype: str, folder: str) -> dict[str, Any]:
    """Write mediapipe.tflite.

    Args:
        text_task: the model.
        dtype: the type of the weights: float32 or int8.
        folder: the folder of the file.

    Returns:
        The name and the digest of the file, for the record of the export.
    """
    content = _convert(text_task, dtype)
    built = text_task.built
    associated_files = {VOCAB_NAME: join_lines(vocabulary_lines(built.vocab_file))}
    output = _OUTPUTS[text_task.output]
    if output.labels_file:
        labels = [str(label) for label in built.task.labels or ()]
        associated_files[output.labels_file] = join_lines(labels)
    note = ModelNote(
        name=f"BERT {built.task_name}",
        description=f"Reads a text of up to {built.max_seq_length} tokens.",
        inputs=_list_inputs(content),
        outputs=[output],
        vocab_file=VOCAB_NAME,
    )
    path = os.path.join(folder, FILE)
    with files.open_file(path, "wb") as file:
        file.write(tflite_metadata.write_metadata(content, note, associated_files))
    return {"file": FILE, "sha256": files.sha256(path)}


def _convert(text_task: TextTask, dtype: str) -> bytes:
    """Returns the content of a TFLite file without metadata."""
    functions = {DEFAULT: text_task.signature}
    weights = {
        name: variable.value for name, variable in named_variables(text_task.built.model).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        save(ExportedModel(functions, weights), functions, folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[DEFAULT])
        if dtype == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return converter.convert()


def _list_inputs(content: bytes) -> list[TensorNote]:
    """Returns the notes about the inputs of a TFLite file, in the order of the file."""
    notes = []
    for tensor_name in tflite_metadata.read_input_names(content):
        input_name = next(name for name in ENCODER_INPUTS if name in tensor_name)
        notes.append(TensorNote(*_INPUTS[input_name]))
    return notes
