"""Labels and texts that a loss or an evaluation does not read."""

import re

import pytest

from official_bert.data.text_examples import build_example_rows
from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings.evaluation import list_evaluations
from official_bert.extensions.embeddings.label_checks import check_training, warn_about_unread_parts
from official_bert.extensions.embeddings.losses import LOSSES as REGISTERED_LOSSES
from official_bert.io.errors import InputError

RANKING, COSENT, COSINE = "multiple_negatives_ranking", "cosent", "cosine_similarity"
SIMCSE, TRIPLET, MSE = "simcse", "triplet", "mse"


def pairs(
    labels: str = "",
    negatives: tuple[str, ...] = (),
    texts: str = "abcdefgh",
    answers: str = "stuvwxyz",
):
    """Pairs of texts with labels, which are separated by blanks."""
    rows = zip(texts, answers, labels.split() or [""] * len(texts), strict=False)
    return [
        Example(f"t.csv: line {k}", a, (b,), negatives, label)
        for k, (a, b, label) in enumerate(rows, 2)
    ]


@pytest.mark.parametrize(
    ("loss", "examples"),
    [
        (RANKING, pairs()),
        (RANKING, pairs("1 1.0 true")),
        (RANKING, pairs(answers="sssssss", negatives=("n",))),
        (TRIPLET, pairs(negatives=("n",))),
        (COSENT, pairs("0 2.5 5")),
        (COSINE, pairs("-1 0 1")),
        (SIMCSE, pairs("0 1")),
        (MSE, pairs("x y")),
        ("gist", pairs("1 1.0 true")),
        ("angle", pairs("0 2.5 5")),
        ("contrastive", pairs("0 1 true")),
        ("online_contrastive", pairs("1 1.0 false")),
    ],
)
def test_examples_that_a_loss_reads(loss, examples):
    check_training(examples, loss)


def test_classes_without_pairs_lack_the_second_text():
    examples = [Example("t.csv: line 2", "a", label="x"), Example("t.csv: line 3", "b", label="y")]
    check_training(examples, RANKING)
    with pytest.raises(
        InputError, match=r"line 2: --loss=multiple_negatives_ranking needs two texts"
    ):
        build_example_rows(examples, REGISTERED_LOSSES[RANKING], RANKING)


@pytest.mark.parametrize(
    ("loss", "examples", "message"),
    [
        (
            RANKING,
            pairs("1 0 1"),
            "t.csv: line 3: has the label 0, but --loss=multiple_negatives_ranking takes each pair",
        ),
        (RANKING, pairs("entailment contradiction"), "line 2: has the label entailment, but"),
        (
            RANKING,
            pairs("0.5"),
            "choose --loss=cosent, which learns scores, or leave the column out with --label_co",
        ),
        (RANKING, pairs(answers="ssssssss"), "line 2: all 8 examples have the same second text"),
        (RANKING, pairs(texts="aaaa"), "line 2: all 4 examples have the same first text"),
        (
            TRIPLET,
            pairs("1 1", ("n",)),
            "line 2: has the label 1, which --loss=triplet does not read; leave the column",
        ),
        (
            COSENT,
            pairs("2 2.0 2"),
            "line 2: all pairs have the label 2, and --loss=cosent orders them",
        ),
        (
            COSENT,
            pairs("1 2", ("n",)),
            "line 2: has a negative text, which --loss=cosent does not read; choose",
        ),
        (
            COSINE,
            pairs("1 0", ("n",)),
            "line 2: has a negative text, which --loss=cosine_similarity does not read",
        ),
        (
            COSINE,
            pairs("1 5 0"),
            "line 3: has the label 5, but --loss=cosine_similarity learns cosines, from -1 to 1;",
        ),
        (COSINE, pairs("1 x"), "line 3: the label 'x' is no number"),
        ("gist", pairs("1 0"), "line 3: has the label 0, but --loss=gist takes each pair"),
        ("angle", pairs("2 2"), "line 2: all pairs have the label 2, and --loss=angle orders them"),
        (
            "contrastive",
            pairs("1 0.5"),
            "line 3: has the label 0.5, but --loss=contrastive reads labels 0 and 1; correct",
        ),
        (
            "online_contrastive",
            pairs("1 0", ("n",)),
            "line 2: has a negative text, which --loss=online_contrastive does not read",
        ),
    ],
)
def test_examples_that_a_loss_does_not_read(loss, examples, message):
    with pytest.raises(InputError, match=re.escape(message)):
        check_training(examples, loss)


@pytest.mark.parametrize(
    ("kind", "unread"),
    [
        ("triplets", "label"),
        ("sts", "negative"),
        ("clustering", "positive and the negative"),
        ("retrieval", None),
    ],
)
def test_an_evaluation_says_what_it_does_not_read(kind, unread, caplog):
    parts_read = list_evaluations()[kind].parts_read
    warn_about_unread_parts(pairs("1 0", ("n",)), kind, parts_read)
    expected = [f"--eval_task={kind} does not read the {unread} of the examples"] if unread else []
    assert caplog.messages == expected
