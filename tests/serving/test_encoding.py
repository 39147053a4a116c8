"""Tests of what the encoders of texts share."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.serving import encoding
from official_bert.serving.exported_model import DEFAULT


@pytest.mark.parametrize(
    ("asked", "recorded", "expected"),
    [(None, None, 512), (None, 128, 128), (None, 1000, 512), (64, 128, 64), (512, 128, 512)],
)
def test_the_length_is_that_asked_for_or_recorded_or_the_longest(asked, recorded, expected):
    assert encoding.choose_max_seq_length(asked, recorded, longest=512) == expected


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            513,
            "max_seq_length=513: the model was made for sequences up to 512 tokens; "
            "give a smaller number",
        ),
        (0, "max_seq_length=0: must be a positive whole number"),
        (True, "max_seq_length=True: must be a positive whole number"),
        ("9", "max_seq_length='9': must be a positive whole number"),
    ],
)
def test_a_length_that_the_model_cannot_read_is_refused(asked, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        encoding.choose_max_seq_length(asked, 128, longest=512)


def test_batches_have_texts_of_like_length_and_every_text_once():
    texts = ["aaaa", "a", "aaa", "aa", "aaaaa"]
    assert [*encoding.like_length_batches(texts, 2)] == [[1, 3], [2, 0], [4]]
    assert [*encoding.like_length_batches([], 2)] == []
    with pytest.raises(InputError, match="batch_size=0: must be a positive whole number"):
        next(encoding.like_length_batches(texts, 0))


def test_a_function_is_traced_once_for_all_shapes():
    traces = []

    def count_tokens(batch):
        traces.append(1)
        return {"counts": tf.reduce_sum(batch["input_mask"], axis=1)}

    run = encoding.compile_signatures({DEFAULT: count_tokens})
    for shape in ((1, 3), (2, 5)):
        batch = {name: np.ones(shape, np.int32) for name in ENCODER_INPUTS}
        assert run(DEFAULT, batch)["counts"].numpy().tolist() == [shape[1]] * shape[0]
    assert len(traces) == 1


def test_further_signatures_of_an_export_get_positions():
    calls = []

    def export(name, batch):
        calls.append((name, {key: value.shape for key, value in batch.items()}))
        return batch

    run = encoding.run_export(export)
    batch = {"input_ids": np.ones((2, 5), np.int32)}
    run(DEFAULT, batch)
    run("query", batch)
    assert calls == [
        (DEFAULT, {"input_ids": (2, 5)}),
        ("query", {"input_ids": (2, 5), "masked_lm_positions": (2, 1)}),
    ]


def test_hits_have_the_texts_that_are_known():
    rankings = [[(1, 0.5), (0, 0.25)], iter([(0, 2.0)])]
    assert encoding.list_hits(rankings, ["a", "b"]) == [
        [{"text": "b", "row": 1, "score": 0.5}, {"text": "a", "row": 0, "score": 0.25}],
        [{"text": "a", "row": 0, "score": 2.0}],
    ]
    assert encoding.list_hits([[(3, 1.5)]], None) == [[{"row": 3, "score": 1.5}]]
