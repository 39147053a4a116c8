"""Hostile texts: corpora, sentences, vocabularies and tables that are no UTF-8 text, or hold
bytes that are none.
"""

import bz2
import gzip
import lzma
import random

from tests.hostile.commands import (
    classifier,
    corpus,
    embeddings,
    features,
    mining,
    reranker,
    vocabulary,
)
from tests.hostile.rows import CORPUS, check, model_flags, row, table

BINARY = random.Random(1).randbytes(5000)
RUSSIAN = "Поезд опоздал.\nВодитель был в парке.\n" * 20
LATIN = CORPUS.replace("cat", "caf\xe9").encode("latin-1")  # four lines of it
GZIP = gzip.compress(CORPUS.encode())

# What a file holds, and what the sentence says of it.
NO_TEXTS = {
    "UTF-16": (CORPUS.encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "UTF-16 without its mark": (CORPUS.encode("utf-16-le"), "is UTF-16"),
    "Chinese in UTF-16 without its mark": (
        ("1 猫坐在公园里，火车正午离站。\n" * 20).encode("utf-16-le"),
        "is UTF-16",
    ),
    "big-endian UTF-16 without its mark": (CORPUS.encode("utf-16-be"), "is UTF-16"),
    "carriage returns alone": (
        CORPUS.replace("\n", "\r").encode(),
        'ends its lines with "\\r" alone',
    ),
    "gzip": (GZIP, "is compressed with gzip; decompress it"),
    "bzip2": (bz2.compress(CORPUS.encode()), "is compressed with bzip2"),
    "xz": (lzma.compress(CORPUS.encode()), "is compressed with xz"),
    "zip": (b"PK\x03\x04" + BINARY, "is compressed with zip"),
    "binary data": (b"..\n" + BINARY, "is binary, or text in another encoding than UTF-8"),
    "Cyrillic in eight bits": (RUSSIAN.encode("cp1251"), "another encoding than UTF-8"),
}


def tagger(folder):
    return [
        "run_ner.py",
        *model_flags(folder, data_dir=folder / "tagging", output_dir=folder / "out"),
        "--do_train",
    ]


def written(what, name, data, make, *says, **others):
    """A run whose input `name` holds these bytes."""

    def prepare(folder):
        flags = make(folder)
        (folder / name).write_bytes(data)
        return flags

    return row(what, prepare, *says, **others)


def sharded(folder):
    return corpus(folder, "a", "--generator=sharded", "--num_shards=2", "--num_workers=1")


HALF_PAIR = b'{"text": "the cat"}\n{"text": "the \\ud800 cat"}\n'


def json_lines(make):
    """A run on pages of JSON, one of which has half of a surrogate pair."""
    return written(
        f"half a surrogate pair for {make.__name__}",
        "corpus.txt",
        HALF_PAIR,
        lambda folder: [*make(folder), "--input_format=json_lines"],
        r"""corpus.txt: line 2: the field "text" has '\ud800', half of a surrogate pair""",
    )


def train(folder):
    return classifier(folder, "--do_train")


def candidates(folder):
    return mining(folder, corpus_file="a.txt")


def utf16(name, make):
    data = CORPUS.encode("utf-16")
    return written(f"UTF-16 in {name} for {make.__name__}", name, data, make, name, "is UTF-16")


CONTROLS = b"the \0 cat\x01\r\n" + CORPUS.replace("\n", "\r\n").encode()
LEFT_OUT = ("corpus.txt: left out bytes that are not UTF-8 in 4 lines",)

ROWS = [
    *(
        written(kind, "corpus.txt", data, features, "corpus.txt", says)
        for kind, (data, says) in NO_TEXTS.items()
    ),
    # Each of the other readers of texts looks at what it reads; a corpus may be compressed with
    # gzip.
    utf16("corpus.txt", corpus),
    utf16("vocab.txt", corpus),
    utf16("corpus.txt", vocabulary),
    utf16("classification/train.tsv", train),
    utf16("tagging/train.conll", tagger),
    utf16("pairs.tsv", mining),
    utf16("embedding/train.tsv", embeddings),
    utf16("reranking/train.tsv", reranker),
    written(
        "half a gzip file", "corpus.txt", GZIP[:-9], corpus, "corpus.txt", "is a corrupt gzip file"
    ),
    written(
        "gzip of UTF-16", "corpus.txt", gzip.compress(CORPUS.encode("utf-16")), corpus, "is UTF-16"
    ),
    written("some Latin-1", "corpus.txt", LATIN, corpus, warns=LEFT_OUT, leaves=("a.tfrecord",)),
    written(
        "binary for shards",
        "corpus.txt",
        BINARY,
        sharded,
        "corpus.txt: is binary",
        "save it as UTF-8 text",
    ),
    written(
        "some Latin-1 for shards", "corpus.txt", LATIN, sharded, warns=LEFT_OUT, leaves=("a*",)
    ),
    written(
        "some Latin-1 lines",
        "corpus.txt",
        LATIN,
        features,
        warns=LEFT_OUT,
        leaves=("features.jsonl",),
    ),
    written("a few control characters", "corpus.txt", CONTROLS, corpus, leaves=("a.tfrecord",)),
    written("corpus of blank lines", "corpus.txt", b"\n \n\t\n", corpus, "corpus.txt", "no text"),
    written("empty text", "corpus.txt", b"", vocabulary, "--input_file", "no word to learn from"),
    *map(json_lines, (corpus, sharded, vocabulary)),
    written(
        "empty corpus of negatives",
        "a.txt",
        b"\n \n",
        candidates,
        "a.txt: holds no text; give one a line",
    ),
    written("binary corpus of negatives", "a.txt", BINARY, candidates, "a.txt: is binary"),
    written(
        "text for an index",
        "a.npz",
        b"the cat\n",
        lambda at: mining(at, corpus_file="a.npz"),
        "a.npz: cannot be read as a .zip file",
    ),
    *(
        written(f"pairs: {says}", "pairs.tsv", pairs, mining, f"pairs.tsv: {says}")
        for pairs, says in (
            (b"", "holds no example"),
            (b"anchor\tpositive\n", "holds no example; check the file"),
            (
                b"anchor\tother\na\tb\n",
                "holds no pair; name the columns, --anchor_column=... --positive_column=...",
            ),
            (
                b"anchor\tanchor\tpositive\na\tb\tc\n",
                "line 1: names a column twice; name each once",
            ),
            (
                b"anchor\tpositive\na\tb\n\t b\n",
                "line 3: anchor is blank; give it a text, or leave the row out",
            ),
            (
                b"anchor\tpositive\na\tb\nc\n",
                "line 3: has 1 columns, the first one 2; complete or correct it",
            ),
            (
                b"anchor\tpositive\na\tb\tc\n",
                "line 2: has 3 columns, the first one 2; complete or correct it",
            ),
        )
    ),
    *(
        written(
            f"pairs: {says}",
            "a.jsonl",
            pairs,
            lambda at: mining(at, input_file="a.jsonl"),
            f"a.jsonl: {says}",
        )
        for pairs, says in (
            (b'{"anchor": "a", "positive": 3}\n', "line 1: positive is not a text; give it a text"),
            (
                b'{"anchor": "a"}\n{"positive": "b"}\n',
                "line 1: positive is missing; give it a text",
            ),
            (
                b'{"anchor": "\\ud800", "positive": "b"}\n',
                r"line 1: anchor has '\ud800', half of a surrogate",
            ),
        )
    ),
    written("no sentences", "corpus.txt", b"", features, "corpus.txt: is empty"),
]


@table(ROWS)
def test_texts(row, folder):
    check(row, folder)
