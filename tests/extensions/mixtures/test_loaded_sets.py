"""SentenceEncoder.train with data_sets: the training of run_embeddings with their TOML file."""

import csv

import numpy as np
import pytest

pytest.importorskip("official_bert.extensions.embeddings")

from official_bert import InputError, SentenceEncoder
from tests.extensions.mixtures.test_command import make_flags, write_sets
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here


def read_rows(path) -> list[tuple[str, ...]]:
    with open(path, encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file, delimiter="\t")][1:]


def read_sets(folder) -> dict:
    """The data sets of `write_sets` in memory."""
    train_scores = read_rows(folder / "scores.tsv")
    dev_scores = read_rows(folder / "scores_dev.tsv")
    return {
        "pairs": {
            "texts": read_rows(folder / "pairs.tsv"),
            "dev": read_rows(folder / "pairs_dev.tsv"),
            "scale": 10,
        },
        "triplets": {"texts": read_rows(folder / "triplets.tsv"), "loss": "triplet"},
        "scores": {
            "texts": [row[:2] for row in train_scores],
            "labels": [float(row[2]) for row in train_scores],
            "dev": ([row[:2] for row in dev_scores], [float(row[2]) for row in dev_scores]),
            "loss": "cosine_similarity",
        },
    }


def test_a_training_on_sets_in_memory_is_that_of_their_files(base, tmp_path):
    write_sets(tmp_path / "sets")
    flags = make_flags(base, tmp_path / "sets", tmp_path / "command", random_seed=3)
    run_here("run_embeddings", *flag_list(**flags))
    for name in ("data_sets", "do_train", "do_eval", "output_dir"):
        del flags[name]
    for name in ("vocab_file", "bert_config_file"):
        flags[name] = str(flags[name])

    def train(data_sets, **changes):
        return SentenceEncoder.train(
            tmp_path / "memory", data_sets=data_sets, verbose=0, **flags | changes
        )

    data_sets = read_sets(tmp_path / "sets")
    encoder = train(data_sets)
    texts = [text for row in data_sets["triplets"]["texts"] for text in row]
    expected = SentenceEncoder(str(tmp_path / "command")).encode(texts)
    np.testing.assert_array_equal(encoder.encode(texts), expected)
    assert encoder.metrics == figures(tmp_path / "command")
    assert "eval_scores_spearman" in encoder.metrics

    # The same call trains nothing; other texts, or another loss of a set, are another training.
    np.testing.assert_array_equal(train(data_sets).encode(texts), expected)
    shorter = data_sets | {"triplets": {"texts": texts[:10], "loss": "simcse"}}
    with pytest.raises(InputError, match=r"was trained differently: other texts or labels"):
        train(shorter)
    with pytest.raises(InputError, match="was trained differently: --data_sets"):
        train(data_sets | {"pairs": data_sets["pairs"] | {"scale": 5}})


PAIRS = [("the cat sat", "a cat"), ("the train was", "a train")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "texts: are missing; give examples, or data_sets"),
        ({"texts": PAIRS, "data_sets": {"a": {"texts": PAIRS}}}, "data_sets: does not go with"),
        ({"data_sets": {}}, "data_sets: must be a dict with a name and fields"),
        ({"data_sets": [PAIRS]}, "data_sets: must be a dict with a name and fields"),
        ({"data_sets": {"a": PAIRS}}, "data_sets: a: must be a dict, such as"),
        ({"data_sets": {"a": {"dev": PAIRS}}}, "data_sets: no set has texts"),
        ({"data_sets": {"a": {"texts": [3]}}}, "data_sets: a: texts: example 1: 3 is no text"),
        ({"data_sets": {"a": {"train_file": "x"}}}, "data_sets: a: train_file: is for files"),
        ({"data_sets": {"A": {"texts": PAIRS}}}, "data_sets: A: a name may have small letters"),
        ({"data_sets": {"a": {"texts": PAIRS, "los": "mse"}}}, "data_sets: a: unknown field 'los'"),
        ({"data_sets": {"a": {"texts": PAIRS, "scale": "x"}}}, "data_sets: a: scale: must be"),
        ({"data_sets": {"a": {"texts": PAIRS}}, "main_set": "b"}, "main_set=.b.: must be a table"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(base, tmp_path, arguments, sentence):
    model = {
        "vocab_file": str(base / "vocab.txt"),
        "bert_config_file": str(base / "bert_config.json"),
        "train_batch_size": 2,
        "max_seq_length": 16,
    }
    with pytest.raises(InputError, match=sentence):
        SentenceEncoder.train(tmp_path / "out", verbose=0, **model | arguments)
