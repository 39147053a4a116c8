"""Hostile files: outputs that are inputs, links, devices, names and schemes that cannot be read."""

import os
import pathlib
import stat

from tests.hostile.commands import (
    ROOM,
    classifier,
    conversion,
    corpus,
    features,
    hard_link,
    link,
    predictions,
    triviaqa,
    vocabulary,
)
from tests.hostile.rows import check, row, table

WEIGHTS = "bert_model.ckpt.data-00000-of-00001"


def over(flag: str) -> str:
    """What the sentence says of an output that is an input."""
    return f"is an input of this run, too (--{flag})"


def corpus_in_a_linked_folder(folder: pathlib.Path) -> list[str]:
    """The flags for a folder of texts with a second name."""
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("the cat\n")
    (folder / "same").symlink_to("texts")
    return corpus(folder, "same/two.txt", input_file="texts/*.txt")


def broken_name(folder: pathlib.Path) -> str:
    """A folder with a text whose name is not UTF-8."""
    (folder / "texts").mkdir()
    with open(os.fsencode(folder / "texts") + b"/\xff.txt", "w") as file:
        file.write("the cat\n")
    return "texts/*.txt"


def after_kill(folder: pathlib.Path, process: int) -> list[str]:
    """The flags of a run that finds the temporary file of another process."""
    (folder / f".a.tfrecord.tmp-{process}").write_text("half")
    return corpus(folder)


OUTPUTS_THAT_ARE_INPUTS = [
    row("over a link", lambda at: corpus(at, link(at, "link", "corpus.txt")), over("input_file")),
    row("over a hard link", lambda at: corpus(at, hard_link(at, "other", "corpus.txt")), over("input_file")),
    row("where the glob reads", lambda at: corpus(at, "records.txt", input_file="*.txt"), "*.txt matches it"),
    row("where another name is read", corpus_in_a_linked_folder, "so that the next run would read it"),
    row("hidden from a glob", lambda at: corpus(at, ".a.txt", input_file="corpus*"), leaves=(".a.txt",)),
    row("twice", lambda at: corpus(at, f"a,{link(at, 'b', 'a')}"), "is an output twice"),
    row("over the weights", lambda at: features(at, WEIGHTS), over("init_checkpoint")),
    row("over an export", lambda at: predictions(at, "export/1/assets/vocab.txt"), over("model")),
    row("over a document", lambda at: triviaqa(at, "evidence/doc.txt"), over("data_dir")),
    row("over its own checkpoint", lambda at: conversion(at, "."), over("bert_config_file")),
]

DOCUMENTS = [
    row(f"document {name!a}", lambda at, name=name: triviaqa(at, document=name), says)
    for name, says in (
        ("../secret.txt", "qa.json: the document '../secret.txt' is outside of"),
        ("a\0b", "zero byte"),
        ("\ud800", "is not UTF-8"),
        ("", "qa.json: the document '' is no file; correct its Filename"),
    )
]

LINKS_AND_DEVICES = [
    row(
        "through a link",
        lambda at: corpus(at, link(at, "link", "classification/train.tsv")),
        leaves=("~classification/train.tsv",),
    ),
    row("to nothing", lambda at: vocabulary(at, "/dev/null")),
    row("link to itself", lambda at: corpus(at, link(at, "link", "link")), "symbolic links"),
    row("full device", lambda at: corpus(at, "/dev/full"), f"cannot be written (No space left on device); {ROOM}"),
]

INPUTS = [
    row(f"input that is a {what}", lambda at, path=path: features(at, input_file=path), says)
    for what, path, says in (
        ("folder", "classification", "classification: is a folder"),
        ("unknown scheme", "s3://bucket/file", "UnimplementedError"),
    )
]

OUTPUTS = [
    row(f"output that is a {what}", lambda at, path=path: features(at, path), says)
    for what, path, says in (
        ("folder", "classification", "classification: cannot be written, it is a folder"),
        ("file in no folder", "absent/out", "check that its folder exists"),
        ("unknown scheme", "s3://bucket/file", "UnimplementedError"),
        ("empty name", "", "--output_file=: a name is empty; give one"),
    )
]

NAMES = [
    row("a file as folder", lambda at: classifier(at, "--do_train", output_dir="corpus.txt/a"), "corpus.txt"),
    row("output not in UTF-8", lambda at: corpus(at, "a\udcff"), r"a\udcff': the name is not UTF-8"),
    row("input not in UTF-8", lambda at: corpus(at, input_file=broken_name(at)), r"\udcff.txt': the name is not"),
    row(
        "brackets that are no glob",
        lambda at: corpus(at, input_file=str((at / "corpus.txt").rename(at / "a[1].txt"))),
        leaves=("a.tfrecord",),
    ),
    row("question twice", lambda at: triviaqa(at, times=2), "qa.json: question q1: is there twice"),
]

KILLED_RUNS = [
    row(
        "beside a dead one",
        lambda at: after_kill(at, 4194305),
        warns=(".a.tfrecord.tmp-4194305: deleted",),
        leaves=("a.tfrecord", "~.a.tfrecord.tmp-4194305"),
    ),
    row("beside one that runs", lambda at: after_kill(at, 1), leaves=("a.tfrecord",)),
]


@table([*OUTPUTS_THAT_ARE_INPUTS, *DOCUMENTS, *LINKS_AND_DEVICES, *INPUTS, *OUTPUTS, *NAMES, *KILLED_RUNS])
def test_files(row, folder):
    check(row, folder)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
