"""Records what transformers and PyTorch make of small models and of texts; it needs
the packages of `pip install --group peers`.

Usage: python -m tests.golden.record_transformers
"""

import gzip
import json
import pathlib
import random
import tempfile
import zlib

import numpy as np

from tests.shared import GOLDEN, recording
from tests.toy import VOCABULARY

OUTPUTS, TOKENS = GOLDEN / "transformers_outputs.npz", GOLDEN / "transformers_tokens.jsonl.gz"

TEXTS = ["The cat sat on the mat.", "It was a sunny day."]
PAIRS = ["It was [MASK] in the park.", "Rain!"]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
# The outputs that are recorded of each class; the labels of some.
CLASSES = {
    "BertModel": ("last_hidden_state", "pooler_output", "hidden_states", "attentions"),
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),
    "BertForMaskedLM": ("logits",),
    "BertForSequenceClassification": ("logits",),
    "BertForTokenClassification": ("logits",),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
    "BertForMultipleChoice": ("logits",),
}
LABELS = {
    "BertForSequenceClassification": ["no", "yes", "perhaps"],
    "BertForTokenClassification": ["O", "B-PER", "I-PER"],
}
SAMPLES = """\
The Crème brûlée, naïve café! Überraschung.|北京の気温は 25°C です。|Emoji 😀👍🏽 and 🤣🦄 text🙂end
unaffable e\u0301te\u0301
Hello [MASK] world[SEP] [CLS]x [mask]|안녕하세요 세계||   |İstanbul ß Åland ŉ ǰ ﬁ ½ ™ Ⅷ
co\u00adop a\u200bb\u200b c\u00a0d\u3000e\u2028f
don't e-mail $5 €5 5% wait… “ok”|ที่นี่ हिन्दी العربية עִבְרִית|x\0y\ufffdz \t\r tab\x0bvt|≠ \u037e \u1fef|Ὀδυσσεύς καὶ|The
internationalization of tokenization|it was the best of times, it was the worst of times""".replace(
    "\n", "|"
).split("|")


def weight(name: str, shape) -> np.ndarray:
    """The values of a weight, which follow from its name."""
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return np.float32(values * 0.15 + (name.endswith("LayerNorm.weight")))


def record_outputs(models: pathlib.Path, file: pathlib.Path):
    """Saves a model of each class in a folder of its name, and the outputs of all and the shapes
    of their weights.
    """
    import torch
    import transformers

    vocabulary = "".join(f"{piece}\n" for piece in VOCABULARY)
    (models / "vocab.txt").write_text(vocabulary)
    tokenizer = transformers.BertTokenizerFast(str(models / "vocab.txt"), model_max_length=128)
    recorded = {}
    for name, outputs in CLASSES.items():
        settings = {"id2label": dict(enumerate(LABELS[name]))} if name in LABELS else {}
        config = transformers.BertConfig(**SIZES, **settings, attn_implementation="eager")
        model = getattr(transformers, name)(config).eval().requires_grad_(False)
        for path, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(weight(path, tuple(parameter.shape))))
        model.save_pretrained(models / name)
        tokenizer.save_pretrained(models / name)
        (models / name / "vocab.txt").write_text(vocabulary)  # which version 5 does not write
        shapes = [
            json.dumps([path, *parameter.shape]) for path, parameter in model.named_parameters()
        ]
        recorded[f"{name}.shapes"] = np.array(shapes)
        batch = tokenizer(TEXTS, PAIRS, padding=True, truncation=True, return_tensors="pt")
        if name == "BertForMultipleChoice":
            batch = {key: value[None] for key, value in batch.items()}
        out = model(**batch, output_hidden_states=True, output_attentions=True)
        for output in outputs:
            recorded[f"{name}.{output}"] = np.stack(out[output])
    np.savez_compressed(file, **recorded)


def record_tokens(file: pathlib.Path, num_cases: int = 300):
    """Saves what the tokenizer makes of random texts with random arguments: a JSON line for
    each.
    """
    import transformers

    settings = [(lower, strip) for lower in (True, False) for strip in (None, not lower)]
    vocabulary, draw = str(recording("uncased_vocab.txt")), random.Random(1)
    tokenizers = [
        transformers.BertTokenizerFast(vocabulary, do_lower_case=lower, strip_accents=strip)
        for lower, strip in settings
    ]

    def text() -> str:
        return draw.choice(["", " "]).join(
            draw.choice(SAMPLES) for _ in range(draw.randrange(1, 4))
        )

    with gzip.GzipFile(file, "wb", mtime=0) as written:
        for number in range(num_cases):
            several = draw.random() < 0.7
            texts = [text() for _ in range(draw.randrange(1, 4))] if several else text()
            pairs = (
                ([text() for _ in texts] if several else text()) if draw.random() < 0.6 else None
            )
            some = {
                "padding": draw.choice([True, False, "longest", "max_length", "do_not_pad"]),
                "truncation": draw.choice(
                    [True, False, None, "only_first", *["only_second"] * (pairs is not None)]
                ),
                "max_length": draw.randrange(9, 40),
                "stride": draw.randrange(0, 3),
                "return_overflowing_tokens": True,
                "return_offsets_mapping": True,
                "add_special_tokens": False,
            }
            arguments = {
                name: some[name] for name in some if name == "max_length" or draw.random() < 0.5
            }
            try:
                found = dict(tokenizers[number % 4](texts, pairs, **arguments))
            # Too short for its arguments, of which some make Rust panic.
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                continue
            written.write(
                f"{json.dumps([settings[number % 4], texts, pairs, arguments, found])}\n".encode()
            )


if __name__ == "__main__":
    record_tokens(TOKENS)
    with tempfile.TemporaryDirectory() as models:
        record_outputs(pathlib.Path(models), OUTPUTS)
