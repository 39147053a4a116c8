import numpy as np
import pytest

import run_squad
from official_bert.compat.feature_writer import FeatureWriter, record_arrays
from official_bert.data.records.framing import read_examples
from tests.tasks.squad.sample import toy_windows


@pytest.mark.parametrize("is_training", [False, True])
def test_a_file_holds_every_window_in_order(tmp_path, is_training):
    _, features = toy_windows(tmp_path, is_training)
    features *= 40  # more than are written at a time
    path = tmp_path / "eval.tf_record"
    writer = FeatureWriter(str(path), is_training)
    for feature in features:
        writer.process_feature(feature)
    assert not path.exists()
    writer.close()
    assert writer.num_features == 320
    written = [example for _, example in read_examples(str(path))]
    names = ["unique_ids", "input_ids", "input_mask", "segment_ids"]
    names += ["start_positions", "end_positions", "is_impossible"] if is_training else []
    assert sorted(written[0]) == sorted(names)
    for feature, example in zip(features, written, strict=True):
        assert example["unique_ids"] == [feature.unique_id]
        for name in ("input_ids", "input_mask", "segment_ids"):
            np.testing.assert_array_equal(example[name], getattr(feature, name))
        if is_training:
            assert example["start_positions"] == [feature.start_position]
            assert example["end_positions"] == [feature.end_position]
            assert example["is_impossible"] == [0]

    dataset = run_squad.input_fn_builder(str(path), 14, is_training, drop_remainder=False)(
        {"batch_size": 5}
    )
    batch = next(dataset.as_numpy_iterator())
    assert set(batch) == {*names} - {"is_impossible"}
    arrays, rows = record_arrays(features[:8], is_training), batch["unique_ids"] - 1000000000
    for name, values in batch.items():
        np.testing.assert_array_equal(values, arrays[name][rows].reshape(values.shape), name)
        assert values.dtype == np.int32
    if not is_training:
        assert rows.tolist() == [0, 1, 2, 3, 4]
        assert sum(len(batch["unique_ids"]) for batch in dataset) == 320


def test_a_failure_leaves_no_file(tmp_path):
    _, features = toy_windows(tmp_path, False)
    before = set(tmp_path.iterdir())
    with pytest.raises(RuntimeError), FeatureWriter(str(tmp_path / "a"), False) as writer:  # noqa: PT012
        writer.process_feature(features[0])
        raise RuntimeError
    writer = FeatureWriter(str(tmp_path / "a"), is_training=True)
    writer.process_feature(features[0])  # has no positions
    with pytest.raises(TypeError):
        writer.close()
    assert set(tmp_path.iterdir()) == before
