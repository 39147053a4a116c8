"""Tests the flags of fine-tuning in every family of tasks: the length of batches, the number of
updates, their learning rates, the order of examples.
"""

import dataclasses
import functools
import json
import pathlib
import random
from collections.abc import Callable

import numpy as np
import pytest

from official_bert.data.records.framing import read_examples
from official_bert.modeling import heads
from official_bert.training.trainer import Trainer
from tests import fine_tuning_runs, training_state
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.fine_tuning_runs import FAMILIES, figures, mark_of, noted_batches, prepared, run
from tests.shared import in_test_long
from tests.training.counted_steps import count_steps

NO_POSITION = -1e4  # the logit of a position outside the batch
PADDED = {"length_aware_batches": False}
AWARE = {"length_aware_batches": True}


@pytest.mark.parametrize(
    "family",
    [
        "tagging",
        *in_test_long(
            "classification", "choice", "regression", "multi-label", "embedding", "reranking"
        ),
    ],
)
def test_length_aware_batches_train_the_same_weights(family, tmp_path, monkeypatch):
    # The dropout mask of a tagger's head would depend on the length of the batch.
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options = prepared(tmp_path, family)
    training_batches = noted_batches(monkeypatch)
    padded = tmp_path / "padded"
    aware = tmp_path / "aware"

    def run_and_measure(folder: pathlib.Path, flags: dict) -> list[int]:
        """Run training, evaluation and prediction; return the lengths of the batches."""
        training_batches.clear()
        run(
            family,
            options,
            folder,
            do_train=True,
            do_eval=True,
            do_predict=True,
            **flags,
        )
        shapes = [batch["input_ids"].shape for batch in training_batches]
        return [shape[-1] for shape in shapes]

    padded_lengths = run_and_measure(padded, PADDED)
    aware_lengths = run_and_measure(aware, AWARE)
    assert padded_lengths == [fine_tuning_runs.MAX_LENGTH] * 5
    assert min(aware_lengths) < fine_tuning_runs.MAX_LENGTH

    padded_losses = scalars(padded, "loss").values()
    aware_losses = scalars(aware, "loss").values()
    assert len(set(padded_losses)) == 5
    assert list(aware_losses) == pytest.approx(list(padded_losses), rel=1e-5)
    # A bias whose gradient is only a rounding error moves by that error over Adam's epsilon.
    aware_state = checkpoint_values(aware / "model.ckpt-5")
    padded_state = checkpoint_values(padded / "model.ckpt-5")
    training_state.assert_close(aware_state, padded_state, weights=1e-4, first_moments=1e-5)
    assert_same_results(family, aware, padded)


def assert_same_results(family: str, aware: pathlib.Path, padded: pathlib.Path):
    """Compare the losses and metrics of the evaluation, and the predictions."""
    aware_metrics = figures(aware)
    padded_metrics = figures(padded)
    main_metrics = {"eval_loss", "loss"}
    if family == "embedding":
        main_metrics = {"eval_spearman"}
    if family == "reranking":
        main_metrics = {"eval_map"}
    assert aware_metrics.keys() == padded_metrics.keys()
    assert main_metrics < aware_metrics.keys()
    for name, value in padded_metrics.items():
        assert aware_metrics[name] == pytest.approx(value, rel=1e-4), name
    aware_file = aware / FAMILIES[family].predictions
    padded_file = padded / FAMILIES[family].predictions
    if family == "tagging":
        padded_text = padded_file.read_text()
        assert aware_file.read_text() == padded_text
        tags = set()
        for line in padded_text.splitlines():
            if line:
                tags.add(line.split()[-1])
        assert len(tags) > 1
    else:
        aware_numbers = fine_tuning_runs.predicted_numbers(aware_file)
        padded_numbers = fine_tuning_runs.predicted_numbers(padded_file)
        np.testing.assert_allclose(aware_numbers, padded_numbers, rtol=1e-4, atol=1e-5)
        ranges = np.ptp(padded_numbers, axis=0)
        assert ranges.min() > 1e-2


def test_length_aware_predictions_of_squad_rank_no_padding(tmp_path):
    """The logits are the same, and so are the answers if padding replaces no real position among
    the best.
    """
    options = prepared(tmp_path, "squad", dev=40)
    options = dataclasses.replace(
        options,
        predict_batch_size=1,
        n_best_size=fine_tuning_runs.MAX_LENGTH,
    )

    def predict(name, flags):
        """Run predictions; return the best answers and the logits."""
        folder = tmp_path / name
        run("squad", options, folder, do_predict=True, **flags)
        nbest = json.loads((folder / "nbest_predictions.json").read_text())
        logits = np.load(folder / "logits.npz")
        return nbest, dict(logits)

    padded, padded_logits = predict("padded", PADDED)
    aware, aware_logits = predict("aware", AWARE)

    for name in ("start_logits", "end_logits"):
        logits = aware_logits[name]
        is_read = logits != NO_POSITION
        assert 0.2 < is_read.mean() < 0.99
        expected = padded_logits[name]
        np.testing.assert_allclose(logits[is_read], expected[is_read], atol=2e-5)

    assert aware.keys() == padded.keys()
    for question, entries in padded.items():
        aware_entries = aware[question]
        assert len(aware_entries) == len(entries)
        for aware_entry, entry in zip(aware_entries, entries, strict=True):
            assert aware_entry["text"] == entry["text"]
            for key in ("probability", "start_logit", "end_logit"):
                expected = pytest.approx(entry[key], rel=1e-7, abs=2e-5)
                assert aware_entry[key] == expected


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str], tuple[pathlib.Path, np.ndarray]]:
    """A function from a family to the folder and the training ids of a run.

    The run has 301 examples in batches of 20. The ids are int[rows, length], those of the first of
    an example's four choices. "mixed" is "original" with the whole set shuffled, and "tagging" has
    a buffer of 30 examples.
    """

    buffer_sizes = {"tagging": 30, "mixed": 0}

    @functools.cache
    def train(family):
        folder = tmp_path_factory.mktemp(family)
        name = "original" if family == "mixed" else family
        options = prepared(folder, name, train=301)
        with pytest.MonkeyPatch.context() as patch:
            training_batches = noted_batches(patch)
            if family != "original":
                patch.setattr(Trainer, "step_function", count_steps)
            run(
                name,
                options,
                folder / "out",
                do_train=True,
                warmup_proportion=0.25,
                train_batch_size=20,
                num_train_epochs=2.1,
                length_aware_batches=False,
                shuffle_buffer_size=buffer_sizes.get(family),
            )
        rows = np.concatenate([batch["input_ids"] for batch in training_batches])
        num_rows = len(rows)
        length = rows.shape[-1]
        choices = rows.reshape(num_rows, -1, length)
        return folder / "out", choices[:, 0]

    return train


@pytest.mark.parametrize(
    "family",
    ["original", "squad", *in_test_long("choice", "tagging", "embedding")],
)
def test_the_numbers_of_steps_and_warm_up_steps_are_rounded_down_once(family, trained):
    """As in the original, there are int(examples / batch * epochs) updates, and int(updates *
    proportion) of them are warm-up.

    SQuAD's examples are questions, although the model is trained on windows.
    """
    folder, rows = trained(family)
    # 301 / 20 * 2.1 = 31.6, and a quarter of 31 is 7.75. A whole number of batches in a pass would
    # result in 31.5 or 33.6.
    steps = 31
    warmup_steps = 7
    peak = 1e-3
    assert len(rows) == steps * 20
    # The log of update g shows the rate of the next update.
    expected = {}
    for step in range(1, steps + 1):
        warmup_share = step / warmup_steps
        decay_share = 1 - step / steps
        share = warmup_share if step < warmup_steps else decay_share
        expected[step] = peak * share
    rates = scalars(folder, "learning_rate")
    assert rates.keys() == expected.keys()
    for step, rate in expected.items():
        assert rates[step] == pytest.approx(rate, rel=1e-5, abs=1e-12), step
    last = checkpoint_values(folder / f"model.ckpt-{steps}")
    assert last["global_step"] == steps


def assert_mixed_by_a_buffer(order: list[int], count: int, size: int):
    """Check that numbers in sequence were shuffled by a buffer of `size` numbers."""
    first_numbers = order[: count - size]
    num_first = len(first_numbers)
    assert num_first > 150
    assert len(set(first_numbers)) == num_first
    assert size - 5 < find_greatest_lead(first_numbers) < size


def find_greatest_lead(order: list[int]) -> int:
    """Return by how many places a number is before its place in sequence at most."""
    leads = order - np.arange(len(order))
    return leads.max()


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("original", 100),
        ("tagging", 30),
    ],
)
def test_a_shuffle_buffer_has_the_size_of_its_flag(family, size, trained):
    _, rows = trained(family)
    order = [mark_of(row) for row in rows]
    assert_mixed_by_a_buffer(order, 301, size)


@pytest.mark.parametrize("family", ["choice", "mixed", *in_test_long("embedding")])
def test_new_tasks_shuffle_the_whole_set_and_those_of_the_original_with_a_flag(family, trained):
    _, rows = trained(family)
    order = [mark_of(row) for row in rows]
    first = order[:301]
    second = order[301:602]
    all_numbers = list(range(301))
    assert sorted(first) == all_numbers
    assert sorted(second) == all_numbers
    assert first != second
    assert find_greatest_lead(first) > 250


def test_squad_shuffles_all_questions_and_windows_by_a_buffer(trained):
    folder, rows = trained("squad")
    examples = read_examples(str(folder / "train.tf_record"))
    windows = [example["input_ids"] for _, example in examples]
    numbers = [mark_of(window) for window in windows]
    questions = list(dict.fromkeys(numbers))
    num_windows = len(windows)
    assert num_windows > 400
    by_question = sorted(numbers, key=questions.index)
    assert numbers == by_question, "the windows of a question follow each other"
    expected = list(range(301))
    random.Random(12345).shuffle(expected)
    assert questions == expected

    places = {}
    for place, window in enumerate(windows):
        places[tuple(window)] = place
    assert len(places) == num_windows
    order = [places[tuple(row)] for row in rows]
    assert_mixed_by_a_buffer(order, num_windows, 100)
