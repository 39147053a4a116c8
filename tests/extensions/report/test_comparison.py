"""The page about several runs, and the folder of a search."""

import pytest

from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from official_bert.io.errors import InputError
from tests.extensions.report import folders
from tests.extensions.report.pages import read_page


def write_runs(folder):
    """Two learning rates with two seeds each, and a run that has not ended."""
    scores = {("slow", 1): 0.5, ("slow", 2): 0.7, ("fast", 1): 0.8, ("fast", 2): 0.9}
    for (name, seed), accuracy in scores.items():
        run_folder = folder / f"{name}{seed}"
        rate = {"slow": 1e-5, "fast": 1e-4}[name]
        flags = {"learning_rate": rate, "random_seed": seed, "output_dir": str(run_folder)}
        folders.write_run(run_folder, seed=seed, flags=flags)
        (run_folder / "eval_results.txt").write_text(f"eval_accuracy = {accuracy}\n")
    killed = folder / "killed"
    killed.mkdir()
    flags = {"learning_rate": 1e-4, "random_seed": 3}
    lines = folders.make_log(seed=3, flags=flags)[:20]
    folders.write_lines(killed / "run.jsonl", lines)
    return [*(folder / f"{name}{seed}" for name, seed in scores), killed]


def test_runs_are_side_by_side_and_grouped_by_seed(tmp_path):
    paths = write_runs(tmp_path)
    page_file = tmp_path / "page.html"
    flags = {"output_file": str(page_file)}
    run(ReportOptions(folders=tuple(map(str, paths)), **flags))
    page = read_page(page_file)
    assert page.headings == [
        "Means over seeds",
        "All runs",
        "Training",
        "Evaluations during training",
    ]
    assert page.find_table("flags") == [
        ["learning_rate=1e-05", "2", "60.0% ± 14.1%"],
        ["learning_rate=0.0001", "3", "85.0% ± 7.1%"],
    ]
    rows = page.find_table("run")
    assert rows[0][:4] == ["slow1", "1", "1e-05", "50.0%"]
    assert rows[-1][0] == "killed"
    assert "killed after step 19" in rows[-1][-1]
    pictures = {"compare_loss", "compare_learning_rate", "compare_eval_accuracy"}
    assert {f"picture-{name}" for name in pictures} == {
        name for name in page.ids if name.startswith("picture-")
    }
    svg = (tmp_path / "report_pictures" / "compare_loss.svg").read_text()
    assert all(f">{name}</text>" in svg for name in ("slow1", "slow2", "fast1", "fast2", "killed"))


def test_a_search_folder_stands_for_its_runs(tmp_path, monkeypatch):
    write_runs(tmp_path / "search")
    monkeypatch.chdir(tmp_path)
    run(ReportOptions(folders=("search", "search/slow1")))
    page = read_page(tmp_path / "report.html")
    assert page.text.startswith("\nComparison of 5 runs")
    assert not list((tmp_path / "search").rglob("README.md"))


def test_one_folder_without_a_run_stops_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *_ = write_runs(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty/run\.jsonl: has no record of a run"):
        run(ReportOptions(folders=(str(first), "empty")))
    assert not (tmp_path / "report.html").exists()


def test_equal_names_get_their_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for parent in ("a", "b"):
        folders.write_run(tmp_path / parent / "out")
    run(ReportOptions(folders=("a/out", "b/out")))
    page = read_page(tmp_path / "report.html")
    assert [row[0] for row in page.find_table("run")] == ["a/out", "b/out"]
    assert page.find_table("flags")[0][:2] == ["the same flags", "2"]


def test_legends_leave_out_what_all_names_begin_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [
        f"batch16_lr{rate}_epochs3_seed{seed}" for rate in ("1e-05", "0.0001") for seed in "12"
    ]
    for name in names:
        folders.write_run(tmp_path / name)
    run(ReportOptions(folders=tuple(names)))
    page = read_page(tmp_path / "report.html")
    assert [row[0] for row in page.find_table("run")] == names
    svg = (tmp_path / "report_pictures" / "compare_loss.svg").read_text()
    assert all(f">{name.removeprefix('batch16_')}</text>" in svg for name in names)
