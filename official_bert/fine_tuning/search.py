"""A grid search over batch sizes, learning rates, epochs and seeds (Devlin et al., 2019, A.3).

It writes into output_dir: a folder for each run, search_results.tsv, search_summary.tsv with the
mean and the deviation of runs that differ in the seed only, and search.json, which has the flags
that all runs share.
"""

import csv
import dataclasses
import itertools
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple

from absl import logging

from official_bert.checkpoints.folder import remove_all, run_folders
from official_bert.fine_tuning.finetuner import Score
from official_bert.io import files, reading, writing
from official_bert.io.errors import Diverged, InputError, did_you_mean
from official_bert.io.folder_lock import locked
from official_bert.io.progress import Series
from official_bert.io.reading import check_object
from official_bert.options.fields import POSITIVE, PROCESSES, SIZE, Check, without_flag
from official_bert.options.fine_tuning import GLUE, PAPER, FineTuningOptions
from official_bert.options.former_flags import upgrade_flags
from official_bert.tasks import registry
from official_bert.training.distribution import check_divides
from official_bert.training.memory import forget_models

RESULTS_FILE = "search_results.tsv"
SUMMARY_FILE = "search_summary.tsv"
FLAGS_FILE = "search.json"
# The named searches of Devlin et al. (2019): those of appendix A.3, and of section 4.1 for GLUE.
_GRIDS = {
    PAPER: {
        "learning_rate": [5e-5, 3e-5, 2e-5],
        "train_batch_size": [16, 32],
        "num_train_epochs": [2.0, 3.0, 4.0],
        "restarts": [1],
    },
    GLUE: {
        "learning_rate": [5e-5, 4e-5, 3e-5, 2e-5],
        "train_batch_size": [32],
        "num_train_epochs": [3.0],
        "restarts": [1],
    },
}
_CHECKS: Mapping[str, Check] = {
    "learning_rate": POSITIVE,
    "train_batch_size": SIZE,
    "num_train_epochs": POSITIVE,
    "restarts": PROCESSES,
}
_LARGE_FILES = ("*.tf_record", "*logits.npz")  # Another run can write these files again.
# Flags that may change when a search is continued, because they do not change the scores.
_RUN_FLAGS = (
    "output_dir",
    "do_train",
    "do_eval",
    "do_predict",
    "predict_batch_size",
    "test_file",
)
_BEST_MARK, _LEARNT_NOTHING_MARK = "*", "yes"


@dataclasses.dataclass(frozen=True)
class Trial:
    """The flags in which one run of a search differs from the others."""

    train_batch_size: int
    learning_rate: float
    num_train_epochs: float
    random_seed: int

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        return (
            f"batch{self.train_batch_size}_lr{self.learning_rate:g}_epochs{self.num_train_epochs:g}"
            f"_seed{self.random_seed}"
        )


def list_trials(options: FineTuningOptions) -> list[Trial]:
    """Returns all combinations of the searched flags.

    Runs that differ only in the seed are adjacent.

    Args:
        options: the flags of the search.

    Raises:
        InputError: the file of --search cannot be read, or has other values.
    """
    assert options.search is not None  # this is a search
    grid = read_grid(options.search)
    (restarts,) = grid["restarts"]
    first_seed = options.random_seed or 0
    combinations = itertools.product(
        grid["train_batch_size"],
        grid["learning_rate"],
        grid["num_train_epochs"],
        range(first_seed, first_seed + restarts),
    )
    return [Trial(*values) for values in combinations]


def search(
    options: FineTuningOptions,
    run: Callable[[FineTuningOptions], Score | None],
    num_replicas: int = 1,
) -> None:
    """Runs every trial that search_results.tsv lacks. With --do_predict, the best one predicts.

    Only the best finished run keeps its checkpoints; the others keep their results. A run whose
    loss diverges scores nan, and the search continues.

    Args:
        options: the flags of the search.
        run: fine-tunes with the flags of a trial and returns its score.
        num_replicas: the number of replicas that share a batch.

    Raises:
        InputError: a trial cannot run, or the folder has a search with other flags.
    """
    if not options.do_train:
        raise InputError("--search: needs training; give --do_train")
    trials = list_trials(options)
    for trial in trials:  # all of them before the first run, which may take hours
        check_divides(
            trial.train_batch_size, num_replicas, "train_batch_size", options.num_accumulation_steps
        )
    with locked(options.output_dir):
        _run_trials(options, run, trials)


def _run_trials(
    options: FineTuningOptions,
    run: Callable[[FineTuningOptions], Score | None],
    trials: list[Trial],
):
    scoring = {"do_predict": True}
    if options.has_dev_set:
        scoring = {"do_eval": True, "do_predict": False}
    _check_same_flags(options)
    scores = read_results(options.output_dir)
    _drop_large_files(options, scores)  # those of a killed process
    runs = Series("run", len(trials))
    for number, trial in enumerate(trials, start=1):
        if trial in scores:
            continue
        logging.info("***** Run %d of %d: %s *****", number, len(trials), trial.folder)
        try:
            with runs.job(number):
                score = run(_make_trial_options(options, trial, {"do_train": True, **scoring}))
        except Diverged as error:
            logging.warning("%s: %s", trial.folder, error)
            score = Score("", math.nan)
        if score is None:
            raise InputError(
                "--search: runs are compared by the dev set, which has no labels; add them"
            )
        scores[trial] = score
        _write_results(options.output_dir, scores)
        _drop_large_files(options, scores)
        forget_models()
    _log_summary(scores)
    for name in (RESULTS_FILE, SUMMARY_FILE):
        logging.info("Wrote %s", os.path.join(options.output_dir, name))
    best = _best(scores)
    if not scores[best].metric:
        raise InputError(
            "--search: the loss of every run diverged; give lower values of learning_rate"
        )
    folder = os.path.join(options.output_dir, best.folder)
    logging.info("The best of %d runs, %s %.4g: %s", len(scores), *scores[best][:2], folder)
    _warn_if_not_learning(options, scores)
    if options.do_predict and options.has_dev_set:
        steps = {"do_train": False, "do_eval": False, "do_predict": True}
        run(_make_trial_options(options, best, steps))


def _warn_if_not_learning(options: FineTuningOptions, scores: Mapping[Trial, Score]):
    """Warns of the runs whose training ended no better than a constant prediction."""
    failed = [trial.folder for trial, score in scores.items() if not score.has_learnt]
    if failed:
        logging.warning(
            "%d of %d runs have learnt nothing (%s); %stry a longer warm-up (--warmup_proportion), "
            "lower values of learning_rate or more restarts",
            len(failed),
            len(scores),
            ", ".join(failed),
            options.bias_remedy,
        )


def _make_trial_options(
    options: FineTuningOptions, trial: Trial, steps: Mapping[str, bool]
) -> FineTuningOptions:
    folder = os.path.join(options.output_dir, trial.folder)
    trial_flags = {"search": None} | dataclasses.asdict(trial)
    return dataclasses.replace(options, output_dir=folder, **trial_flags, **steps)


def read_grid(search: str) -> dict[str, list]:
    """Return the grid of a named search or of a TOML file.

    Args:
        search: the name, or the path of the file. Fields that the file leaves out have the values
            of PAPER.

    Returns:
        The values of each field of a trial by its name.

    Raises:
        InputError: the file has an unknown field or a wrong value.
    """
    if search in _GRIDS:
        return _GRIDS[search]
    grid = dict(_GRIDS[PAPER])
    fields = reading.read_toml(search)
    if "seeds" in fields and "restarts" in fields:
        raise InputError(f"{search}: seeds is another name of restarts; give one of the two")
    for field_name, value in fields.items():
        name = "restarts" if field_name == "seeds" else field_name
        if name not in grid:
            names = [*grid, "seeds"]
            remedy = did_you_mean(name, names) or f"it is one of {', '.join(grid)}"
            raise InputError(f"{search}: no such field: {name}; {remedy}")
        is_valid, sentence = _CHECKS[name]
        values = value if isinstance(value, list) else [value]
        kind = type(grid[name][0])
        if not values or not all(_is_number(each, kind) and is_valid(each) for each in values):
            raise InputError(f"{search}: {field_name}: give a list of numbers; each {sentence}")
        if name == "restarts" and len(values) > 1:
            raise InputError(f"{search}: {field_name}: give one number")
        grid[name] = [kind(each) for each in values]
    return grid


def _is_number(value: object, kind: type) -> bool:
    """Returns whether a value is a number of a type; a whole number is also a float."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole or (kind is float and isinstance(value, float))


def _check_same_flags(options: FineTuningOptions):
    """Checks that the flags that are not searched are those of the earlier runs in the folder."""
    trial_flags = {"search", *(field.name for field in dataclasses.fields(Trial)), *_RUN_FLAGS}
    shared = {
        name: value
        for name, value in dataclasses.asdict(options).items()
        if name not in trial_flags
    }
    path = os.path.join(options.output_dir, FLAGS_FILE)
    if files.exists(path):
        # A file of an earlier version lacks the flags that are new.
        defaults = {field.name: without_flag(field) for field in dataclasses.fields(options)}
        earlier = defaults | upgrade_flags(check_object(reading.read_json(path), path))
        if "task_name" in shared and registry.is_same(
            shared["task_name"], str(earlier.get("task_name"))
        ):
            earlier["task_name"] = shared["task_name"]
        other = [
            f"--{name} was {earlier.get(name)}"
            for name in shared
            if shared[name] != earlier.get(name)
        ]
        if other:
            raise InputError(
                f"{path}: belongs to a search with other flags ({', '.join(other)}); give another "
                "--output_dir"
            )
    with writing.replacing(path) as file:
        file.write(json.dumps(shared, indent=2) + "\n")


def read_results(output_dir: str) -> dict[Trial, Score]:
    """Returns the scores of the trials that an earlier search in the folder has finished.

    Args:
        output_dir: the folder of the search; without a file of results, there are no scores.

    Raises:
        InputError: a line of the file is no row of a search's results.
    """
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    scores = {}
    metric = None
    for number, line in enumerate(reading.read_lines(path), 1):
        row = line.split("\t")
        try:
            if metric is None:
                metric = row[5]
            else:
                trial = Trial(int(row[1]), float(row[2]), float(row[3]), int(row[4]))
                scores[trial] = Score(metric, float(row[5]), row[7:] != [_LEARNT_NOTHING_MARK])
        except (ValueError, IndexError):
            raise InputError(
                f"{path}: line {number}: is no row of a search's results; remove it, or delete the "
                "file to run every trial again"
            ) from None
    return scores


def _write_results(output_dir: str, scores: Mapping[Trial, Score]):
    best = _best(scores)
    metric = max(score.metric for score in scores.values())  # The metric of a diverged run is "".
    with writing.replacing(os.path.join(output_dir, RESULTS_FILE)) as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        flags = (field.name for field in dataclasses.fields(Trial))
        table.writerow(["run", *flags, metric, "best", "learnt_nothing"])
        for trial, score in scores.items():
            marks = (
                _BEST_MARK if trial == best else "",
                "" if score.has_learnt else _LEARNT_NOTHING_MARK,
            )
            table.writerow([trial.folder, *dataclasses.astuple(trial), score.value, *marks])

    _write_summary(output_dir, metric, scores)


class Combination(NamedTuple):
    """The results of the runs that differ in the seed only.

    Attributes:
        flags: the searched flags of these runs.
        values: the metric of each run whose loss did not diverge.
        num_diverged: the number of the other runs.
    """

    flags: tuple[float, ...]
    values: list[float]
    num_diverged: int

    @property
    def mean(self) -> float:
        """The mean of the values; nan if there is none."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation over the seeds; nan for fewer than two values."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan


def _combinations(scores: Mapping[Trial, Score]) -> list[Combination]:
    values_by_flags: dict[tuple[float, ...], list[float]] = {}
    for trial, score in scores.items():
        flags = dataclasses.astuple(trial)[:-1]
        values_by_flags.setdefault(flags, []).append(score.value)
    combinations = []
    for flags, values in values_by_flags.items():
        finite = [value for value in values if math.isfinite(value)]
        combinations.append(Combination(flags, finite, len(values) - len(finite)))
    return combinations


def _write_summary(output_dir: str, metric: str, scores: Mapping[Trial, Score]):
    """Writes a line for each combination of flags other than the seed."""
    names = [field.name for field in dataclasses.fields(Trial)][:-1]
    with writing.replacing(os.path.join(output_dir, SUMMARY_FILE)) as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow([*names, f"{metric}_mean", f"{metric}_deviation", "n", "diverged"])
        for one in _combinations(scores):
            table.writerow([*one.flags, one.mean, one.deviation, len(one.values), one.num_diverged])


def _log_summary(scores: Mapping[Trial, Score]):
    """Logs the mean and the deviation of combinations with several seeds, the best one first."""
    combinations = _combinations(scores)
    if max(len(one.values) for one in combinations) < 2:
        return
    logging.info("***** Means over the seeds *****")
    for one in sorted(combinations, key=lambda one: one.mean, reverse=True):
        batch_size, learning_rate, num_epochs = one.flags
        logging.info(
            "  batch %d, learning rate %g, %g epochs: %.4g, deviation %.2g, %d runs",
            batch_size,
            learning_rate,
            num_epochs,
            one.mean,
            one.deviation,
            len(one.values),
        )


def _best(scores: Mapping[Trial, Score]) -> Trial:
    """Returns the first of the best trials.

    A score of nan is worse than any number, and a diverged loss is the worst.
    """

    def rank(trial: Trial) -> tuple[bool, float]:
        metric, value, _ = scores[trial]
        return bool(metric), -math.inf if math.isnan(value) else value

    return max(scores, key=rank)


def _drop_large_files(options: FineTuningOptions, scores: Mapping[Trial, Score]):
    """Deletes the checkpoints and other large files of all finished runs but the best."""
    best = _best(scores) if scores else None
    for trial in scores.keys() - {best}:
        folder = os.path.join(options.output_dir, trial.folder)
        for pattern in _LARGE_FILES:
            for path in files.matching(pattern, folder):
                files.remove(path)
        for checkpoint_folder in run_folders(folder):
            remove_all(checkpoint_folder)
