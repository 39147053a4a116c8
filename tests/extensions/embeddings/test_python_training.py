"""SentenceEncoder.train: a training on texts in memory is that of run_embeddings on their file."""

import re

import numpy as np
import pytest

from official_bert import SentenceEncoder
from official_bert.data.text_tables import Example, make_examples
from official_bert.io.errors import InputError
from tests.scripts import flag_list, run_here

PAIRS = [
    ("the cat sat", "a cat was on the mat"),
    ("the train was in the park", "a train"),
    ("the rain", "the rain was on"),
    ("a driver sat", "the driver"),
]
SCORES = [1, 0.5, 0.25, 0]
FLAGS = {"train_batch_size": 2, "num_train_epochs": 2, "random_seed": 3, "max_seq_length": 16}


def make_model(base) -> dict:
    return {
        "vocab_file": str(base / "vocab.txt"),
        "bert_config_file": str(base / "bert_config.json"),
    }


def test_a_training_in_memory_is_that_of_the_command(base, tmp_path):
    lines = ["anchor\tpositive\tscore\n"]
    lines += [f"{a}\t{b}\t{score}\n" for (a, b), score in zip(PAIRS, SCORES, strict=True)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    flags = FLAGS | make_model(base) | {"loss": "cosent"}
    run_here(
        "run_embeddings",
        *flag_list(
            **flags,
            train_file=tmp_path / "pairs.tsv",
            dev_file=tmp_path / "pairs.tsv",
            do_train=True,
            do_eval=True,
            output_dir=tmp_path / "command",
        ),
    )
    encoder = SentenceEncoder.train(
        tmp_path / "memory", PAIRS, SCORES, dev=(PAIRS, SCORES), verbose=0, **flags
    )
    texts = [text for pair in PAIRS for text in pair]
    expected = SentenceEncoder(str(tmp_path / "command")).encode(texts)
    np.testing.assert_array_equal(encoder.encode(texts), expected)
    assert -1 <= encoder.metrics["eval_spearman"] <= 1
    assert encoder.metrics["global_step"] == 4


def test_another_training_in_the_folder_is_refused_resumed_or_replaced(base, tmp_path):
    flags = FLAGS | make_model(base) | {"num_train_epochs": 1}

    def train(texts, **changes):
        return SentenceEncoder.train(tmp_path / "out", texts, verbose=0, **flags | changes)

    first = train(PAIRS)
    assert first.metrics is None
    np.testing.assert_array_equal(train(PAIRS).encode("a cat"), first.encode("a cat"))
    with pytest.raises(InputError, match="was trained differently: other texts or labels"):
        train(PAIRS[:2])
    with pytest.raises(InputError, match=r"was trained differently: .*learning_rate"):
        train(PAIRS, learning_rate=0.5)
    replaced = train(PAIRS[:2], overwrite=True)
    assert abs(replaced.encode("a cat") - first.encode("a cat")).max() > 0


@pytest.mark.parametrize(
    ("arguments", "flags", "sentence"),
    [
        (
            (PAIRS,),
            {"lr": 1},
            "lr: SentenceEncoder.train takes no such flag; did you mean learning_",
        ),
        ((PAIRS,), {"loss": "l2"}, "loss='l2': must be one of multiple_negatives_ranking, "),
        ((PAIRS,), {"train_file": "x"}, "train_file: SentenceEncoder.train takes no such flag"),
        ((PAIRS, [1]), {}, "train: 4 examples and 1 labels are given; give each example its"),
        (([("a", 1)],), {}, "train: example 1: ('a', 1) is no text, and no list of texts"),
        (([],), {}, "train: holds no example"),
        ((["a b", "c d"],), {}, "needs two texts in each example; give them in a tuple"),
    ],
)
def test_what_cannot_be_used_is_named(base, tmp_path, arguments, flags, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        SentenceEncoder.train(
            tmp_path / "out", *arguments, verbose=0, **FLAGS | make_model(base) | flags
        )
    assert not (tmp_path / "out").exists()


def test_examples_are_read_from_lists_and_arrays():
    frame = np.array([["a", "b"], ["c", "d"]])
    assert make_examples(frame, np.array([1, 0]), "train") == [
        Example("train: example 1", "a", ("b",), (), "1"),
        Example("train: example 2", "c", ("d",), (), "0"),
    ]
    assert make_examples([("a", "b", "n", "m"), "x"], [None, "y"], "dev") == [
        Example("dev: example 1", "a", ("b",), ("n", "m"), ""),
        Example("dev: example 2", "x", (), (), "y"),
    ]
