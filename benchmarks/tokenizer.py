#!/usr/bin/env python3
"""Compares the speed of FullTokenizer with plain rules and with Hugging Face's Rust tokenizer, each
on one thread.

In: a text and a vocabulary. Out: a table of tokens per second of CPU time; the best of several
rounds counts. A fresh FullTokenizer has an empty cache, and a used one has tokenized the same text
before.
"""

import argparse
import collections
import os
import pathlib
import pydoc_data.topics
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert.tokenization import FullTokenizer
from tests.oracles.plain_tokenizer import PlainTokenizer

RULES = "the rules in plain Python"
RUST_LINES = "Hugging Face tokenizers (Rust), encode"
RUST = "Hugging Face tokenizers (Rust), encode_batch_fast"

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--input_file", help="text, read line by line; by default Python's help texts"
    )
    parser.add_argument("--vocab_file", help="vocabulary; by default made from the commonest words")
    parser.add_argument("--cased", action="store_true", help="keep case and accents")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()

    if flags.input_file:
        text = pathlib.Path(flags.input_file).read_text(encoding="utf-8")
    else:
        text = "\n".join(pydoc_data.topics.topics.values())
    lines = text.split("\n")
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = flags.vocab_file or write_vocabulary(text, pathlib.Path(folder, "vocab.txt"))
        print_table(lines, str(vocab_file), not flags.cased, flags.rounds)


def write_vocabulary(text: str, path: pathlib.Path) -> pathlib.Path:
    """Writes a vocabulary of all letters and the 8,000 commonest lower-cased words and word
    ends.
    """
    counts = collections.Counter()
    for word in re.findall(r"[a-z]+|[^a-z\s]", text.lower()):
        counts.update([word, f"##{word[-3:]}", f"##{word[-2:]}"])
    letters = sorted(set("".join(text.lower().split())))
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    pieces += [piece for piece, _ in counts.most_common(8000)]
    path.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return path


def print_table(lines: list[str], vocab_file: str, do_lower_case: bool, rounds: int):
    def fresh():
        return FullTokenizer(vocab_file, do_lower_case)

    used = fresh()
    for line in lines:
        assert used.encode(line) == used.convert_tokens_to_ids(used.tokenize(line))
    rust = rust_tokenizer(used.vocab, do_lower_case)
    contestants = {  # each function returns, outside the measured time, a function of all lines
        RULES: lambda: each(PlainTokenizer(used.vocab, do_lower_case).tokenize),
        "FullTokenizer.tokenize, fresh": lambda: each(fresh().tokenize),
        "FullTokenizer.tokenize, used": lambda: each(used.tokenize),
        "FullTokenizer.encode, fresh": lambda: each(fresh().encode),
        "FullTokenizer.encode, used": lambda: each(used.encode),
    }
    if rust:
        contestants[RUST_LINES] = lambda: each(
            lambda line: rust.encode(line, add_special_tokens=False).ids
        )
        contestants[RUST] = lambda: (
            lambda lines: (
                encoding.ids for encoding in rust.encode_batch_fast(lines, add_special_tokens=False)
            )
        )
    rates = collections.defaultdict(float)
    tokens = {}
    for _ in range(rounds):
        for name, make in contestants.items():
            take_all = make()
            start_secs = time.process_time()
            tokens[name] = sum(map(len, take_all(lines)))
            rates[name] = max(rates[name], tokens[name] / (time.process_time() - start_secs))

    print(
        f"{len(lines):,} lines, {sum(map(len, lines)):,} characters, {len(used.vocab):,} pieces\n"
    )
    print("| tokenizer | tokens | tokens per second | against the rules | against Rust |")
    print("|---|--:|--:|--:|--:|")
    for name, rate in rates.items():
        against_rust = f"{rate / rates[RUST]:.1f}" if rust else "not installed"
        print(
            f"| {name} | {tokens[name]:,} | {rate:,.0f} | {rate / rates[RULES]:.1f} | "
            f"{against_rust} |"
        )


def each(tokenize):
    return lambda lines: map(tokenize, lines)


def rust_tokenizer(vocab: dict[str, int], do_lower_case: bool):
    """Returns Hugging Face's BERT tokenizer without its transformers wrapper, or None if it is
    not installed.
    """
    try:
        import tokenizers
    except ImportError:
        return None
    return tokenizers.BertWordPieceTokenizer(vocab, lowercase=do_lower_case)._tokenizer


if __name__ == "__main__":
    main()
