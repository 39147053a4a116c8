"""Exports checkpoints for servers: the runner of export_saved_model.py.

In: a checkpoint with its configuration, vocabulary and labels. Out: the next version in export_dir.
"""

from official_bert.checkpoints import load_checkpoint, open_checkpoint
from official_bert.errors import InputError
from official_bert.jobs.labels import read_labels_beside
from official_bert.jobs.model_files import check_config_beside, read_model_files
from official_bert.options.export import ExportOptions
from official_bert.serving.saved_model import export_model
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import validate_case_matches_checkpoint
from official_bert.training.devices import log_devices


def run(options: ExportOptions):
    """Exports a checkpoint.

    Raises:
        InputError: an option or a file cannot be used, or the checkpoint lacks weights of the task.
    """
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = read_model_files(options)
    log_devices()
    task = _make_task(options)
    task = task.for_checkpoint(open_checkpoint(options.init_checkpoint).shapes, tokenizer, config)
    model = task.build_model(config, use_one_hot_embeddings=False)
    report = load_checkpoint(model, options.init_checkpoint)
    report.check_complete(
        task.unused_weights,
        f"which --task_name={options.task_name} needs; give a checkpoint that was trained on the task",
    )
    check_config_beside(report.path, config)
    export_model(options, options.task_name, task, model, config)


def _make_task(options: ExportOptions) -> ServedTask:
    """Makes the task with the labels that the flags give, or with those beside the checkpoint."""
    beside = read_labels_beside(options.init_checkpoint)
    task = registry.make_task(options.task_name, vars(options) | {"checkpoint_labels": beside})
    known = task.labels
    if beside and known is not None and list(map(str, known)) != beside:
        given, remedy = f"--task_name={options.task_name}: its labels", "name the task that it was trained on"
        if options.labels:
            given, remedy = "--labels: they", "leave the flag out"
        labels = ", ".join(map(str, known))
        raise InputError(
            f"{given} are {labels}, but those beside the checkpoint are {', '.join(beside)}; {remedy}"
        )
    return task
