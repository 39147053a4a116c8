import numpy as np
import pytest

import run_squad
from official_bert.compat.feature_writer import FeatureWriter, record_arrays
from official_bert.data.records.framing import read_examples
from tests.tasks.squad.sample import toy_windows

INPUT_NAMES = {
    "input_ids",
    "input_mask",
    "segment_ids",
}
BATCH_NAMES = {
    False: INPUT_NAMES | {"unique_ids"},
    True: INPUT_NAMES | {"unique_ids", "start_positions", "end_positions"},
}


def write_windows(path, windows, is_training: bool):
    with FeatureWriter(str(path), is_training) as writer:
        for window in windows:
            writer.process_feature(window)


@pytest.mark.parametrize("is_training", [False, True])
def test_a_file_holds_every_window_in_order(tmp_path, is_training):
    _, windows = toy_windows(tmp_path, is_training)
    windows *= 40  # more than are written at a time
    path = tmp_path / "eval.tf_record"
    writer = FeatureWriter(str(path), is_training)
    for window in windows:
        writer.process_feature(window)
    assert not path.exists()
    writer.close()
    assert writer.num_features == 320
    records = [record for _, record in read_examples(str(path))]
    record_names = BATCH_NAMES[is_training]
    if is_training:
        record_names = record_names | {"is_impossible"}
    for window, record in zip(windows, records, strict=True):
        assert record.keys() == record_names
        assert record["unique_ids"] == [window.unique_id]
        for name in INPUT_NAMES:
            np.testing.assert_array_equal(record[name], getattr(window, name))
        if is_training:
            assert record["start_positions"] == [window.start_position]
            assert record["end_positions"] == [window.end_position]
            assert record["is_impossible"] == [0]


@pytest.mark.parametrize("is_training", [False, True])
def test_an_input_function_reads_the_windows_of_a_file(tmp_path, is_training):
    _, windows = toy_windows(tmp_path, is_training)
    path = str(tmp_path / "eval.tf_record")
    write_windows(path, windows * 40, is_training)
    input_fn = run_squad.input_fn_builder(path, 14, is_training, drop_remainder=False)
    dataset = input_fn({"batch_size": 5})
    batch = next(dataset.as_numpy_iterator())
    assert batch.keys() == BATCH_NAMES[is_training]
    rows = batch["unique_ids"] - 1000000000
    arrays = record_arrays(windows, is_training)
    for name, values in batch.items():
        expected = arrays[name][rows]
        expected = expected.reshape(values.shape)
        np.testing.assert_array_equal(values, expected, name)
        assert values.dtype == np.int32
    if not is_training:
        assert rows.tolist() == [0, 1, 2, 3, 4]
        batch_sizes = [len(batch["unique_ids"]) for batch in dataset]
        assert sum(batch_sizes) == 320


def test_a_failure_leaves_no_file(tmp_path):
    _, windows = toy_windows(tmp_path, False)
    path = str(tmp_path / "a")
    before = set(tmp_path.iterdir())
    with pytest.raises(RuntimeError), FeatureWriter(path, False) as writer:  # noqa: PT012
        writer.process_feature(windows[0])
        raise RuntimeError
    writer = FeatureWriter(path, is_training=True)
    writer.process_feature(windows[0])  # has no positions
    with pytest.raises(TypeError):
        writer.close()
    assert set(tmp_path.iterdir()) == before
