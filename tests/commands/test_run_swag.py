"""run_swag.py: a choice that can be learnt, from SWAG's files, and what is wrong with CODAH's."""

import csv

import numpy as np
import pytest

from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here

FILLERS = ["sat", "on", "mat", "was", "a", "day", "in", "park", "at", "noon"]


@pytest.fixture(scope="module")
def model(base) -> list[str]:
    """Flags of a toy model."""
    return flag_list(
        vocab_file=base / "vocab.txt", bert_config_file=base / "bert_config.json", max_seq_length=32
    )


def write_swag(folder):
    """The right ending is the one with a `cat`; returns the labels of the test file."""
    draws = np.random.default_rng(1)

    def words(count):
        return list(draws.choice(FILLERS, count))

    for name, count in (("train", 192), ("val", 48), ("test", 30)):
        labels = draws.integers(4, size=count)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            header = ["id", "sent1", "sent2", "ending0", "ending1", "ending2", "ending3"]
            rows.writerow(header if name == "test" else [*header, "label"])
            for number, label in enumerate(labels):
                endings = [words(draws.integers(2, 7)) for _ in range(4)]
                endings[label].insert(draws.integers(3), "cat")
                texts = [" ".join(words(5)), "the", *map(" ".join, endings)]
                rows.writerow([number, *texts] if name == "test" else [number, *texts, label])
    return labels


def test_a_choice_is_learnt_evaluated_and_predicted(model, tmp_path):
    labels = write_swag(tmp_path)
    trained = tmp_path / "trained"
    again = tmp_path / "again"
    usual = tmp_path / "usual.flags"
    usual.write_text(
        "\n".join(
            [
                "# As docs/finetuning.md has it.",
                *model,
                "--train_batch_size=16",
                "--learning_rate=1",
            ]
        )
    )
    run_here(
        "run_swag.py",
        f"--flagfile={usual}",
        *flag_list(
            data_dir=tmp_path,
            output_dir=trained,
            do_train=True,
            do_eval=True,
            do_predict=True,
            num_train_epochs=8,
            learning_rate=3e-3,
            random_seed=1,
        ),
    )
    results = figures(trained)
    assert set(results) == {"eval_accuracy", "eval_loss", "loss", "global_step"}
    assert results["eval_accuracy"] > 0.9
    assert results["eval_loss"] < 0.5  # ln 4 = 1.39 is what guessing gives
    assert results["global_step"] == 96  # 192 / 16 * 8
    first = np.loadtxt(trained / "test_results.tsv")
    assert first.shape == (30, 4)
    np.testing.assert_allclose(first.sum(1), 1.0, atol=1e-5)
    assert (first.argmax(1) == labels).mean() > 0.9

    # The checkpoint alone, files by their names, other batches.
    run_here(
        "run_swag.py",
        *model,
        *flag_list(
            dev_file=tmp_path / "val.csv",
            test_file=tmp_path / "test.csv",
            output_dir=again,
            init_checkpoint=trained,
            do_eval=True,
            do_predict=True,
            predict_batch_size=7,
            eval_batch_size=5,
        ),
    )
    np.testing.assert_allclose(np.loadtxt(again / "test_results.tsv"), first, atol=2e-6)
    for name in ("eval_accuracy", "eval_loss"):
        assert figures(again)[name] == pytest.approx(results[name], rel=1e-4)
