"""Tests how a run finds its files, and the loss of a task over the shares of several replicas."""

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.base import DataFiles, TaskObjective


def test_a_file_of_its_own_name_beats_the_folder():
    files = DataFiles("folder", {"train": "mine.tsv", "dev": None})
    assert files.path("train", ["train.tsv"]) == "mine.tsv"
    # Whether it is there is for the reader to say.
    assert files.path("dev", ["dev.tsv"]) == "folder/dev.tsv"
    with pytest.raises(InputError, match="--test_file: must be given, or --data_dir"):
        DataFiles(named={"train": "train.tsv"}).path("test", ["test.tsv"])


def test_the_first_name_that_is_there_counts(tmp_path, caplog):
    files, names = DataFiles(str(tmp_path)), ["dev.conll", "dev.txt"]
    with pytest.raises(InputError, match=r"has neither dev.conll nor dev.txt; check --data_dir"):
        files.path("dev", names)
    for name in reversed(names):
        (tmp_path / name).touch()
        assert files.path("dev", names) == str(tmp_path / name)
    assert (
        f"{tmp_path}/dev.conll is read, and {tmp_path}/dev.txt, which is there, too, is not"
        in caplog.text
    )
    (tmp_path / "Test.TXT").touch()
    assert files.path("test", ["test.conll", "test.txt"]) == f"{tmp_path}/Test.TXT"


def test_shares_of_the_loss_add_up_to_the_weighted_mean():
    def model(features, training, dropout_seed):
        return features["x"]

    objective = TaskObjective(
        model, lambda model, features: model(features) ** 2, lambda features: features["weight"]
    )
    halves = [
        {"x": np.float32([1.0, 2.0]), "weight": np.float32([1.0, 0.5])},
        {"x": np.float32([3.0]), "weight": np.float32([2.0])},
    ]
    total = sum(float(objective.totals(half)["weight"]) for half in halves)
    shares = [float(objective.loss(half, {"weight": total}, None)[0]) for half in halves]
    np.testing.assert_allclose(sum(shares), (1.0 + 0.5 * 4.0 + 2.0 * 9.0) / 3.5, rtol=1e-6)
