"""The recipe in two phases, on the sample text with a tiny model, with a stop between the
phases.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

from official_bert.checkpoints.folder import newest
from official_bert.training import run_log
from tests import toy
from tests.commands.pretraining_run import checkpoint_values
from tests.scripts import flag_list, run_here
from tests.shared import ROOT, example


def flags_of(folder: pathlib.Path) -> list[str]:
    """The flags of a short run in the folder `out`."""
    config = folder / "bert_config.json"
    config.write_text(json.dumps(toy.BERT_CONFIG | {"max_position_embeddings": 64}))
    files = {"input_file": ROOT / "sample_text.txt", "vocab_file": toy.write_vocabulary(folder)}
    return flag_list(
        **files,
        bert_config_file=config,
        output_dir=folder / "out",
        num_train_steps=20,
        train_batch_size=4,
        max_seq_length=32,
        phase2_max_seq_length=64,
        dupe_factor=2,
        learning_rate=1e-3,
        random_seed=5,
        log_every_steps=10,
        keep_checkpoint_max=0,  # also that of step 0
    )


def step_of(folder: pathlib.Path) -> int:
    return int(checkpoint_values(newest(str(folder)))["global_step"])


def assert_two_phases(output: pathlib.Path):
    """18 updates at length 32, 2 at length 64; the second phase starts with the weights that the
    first ended with.
    """
    assert (step_of(output / "phase1"), step_of(output / "phase2")) == (18, 2)
    first_end = checkpoint_values(output / "phase1" / "model.ckpt-18")
    second_start = checkpoint_values(output / "phase2" / "model.ckpt-0")
    second_end = checkpoint_values(output / "phase2" / "model.ckpt-2")
    for name, value in second_start.items():
        if "adam" in name:
            assert not value.any(), "the optimizer starts anew"
        elif name != "global_step":
            np.testing.assert_array_equal(value, first_end[name], err_msg=name)
    table = "bert/embeddings/position_embeddings"
    moved = np.abs(second_end[table] - second_start[table]).max(axis=1) > 1e-6
    assert moved[40:].any(), "positions that the first phase never saw"
    records = [
        run_log.read(str(output / name), run_log.START)[0]["flags"] for name in ("phase1", "phase2")
    ]
    flags = ("max_seq_length", "max_predictions_per_seq", "num_warmup_steps", "random_seed")
    assert [[record[name] for name in flags] for record in records] == [
        [32, 5, 2, 5],
        [64, 10, 0, 5],
    ]
    assert {record["file_order"] for record in records} == {"each_pass"}


@pytest.fixture
def recipe(monkeypatch):
    """The script as a module whose commands run in this process; returns (main with flags, the
    commands so far).
    """
    module, commands = example("pretrain_two_phases"), []

    def run(script, *flags):
        commands.append(script.removesuffix(".py"))
        if len(commands) == stops_before:
            sys.exit(143)
        run_here(script, *flags)

    def main(flags, stop=None):
        nonlocal stops_before
        stops_before = stop
        commands.clear()
        monkeypatch.setattr(sys, "argv", ["pretrain_two_phases.py", *flags])
        module.main()

    stops_before = None
    monkeypatch.setattr(module, "run", run)
    return main, commands


def test_the_same_command_goes_on_after_a_stop(recipe, tmp_path):
    main, commands = recipe
    flags = flags_of(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(flags, stop=4)
    assert stopped.value.code == 143
    assert commands == ["create_pretraining_data"] * 2 + ["run_pretraining"] * 2
    first = (tmp_path / "out" / "phase1" / "model.ckpt-18.index").stat().st_mtime_ns
    main(flags)
    assert commands == ["run_pretraining"] * 2, "the records are kept"
    assert (tmp_path / "out" / "phase1" / "model.ckpt-18.index").stat().st_mtime_ns == first
    assert_two_phases(tmp_path / "out")
