"""--eval_task=clustering and few_shot of run_embeddings: from the examples of a set to metrics."""

import re

import numpy as np
import pytest

pytest.importorskip("official_bert.extensions.embeddings")

from official_bert.data.text_examples import all_texts
from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings import evaluation
from official_bert.io.errors import Diverged, InputError

# Two labels in turn; the vectors of a label are near each other.
LABELS = ["ab"[number % 2] for number in range(80)]
CENTRES = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
VECTORS = np.array([CENTRES[label] for label in LABELS]) + np.linspace(0, 0.1, 80)[:, None]


def make_examples(labels) -> list[Example]:
    return [
        Example(f"dev.csv: line {line}", f"text{line}", label=label)
        for line, label in enumerate(labels, 2)
    ]


def prepare(labels, kind: str):
    examples = make_examples(labels)
    return evaluation.prepare(examples, all_texts(examples), kind)


def test_texts_with_labels_alone_are_clustered():
    assert evaluation.choose_kind(make_examples(LABELS)) == "clustering"
    assert prepare(LABELS, "clustering")(VECTORS) == {"eval_v_measure": pytest.approx(1.0)}
    mixed = np.roll(VECTORS, 20, axis=0)
    mixed[:40] = VECTORS[0]
    assert prepare(LABELS, "clustering")(mixed)["eval_v_measure"] < 0.9


def test_labels_are_learnt_from_few_examples():
    metrics = prepare(LABELS, "few_shot")(VECTORS)
    assert metrics == {
        "eval_accuracy_8": 1.0,
        "eval_accuracy_8_std": 0.0,
        "eval_accuracy_16": 1.0,
        "eval_accuracy_16_std": 0.0,
    }


@pytest.mark.parametrize(
    ("labels", "kind", "sentence"),
    [
        ("xxx", "clustering", "line 2: 3 different texts have 1 labels, so clusters are always"),
        ("xyz", "clustering", "line 2: 3 different texts have 3 labels, so clusters are always"),
        (["c", *LABELS], "few_shot", "few_shot draws 16 examples of each of several labels"),
        (["a", ""], "clustering", "line 3: has no label; name its column, --label_column=..."),
    ],
)
def test_labels_that_say_nothing_are_refused(labels, kind, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        prepare(labels, kind)


def test_vectors_that_are_not_finite_are_refused():
    with pytest.raises(Diverged, match="not finite"):
        prepare(LABELS, "clustering")(np.full((80, 2), np.nan))
