#!/usr/bin/env python3
"""Times FullTokenizer against the plain rules and Hugging Face's Rust tokenizer, each on one thread.

In: a text and a vocabulary. Out: a table of tokens per second of CPU time, the best of some rounds. A fresh
FullTokenizer has an empty cache and meets the text for the first time, a used one has read it once before.
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

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", help="text, one line at a time; Python's help texts when not given")
    parser.add_argument("--vocab_file", help="vocabulary; made from the commonest words when not given")
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
    """A vocabulary of every letter and the 8,000 commonest lower-cased words and word ends."""
    counts = collections.Counter()
    for word in re.findall(r"[a-z]+|[^a-z\s]", text.lower()):
        counts.update([word, f"##{word[-3:]}", f"##{word[-2:]}"])
    letters = sorted(set("".join(text.lower().split())))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    pieces += [piece for piece, _ in counts.most_common(8000)]
    path.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return path


def print_table(lines: list[str], vocab_file: str, do_lower_case: bool, rounds: int):
    fresh = FullTokenizer(vocab_file, do_lower_case)
    vocab = fresh.vocab
    used = FullTokenizer(vocab_file, do_lower_case)
    count_with(used.encode, lines)
    count_with(used.tokenize, lines)

    def with_a_fresh(method):
        return lambda: count_with(getattr(FullTokenizer(vocab_file, do_lower_case), method), lines)

    contestants = {
        "the rules in plain Python": lambda: count_with(PlainTokenizer(vocab, do_lower_case).tokenize, lines),
        "FullTokenizer.tokenize, fresh": with_a_fresh("tokenize"),
        "FullTokenizer.tokenize, used": lambda: count_with(used.tokenize, lines),
        "FullTokenizer.encode, fresh": with_a_fresh("encode"),
        "FullTokenizer.encode, used": lambda: count_with(used.encode, lines),
    }
    rust = rust_tokenizer(vocab, do_lower_case)
    if rust:
        contestants["Hugging Face tokenizers (Rust)"] = lambda: sum(
            len(encoding.ids) for encoding in rust.encode_batch_fast(lines, add_special_tokens=False)
        )
    rates = collections.defaultdict(float)
    tokens = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            start_secs = time.process_time()
            tokens[name] = run()
            rates[name] = max(rates[name], tokens[name] / (time.process_time() - start_secs))

    print(f"{len(lines):,} lines, {sum(map(len, lines)):,} characters, {len(vocab):,} pieces")
    print("| tokenizer | tokens | tokens per CPU second | against the rules | against Rust |")
    print("|---|--:|--:|--:|--:|")
    rust_rate = rates.get("Hugging Face tokenizers (Rust)")
    for name, rate in rates.items():
        against_rules = f"{rate / rates['the rules in plain Python']:.1f}"
        against_rust = f"{rate / rust_rate:.1f}" if rust_rate else "not installed"
        print(f"| {name} | {tokens[name]:,} | {rate:,.0f} | {against_rules} | {against_rust} |")


def count_with(tokenize, lines: list[str]) -> int:
    return sum(len(tokenize(line)) for line in lines)


def rust_tokenizer(vocab: dict[str, int], do_lower_case: bool):
    """Hugging Face's BERT tokenizer without its transformers wrapper, or None where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        return None
    return tokenizers.BertWordPieceTokenizer(vocab, lowercase=do_lower_case)._tokenizer


if __name__ == "__main__":
    main()
