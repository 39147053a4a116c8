"""The sections of a page about one run, each a function of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.extensions.report import label_tables, marked_texts
from official_bert.extensions.report.charts import (
    Chart,
    Mark,
    Series,
    draw_bars,
    draw_curves,
    draw_dots,
)
from official_bert.extensions.report.drawing import Picture, shorten
from official_bert.extensions.report.page import Page, Section, make_tiles
from official_bert.io.markup import Cell, element, make_table
from official_bert.io.progress import clock_time
from official_bert.options.fields import format_value
from official_bert.options.fine_tuning import MULTI, SCORE
from official_bert.training.run_log import (
    COMPILE_SECS,
    EVALUATION_SECS,
    READ_SECS,
    SAVE_SECS,
    UPDATE_SECS,
)
from official_bert.training.run_record import TRAINING_SET, Line, RunRecord, is_number

_SHARES = ("accuracy", "f1", "precision", "recall", "exact", "matthews", "coverage", "ece")
_MAX_SHOWN_METRICS = 12
_SMOOTHED_POINTS = 40  # a curve of more points also has a smooth one
_RECORDED_FAMILIES = ("classification", "choice", "tagging", "embedding")
_EVALUATE = (
    "For tables of the predictions, repeat the command with --do_eval=true and --do_train=false, "
    "then this report."
)
# The parts of the time of a training: field of its summary -> what it is.
_PARTS = {
    COMPILE_SECS: "the first call, which compiles",
    UPDATE_SECS: "the updates",
    SAVE_SECS: "waiting for checkpoints",
    EVALUATION_SECS: "evaluations",
}
# The curves of a training: field of the progress lines -> the name of the axis.
_TRAINING_CURVES = {
    "loss": "training loss",
    "learning_rate": "learning rate",
    "masked_lm_loss": "masked LM loss",
    "masked_lm_accuracy": "masked LM accuracy",
    "next_sentence_loss": "next sentence loss",
    "next_sentence_accuracy": "next sentence accuracy",
    "gradient_norm": "gradient norm",
}


def make_run_page(run: RunRecord) -> Page:
    """Returns the page about a run.

    Args:
        run: the run.
    """
    sections = [_make_summary(run)]
    for part in (_make_curves(run), _make_progress(run), _make_results(run)):
        if part:
            sections.append(part)
    for set_name in run.results:
        sections += _list_set_sections(run, set_name)
    for part in (_make_lengths(run), _make_times(run)):
        if part:
            sections.append(part)
    sections += [_make_settings(run), _make_reproduction(run)]
    subtitle = f"{run.script} in {run.folder}, {run.start.get('started', '')}"
    return Page(
        f"{run.title}: {run.name}",
        subtitle,
        sections,
    )


def format_metric(name: str, value: float) -> str:
    """Returns a metric for a reader: shares in percent.

    Args:
        name: its name.
        value: its value.
    """
    is_share = any(word in name for word in _SHARES) and 0 <= value <= 1
    return f"{value:.1%}" if is_share else f"{value:.4g}"


def describe_state(run: RunRecord) -> str:
    """Returns how far the training of a run has come, in a sentence; "" if it has finished.

    Args:
        run: the run.
    """
    if not run.start.get("num_updates"):
        return ""
    end = run.end
    if end is None:
        step = run.train_lines[-1]["step"] if run.train_lines else 0
        return (
            f"The training has not ended: it is running, or was killed after step {step}. The same "
            "command continues it."
        )
    ended = str(end.get("ended", ""))
    return "" if ended == "finished" else f"The training ended early: {ended}."


def _make_summary(run: RunRecord) -> Section:
    values = []
    if run.headline is not None:
        values.append((run.main_metric, format_metric(run.main_metric, run.headline)))
    for line in list(run.sets.values())[:1]:
        values.append(("evaluated examples", f"{line.get('examples', 0):,}"))
    if TRAINING_SET in run.start:
        values.append(("training examples", f"{run.start[TRAINING_SET].get('examples', 0):,}"))
    if run.labels:
        values.append(("labels", str(len(run.labels))))
    step = run.end.get("last_step") if run.end else None
    if step is not None:
        values.append(("updates", f"{step:,}"))
    if run.end and is_number(run.end.get("total_wall_secs")):
        values.append(("hours:min:s of training", clock_time(run.end["total_wall_secs"])))
    start = run.base_model
    parts: list = [make_tiles(values)]
    origin = f"started from {start}" if start else "started from random weights"
    devices = ", ".join(map(str, run.start.get("devices") or ()))
    parts.append(
        f"A model of {run.script} for the task {run.title}, {origin}. Seed "
        f"{run.start.get('seed')}, on {devices or 'unknown devices'}."
    )
    if state := describe_state(run):
        parts.append(
            element(
                "p",
                state,
                class_="warning",
            )
        )
    if not run.results:
        parts.append(
            f"Nothing was evaluated at the end. {_EVALUATE}"
            if run.family in _RECORDED_FAMILIES
            else "Nothing was evaluated at the end."
        )
    return Section("Summary", parts)


def _make_curves(run: RunRecord) -> Section | None:
    pictures = []
    for field, label in _TRAINING_CURVES.items():
        lines = [line for line in run.train_lines if is_number(line.get(field))]
        if len(lines) < 2:
            continue
        steps = [line["step"] for line in lines]
        values = [line[field] for line in lines]
        curves = [Series("", steps, values)]
        if len(lines) > _SMOOTHED_POINTS and field != "learning_rate":
            curves = [
                Series("each progress line", steps, values, is_faint=True),
                Series("smoothed", steps, smooth(values)),
            ]
        chart = Chart(
            f"training_{field}",
            f"{label} by step",
            "step",
            label,
        )
        pictures.append(draw_curves(chart, curves))
    return Section("Training", list(pictures)) if pictures else None


def smooth(values: Sequence[float]) -> list[float]:
    """Returns the running mean of a twentieth of the values.

    Args:
        values: the values.
    """
    width = max(1, len(values) // 20)
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return ((sums[ends] - sums[starts]) / (ends - starts)).tolist()


def _make_progress(run: RunRecord) -> Section | None:
    """Returns the section of the evaluations during training."""
    best = run.best_evaluation
    if best is None:
        return None
    metric = run.main_metric
    value = format_metric(metric, best[metric])
    pictures: list = [
        f"The best checkpoint is that of step {best['step']:,}, with {metric} {value}."
    ]
    marks = {
        metric: [
            Mark(
                best["step"],
                best[metric],
                f"best: {value} at step {best['step']:,}",
            )
        ]
    }
    for field in dict.fromkeys((metric, "eval_loss")):
        lines = [line for line in run.evaluations if is_number(line.get(field))]
        if lines:
            steps = [line["step"] for line in lines]
            values = [line[field] for line in lines]
            chart = Chart(
                f"evaluation_{field}",
                f"{field} by step",
                "step",
                field,
            )
            pictures.append(
                draw_curves(
                    chart,
                    [
                        Series(
                            "",
                            steps,
                            values,
                        )
                    ],
                    marks.get(field, ()),
                )
            )
    return Section("Evaluations during training", pictures)


def _make_results(run: RunRecord) -> Section | None:
    if not run.results:
        return None
    parts: list = []
    for set_name, metrics in run.results.items():
        shown = select_summary(metrics, run.labels)
        main = [name for name in (run.main_metric,) if name in shown]
        names = [*main, *(name for name in shown if name not in main)]
        rows = [(name, _metric_cell(name, shown[name])) for name in names]
        parts += [f"{set_name}:", make_table(("metric", "value"), rows)]
    return Section("Results", parts)


def select_summary(metrics: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
    """Returns the metrics without those of single labels.

    Args:
        metrics: the metrics by name.
        labels: the labels of the model.
    """
    label_metrics = {
        f"eval_{score}_{label}" for label in labels for score in ("precision", "recall", "f1")
    }
    return {name: value for name, value in metrics.items() if name not in label_metrics}


def _metric_cell(name: str, value: float) -> Cell:
    return Cell(format_metric(name, value), value)


def _list_set_sections(run: RunRecord, set_name: str) -> list[Section]:
    """Returns the sections of an evaluated set, by the fields of its predictions."""
    if run.family == "squad":
        return marked_texts.list_answer_sections(run)
    records = run.predictions(set_name)
    if not records and run.family in _RECORDED_FAMILIES:
        return [Section("Predictions", [f"No predictions for {set_name} are there. {_EVALUATE}"])]
    if not records:
        return []
    sections = _choose_sections(
        run,
        set_name,
        records,
    )
    if len(run.results) > 1:
        sections = [one._replace(title=f"{one.title} ({set_name})") for one in sections]
    return sections


def _choose_sections(run: RunRecord, set_name: str, records: list[dict[str, Any]]) -> list[Section]:
    settings: Mapping[str, Any] = run.task.settings if run.task else {}
    label_type = run.flags.get("label_type")
    first = records[0]
    try:
        if "words" in first:
            return marked_texts.list_entity_sections(set_name, records)
        if "x" in first:
            return [_make_map(set_name, records)]
        if label_type == SCORE or isinstance(first.get("label"), float):
            return label_tables.list_score_sections(set_name, records)
        if label_type == MULTI or isinstance(first.get("label"), list):
            temperature = settings.get("temperature")
            return label_tables.list_multi_label_sections(
                set_name, records, run.labels, temperature
            )
        return label_tables.list_label_sections(
            set_name,
            records,
            run.labels,
        )
    except (KeyError, TypeError, ValueError):  # a file that another program has changed
        note = "eval_predictions.jsonl has lines of another form; evaluate the model again."
        return [
            Section(
                "Predictions",
                [
                    element(
                        "p",
                        note,
                        class_="warning",
                    )
                ],
            )
        ]


def _make_map(set_name: str, records: Sequence[Line]) -> Section:
    points = np.array([(record["x"], record["y"]) for record in records], float)
    tips = [shorten(str(record.get("text", "")), 120) for record in records]
    groups = [str(record.get("label") or "") for record in records]
    chart = Chart(
        f"map_{set_name}",
        f"Map of the embeddings of {set_name}",
        "first principal component",
        "second principal component",
    )
    note = (
        "Each dot is a text, on the plane on which the embeddings differ most. Texts with similar "
        "embeddings are near each other; near texts may still differ in other directions. Point at "
        "a dot to read its text."
    )
    return Section(
        "Map of the embeddings",
        [
            note,
            draw_dots(
                chart,
                points,
                groups,
                tips,
            ),
        ],
    )


def _make_lengths(run: RunRecord) -> Section | None:
    lines = {"the training set": run.start.get(TRAINING_SET), **run.sets}
    limit = run.flags.get("max_seq_length")
    parts: list = []
    pictures: list[Picture] = []
    for name, line in lines.items():
        if not isinstance(line, Mapping) or not line.get("bars") or not line.get("examples"):
            continue
        num_full = line.get("full_examples", 0)
        sentence = (
            f"{name}: {line['examples']:,} inputs of {line['mean_tokens']:g} tokens in the mean, "
            f"at most {line['most_tokens']}."
        )
        if num_full:
            sentence += (
                f" {num_full:,} ({num_full / line['examples']:.1%}) fill all {limit} tokens of "
                "--max_seq_length, so that their ends are cut, or cut into windows."
            )
        parts.append(sentence)
        width = line["bar_width"]
        edges = [0.5 + width * number for number in range(len(line["bars"]) + 1)]
        slug = "train" if name.startswith("the ") else name
        chart = Chart(
            f"lengths_{slug}",
            f"Lengths of {name}",
            f"tokens ({name})",
            "inputs",
        )
        pictures.append(
            draw_bars(
                chart,
                edges,
                line["bars"],
            )
        )
    return Section("Lengths", [*parts, *pictures]) if pictures else None


def _make_times(run: RunRecord) -> Section | None:
    """Returns the section of the speed, and of the share of the time outside of updates."""
    end = run.end
    if not end or not is_number(end.get("wall_secs")):
        return None
    rows = [
        (name.replace("_", " "), Cell(f"{value:,.1f}", value))
        for name, value in end.items()
        if is_number(value) and ("per_second" in name or "memory" in name)
    ]
    parts: list = []
    part_secs = {name: end[name] for name in _PARTS if is_number(end.get(name))}
    if part_secs:
        cells = []
        for name, secs in sorted(part_secs.items(), key=lambda item: -item[1]):
            share = secs / max(end["wall_secs"], 1e-9)
            cells.append((_PARTS[name], Cell(f"{secs:.1f}", secs), label_tables.percent(share)))
        note = f"The slowest part: {cells[0][0]}."
        if is_number(end.get(READ_SECS)):
            waits = "wait" if end[READ_SECS] > end.get(UPDATE_SECS, 0) else "do not wait"
            note += (
                f" A thread made the batches in {end[READ_SECS]:.1f} s: the updates {waits} for it."
            )
        parts = [note, make_table(("part", "seconds", "share of the training"), cells)]
    if rows:
        parts.append(make_table(("speed", "value"), rows))
    return Section("Speed", parts) if parts else None


def _make_settings(run: RunRecord) -> Section:
    rows = [(f"--{name}", format_value(value)) for name, value in run.changed_flags.items()]
    digests = [
        (name, line["digest"])
        for name, line in (("training set", run.start.get(TRAINING_SET)), *run.sets.items())
        if isinstance(line, Mapping) and line.get("digest")
    ]
    parts: list = [make_table(("flag that differs from its default", "value"), rows)]
    if run.data:
        data = [(f"--{name}", format_value(value)) for name, value in run.data.items()]
        parts += [make_table(("data", "value"), data)]
    records = run.start.get("records")
    if isinstance(records, Mapping) and is_number(records.get("bytes")):
        parts.append(f"The record files have {records['bytes']:,} bytes together.")
    if digests:
        parts += [
            "A digest changes with any text, label or order of a set, and with the tokenizer:",
            make_table(("set", "SHA-256 of the encoded examples"), digests),
        ]
    return Section("Flags and data", parts)


def _make_reproduction(run: RunRecord) -> Section:
    versions = run.start.get("versions")
    parts: list = [
        "The same data, versions and kind of device give the same numbers:",
        element("pre", element("code", run.command)),
    ]
    if isinstance(versions, Mapping):
        parts.append(make_table(("package", "version"), versions.items()))
    return Section("How to repeat the run", parts)
