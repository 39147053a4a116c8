#!/usr/bin/env python3
"""Makes a small English corpus from the help texts that come with every Python (`pydoc_data.topics`).

In: an installed Python. Out: two text files, a training part and a held-out part, in the format that
create_pretraining_data.py reads: one sentence on each line and a blank line between documents.

    python examples/quickstart_corpus.py --train_file=train.txt --held_out_file=held_out.txt
"""

import argparse
import itertools
import pathlib
import random
import re
from collections.abc import Iterable, Iterator
from pydoc_data.topics import topics

HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}\n", re.MULTILINE)
LIST_MARK = re.compile(r"^([*-]|\d+\.|\[\d+\]) +")
CODE = re.compile(r">>>|::=|\.\.\. |[=|+-]{4}|\w=\w|[{};_\\]|\s[=<>]+\s")
SENTENCE_END = re.compile(r"(?<=[.!?:])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.) +(?=[A-Z(“])")

MIN_SENTENCES = 3  # per document, because the next-sentence task needs several
MIN_WORDS = 4  # per sentence


def documents(texts: Iterable[str]) -> list[list[str]]:
    """Splits texts at their headings into documents of sentences.

    The texts quote each other. A repeated sentence is kept only where it occurs first, so that no held-out sentence is
    also a training sentence.

    Args:
        texts: manual pages with blank lines between paragraphs and underlined headings.

    Returns:
        The documents, each a list of at least `MIN_SENTENCES` sentences.
    """
    seen = set()
    found = []
    for text in texts:
        for section in HEADING.split(text)[::3]:
            new = [sentence for sentence in prose(section) if not (sentence in seen or seen.add(sentence))]
            if len(new) >= MIN_SENTENCES:
                found.append(new)
    return found


def prose(section: str) -> Iterator[str]:
    """Yields the sentences of a section's running text, without code, tables, grammars and signatures."""
    for block in re.split(r"\n\s*\n", section):
        paragraph = ""
        for line in map(str.strip, block.strip().split("\n")):
            broken_at_hyphen = re.search(r"\w-$", paragraph)
            paragraph += line if broken_at_hyphen or not paragraph else f" {line}"
        paragraph = re.sub(r"\s+", " ", LIST_MARK.sub("", paragraph))
        if re.match(r'["*A-Z]', paragraph) and re.search(r"[.:!?]\)?$", paragraph):
            for sentence in SENTENCE_END.split(re.sub(r'[*"`]', "", paragraph)):
                if len(sentence.split()) >= MIN_WORDS and not CODE.search(sentence):
                    yield sentence


def write(path: str, found: list[list[str]]):
    pathlib.Path(path).write_text(
        "\n".join("\n".join(document) + "\n" for document in found), encoding="utf-8"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--held_out_file", required=True)
    parser.add_argument(
        "--held_out_share", type=float, default=0.1, help="share of the sentences, whole documents"
    )
    parser.add_argument("--random_seed", type=int, default=12345, help="decides which documents are held out")
    arguments = parser.parse_args()

    found = documents(topics[name] for name in sorted(topics))
    random.Random(arguments.random_seed).shuffle(found)
    sentences_before = itertools.accumulate(map(len, found), initial=0)
    wanted = arguments.held_out_share * sum(map(len, found))
    num_held_out = sum(before < wanted for before in sentences_before)
    for path, part in (
        (arguments.held_out_file, found[:num_held_out]),
        (arguments.train_file, found[num_held_out:]),
    ):
        write(path, part)
        words = sum(len(sentence.split()) for document in part for sentence in document)
        print(f"{path}: {len(part)} documents, {sum(map(len, part))} sentences, {words} words")


if __name__ == "__main__":
    main()
