#!/usr/bin/env python3
"""Makes a small classification task of the help texts that come with every Python
(`pydoc_data.topics`).

In: an installed Python. Out: train.tsv and dev.tsv in a folder, with a sentence and its label on
each line: the part of Python's manual that the sentence is from.

    python examples/quickstart_topics.py --data_dir=topics
"""

import argparse
import pathlib
import random
from pydoc_data.topics import topics

from quickstart_corpus import prose

PARTS = {
    "classes": ("specialnames",),
    "debugger": ("debugger",),
    "statements": ("compound", "assignment", "import"),
    "text": ("string-methods", "formatstrings", "strings"),
}


def examples() -> list[tuple[str, str]]:
    """Returns the sentences with their labels; a sentence that the texts repeat counts once."""
    labels = {}
    for label, names in PARTS.items():
        for name in names:
            for sentence in prose(topics[name]):
                labels.setdefault(sentence, label)
    return list(labels.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data_dir", required=True, help="folder of the two files")
    parser.add_argument(
        "--dev_share", type=float, default=0.2, help="share of the sentences in dev.tsv"
    )
    parser.add_argument(
        "--random_seed", type=int, default=12345, help="decides which sentences these are"
    )
    arguments = parser.parse_args()

    labelled = examples()
    random.Random(arguments.random_seed).shuffle(labelled)
    num_dev = round(arguments.dev_share * len(labelled))
    folder = pathlib.Path(arguments.data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", labelled[num_dev:]), ("dev", labelled[:num_dev])):
        rows = "".join(f"{sentence}\t{label}\n" for sentence, label in part)
        (folder / f"{name}.tsv").write_text(f"sentence\tpart\n{rows}", encoding="utf-8")
        print(f"{folder / name}.tsv: {len(part)} sentences")


if __name__ == "__main__":
    main()
