"""Tests what run_ner refuses before training; its results are tested with the script."""

import dataclasses

import pytest

from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import TaggingOptions
from tests import toy

SENTENCES = "the O\ncat B-ANIMAL\n\nnoon B-TIME\n\n"


@pytest.fixture
def options(tmp_path):
    base = toy.make_bert_base_dir(tmp_path / "base")
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text(SENTENCES)
    return TaggingOptions(
        data_dir=str(tmp_path), max_seq_length=8, train_batch_size=2, num_train_epochs=1.0,
        vocab_file=str(base / "vocab.txt"), bert_config_file=str(base / "bert_config.json"),
        output_dir=str(tmp_path / "out"), do_train=True,
    )  # fmt: skip


@pytest.mark.parametrize(("file", "changes"), [("dev", {"do_eval": True}), ("test", {"do_predict": True})])
def test_files_are_read_before_the_training_that_they_could_stop(options, tmp_path, file, changes):
    (tmp_path / f"{file}.txt").unlink()
    with pytest.raises(InputError, match=f"has neither {file}.conll nor {file}.txt"):
        fine_tune(dataclasses.replace(options, **changes))
    assert not list((tmp_path / "out").iterdir())


def test_the_tags_of_a_trained_model_keep_their_names(options, tmp_path):
    fine_tune(options)
    written = (tmp_path / "out" / "labels.txt").read_text()
    (tmp_path / "train.txt").write_text(SENTENCES.replace("ANIMAL", "VEHICLE"))
    with pytest.raises(InputError, match=r"outputs stand for .*B-ANIMAL.*, but the task's labels are .*B-VEHICLE"):
        fine_tune(dataclasses.replace(options, do_predict=True))
    assert (tmp_path / "out" / "labels.txt").read_text() == written
