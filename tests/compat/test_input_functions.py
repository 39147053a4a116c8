import functools
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
LABEL_IDS = [int(k % 3 > 0) for k in range(250)]


def numbered_example(number: int) -> InputExample:
    """An example whose text says its number: two words are two digits of 16."""
    first, second = divmod(number, 16)
    text = f"{WORDS[first]} {WORDS[second]}"
    label = LABELS[LABEL_IDS[number]]
    return InputExample(str(number), text, None, label)


EXAMPLES = [numbered_example(number) for number in range(250)]


def write_records(examples, labels, tokenizer, path: str):
    run_classifier.file_based_convert_examples_to_features(
        examples,
        labels,
        LENGTH,
        tokenizer,
        path,
    )


def read_batches(input_fn, batch_size: int):
    """The batches of an input function as numpy arrays."""
    return input_fn({"batch_size": batch_size}).as_numpy_iterator()


@pytest.fixture(params=["memory", "file", "file.gz"])
def builder(request, tokenizer, tmp_path):
    """(is_training, drop_remainder) to an input function over the examples."""
    if request.param == "memory":
        features = run_classifier.convert_examples_to_features(
            EXAMPLES,
            LABELS,
            LENGTH,
            tokenizer,
        )
        return functools.partial(run_classifier.input_fn_builder, features, LENGTH)
    path = str(tmp_path / request.param)
    write_records(EXAMPLES, LABELS, tokenizer, path)
    return functools.partial(run_classifier.file_based_input_fn_builder, path, LENGTH)


def numbers_of(batch) -> list[int]:
    """Which examples a batch holds."""
    numbers = []
    for row in batch["input_ids"].tolist():
        first, second = IDS.index(row[1]), IDS.index(row[2])
        numbers.append(16 * first + second)
    return numbers


def test_evaluation_reads_everything_once_and_in_order(builder):
    batches = list(read_batches(builder(False, False), 100))
    assert [numbers_of(batch) for batch in batches] == [
        list(range(100)),
        list(range(100, 200)),
        list(range(200, 250)),
    ]
    first = batches[0]
    assert first["input_ids"][1].tolist() == [2, IDS[0], IDS[1], 3, 0, 0]
    assert first["input_mask"][1].tolist() == [1, 1, 1, 1, 0, 0]
    assert first["segment_ids"].tolist() == [[0] * LENGTH] * 100
    assert first["label_ids"].tolist() == LABEL_IDS[:100]
    assert {values.dtype.name for values in first.values()} == {"int32"}
    is_real_example = first.get("is_real_example", np.ones(100))
    assert is_real_example.tolist() == [1] * 100

    full_batches = read_batches(builder(False, True), 100)
    assert [len(numbers_of(batch)) for batch in full_batches] == [100, 100]


def test_training_has_no_end_and_shuffles_a_hundred(builder):
    batches = read_batches(builder(True, True), 50)
    order = []
    for batch in itertools.islice(batches, 20):
        order += numbers_of(batch)
    for place, number in enumerate(order[:150]):
        assert number < place + 100
    assert order[:100] != sorted(order[:100])
    all_numbers = list(range(250))
    passes = [sorted(order[start : start + 250]) for start in range(0, 1000, 250)]
    assert passes != [all_numbers] * 4, "passes over the set blend"
    assert set(order) == set(all_numbers)


def test_padding_examples_are_marked_in_the_file(tokenizer, tmp_path):
    path = str(tmp_path / "file")
    examples = [EXAMPLES[1], PaddingInputExample()]
    write_records(examples, LABELS, tokenizer, path)
    input_fn = run_classifier.file_based_input_fn_builder(path, LENGTH, False, False)
    (batch,) = read_batches(input_fn, 8)
    assert batch["is_real_example"].tolist() == [1, 0]
    assert batch["input_ids"][1].tolist() == [0] * LENGTH


@pytest.mark.parametrize(
    ("texts", "labels", "keywords", "targets"),
    [
        pytest.param(
            ("2.5", "-1"),
            None,
            {"target_dtype": "float32"},
            [2.5, -1.0],
            id="scores",
        ),
        pytest.param(
            (("yes",), ()),
            LABELS,
            {"num_targets": 2},
            [[0, 1], [0, 0]],
            id="several labels",
        ),
    ],
)
def test_scores_and_several_labels(tokenizer, tmp_path, texts, labels, keywords, targets):
    examples = [InputExample(str(text), "cat", None, text) for text in texts]
    path = str(tmp_path / "file")
    write_records(examples, labels, tokenizer, path)
    features = run_classifier.convert_examples_to_features(examples, labels, LENGTH, tokenizer)
    read_file = run_classifier.file_based_input_fn_builder(
        path,
        LENGTH,
        False,
        False,
        **keywords,
    )
    read_memory = run_classifier.input_fn_builder(features, LENGTH, False, False)
    dtype = keywords.get("target_dtype", "int32")
    for input_fn in (read_file, read_memory):
        (batch,) = read_batches(input_fn, 8)
        label_ids = batch["label_ids"]
        assert label_ids.tolist() == targets
        assert label_ids.dtype == dtype
