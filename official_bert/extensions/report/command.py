"""The command report: reads folders of runs, writes a page, and the model card of one run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from official_bert.extensions.report import card
from official_bert.extensions.report.comparison import make_comparison
from official_bert.extensions.report.options import ReportOptions
from official_bert.extensions.report.page import PAGE_FILE
from official_bert.extensions.report.run_sections import make_run_page
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.training import run_log
from official_bert.training.run_record import RunRecord


def run(options: ReportOptions) -> None:
    """Writes a report.

    Args:
        options: the flags.

    Raises:
        InputError: a folder has no record of a run, or the page cannot be written.
    """
    if not options.folders:
        raise InputError(
            "no folder is given; write official-bert report FOLDER, the --output_dir of a training "
            "script"
        )
    folders = [run_folder for folder in options.folders for run_folder in list_runs(folder)]
    folders = list(dict.fromkeys(folders))
    path = options.output_file
    if path is None:
        path = os.path.join(folders[0], PAGE_FILE) if len(folders) == 1 else PAGE_FILE
    write_report(folders, path, options.model_card)


def write_report(folders: Sequence[str], path: str, has_card: bool) -> None:
    """Writes the page about runs.

    Args:
        folders: the folders of the runs.
        path: the file of the page.
        has_card: whether one run also gets a model card.

    Raises:
        InputError: a folder has no record of a run, or a file cannot be written.
    """
    runs = [RunRecord.read(folder) for folder in folders]
    if len(runs) > 1:
        make_comparison(runs).write(path)
        return
    make_run_page(runs[0]).write(path)
    if has_card:
        card.write(runs[0], path)


def list_runs(folder: str) -> list[str]:
    """Returns a folder or, if it is that of a search, the folders of its runs.

    Args:
        folder: the folder.
    """
    if files.exists(os.path.join(folder, run_log.FILE)):
        return [folder]
    nested = files.matching(f"*/{run_log.FILE}", folder) if files.is_folder(folder) else []
    return sorted(os.path.dirname(path) for path in nested) or [folder]
