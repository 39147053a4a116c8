"""The command lines of scripts that read and write files, for a folder with the good files.

A file is named relative to the folder; absolute, remote and empty names stay as they are.
"""

import os

import pytest

from tests import toy
from tests.commands.pretraining_run import PREDICTIONS, SEQ, write_records
from tests.hostile.rows import model_flags
from tests.scripts import flag_list

ROOM = "make room or name another path"  # what the sentence about a full disk says


def needs_extension(name: str):
    """Skips a row whose extension somebody has deleted."""
    pytest.importorskip(f"official_bert.extensions.{name}")


def at(folder, names: str) -> str:
    """Names relative to a folder, separated by commas, as paths."""
    return ",".join(
        name
        if not name or name == "-" or name.startswith("/") or "://" in name
        else f"{folder}/{name}"
        for name in names.split(",")
    )


def _flags(folder, given: dict[str, str]) -> list[str]:
    return [f"--{name}={at(folder, value)}" for name, value in given.items()]


def corpus(folder, output="a.tfrecord", *others, **files):
    given = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": output, **files}
    return [
        "create_pretraining_data.py",
        *_flags(folder, given),
        "--max_seq_length=16",
        "--dupe_factor=1",
        *others,
    ]


def vocabulary(folder, output="v.txt"):
    return [
        "build_vocab",
        *_flags(folder, {"input_file": "corpus.txt", "output_file": output}),
        "--vocab_size=200",
    ]


def features(folder, output="features.jsonl", *others, **files):
    given = {"input_file": "corpus.txt", "output_file": output, **files}
    flags = ["--layers=-1", "--max_seq_length=16"]
    return ["extract_features.py", *model_flags(folder), *_flags(folder, given), *flags, *others]


def predictions(folder, output="answers.jsonl", **files):
    """A prediction by a folder that only looks like an export."""
    model = folder / "export" / "1"
    (model / "assets").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"no model")
    (model / "assets" / "vocab.txt").write_text("[PAD]\n")
    given = {"model": "export", "input_file": "corpus.txt", "output_file": output, **files}
    return ["predict", *_flags(folder, given)]


def _model_of_vectors(folder) -> str:
    """Makes the folder `vectors` of the good model as one of sentence-transformers; returns its
    flag.
    """
    needs_extension("embeddings")
    model = folder / "vectors"
    if not model.exists():
        model.mkdir()
        for path in (
            folder / "vocab.txt",
            folder / "bert_config.json",
            *folder.glob("bert_model.ckpt*"),
        ):
            os.link(path, model / path.name)
        toy.write_sentence_modules(model)
    return f"--model={model}"


def vectors(folder, *others, **files):
    """A prediction by a model of vectors."""
    needs_extension("retrieval")
    given = {"input_file": "corpus.txt", **files}
    return ["predict", _model_of_vectors(folder), *_flags(folder, given), *others]


def mining(
    folder, *others, pairs="anchor\tpositive\nthe cat\ton the mat\nit was\ta day\n", **files
):
    """A search for hard negatives by a model of vectors."""
    needs_extension("retrieval")
    (folder / "pairs.tsv").write_text(pairs)
    given = {"input_file": "pairs.tsv", "output_file": "mined.jsonl", **files}
    return ["mine_hard_negatives", _model_of_vectors(folder), *_flags(folder, given), *others]


def conversion(folder, output="there", checkpoint="bert_model.ckpt", output_format="tf1"):
    given = {"model": checkpoint, "output_dir": output}
    return ["convert_checkpoint", *_flags(folder, given), f"--output_format={output_format}"]


def growth(folder, words, output="grown"):
    (folder / "words.txt").write_text(words)
    given = {"model": "bert_model.ckpt", "words": "words.txt", "output_dir": output}
    return ["grow_vocab", *_flags(folder, given)]


def export(folder, *others):
    flags = model_flags(folder, export_dir=folder / "export", task_name="pretraining")
    return ["export_saved_model", *flags, "--max_seq_length=16", *others]


def classifier(folder, *others, **files):
    given = {"data_dir": "classification", "output_dir": "out", **files}
    flags = ["--task_name=tsv", "--max_seq_length=16", "--train_batch_size=2"]
    return ["run_classifier.py", *model_flags(folder), *_flags(folder, given), *flags, *others]


def embeddings(folder, *others, **files):
    """A training of sentence vectors."""
    needs_extension("embeddings")
    given = {"data_dir": "embedding", "output_dir": "out", **files}
    flags = ["--max_seq_length=16", "--train_batch_size=2", "--do_train"]
    return ["run_embeddings", *model_flags(folder), *_flags(folder, given), *flags, *others]


def reranker(folder, *others, rows: str | None = None, **files):
    """A training of scores of documents, on the rows of a table if there are any."""
    needs_extension("reranking")
    if rows is not None:
        (folder / "reranking" / "train.tsv").write_text(rows)
    given = {"data_dir": "reranking", "output_dir": "out", **files}
    flags = ["--max_seq_length=16", "--train_batch_size=2", "--do_train"]
    return ["run_reranker", *model_flags(folder), *_flags(folder, given), *flags, *others]


def pretraining(folder, *others):
    """A pre-training run in `out` on 16 records."""
    if not (folder / "records.tfrecord").exists():
        write_records(folder / "records.tfrecord", 16)
    steps = {"max_eval_steps": 1, "num_train_steps": 6, "num_warmup_steps": 1, "random_seed": 7}
    sizes = {
        "max_seq_length": SEQ,
        "max_predictions_per_seq": PREDICTIONS,
        "train_batch_size": 8,
        "eval_batch_size": 8,
    }
    return [
        "run_pretraining.py",
        *model_flags(folder, vocab_file=None),
        *_flags(folder, {"input_file": "records.tfrecord", "output_dir": "out"}),
        *flag_list(**sizes, **steps),
        *others,
    ]


def link(folder, name, target):
    (folder / name).symlink_to(target)
    return name


def hard_link(folder, name, target):
    os.link(folder / target, folder / name)
    return name
