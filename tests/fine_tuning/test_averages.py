"""--ema_decay: the averages of the weights, and that evaluation and prediction use them."""

import dataclasses

import numpy as np

from tests.commands.pretraining_run import checkpoint_values
from tests.fine_tuning_runs import prepared, run


def weights_of(values) -> dict:
    return {
        name: value
        for name, value in values.items()
        if name.rpartition("/")[2] not in ("adam_m", "adam_v", "ema")
    }


def test_what_is_used_is_the_average(tmp_path):
    """Of the weights after each update: d = min(0.3, (1 + t) / (10 + t)), so that the last ones
    have the flag's.
    """
    out, plain = tmp_path / "out", tmp_path / "plain"
    flags = {"do_train": True, "do_predict": True, "warmup_proportion": 0.0}
    options = dataclasses.replace(prepared(tmp_path, "classification"), **flags)
    run("classification", options, plain)
    kept = {"save_checkpoints_steps": 1, "keep_checkpoint_max": 0, "eval_every_steps": 3}
    run("classification", options, out, ema_decay=0.3, **kept)
    last = checkpoint_values(out / "model.ckpt-5")
    steps = [checkpoint_values(out / f"model.ckpt-{step}") for step in range(6)]
    averages = {
        name.removesuffix("/ema"): value
        for name, value in steps[0].items()
        if name.endswith("/ema")
    }
    assert averages.keys() == weights_of(last).keys() - {"global_step"}
    for t, values in enumerate(steps[1:]):
        decay = min(0.3, (1 + t) / (10 + t))
        for name in averages:
            averages[name] = decay * averages[name] + (1 - decay) * values[name]
            np.testing.assert_allclose(
                values[f"{name}/ema"],
                averages[name],
                atol=1e-6,
                err_msg=name,
            )
    # Averages change nothing of the training, and are what `best` has of its step.
    best = checkpoint_values(out / "best")
    for name, value in weights_of(checkpoint_values(plain / "model.ckpt-5")).items():
        np.testing.assert_array_equal(last[name], value, err_msg=name)
        if name != "global_step":
            np.testing.assert_array_equal(
                best[name],
                steps[best["global_step"]][f"{name}/ema"],
                err_msg=name,
            )
    # Without evaluations the newest averages are used, by the run itself and by a later one.
    outputs = []
    for changes in ({"ema_decay": 0.3}, {"do_train": False}):
        run("classification", options, tmp_path / "newest", do_predict=True, **changes)
        outputs.append(np.loadtxt(tmp_path / "newest" / "test_results.tsv"))
    np.testing.assert_allclose(*outputs, atol=2e-6)
    assert np.abs(np.loadtxt(plain / "test_results.tsv") - outputs[0]).max() > 1e-5
