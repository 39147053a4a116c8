"""Hostile texts: corpora, sentences, vocabularies and tables that are no UTF-8 text, or hold bytes that are none."""

import bz2
import gzip
import json
import lzma
import random

from tests.hostile.rows import CORPUS, Row, check, model_flags, table

BINARY = random.Random(1).randbytes(5000)
RUSSIAN = "Поезд опоздал.\nВодитель был в парке.\n" * 20

# What a file holds, and what the sentence says of it.
NO_TEXTS = {
    "UTF-16": (CORPUS.encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "big-endian UTF-16 with its mark": (b"\xfe\xff" + CORPUS.encode("utf-16-be"), "is UTF-16"),
    "UTF-16 without its mark": (CORPUS.encode("utf-16-le"), "is UTF-16"),
    "big-endian UTF-16 without its mark": (CORPUS.encode("utf-16-be"), "is UTF-16"),
    "carriage returns alone": (CORPUS.replace("\n", "\r").encode(), 'ends its lines with "\\r" alone'),
    "gzip": (gzip.compress(CORPUS.encode()), "is compressed with gzip; decompress it"),
    "bzip2": (bz2.compress(CORPUS.encode()), "is compressed with bzip2"),
    "xz": (lzma.compress(CORPUS.encode()), "is compressed with xz"),
    "zip": (b"PK\x03\x04" + BINARY, "is compressed with zip"),
    "binary data": (b"..\n" + BINARY, "is binary, or text in another encoding than UTF-8"),
    "zeros": (bytes(5000), "is binary"),
    "Cyrillic in eight bits": (RUSSIAN.encode("cp1251"), "another encoding than UTF-8"),
}
CORPORA = ("corpus", "text to learn from")  # which are read through gzip
NO_CORPORA = {
    "gzip": (gzip.compress(CORPUS.encode())[:-9], "is a damaged gzip file"),
    "gzip of UTF-16": (gzip.compress(CORPUS.encode("utf-16")), "is UTF-16"),
}
LATIN = CORPUS.replace("cat", "caf\xe9").encode("latin-1")  # four lines of it


def corpus(folder):
    return [
        f"--input_file={folder}/corpus.txt",
        f"--vocab_file={folder}/vocab.txt",
        f"--output_file={folder}/a.tfrecord",
        "--max_seq_length=16",
        "--dupe_factor=1",
    ]


def vocabulary(folder):
    return [f"--input_file={folder}/corpus.txt", f"--output_file={folder}/v.txt", "--vocab_size=200"]


def features(folder):
    files = {"input_file": folder / "corpus.txt", "output_file": folder / "features.jsonl"}
    return [*model_flags(folder, **files), "--layers=-1"]


def classifier(folder):
    files = {"data_dir": folder / "classification", "output_dir": folder / "out"}
    return [*model_flags(folder, **files), "--task_name=tsv", "--do_train"]


def tagger(folder):
    return [*model_flags(folder, data_dir=folder / "tagging", output_dir=folder / "out"), "--do_train"]


# The file that a script reads, and what a run that succeeds adds.
READERS = (
    ("corpus", "create_pretraining_data.py", corpus, "corpus.txt"),
    ("vocabulary", "create_pretraining_data.py", corpus, "vocab.txt"),
    ("text to learn from", "build_vocab.py", vocabulary, "corpus.txt"),
    ("sentences", "extract_features.py", features, "corpus.txt"),
    ("table", "run_classifier.py", classifier, "classification/train.tsv"),
    ("tagged words", "run_ner.py", tagger, "tagging/train.conll"),
)


def written(folder, name, data, make):
    (folder / name).write_bytes(data)
    return make(folder)


ROWS = [
    *(
        Row(
            f"{kind} as {what}",
            script,
            lambda folder, name=name, data=data, make=make: written(folder, name, data, make),
            says=(name, says),
            leaves=("out/*",),
        )
        for what, script, make, name in READERS
        for kind, (data, says) in (NO_TEXTS | NO_CORPORA if what in CORPORA else NO_TEXTS).items()
    ),
    *(
        Row(
            f"bytes that are not UTF-8 in {what}",
            script,
            lambda folder, make=make: written(folder, "corpus.txt", LATIN, make),
            warns=("corpus.txt: left out bytes that are not UTF-8 in 4 lines",),
            leaves=(output,),
        )
        for what, script, make, output in (
            ("a corpus", "create_pretraining_data.py", corpus, "a.tfrecord"),
            ("a text to learn from", "build_vocab.py", vocabulary, "v.txt"),
            ("sentences", "extract_features.py", features, "features.jsonl"),
        )
    ),
    Row(
        "text with a few control characters",
        "create_pretraining_data.py",
        lambda folder: written(folder, "corpus.txt", b"the \0 cat\x01\r\n" + CORPUS.encode(), corpus),
        leaves=("a.tfrecord",),
    ),
    Row(
        "lines that end with carriage return and line feed",
        "create_pretraining_data.py",
        lambda folder: written(folder, "corpus.txt", CORPUS.replace("\n", "\r\n").encode(), corpus),
        leaves=("a.tfrecord",),
    ),
    Row(
        "gzip as questions",
        "convert_triviaqa.py",
        lambda folder: [
            f"--input_file={written(folder, 'qa.json', gzip.compress(json.dumps({}).encode()), str)}/qa.json",
            f"--data_dir={folder}",
            f"--output_file={folder}/squad.json",
        ],
        says=("qa.json", "UTF-8"),
    ),
    Row(
        "empty corpus",
        "create_pretraining_data.py",
        lambda folder: written(folder, "corpus.txt", b"", corpus),
        says=("corpus.txt", "no text"),
    ),
    Row(
        "corpus of blank lines",
        "create_pretraining_data.py",
        lambda folder: written(folder, "corpus.txt", b"\n \n\t\n", corpus),
        says=("corpus.txt", "no text"),
    ),
    Row(
        "empty text to learn from",
        "build_vocab.py",
        lambda folder: written(folder, "corpus.txt", b"", vocabulary),
        says=("--input_file", "no word to learn from"),
    ),
    Row(
        "no sentences",
        "extract_features.py",
        lambda folder: written(folder, "corpus.txt", b"", features),
        says=("corpus.txt: is empty",),
    ),
]


@table(ROWS)
def test_texts(row, folder):
    check(row, folder)
