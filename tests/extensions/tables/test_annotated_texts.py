"""Texts with marked entities for run_ner.py, as Doccano, spaCy and Label Studio write them."""

import json

import pytest

from official_bert import InputError
from official_bert.extensions.tables.annotated_texts import read_marked
from tests.scripts import flag_list, run_here

TEXT = "Anna saw (New York)."
MARKS = [[0, 4, "PER"], [10, 18, "LOC"]]
TAGS = "B-PER O O B-LOC I-LOC O O"
WORDS = ["Anna", "saw", "(", "New", "York", ")", "."]


def as_objects(start: str, end: str, label: str, wrap=lambda one: one) -> list[dict]:
    return [{start: mark[0], end: mark[1], label: wrap(mark[2])} for mark in MARKS]


def as_task(result: list[dict], **data) -> dict:
    """A task of Label Studio."""
    choice = {"type": "choices", "value": {"choices": ["good"]}}
    labels = [{"type": "labels", "value": value} for value in result]
    return {"id": 3, "data": data, "annotations": [{"result": [choice, *labels]}]}


LABELS = as_objects("start", "end", "labels", lambda one: [one])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("a.jsonl", {"text": TEXT, "label": MARKS}, id="Doccano"),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "entities": as_objects("start_offset", "end_offset", "label")},
            id="Doccano with relations",
        ),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "tokens": [{}], "spans": as_objects("start", "end", "label")},
            id="Prodigy",
        ),
        pytest.param(
            "a.json",
            [{"text": TEXT, "ents": as_objects("start", "end", "label")}],
            id="spaCy's Doc",
        ),
        pytest.param("a.json", [[TEXT, {"entities": MARKS}]], id="spaCy's training data"),
        pytest.param("a.json", [as_task(LABELS, text=TEXT, n=3)], id="Label Studio"),
        pytest.param("a.json", [as_task(LABELS, body=TEXT)], id="Label Studio, another name"),
        pytest.param("a.json", [{"text": TEXT, "label": LABELS}], id="Label Studio, JSON-MIN"),
    ],
)
def test_every_tool(name, value, tmp_path):
    (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    read = read_marked(str(tmp_path / name), labelled=True)
    (sentence,) = read.sentences
    assert sentence.words == WORDS
    assert sentence.tags == TAGS.split()
    assert [columns[-1] for columns in sentence.columns] == TAGS.split()
    assert read.scheme == "IOB2"
    # A test set has words alone.
    (sentence,) = read_marked(str(tmp_path / name), labelled=False).sentences
    assert sentence.columns == [[word] for word in WORDS]


def test_offsets_within_words_and_texts_without_entities(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    texts = [
        {"text": "an-nas  北京", "label": [[3, 5, "X"], [8, 9, "LOC"]]},
        {"text": "no one", "label": []},
        {"text": " ", "label": []},
    ]
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    first, second = read_marked(str(path), labelled=True).sentences
    assert first.words == ["an", "-", "nas", "北", "京"]
    assert first.tags == ["O", "O", "B-X", "B-LOC", "O"]
    assert second.tags == ["O", "O"]
    assert "1 entities begin or end inside a word" in caplog.text


def test_rejected_answers_of_prodigy_are_left_out(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "a.jsonl"
    spans = as_objects("start", "end", "label")
    texts = [
        {"text": f"{TEXT} {answer}", "spans": spans, "answer": answer}
        for answer in ("reject", "accept", "ignore")
    ]
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    (sentence,) = read_marked(str(path), labelled=True).sentences
    assert sentence.words == [*WORDS, "accept"]
    assert "a.jsonl: Leaving out 2 texts whose annotation was rejected or cancelled" in caplog.text
    # Predictions need no annotation.
    assert len(read_marked(str(path), labelled=False).sentences) == 3


def test_cancelled_annotations_of_label_studio_are_left_out(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    cancelled = {"was_cancelled": True, "result": []}
    skipped, replaced = as_task(LABELS, text="one two"), as_task(LABELS, text=TEXT)
    skipped["annotations"] = [cancelled, cancelled]
    replaced["annotations"].insert(0, cancelled)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([skipped, replaced]))
    (sentence,) = read_marked(str(path), labelled=True).sentences
    assert (sentence.words, sentence.tags) == (WORDS, TAGS.split())
    assert "Leaving out 1 texts" in caplog.text
    assert len(read_marked(str(path), labelled=False).sentences) == 2


@pytest.mark.parametrize("name", ["a.conll", "a.parquet", "a.txt"])
def test_other_files_are_those_of_the_core(name, tmp_path):
    assert read_marked(str(tmp_path / name), labelled=True) is None
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a"], "ner_tags": ["O"]}\n')
    assert read_marked(str(tmp_path / "a.jsonl"), labelled=True) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param(
            "a.jsonl",
            {"text": TEXT},
            "line 1: has no entities; give the text one of the fields entities, spans, ents",
            id="no entities",
        ),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "label": [[0, 99, "PER"]]},
            "line 1: an entity goes from 0 to 99, and the text has 20 characters; correct it",
            id="beyond the text",
        ),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "label": [[4, 4, "PER"]]},
            "line 1: an entity goes from 4 to 4",
            id="empty",
        ),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "label": [[0, 8, "A"], [5, 9, "B"]]},
            r"line 1: the entities 'Anna saw' and 'saw ' overlap; leave one of them out",
            id="overlapping",
        ),
        pytest.param(
            "a.jsonl",
            {"text": TEXT, "label": [[0, 4, "first name"]]},
            r"line 1: the entity \[0, 4, \"first name\"\] has another form",
            id="a type with a blank",
        ),
        pytest.param(
            "a.jsonl", {"text": TEXT, "label": ["PER"]}, "line 1: the entity", id="a text"
        ),
        pytest.param("a.jsonl", {"text": TEXT, "label": "PER"}, "line 1", id="no list"),
        pytest.param(
            "a.jsonl", {"text": 3, "label": []}, 'line 1: "text" is not a text', id="no text"
        ),
        pytest.param(
            "a.json",
            {"text": TEXT},
            "is no list of texts; export the texts of Label Studio or spaCy as one list",
            id="no array",
        ),
        pytest.param("a.json", [["a"]], "text 1: is no pair of a text and", id="half a pair"),
        pytest.param("a.json", [], "holds no example", id="nothing"),
        pytest.param(
            "a.json", [{"data": {"a": "x", "b": "y"}}], "text 1: data has no field text", id="two"
        ),
    ],
)
def test_files_that_cannot_be_used(name, value, message, tmp_path):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        read_marked(str(path), labelled=True)


def test_run_ner_trains_on_marked_texts(base, tmp_path):
    texts = [{"text": "the cat sat.", "label": [[4, 7, "X"]]}, {"text": "it was.", "label": []}]
    lines = "".join(json.dumps(text) + "\n" for text in texts * 8)
    (tmp_path / "train.jsonl").write_text(lines)
    (tmp_path / "dev.json").write_text(json.dumps(texts))
    flags = {"data_dir": tmp_path, "model": base, "output_dir": tmp_path / "out"}
    log = run_here(
        "run_ner.py",
        "--do_train",
        "--do_eval",
        *flag_list(**flags, num_train_epochs=1, train_batch_size=8, max_seq_length=16),
    ).stderr
    assert "Reading texts with marked entities" in log
    assert (tmp_path / "out" / "labels.txt").read_text() == "O\nB-X\nI-X\n"
    assert "eval_f1 = " in (tmp_path / "out" / "eval_results.txt").read_text()
