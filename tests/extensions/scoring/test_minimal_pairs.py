"""official-bert evaluate_minimal_pairs: which sentence of a pair has the better score, and what
counts as a pair.
"""

import json
import zipfile

import pytest

from official_bert import Predictor
from official_bert.extensions.scoring import minimal_pairs
from official_bert.extensions.scoring.minimal_pairs import Pair, accuracies, read_pairs
from official_bert.extensions.scoring.predictor import make_scorer
from official_bert.io.errors import InputError
from tests.scripts import end_of, run_here
from tests.serving import exported
from tests.shared import shared

SCRIPT = "evaluate_minimal_pairs"


def format_line(good, bad, paradigm, phenomenon="agreement") -> str:
    """Return a line of a file of pairs."""
    fields = {
        "sentence_good": good,
        "sentence_bad": bad,
        "UID": paradigm,
        "linguistics_term": phenomenon,
    }
    return json.dumps(fields, ensure_ascii=False)


def test_accuracies_by_hand():
    """A tie is half a hit; a phenomenon and the whole are means of paradigms, not of pairs."""
    first_paradigm = Pair("a", "b", "x", "s")
    pairs = [
        first_paradigm,
        first_paradigm,
        first_paradigm,
        first_paradigm,
        Pair("a", "b", "y", "s"),
        Pair("a", "b", "z", "t"),
    ]
    scores = [
        (-1.0, -2.0),
        (-2.0, -1.0),
        (-30.0, -30.00001),
        (-3.0, -4.0),
        (-1.0, -9.0),
        (-9.0, -1.0),
    ]
    assert accuracies(pairs, scores) == [
        ("s", "x", 4, 0.625),
        ("s", "y", 1, 1.0),
        ("t", "z", 1, 0.0),
        ("s", "all", 5, 0.8125),
        ("t", "all", 1, 0.0),
        ("all", "all", 6, pytest.approx(1.625 / 3)),
    ]


def test_the_script_says_what_the_scores_say(tmp_path):
    exported.make_checkpoint(tmp_path / "model", "pretraining")
    data = tmp_path / "data"
    data.mkdir()
    sentences = [
        ("the cat sat", "the sat cat"),
        ("a day in the park", "a day the park in"),
        ("rain", "rain"),
    ]
    lines = [format_line(good, bad, "order") for good, bad in sentences]
    (data / "order.jsonl").write_text("\n".join(lines))
    more_line = format_line("the\u2028mat", "mat the", "more", "x")
    (data / "more.jsonl").write_text(f"{more_line}\n\n", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        for path in data.iterdir():
            archive.write(path, f"data/{path.name}")
        archive.writestr("__MACOSX/._more.jsonl", b"\xff\x00")

    predictor = Predictor(tmp_path / "model")
    num_hits = 0
    for pair in sentences:
        results = predictor.score(list(pair), method="pll")
        good, bad = (result["score"] for result in results)
        num_hits += 0.5 if good == bad else good > bad
    accuracy = num_hits / 3

    for name in ("data", "pairs.zip"):
        run_here(
            SCRIPT,
            f"--model={tmp_path}/model",
            f"--input_file={tmp_path}/{name}",
            "--score=pll",
            f"--output_file={tmp_path}/table.tsv",
        )
        rows = {}
        for row in (tmp_path / "table.tsv").read_text().splitlines():
            _phenomenon, paradigm, numbers = row.split("\t", 2)
            rows[paradigm] = numbers
        assert rows["order"] == f"3\t{accuracy:.4f}"
        assert rows["more"].startswith("1\t")
    assert len(read_pairs(str(data), most=1)) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("{", "order.jsonl: line 1: ", id="no JSON"),
        pytest.param(
            "[]",
            "order.jsonl: line 1: is no object with the texts sentence_good, sentence_bad, UID, "
            "linguistics_term",
            id="no object",
        ),
        pytest.param(
            '{"sentence_good": 1}',
            "is no object with the texts",
            id="number for a text",
        ),
        pytest.param(
            format_line("a", "b", "x").replace("}", ', "UID": "y"}'),
            "an object has a name twice",
            id="a name twice",
        ),
        pytest.param(
            "",
            "holds no pair; name BLiMP.zip, or a folder of such .jsonl files",
            id="no pair",
        ),
        pytest.param(
            format_line("", "a", "x"),
            "sentence_good is blank",
            id="empty sentence",
        ),
        pytest.param(
            format_line("a", " \u3000", "x"),
            "sentence_bad is blank",
            id="blank sentence",
        ),
        pytest.param(
            format_line("a", "b", ""),
            "UID is blank",
            id="empty paradigm",
        ),
        pytest.param(
            format_line("a", "b", "SURROGATE").replace("SURROGATE", r"\ud800"),
            r"UID has '\\ud800', half of a surrogate",
            id="surrogate in the paradigm",
        ),
        pytest.param(
            format_line("a", "SURROGATE", "x").replace("SURROGATE", r"\udfff"),
            "sentence_bad has .*half of a",
            id="surrogate in a sentence",
        ),
    ],
)
def test_bad_pairs_are_named(tmp_path, content, sentence):
    (tmp_path / "order.jsonl").write_text(content)
    with pytest.raises(InputError, match=sentence):
        read_pairs(str(tmp_path))


def test_a_byte_order_mark_is_no_part_of_a_pair(tmp_path):
    line = format_line("a", "b", "x")
    content = f"\ufeff{line}\r\n"
    (tmp_path / "order.jsonl").write_text(content, encoding="utf-8")
    zip_path = tmp_path / "pairs.zip"
    with zipfile.ZipFile(zip_path, "w") as archive:
        archive.writestr("order.jsonl", content)
    for path in (tmp_path, zip_path):
        pairs = read_pairs(str(path))
        assert pairs == [Pair("a", "b", "x", "agreement")]


def test_a_zip_of_other_encodings_is_named(tmp_path):
    zip_path = tmp_path / "pairs.zip"
    with zipfile.ZipFile(zip_path, "w") as archive:
        archive.writestr("order.jsonl", b"\xff")
    with pytest.raises(InputError, match=r"pairs\.zip: order\.jsonl: byte 0 is no UTF-8"):
        read_pairs(str(zip_path))


def test_pairs_whose_difference_the_model_does_not_see_are_counted(tmp_path, caplog):
    """Behind its 126 pieces, and in what the tokenizer drops."""
    exported.make_checkpoint(tmp_path / "model", "pretraining")
    long = "cat " * 130
    lines = [
        format_line(f"{long}sat", f"{long}mat", "x"),
        format_line("the cat", "The  cat", "x"),
        format_line("the cat", "cat the", "x"),
    ]
    (tmp_path / "order.jsonl").write_text("\n".join(lines))
    pairs = read_pairs(str(tmp_path))
    scorer = make_scorer(Predictor(tmp_path / "model"))
    minimal_pairs.warn_about_hidden_differences(pairs, scorer)
    assert f"1 of 3 pairs are cut: the model reads {scorer.most_pieces} pieces" in caplog.text
    assert "2 of 3 pairs have two equal sentences for the model" in caplog.text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("no.zip", "cannot be read as a .zip file", id="no zip file"),
        pytest.param("absent", "absent: no such file", id="absent file"),
    ],
)
def test_bad_files_are_named(tmp_path, name, sentence):
    (tmp_path / "no.zip").write_bytes(b"PK no")
    ended = end_of(SCRIPT, f"--model={tmp_path}", f"--input_file={tmp_path}/{name}")
    assert ended.status == 1
    assert sentence in ended.sentence


@pytest.mark.needs_shared("data/blimp")
def test_blimp_has_its_paradigms():
    pairs = read_pairs(str(shared("data", "blimp", "BLiMP.zip")))
    assert len(pairs) == 67_000
    assert len({pair.paradigm for pair in pairs}) == 67
    assert len({pair.phenomenon for pair in pairs}) == 12
