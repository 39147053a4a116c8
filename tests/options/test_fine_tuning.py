"""What the flags of fine-tuning make a run do, in every family of tasks: the length of batches, the
number of updates, their rates, the order of examples.
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

NO_POSITION = -1e4  # the logit of what a batch has no position for
PADDED, AWARE = {"length_aware_batches": False}, {"length_aware_batches": True}


@pytest.mark.parametrize(
    "family",
    [
        "tagging",
        *in_test_long("classification", "choice", "regression", "multi-label", "embedding"),
    ],
)
def test_length_aware_batches_train_the_same_weights(family, tmp_path, monkeypatch):
    # The mask of a tagger's head would depend on the length of the batch.
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options, drawn = prepared(tmp_path, family), noted_batches(monkeypatch)
    lengths = {}
    for name, batches in (("padded", PADDED), ("aware", AWARE)):
        drawn.clear()
        run(
            family,
            options,
            tmp_path / name,
            do_train=True,
            do_eval=True,
            do_predict=True,
            **batches,
        )
        lengths[name] = [batch["input_ids"].shape[-1] for batch in drawn]
    assert lengths["padded"] == [fine_tuning_runs.MAX_LENGTH] * 5
    assert min(lengths["aware"]) < fine_tuning_runs.MAX_LENGTH

    padded, aware = tmp_path / "padded", tmp_path / "aware"
    losses = [list(scalars(folder, "loss").values()) for folder in (aware, padded)]
    assert len(set(losses[1])) == 5
    np.testing.assert_allclose(*losses, rtol=1e-5)
    # Biases whose gradient is 0 but for rounding move by the size of that over Adam's epsilon.
    states = [checkpoint_values(folder / "model.ckpt-5") for folder in (aware, padded)]
    training_state.assert_close(*states, weights=1e-4, first_moments=1e-5)
    assert_same_results(family, aware, padded)


def assert_same_results(family: str, aware: pathlib.Path, padded: pathlib.Path):
    """Losses and metrics of the evaluation, and predictions."""
    found, expected = figures(aware), figures(padded)
    measured = {"eval_spearman"} if family == "embedding" else {"eval_loss", "loss"}
    assert measured < found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name
    predictions = [folder / FAMILIES[family].predictions for folder in (aware, padded)]
    if family == "tagging":
        found, expected = (path.read_text() for path in predictions)
        assert found == expected
        assert len({line.split()[-1] for line in expected.splitlines() if line}) > 1
    else:
        found, expected = map(fine_tuning_runs.predicted_numbers, predictions)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.ptp(expected, axis=0).min() > 1e-2


def test_length_aware_predictions_of_squad_rank_no_padding(tmp_path):
    """The logits are the same, and so are the answers where padding takes no room of real
    positions among the best.
    """
    options = dataclasses.replace(prepared(tmp_path, "squad", dev=40), predict_batch_size=1)

    def predicted(name, **changes):
        run("squad", options, tmp_path / name, do_predict=True, **changes)
        nbest = json.loads((tmp_path / name / "nbest_predictions.json").read_text())
        return nbest, dict(np.load(tmp_path / name / "logits.npz"))

    (padded, logits), (aware, aware_logits) = (
        predicted(str(batches), n_best_size=fine_tuning_runs.MAX_LENGTH, **batches)
        for batches in (PADDED, AWARE)
    )
    for name in ("start_logits", "end_logits"):
        is_read = aware_logits[name] != NO_POSITION
        assert 0.2 < is_read.mean() < 0.99
        np.testing.assert_allclose(aware_logits[name][is_read], logits[name][is_read], atol=2e-5)
    assert aware.keys() == padded.keys()
    for question, entries in padded.items():
        assert [entry["text"] for entry in aware[question]] == [entry["text"] for entry in entries]
        for key in ("probability", "start_logit", "end_logit"):
            numbers = ([entry[key] for entry in each] for each in (aware[question], entries))
            np.testing.assert_allclose(*numbers, atol=2e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str], tuple[pathlib.Path, np.ndarray]]:
    """A function from a family to the folder of a run on 301 examples in batches of 20, and the ids
    that it was trained on, int[rows, length] (of an example's four choices the first). "mixed" is
    "original" with the whole set shuffled, and "tagging" has a buffer of 30 examples.
    """

    @functools.cache
    def train(family):
        folder = tmp_path_factory.mktemp(family)
        name = "original" if family == "mixed" else family
        options = prepared(folder, name, train=301)
        given = {"shuffle_buffer_size": {"tagging": 30, "mixed": 0}.get(family)}
        batches = {"train_batch_size": 20, "num_train_epochs": 2.1, "length_aware_batches": False}
        with pytest.MonkeyPatch.context() as patch:
            drawn = noted_batches(patch)
            if family != "original":
                patch.setattr(Trainer, "_step_function", count_steps)
            run(
                name,
                options,
                folder / "out",
                do_train=True,
                warmup_proportion=0.25,
                **batches,
                **given,
            )
        rows = np.concatenate([batch["input_ids"] for batch in drawn])
        return folder / "out", rows.reshape(len(rows), -1, rows.shape[-1])[:, 0]

    return train


@pytest.mark.parametrize(
    "family", ["original", "squad", *in_test_long("choice", "tagging", "embedding")]
)
def test_steps_and_warm_up_are_cut_once_at_the_end(family, trained):
    """As in the original: int(examples / batch * epochs) updates, of which int(updates *
    proportion) are warm-up.

    SQuAD's examples are questions, though windows are what is trained on.
    """
    folder, rows = trained(family)
    # 301 / 20 * 2.1 = 31.6, a quarter of 31 is 7.75; a whole number of batches a pass would give
    # 31.5 or 33.6.
    steps, warmup_steps, peak = 31, 7, 1e-3
    assert len(rows) == steps * 20
    # What is shown behind update g is the rate of the next one.
    expected = {
        g: peak * (g / warmup_steps if g < warmup_steps else 1 - g / steps)
        for g in range(1, steps + 1)
    }
    rates = scalars(folder, "learning_rate")
    assert rates.keys() == expected.keys()
    for step, rate in expected.items():
        assert rates[step] == pytest.approx(rate, rel=1e-5, abs=1e-12), step
    assert checkpoint_values(folder / f"model.ckpt-{steps}")["global_step"] == steps


def assert_mixed_by_a_buffer(order: list[int], count: int, size: int):
    """Of `count` numbers in turn, those drawn come from a buffer that hands out one of `size`
    and takes in the next.
    """
    before_the_end = order[: count - size]
    lead = np.array(before_the_end) - np.arange(len(before_the_end))
    assert size - 5 < lead.max() < size
    assert len(set(before_the_end)) == len(before_the_end) > 150


@pytest.mark.parametrize(("family", "size"), [("original", 100), ("tagging", 30)])
def test_a_shuffle_buffer_holds_back_examples_of_which_the_next_is_drawn(family, size, trained):
    _, rows = trained(family)
    assert_mixed_by_a_buffer([mark_of(row) for row in rows], 301, size)


@pytest.mark.parametrize("family", ["choice", "mixed", *in_test_long("embedding")])
def test_other_tasks_than_the_originals_shuffle_the_whole_set_and_these_if_asked(family, trained):
    _, rows = trained(family)
    order = [mark_of(row) for row in rows]
    first, second = order[:301], order[301:602]
    assert sorted(first) == sorted(second) == list(range(301))
    assert first != second
    assert max(number - place for place, number in enumerate(first)) > 250


def test_questions_are_shuffled_before_windows_are_made_and_windows_by_a_buffer(trained):
    folder, rows = trained("squad")
    windows = [
        example["input_ids"] for _, example in read_examples(str(folder / "train.tf_record"))
    ]
    numbers = [mark_of(window) for window in windows]
    questions = list(dict.fromkeys(numbers))
    assert len(windows) > 400
    assert numbers == sorted(numbers, key=questions.index), (
        "the windows of a question follow each other"
    )
    expected = list(range(301))
    random.Random(12345).shuffle(expected)
    assert questions == expected

    place_of = {tuple(window): place for place, window in enumerate(windows)}
    assert len(place_of) == len(windows)
    assert_mixed_by_a_buffer([place_of[tuple(row)] for row in rows], len(windows), 100)
