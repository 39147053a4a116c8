"""A table or a figure of the paper, from its declaration to the table: the runner of run_experiment.py.

In: the name of an experiment, a scale, a folder of data. Out, in output_dir/SCALE: NAME.jsonl with a line for each
finished cell, NAME.md with the table, NAME.png with its picture, and a folder for each run in `steps`.
"""

from __future__ import annotations

import os
import shlex
import sys

from absl import logging

from official_bert.config import BertConfig
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked
from official_bert.jobs.experiments import results, scripts
from official_bert.jobs.experiments.definitions import Task, names_of, read_catalogue, read_experiment
from official_bert.jobs.experiments.execution import execute, pending_steps, sentence_of
from official_bert.jobs.experiments.picture import draw
from official_bert.jobs.experiments.plan import BASE, PAPER_SIZES, Plan, Settings, config_of, make_plan
from official_bert.jobs.experiments.steps import Given, Layout, config_text
from official_bert.jobs.experiments.table import markdown
from official_bert.model_dir import ModelFolder
from official_bert.options.running import ExperimentOptions

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_STEPS = "steps"


def run(options: ExperimentOptions):
    """Runs an experiment, or prints what it would run or cost, or only reports what is there.

    The script ends with status 1 if a step fails, or if the results of one lack the metric of their column.

    Raises:
        InputError: a name, a flag, a field of a declaration, a folder of data or a model cannot be used.
    """
    folder = options.experiments_dir or os.path.join(_ROOT, "experiments")
    if not files.is_folder(folder):
        raise InputError(
            f"{folder}: no such folder; run the script of a checkout, which has the declarations, or give "
            "--experiments_dir"
        )
    if not files.exists(os.path.join(_ROOT, "run_pretraining.py")):
        raise InputError(f"{_ROOT}: has no scripts to run; run the script of a checkout")
    if not options.name:
        raise InputError(
            f"no experiment: name one before the flags, as in run_experiment.py table5 --scale=tiny; it is one of "
            f"{', '.join(names_of(folder))}, or a .toml file of your own"
        )
    if options.dry_run + options.report + options.estimate > 1:
        raise InputError("--dry_run, --report and --estimate: each does something else; give one of them")
    catalogue = read_catalogue(folder)
    experiment, scale = read_experiment(options.name, catalogue), catalogue.scale(options.scale)
    encoders = scripts.read_encoders(options.encoder or [], BASE)
    scale_dir = os.path.join(options.output_dir, scale.name)
    layout = Layout(os.path.join(scale_dir, _STEPS), options.data_dir, encoders, _ROOT)
    sizes = (
        {name: config_of(size, scale, {}) for name, size in PAPER_SIZES.items()} if options.estimate else {}
    )
    configs = sizes | {name: _config_of_folder(path) for name, path in encoders.items()}

    def is_present(task: Task) -> bool:
        prepared = task.preparation.data if task.preparation else {}
        return all(
            files.exists(layout.path(Given(path))) for path in (*task.data.values(), *prepared.values())
        )

    settings = Settings(
        seeds=options.seeds,
        encoders=configs,
        training_flags=scripts.training_flags(options.training_flags or []),
        is_present=(lambda task: True) if options.estimate else is_present,
    )
    plan = make_plan(experiment, scale, catalogue, settings)
    if options.estimate:
        from official_bert.jobs.experiments import cost  # late: the models' code loads TensorFlow

        print(cost.estimate(plan, options.utilisation))
        return
    for sentence in plan.left_out:
        logging.warning("Left out: %s", sentence)
    if options.report:
        if not any(results.read_result(layout, cell.step) for cell in plan.cells):
            scripts.check_given(plan.steps, layout, encoders)  # by whose contents finished steps are found
        if not _report(scale_dir, plan, layout):
            sys.exit(1)
        return
    steps = plan.steps
    scripts.check_given(steps, layout, encoders)
    if options.dry_run:
        _print_commands(plan, layout)
        return
    with locked(scale_dir):
        failures = execute(steps, layout, options.num_parallel)
        is_complete = _report(scale_dir, plan, layout)
    if failures:
        print(sentence_of(failures), file=sys.stderr)
    if failures or not is_complete:
        sys.exit(1)


def _config_of_folder(folder: str) -> dict:
    """Returns the configuration of a given model.

    Raises:
        InputError: the folder has none, or one that no model can be built from.
    """
    path = ModelFolder(folder).config_file
    if path is None:
        raise InputError(
            f"--encoder={folder}: the folder has no bert_config.json or config.json; give that of a model"
        )
    config = BertConfig.from_json_file(path)
    config.validate(path)
    return config.to_dict()


def _print_commands(plan: Plan, layout: Layout):
    """Prints the commands that are still to run, with all that a shell needs to run them, and their number."""
    pending = pending_steps(plan.steps, layout)
    for step in pending:
        print(f"# {step.kind} {step.label}")
        print(shlex.join(["mkdir", "-p", layout.output(step)]))
        if step.config:
            print(
                f"{shlex.join(['printf', '%s', config_text(step)])} > {shlex.quote(layout.config_file(step))}"
            )
        print(layout.shell_line(step) + "\n")
    print(
        f"# {len(pending)} of {len(plan.steps)} commands are still to run, for {len(plan.cells)} cells of the table"
    )


def _report(scale_dir: str, plan: Plan, layout: Layout) -> bool:
    """Writes the results, the table and the picture; returns whether each finished run has the metric of its column."""
    values, faults = results.values_of(plan, layout)
    for sentence in faults:
        logging.warning("%s", sentence)
    if not values and not faults:
        logging.warning(
            "%s: no run of a cell is finished with the data and models of --data_dir and --encoder, so there is no "
            "table yet",
            scale_dir,
        )
        return True
    path = os.path.join(scale_dir, plan.experiment.name)
    text = markdown(plan, values, results.times_of(plan, layout))
    for suffix, content in (
        (".jsonl", "".join(f"{line}\n" for line in results.lines_of(values, plan, layout))),
        (".md", text),
    ):
        with writing.replacing(path + suffix) as file:
            file.write(content)
        logging.info("Wrote %s", path + suffix)
    try:
        draw(f"{path}.png", plan, values)
        logging.info("Wrote %s.png", path)
    except InputError as error:
        logging.warning("No picture: %s", error)
    print(text)
    return not faults
