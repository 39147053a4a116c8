import numpy as np

from official_bert.data.model_inputs import ModelInputs, RaggedRows


def test_rows_of_any_length():
    rows = RaggedRows([[5, 6, 7], [], [8]])
    assert (len(rows), rows.lengths.tolist(), rows.starts.tolist()) == (3, [3, 0, 1], [0, 3, 3, 4])
    assert [rows[k].tolist() for k in range(3)] == [[5, 6, 7], [], [8]]
    assert rows.padded(np.array([2, 0, 1, 2]), 4).tolist() == [[8, 0, 0, 0], [5, 6, 7, 0], [0] * 4, [8, 0, 0, 0]]
    assert rows.padded(np.array([], int), 2).shape == (0, 2)
    assert rows.values.dtype == np.int32


def test_no_rows():
    assert len(RaggedRows([])) == 0


def test_features_are_padded_to_the_length_asked_for():
    inputs = ModelInputs([([2, 9, 3], 3), ([2, 8, 3, 7, 3], 3), ([], 0)])
    assert inputs.lengths.tolist() == [3, 5, 0]
    batch = inputs.features(np.array([1, 2, 0]), 6)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[2, 8, 3, 7, 3, 0], [0] * 6, [2, 9, 3, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 0], [0] * 6, [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 1, 1, 0], [0] * 6, [0] * 6],
    }
    assert {values.dtype.name for values in batch.values()} == {"int32"}
    assert inputs.features(np.array([0]), 3)["input_ids"].tolist() == [[2, 9, 3]]
