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

OUTPUTS = GOLDEN / "transformers_outputs.npz"
TOKENS = GOLDEN / "transformers_tokens.jsonl.gz"

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
    """Return the values of a weight, which follow from its name."""
    seed = zlib.crc32(name.encode())
    values = np.random.RandomState(seed).standard_normal(shape)
    mean = 1 if name.endswith("LayerNorm.weight") else 0
    return np.float32(values * 0.15 + mean)


def make_model(name: str):
    """Make a model of a class, whose weights follow from their names."""
    import torch
    import transformers

    settings = dict(SIZES)
    if name in LABELS:
        settings["id2label"] = dict(enumerate(LABELS[name]))
    config = transformers.BertConfig(**settings, attn_implementation="eager")
    model_class = getattr(transformers, name)
    model = model_class(config)
    model.eval()
    model.requires_grad_(False)
    for path, parameter in model.named_parameters():
        values = weight(path, tuple(parameter.shape))
        parameter.copy_(torch.tensor(values))
    return model


def record_outputs(models: pathlib.Path, file: pathlib.Path):
    """Save a model of each class in a folder of its name, and the outputs of all and the shapes
    of their weights.
    """
    import transformers

    vocabulary = "".join(f"{piece}\n" for piece in VOCABULARY)
    vocab_file = models / "vocab.txt"
    vocab_file.write_text(vocabulary)
    tokenizer = transformers.BertTokenizerFast(str(vocab_file), model_max_length=128)
    recorded = {}
    for name, outputs in CLASSES.items():
        model = make_model(name)
        folder = models / name
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "vocab.txt").write_text(vocabulary)  # which version 5 does not write
        shapes = []
        for path, parameter in model.named_parameters():
            shapes.append(json.dumps([path, *parameter.shape]))
        recorded[f"{name}.shapes"] = np.array(shapes)

        batch = tokenizer(
            TEXTS,
            PAIRS,
            padding=True,
            truncation=True,
            return_tensors="pt",
        )
        if name == "BertForMultipleChoice":
            batch = {key: value[None] for key, value in batch.items()}
        out = model(**batch, output_hidden_states=True, output_attentions=True)
        for output in outputs:
            values = np.stack(out[output])
            recorded[f"{name}.{output}"] = values
    np.savez_compressed(file, **recorded)


# do_lower_case and strip_accents.
TOKENIZER_SETTINGS = (
    (True, None),
    (True, False),
    (False, None),
    (False, True),
)


def draw_text(draw: random.Random) -> str:
    separator = draw.choice(["", " "])
    num_samples = draw.randrange(1, 4)
    samples = [draw.choice(SAMPLES) for _ in range(num_samples)]
    return separator.join(samples)


def draw_arguments(draw: random.Random, has_pairs: bool) -> dict[str, object]:
    """Draw arguments of a tokenizer: some of all, max_length always."""
    truncations = [True, False, None, "only_first"]
    if has_pairs:
        truncations.append("only_second")
    values = {
        "padding": draw.choice([True, False, "longest", "max_length", "do_not_pad"]),
        "truncation": draw.choice(truncations),
        "max_length": draw.randrange(9, 40),
        "stride": draw.randrange(0, 3),
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
        "add_special_tokens": False,
    }
    arguments = {}
    for name, value in values.items():
        if name == "max_length" or draw.random() < 0.5:
            arguments[name] = value
    return arguments


def record_tokens(file: pathlib.Path, num_cases: int = 300):
    """Save what the tokenizer makes of random texts with random arguments: a JSON line for
    each.
    """
    import transformers

    draw = random.Random(1)
    vocabulary = str(recording("uncased_vocab.txt"))
    tokenizers = []
    for lower, strip in TOKENIZER_SETTINGS:
        tokenizer = transformers.BertTokenizerFast(
            vocabulary,
            do_lower_case=lower,
            strip_accents=strip,
        )
        tokenizers.append(tokenizer)

    with gzip.GzipFile(file, "wb", mtime=0) as written:
        for number in range(num_cases):
            has_several = draw.random() < 0.7
            if has_several:
                num_texts = draw.randrange(1, 4)
                texts = [draw_text(draw) for _ in range(num_texts)]
            else:
                texts = draw_text(draw)
            has_pairs = draw.random() < 0.6
            pairs = None
            if has_pairs:
                pairs = [draw_text(draw) for _ in texts] if has_several else draw_text(draw)
            arguments = draw_arguments(draw, has_pairs)
            kind = number % 4
            try:
                result = tokenizers[kind](texts, pairs, **arguments)
            # Too short for its arguments, of which some make Rust panic.
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                continue
            case = [TOKENIZER_SETTINGS[kind], texts, pairs, arguments, dict(result)]
            line = json.dumps(case)
            written.write(f"{line}\n".encode())


if __name__ == "__main__":
    record_tokens(TOKENS)
    with tempfile.TemporaryDirectory() as models:
        record_outputs(pathlib.Path(models), OUTPUTS)
