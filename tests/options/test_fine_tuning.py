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
        *in_test_long("classification", "choice", "regression", "multi-label", "embedding"),
    ],
)
def test_length_aware_batches_train_the_same_weights(family, tmp_path, monkeypatch):
    # The dropout mask of a tagger's head would depend on the length of the batch.
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options = prepared(tmp_path, family)
    training_batches = noted_batches(monkeypatch)
    lengths = {}
    for name, flags in (("padded", PADDED), ("aware", AWARE)):
        training_batches.clear()
        run(
            family,
            options,
            tmp_path / name,
            do_train=True,
            do_eval=True,
            do_predict=True,
            **flags,
        )
        lengths[name] = [batch["input_ids"].shape[-1] for batch in training_batches]
    assert lengths["padded"] == [fine_tuning_runs.MAX_LENGTH] * 5
    assert min(lengths["aware"]) < fine_tuning_runs.MAX_LENGTH

    padded = tmp_path / "padded"
    aware = tmp_path / "aware"
    padded_losses = list(scalars(padded, "loss").values())
    aware_losses = list(scalars(aware, "loss").values())
    assert len(set(padded_losses)) == 5
    np.testing.assert_allclose(aware_losses, padded_losses, rtol=1e-5)
    # A bias whose gradient is only a rounding error moves by that error over Adam's epsilon.
    aware_state = checkpoint_values(aware / "model.ckpt-5")
    padded_state = checkpoint_values(padded / "model.ckpt-5")
    training_state.assert_close(aware_state, padded_state, weights=1e-4, first_moments=1e-5)
    assert_same_results(family, aware, padded)


def assert_same_results(family: str, aware: pathlib.Path, padded: pathlib.Path):
    """Compares the losses and metrics of the evaluation, and the predictions."""
    aware_metrics = figures(aware)
    padded_metrics = figures(padded)
    main_metrics = {"eval_spearman"} if family == "embedding" else {"eval_loss", "loss"}
    assert main_metrics < aware_metrics.keys() == padded_metrics.keys()
    for name, value in padded_metrics.items():
        assert aware_metrics[name] == pytest.approx(value, rel=1e-4), name
    aware_file = aware / FAMILIES[family].predictions
    padded_file = padded / FAMILIES[family].predictions
    if family == "tagging":
        padded_text = padded_file.read_text()
        assert aware_file.read_text() == padded_text
        tags = {line.split()[-1] for line in padded_text.splitlines() if line}
        assert len(tags) > 1
    else:
        aware_numbers = fine_tuning_runs.predicted_numbers(aware_file)
        padded_numbers = fine_tuning_runs.predicted_numbers(padded_file)
        np.testing.assert_allclose(aware_numbers, padded_numbers, rtol=1e-4, atol=1e-5)
        assert np.ptp(padded_numbers, axis=0).min() > 1e-2


def test_length_aware_predictions_of_squad_rank_no_padding(tmp_path):
    """The logits are the same, and so are the answers if padding replaces no real position among
    the best.
    """
    options = dataclasses.replace(prepared(tmp_path, "squad", dev=40), predict_batch_size=1)

    def predicted(name, **changes):
        run("squad", options, tmp_path / name, do_predict=True, **changes)
        nbest = json.loads((tmp_path / name / "nbest_predictions.json").read_text())
        return nbest, dict(np.load(tmp_path / name / "logits.npz"))

    n_best_size = fine_tuning_runs.MAX_LENGTH
    padded, logits = predicted("padded", n_best_size=n_best_size, **PADDED)
    aware, aware_logits = predicted("aware", n_best_size=n_best_size, **AWARE)
    for name in ("start_logits", "end_logits"):
        is_read = aware_logits[name] != NO_POSITION
        assert 0.2 < is_read.mean() < 0.99
        np.testing.assert_allclose(aware_logits[name][is_read], logits[name][is_read], atol=2e-5)
    assert aware.keys() == padded.keys()
    for question, entries in padded.items():
        assert len(aware[question]) == len(entries)
        for aware_entry, entry in zip(aware[question], entries, strict=True):
            assert aware_entry["text"] == entry["text"]
            for key in ("probability", "start_logit", "end_logit"):
                np.testing.assert_allclose(aware_entry[key], entry[key], rtol=1e-7, atol=2e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str], tuple[pathlib.Path, np.ndarray]]:
    """Returns a function from a family to the folder and the training ids of a run.

    The run has 301 examples in batches of 20. The ids are int[rows, length], those of the first of
    an example's four choices. "mixed" is "original" with the whole set shuffled, and "tagging" has
    a buffer of 30 examples.
    """

    @functools.cache
    def train(family):
        folder = tmp_path_factory.mktemp(family)
        name = "original" if family == "mixed" else family
        options = prepared(folder, name, train=301)
        with pytest.MonkeyPatch.context() as patch:
            training_batches = noted_batches(patch)
            if family != "original":
                patch.setattr(Trainer, "_step_function", count_steps)
            run(
                name,
                options,
                folder / "out",
                do_train=True,
                warmup_proportion=0.25,
                train_batch_size=20,
                num_train_epochs=2.1,
                length_aware_batches=False,
                shuffle_buffer_size={"tagging": 30, "mixed": 0}.get(family),
            )
        rows = np.concatenate([batch["input_ids"] for batch in training_batches])
        choices = rows.reshape(len(rows), -1, rows.shape[-1])
        return folder / "out", choices[:, 0]

    return train


@pytest.mark.parametrize(
    "family", ["original", "squad", *in_test_long("choice", "tagging", "embedding")]
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
        share = step / warmup_steps if step < warmup_steps else 1 - step / steps
        expected[step] = peak * share
    rates = scalars(folder, "learning_rate")
    assert rates.keys() == expected.keys()
    for step, rate in expected.items():
        assert rates[step] == pytest.approx(rate, rel=1e-5, abs=1e-12), step
    assert checkpoint_values(folder / f"model.ckpt-{steps}")["global_step"] == steps


def assert_mixed_by_a_buffer(order: list[int], count: int, size: int):
    """Checks that numbers in sequence were shuffled by a buffer of `size` numbers."""
    first_numbers = order[: count - size]
    lead = np.array(first_numbers) - np.arange(len(first_numbers))
    assert size - 5 < lead.max() < size
    assert len(set(first_numbers)) == len(first_numbers) > 150


@pytest.mark.parametrize(("family", "size"), [("original", 100), ("tagging", 30)])
def test_a_shuffle_buffer_has_the_size_of_its_flag(family, size, trained):
    _, rows = trained(family)
    order = [mark_of(row) for row in rows]
    assert_mixed_by_a_buffer(order, 301, size)


@pytest.mark.parametrize("family", ["choice", "mixed", *in_test_long("embedding")])
def test_new_tasks_shuffle_the_whole_set_and_those_of_the_original_with_a_flag(family, trained):
    _, rows = trained(family)
    order = [mark_of(row) for row in rows]
    first, second = order[:301], order[301:602]
    assert sorted(first) == sorted(second) == list(range(301))
    assert first != second
    leads = [number - place for place, number in enumerate(first)]
    assert max(leads) > 250


def test_squad_shuffles_all_questions_and_windows_by_a_buffer(trained):
    folder, rows = trained("squad")
    examples = read_examples(str(folder / "train.tf_record"))
    windows = [example["input_ids"] for _, example in examples]
    numbers = [mark_of(window) for window in windows]
    questions = list(dict.fromkeys(numbers))
    assert len(windows) > 400
    assert numbers == sorted(numbers, key=questions.index), (
        "the windows of a question follow each other"
    )
    expected = list(range(301))
    random.Random(12345).shuffle(expected)
    assert questions == expected

    places = {tuple(window): place for place, window in enumerate(windows)}
    assert len(places) == len(windows)
    order = [places[tuple(row)] for row in rows]
    assert_mixed_by_a_buffer(order, len(windows), 100)
