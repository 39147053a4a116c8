"""Runs of run_ner --task_name=feature_based: what they train, keep, predict and refuse."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

from official_bert import InputError, Predictor
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.extensions.feature_based import cache
from official_bert.training import run_log
from tests.commands.pretraining_run import checkpoint_values
from tests.fine_tuning_runs import figures, prepared, run
from tests.scripts import flag_list, run_here, run_script

SENTENCES = ["the cat sat on the mat", "a sunny day in the park"]
FLAGS = {"task_name": "feature_based", "bilstm_size": 12}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a run, its options, and the numbers of the layers that it computed."""
    folder = tmp_path_factory.mktemp("features")
    options = prepared(folder, "tagging")
    options = dataclasses.replace(
        options, **FLAGS, feature_layers="sum_all", feature_cache_dir=str(folder / "cache")
    )
    computed = []
    write = cache.VectorCache._write

    def note(self, encoded, paths, compute, batch):
        computed.append((len(encoded), list(paths)))
        write(self, encoded, paths, compute, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache.VectorCache, "_write", note)
        run(
            "tagging",
            options,
            folder / "out",
            do_train=True,
            do_eval=True,
            do_predict=True,
            learning_rate=1e-2,
            num_train_epochs=3.0,
            eval_every_epochs=1.0,
        )
    return folder, options, computed


@pytest.fixture
def out(made, tmp_path) -> pathlib.Path:
    """A copy of the folder of the run."""
    return pathlib.Path(shutil.copytree(made[0] / "out", tmp_path / "out"))


def test_the_encoder_runs_once_for_each_set(made):
    # Of 20 training examples, and of 14 in each of the other sets.
    assert made[2] == [(20, [1]), (14, [1]), (14, [1])]


def test_a_run_trains_all_but_the_encoder(made, out):
    before = checkpoint_values(made[1].init_checkpoint)
    after = checkpoint_values(latest_checkpoint(str(out)))
    encoder = [name for name in before if name.startswith("bert/")]
    assert len(encoder) > 20
    for name in encoder:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    slots = [name for name in after if name.endswith("adam_m")]
    assert slots
    assert all(name.startswith("features/sum_all/") for name in slots)
    log = run_log.read(str(out), run_log.TRAIN)
    assert log[-1]["loss"] < log[0]["loss"]


def test_without_the_cache_the_results_are_the_same(made, out, tmp_path):
    options = dataclasses.replace(made[1], feature_cache_gb=0.0)
    run("tagging", options, out, do_eval=True)
    stored = figures(made[0] / "out")
    computed = figures(out)
    assert stored.keys() == computed.keys()
    for name, value in stored.items():
        assert computed[name] == pytest.approx(value, abs=1e-5), name


def test_the_folder_records_its_layers_and_exports_predict_the_same(made, out, tmp_path):
    _, options, _ = made
    expected = (out / "predictions.conll").read_text()
    (out / "predictions.conll").unlink()
    from_record = dict.fromkeys(("feature_layers", "bilstm_size", "init_checkpoint"))
    run("tagging", options, out, do_predict=True, **from_record)
    assert (out / "predictions.conll").read_text() == expected
    settings = json.loads((out / "task.json").read_text())["settings"]
    assert (settings["feature_layers"], settings["bilstm_size"]) == ("sum_all", 12)

    run_here("export_saved_model", *flag_list(model=out, export_dir=tmp_path / "export"))
    answers = [Predictor(str(folder))(SENTENCES) for folder in (out, tmp_path / "export")]
    assert answers[0] == answers[1]


def test_an_export_of_text_predicts_the_same(made, out, tmp_path):
    text = tmp_path / "text"
    run_here("export_saved_model", *flag_list(model=out, export_dir=text, export_text=True))
    answers = [Predictor(str(folder))(SENTENCES) for folder in (out, text)]
    assert answers[0] == answers[1]


def test_what_cannot_be_is_refused_in_a_sentence(made, out, tmp_path):
    _, options, _ = made
    with pytest.raises(InputError, match=r"--feature_layers=last: .*task.json says sum_all"):
        run("tagging", options, out, do_eval=True, feature_layers="last")
    with pytest.raises(InputError, match="--num_bilstm_layers=0: feature_based trains a BiLSTM"):
        run("tagging", options, tmp_path / "none", do_train=True, num_bilstm_layers=0)
    strategy = "multi_worker_mirrored"
    with pytest.raises(InputError, match="mirrored: feature_based computes the layers on one"):
        run("tagging", options, tmp_path / "no", do_train=True, distribution_strategy=strategy)
    with pytest.raises(InputError, match=r"is not given for bert/.*, which would stay random"):
        run("tagging", options, tmp_path / "random", do_train=True, init_checkpoint=None)
    finished = run_script(
        "run_ner.py",
        *flag_list(model=out, feature_layers="last", do_eval=True, output_dir=tmp_path / "new"),
        status=1,
    )
    assert "--feature_layers=last: has no effect without --task_name=feature_based" in (
        finished.stderr
    )


def test_a_conversion_writes_the_encoder_and_names_the_head_that_it_leaves_out(out, tmp_path):
    finished = run_here(
        "convert_checkpoint",
        *flag_list(model=out, output_format="huggingface", output_dir=tmp_path / "converted"),
    )
    assert "Left out, since no other name is known for them: features/sum_all/" in finished.stderr


def test_a_model_of_other_layers_is_a_start_like_any_other(made, out, tmp_path):
    options = dataclasses.replace(made[1], init_checkpoint=str(out), feature_layers="embeddings")
    run("tagging", options, tmp_path / "again", do_train=True)
    after = checkpoint_values(latest_checkpoint(str(tmp_path / "again")))
    assert not [name for name in after if name.startswith("features/sum_all")]
