"""A large batch of ids is computed in parts, with the outputs of the whole batch."""

import numpy as np
import pytest

from official_bert.extensions.runtimes import parts
from official_bert.extensions.runtimes.parts import compute_part_tokens, split_batches
from official_bert.serving.exported_model import OpenedExport
from tests import toy
from tests.extensions.runtimes.converted import formats
from tests.serving import exported
from tests.serving.exported import batch

IDS = np.arange(1, 36).reshape(7, 5)
TEXTS = np.array([b"rain", b"noon"], object)


class Runtime:
    """Counts the rows of its calls. The width of `words` is that of the part's longest row."""

    def __init__(self, limit: int | None):
        self.max_part_tokens = limit
        self.rows = []

    @split_batches
    def __call__(self, signature, inputs):
        ids = next(iter(inputs.values()))
        self.rows.append(len(ids))
        if ids.dtype == object:
            return {"texts": ids}
        sums = ids.sum(axis=tuple(range(1, ids.ndim)))
        width = int(sums.max(initial=0)) // 10
        return {"sums": sums, "words": np.minimum.outer(sums, np.arange(width)), "ids": ids}


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        (None, [7]),
        (35, [7]),
        (34, [4, 3]),
        (15, [3, 3, 1]),
        (10, [2, 2, 2, 1]),
        (9, [1] * 7),
        (4, [1] * 7),  # a row is not divided
    ],
)
def test_parts_have_whole_rows_and_the_outputs_of_the_batch(limit, rows):
    runtime = Runtime(limit)
    outputs = runtime("serving_default", {"input_ids": IDS, "input_mask": IDS > 0})
    assert runtime.rows == rows
    np.testing.assert_array_equal(outputs["sums"], IDS.sum(1))
    np.testing.assert_array_equal(outputs["ids"], IDS)
    assert outputs["ids"].dtype == IDS.dtype
    width = int(IDS.sum(1).max()) // 10
    assert outputs["words"].shape == (7, width)
    start = 0
    for num_rows in rows:
        sums = IDS.sum(1)[start : start + num_rows]
        part = outputs["words"][start : start + num_rows]
        part_width = int(sums.max()) // 10
        np.testing.assert_array_equal(
            part[:, :part_width], np.minimum.outer(sums, np.arange(part_width))
        )
        assert not part[:, part_width:].any()  # as narrower rows of predict
        start += num_rows


def test_choices_belong_to_their_row():
    runtime = Runtime(20)
    ids = np.arange(40).reshape(4, 2, 5)
    outputs = runtime("serving_default", {"input_ids": ids})
    assert runtime.rows == [2, 2]
    np.testing.assert_array_equal(outputs["ids"], ids)


def test_narrower_parts_are_filled_up():
    numbers = [np.ones((2, 1, 2), np.float32), np.full((1, 3, 2), 2, np.float32)]
    joined = parts._join(numbers)
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined[:, :, 0], [[1, 0, 0], [1, 0, 0], [2, 2, 2]])
    texts = [np.array([[b"a", b"b"]], object), np.array([[b"c"]], object)]
    assert parts._join(texts).tolist() == [[b"a", b"b"], [b"c", b""]]


def test_other_inputs_are_computed_at_once():
    runtime = Runtime(1)
    assert list(runtime("serving_text", {"text_a": TEXTS})["texts"]) == list(TEXTS)
    runtime = Runtime(1)
    outputs = runtime("serving_default", {"input_ids": np.zeros((0, 3), int)})
    assert runtime.rows == [0]
    assert outputs["ids"].shape == (0, 3)
    # A row of one input belongs to no row of the other.
    runtime = Runtime(3)
    runtime("rank", {"input_ids": np.ones((2, 3), int), "document_ids": np.ones((4, 3), int)})
    assert runtime.rows == [2]


@formats
def test_exports_are_computed_in_parts(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    opened = OpenedExport(str(made.path), num_threads=3)
    width = toy.BERT_CONFIG["intermediate_size"]
    assert opened._runtime.max_part_tokens == 3 * 4 * 2**20 // (4 * width)
    features = batch("mrpc", 7, 24)
    expected = opened("serving_default", features)
    opened._runtime.max_part_tokens = 50
    part_counts = []
    join = parts._join

    def count_parts(values):
        part_counts.append(len(values))
        return join(values)

    monkeypatch.setattr(parts, "_join", count_parts)
    outputs = opened("serving_default", features)
    assert outputs.keys() == expected.keys()
    assert part_counts == [4] * len(outputs)  # 50 tokens are two rows of 24
    for name, values in expected.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(outputs[name], values, atol=1e-6)
        else:
            np.testing.assert_array_equal(outputs[name], values)


def test_part_tokens(monkeypatch):
    assert compute_part_tokens(1536, 2) == 1365
    assert compute_part_tokens(3072, 1) == 341
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert compute_part_tokens(1536, None) == 2730
