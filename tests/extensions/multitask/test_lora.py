"""run_multitask with the flags of the extension adaptation: one base, and adapters for all tasks."""

import json
import pathlib

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.checkpoints import open_checkpoint, tf1
from official_bert.checkpoints.folder import latest_checkpoint
from tests import training_state
from tests.commands.pretraining_run import checkpoint_values
from tests.extensions.multitask.data import make_flags, write_data
from tests.extensions.multitask.test_command import assert_equal_weights
from tests.scripts import end_of, flag_list, run_here
from tests.training.rewinding import rewind

pytestmark = pytest.mark.skipif(
    not any(record.name == "adaptation" for record in catalog.extensions()),
    reason="the extension adaptation is not installed",
)
TASKS = ("topic", "names")
QUERY = "bert/encoder/layer_0/attention/self/query"
TEXTS = ["the cat sat on the mat", "rain", "nobody was on board"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("multitask")
    write_data(folder)
    return folder


def make_lora_flags(folder: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    flags = {
        "data_sets": folder / "two.toml",
        "lora_rank": 2,
        "learning_rate": 0.03,
        "save_checkpoints_steps": 4,
        "keep_checkpoint_max": 0,
        "num_train_epochs": 1,
        **changes,
    }
    return make_flags(folder, output_dir, **flags)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory) -> pathlib.Path:
    output_dir = tmp_path_factory.mktemp("trained") / "out"
    flags = make_lora_flags(folder, output_dir, do_eval=True, eval_every_steps=4)
    run_here("run_multitask", *flag_list(**flags))
    return output_dir


def test_a_training_changes_the_adapters_and_the_heads_alone(folder, trained):
    base = checkpoint_values(folder / "model/bert_model.ckpt")
    values = checkpoint_values(latest_checkpoint(str(trained)))
    encoder = [name for name in base if name.startswith("bert/")]
    assert len(encoder) > 20
    for name in encoder:
        np.testing.assert_array_equal(values[name], base[name], err_msg=name)
    slots = {name.removesuffix("/adam_m") for name in values if name.endswith("/adam_m")}
    assert {name for name in slots if name.startswith("task_heads/")} == {
        f"task_heads/{task}/output_{part}" for task in TASKS for part in ("weights", "bias")
    }
    assert {name.rpartition("/")[2] for name in slots if name.startswith("bert/")} == {
        "lora_kernel_a",
        "lora_kernel_b",
    }


def test_the_folder_of_each_task_has_the_base_and_the_same_adapters(folder, trained):
    base = checkpoint_values(folder / "model/bert_model.ckpt")
    best = checkpoint_values(latest_checkpoint(str(trained / "best")))
    product = best[f"{QUERY}/lora_kernel_a"] @ best[f"{QUERY}/lora_kernel_b"]
    assert np.abs(product).max() > 1e-3
    for task in TASKS:
        stored = tf1.Tf1Checkpoint(str(trained / f"tasks/{task}/bert_model.ckpt"))
        for name in stored.shapes:
            joint_name = f"task_heads/{task}/{name}" if name.startswith("output_") else name
            np.testing.assert_array_equal(stored.read(name), best[joint_name], err_msg=name)
        assert f"{QUERY}/lora_kernel_a" in stored.shapes
        kernel = open_checkpoint(str(trained / "tasks" / task)).read(f"{QUERY}/kernel")
        np.testing.assert_allclose(kernel, base[f"{QUERY}/kernel"] + product, atol=1e-6)


def test_a_stopped_training_ends_as_one_that_was_not(folder, trained, tmp_path):
    stopped = rewind(trained, tmp_path / "stopped", step=4)
    flags = make_lora_flags(folder, stopped, do_eval=True, eval_every_steps=4)
    ended = end_of("run_multitask", *flag_list(**flags | {"lora_rank": 1}))
    assert ended.status == 1
    assert "was trained with --lora_rank=2, and cannot resume with --lora_rank=1" in ended.sentence
    run_here("run_multitask", *flag_list(**flags))
    values = checkpoint_values(latest_checkpoint(str(stopped)))
    training_state.assert_equal(values, checkpoint_values(latest_checkpoint(str(trained))))
    for task in TASKS:
        assert_equal_weights(stopped / "tasks" / task, trained / "tasks" / task)


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory) -> pathlib.Path:
    """The folder of a classifier that run_classifier has trained."""
    output_dir = tmp_path_factory.mktemp("alone") / "out"
    flags = make_lora_flags(folder, output_dir, task_name="CoLA", data_dir=folder / "cola")
    del flags["data_sets"]
    run_here("run_classifier", *flag_list(**flags))
    return output_dir


def test_a_training_of_one_task_is_that_of_its_script(folder, alone, tmp_path):
    (folder / "one.toml").write_text('[cola]\ntask_name = "CoLA"\ndata_dir = "cola"\n')
    flags = make_lora_flags(folder, tmp_path / "out", data_sets=folder / "one.toml")
    run_here("run_multitask", *flag_list(**flags))
    assert_equal_weights(tmp_path / "out/tasks/cola", alone, tolerance=1e-6)


def test_the_heads_of_an_export_answer_as_the_models_of_the_tasks(trained, alone, tmp_path):
    """The heads of one training share an encoder, and the base with another training."""
    if "export_heads" not in catalog.commands():
        pytest.skip("the extension many_heads is not installed")
    folders = {task: trained / "tasks" / task for task in TASKS} | {"cola": alone}
    heads = ",".join(f"{name}={path}" for name, path in folders.items())
    run_here("export_heads", f"--heads={heads}", f"--export_dir={tmp_path}")
    record = json.loads((tmp_path / "1/assets.extra/export.json").read_text())
    assert record["settings"]["shared_encoders"] == [[*TASKS], ["cola"]]
    answers = Predictor(tmp_path)(TEXTS)
    for name, path in folders.items():
        for answer, expected in zip(answers, Predictor(path)(TEXTS), strict=True):
            if name == "names":
                assert answer[name] == expected
                continue
            for label, probability in expected["probabilities"].items():
                assert answer[name]["probabilities"][label] == pytest.approx(probability, abs=1e-5)


def test_frozen_layers_stay_as_they_are(folder, tmp_path):
    base = checkpoint_values(folder / "model/bert_model.ckpt")
    flags = make_lora_flags(folder, tmp_path / "out", freeze_layers=1, num_train_epochs=0.3)
    del flags["lora_rank"]
    run_here("run_multitask", *flag_list(**flags))
    values = checkpoint_values(latest_checkpoint(str(tmp_path / "out")))
    frozen = [name for name in base if name.startswith(("bert/embeddings/", "bert/encoder/"))]
    for name in frozen:
        np.testing.assert_array_equal(values[name], base[name], err_msg=name)
    pooler = "bert/pooler/dense/kernel"
    assert not np.array_equal(values[pooler], base[pooler])


def test_flags_that_exclude_one_another_are_refused(folder, tmp_path):
    flags = make_lora_flags(folder, tmp_path / "out", reinit_layers=1)
    ended = end_of("run_multitask", *flag_list(**flags))
    assert ended.status == 1
    assert "--reinit_layers=1: what it draws would stay random, since" in ended.sentence
    assert not (tmp_path / "out/run.jsonl").exists()
