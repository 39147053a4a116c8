"""Records what the DistilBERT classes of transformers and PyTorch compute; it needs the packages of
`pip install --group peers`.

Usage: python -m tests.extensions.distilbert.record_outputs
"""

import json
import pathlib
import zlib

import numpy as np

from tests.golden.record_transformers import PAIRS, TEXTS
from tests.toy import VOCABULARY

OUTPUTS = pathlib.Path(__file__).with_name("outputs.npz")
SETTINGS = {
    "vocab_size": len(VOCABULARY),
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 128,
}
# The outputs that are recorded of each class; the labels of some.
CLASSES = {
    "DistilBertModel": ("last_hidden_state",),
    "DistilBertForMaskedLM": ("logits",),
    "DistilBertForSequenceClassification": ("logits",),
    "DistilBertForTokenClassification": ("logits",),
    "DistilBertForQuestionAnswering": ("start_logits", "end_logits"),
    "DistilBertForMultipleChoice": ("logits",),
}
LABELS = {
    "DistilBertForSequenceClassification": ["sadness", "joy", "anger"],
    "DistilBertForTokenClassification": ["O", "B-PER", "I-PER"],
}


def make_weight(name: str, shape) -> np.ndarray:
    """Return the values of a weight, which follow from its name."""
    generator = np.random.RandomState(zlib.crc32(name.encode()))
    is_scale = name.lower().replace("_", "").endswith("layernorm.weight")
    values = generator.standard_normal(shape) * 0.15
    return np.float32(values + is_scale)


def make_config(name: str) -> dict:
    """Return the content of the config.json of a class."""
    config = SETTINGS | {"architectures": [name], "model_type": "distilbert", "activation": "gelu"}
    if name in LABELS:
        config["id2label"] = dict(enumerate(LABELS[name]))
    return config


def record_class(name: str, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Save a model of a class in a folder; return its outputs and the shapes of its weights."""
    import torch
    import transformers

    settings = make_config(name)
    for field in ("architectures", "model_type"):
        del settings[field]
    config = transformers.DistilBertConfig(**settings, attn_implementation="eager")
    model = getattr(transformers, name)(config)
    model.eval()
    model.requires_grad_(False)
    shapes = []
    for path, parameter in model.named_parameters():
        parameter.copy_(torch.tensor(make_weight(path, tuple(parameter.shape))))
        shapes.append(json.dumps([path, *parameter.shape]))
    model.save_pretrained(folder)

    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("".join(f"{piece}\n" for piece in VOCABULARY))
    tokenizer = transformers.BertTokenizerFast(str(vocab_file), model_max_length=128)
    tokenizer.save_pretrained(folder)
    batch = dict(tokenizer(TEXTS, PAIRS, padding=True, return_tensors="pt"))
    del batch["token_type_ids"]
    if name == "DistilBertForMultipleChoice":
        batch = {key: value[None] for key, value in batch.items()}
    out = model(**batch)
    recorded = {f"{name}.{output}": np.asarray(out[output]) for output in CLASSES[name]}
    recorded[f"{name}.shapes"] = np.array(shapes)
    return recorded


def record(folder: pathlib.Path, file: pathlib.Path):
    """Save a model of each class in a folder of its name, and the outputs of all in a file."""
    recorded = {}
    for name in CLASSES:
        class_folder = folder / name
        class_folder.mkdir()
        recorded |= record_class(name, class_folder)
    np.savez_compressed(file, **recorded)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as models:
        record(pathlib.Path(models), OUTPUTS)
