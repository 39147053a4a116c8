"""Writes model_card.md: what a model was trained on, with which flags, how good it is, and room for the user's words.

A later run rewrites only the part between two comments.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from absl import logging

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from official_bert.options.fields import without_flag
from official_bert.training import run_log

FILE = "model_card.md"
BEGIN = "<!-- begin of the generated part: the next training or evaluation in this folder rewrites it -->"
END = "<!-- end of the generated part -->"

_PAGE = """\
# {title}

- **License:** <!-- fill in, such as apache-2.0; the licences of the base checkpoint and of the data count, too -->
- **Contact:** <!-- fill in -->

## Intended use and limits

<!-- fill in: for which texts and questions the model is made, and for which not -->

{generated}
"""
_KEYS = {"script", "flags", "seed", "devices", "num_replicas", "num_updates", "started", "versions"}
_DATA_FLAGS = ("data_dir", "train_file", "dev_file", "test_file", "predict_file", "input_file", "eval_input_file")


def write_model_card(output_dir: str, task: str, options):
    """Writes the model card of a folder, or rewrites its generated part; a warning says why it cannot.

    `options` is the dataclass of the script's flags, which knows their defaults.
    """
    path = os.path.join(output_dir, FILE)
    try:
        generated = "\n".join((BEGIN, "", *_generated(output_dir, task, options), END))
        page = _PAGE.format(title=f"BERT for {task}", generated=generated)
        if files.exists(path):
            with files.open_file(path) as file:
                before = file.read()
            start, end = before.find(BEGIN), before.find(END)
            if not 0 <= start < end:
                logging.warning("%s: is left as it is, since its two comments are gone", path)
                return
            page = before[:start] + generated + before[end + len(END) :]
        with writing.replacing(path) as file:
            file.write(page)
    except (InputError, OSError, ValueError) as error:
        logging.warning("%s: cannot be written (%s)", path, error)
        return
    logging.info("Wrote %s", path)


def _generated(output_dir: str, task: str, options) -> Iterator[str]:
    records = [record for record in run_log.read(output_dir, run_log.START) if record.keys() >= _KEYS]
    if not records:
        raise InputError(f"{os.path.join(output_dir, run_log.FILE)}: has no record of a run")
    trainings = [record for record in records if record["flags"].get("do_train") and record["num_updates"] != 0]
    record = (trainings or records)[-1]
    flags = record["flags"]
    yield from ("## Training", "")
    yield f"- Task: {task} (`{record['script']}.py`)"
    if trainings:
        yield f"- Started from: {_started_from(trainings[0])}"
    else:
        yield f"- Not trained in this folder: evaluated from {_started_from(record)}"
    for name in _DATA_FLAGS:
        if flags.get(name):
            yield f"- Data: `--{name}` {_code(flags[name])}"
    if weights := flags.get("class_weights"):
        pairs = zip(ModelFolder(output_dir).labels() or (), weights, strict=False)
        yield f"- Class weights: {', '.join(f'{_code(label)} {_code(weight)}' for label, weight in pairs)}"
    yield f"- Seed: {record['seed']}"
    count = record["num_replicas"]
    yield f"- Devices: {', '.join(record['devices'])}, {count} replica{'' if count == 1 else 's'}"
    yield f"- Last run: {record['started']}"
    yield from ("", "## Flags that differ from their defaults", "")
    defaults = {field.name: without_flag(field) for field in dataclasses.fields(options)}
    changed = {name: value for name, value in flags.items() if value != defaults.get(name, value)}
    yield writing.markdown_table(("flag", "value"), ((f"`--{name}`", _code(value)) for name, value in changed.items()))
    yield ""
    for results in files.matching("eval_results*.txt", output_dir):
        lines = [line.split(" = ") for line in reading.read_lines(results)]
        yield from (f"## Results: {os.path.basename(results)}", "")
        yield from (writing.markdown_table(("metric", "value"), (line for line in lines if len(line) == 2)), "")
    yield from ("## Versions", "", writing.markdown_table(("package", "version"), record["versions"].items()), "")


def _started_from(record: Mapping) -> str:
    checkpoint = record["flags"].get("init_checkpoint")
    return _code(checkpoint) if checkpoint else "random weights"


def _code(value) -> str:
    """Returns a flag's value for a table: lists with commas, no bar or line break that would end the cell."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"`{' '.join(text.replace('|', ' ').replace('`', ' ').split())}`"
