"""Hostile files: outputs that are inputs, links, devices, names and schemes that cannot be read."""

import os
import pathlib
import stat

from tests.hostile.commands import (
    ROOM,
    broken_name,
    classifier,
    conversion,
    corpus,
    features,
    hard_link,
    link,
    linked_folder,
    predictions,
    triviaqa,
    twice,
    vocabulary,
)
from tests.hostile.rows import Row, check, table

OVERWRITTEN = "is an input of this run, too (--{})"
NEXT_RUN = "so that the next run would read it"

ROWS = [
    # Outputs that are inputs.
    Row(
        "corpus over itself",
        "create_pretraining_data.py",
        lambda at: corpus(at, "corpus.txt"),
        says=("corpus.txt", OVERWRITTEN.format("input_file"), "name another"),
    ),
    Row(
        "corpus over itself through a link",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "corpus.txt")),
        says=("link", OVERWRITTEN.format("input_file")),
    ),
    Row(
        "corpus over its hard link",
        "create_pretraining_data.py",
        lambda at: corpus(at, hard_link(at, "other", "corpus.txt")),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "records over the vocabulary",
        "create_pretraining_data.py",
        lambda at: corpus(at, "vocab.txt"),
        says=(OVERWRITTEN.format("vocab_file"),),
    ),
    Row(
        "output that the glob of the input matches",
        "create_pretraining_data.py",
        lambda at: corpus(at, "records.txt", input_file="*.txt"),
        says=("records.txt", "*.txt matches it", NEXT_RUN),
    ),
    Row(
        "output in a folder with two names, both in use",
        "create_pretraining_data.py",
        lambda at: corpus(at, linked_folder(at, "same/two.txt"), input_file="texts/*.txt"),
        says=("same/two.txt", NEXT_RUN),
    ),
    Row(
        "hidden output that no glob takes",
        "create_pretraining_data.py",
        lambda at: corpus(at, ".records.txt", input_file="corpus*"),
        leaves=(".records.txt",),
    ),
    Row(
        "two outputs that are one file",
        "create_pretraining_data.py",
        lambda at: corpus(at, "a.tfrecord," + link(at, "b.tfrecord", "a.tfrecord")),
        says=("is an output twice",),
    ),
    *(
        Row(
            f"features over {name}",
            "extract_features.py",
            lambda at, name=name: features(at, name),
            says=(name, OVERWRITTEN.format(flag)),
        )
        for name, flag in (
            ("corpus.txt", "input_file"),
            ("vocab.txt", "vocab_file"),
            ("bert_model.ckpt.data-00000-of-00001", "init_checkpoint"),
        )
    ),
    *(
        Row(
            f"answers over {name}",
            "predict.py",
            lambda at, name=name: predictions(at, name),
            says=(name, OVERWRITTEN.format(flag)),
        )
        for name, flag in (("corpus.txt", "input_file"), ("export/1/assets/vocab.txt", "model"))
    ),
    Row(
        "questions over themselves",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, "qa.json"),
        says=(OVERWRITTEN.format("input_file"),),
    ),
    Row(
        "questions over a document",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, "evidence/doc.txt"),
        says=(OVERWRITTEN.format("data_dir"),),
    ),
    Row(
        "conversion over its own checkpoint",
        "convert_checkpoint.py",
        lambda at: conversion(at, "."),
        says=(OVERWRITTEN.format("bert_config_file"),),
    ),
    Row(
        "conversion into the folder of the input",
        "convert_checkpoint.py",
        lambda at: conversion(at, ".", output_format="huggingface"),
        leaves=("config.json", "model.safetensors", "tokenizer_config.json"),
    ),
    # Names in the folder of documents.
    *(
        Row(
            f"document {name!a}",
            "convert_triviaqa.py",
            lambda at, name=name: triviaqa(at, document=str(at / "secret.txt") if name == "/" else name),
            says=says,
        )
        for name, says in (
            ("../secret.txt", ("qa.json", "'../secret.txt' is outside of", "Filename")),
            ("/", ("secret.txt", "is outside of")),
            (".", ("is a folder",)),
            ("a\0b", ("zero byte",)),
            ("\ud800", ("is not UTF-8",)),
        )
    ),
    # Links and devices as outputs.
    Row(
        "output through a link",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "sample_target")),
        leaves=("sample_target",),
    ),
    Row(
        "output through a link to a file that is there",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "classification/train.tsv")),
        leaves=("~classification/train.tsv",),
    ),
    Row("vocabulary to nothing", "build_vocab.py", lambda at: vocabulary(at, "/dev/null")),
    Row(
        "link to itself",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "link")),
        says=("link", "cannot be written", "symbolic links"),
    ),
    Row(
        "link into a folder that is not there",
        "create_pretraining_data.py",
        lambda at: corpus(at, link(at, "link", "absent/a.tfrecord")),
        says=("link", "cannot be written"),
    ),
    *(
        Row(
            f"full device for {script}",
            script,
            lambda at, make=make: make(at, "/dev/full"),
            says=("/dev/full: cannot be written (No space left on device)", ROOM),
        )
        for script, make in (("create_pretraining_data.py", corpus), ("convert_triviaqa.py", triviaqa))
    ),
    # Paths that nothing can be done with.
    *(
        Row(
            f"{what} as --{flag} of {script}",
            script,
            lambda at, make=make, flag=flag, path=path: make(at, **{flag: path}),
            says=says,
        )
        for script, make, flags in (
            ("extract_features.py", features, ("input_file", "vocab_file", "bert_config_file")),
            ("predict.py", predictions, ("input_file",)),
        )
        for flag in flags
        for what, path, says in (
            ("folder", "classification", ("classification: is a folder",)),
            ("file that is not there", "absent", ("absent: no such file",)),
            ("file below a file", "corpus.txt/below", ("below: cannot be read (Not a directory)",)),
            ("unknown scheme", "s3://bucket/file", ("s3://bucket/file", "UnimplementedError")),
            ("name that is too long", "x" * 300, ("cannot be read (File name too long)",)),
        )
    ),
    *(
        Row(f"{what} as output of {script}", script, lambda at, make=make, path=path: make(at, path), says=says)
        for script, make in (("create_pretraining_data.py", corpus), ("extract_features.py", features))
        for what, path, says in (
            ("folder", "classification", ("classification: cannot be written, it is a folder",)),
            ("file in no folder", "absent/out", ("out: cannot be written", "check that its folder exists")),
            ("file below a file", "corpus.txt/out", ("out: cannot be written",)),
            ("unknown scheme", "s3://bucket/file", ("s3://bucket/file", "UnimplementedError")),
            ("name that is too long", "x" * 300, ("cannot be written (File name too long)",)),
            ("empty name", "", ("--output_file=: a name is empty; give one",)),
        )
        if not (what == "empty name" and script == "create_pretraining_data.py")  # an empty list of files
    ),
    *(
        Row(
            f"{path} as folder of a run",
            "run_classifier.py",
            lambda at, path=path: classifier(at, output_dir=path),
            says=(path.split(":")[0],),
        )
        for path in ("s3://bucket/out", "corpus.txt/out")
    ),
    Row(
        "data folder with an unknown scheme",
        "run_classifier.py",
        lambda at: classifier(at, data_dir="s3://bucket/data"),
        says=("s3://bucket/data", "UnimplementedError"),
        leaves=("out/*",),
    ),
    Row(
        "name in a flag that is not UTF-8",
        "create_pretraining_data.py",
        lambda at: corpus(at, "a\udcff.tfrecord"),
        says=(r"a\udcff.tfrecord", "is not UTF-8", "rename"),
    ),
    Row(
        "name of a text that is not UTF-8",
        "create_pretraining_data.py",
        lambda at: corpus(at, input_file=broken_name(at)),
        says=(r"\udcff.txt", "is not UTF-8", "rename"),
    ),
    Row(
        "conversion to a file",
        "convert_checkpoint.py",
        lambda at: conversion(at, "corpus.txt"),
        says=("corpus.txt: no folder can be made there",),
    ),
    Row(
        "brackets in a name are no glob where such a file exists",
        "create_pretraining_data.py",
        lambda at: corpus(at, input_file=str((at / "corpus.txt").rename(at / "a[1].txt"))),
        leaves=("a.tfrecord",),
    ),
    Row(
        "question that is there twice",
        "convert_triviaqa.py",
        lambda at: twice(at, triviaqa(at)),
        says=("qa.json: question q1: is there twice",),
    ),
    Row(
        "document without a name",
        "convert_triviaqa.py",
        lambda at: triviaqa(at, document=""),
        says=("qa.json: the document '' is no file; correct its Filename",),
    ),
    # What killed runs left.
    Row(
        "temporary file of a process that is no more",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), *left(at, ".a.tfrecord.tmp-4194305")],
        warns=(".a.tfrecord.tmp-4194305: deleted",),
        leaves=("a.tfrecord", "~.a.tfrecord.tmp-4194305"),
    ),
    Row(
        "temporary file of a process that runs",
        "create_pretraining_data.py",
        lambda at: [*corpus(at), *left(at, ".a.tfrecord.tmp-1")],
        leaves=("a.tfrecord",),
    ),
]


def left(folder: pathlib.Path, name: str) -> list[str]:
    (folder / name).write_text("half")
    return []


@table(ROWS)
def test_files(row, folder):
    check(row, folder)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
