"""The page about one run, of folders with made-up numbers."""

import json

import pytest

from official_bert.extensions.report.command import run
from official_bert.extensions.report.options import ReportOptions
from official_bert.io.errors import InputError
from tests.extensions.report import folders
from tests.extensions.report.pages import read_page


def write_page(folder, **flags):
    """Writes the report of a folder, and reads its page."""
    run(ReportOptions(folders=(str(folder),), **flags))
    return read_page(folder / "report.html")


def test_a_page_about_a_classifier_has_all_sections(tmp_path):
    page = write_page(folders.write_run(tmp_path / "tickets"))
    assert page.headings == [
        "Summary",
        "Training",
        "Evaluations during training",
        "Results",
        "Confusion matrix",
        "Results of each label",
        "Calibration",
        "When to abstain",
        "Mistakes",
        "Lengths",
        "Speed",
        "Flags and data",
        "How to repeat the run",
    ]
    names = {name.removeprefix("picture-") for name in page.ids}
    assert {
        "training_loss",
        "training_learning_rate",
        "evaluation_eval_accuracy",
        "evaluation_eval_loss",
        "confusion_eval",
        "reliability_eval",
        "coverage_eval",
        "lengths_train",
        "lengths_eval",
    } <= names
    for text in (
        "text: tickets",
        "75.0%",  # the headline
        "The best checkpoint is that of step 20, with eval_accuracy 75.0%.",
        "best: 75.0% at step 20",
        "started from base/bert_model.ckpt",
        "28 (10.0%) fill all 64 tokens",
        "01:02:05",
        "The slowest part: the updates. A thread made the batches in 2.5 s: the updates do not wait",
        "official-bert run_classifier \\\n  --task_name=text",
        "--random_seed=7",
    ):
        assert text in page.text, text
    assert page.find_table("flag that differs from its default")[-1] == ["--max_seq_length", "64"]
    assert page.find_table("part") == [
        ["the updates", "64.0", "64.0%"],
        ["the first call, which compiles", "15.0", "15.0%"],
        ["evaluations", "10.0", "10.0%"],
        ["waiting for checkpoints", "1.0", "1.0%"],
    ]
    digests = [["training set", "aaaa"], ["eval", "bbbb"]]
    assert page.find_table("set") == digests
    assert page.find_table("metric")[0] == ["eval_accuracy", "75.0%"]


def test_tables_and_sentences_count_the_predictions(tmp_path):
    """40 predictions, of which the ten of every fourth example are wrong."""
    page = write_page(folders.write_run(tmp_path))
    rows = page.find_table("label")
    assert [row[0] for row in rows] == folders.LABELS
    assert [row[-2:] for row in rows] == [["14", "13"], ["13", "14"], ["13", "13"]]
    assert rows[0][1:4] == ["76.9%", "71.4%", "74.1%"]
    thresholds = page.find_table("--abstain_below")
    assert thresholds[0] == ["0", "100.0%", "75.0%", "10"]
    assert ["0.5", "75.0%", "100.0%", "0"] in thresholds
    assert thresholds[-1] == ["0.99", "0.0%", "", "0"]
    assert "90% of the answers are right from about 0.9 on, with an answer for 75%" in page.text
    confusions = page.find_table("true label")
    assert sum(int(row[2]) for row in confusions) == 10
    sentence = (
        "before the calibration: 15.0%, calibrated: 17.5%. Here the calibration makes it larger"
    )
    assert sentence in page.text
    mistakes = page.find_table("example")
    assert len(mistakes) == 10
    assert mistakes[0] == ["4", "ticket 3", "bill", "fault", "40.0%"]


@pytest.mark.needs_extra("matplotlib")
def test_pictures_are_written_as_png(tmp_path):
    write_page(folders.write_run(tmp_path))
    pictures = sorted((tmp_path / "report_pictures").glob("*.png"))
    assert len(pictures) == 9
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG"), path
        assert path.stat().st_size > 5000, path


def test_without_matplotlib_pictures_are_svg(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("official_bert.extensions.report.page.has_matplotlib", lambda: False)
    with caplog.at_level("INFO", logger="absl"):
        page = write_page(folders.write_run(tmp_path))
    assert {path.suffix for path in (tmp_path / "report_pictures").iterdir()} == {".svg"}
    assert page.pictures == 9
    assert "pip install matplotlib" in caplog.text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg><b onclick=x>",
    "שלום עולם",
    "😀 & <i>",
    "$a_b$ ' \\",
]


def test_what_users_wrote_is_no_html(tmp_path):
    """Labels, texts, flags and the name of the folder."""
    folder = tmp_path / "<b>run"
    predictions = folders.make_predictions(24, HOSTILE)
    for record in predictions:
        record["text"] = HOSTILE[0]
    folders.write_run(
        folder,
        predictions,
        labels=HOSTILE,
        flags={"data_dir": HOSTILE[1], "init_checkpoint": "</script><script>"},
    )
    page = write_page(folder)
    assert page.tags["script"] == 1
    assert page.tags["img"] == page.tags["i"] == 0
    assert [row[0] for row in page.find_table("label")] == HOSTILE
    assert page.find_table("example")[0][1] == HOSTILE[0]
    assert "text: <b>run" in page.text
    for path in (folder / "report_pictures").glob("*.svg"):
        assert "<script" not in path.read_text(encoding="utf-8")


def test_300_labels_show_the_most_confused_ones(tmp_path):
    labels = [f"label {number}" for number in range(300)]
    page = write_page(folders.write_run(tmp_path, folders.make_predictions(900, labels), labels))
    assert len(page.find_table("label")) == 300
    assert "Of 300 labels it shows the 24 with the most mistakes" in page.text
    svg = (tmp_path / "report_pictures" / "confusion_eval.svg").read_text()
    assert svg.count("<rect") == 24 * 24
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_an_empty_set_has_no_tables(tmp_path):
    page = write_page(folders.write_run(tmp_path, predictions=[]))
    assert "Confusion matrix" not in page.headings
    assert "Results" in page.headings
    assert "No predictions for eval are there." in page.text


def test_a_run_without_an_evaluation_says_how_to_get_one(tmp_path):
    folders.write_run(tmp_path)
    (tmp_path / "eval_results.txt").unlink()
    page = write_page(tmp_path)
    assert "Nothing was evaluated at the end. For tables of the predictions, repeat" in page.text
    assert "75.0%eval_accuracy" in page.text, "the best evaluation is the headline"


def test_an_unfinished_run_says_so(tmp_path):
    folders.write_run(tmp_path)
    lines = [line for line in folders.make_log() if line["type"] in ("start", "train")]
    folders.write_lines(tmp_path / "run.jsonl", lines)
    page = write_page(tmp_path)
    assert "The training has not ended: it is running, or was killed after step 40." in page.text
    assert "Speed" not in page.headings


def test_damaged_lines_are_left_out(tmp_path):
    """Of the log and of the predictions: half a line, no JSON, other types, and no numbers."""
    folders.write_run(tmp_path)
    damage = '{"type": "train", "step": 41, "lo\n[1]\nnot json\n{"type": "train", "step": "x"}\n'
    worse = '{"type": "train", "step": 42, "loss": "high"}\n{"type": "evaluation", "step": 43}\n'
    with open(tmp_path / "run.jsonl", "a") as file:
        file.write(damage + worse)
    with open(tmp_path / "eval_predictions.jsonl", "a") as file:
        file.write(damage.replace('"type": "train"', "") + "\x00\n")
    page = write_page(tmp_path)
    assert page.find_table("--abstain_below")[0] == ["0", "100.0%", "75.0%", "10"]


@pytest.mark.parametrize(
    "records",
    [
        [{"id": 1, "label": "bill"}],
        [{"id": 1, "label": "bill", "prediction": "bill", "probability": "high"}],
        [{"id": 1, "words": ["a"], "label": ["X-Y"], "prediction": ["O"]}],
        [{"id": 1, "x": "left", "y": 2}],
    ],
)
def test_predictions_in_another_form_are_named(tmp_path, records):
    page = write_page(folders.write_run(tmp_path, predictions=records))
    assert "eval_predictions.jsonl has lines of another form" in page.text


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"run.jsonl: has no record of a run; name the --output_d"):
        run(ReportOptions(folders=(str(tmp_path),)))
    with pytest.raises(InputError, match="no folder is given"):
        run(ReportOptions())
    (tmp_path / "run.jsonl").write_text('{"type": "start"}\n{"type": "start", "flags": 3}\n')
    with pytest.raises(InputError, match="has no record of a run"):
        run(ReportOptions(folders=(str(tmp_path),)))
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_run_that_only_evaluated(tmp_path):
    folders.write_run(tmp_path)
    start = folders.make_start(num_updates=None, flags={"do_train": False})
    folders.write_lines(tmp_path / "run.jsonl", [start])
    page = write_page(tmp_path, output_file=None, model_card=False)
    assert "75.0%" in page.text
    assert "has not ended" not in page.text
    assert not (tmp_path / "README.md").exists()


def test_scores_and_several_labels(tmp_path):
    scores = [
        {"id": n, "label": float(n), "prediction": n + 0.5, "tokens": 3, "text": f"t{n}"}
        for n in range(1, 9)
    ]
    scores[3]["prediction"] = 9.0
    page = write_page(folders.write_run(tmp_path / "scores", scores, labels=[]))
    assert page.find_table("example")[0] == ["4", "t4", "4", "9", "5"]

    several = [
        {
            "id": number,
            "label": ["bill"],
            "prediction": ["bill", "fault"] if number % 2 else ["bill"],
            "probabilities": {"bill": 0.9, "fault": 0.6 if number % 2 else 0.1, "praise": 0.2},
            "text": "a & b",
        }
        for number in range(10)
    ]
    folder = folders.write_run(tmp_path / "several", several, settings={"temperature": 2.0})
    page = write_page(folder)
    rows = {row[0]: row[1:] for row in page.find_table("label")}
    assert rows["bill"] == ["100.0%", "100.0%", "100.0%", "10", "10"]
    assert rows["fault"] == ["0.0%", "0.0%", "0.0%", "0", "5"]
    assert "before the calibration: " in page.text
    assert len(page.find_table("example")) == 5


def test_a_pretraining(tmp_path):
    lines = [
        {
            "type": "train",
            "step": step,
            "loss": 9.0 - step,
            "masked_lm_accuracy": step / 10,
            "next_sentence_accuracy": 0.5,
        }
        for step in range(1, 6)
    ]
    start = folders.make_start(script="run_pretraining", flags={"input_file": ["a", "b"]})
    start["records"] = {"bytes": 12_345, "newest": 7}
    del start["training_set"]
    folders.write_lines(tmp_path / "run.jsonl", [start, *lines])
    (tmp_path / "eval_results.txt").write_text("loss = 3.0\nmasked_lm_accuracy = 0.25\n")
    (tmp_path / "task.json").write_text(
        json.dumps({"task_name": "pretraining", "family": "pretraining", "settings": {}})
    )
    page = write_page(tmp_path)
    names = {"training_loss", "training_masked_lm_accuracy", "training_next_sentence_accuracy"}
    assert {f"picture-{name}" for name in names} <= {*page.ids}
    assert ["--input_file", "a,b"] in page.find_table("data")
    assert "The record files have 12,345 bytes together." in page.text
    (tmp_path / "eval_results.txt").unlink()
    text = write_page(tmp_path).text
    assert "Nothing was evaluated at the end." in text
    assert "tables of the predictions" not in text, "a pre-training predicts nothing"


def test_mistakes_are_named_by_line_and_id(tmp_path):
    records = folders.make_predictions(8)
    for number, record in enumerate(records):
        record |= {"line": 2 + 3 * number, "row_id": f"T-{number:03}"}
    page = write_page(folders.write_run(tmp_path, records))
    assert [row[:3] for row in page.find_table("line")] == [
        ["11", "T-003", "ticket 3"],
        ["23", "T-007", "ticket 7"],
    ]


def test_the_command_has_the_flags_that_were_typed(tmp_path):
    typed_flags = {"task_name": "text", "data_dir": "my tickets", "model": "minilm"}
    page = write_page(folders.write_run(tmp_path, typed_flags=typed_flags))
    command = (
        "official-bert run_classifier \\\n  --task_name=text \\\n  '--data_dir=my tickets' \\\n"
        "  --model=minilm \\\n  --random_seed=7"
    )
    assert command in page.text
    assert page.find_table("flag that differs from its default")[-1] == ["--model", "minilm"]


def test_slow_reading_is_named(tmp_path):
    folder = folders.write_run(tmp_path)
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    for line in lines:
        if line["type"] == "end":
            line["read_secs"] = 64.5
    folders.write_lines(folder / "run.jsonl", lines)
    assert (
        "A thread made the batches in 64.5 s: the updates wait for it." in write_page(folder).text
    )


def test_a_training_in_python_is_repeated_in_python(tmp_path):
    typed_flags = {
        "task_name": "text",
        "label_type": "single",
        "text_a_column": "text_a",
        "label_column": "label",
        "do_train": True,
        "do_eval": True,
        "dev_fraction": 0.15,
        "model": "minilm",
        "num_train_epochs": 4.0,
        "output_dir": "my_model",
    }
    page = write_page(folders.write_run(tmp_path, typed_flags=typed_flags, rows_sha256="cccc"))
    call = """Classifier.train(
    'my_model',
    texts,
    labels,
    dev=0.15,
    model='minilm',
    num_train_epochs=4.0,
    random_seed=7,
)"""
    assert call in page.text
