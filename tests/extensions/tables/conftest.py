"""The folder of a classifier that was trained on a CSV file of tickets."""

import pathlib
from typing import NamedTuple

import pytest

from tests import session, toy
from tests.extensions.tables.tickets import make_rows, write_csv
from tests.hostile.conftest import folder, good_files
from tests.scripts import flag_list, run_here

__all__ = ["folder", "good_files", "tickets"]


class Tickets(NamedTuple):
    """A trained classifier.

    Attributes:
        model: its folder, with the predictions of the test set.
        test_file: the test set.
    """

    model: pathlib.Path
    test_file: pathlib.Path


@pytest.fixture(scope="session")
def tickets(tmp_path_factory) -> Tickets:
    """The classifier; tests only read its folder."""
    with session.alone_in(session.shared_folder(tmp_path_factory) / "tickets") as shared:
        made = Tickets(shared / "model", shared / "test.csv")
        if not (shared / "done").exists():
            train = write_csv(shared / "train.csv", make_rows(128))
            write_csv(made.test_file, make_rows(6, 128))
            run_here(
                "run_classifier.py",
                "--do_train",
                "--do_predict",
                "--all_probabilities",
                *flag_list(
                    task_name="text",
                    train_file=train,
                    test_file=made.test_file,
                    text_a_column="Message",
                    label_column="team",
                    model=toy.make_bert_base_dir(shared / "base"),
                    output_dir=made.model,
                    max_seq_length=24,
                    train_batch_size=16,
                    learning_rate=3e-3,
                    num_train_epochs=16,
                    random_seed=1,
                ),
            )
            (shared / "done").touch()
    return made
