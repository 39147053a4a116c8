"""Records exports of small models by TensorFlow 2.21, and their outputs; it needs that version.

Usage: python -m tests.golden.record_exports
"""

import pathlib
import tarfile
import tempfile

import numpy as np
import tensorflow as tf

from official_bert.data.records.framing import encode_examples
from official_bert.serving import model as serving_model
from tests.serving import exported
from tests.serving.answers import call
from tests.shared import GOLDEN

ARCHIVE = GOLDEN / "exports_tf221.tar.xz"
VERSION = "2.21."
# Name of an export -> the kind of its task, and whether it reads text.
EXPORTS = {"tensors": ("mrpc", False), "text": ("mrpc", True), "questions": ("squad", True)}
TEXTS = {
    "text": {
        "text_a": ["The cat sat on the mat.", "Rain!", ""],
        "text_b": ["It was a sunny day.", "", "Nobody was on board, \u00e9t\u00e9."],
    },
    "questions": {
        "question": ["Who sat?", "What left the station?"],
        "context": ["The cat sat on the mat.", "A train left the station at noon. " * 3],
    },
}


def make_requests(name: str) -> dict[str, dict[str, np.ndarray]]:
    """The inputs of each signature."""
    if name in TEXTS:
        texts = {
            field: np.array([text.encode() for text in values], object)
            for field, values in TEXTS[name].items()
        }
        return {"serving_default": texts, "serving_text": texts}
    features = exported.batch("mrpc", 4, 20)
    return {
        "serving_default": features,
        "serving_ids": {"input_ids": features["input_ids"]},
        "serving_examples": {"examples": np.array(encode_examples(features), object)},
    }


def flatten(outputs: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Names each array by its signature and its own name; texts become bytes of one length."""
    arrays = {}
    for signature, values in outputs.items():
        for name, array in values.items():
            is_text = array.dtype == object
            arrays[f"{signature}/{name}"] = array.astype(np.bytes_) if is_text else array
    return arrays


def record(name: str, folder: pathlib.Path):
    """Exports a model into a folder, with its outputs in outputs.npz."""
    kind, reads_text = EXPORTS[name]
    others = exported.SQUAD_2 if kind == "squad" else {}
    exported.make_checkpoint(folder / "made", kind)
    options = exported.export_options(folder / "made", kind, export_text=reads_text, **others)
    version = pathlib.Path(serving_model.export(options))
    signatures = tf.saved_model.load(str(version)).signatures
    outputs = {
        signature: call(signatures[signature], inputs)
        for signature, inputs in make_requests(name).items()
    }
    target = folder / name
    version.rename(target)
    np.savez(target / "outputs.npz", **flatten(outputs))


def main():
    assert tf.__version__.startswith(VERSION), f"this is TensorFlow {tf.__version__}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for name in EXPORTS:
                record(name, folder)
                (folder / "made").rename(folder / f"made_{name}")
                archive.add(folder / name, name)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
