"""--ema_decay: the averages of the weights, and that evaluation and prediction use them."""

import dataclasses

import numpy as np

from tests.commands.pretraining_run import checkpoint_values
from tests.fine_tuning_runs import prepared, run

DECAY = 0.3


def read_weights(path) -> dict:
    """The values of a checkpoint without those of the optimizer and the averages."""
    slots = ("/adam_m", "/adam_v", "/ema")
    values = checkpoint_values(path)
    return {name: value for name, value in values.items() if not name.endswith(slots)}


def read_averages(path) -> dict:
    """The averages of a checkpoint by the names of the weights."""
    values = checkpoint_values(path)
    return {
        name.removesuffix("/ema"): value for name, value in values.items() if name.endswith("/ema")
    }


def assert_equal_values(values, expected):
    assert values.keys() == expected.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def assert_averages_follow(weights: list[dict], averages: list[dict]):
    """Each average is what the weights up to its step give, the first by itself."""
    expected = averages[0]
    for t, step_weights in enumerate(weights[1:]):
        decay = min(DECAY, (1 + t) / (10 + t))
        for name, average in expected.items():
            expected[name] = decay * average + (1 - decay) * step_weights[name]
            np.testing.assert_allclose(
                averages[t + 1][name],
                expected[name],
                atol=1e-6,
                err_msg=name,
            )


def test_what_is_used_is_the_average(tmp_path):
    """Of the weights after each update: d = min(0.3, (1 + t) / (10 + t)), so that the last ones
    have the flag's.
    """
    out = tmp_path / "out"
    plain = tmp_path / "plain"
    newest = tmp_path / "newest"
    options = dataclasses.replace(
        prepared(tmp_path, "classification"),
        do_train=True,
        do_predict=True,
        warmup_proportion=0.0,
    )
    run("classification", options, plain)
    run(
        "classification",
        options,
        out,
        ema_decay=DECAY,
        save_checkpoints_steps=1,
        keep_checkpoint_max=0,
        eval_every_steps=3,
    )
    prefixes = [out / f"model.ckpt-{step}" for step in range(6)]
    weights = [read_weights(prefix) for prefix in prefixes]
    averages = [read_averages(prefix) for prefix in prefixes]
    assert averages[0].keys() == weights[-1].keys() - {"global_step"}

    # Averages change nothing of the training, and are what `best` has of its step.
    assert_equal_values(read_weights(plain / "model.ckpt-5"), weights[-1])
    best = read_weights(out / "best")
    best_step = best.pop("global_step")
    assert_equal_values(best, averages[best_step])
    assert_averages_follow(weights, averages)

    # Without evaluations the newest averages are used, by the run itself and by a later one.
    run("classification", options, newest, ema_decay=DECAY)
    predictions = np.loadtxt(newest / "test_results.tsv")
    run("classification", options, newest, do_train=False)
    later_predictions = np.loadtxt(newest / "test_results.tsv")
    np.testing.assert_allclose(predictions, later_predictions, atol=2e-6)
    plain_predictions = np.loadtxt(plain / "test_results.tsv")
    assert np.abs(plain_predictions - predictions).max() > 1e-5
