"""run_multitask: what it trains, writes and refuses."""

import json
import pathlib

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.checkpoints import open_checkpoint
from official_bert.fine_tuning.finetuner import Finetuner
from official_bert.fine_tuning.run import fine_tune
from tests.extensions.multitask.data import make_flags, write_data
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here, run_script


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("multitask")
    write_data(folder)
    return folder


def read_weights(path) -> dict[str, np.ndarray]:
    checkpoint = open_checkpoint(str(path))
    names = [name for name in checkpoint.shapes if not name.endswith(("adam_m", "adam_v"))]
    return {name: checkpoint.read(name) for name in names}


def assert_equal_weights(path, other_path, tolerance: float = 0.0):
    weights, others = read_weights(path), read_weights(other_path)
    assert weights.keys() == others.keys()
    for name, values in weights.items():
        np.testing.assert_allclose(values, others[name], atol=tolerance, rtol=0, err_msg=name)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory) -> pathlib.Path:
    output_dir = tmp_path_factory.mktemp("trained") / "out"
    flags = make_flags(folder, output_dir, do_eval=True, num_train_epochs=2)
    run_here("run_multitask", *flag_list(**flags))
    return output_dir


def test_a_training_measures_each_task(trained):
    results = figures(trained)
    names = {name for name in results if name.startswith("eval")}
    assert {"eval_topic_accuracy", "eval_rating_pearson", "eval_names_f1"} <= names
    assert any(name.startswith("eval_marks_") for name in names)
    topic = figures(trained / "tasks/topic")
    assert topic["eval_accuracy"] == results["eval_topic_accuracy"]
    assert topic["global_step"] == results["global_step"]
    assert (trained / "confusion_matrix_topic.tsv").exists()
    lines = [json.loads(line) for line in (trained / "run.jsonl").read_text().splitlines()]
    assert lines[0]["data_sets"]["rating"]["label_type"] == "score"


def test_each_task_has_a_folder_with_the_same_encoder(trained):
    joint = read_weights(trained)
    for name in ("topic", "rating", "marks", "names"):
        weights = read_weights(trained / "tasks" / name)
        for weight_name, values in weights.items():
            joint_name = weight_name
            if weight_name.startswith("output_"):
                joint_name = f"task_heads/{name}/{weight_name}"
            np.testing.assert_array_equal(values, joint[joint_name])
        assert {"output_weights", "output_bias"} <= weights.keys()


def test_the_model_of_a_task_predicts(trained):
    answers = {
        name: Predictor(str(trained / "tasks" / name))("the cat sat on the mat")
        for name in ("topic", "rating", "marks", "names")
    }
    assert answers["topic"]["label"] in "abc"
    assert isinstance(answers["rating"]["score"], float)
    assert len(answers["names"]["tags"]) == 6


def test_the_models_can_be_joined_in_an_export(trained, tmp_path):
    if "export_heads" not in catalog.commands():
        pytest.skip("the extension many_heads is not installed")
    heads = ",".join(f"{name}={trained}/tasks/{name}" for name in ("topic", "names"))
    run_here("export_heads", f"--heads={heads}", f"--export_dir={tmp_path}")
    record = json.loads((tmp_path / "1/assets.extra/export.json").read_text())
    assert record["settings"]["shared_encoders"] == [["topic", "names"]]


def test_evaluation_needs_no_training(folder, trained, tmp_path):
    expected = figures(trained)
    for name in ("eval_results.txt", "tasks/names/eval_results.txt"):
        (trained / name).unlink()
    flags = make_flags(folder, trained, do_train=False, do_eval=True, num_train_epochs=2)
    del flags["init_checkpoint"]
    run_here("run_multitask", *flag_list(**flags))
    results = figures(trained)
    assert results.keys() == expected.keys()
    for name, value in results.items():
        assert value == pytest.approx(expected[name], abs=1e-6), name
    assert (trained / "tasks/names/eval_results.txt").exists()


ONE_TASK = {
    "cola": ("run_classifier", {"task_name": "CoLA", "data_dir": "cola"}),
    "names": ("run_ner", {"task_name": "ner", "data_dir": "names"}),
    "pairs": ("run_embeddings", {"task_name": "embedding", "data_dir": "pairs"}),
}


@pytest.mark.parametrize("name", ONE_TASK)
def test_a_training_of_one_task_is_that_of_its_script(folder, tmp_path, name):
    script, values = ONE_TASK[name]
    if script not in catalog.commands():
        pytest.skip("the extension embeddings is not installed")
    lines = [f'{flag} = "{value}"\n' for flag, value in values.items()]
    (tmp_path / "one.toml").write_text(f"[{name}]\n" + "".join(lines))
    flags = make_flags(folder, tmp_path / "joint", data_sets=tmp_path / "one.toml")
    (tmp_path / values["data_dir"]).symlink_to(folder / values["data_dir"])
    run_here("run_multitask", *flag_list(**flags))
    del flags["data_sets"]
    if script == "run_embeddings":
        values = {"data_dir": values["data_dir"]}
    flags |= values | {"data_dir": folder / values["data_dir"], "output_dir": tmp_path / "alone"}
    run_here(script, *flag_list(**flags))
    assert_equal_weights(tmp_path / "joint/tasks" / name, tmp_path / "alone", tolerance=1e-6)


def test_a_training_that_was_killed_goes_on_where_it_stopped(folder, tmp_path, monkeypatch):
    whole = make_flags(
        folder,
        tmp_path / "whole",
        data_sets=folder / "two.toml",
        set_sampling="annealed",
        eval_every_steps=5,
        num_train_epochs=0.8,
        do_eval=True,
    )
    run_here("run_multitask", *flag_list(**whole))
    measure = Finetuner._metrics
    calls = []

    def interrupt_second_call(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(Finetuner, "_metrics", interrupt_second_call)
    parts = whole | {"output_dir": tmp_path / "parts"}
    options = catalog.options_class("run_multitask")(
        **{
            name: str(value) if isinstance(value, pathlib.Path) else value
            for name, value in parts.items()
        }
    )
    with pytest.raises(KeyboardInterrupt):
        fine_tune(options)
    monkeypatch.undo()
    assert not (tmp_path / "parts/tasks/topic/bert_model.ckpt.index").exists()
    run_here("run_multitask", *flag_list(**parts))
    assert figures(tmp_path / "parts") == figures(tmp_path / "whole")
    for name in ("topic", "names"):
        assert_equal_weights(tmp_path / "parts/tasks" / name, tmp_path / "whole/tasks" / name)
    # With other tables it does not go on.
    text = (folder / "two.toml").read_text()
    (folder / "two.toml").write_text(text + 'label_column = "label"\n')
    try:
        ended = end_of("run_multitask", *flag_list(**parts))
    finally:
        (folder / "two.toml").write_text(text)
    assert ended.status == 1
    assert "two.toml: differs from the data sets with which the training in" in ended.sentence


@pytest.fixture(scope="module")
def short(folder, tmp_path_factory) -> pathlib.Path:
    """A training of two tasks."""
    output_dir = tmp_path_factory.mktemp("short") / "out"
    run_here("run_multitask", *flag_list(**make_short_flags(folder, output_dir)))
    return output_dir


def make_short_flags(folder: pathlib.Path, output_dir: pathlib.Path) -> dict:
    return make_flags(
        folder,
        output_dir,
        data_sets=folder / "two.toml",
        num_train_epochs=0.3,
        set_sampling="round_robin",
    )


def test_micro_batches_compute_the_same(folder, short, tmp_path):
    flags = make_short_flags(folder, tmp_path / "out")
    run_here("run_multitask", *flag_list(**flags, num_accumulation_steps=2))
    assert_equal_weights(tmp_path / "out", short, tolerance=2e-5)


def test_two_replicas_compute_the_same(folder, short, tmp_path):
    flags = make_short_flags(folder, tmp_path / "out")
    replicas = {"distribution_strategy": "mirrored", "num_devices": 2}
    run_script("run_multitask", *flag_list(**flags, **replicas))
    start = json.loads((tmp_path / "out/run.jsonl").read_text().splitlines()[0])
    assert start["num_replicas"] == 2
    assert_equal_weights(tmp_path / "out", short, tolerance=2e-5)


def test_test_sets_are_predicted(folder, trained, tmp_path):
    flags = make_flags(folder, trained, do_train=False, do_predict=True, num_train_epochs=2)
    del flags["init_checkpoint"]
    run_here("run_multitask", *flag_list(**flags))
    assert len(np.loadtxt(trained / "test_results_topic.tsv", ndmin=2)) == 6
    assert (trained / "test_results_marks.tsv").exists()
    assert (trained / "predictions_names.conll").exists()
    assert not (trained / "test_results_rating.tsv").exists()


TEXT = 'task_name = "text"\ntrain_file = "topic/train.tsv"\n'
WRONG_TABLES = {
    "": "wrong.toml: has no data sets; write a table for each",
    "[A-b]": "[A-b]: a name may have small letters, digits and underscores only",
    "a = 1": "[a]: must be a table with the flags of a data set",
    "[a]": "[a]: has no task_name; give a task of GLUE, text for a table of your own, or ner",
    "[a]\ntask_name = 'colla'": "[a]: Task not found: colla; give one of",
    "[a]\ntask_name = 'squad'": "[a]: squad cannot be trained with other tasks; give one of",
    "[a]\ntask_name = 'swag'": "[a]: swag cannot be trained with other tasks",
    "[a]\ntask_name = 'multitask'": "[a]: multitask cannot be trained with other tasks",
    "[a]\ntask_name = 'text'": "[a]: has neither data_dir nor train_file; name one of them",
    f"[a]\n{TEXT}dev_fil = 'x'": "[a]: unknown field 'dev_fil'; did you mean dev_file?",
    f"[a]\n{TEXT}label_type = 'some'": "[a]: label_type: 'some' must be one of",
    f"[a]\n{TEXT}label_type = 1": "[a]: label_type: must be a text, got 1",
    f"[a]\n{TEXT}doc_stride = 4": "[a]: --doc_stride=4: has no effect without",
    "[a]\ntask_name = 'text'\ntrain_file = 'absent.tsv'": "absent.tsv",
    "[a]\ntask_name = 'cola'\ntrain_file = 'x.tsv'": "[a]: --train_file",
    "[a]\ntask_name = 'ner'\ntrain_file = 'names/train.conll'\nlabel_type = 'multi'": (
        "[a]: unknown field 'label_type'"
    ),
}


@pytest.mark.parametrize("text", WRONG_TABLES)
def test_wrong_tables_are_named(folder, tmp_path, text):
    (folder / "wrong.toml").write_text(text)
    flags = make_flags(folder, tmp_path / "out", data_sets=folder / "wrong.toml")
    ended = end_of("run_multitask", *flag_list(**flags))
    assert ended.status == 1
    assert WRONG_TABLES[text] in ended.sentence
    assert not (tmp_path / "out/run.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"main_set": "other", "do_eval": True}, "--main_set=other: is none of the development"),
        ({"sampling_exponent": 0.3}, "--sampling_exponent=0.3: has no effect without"),
        ({"jit_compile": True}, "--jit_compile: XLA compiles a step for one shape"),
        ({"data_sets": "absent.toml"}, "absent.toml"),
        ({"do_predict": True, "do_train": False}, "no table has a test_file"),
    ],
)
def test_wrong_flags_are_named(folder, tmp_path, changes, sentence):
    (folder / "one.toml").write_text(f'[a]\n{TEXT}dev_file = "topic/dev.tsv"\n')
    flags = make_flags(folder, tmp_path / "out", data_sets=folder / "one.toml", **{})
    ended = end_of("run_multitask", *flag_list(**flags | changes))
    assert ended.status == 1
    assert sentence in ended.sentence


def test_the_folder_of_all_tasks_is_no_model(trained):
    ended = end_of("predict", f"--model={trained}", "--input_file=-")
    assert ended.status == 1
    assert (
        "is the folder of a joint training, which has the model of each task in" in ended.sentence
    )


def test_a_comparing_loss_needs_whole_batches(folder, tmp_path):
    if "embedding" not in catalog.families():
        pytest.skip("the extension embeddings is not installed")
    (folder / "vectors.toml").write_text('[a]\ntask_name = "embedding"\ndata_dir = "pairs"\n')
    flags = make_flags(folder, tmp_path / "out", data_sets=folder / "vectors.toml")
    ended = end_of("run_multitask", *flag_list(**flags, num_accumulation_steps=2))
    assert ended.status == 1
    assert "[a] has a loss that compares the examples of a batch; train on one" in ended.sentence
