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
    files = DataFiles(named={"train": "train.tsv"})
    with pytest.raises(InputError, match="--test_file: must be given, or --data_dir"):
        files.path("test", ["test.tsv"])


def test_the_first_name_that_is_there_counts(tmp_path, caplog):
    files = DataFiles(str(tmp_path))
    names = ["dev.conll", "dev.txt"]
    with pytest.raises(InputError, match=r"has neither dev.conll nor dev.txt; check --data_dir"):
        files.path("dev", names)
    text_file = tmp_path / "dev.txt"
    text_file.touch()
    assert files.path("dev", names) == str(text_file)
    conll_file = tmp_path / "dev.conll"
    conll_file.touch()
    assert files.path("dev", names) == str(conll_file)
    warning = f"{conll_file} is read, and {text_file}, which is there, too, is not"
    assert warning in caplog.text
    (tmp_path / "Test.TXT").touch()
    assert files.path("test", ["test.conll", "test.txt"]) == f"{tmp_path}/Test.TXT"


def test_shares_of_the_loss_add_up_to_the_weighted_mean():
    def model(features, training, dropout_seed):
        return features["x"]

    def compute_losses(model, features):
        return model(features) ** 2

    def weights_of(features):
        return features["weight"]

    objective = TaskObjective(model, compute_losses, weights_of)
    halves = [
        {
            "x": np.float32([1.0, 2.0]),
            "weight": np.float32([1.0, 0.5]),
        },
        {
            "x": np.float32([3.0]),
            "weight": np.float32([2.0]),
        },
    ]
    total = 0.0
    for half in halves:
        total += float(objective.totals(half)["weight"])
    mean_loss = 0.0
    for half in halves:
        share, _ = objective.loss(half, {"weight": total}, None)
        mean_loss += float(share)
    expected = (1.0 + 0.5 * 4.0 + 2.0 * 9.0) / 3.5
    np.testing.assert_allclose(mean_loss, expected, rtol=1e-6)
