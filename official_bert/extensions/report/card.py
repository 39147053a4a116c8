"""The model card: README.md in the folder of a model, with the YAML head that the Hub reads.

The part between two comments is written anew by each report, and so are the fields of the head
that a run knows. What a person writes elsewhere stays.
"""

from __future__ import annotations

import json
import os
import re

from absl import logging

from official_bert.extensions.report.run_sections import format_metric, select_summary
from official_bert.io import files, reading, writing
from official_bert.options.fields import format_value
from official_bert.training.run_record import RunRecord, is_number

FILE = "README.md"
_BEGIN = "<!-- official-bert report: what follows is written anew by each report -->"
_END = "<!-- official-bert report: end -->"
_HEAD = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^(?=[A-Za-z_])", re.MULTILINE)
_HUB_FOLDER = re.compile(r"models--([\w.-]+?)--([\w.-]+)").search
_PIPELINES = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "squad": "question-answering",
    "choice": "multiple-choice",
    "embedding": "sentence-similarity",
    "pretraining": "fill-mask",
}
_WORDS = """
# {title}

- **License:** <!-- fill in, such as apache-2.0; those of the base model and of the data count -->
- **Contact:** <!-- fill in -->

## Intended use and limits

<!-- fill in: for which texts the model is made, and for which it is not -->

"""


def write(run: RunRecord, report: str) -> None:
    """Writes README.md into the folder of a run, and keeps what a person has written there.

    A README.md without the comments of a report stays as it is.

    Args:
        run: the run.
        report: the file of the report, which the card links.

    Raises:
        InputError: the file cannot be written.
    """
    path = os.path.join(run.folder, FILE)
    link = os.path.relpath(report, run.folder)
    facts = f"{_BEGIN}\n{_describe(run, link)}\n{_END}\n"
    if not files.exists(path):
        title = f"{run.title}: {run.name}"
        text = _WORDS.format(title=_clean(title)) + facts
        fields = {}
    else:
        old_text = "\n".join(reading.read_lines(path)) + "\n"
        before, begin, rest = old_text.partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if not begin or not end:
            logging.info("%s stays as it is: no report has written it", path)
            return
        head = _HEAD.match(before)
        fields = _split_fields(head[1]) if head else {}
        body = before[head.end() :] if head else before
        text = body + facts + after.removeprefix("\n")
    fields = _make_fields(run) | fields | {"model-index": _make_index(run)}
    head = "".join(fields.values())
    with writing.replacing(path) as file:
        file.write(f"---\n{head}---\n{text}")
    logging.info("Wrote %s", path)


def _split_fields(head: str) -> dict[str, str]:
    """Returns the lines of each field of a YAML head."""
    parts = [part for part in _FIELD.split(head) if part]
    return {part.partition(":")[0]: part for part in parts}


def _make_fields(run: RunRecord) -> dict[str, str]:
    """Returns the fields of a new head, each as its lines; JSON strings are YAML, too."""
    tags = [
        "bert",
        "tensorflow",
        "keras",
        run.family,
        run.title,
    ]
    lines = "".join(f"- {json.dumps(tag, ensure_ascii=False)}\n" for tag in filter(None, tags))
    fields = {"library_name": "library_name: keras\n", "tags": f"tags:\n{lines}"}
    if pipeline := _PIPELINES.get(run.family):
        fields["pipeline_tag"] = f"pipeline_tag: {pipeline}\n"
    # The cache of the Hub has a folder models--ORGANISATION--NAME for each model.
    if hub_model := _HUB_FOLDER(run.base_model or ""):
        fields["base_model"] = f"base_model: {'/'.join(hub_model.groups())}\n"
    language = re.fullmatch("XNLI-([a-z]{2})", str(run.flags.get("task_name")))
    if language:
        fields["language"] = f"language: {language[1]}\n"
    return fields


def _make_index(run: RunRecord) -> str:
    """Returns the metrics in the form of the Hub's model-index."""
    metrics = [
        {
            "type": name.removeprefix("eval_"),
            "name": name,
            "value": value,
        }
        for results in list(run.results.values())[:1]
        for name, value in select_summary(results, run.labels).items()
        if is_number(value)
    ]
    result = {
        "task": {
            "type": _PIPELINES.get(run.family, "other"),
            "name": run.title,
        },
        "dataset": {"type": run.title, "name": run.title},
        "metrics": metrics,
    }
    index = [{"name": run.name, "results": [result] if metrics else []}]
    return f"model-index: {json.dumps(index, ensure_ascii=False)}\n"


def _describe(run: RunRecord, link: str) -> str:
    """Returns the part of the card that a run knows, as Markdown."""
    start = _code(run.base_model) if run.base_model else "random weights"
    devices = ", ".join(map(str, run.start.get("devices") or ()))
    rows = [(f"`--{name}`", _code(value)) for name, value in run.changed_flags.items()]
    headline = "not evaluated"
    if run.headline is not None:
        headline = f"{run.main_metric}: {format_metric(run.main_metric, run.headline)}"
    lines = [
        f"**{_clean(headline)}**",
        "",
        f"The [report]({link.replace(' ', '%20')}) has curves, tables and mistakes.",
        "",
        "## Training",
        "",
        f"- Command: `official-bert {run.script}`",
        f"- {'Started' if run.start.get('num_updates') else 'Evaluated'} from: {start}",
        *(f"- Data: `--{name}` {_code(value)}" for name, value in run.data.items()),
        f"- Seed: {run.start.get('seed')}",
        f"- Devices: {devices}; replicas: {run.start.get('num_replicas')}",
        f"- Last run: {run.start.get('started')}",
        "",
        "## Flags that differ from their defaults",
        "",
        writing.markdown_table(("flag", "value"), rows),
        "",
    ]
    for name, results in run.results.items():
        metrics = [(_clean(metric), f"{value:g}") for metric, value in results.items()]
        table = writing.markdown_table(("metric", "value"), metrics)
        lines += [
            f"## Results: {name}",
            "",
            table,
            "",
        ]
    versions = run.start.get("versions")
    if isinstance(versions, dict):
        table = writing.markdown_table(("package", "version"), versions.items())
        lines += [
            "## Versions",
            "",
            table,
        ]
    return "\n".join(lines)


def _code(value: object) -> str:
    """Returns a value as code in a table: no bar, quote or line break that would end the cell."""
    text = format_value(value).replace("|", " ").replace("`", " ")
    return f"`{' '.join(text.split())}`"


def _clean(text: str) -> str:
    """Returns a text that Markdown shows as it is."""
    return re.sub(
        r"([\\`*_\[\]<>#|])",
        r"\\\1",
        " ".join(text.split()),
    )
