"""The most frequent label as the prediction of every example, as the paper submitted for WNLI."""

import dataclasses

import numpy as np
import pytest

from official_bert import InputError, catalog
from official_bert.fine_tuning.run import fine_tune
from tests import toy


@pytest.fixture
def options(tmp_path):
    """WNLI with three examples of 0 and two of 1, and three test examples."""
    rows = [f"{number}\tthe cat\tsat\t{number % 2}\n" for number in range(5)]
    (tmp_path / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "".join(rows))
    tests = [f"{number}\ta mat\train\n" for number in (7, 8, 9)]
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n" + "".join(tests))
    model = toy.make_bert_base_dir(tmp_path / "model")
    return catalog.options_class("run_classifier")(
        task_name="wnli_majority",
        data_dir=str(tmp_path),
        model=str(model),
        output_dir=str(tmp_path / "out"),
        do_predict=True,
    )


def test_each_example_gets_the_most_frequent_label(options, tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        fine_tune(options)
    results = np.loadtxt(tmp_path / "out" / "test_results.tsv")
    np.testing.assert_array_equal(results, [[1.0, 0.0]] * 3)
    submission = (tmp_path / "out" / "glue_submission" / "WNLI.tsv").read_text()
    assert submission == "index\tprediction\n7\t0\n8\t0\n9\t0\n"
    assert "3 of 5 training examples have the label 0" in caplog.text
    assert "Compiling" not in caplog.text, "no model runs"

    rows = (tmp_path / "train.tsv").read_text().replace("\t0\n", "\t1\n", 1)
    (tmp_path / "train.tsv").write_text(rows)
    fine_tune(dataclasses.replace(options, output_dir=str(tmp_path / "other")))
    results = np.loadtxt(tmp_path / "other" / "test_results.tsv")
    np.testing.assert_array_equal(results, [[0.0, 1.0]] * 3)


def test_what_does_not_fit_it_is_refused(options, tmp_path):
    def refuse(message: str, **changes):
        with pytest.raises(InputError, match=message):
            fine_tune(dataclasses.replace(options, **changes))
        assert not (tmp_path / "out").exists()

    refuse("--task_name=wnli_majority: runs no model; leave --do_train", do_train=True)
    refuse("--task_name=wnli_majority: runs no model; leave --do_train", do_eval=True)
