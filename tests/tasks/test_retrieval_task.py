"""The settings of a model of queries and documents, its training set and its signatures."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer
from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.options.table_columns import RelatedTextsOptions
from official_bert.tasks.base import DataFiles
from official_bert.tasks.retrieval_task import RetrievalTask, choose_model_settings
from official_bert.tasks.settings import TaskSettings, recorded
from tests import toy

FIXED = ("width",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TaskSettings, RelatedTextsOptions):
    output_dir: str | None = None
    loss: str = "multiple_negatives_ranking"
    train_batch_size: int = 8
    width: int | None = recorded()
    depth: int | None = recorded()


class PairLoss:
    num_texts = (2, 10)
    repeats = 1


class PairTask(RetrievalTask):
    """A task whose outputs are the sums of the ids."""

    _text_loss = PairLoss()

    @property
    def _learns_margins(self) -> bool:
        return self._flags.loss == "margin_mse"

    def build_model(self, config, **arguments):
        raise NotImplementedError

    def objective(self, model):
        raise NotImplementedError

    def outputs(self, model, features):
        raise NotImplementedError

    def metrics(self, encoded, outputs):
        raise NotImplementedError

    def write_predictions(self, output_dir, encoded, outputs, suffix=""):
        raise NotImplementedError

    def serving_outputs(self, model, features):
        return {"sum": tf.reduce_sum(features["input_ids"], axis=1)}

    def _serve_queries(self, model, features):
        assert sorted(features) == ["input_ids", "input_mask", "segment_ids"]
        return {"sum": -tf.reduce_sum(features["input_ids"], axis=1)}


def example(anchor: str, positive: str, label: str = "") -> Example:
    return Example("train.tsv:2", anchor, (positive,), label=label)


@pytest.mark.parametrize(
    ("flags", "record", "expected"),
    [
        ({"width": 3}, {"width": 5}, {"width": 3}),  # A new model has no folder.
        ({"init_checkpoint": "m"}, {"width": 5, "depth": 2}, {"width": 5, "depth": 2}),
        ({"init_checkpoint": "m", "width": 5}, {"width": 5}, {"width": 5}),
        ({"init_checkpoint": "m", "depth": 1}, {"width": 5, "depth": 2}, {"width": 5, "depth": 1}),
        ({"init_checkpoint": "m", "width": 3}, {}, {"width": 3}),
        ({"init_checkpoint": "m", "width": 3, "do_train": True}, {"width": 5}, {"width": 3}),
    ],
)
def test_a_model_has_the_settings_of_its_flags_and_else_of_its_folder(flags, record, expected):
    settings = Settings(**flags)
    assert choose_model_settings(settings, lambda folder: record, FIXED) == expected


def test_a_flag_that_contradicts_the_model_is_refused():
    settings = Settings(init_checkpoint="models/a", width=3)
    message = "--width=3: the model of models/a was trained with 5; leave the flag out"
    with pytest.raises(InputError, match=message):
        choose_model_settings(settings, lambda folder: {"width": 5}, FIXED)


def test_a_trained_output_dir_has_the_model_of_the_run(tmp_path):
    settings = Settings(init_checkpoint="m", output_dir=str(tmp_path))
    assert choose_model_settings(settings, lambda folder: {"width": folder}, FIXED)["width"] == "m"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    chosen = choose_model_settings(settings, lambda folder: {"width": folder}, FIXED)
    assert chosen["width"] == str(tmp_path)


def test_a_training_set(tmp_path, caplog):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path))
    examples = [example("the cat", "the mat", "1"), example("a train", "the cat", "1.0")]
    task = PairTask(Settings(train_batch_size=1))
    encoded = task.encode(examples, tokenizer, 8, "train")
    assert "the loss compares the examples of a batch" in caplog.text
    # "the cat" is one text, which is encoded once.
    np.testing.assert_array_equal(encoded.rows, [[0, 1], [2, 0]])
    np.testing.assert_array_equal(encoded.further["text_ids"], encoded.rows)
    assert len(encoded.inputs.lengths) == 3

    caplog.clear()
    task = PairTask(Settings(train_batch_size=1, loss="margin_mse"))
    examples = [example("the cat", "the mat", "0.5"), example("a train", "the cat", "-2")]
    scores = task.encode(examples, tokenizer, 8, "train").further["scores"]
    np.testing.assert_array_equal(scores, np.float32([0.5, -2]))
    assert not caplog.text

    with pytest.raises(InputError, match=r"train\.tsv:2: has the label 0\.5"):
        PairTask(Settings()).encode(examples, tokenizer, 8, "train")


def test_the_files_of_a_folder(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"query": "a", "document": "b"}\n')
    task = PairTask(Settings(values={"has_header": True}))
    (only_example,) = task.read(DataFiles(str(tmp_path)), "train")[""]
    assert (only_example.anchor, list(only_example.positives)) == ("a", ["b"])


def test_queries_have_a_signature():
    task = PairTask(Settings())
    features = {
        name: tf.constant([[1, 2], [3, 4]])
        for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    }
    answer = task.further_signatures(None)["query"](features)
    np.testing.assert_array_equal(answer["sum"], [-3, -7])
