#!/usr/bin/env python3
"""Writes a model card: what a folder's model was trained on, with which flags, and how good it is.

In: the --output_dir of a training script. Out: Markdown on standard output, with room for your own
    words.

    python examples/model_card.py model > README.md
"""

import argparse
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator

# Finds official_bert without an installation.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HEAD = """\
# BERT for {task}

- **License:** <!-- fill in, such as apache-2.0; the licences of the base checkpoint and of the data count, too -->
- **Contact:** <!-- fill in -->

## Intended use and limits

<!-- fill in: for which texts and questions the model is made, and for which not -->
"""
DATA_FLAGS = (
    "data_dir",
    "train_file",
    "dev_file",
    "test_file",
    "predict_file",
    "input_file",
    "eval_input_file",
)


def list_parts(folder: pathlib.Path) -> Iterator[str]:
    """Yields the parts of the card of a folder; those of the training are of its last one that
    made updates.
    """
    from official_bert import catalog
    from official_bert.io.errors import InputError
    from official_bert.io.writing import markdown_table
    from official_bert.model_dir import ModelFolder
    from official_bert.options.fields import without_flag
    from official_bert.training import run_log

    records = run_log.read(str(folder), run_log.START)
    if not records:
        raise InputError(
            f"{folder / run_log.FILE}: has no record of a run; name the --output_dir of a training "
            "script"
        )
    trainings = [one for one in records if one["flags"].get("do_train") and one["num_updates"] != 0]
    record = (trainings or records)[-1]
    flags, model_folder = record["flags"], ModelFolder(str(folder))
    yield HEAD.format(
        task=model_folder.task().task_name if model_folder.task_file else record["script"]
    )
    yield f"## Training\n\n- Script: `{record['script']}.py`"
    start = (trainings or records)[0]["flags"].get("init_checkpoint")
    yield (
        f"- {'Started' if trainings else 'Evaluated'} from: "
        f"{code(start) if start else 'random weights'}"
    )
    yield from (f"- Data: `--{name}` {code(flags[name])}" for name in DATA_FLAGS if flags.get(name))
    if flags.get("class_weights"):
        pairs = zip(model_folder.labels() or (), flags["class_weights"], strict=False)
        yield (
            "- Class weights: "
            f"{', '.join(f'{code(label)} {code(weight)}' for label, weight in pairs)}"
        )
    yield (
        f"- Seed: {record['seed']}\n- Devices: {', '.join(record['devices'])}; replicas: "
        f"{record['num_replicas']}"
    )
    yield f"- Last run: {record['started']}\n\n## Flags that differ from their defaults\n"
    fields = dataclasses.fields(catalog.options_class(record["script"]))
    defaults = {field.name: without_flag(field) for field in fields}
    changed = {name: value for name, value in flags.items() if value != defaults.get(name, value)}
    yield markdown_table(
        ("flag", "value"), ((f"`--{name}`", code(value)) for name, value in changed.items())
    )
    for path in sorted(folder.glob("eval_results*.txt")):
        rows = [line.rsplit(" = ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
        yield f"\n## Results: {path.name}\n\n{markdown_table(('metric', 'value'), rows)}"
    yield f"\n## Versions\n\n{markdown_table(('package', 'version'), record['versions'].items())}"


def code(value) -> str:
    """Returns a flag's value for a table: lists with commas, no bar or line break that would end
    the cell.
    """
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"`{' '.join(text.replace('|', ' ').replace('`', ' ').split())}`"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="the --output_dir of a training script")
    folder = parser.parse_args().folder
    from official_bert.cli.flags import quiet_imports

    with quiet_imports():
        from official_bert import InputError
        from official_bert.training import run_log  # noqa: F401 imports TensorFlow
    try:
        print(*list_parts(folder), sep="\n")
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
