"""Exports checkpoints for servers: the runner of export_saved_model.py.

In: a checkpoint with its configuration, vocabulary and labels. Out: the next version in export_dir.
"""

from official_bert.options.serving import ExportOptions
from official_bert.serving import model
from official_bert.serving.export import export_model
from official_bert.training.distribution import log_devices


def run(options: ExportOptions):
    """Exports a checkpoint."""
    log_devices()
    built = model.build(options, options.dtype)
    export_model(built.options, built.options.task_name, built.task, built.model, built.config)
