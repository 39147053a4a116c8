"""A table or a figure of the paper, from its declaration to the table: the runner of
official-bert run_experiment.

In: the name of an experiment, a scale, a folder of data. Out, in output_dir/SCALE: NAME.jsonl with
a line for each finished cell and step, NAME.md with the table, and a folder for each run in
`steps`.
"""

import os
import shlex
import sys
from collections.abc import Iterable

from absl import logging

from official_bert import model_hub
from official_bert.config import BertConfig
from official_bert.extensions.experiments.declarations import (
    read_catalogue,
    read_experiment,
    scale_of,
)
from official_bert.extensions.experiments.execution import (
    check_given,
    execute,
    pending_steps,
    read_result,
)
from official_bert.extensions.experiments.options import COMMANDS, TABLE, ExperimentOptions
from official_bert.extensions.experiments.plan import OWN_FLAGS, Plan, make_plan
from official_bert.extensions.experiments.steps import CONFIG, Layout, Place
from official_bert.extensions.experiments.table import lines_of, markdown, values_of
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked
from official_bert.model_dir import ModelFolder

_TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")


def run(options: ExperimentOptions):
    """Runs an experiment, or prints what it would run, or only reports what is there.

    The command ends with status 1 if a step fails, or if the results of one lack the metric of
    their column.
    """
    catalogue, encoders = read_catalogue(_TABLES), read_encoders(options.model or [])
    experiment, scale = read_experiment(options.name, catalogue), scale_of(options.scale, catalogue)
    flags = read_training_flags(options.training_flags)
    if unused := sorted(set(encoders) - {row.encoder for row in experiment.rows}):
        encoder_names = ", ".join(sorted({row.encoder for row in experiment.rows} - {None}))
        remedy = (
            f"name one of {encoder_names}"
            if encoder_names
            else "leave it out, for it pre-trains all its models"
        )
        raise InputError(
            f"--model: no row of {options.name} starts from {', '.join(unused)}; {remedy}"
        )
    plan = make_plan(experiment, scale, catalogue, encoders, options.seeds, flags)
    for sentence in plan.left_out:
        logging.warning("Left out: %s", sentence)
    scale_dir = os.path.join(options.output_dir, scale.name)
    layout = Layout(os.path.join(scale_dir, "steps"), options.data_dir, encoders)
    if options.only != TABLE or not any(read_result(layout, step) for step in plan.steps):
        check_given(plan.steps, layout)  # by whose contents finished steps are found
    if options.only == COMMANDS:
        _print_commands(plan, layout)
        return
    failures = []
    if options.only != TABLE:
        with locked(scale_dir):
            failures = execute(plan.steps, layout)
    is_complete = _report(scale_dir, plan, layout)
    if failures:
        print("\n\n".join(failures), file=sys.stderr)
    if failures or not is_complete:
        sys.exit(1)


def read_training_flags(words: Iterable[str]) -> dict[str, str]:
    """Reads the flags behind --: name=value, or a name alone for true."""
    flags = {}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if name in OWN_FLAGS:
            raise InputError(f"{word}: the experiment sets this flag itself; leave it out")
        flags[name] = value or "true"
    return flags


def read_encoders(words: Iterable[str]) -> dict[str, str]:
    """Reads --model: name=folder, or a folder alone for `base`."""
    encoders: dict[str, str] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        name, folder = (name, folder) if equals and os.sep not in name else ("base", word)
        if name in encoders:
            raise InputError(
                f"--model={word}: names {name} twice; give each model a name of its own"
            )
        folder = model_hub.local_path(folder)
        path = ModelFolder(folder).config_file if files.is_folder(folder) else None
        if path is None:
            raise InputError(
                f"--model={word}: is no folder of a model, with a bert_config.json; check the path"
            )
        BertConfig.from_json_file(path).validate(path)
        encoders[name] = folder
    return encoders


def _print_commands(plan: Plan, layout: Layout):
    """Prints the commands that are still to run, with all that a shell needs to run them, and
    their number.
    """
    pending = pending_steps(plan.steps, layout)
    for step in pending:
        print(f"# {step.name}")
        print(shlex.join(["mkdir", "-p", layout.output(step)]))
        if step.config:
            text = shlex.join(["printf", "%s", step.config_text])
            print(f"{text} > {shlex.quote(layout.path(Place(CONFIG), step))}")
        print(layout.shell_line(step) + "\n")
    print(
        f"# {len(pending)} of {len(plan.steps)} commands are still to run, for {len(plan.cells)} "
        "cells"
    )


def _report(scale_dir: str, plan: Plan, layout: Layout) -> bool:
    """Writes the results and the table; returns whether each finished run has the metric of its
    column.
    """
    results = {step: read_result(layout, step) for step in plan.steps}
    values, faults = values_of(plan, results, layout)
    for sentence in faults:
        logging.warning("%s", sentence)
    if not values and not faults:
        logging.warning(
            "%s: no run of these data and models is finished; there is no table yet", scale_dir
        )
        return True
    text = markdown(plan, values, results)
    lines = "".join(f"{line}\n" for line in lines_of(plan, values, results, layout))
    for suffix, content in ((".jsonl", lines), (".md", text)):
        path = os.path.join(scale_dir, plan.experiment.name + suffix)
        with writing.replacing(path) as file:
            file.write(content)
        logging.info("Wrote %s", path)
    print(text)
    return not faults
