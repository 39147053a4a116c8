"""The pages: links lead somewhere, guides are short, public names, rows of figures and tests of
promises are there.
"""

import ast
import collections
import functools
import importlib
import json
import math
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest

import official_bert
from official_bert import catalog
from official_bert.io.errors import InputError
from tests import toy
from tests.commands.pretraining_run import scalars
from tests.fine_tuning_runs import figures
from tests.scripts import PYTHONPATH, run_here
from tests.shared import ROOT

DOCS = ROOT / "docs"
BENCHMARKS = ROOT / "benchmarks"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    BENCHMARKS / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
GUIDES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL_BLOCK = re.compile(r"```shell\n(.*?)```", re.DOTALL)


def read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: pathlib.Path) -> str:
    """A page without its blocks of code."""
    return CODE_BLOCK.sub("", read(page))


def join_lines(text: str) -> str:
    """Returns a text with a blank in place of each line end."""
    return " ".join(text.split())


def make_anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.replace(" ", "-")


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """The anchors of all headings of a page."""
    return {make_anchor(heading) for heading in HEADING.findall(prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path = page
        if target:
            path = (page.parent / target).resolve()
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), f"{target}#{anchor}"


def test_guides_are_short():
    lengths = {page.name: read(page).count("\n") for page in GUIDES}
    too_long = {name: length for name, length in lengths.items() if length > 150}
    assert too_long == {}


@pytest.mark.parametrize("page", [*GUIDES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_lines_of_code_fit_in_80_columns(page):
    """The column of the site's text shows about as many; wider lines are cut off."""
    blocks = CODE_BLOCK.findall(read(page))
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


def test_the_table_of_extensions_has_every_extension():
    page = read(DOCS / "architecture.md")
    packages = (ROOT / "official_bert" / "extensions").glob("*/__init__.py")
    extensions = {path.parent.name for path in packages}
    row_names = set(re.findall(r"^\| `(\w+)` \| \w+", page, re.MULTILINE))
    assert extensions <= row_names


def read_names_for_type_checkers() -> tuple[dict[str, str], list[str]]:
    """The modules of the public names and `__all__`, in the package's `if TYPE_CHECKING`."""
    source = ast.parse(read(ROOT / "official_bert" / "__init__.py"))
    type_checking = next(node for node in source.body if isinstance(node, ast.If))
    *imports, all_names = type_checking.body
    modules = {}
    for node in imports:
        modules.update({alias.name: node.module for alias in node.names})
    return modules, ast.literal_eval(all_names.value)


def test_the_reference_and_the_type_checkers_have_every_public_name():
    page = read(DOCS / "api.md")
    described_names = sorted(re.findall(r"^::: official_bert\.(\w+)$", page, re.MULTILINE))
    modules, all_names = read_names_for_type_checkers()
    assert sorted(modules) == described_names
    assert all_names == described_names

    public = dict(official_bert._PUBLIC)
    for name, place in catalog.public_names().items():
        public[name] = place.partition(":")[0]
    assert official_bert.__all__ == sorted(public)
    installed = {
        name: module
        for name, module in modules.items()
        if not _is_of_deleted_extension(module.removeprefix("official_bert."))
    }
    assert public == installed


def test_the_python_code_for_those_who_migrate_runs(tmp_path):
    """In each block that imports the package; the others are the original's."""
    folder = toy.make_bert_base_dir(tmp_path / "released", num_hidden_layers=1)
    all_blocks = PYTHON_BLOCK.findall(read(DOCS / "public_names.md"))
    blocks = [block for block in all_blocks if "official_bert" in block]
    names_by_block = []
    for block in blocks:
        names = {}
        exec(block.replace("/tmp/released", str(folder)), names)
        names_by_block.append(names)
    _, with_head = names_by_block
    assert with_head["logits"].shape == (2, 2)
    optimizer = with_head["model"].optimizer
    assert int(optimizer.iterations) == 3


def split_commands(page: str) -> list[list[str]]:
    """Returns the words of each command in the shell blocks of a page or of a part of it."""
    blocks = SHELL_BLOCK.findall(page)
    commands = "".join(blocks).replace("\\\n", "")
    return [shlex.split(command) for command in commands.splitlines()]


def run_guide_commands(guide: str, folder: pathlib.Path):
    """Runs the commands of a guide in this process, with a folder in place of /tmp, and its
    `model` for $MODEL.
    """
    page = read(DOCS / f"{guide}.md")
    page = page.replace("$MODEL", "model")
    page = page.replace("/tmp", str(folder))
    for command in split_commands(page):
        program, name, *flags = command
        is_script = name.endswith(".py")
        assert program == ("python" if is_script else "official-bert")
        run_here(name, *flags)


def test_the_commands_for_classifiers_run(tmp_path, monkeypatch):
    """On toy tables, one of which has intents that the training set lacks."""
    monkeypatch.chdir(tmp_path)
    toy.make_bert_base_dir(tmp_path / "model")
    reviews = tmp_path / "reviews"
    intents = tmp_path / "intents"
    reviews.mkdir()
    intents.mkdir()
    long_text = "it was a train " * 80
    rows = "the cat sat\ta\n" * 20 + f"{long_text}\tb\n" * 12
    for part in ("train", "dev"):
        toy.write_text(reviews, f"text\tkind\n{rows}", f"{part}.tsv")
        unknown_row = "rain in the park\tother\n" if part == "dev" else ""
        toy.write_text(intents, f"text\tintent\n{rows}{unknown_row}", f"{part}.tsv")
    toy.write_text(tmp_path, "the cat\n", "questions.txt")
    run_guide_commands("classifiers", tmp_path)
    assert (intents / "reliability.tsv").exists()


@pytest.mark.long
def test_the_commands_for_students_run(tmp_path, monkeypatch):
    """On texts whose label a word decides; the student of some layers learns on plain text, then
    without labels.
    """
    monkeypatch.chdir(tmp_path)
    toy.make_bert_base_dir(tmp_path / "model", num_hidden_layers=6)
    toy.write_text(tmp_path, toy.TEXT * 4, "corpus.txt")
    (tmp_path / "reviews").mkdir()
    table = "".join(
        [
            "text\tkind\n",
            "the cat sat\ta\n" * 20,
            "a train left the station\tb\n" * 20,
        ]
    )
    for name in ("reviews/train.tsv", "reviews/dev.tsv", "unlabelled.tsv"):
        toy.write_text(tmp_path, table, name)
    run_guide_commands("small_and_fast", tmp_path)
    losses = scalars(tmp_path / "taught", "loss")
    first_step = min(losses)
    last_step = max(losses)
    assert losses[last_step] < losses[first_step]
    config = json.loads(read(tmp_path / "student" / "bert_config.json"))
    assert config["num_hidden_layers"] == 3
    results = figures(tmp_path / "student_of_more")
    assert results["eval_accuracy"] >= 0.5


def read_contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def start_part(command: Sequence[str], machine: pathlib.Path) -> subprocess.Popen:
    """Starts a command of a guide in the folder of a machine, which sees the text and the
    vocabulary of the working folder.
    """
    records = machine / "records"
    records.mkdir(parents=True)
    for name in ("text", "vocab.txt"):
        (machine / name).symlink_to(pathlib.Path.cwd() / name)
    _, script, *flags = command
    return subprocess.Popen(
        [sys.executable, ROOT / script, *flags],
        cwd=machine,
        env=os.environ | PYTHONPATH,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_commands_for_many_machines_run(tmp_path, monkeypatch):
    """Two processes with two workers each make a part, in a folder of its own. One process makes
    the same files. Only with both parts in one folder, a glob is accepted.
    """
    guide = read(DOCS / "records_many_machines.md")
    two_machines, _, _ = guide.partition("## What a part is")
    make_folders, split_text, *commands = split_commands(two_machines)
    (_, *learn), first_part, second_part, (_, *train) = commands
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.chdir(shared)
    toy.write_text(shared, f"{toy.TEXT}\n" * 20, "corpus.txt")
    for command in (make_folders, split_text):
        subprocess.run(command, check=True)
    texts = read_contents(shared / "text")
    assert sorted(texts) == [f"{number}.txt" for number in range(8)]
    # The documents are in the files by turns.
    assert texts["1.txt"].decode().startswith(toy.TEXT.partition("\n\n")[0])
    assert sum(text.count(b"\n\n") for text in texts.values()) == 60
    run_here(*learn)

    machines = [tmp_path / "m1", tmp_path / "m2"]
    processes = [
        start_part(first_part, machines[0]),
        start_part(second_part, machines[1]),
    ]
    for command in (first_part, second_part):
        run_here(*command[1:], "--num_workers=1")
    records = shared / "records"
    expected = read_contents(records)
    sizes = [len(content) for name, content in expected.items() if "manifest" not in name]
    assert len(sizes) == 2
    for process in processes:
        _, log = process.communicate(timeout=300)
        assert process.returncode == 0, log
    shutil.rmtree(records)
    copies = [read_contents(machine / "records") for machine in machines]
    assert copies[0] | copies[1] == expected
    assert not copies[0].keys() & copies[1].keys()

    toy_config = toy.BERT_CONFIG | {"vocab_size": 16384}
    toy.write_text(shared, json.dumps(toy_config), "bert_config.json")
    sentence = r"part 2 of 2 of ../m1/records/train is missing; copy all parts into one folder, or"
    with pytest.raises(InputError, match=f"{sentence} make it .* --part=2/2 .* --dupe_factor=5 "):
        run_here(*train, "--input_file=../m?/records/train-part-*")
    for machine in machines:
        shutil.copytree(machine / "records", records, dirs_exist_ok=True)
    two_steps = ["--num_train_steps=2", "--num_warmup_steps=1", "--log_every_steps=1"]
    run_here(*train, *two_steps, "--train_batch_size=2", "--random_seed=1")
    start = json.loads(read(shared / "model" / "run.jsonl").splitlines()[0])
    assert start["records"]["bytes"] == sum(sizes)
    losses = scalars(shared / "model", "loss")
    # An untrained model gives all tokens the same probability, and both labels of next sentences.
    chance = math.log(16384) + math.log(2)
    assert losses == {1: pytest.approx(chance, abs=0.05), 2: pytest.approx(chance, abs=0.05)}


def rows(name: str) -> list[dict]:
    """The measurements of a benchmark."""
    lines = read(BENCHMARKS / "results" / f"{name}.jsonl").splitlines()
    return [json.loads(line) for line in lines]


def ends(values: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest."""
    values = list(values)
    return min(values), max(values)


def leads(name: str, model: str = "") -> list[float]:
    """Those of our step of pre-training, in all variants of a model, or of all models."""
    measurements = [row for row in rows(name) if row["model"].startswith(model)]
    return [row["peer_secs"] / row["step_secs"] for row in measurements]


def leads_on_both_processors(model: str) -> list[float]:
    """Those of our step on both processors, in all variants of a model."""
    return leads("training_step", model) + leads("training_step_avx512", model)


def read_trial_leads(dtype: str) -> list[float]:
    trial_leads = []
    for row in rows("training_step_trial"):
        if row["dtype"] == dtype:
            trial_leads.extend(row[field] for field in row if "lead" in field)
    return trial_leads


def leads_in_fine_tuning() -> list[float]:
    """Those of an update, in the report's table, which another test compares with the rows."""
    report = read(DOCS / "reports" / "fine_tuning.md")
    cells = re.findall(r"\| ([\d.]+)x / [\d.]+x \|$", report, re.MULTILINE)
    return [float(cell) for cell in cells]


def gains_by_xla() -> list[float]:
    """How many times as fast each model's step becomes by XLA."""
    secs = {
        (row["model"], row["variant"]): row["step_secs"]
        for row in rows("training_step_nine_rounds")
    }
    models = [model for model, variant in secs if variant == "plain"]
    return [secs[model, "plain"] / secs[model, "XLA"] for model in models]


def gains_by_onednn() -> list[float]:
    """How many times as fast each model's step becomes by oneDNN, limited to AVX2."""
    secs = collections.defaultdict(list)
    for row in rows("onednn_avx2"):
        settings = row["environment"]
        if row["benchmark"] == "training_step" and "OFFICIAL_BERT_TUNE_HEAP" not in settings:
            secs[row["model"], settings["TF_ENABLE_ONEDNN_OPTS"]].append(row["step_secs"])
    models = [model for model, value in secs if value == "0"]
    return [sum(secs[model, "0"]) / sum(secs[model, "1"]) for model in models]


def least_records_per_sec(length: int) -> list[int]:
    """The thousands of records of some length that the input pipeline reads a second."""
    measurements = [row for row in rows("input_pipeline") if row["length"] == length]
    return [round(min(row["records_per_sec"]), -3) for row in measurements]


ALL_LEADS = [
    *leads("training_step"),
    *leads("training_step_avx512"),
    *read_trial_leads("float32"),
]
GPU_SECS = {row["variant"]: row["step_secs"] for row in rows("gpu_step")}
GPU_BFLOAT16_SECS = GPU_SECS["bfloat16"]
GPU_XLA_SECS = GPU_SECS["bfloat16 XLA"]
GPU_PEER_SECS = GPU_SECS["Hugging Face bfloat16"]
GPU_COMPILED_PEER_SECS = GPU_SECS["Hugging Face bfloat16 compiled"]


class Figure(NamedTuple):
    """A sentence of a page, with places for the values that rows give."""

    page: str
    sentence: str
    values: Iterable[float]

    def format(self) -> str:
        return self.sentence.format(*self.values)


FIGURES = {
    "lead of our step": Figure(
        page="docs/performance.md",
        sentence="is {:.1f} to {:.1f} times as fast as that of Hugging Face",
        values=ends(ALL_LEADS),
    ),
    "lead of our step in bfloat16": Figure(
        page="docs/performance.md",
        sentence="{:.1f} to {:.1f} times in bfloat16",
        values=ends(read_trial_leads("bfloat16")),
    ),
    "lead over an eager step on a GPU": Figure(
        page="docs/performance.md",
        sentence="is {:.0f} % faster than their eager step",
        values=[100 * (GPU_PEER_SECS / GPU_XLA_SECS - 1)],
    ),
    "lead of a compiled step on a GPU": Figure(
        page="docs/performance.md",
        sentence="{:.0f} % slower than a compiled one",
        values=[100 * (1 - GPU_COMPILED_PEER_SECS / GPU_XLA_SECS)],
    ),
    "gain by XLA": Figure(
        page="docs/performance.md",
        sentence="up to {:.1f} times as fast",
        values=[max(gains_by_xla())],
    ),
    "gain by XLA on a GPU": Figure(
        page="docs/performance.md",
        sentence="became {:.1f} times as fast, after",
        values=[GPU_BFLOAT16_SECS / GPU_XLA_SECS],
    ),
    "gain by oneDNN": Figure(
        page="docs/performance.md",
        sentence="[trainings became {:.1f} to {:.1f} times as",
        values=ends(gains_by_onednn()),
    ),
    "speed of the input": Figure(
        page="docs/scaling_out.md",
        sentence="about {:,} records a second",
        values=least_records_per_sec(length=128),
    ),
    "lead of our step, in the comparison": Figure(
        page="docs/reports/comparison.md",
        sentence="{:.1f} to {:.1f} times ours",
        values=ends(ALL_LEADS),
    ),
    "lead in fine-tuning": Figure(
        page="docs/reports/comparison.md",
        sentence="{:.2f} to {:.2f} times ours",
        values=ends(leads_in_fine_tuning()),
    ),
    "lead with 12 layers": Figure(
        page="docs/reports/comparison.md",
        sentence="{:.1f} to {:.1f} times with 12 layers",
        values=ends(leads_on_both_processors("12/")),
    ),
    "lead with 2 layers": Figure(
        page="docs/reports/comparison.md",
        sentence="{:.1f} to {:.1f} times with 2 layers",
        values=ends(leads_on_both_processors("2/")),
    ),
}
# What a guide says of a measurement; where it is not in the table, it has no row.
MEASURED = re.compile(
    r"[\d.]+ times (?:as|in|ours)\b|\d records a second|(?:half|third) (?:the|more) time"
)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_figures_are_those_of_the_rows(figure):
    page = join_lines(read(ROOT / figure.page))
    assert figure.format() in page


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_figure_of_a_guide_has_rows(page):
    text = join_lines(prose(page))
    for figure in FIGURES.values():
        if ROOT / figure.page == page:
            text = text.replace(figure.format(), "")
    assert MEASURED.findall(text) == []


def format_tpu_row(row: dict) -> str:
    """A line of the table of memory in docs/tpu.md."""
    dtype = row.get("dtype", "float32")
    argument_gib = row["argument_bytes"] / 2**30
    hbm_gib = row["hbm_bytes"] / 2**30
    return (
        f"| {row['model']} | {row['length']} | {row['batch_size']} | {dtype} "
        f"| {argument_gib:.2f} | {hbm_gib:.1f} |"
    )


def test_the_memory_on_a_tpu_is_that_of_the_rows():
    measurements = [row for row in rows("tpu_compile") if row["num_replicas"] == 4]
    measured_lines = {format_tpu_row(row) for row in measurements}
    page = read(DOCS / "tpu.md")
    shown_lines = re.findall(r"^\| (?:base|large) .*$", page, re.MULTILINE)
    assert len(shown_lines) == 7
    assert set(shown_lines) <= measured_lines


def assert_report_has_tables(page: str, printed: str):
    """Each line of the printed tables is in a report; the case of a letter doesn't count."""
    lines = printed.casefold().splitlines()
    table_lines = [line for line in lines if line.startswith("| ")]
    assert len(table_lines) > 2
    report = read(DOCS / "reports" / f"{page}.md")
    report_lines = report.casefold().splitlines()
    assert set(table_lines) <= set(report_lines)


def select_rows(results: str, variants: list[str]) -> list[dict]:
    """The measurements of a benchmark's variants, of all of them where the list is empty."""
    if not variants:
        return rows(results)
    return [row for row in rows(results) if row["variant"] in variants]


# In each table the name of the results, and the variants that the table has if not all of them.
@pytest.mark.parametrize(
    ("script", "function", "page", "tables"),
    [
        pytest.param(
            "training_step",
            "print_table",
            "training_step",
            [("training_step", "plain", "XLA")],
            id="a step",
        ),
        pytest.param(
            "gpu_step",
            "print_table",
            "training_step",
            [("gpu_step",)],
            id="a step on a GPU",
        ),
        pytest.param(
            "finetuning",
            "print_tables",
            "fine_tuning",
            [
                ("finetuning", ""),
                ("finetuning", '{"num_train_epochs": 1.0}fused'),
            ],
            id="fine-tuning",
        ),
        pytest.param(
            "finetuning",
            "print_all_variants",
            "fine_tuning",
            [("less_to_train",)],
            id="less to train",
        ),
        pytest.param(
            "embeddings",
            "print_tables",
            "embeddings",
            [("embeddings",)],
            id="embeddings",
        ),
        pytest.param(
            "search_models",
            "print_table",
            "embeddings",
            [("search_models",)],
            id="sparse and late-interaction models",
        ),
        pytest.param(
            "reranking",
            "print_tables",
            "reranking",
            [("reranking",)],
            id="rerankers",
        ),
        pytest.param(
            "distillation",
            "print_tables",
            "fine_tuning",
            [("distillation",)],
            id="distillation",
        ),
    ],
)
def test_the_table_of_a_report_is_what_its_benchmark_prints(
    script, function, page, tables, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(BENCHMARKS)
    print_table = getattr(importlib.import_module(script), function)
    for results, *variants in tables:
        print_table(select_rows(results, variants))
    assert_report_has_tables(page, capsys.readouterr().out)


def test_the_table_of_the_report_on_scaling_is_what_its_model_prints(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", ["scaling_model"])
    importlib.import_module("scaling_model").main()
    assert_report_has_tables("scaling", capsys.readouterr().out)


def test_the_tables_of_the_parts_of_records(monkeypatch, capsys):
    """The model by hand, for a pass on 64 processors: 64 rounds of 4 parts, each of a start, its
    text for 16 processes, and 8 rounds of shards.
    """
    monkeypatch.syspath_prepend(BENCHMARKS)
    row = rows("records_parts")[3]
    assert (row["parts"], row["text_mb"]) == (4, 424.5)
    importlib.import_module("records_parts").print_table(rows("records_parts"))
    printed = capsys.readouterr().out.splitlines()
    importlib.import_module("scaling_model").print_terabyte()
    report = read(DOCS / "reports" / "scaling.md")
    modelled = capsys.readouterr().out.strip().splitlines()
    assert [line for line in [*printed, *modelled] if line not in report] == []
    part_secs = 2.03 / 4 + 1e12 / 256 / 16 * 5.17 / 424.5e6 + 8 * 2**25 * 52.25 / 424.5e6
    assert f"| 64 | 4 | 1 | 0.5 | 3.0 | 33 | {64 * part_secs / 60:.1f} |" in report
    later_passes_secs = (329.78 / 110.98 - 1) * 8 * 2**25 * 52.25 / 424.5e6
    ten_passes_minutes = (part_secs + later_passes_secs) / 60
    guide = join_lines(read(DOCS / "records_many_machines.md"))
    assert f"{part_secs:.0f} s with `--dupe_factor=1`" in guide
    assert f"{ten_passes_minutes:.1f} minutes with `--dupe_factor=10`" in guide


def test_terms_of_the_model_of_many_replicas(monkeypatch):
    """By hand, for Large on 8 machines with 8 H100: 1.34 GB of gradients, and 64 examples a
    replica.
    """
    monkeypatch.syspath_prepend(BENCHMARKS)
    model = importlib.import_module("scaling_model")

    def update(*words):
        arguments = model.parse_arguments(words)
        return model.update(arguments, model.MACHINES[0], "large", 128, 64, 64, 0.37)

    num_weights = 336.2e6
    base_share = 336.2 / 110.1
    volume = 4 * num_weights
    bucket = 25 * 2**20
    within_machine = 450e9
    between_machines = 50e9
    latency = 6e-5

    plain = update("--checkpoint_secs=7", "--records_per_sec=1000", "--no-hides_all_reduce")
    secs_within = 2 * 7 / 8 * volume / within_machine
    secs_between = 2 * 7 / 8 * volume / between_machines
    assert plain.all_reduce == pytest.approx(secs_within + secs_between + latency)
    assert plain.optimizer == pytest.approx(28 * num_weights / 3.35e12)
    assert plain.checkpoint == pytest.approx(7 * base_share / 1000)
    reading_secs = 8 * 64 / 1000
    assert plain.secs == pytest.approx(reading_secs + plain.checkpoint), "reading takes longer"

    hidden = update("--hides_all_reduce", "--gradient_bytes=2", "--optimizer_secs=0.001")
    secs_per_byte = 1 / within_machine + 1 / between_machines
    bucket_secs = 2 * 7 / 8 * bucket * secs_per_byte
    assert hidden.all_reduce == pytest.approx(bucket_secs + latency), "a bucket"
    assert hidden.optimizer == pytest.approx(0.001 * base_share)

    summed = update("--hides_all_reduce", "--num_accumulation_steps=4")
    assert summed.compute == pytest.approx(4 * plain.compute)
    assert summed.all_reduce == plain.all_reduce, "once for four batches, and not beside them"


RELIABILITY = read(DOCS / "reliability.md")


def test_the_tests_of_the_promises_exist():
    """A file's name stands before the names of its tests."""
    file = ""
    defined_tests = set()
    is_deleted = False
    num_tests = 0
    for name in re.findall(r"`((?:\w+/)*test_\w+(?:\.py)?)`", RELIABILITY):
        if name.endswith(".py"):
            file = name
            is_deleted = _is_of_deleted_extension(file)
            source = "" if is_deleted else read(ROOT / "tests" / file)
            defined_tests = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        else:
            num_tests += 1
            assert name in defined_tests or is_deleted, f"{file} has no {name}"
    assert num_tests > 25


def _is_of_deleted_extension(path: str) -> bool:
    """Whether a file below `tests` or `official_bert` was of an extension that somebody deleted."""
    parts = path.replace(".", "/").split("/")
    if parts[0] != "extensions":
        return False
    folder = ROOT / "official_bert" / "/".join(parts[:2])
    return not folder.exists()


def test_every_promise_names_a_test():
    promises = re.findall(
        r"^\*\*.*?(?=\n\n(?:\*\*|#|Not promised)|\Z)", RELIABILITY, re.DOTALL | re.MULTILINE
    )
    assert len(promises) > 15
    for promise in promises:
        assert re.search(r"`(\w+/)*test_\w+(\.py)?`", promise), promise


def test_every_change_of_the_table_of_mutations_has_its_place():
    mutations = runpy.run_path(str(BENCHMARKS / "mutations.py"))
    problems = mutations["problems"]
    assert list(problems()) == []


def make_environment(folder):
    """Makes a virtual environment with the packages of this one, but for official_bert itself.

    The page installs official_bert, which must not change the environment of the tests.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    these_packages = sysconfig.get_path("purelib")
    pathlib.Path(packages, "packages_of_the_tests.pth").write_text(f"{these_packages}\n")


@pytest.mark.long
@pytest.mark.needs_program("curl", "git", "make")
def test_the_first_hour_of_a_user(tmp_path):
    """tests/first_hour.sh runs docs/first_hour.md and the commands that the quickstart prints,
    as they stand there.
    """
    clone = tmp_path / "official_bert"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    make_environment(clone / ".venv")
    script = clone / "tests" / "first_hour.sh"
    finished = subprocess.run([script], capture_output=True, text=True, check=False)
    output_tail = finished.stdout[-5000:] + finished.stderr[-5000:]
    assert finished.returncode == 0, output_tail
    assert finished.stdout.endswith("The first hour went well.\n")
