"""The pages: links lead somewhere, guides are short, public names, rows of figures and tests of
promises are there.
"""

import ast
import functools
import importlib
import json
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable

import pytest

import official_bert
from official_bert import catalog
from tests import toy
from tests.commands.pretraining_run import scalars
from tests.fine_tuning_runs import figures
from tests.scripts import run_here
from tests.shared import ROOT

PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(page: pathlib.Path) -> str:
    """A page without its blocks of code."""
    return re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_guides_are_short():
    lengths = {page.name: page.read_text(encoding="utf-8").count("\n") for page in GUIDES}
    assert {name: length for name, length in lengths.items() if length > 150} == {}


def test_the_table_of_extensions_has_every_extension():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = (ROOT / "official_bert" / "extensions").glob("*/__init__.py")
    rows = set(re.findall(r"^\| `(\w+)` \| \w+", page, re.MULTILINE))
    assert {path.parent.name for path in folders} <= rows


def test_the_reference_and_the_type_checkers_have_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = sorted(re.findall(r"^::: official_bert\.(\w+)$", page, re.MULTILINE))
    source = ast.parse((ROOT / "official_bert" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in source.body if isinstance(node, ast.If))
    *imports, listed = checked.body
    modules = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(modules) == described == ast.literal_eval(listed.value)
    public = official_bert._PUBLIC | {
        name: place.partition(":")[0] for name, place in catalog.public_names().items()
    }
    assert official_bert.__all__ == sorted(public)
    assert public == {
        name: module
        for name, module in modules.items()
        if not _is_of_deleted_extension(module.removeprefix("official_bert."))
    }


def test_the_python_code_for_those_who_migrate_runs(tmp_path):
    """In each block that imports the package; the others are the original's."""
    folder = toy.make_bert_base_dir(tmp_path / "released", num_hidden_layers=1)
    page = (ROOT / "docs" / "public_names.md").read_text(encoding="utf-8")
    _, with_head = made = [{}, {}]
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "official_bert" in block
    ]
    for block, names in zip(blocks, made, strict=True):
        exec(block.replace("/tmp/released", str(folder)), names)
    assert with_head["logits"].shape == (2, 2)
    assert int(with_head["model"].optimizer.iterations) == 3


def run_commands_of(guide: str, folder: pathlib.Path):
    """Runs the commands of a guide in this process, with a folder in place of /tmp, and its
    `model` for $MODEL.
    """
    page = (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")
    commands = (
        "".join(re.findall(r"```shell\n(.*?)```", page, re.DOTALL)).replace("\\\n", "").splitlines()
    )
    for command in commands:
        program, name, *flags = shlex.split(
            command.replace("$MODEL", "model").replace("/tmp", str(folder))
        )
        assert program == ("python" if name.endswith(".py") else "official-bert")
        run_here(name, *flags)


def test_the_commands_for_classifiers_run(tmp_path, monkeypatch):
    """On toy tables, one of which has intents that the training set lacks."""
    monkeypatch.chdir(tmp_path)
    toy.make_bert_base_dir(tmp_path / "model")
    for name, label in (("reviews", "kind"), ("intents", "intent")):
        (tmp_path / name).mkdir()
        for part in ("train", "dev"):
            unknown = "rain in the park\tother\n" if (name, part) == ("intents", "dev") else ""
            lines = [
                f"text\t{label}\n",
                "the cat sat\ta\n" * 20,
                f"{'it was a train ' * 80}\tb\n" * 12,
                unknown,
            ]
            (tmp_path / name / f"{part}.tsv").write_text("".join(lines))
    (tmp_path / "questions.txt").write_text("the cat\n")
    run_commands_of("classifiers", tmp_path)
    assert (tmp_path / "intents" / "reliability.tsv").exists()


@pytest.mark.long
def test_the_commands_for_students_run(tmp_path, monkeypatch):
    """On texts whose label a word decides; the student of some layers learns on plain text, then
    without labels.
    """
    monkeypatch.chdir(tmp_path)
    toy.make_bert_base_dir(tmp_path / "model", num_hidden_layers=6)
    toy.write_text(tmp_path, toy.TEXT * 4, "corpus.txt")
    (tmp_path / "reviews").mkdir()
    rows = ["the cat sat\ta\n" * 20, "a train left the station\tb\n" * 20]
    for name in ("reviews/train.tsv", "reviews/dev.tsv", "unlabelled.tsv"):
        toy.write_text(tmp_path, "".join(["text\tkind\n", *rows]), name)
    run_commands_of("small_and_fast", tmp_path)
    losses = scalars(tmp_path / "taught", "loss")
    assert losses[max(losses)] < losses[min(losses)]
    assert (
        json.loads((tmp_path / "student" / "bert_config.json").read_text())["num_hidden_layers"]
        == 3
    )
    assert figures(tmp_path / "student_of_more")["eval_accuracy"] >= 0.5


def rows(name: str) -> list[dict]:
    lines = (
        (ROOT / "benchmarks" / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return [json.loads(line) for line in lines]


def ends(values: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest."""
    values = list(values)
    return min(values), max(values)


def leads(name: str, model: str = "") -> list[float]:
    """Those of our step of pre-training, in all variants of a model, or of all models."""
    return [
        row["peer_secs"] / row["step_secs"] for row in rows(name) if row["model"].startswith(model)
    ]


def leads_of_the_trial(dtype: str) -> list[float]:
    return [
        row[end]
        for row in rows("training_step_trial")
        if row["dtype"] == dtype
        for end in row
        if "lead" in end
    ]


def leads_in_fine_tuning() -> list[float]:
    """Those of an update, in the report's table, which another test compares with the rows."""
    report = (ROOT / "docs" / "reports" / "fine_tuning.md").read_text(encoding="utf-8")
    return [float(lead) for lead in re.findall(r"\| ([\d.]+)x / [\d.]+x \|$", report, re.MULTILINE)]


ALL_LEADS = [
    *leads("training_step"),
    *leads("training_step_avx512"),
    *leads_of_the_trial("float32"),
]
BOTH = ("training_step", "training_step_avx512")
STEPS = {
    (row["model"], row["variant"]): row["step_secs"] for row in rows("training_step_nine_rounds")
}
XLA_GAINS = [
    secs / STEPS[model, "XLA"] for (model, variant), secs in STEPS.items() if variant == "plain"
]
ON_A_GPU = {row["variant"]: row["step_secs"] for row in rows("gpu_step")}
FIGURES = [
    ("docs/performance.md", "is {:.1f} to {:.1f} times as fast as that of Hugging Face", ends(ALL_LEADS)),
    ("docs/performance.md", "{:.1f} to {:.1f} times in bfloat16", ends(leads_of_the_trial("bfloat16"))),
    ("docs/performance.md", "is {:.0f} % faster than their eager step", [
        100 * (ON_A_GPU["Hugging Face bfloat16"] / ON_A_GPU["bfloat16 XLA"] - 1)
    ]),
    ("docs/performance.md", "{:.0f} % slower than a compiled one", [
        100 * (1 - ON_A_GPU["Hugging Face bfloat16 compiled"] / ON_A_GPU["bfloat16 XLA"])
    ]),
    ("docs/performance.md", "up to {:.1f} times as fast", [max(XLA_GAINS)]),
    ("docs/performance.md", "became {:.1f} times as fast, after", [ON_A_GPU["bfloat16"] / ON_A_GPU["bfloat16 XLA"]]),
    ("docs/performance.md", "became {:.1f} to {:.1f} times as fast", ends(
        row["usual_secs"] / row["kept_secs"] for row in rows("freed_memory") if row["what"] == "step"
    )),
    ("docs/scaling_out.md", "about {:,} records a second", [
        round(min(row["records_per_sec"]), -3) for row in rows("input_pipeline") if row["length"] == 128
    ]),
    ("docs/reports/comparison.md", "{:.1f} to {:.1f} times ours", ends(ALL_LEADS)),
    ("docs/reports/comparison.md", "{:.2f} to {:.2f} times ours", ends(leads_in_fine_tuning())),
    ("docs/reports/comparison.md", "{:.1f} to {:.1f} times with 12 layers", ends(
        lead for name in BOTH for lead in leads(name, "12/")
    )),
    ("docs/reports/comparison.md", "{:.1f} to {:.1f} times with 2 layers", ends(
        lead for name in BOTH for lead in leads(name, "2/")
    )),
]  # fmt: skip
# What a guide says of a measurement; where it is not in the table, it has no row.
MEASURED = re.compile(
    r"[\d.]+ times (?:as|in|ours)\b|\d records a second|(?:half|third) (?:the|more) time"
)


@pytest.mark.parametrize(("page", "sentence", "values"), FIGURES)
def test_figures_are_those_of_the_rows(page, sentence, values):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert sentence.format(*values) in text


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_figure_of_a_guide_has_rows(page):
    text = " ".join(prose(page).split())
    for name, sentence, values in FIGURES:
        if ROOT / name == page:
            text = text.replace(sentence.format(*values), "")
    assert MEASURED.findall(text) == []


def test_the_memory_on_a_tpu_is_that_of_the_rows():
    known = {
        f"| {row['model']} | {row['length']} | {row['batch_size']} | {row.get('dtype', 'float32')} "
        f"| {row['argument_bytes'] / 2**30:.2f} | {row['hbm_bytes'] / 2**30:.1f} |"
        for row in rows("tpu_compile")
        if row["num_replicas"] == 4
    }
    shown = re.findall(
        r"^\| (?:base|large) .*$",
        (ROOT / "docs" / "tpu.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(shown) == 7
    assert set(shown) <= known


@pytest.mark.parametrize(
    ("script", "function", "page", "results"),
    [("training_step", "print_table", "training_step", "training_step"),
     ("gpu_step", "print_table", "training_step", "gpu_step"),
     ("finetuning", "print_tables", "fine_tuning", "finetuning"),
     ("finetuning", "print_all_variants", "fine_tuning", "less_to_train"),
     ("embeddings", "print_tables", "embeddings", "embeddings"),
     ("distillation", "print_tables", "fine_tuning", "distillation"), ("scaling_model", None, "scaling", None)],
)  # fmt: skip
def test_the_table_of_a_report_is_what_its_benchmark_prints(
    script, function, page, results, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    if not function:
        monkeypatch.setattr(sys, "argv", [script])
        importlib.import_module(script).main()
    found = rows(results) if results else []
    if results in ("finetuning", "training_step"):  # two tables, and rows that are in none
        tables = [("", "plain", "XLA"), ('{"num_train_epochs": 1.0}fused',)]
        found = [[row for row in found if row["variant"] in variants] for variants in tables]
    for compared in found if found and isinstance(found[0], list) else [found]:
        if compared:
            getattr(importlib.import_module(script), function)(compared)
    printed = [
        line.casefold() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")
    ]
    assert len(printed) > 7
    report = (ROOT / "docs" / "reports" / f"{page}.md").read_text(encoding="utf-8")
    assert set(printed) <= set(report.casefold().splitlines())


def test_terms_of_the_model_of_many_replicas(monkeypatch):
    """By hand, for Large on 8 machines with 8 H100: 1.34 GB of gradients, and 64 examples a
    replica.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    model = importlib.import_module("scaling_model")

    def update(*words):
        return model.update(
            model.parse_arguments(words), model.MACHINES[0], "large", 128, 64, 64, 0.37
        )

    plain = update("--checkpoint_secs=7", "--records_per_sec=1000", "--no-hides_all_reduce")
    volume = 4 * 336.2e6
    assert plain.all_reduce == pytest.approx(
        2 * 7 / 8 * volume / 450e9 + 2 * 7 / 8 * volume / 50e9 + 6e-5
    )
    assert plain.optimizer == pytest.approx(28 * 336.2e6 / 3.35e12)
    assert plain.checkpoint == pytest.approx(7 * 336.2 / 110.1 / 1000)
    assert plain.secs == pytest.approx(8 * 64 / 1000 + plain.checkpoint), "reading takes longer"
    hidden = update("--hides_all_reduce", "--gradient_bytes=2", "--optimizer_secs=0.001")
    assert hidden.all_reduce == pytest.approx(
        2 * 7 / 8 * 25 * 2**20 * (1 / 450e9 + 1 / 50e9) + 6e-5
    ), "a bucket"
    assert hidden.optimizer == pytest.approx(0.001 * 336.2 / 110.1)
    summed = update("--hides_all_reduce", "--num_accumulation_steps=4")
    assert summed.compute == pytest.approx(4 * plain.compute)
    assert summed.all_reduce == plain.all_reduce, "once for four batches, and not beside them"


RELIABILITY = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_the_tests_of_the_promises_exist():
    """A file's name stands before the names of its tests."""
    file, defined, is_deleted, count = "", set(), False, 0
    for name in re.findall(r"`((?:\w+/)*test_\w+(?:\.py)?)`", RELIABILITY):
        if name.endswith(".py"):
            file = name
            is_deleted = _is_of_deleted_extension(file)
            source = "" if is_deleted else (ROOT / "tests" / file).read_text(encoding="utf-8")
            defined = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        else:
            count += 1
            assert name in defined or is_deleted, f"{file} has no {name}"
    assert count > 25


def _is_of_deleted_extension(path: str) -> bool:
    """Whether a file below `tests` or `official_bert` was of an extension that somebody deleted."""
    room, extension, *_ = (*path.replace(".", "/").split("/"), "", "")
    return room == "extensions" and not (ROOT / "official_bert" / room / extension).exists()


def test_every_promise_names_a_test():
    promises = re.findall(
        r"^\*\*.*?(?=\n\n(?:\*\*|#|Not promised)|\Z)", RELIABILITY, re.DOTALL | re.MULTILINE
    )
    assert len(promises) > 15
    for promise in promises:
        assert re.search(r"`(\w+/)*test_\w+(\.py)?`", promise), promise


def test_every_change_of_the_table_of_mutations_has_its_place():
    mutations = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))
    assert list(mutations["problems"]()) == []


@pytest.mark.long
@pytest.mark.needs_program("curl", "git", "make")
def test_the_first_hour_of_a_user(tmp_path):
    """tests/first_hour.sh runs docs/first_hour.md and the commands that the quickstart prints,
    as they stand there.
    """
    clone = tmp_path / "official_bert"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    finished = subprocess.run(
        [clone / "tests" / "first_hour.sh"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
    assert finished.stdout.endswith("The first hour went well.\n")
