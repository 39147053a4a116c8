import itertools

import numpy as np
import pytest

import run_classifier
from official_bert.tasks.classification.examples import InputExample, PaddingInputExample
from tests import toy

LENGTH = 6
LABELS = ["no", "yes"]
WORDS = [piece for piece in toy.VOCABULARY[5:] if piece.isalpha()][:16]
IDS = [toy.VOCABULARY.index(word) for word in WORDS]
# Each text says its number: two words are two digits of 16.
EXAMPLES = [
    InputExample(str(k), f"{WORDS[k // 16]} {WORDS[k % 16]}", None, LABELS[k % 3 > 0])
    for k in range(250)
]


@pytest.fixture(params=["memory", "file", "file.gz"])
def builder(request, tokenizer, tmp_path):
    """(is_training, drop_remainder) to an input function over the examples."""
    arguments = (EXAMPLES, LABELS, LENGTH, tokenizer)
    if request.param == "memory":
        features = run_classifier.convert_examples_to_features(*arguments)
        return lambda *rest: run_classifier.input_fn_builder(features, LENGTH, *rest)
    path = str(tmp_path / request.param)
    run_classifier.file_based_convert_examples_to_features(*arguments, path)
    return lambda *rest: run_classifier.file_based_input_fn_builder(path, LENGTH, *rest)


def numbers_of(batch) -> list[int]:
    """Which examples a batch holds."""
    return [16 * IDS.index(row[1]) + IDS.index(row[2]) for row in batch["input_ids"].tolist()]


def test_evaluation_reads_everything_once_and_in_order(builder):
    batches = list(builder(False, False)({"batch_size": 100}).as_numpy_iterator())
    assert [numbers_of(batch) for batch in batches] == [
        list(range(100)),
        list(range(100, 200)),
        list(range(200, 250)),
    ]
    first = batches[0]
    assert first["input_ids"][1].tolist() == [2, IDS[0], IDS[1], 3, 0, 0]
    assert first["input_mask"][1].tolist() == [1, 1, 1, 1, 0, 0]
    assert first["segment_ids"].tolist() == [[0] * LENGTH] * 100
    assert first["label_ids"].tolist() == [int(k % 3 > 0) for k in range(100)]
    assert {values.dtype for values in first.values()} == {np.dtype("int32")}
    assert first.get("is_real_example", np.ones(100)).tolist() == [1] * 100

    full = builder(False, True)({"batch_size": 100}).as_numpy_iterator()
    assert [len(numbers_of(batch)) for batch in full] == [100, 100]


def test_training_has_no_end_and_shuffles_a_hundred(builder):
    batches = itertools.islice(builder(True, True)({"batch_size": 50}).as_numpy_iterator(), 20)
    order = [number for batch in batches for number in numbers_of(batch)]
    assert all(number < place + 100 for place, number in enumerate(order[:150]))
    assert order[:100] != sorted(order[:100])
    passes = [sorted(order[start : start + 250]) for start in range(0, 1000, 250)]
    assert passes != [list(range(250))] * 4, "passes over the set blend"
    assert set(order) == set(range(250))


def test_padding_examples_are_marked_in_the_file(tokenizer, tmp_path):
    path = str(tmp_path / "file")
    examples = [EXAMPLES[1], PaddingInputExample()]
    run_classifier.file_based_convert_examples_to_features(
        examples,
        LABELS,
        LENGTH,
        tokenizer,
        path,
    )
    (batch,) = run_classifier.file_based_input_fn_builder(path, LENGTH, False, False)(
        {"batch_size": 8}
    ).as_numpy_iterator()
    assert batch["is_real_example"].tolist() == [1, 0]
    assert batch["input_ids"][1].tolist() == [0] * LENGTH


@pytest.mark.parametrize(
    ("texts", "labels", "keywords", "targets"),
    [
        (("2.5", "-1"), None, {"target_dtype": "float32"}, [2.5, -1.0]),
        ((("yes",), ()), LABELS, {"num_targets": 2}, [[0, 1], [0, 0]]),
    ],
)
def test_scores_and_several_labels(tokenizer, tmp_path, texts, labels, keywords, targets):
    examples, path = (
        [InputExample(str(text), "cat", None, text) for text in texts],
        str(tmp_path / "file"),
    )
    run_classifier.file_based_convert_examples_to_features(
        examples,
        labels,
        LENGTH,
        tokenizer,
        path,
    )
    features = run_classifier.convert_examples_to_features(examples, labels, LENGTH, tokenizer)
    for read in (
        run_classifier.file_based_input_fn_builder(path, LENGTH, False, False, **keywords),
        run_classifier.input_fn_builder(features, LENGTH, False, False),
    ):
        (batch,) = read({"batch_size": 8}).as_numpy_iterator()
        assert batch["label_ids"].tolist() == targets
        assert batch["label_ids"].dtype == keywords.get("target_dtype", "int32")
