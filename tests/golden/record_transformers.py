"""Records what transformers and PyTorch make of small models and of texts; it needs requirements-bench.txt.

Usage: python -m tests.golden.record_transformers tests/golden
"""

import gzip
import json
import pathlib
import random
import shutil
import sys
import tempfile
import zlib

import numpy as np

from tests.shared import recording
from tests.toy import VOCABULARY

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
internationalization of tokenization|it was the best of times, it was the worst of times""".replace("\n", "|").split(
    "|"
)


def weight(name: str, shape) -> np.ndarray:
    """The values of a weight, which follow from its name."""
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return np.float32(values * 0.15 + (name.endswith("LayerNorm.weight")))


def record_outputs(folder: pathlib.Path):
    """Saves a model of each class in a folder of its name, and the outputs of all and the shapes of their weights."""
    import torch
    import transformers

    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCABULARY))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=128)
    recorded = {}
    for name, outputs in CLASSES.items():
        settings = {"id2label": dict(enumerate(LABELS[name]))} if name in LABELS else {}
        config = transformers.BertConfig(**SIZES, **settings, attn_implementation="eager")
        model = getattr(transformers, name)(config).eval()
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(weight(path, tuple(parameter.shape))))
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        (folder / name / "vocab.txt").write_text((folder / "vocab.txt").read_text())
        recorded[f"{name}.shapes"] = np.array(
            [json.dumps([path, *parameter.shape]) for path, parameter in model.named_parameters()]
        )
        batch = tokenizer(TEXTS, PAIRS, padding=True, truncation=True, return_tensors="pt")
        if name == "BertForMultipleChoice":
            batch = {key: value[None] for key, value in batch.items()}
        wanted = {"output_hidden_states": True, "output_attentions": True} if name == "BertModel" else {}
        with torch.no_grad():
            out = model(**batch, **wanted)
        for output in outputs:
            value = out[output]
            recorded[f"{name}.{output}"] = torch.stack(value).numpy() if isinstance(value, tuple) else value.numpy()
    np.savez_compressed(folder / "transformers_outputs.npz", **recorded)


def record_tokens(folder: pathlib.Path, vocab_file: pathlib.Path, num_cases: int = 300):
    """Saves what the tokenizer makes of random texts with random arguments: a JSON line for each."""
    import transformers

    settings = [(lower, strip) for lower in (True, False) for strip in (None, not lower)]
    tokenizers = {
        one: transformers.BertTokenizerFast(str(vocab_file), do_lower_case=one[0], strip_accents=one[1])
        for one in settings
    }
    draw = random.Random(1)

    def text() -> str:
        return draw.choice(["", " "]).join(draw.choice(SAMPLES) for _ in range(draw.randrange(1, 4)))

    with gzip.GzipFile(folder / "transformers_tokens.jsonl.gz", "wb", mtime=0) as file:
        for number in range(num_cases):
            several = draw.random() < 0.7
            texts = [text() for _ in range(draw.randrange(1, 4))] if several else text()
            pairs = ([text() for _ in texts] if several else text()) if draw.random() < 0.6 else None
            some = {
                "padding": draw.choice([True, False, "longest", "max_length", "do_not_pad"]),
                "truncation": draw.choice([True, False, None, "only_first", *["only_second"] * (pairs is not None)]),
                "max_length": draw.randrange(9, 40),
                "stride": draw.randrange(0, 3),
                "return_overflowing_tokens": True,
                "return_offsets_mapping": True,
                "add_special_tokens": False,
            }
            chosen = [name for name in some if name == "max_length" or draw.random() < 0.5]
            arguments = {name: some[name] for name in chosen}
            try:
                found = tokenizers[settings[number % 4]](texts, pairs, **arguments)
            except BaseException as error:  # too short for its arguments, of which some make Rust panic
                if isinstance(error, KeyboardInterrupt):
                    raise
                continue
            case = [settings[number % 4], texts, pairs, arguments, dict(found)]
            file.write(f"{json.dumps(case)}\n".encode())


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    record_tokens(target, recording("uncased_vocab.txt"))
    with tempfile.TemporaryDirectory() as made:
        record_outputs(pathlib.Path(made))
        shutil.copy(pathlib.Path(made, "transformers_outputs.npz"), target)
