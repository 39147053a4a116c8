"""What TensorBoard reads of a run: the table of hyperparameters and the confusion matrix."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.extensions.tensorboard.summaries import draw_matrix
from tests import fine_tuning_runs


def read_summaries(folder) -> dict[str, tf.Tensor]:
    """The summaries of all event files of a folder by their tags."""
    summaries = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            summaries.update({value.tag: value for value in event.summary.value})
    return summaries


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    return fine_tuning_runs.shared_run(tmp_path_factory, "classification", do_eval=True)


def test_the_table_has_the_flags(classified):
    plugin_data_pb2 = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    summary = read_summaries(classified.output_dir)["_hparams_/session_start_info"]
    content = summary.metadata.plugin_data.content
    values = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert values["learning_rate"].number_value == pytest.approx(1e-3)
    assert values["train_batch_size"].number_value == 4
    assert values["max_seq_length"].number_value == fine_tuning_runs.MAX_LENGTH
    assert "output_dir" not in values


def test_the_confusion_matrix_is_an_image(classified):
    summary = read_summaries(classified.output_dir / "eval")["confusion_matrix"]
    assert summary.metadata.summary_description.endswith("labels.txt: a, b, c. Blue is right.")
    width, height, png = summary.tensor.string_val
    image = tf.io.decode_png(png).numpy()
    assert (int(width), int(height)) == image.shape[:2] == (72, 72)
    lines = (classified.output_dir / "confusion_matrix.tsv").read_text().splitlines()[1:]
    matrix = np.array([line.split("\t")[1:] for line in lines], int)
    np.testing.assert_array_equal(image, draw_matrix(matrix))


def test_a_share_colours_its_cell():
    image = draw_matrix(np.array([[1, 3], [0, 0]]))
    cells = image[12::24, 12::24]
    assert cells[0, 0].tolist() == [191, 220, 236]  # a quarter of blue
    assert cells[0, 1].tolist() == [224, 134, 64]  # three quarters of orange
    assert (cells[1] == 255).all()
