"""The command run_experiment: a table or a figure of the paper, from its declaration to the table.

Input: the name of an experiment, a scale, a folder of data. Output, in output_dir/SCALE: NAME.jsonl
with a line for each finished cell and step, NAME.md with the table, and a folder for each run in
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
    Experiment,
    find_scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.execution import (
    check_data,
    execute,
    list_pending,
    read_result,
)
from official_bert.extensions.experiments.options import COMMANDS, TABLE, ExperimentOptions
from official_bert.extensions.experiments.plan import Plan, make_plan
from official_bert.extensions.experiments.planner import RESERVED_FLAGS, is_numbered
from official_bert.extensions.experiments.steps import Layout
from official_bert.extensions.experiments.table import (
    collect_values,
    format_json_lines,
    format_page,
)
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked
from official_bert.model_dir import ModelFolder

_TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")


def run(options: ExperimentOptions) -> None:
    """Run an experiment, or print the commands to run, or report only the finished ones.

    The process ends with status 1 if a step fails, or if a result lacks the metric of its column.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a declaration, a flag, a model or the data of the experiment is wrong.
    """
    catalogue = read_catalogue(_TABLES)
    encoders = read_encoders(options.model or [])
    experiment = read_experiment(options.name, catalogue)
    scale = find_scale(options.scale, catalogue)
    flags = read_training_flags(options.training_flags)
    _check_encoders(encoders, experiment, options.name)
    plan = make_plan(experiment, scale, catalogue, encoders, options.seeds, flags)
    for sentence in plan.left_out:
        logging.warning("Left out: %s", sentence)
    scale_dir = os.path.join(options.output_dir, scale.name)
    layout = Layout(os.path.join(scale_dir, "steps"), options.data_dir, encoders)
    if options.only != TABLE or not any(read_result(layout, step) for step in plan.steps):
        check_data(plan.steps, layout)  # The identities of steps depend on the data.
    if options.only == COMMANDS:
        _print_commands(plan, layout)
        return
    failures = []
    if options.only != TABLE:
        with locked(scale_dir):
            failures = execute(plan.steps, layout, options.num_parallel)
    is_complete = _report(scale_dir, plan, layout)
    if failures:
        print("\n\n".join(failures), file=sys.stderr)
    if failures or not is_complete:
        sys.exit(1)


def _check_encoders(encoders: Iterable[str], experiment: Experiment, name: str):
    """Rejects models of the user from which no row starts."""
    row_encoders = {row.encoder for row in experiment.rows if row.encoder is not None}
    unused = [
        encoder
        for encoder in sorted(encoders)
        if encoder not in row_encoders
        and not any(is_numbered(encoder, base) for base in row_encoders)
    ]
    if not unused:
        return
    remedy = "leave it out, for it pre-trains all its models"
    if row_encoders:
        remedy = f"name one of {', '.join(sorted(row_encoders))}"
    raise InputError(f"--model: no row of {name} starts from {', '.join(unused)}; {remedy}")


def read_training_flags(words: Iterable[str]) -> dict[str, str]:
    """Return the flags behind `--` by name.

    Args:
        words: the words behind `--`: --name=value, or --name for true.

    Returns:
        The values by the names of the flags.

    Raises:
        InputError: the experiment sets a flag itself.
    """
    flags = {}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if name in RESERVED_FLAGS:
            raise InputError(f"{word}: the experiment sets this flag itself; leave it out")
        flags[name] = value or "true"
    return flags


def read_encoders(words: Iterable[str]) -> dict[str, str]:
    """Return the folders of the user's models by name.

    Args:
        words: the values of --model: name=folder, or a folder alone for `base`.

    Returns:
        The local folders by the names of the models.

    Raises:
        InputError: two models have the same name, or a folder has no valid bert_config.json.
    """
    encoders: dict[str, str] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or os.sep in name:
            name = "base"
            folder = word
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
    """Prints the number of pending commands, and each one with the commands that it needs."""
    pending = list_pending(plan.steps, layout)
    for step in pending:
        print(f"# {step.name}")
        print(shlex.join(["mkdir", "-p", layout.output(step)]))
        if step.config:
            print_config = shlex.join(["printf", "%s", step.config_text])
            config_file = shlex.quote(layout.config_file(step))
            print(f"{print_config} > {config_file}")
        copied_files = layout.copied_files(step)
        if copied_files:
            globs = " ".join(_quote_folder(pattern) for pattern in copied_files)
            print(f"cp {globs} {shlex.quote(layout.output(step))}")
        print(layout.shell_line(step) + "\n")
    print(
        f"# {len(pending)} of {len(plan.steps)} commands are still to run, for {len(plan.cells)} "
        "cells"
    )


def _quote_folder(pattern: str) -> str:
    """Returns a glob for a shell, in which only the file's name is a pattern."""
    folder, name = os.path.split(pattern)
    return f"{shlex.quote(folder)}/{name}"


def _report(scale_dir: str, plan: Plan, layout: Layout) -> bool:
    """Writes the results and the table; returns whether no finished run lacks its metric."""
    results = {step: read_result(layout, step) for step in plan.steps}
    values, faults = collect_values(plan, results, layout)
    for sentence in faults:
        logging.warning("%s", sentence)
    if not values and not faults:
        logging.warning(
            "%s: no run of these data and models is finished; there is no table yet", scale_dir
        )
        return True
    page = format_page(plan, values, results)
    json_lines = format_json_lines(plan, values, results, layout)
    json_text = "".join(f"{line}\n" for line in json_lines)
    for suffix, content in ((".jsonl", json_text), (".md", page)):
        path = os.path.join(scale_dir, plan.experiment.name + suffix)
        with writing.replacing(path) as file:
            file.write(content)
        logging.info("Wrote %s", path)
    print(page)
    return not faults
