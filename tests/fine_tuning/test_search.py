"""Tests a search: its runs, its table, how it resumes, and the files that it keeps."""

import csv
import dataclasses
import itertools
import json
import math
import pathlib
import weakref

import pytest
import tensorflow as tf

from official_bert.fine_tuning import search as search_module
from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.search import FLAGS_FILE, Trial, list_trials, search
from official_bert.io import progress
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


def make_options(folder, search, options_class=ChoiceOptions, **changes):
    flags = {
        "vocab_file": "v",
        "bert_config_file": "c",
        "output_dir": str(folder),
        "do_train": True,
        "search": str(search),
        "max_seq_length": 128,
        "do_lower_case": True,
    }
    return options_class(**flags | changes)


# What a run writes: files that only the best run keeps, and one that every run keeps.
MODEL_FILES = {
    "checkpoint",
    "model.ckpt-3.index",
    "input.ckpt-3-0.index",
    "best/model.ckpt-2.index",
    "train.tf_record",
    "logits.npz",
}
RESULTS = "eval_results.txt"


class Runs:
    """Stands for a script's runner: writes files like a run and scores it."""

    def __init__(self, scores):
        self.scores = iter(scores)
        self.options = []

    def __call__(self, options):
        self.options.append(options)
        if options.do_predict:
            return None
        folder = pathlib.Path(options.output_dir)
        (folder / "best").mkdir(parents=True)
        for name in (*MODEL_FILES, RESULTS):
            (folder / name).write_text("")
        score = next(self.scores)
        if isinstance(score, Score):
            return score
        if not isinstance(score, float | int):
            raise score
        return Score("eval_accuracy", score)


def read_table(folder):
    with (folder / "search_results.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def read_column(folder, name):
    """The values of a column of the table, from the first run to the last."""
    return [row[name] for row in read_table(folder)]


def test_the_papers_grid_is_the_default():
    trials = list_trials(make_options("x", "paper"))
    batch_sizes = (16, 32)
    learning_rates = (5e-5, 3e-5, 2e-5)
    epochs = (2.0, 3.0, 4.0)
    combinations = itertools.product(batch_sizes, learning_rates, epochs)
    assert trials == [Trial(*combination, 0) for combination in combinations]


GRID_WITH_RESTARTS = """
train_batch_size = [8, 16]
learning_rate = 1e-4
num_train_epochs = 3
restarts = 3
"""


def test_seeds_count_upwards(grid):
    grid.write_text(GRID_WITH_RESTARTS)
    trials = list_trials(make_options("x", grid, random_seed=5))
    assert [trial.random_seed for trial in trials] == [5, 6, 7] * 2
    assert trials[0].folder == "batch8_lr0.0001_epochs3_seed5"


def test_seeds_is_another_name_of_restarts(grid):
    grid.write_text(GRID_WITH_RESTARTS)
    trials = list_trials(make_options("x", grid))
    grid.write_text(GRID_WITH_RESTARTS.replace("restarts", "seeds"))
    assert list_trials(make_options("x", grid)) == trials


def test_the_search_of_glue_tries_the_rates_of_section_4_1():
    """Batches of 32, 3 epochs, and the best of four learning rates."""
    trials = list_trials(make_options("x", "glue"))
    assert trials == [
        Trial(32, 5e-5, 3.0, 0),
        Trial(32, 4e-5, 3.0, 0),
        Trial(32, 3e-5, 3.0, 0),
        Trial(32, 2e-5, 3.0, 0),
    ]


def test_every_combination_runs_and_the_best_is_marked(tmp_path, grid):
    search(make_options(tmp_path, grid), Runs([0.5, math.nan, 0.75, 0.75]))
    assert read_column(tmp_path, "train_batch_size") == ["8", "8", "16", "16"]
    assert read_column(tmp_path, "num_train_epochs") == ["1.0", "2.5", "1.0", "2.5"]
    assert read_column(tmp_path, "eval_accuracy") == ["0.5", "nan", "0.75", "0.75"]
    assert read_column(tmp_path, "best") == ["", "", "*", ""]


def test_a_summary_has_the_mean_and_the_deviation_over_the_seeds(tmp_path, grid, caplog):
    caplog.set_level("INFO", logger="absl")
    grid.write_text(GRID_WITH_RESTARTS)
    search(make_options(tmp_path, grid), Runs([0.5, 0.75, DIVERGED, 0.25, 0.5, 0.75]))
    with (tmp_path / "search_summary.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["train_batch_size"] for row in rows] == ["8", "16"]
    assert [row["learning_rate"] for row in rows] == ["0.0001"] * 2
    assert [row["eval_accuracy_mean"] for row in rows] == ["0.625", "0.5"]
    deviations = [float(row["eval_accuracy_deviation"]) for row in rows]
    assert deviations == pytest.approx([0.125 * math.sqrt(2), 0.25])
    assert [row["n"] for row in rows] == ["2", "3"]
    assert [row["diverged"] for row in rows] == ["1", "0"]
    line = "  batch 8, learning rate 0.0001, 3 epochs: 0.625, deviation 0.18, 2 runs"
    assert line in caplog.messages


def test_a_search_with_one_seed_logs_no_means(tmp_path, grid, caplog):
    caplog.set_level("INFO", logger="absl")
    search(make_options(tmp_path, grid), Runs([1, 2, 3, 4]))
    assert "Means over the seeds" not in caplog.text
    with (tmp_path / "search_summary.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["eval_accuracy_deviation"] for row in rows] == ["nan"] * 4


def test_all_runs_share_one_bar(tmp_path, grid, monkeypatch):
    """The second search continues: it has three of the four runs."""
    texts = []
    monkeypatch.setattr(progress, "_choose_view", lambda is_updated: progress.View.TERMINAL)
    monkeypatch.setattr(
        progress.updated_line, "show", lambda status, view: texts.append(status.text)
    )

    class TrainedRuns(Runs):
        def __call__(self, options):
            progress.Progress("steps", 8, is_main=True)(4)
            return super().__call__(options)

    options = make_options(tmp_path, grid)
    with pytest.raises(KeyboardInterrupt):
        search(options, TrainedRuns([0.5, KeyboardInterrupt]))
    (tmp_path / "batch8_lr0.0001_epochs2.5_seed0").rename(tmp_path / "moved")
    search(options, TrainedRuns([0.25, 0.125, 1.0]))
    assert texts == [f"run {number} of 4: 4 of 8 steps" for number in (1, 2, 2, 3, 4)]


def test_only_the_best_run_keeps_its_model(tmp_path, grid):
    options = make_options(tmp_path, grid, do_predict=True)
    search(options, Runs([0.5, math.nan, 0.75, 0.75]))
    for row in read_table(tmp_path):
        folder = tmp_path / row["run"]
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        expected = {"best", RESULTS}
        if row["best"]:
            expected |= MODEL_FILES
        assert names == expected


def test_each_run_trains_with_the_flags_of_its_trial_and_the_best_predicts(tmp_path, grid):
    runs = Runs([0.5, math.nan, 0.75, 0.75])
    options = make_options(tmp_path, grid, do_predict=True, max_seq_length=64)
    search(options, runs)
    *training, prediction = runs.options
    trials = list_trials(make_options(tmp_path, grid))
    for run_options, trial in zip(training, trials, strict=True):
        flags = dataclasses.asdict(run_options)
        assert flags.items() >= dataclasses.asdict(trial).items()
        assert run_options.do_train
        assert run_options.do_eval
        assert not run_options.do_predict
        assert not run_options.search
        assert run_options.max_seq_length == 64
    assert not prediction.do_train
    assert not prediction.do_eval
    assert prediction.do_predict
    best_run = read_table(tmp_path)[2]["run"]
    assert prediction.output_dir == str(tmp_path / best_run)


def test_a_search_goes_on_where_it_was_killed(tmp_path, grid):
    options = make_options(tmp_path, grid)
    with pytest.raises(KeyboardInterrupt):
        search(options, Runs([0.5, KeyboardInterrupt]))
    assert len(read_table(tmp_path)) == 1
    # The double makes it anew.
    (tmp_path / "batch8_lr0.0001_epochs2.5_seed0").rename(tmp_path / "moved")
    runs = Runs([0.25, 0.125, 1.0])
    search(options, runs)
    assert len(runs.options) == 3
    assert read_column(tmp_path, "eval_accuracy") == ["0.5", "0.25", "0.125", "1.0"]


def test_a_finished_search_has_nothing_left_to_do(tmp_path, grid):
    """Whatever is to be predicted; what a kill has left of a model is deleted."""
    search(make_options(tmp_path, grid), Runs([0.5, 0.25, 0.125, 1.0]))
    first_run, *_ = read_column(tmp_path, "run")
    leftover = tmp_path / first_run / "model.ckpt-3.index"
    leftover.write_text("")
    options = make_options(tmp_path, grid, predict_batch_size=16, test_file="t")
    search(options, Runs([]))
    assert not leftover.exists()


def test_a_wider_search_runs_only_what_is_new(tmp_path, grid):
    search(make_options(tmp_path, grid), Runs([0.5, 0.25, 0.125, 1.0]))
    grid.write_text(GRID.replace("[8, 16]", "[8, 16, 4]"))
    new_runs = Runs([0.0, 0.0])
    search(make_options(tmp_path, grid), new_runs)
    assert [options.train_batch_size for options in new_runs.options] == [4, 4]


DIVERGED = Diverged("the loss is nan")


def test_a_run_whose_loss_diverged_is_not_tried_again(tmp_path, grid):
    options = make_options(tmp_path, grid)
    search(options, Runs([DIVERGED, math.nan, -0.25, -0.5]))
    assert read_column(tmp_path, "eval_accuracy") == ["nan", "nan", "-0.25", "-0.5"]
    best_marks = read_column(tmp_path, "best")
    assert best_marks == ["", "", "*", ""], "a negative score is better than none"
    search(options, Runs([]))


def test_a_search_goes_on_after_a_loss_that_diverged(tmp_path, grid):
    folder = tmp_path / "search"
    options = make_options(folder, grid)
    with pytest.raises(KeyboardInterrupt):
        search(options, Runs([DIVERGED, KeyboardInterrupt]))
    (folder / "batch8_lr0.0001_epochs2.5_seed0").rename(tmp_path / "moved")
    search(options, Runs([0.5, 0.25, 0.75]))
    assert read_column(folder, "eval_accuracy") == ["nan", "0.5", "0.25", "0.75"]


def test_a_search_in_which_every_loss_diverges_is_an_error(tmp_path, grid):
    message = "the loss of every run diverged; give lower values of learning_rate"
    with pytest.raises(InputError, match=message):
        search(make_options(tmp_path, grid), Runs([DIVERGED] * 4))


def test_runs_that_have_learnt_nothing_are_marked_and_counted(tmp_path, caplog, grid):
    options = make_options(tmp_path, grid)
    no_gain = Score("eval_accuracy", 0.25, has_learnt=False)
    with pytest.raises(KeyboardInterrupt):
        search(options, Runs([no_gain, 0.5, KeyboardInterrupt]))
    # The double makes it anew.
    (tmp_path / "batch16_lr0.0001_epochs1_seed0").rename(tmp_path / "moved")
    # The mark of the first run is read again.
    search(options, Runs([no_gain, 0.75]))
    assert read_column(tmp_path, "learnt_nothing") == ["yes", "", "yes", ""]
    message = (
        "2 of 4 runs have learnt nothing (batch8_lr0.0001_epochs1_seed0, "
        "batch16_lr0.0001_epochs1_seed0); give --optimizer_type=adamw_bias_correction"
    )
    assert message in caplog.text


def test_runs_that_have_all_learnt_are_not_counted(tmp_path, caplog, grid):
    search(make_options(tmp_path, grid), Runs([1, 2, 3, 4]))
    assert "learnt nothing" not in caplog.text


def test_the_model_of_a_run_is_freed_before_the_next(tmp_path, forget, monkeypatch, grid):
    monkeypatch.setattr(search_module, "forget_models", forget)
    graphs = []
    runs = Runs([1, 2, 3, 4])

    def run(options):
        remaining = [graph() for graph in graphs if graph() is not None]
        assert remaining == []
        function = tf.function(lambda x: gelu(x))
        traced = function.get_concrete_function(tf.TensorSpec([2]))
        graphs.append(weakref.ref(traced.graph))
        return runs(options)

    search(make_options(tmp_path, grid), run)
    assert len(graphs) == 4


def test_resumes_a_search_of_an_earlier_version_with_one_flag_for_all_columns(tmp_path, grid):
    flags = {
        "options_class": ClassificationOptions,
        "task_name": "text",
        "text_a_column": "text",
        # The value of a run whose model is resolved.
        "has_header": True,
        "label_column": "kind",
    }
    options = make_options(tmp_path, grid, **flags)
    search(options, Runs([1, 2, 3, 4]))
    path = tmp_path / FLAGS_FILE
    recorded = json.loads(path.read_text())
    new_names = (
        "text_a_column",
        "text_b_column",
        "label_column",
        "has_header",
        "label_separator",
    )
    for name in new_names:
        del recorded[name]
    recorded["columns"] = "text_a=text,label=kind"
    path.write_text(json.dumps(recorded))
    search(options, Runs([]))
    recorded = json.loads(path.read_text())
    assert recorded["text_a_column"] == "text"


def test_resumes_a_search_that_lacks_a_new_flag(tmp_path, grid):
    """An earlier version has recorded no weight_decay_rate; the run has its default."""
    search(make_options(tmp_path, grid), Runs([1, 2, 3, 4]))
    path = tmp_path / FLAGS_FILE
    recorded = json.loads(path.read_text())
    del recorded["weight_decay_rate"]
    path.write_text(json.dumps(recorded))
    search(make_options(tmp_path, grid), Runs([]))
    path.write_text(json.dumps(recorded))
    with pytest.raises(InputError, match=r"--weight_decay_rate was 0\.01"):
        search(make_options(tmp_path, grid, weight_decay_rate=0.5), Runs([]))


def test_a_search_without_training_is_an_error(tmp_path, grid):
    options = make_options(tmp_path, grid, do_train=False)
    with pytest.raises(InputError, match="give --do_train"):
        search(options, Runs([]))


def test_a_batch_that_replicas_cannot_share_is_an_error(tmp_path, grid):
    folder = tmp_path / "out"
    message = "--train_batch_size=8 cannot be shared evenly by 3 replicas"
    with pytest.raises(InputError, match=message):
        search(make_options(folder, grid), Runs([]), num_replicas=3)
    assert not folder.exists()


def test_a_folder_of_a_search_with_other_flags_is_an_error(tmp_path, grid):
    search(make_options(tmp_path, grid), Runs([1, 2, 3, 4]))
    options = make_options(tmp_path, grid, max_seq_length=32)
    with pytest.raises(InputError, match="--max_seq_length was 128"):
        search(options, Runs([]))


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
        pytest.param("seeds = [1, 2]", "seeds: give one number", id="two-seeds"),
        pytest.param("seeds = 2\nrestarts = 2", "another name of restarts", id="both-names"),
        pytest.param("seed = 2", "no such field: seed; did you mean seeds?", id="one-seed"),
        pytest.param("learning_rates = [1e-4]", "did you mean learning_rate", id="a-misspelling"),
        pytest.param("dropout = 1", "it is one of learning_rate, train_batch_size", id="no-field"),
        pytest.param("learning_rate = [", "is not TOML", id="broken"),
    ],
)
def test_a_file_that_cannot_be_searched_is_named(tmp_path, grid, text, sentence):
    grid.write_text(text)
    folder = tmp_path / "out"
    with pytest.raises(InputError) as error:
        search(make_options(folder, grid), Runs([]))
    message = str(error.value)
    assert message.startswith(f"{grid}: ")
    assert sentence in message
    assert not folder.exists()


def test_a_missing_file_is_named(tmp_path):
    options = make_options(tmp_path / "out", tmp_path / "absent.toml")
    with pytest.raises(InputError, match=r"absent\.toml: no such file"):
        search(options, Runs([]))
