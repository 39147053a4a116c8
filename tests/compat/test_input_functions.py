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
NUMBERS = list(range(250))


def label_id_of(number: int) -> int:
    return int(number % 3 > 0)


def numbered_example(number: int) -> InputExample:
    """An example whose text says its number: two words are two digits of 16."""
    first, second = divmod(number, 16)
    text = f"{WORDS[first]} {WORDS[second]}"
    label = LABELS[label_id_of(number)]
    return InputExample(str(number), text, None, label)


EXAMPLES = [numbered_example(number) for number in NUMBERS]


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
        _, first_id, second_id, *_ = row
        numbers.append(16 * IDS.index(first_id) + IDS.index(second_id))
    return numbers


def test_evaluation_reads_everything_once_and_in_order(builder):
    first, second, third = read_batches(builder(False, False), 100)
    assert numbers_of(first) == NUMBERS[:100]
    assert numbers_of(second) == NUMBERS[100:200]
    assert numbers_of(third) == NUMBERS[200:]


def test_an_evaluation_batch_has_all_features(builder):
    batch, *_ = read_batches(builder(False, False), 100)
    for values in batch.values():
        assert values.dtype == np.int32
    rows = {name: values.tolist() for name, values in batch.items()}
    assert rows["input_ids"][1] == [
        2,
        IDS[0],
        IDS[1],
        3,
        0,
        0,
    ]
    assert rows["input_mask"][1] == [1, 1, 1, 1, 0, 0]
    assert rows["segment_ids"] == [[0] * LENGTH] * 100
    assert rows["label_ids"] == [label_id_of(number) for number in range(100)]
    if "is_real_example" in rows:
        assert rows["is_real_example"] == [1] * 100


def test_an_evaluation_can_drop_the_last_batch(builder):
    first, second = read_batches(builder(False, True), 100)
    assert len(numbers_of(first)) == 100
    assert len(numbers_of(second)) == 100


def test_training_has_no_end_and_shuffles_a_hundred(builder):
    batches = read_batches(builder(True, True), 50)
    order = []
    for batch in itertools.islice(batches, 20):
        order += numbers_of(batch)
    for place, number in enumerate(order[:150]):
        assert number < place + 100
    assert order[:100] != sorted(order[:100])
    passes = [sorted(order[start : start + 250]) for start in range(0, 1000, 250)]
    assert passes != [NUMBERS] * 4, "passes over the set blend"
    assert set(order) == set(NUMBERS)


def test_padding_examples_are_marked_in_the_file(tokenizer, tmp_path):
    path = str(tmp_path / "file")
    examples = [EXAMPLES[1], PaddingInputExample()]
    write_records(examples, LABELS, tokenizer, path)
    input_fn = run_classifier.file_based_input_fn_builder(path, LENGTH, False, False)
    (batch,) = read_batches(input_fn, 8)
    assert batch["is_real_example"].tolist() == [1, 0]
    _, padding_ids = batch["input_ids"].tolist()
    assert padding_ids == [0] * LENGTH


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
