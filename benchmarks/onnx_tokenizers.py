#!/usr/bin/env python3
"""Compares tokenizers inside ONNX files with FullTokenizer: the one of this package, and
BertTokenizer of onnxruntime-extensions.

In: a vocabulary. Out: a table of the texts that have other ids than those of FullTokenizer, of the
code points that have other ids, by their category in Unicode, and of the microseconds for a text
on one thread. `pip install --group bench onnxruntime-extensions` installs what it compares.
"""

import argparse
import collections
import json
import os
import pathlib
import pydoc_data.topics
import random
import sys
import time
import unicodedata
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import onnxruntime
import tensorflow as tf
from onnx import TensorProto, helper

from official_bert import FullTokenizer
from official_bert.extensions.onnx_files import onnx_writer
from official_bert.extensions.onnx_files.traced_tokenizer import TracedTokenizer

Encode = Callable[[list[str]], list[list[int]]]
OURS, THEIRS = "this package", "onnxruntime-extensions"
# The first and the last code points of the parts of Unicode from which random texts are drawn.
RANGES = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x1000), (0x300, 0x370), (0x1000, 0x3100)]
RANGES += [(0x3100, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)]
BATCH_SIZE = 64


def draw_text(draws: random.Random) -> str:
    """Draws a text: English letters, and characters of all planes."""
    characters = []
    for _ in range(draws.randrange(1, 40)):
        if draws.random() < 0.5:
            characters.append(draws.choice("abcdefghijklmnopqrstuvwxyz ABCDEFG.,'-"))
        else:
            characters.append(chr(draws.randrange(*draws.choice(RANGES))))
    return "".join(characters)


def open_session(model: bytes, library: str | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if library:
        options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def compile_ours(tokenizer: FullTokenizer) -> Encode:
    traced = TracedTokenizer(tokenizer)

    def encode_in_graph(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = traced.encode(inputs["texts"])
        return {"ids": ids.values, "splits": ids.row_splits}

    inputs = {"texts": ["batch"]}
    session = open_session(
        onnx_writer.write_signature(encode_in_graph, inputs, "float32", {}, traced.calls)
    )

    def encode(texts: list[str]) -> list[list[int]]:
        ids, splits = session.run(["ids", "splits"], {"texts": np.array(texts, object)})
        return [row.tolist() for row in np.split(ids, splits[1:-1])]

    return encode


def compile_theirs(vocab_file: str, do_lower_case: bool) -> Encode:
    """BertTokenizer reads one text, or a pair, and adds [CLS] and [SEP]."""
    import onnxruntime_extensions

    outputs = ["input_ids", "token_type_ids", "attention_mask"]
    node = helper.make_node(
        "BertTokenizer",
        ["text"],
        outputs,
        domain="ai.onnx.contrib",
        vocab_file=pathlib.Path(vocab_file).read_text(encoding="utf-8"),
        do_lower_case=int(do_lower_case),
        strip_accents=int(do_lower_case),
        do_basic_tokenize=1,
        tokenize_chinese_chars=1,
        max_length=-1,
    )
    graph = helper.make_graph(
        [node],
        "tokenizer",
        [helper.make_tensor_value_info("text", TensorProto.STRING, ["texts"])],
        [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in outputs],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.contrib", 1)],
        ir_version=9,
    )
    session = open_session(model.SerializeToString(), onnxruntime_extensions.get_library_path())

    def encode(texts: list[str]) -> list[list[int]]:
        rows = []
        for text in texts:
            ids = session.run(["input_ids"], {"text": np.array([text], object)})[0]
            rows.append(ids.tolist()[1:-1])
        return rows

    return encode


def count_differences(encode: Encode, tokenizer: FullTokenizer, texts: list[str]) -> list[str]:
    """The texts that have other ids."""
    different = []
    for start in range(0, len(texts), BATCH_SIZE):
        batch = texts[start : start + BATCH_SIZE]
        for text, ids in zip(batch, encode(batch), strict=True):
            if ids != tokenizer.encode(text):
                different.append(text)
    return different


def measure_micros(encode: Encode, texts: list[str], batch_size: int, rounds: int) -> float:
    """The median of the microseconds for a text."""
    micros = []
    for _ in range(rounds):
        start = time.perf_counter()
        for first in range(0, len(texts), batch_size):
            encode(texts[first : first + batch_size])
        micros.append(1e6 * (time.perf_counter() - start) / len(texts))
    return float(np.median(micros))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab_file", required=True, help="vocabulary of a released model")
    parser.add_argument("--cased", action="store_true", help="keep case and accents")
    parser.add_argument("--num_texts", type=int, default=100_000, help="random texts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--columns", nargs="+", default=[OURS, THEIRS], choices=[OURS, THEIRS])
    flags = parser.parse_args()

    tokenizer = FullTokenizer(flags.vocab_file, not flags.cased)
    compilers = {
        OURS: lambda: compile_ours(tokenizer),
        THEIRS: lambda: compile_theirs(flags.vocab_file, not flags.cased),
    }
    draws = random.Random(1)
    random_texts = [draw_text(draws) for _ in range(flags.num_texts)]
    topics = "\n".join(pydoc_data.topics.topics.values())
    lines = [line for line in topics.split("\n") if line.strip()]
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    code_texts = [f"a{chr(code)}b" for code in codes]
    for name in flags.columns:
        encode = compilers[name]()
        different_codes = count_differences(encode, tokenizer, code_texts)
        categories = collections.Counter(unicodedata.category(text[1]) for text in different_codes)
        row = {
            "tokenizer": name,
            "cased": flags.cased,
            "random texts": flags.num_texts,
            "random texts that differ": len(count_differences(encode, tokenizer, random_texts)),
            "lines of English": len(lines),
            "lines that differ": len(count_differences(encode, tokenizer, lines)),
            "code points": len(codes),
            "code points that differ": len(different_codes),
            "by category": dict(categories.most_common()),
            "us a line, one at a time": round(measure_micros(encode, lines, 1, flags.rounds), 1),
            "us a line, 32 at a time": round(measure_micros(encode, lines, 32, flags.rounds), 1),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
