"""Tests a search: its runs, its table, how it resumes, and the files that it keeps."""

import csv
import dataclasses
import json
import math
import pathlib
import weakref

import pytest
import tensorflow as tf

from official_bert.fine_tuning import search as search_module
from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.search import FLAGS_FILE, Trial, list_trials, search
from official_bert.io.errors import Diverged, InputError
from official_bert.modeling.layers import gelu
from official_bert.options.fine_tuning import ChoiceOptions, ClassificationOptions
from official_bert.training.memory import forget_models


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Nothing is trained here, and looking for models that can be freed takes half a second."""
    monkeypatch.setattr(search_module, "forget_models", lambda: None)
    return forget_models


GRID = """
train_batch_size = [8, 16]
learning_rate = 1e-4
num_train_epochs = [1, 2.5]
"""


@pytest.fixture
def grid(tmp_path_factory):
    """The file of a search of two batch sizes and two numbers of epochs."""
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(GRID, encoding="utf-8")
    return path


def options_in(folder, search, options_class=ChoiceOptions, **changes):
    given = {
        "vocab_file": "v", "bert_config_file": "c", "output_dir": str(folder), "do_train": True, "search": str(search),
        "max_seq_length": 128, "do_lower_case": True,
    }  # fmt: skip
    return options_class(**given | changes)


class Runs:
    """Stands for a script's runner: writes files like a run and scores it."""

    def __init__(self, scores):
        self.scores, self.options = iter(scores), []

    def __call__(self, options):
        self.options.append(options)
        if options.do_predict:
            return None
        folder = pathlib.Path(options.output_dir)
        (folder / "best").mkdir(parents=True)
        for name in (
            "checkpoint", "model.ckpt-3.index", "input.ckpt-3-0.index", "train.tf_record", "logits.npz",
            "eval_results.txt",
        ):  # fmt: skip
            (folder / name).write_text("")
        (folder / "best" / "model.ckpt-2.index").write_text("")
        score = next(self.scores)
        if isinstance(score, Score):
            return score
        if not isinstance(score, float | int):
            raise score
        return Score("eval_accuracy", score)


def table_of(folder):
    with (folder / "search_results.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_the_papers_grid_is_the_default_and_seeds_count_upwards(grid):
    assert list_trials(options_in("x", "paper")) == [
        Trial(batch, rate, epochs, 0)
        for batch in (16, 32)
        for rate in (5e-5, 3e-5, 2e-5)
        for epochs in (2.0, 3.0, 4.0)
    ]
    grid.write_text(
        "train_batch_size = [8, 16]\nlearning_rate = 1e-4\nnum_train_epochs = 3\nrestarts = 3\n"
    )
    trials = list_trials(options_in("x", grid, random_seed=5))
    assert [trial.random_seed for trial in trials] == [5, 6, 7] * 2
    assert trials[0].folder == "batch8_lr0.0001_epochs3_seed5"


def test_the_search_of_glue_tries_the_rates_of_section_4_1():
    """Batches of 32, 3 epochs, and the best of four learning rates."""
    assert list_trials(options_in("x", "glue")) == [
        Trial(32, rate, 3.0, 0) for rate in (5e-5, 4e-5, 3e-5, 2e-5)
    ]


def test_every_combination_runs_and_the_best_is_marked_kept_and_predicts(tmp_path, grid):
    runs = Runs([0.5, math.nan, 0.75, 0.75])
    search(options_in(tmp_path, grid, do_predict=True, max_seq_length=64), runs)
    rows = table_of(tmp_path)
    assert [(row["train_batch_size"], row["num_train_epochs"]) for row in rows] == [
        ("8", "1.0"), ("8", "2.5"), ("16", "1.0"), ("16", "2.5"),
    ]  # fmt: skip
    assert [row["eval_accuracy"] for row in rows] == ["0.5", "nan", "0.75", "0.75"]
    assert [row["best"] for row in rows] == ["", "", "*", ""]
    for row in rows:
        names = {
            str(path.relative_to(tmp_path / row["run"]))
            for path in (tmp_path / row["run"]).rglob("*")
        }
        kept = {
            "checkpoint", "model.ckpt-3.index", "input.ckpt-3-0.index", "best/model.ckpt-2.index",
            "train.tf_record", "logits.npz",
        }  # fmt: skip
        assert names - kept == {"best", "eval_results.txt"}
        assert (kept <= names) == (row["best"] == "*")

    *trained, predicted = runs.options
    for options, trial in zip(trained, list_trials(options_in(tmp_path, grid)), strict=True):
        assert dataclasses.asdict(options).items() >= dataclasses.asdict(trial).items()
        assert (options.do_train, options.do_eval, options.do_predict) == (True, True, False)
        assert not options.search
        assert options.max_seq_length == 64
    assert (predicted.do_train, predicted.do_eval, predicted.do_predict) == (False, False, True)
    assert predicted.output_dir == str(tmp_path / rows[2]["run"])


def test_a_search_goes_on_where_it_was_killed(tmp_path, grid):
    with pytest.raises(KeyboardInterrupt):
        search(options_in(tmp_path, grid), Runs([0.5, KeyboardInterrupt]))
    assert len(table_of(tmp_path)) == 1
    # The double makes it anew.
    (tmp_path / "batch8_lr0.0001_epochs2.5_seed0").rename(tmp_path / "moved")
    runs = Runs([0.25, 0.125, 1.0])
    search(options_in(tmp_path, grid), runs)
    assert len(runs.options) == 3
    assert [row["eval_accuracy"] for row in table_of(tmp_path)] == ["0.5", "0.25", "0.125", "1.0"]
    left = tmp_path / table_of(tmp_path)[0]["run"] / "model.ckpt-3.index"  # as by a kill
    left.write_text("")
    # Once more: nothing is left to do, whatever is to be predicted. A wider search makes only what
    # is new.
    search(options_in(tmp_path, grid, predict_batch_size=16, test_file="t"), Runs([]))
    assert not left.exists()
    wider = Runs([0.0, 0.0])
    grid.write_text(GRID.replace("[8, 16]", "[8, 16, 4]"))
    search(options_in(tmp_path, grid), wider)
    assert [options.train_batch_size for options in wider.options] == [4, 4]


def test_a_search_goes_on_after_a_loss_that_diverged(tmp_path, grid):
    search(options_in(tmp_path, grid), Runs([Diverged("the loss is nan"), math.nan, -0.25, -0.5]))
    rows = table_of(tmp_path)
    assert [row["eval_accuracy"] for row in rows] == ["nan", "nan", "-0.25", "-0.5"]
    assert [row["best"] for row in rows] == ["", "", "*", ""], (
        "a negative score is better than none"
    )
    search(options_in(tmp_path, grid), Runs([]))  # nothing is tried again

    first, then = tmp_path / "first", tmp_path / "then"
    with pytest.raises(KeyboardInterrupt):
        search(options_in(first, grid), Runs([Diverged("the loss is nan"), KeyboardInterrupt]))
    (first / "batch8_lr0.0001_epochs2.5_seed0").rename(tmp_path / "moved")
    search(options_in(first, grid), Runs([0.5, 0.25, 0.75]))
    assert [row["eval_accuracy"] for row in table_of(first)] == ["nan", "0.5", "0.25", "0.75"]
    with pytest.raises(
        InputError,
        match="the loss of every run diverged; give lower values of learning_rate",
    ):
        search(options_in(then, grid), Runs([Diverged("the loss is nan")] * 4))


def test_runs_that_have_learnt_nothing_are_marked_and_counted(tmp_path, caplog, grid):
    failed = Score("eval_accuracy", 0.25, has_learnt=False)
    with pytest.raises(KeyboardInterrupt):
        search(options_in(tmp_path, grid), Runs([failed, 0.5, KeyboardInterrupt]))
    # The double makes it anew.
    (tmp_path / "batch16_lr0.0001_epochs1_seed0").rename(tmp_path / "moved")
    search(
        options_in(tmp_path, grid), Runs([failed, 0.75])
    )  # the mark of the first run is read again
    assert [row["learnt_nothing"] for row in table_of(tmp_path)] == ["yes", "", "yes", ""]
    assert (
        "2 of 4 runs have learnt nothing (batch8_lr0.0001_epochs1_seed0, "
        "batch16_lr0.0001_epochs1_seed0); give --optimizer_type=adamw_bias_correction"
    ) in caplog.text
    caplog.clear()
    search(options_in(tmp_path / "all_learn", grid), Runs([1, 2, 3, 4]))
    assert "learnt nothing" not in caplog.text


def test_the_model_of_a_run_is_freed_before_the_next(tmp_path, forget, monkeypatch, grid):
    monkeypatch.setattr(search_module, "forget_models", forget)
    graphs, runs = [], Runs([1, 2, 3, 4])

    def run(options):
        assert [graph() for graph in graphs] == [None] * len(graphs)
        traced = tf.function(lambda x: gelu(x)).get_concrete_function(tf.TensorSpec([2]))
        graphs.append(weakref.ref(traced.graph))
        return runs(options)

    search(options_in(tmp_path, grid), run)
    assert len(graphs) == 4


def test_resumes_a_search_of_an_earlier_version_with_one_flag_for_all_columns(tmp_path, grid):
    flags = {
        "options_class": ClassificationOptions,
        "task_name": "text",
        "text_a_column": "text",
        "label_column": "kind",
    }
    search(options_in(tmp_path, grid, **flags), Runs([1, 2, 3, 4]))
    path = tmp_path / FLAGS_FILE
    recorded = json.loads(path.read_text())
    for name in ("text_a_column", "text_b_column", "label_column", "has_header", "label_separator"):
        del recorded[name]
    recorded["columns"] = "text_a=text,label=kind"
    path.write_text(json.dumps(recorded))
    search(options_in(tmp_path, grid, **flags), Runs([]))
    assert json.loads(path.read_text())["text_a_column"] == "text"


def test_what_cannot_be_searched_is_named(tmp_path, grid):
    with pytest.raises(InputError, match="give --do_train"):
        search(options_in(tmp_path, grid, do_train=False), Runs([]))
    with pytest.raises(
        InputError,
        match="--train_batch_size=8 cannot be shared evenly by 3 replicas",
    ):
        search(options_in(tmp_path / "out", grid), Runs([]), num_replicas=3)
    assert not (tmp_path / "out").exists()
    search(options_in(tmp_path, grid), Runs([1, 2, 3, 4]))
    with pytest.raises(InputError, match="--max_seq_length was 128"):
        search(options_in(tmp_path, grid, max_seq_length=32), Runs([]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            'train_batch_size = [8, "many"]',
            "train_batch_size: give a list of numbers; each must be at least 1",
            id="a-text",
        ),
        pytest.param("train_batch_size = [8.5]", "give a list of numbers", id="half-an-example"),
        pytest.param("learning_rate = []", "give a list of numbers", id="an-empty-list"),
        pytest.param("learning_rate = [0]", "must be positive", id="zero"),
        pytest.param("restarts = [1, 2]", "restarts: give one number", id="two-restarts"),
        pytest.param("restarts = true", "give a list of numbers", id="a-truth-value"),
        pytest.param("learning_rates = [1e-4]", "did you mean learning_rate", id="a-misspelling"),
        pytest.param("seed = 1", "it is one of learning_rate, train_batch_size", id="no-field"),
        pytest.param("learning_rate = [", "is not TOML", id="broken"),
    ],
)
def test_a_file_that_cannot_be_searched_is_named(tmp_path, grid, text, sentence):
    grid.write_text(text)
    with pytest.raises(InputError) as error:
        search(options_in(tmp_path / "out", grid), Runs([]))
    assert str(error.value).startswith(f"{grid}: ")
    assert sentence in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.toml: no such file"):
        search(options_in(tmp_path / "out", tmp_path / "absent.toml"), Runs([]))
