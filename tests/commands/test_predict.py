"""official-bert predict's answers to lines: their order, immediate answers, lines that are no
requests, what a pipe sees.
"""

import json
import os
import pathlib
import subprocess
import threading
import types

import numpy as np
import pytest

from official_bert import catalog
from official_bert.commands import predict
from official_bert.io.errors import InputError
from official_bert.options.serving import PredictOptions
from official_bert.serving.predictor import Predictor
from tests import toy
from tests.scripts import command_line, flag_list, forked_python
from tests.serving import exported
from tests.shared import ROOT

WORDS = [piece for piece in toy.VOCABULARY if piece.isalpha()]


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.fixture(scope="module")
def tags_dir(tmp_path_factory) -> str:
    return str(exported.shared_export(tmp_path_factory, "ner").path)


@pytest.fixture(scope="module")
def squad_dir(tmp_path_factory) -> str:
    return str(exported.shared_export(tmp_path_factory, "squad").path.parent)


def answers_to(tmp_path: pathlib.Path, model_dir: str, data: bytes, **others) -> list[dict]:
    (tmp_path / "in").write_bytes(data)
    files = {
        "input_file": str(tmp_path / "in"),
        "output_file": str(tmp_path / "out"),
    }
    options_class = catalog.options_class("predict")
    predict.run(options_class(model=model_dir, **files | others))
    lines = (tmp_path / "out").read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [json.loads(line) for line in lines]


def words(answer: dict) -> list[str]:
    return [found["word"] for found in answer["tags"]]


def test_every_line_has_its_answer_in_its_place(tmp_path, tags_dir, monkeypatch):
    # There are several windows.
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 2)
    draws = np.random.default_rng(1)
    lengths = draws.integers(0, 80, 50)
    texts = [" ".join(draws.choice(WORDS, length)) for length in lengths]
    data = "\ufeff" + "\r\n".join([*texts, "naïve\u2028cat"])
    answers = answers_to(
        tmp_path,
        tags_dir,
        data.encode(),
        batch_size=8,
        pre_tokenized=True,
    )
    *first_answers, last_answer = answers
    assert [words(answer) for answer in first_answers] == [text.split() for text in texts]
    assert words(last_answer) == ["naïve\u2028cat"]
    predictor = Predictor(tags_dir, pre_tokenized=True)
    assert answers == list(predictor.answers([*texts, "naïve\u2028cat"]))
    assert "naïve".encode() in (tmp_path / "out").read_bytes()


def test_json_texts_may_hold_tabs_and_line_ends(tmp_path, squad_dir):
    request = {"id": 7, "context": "the cat\tsat\non the mat", "question": "who ?"}
    # In any case, as the columns of tables.
    named = {
        "id": 7,
        "Context": request["context"],
        " QUESTION": "who ?",
    }
    lines = "\n".join(map(json.dumps, (request, named))).encode()
    answer, same = answers_to(
        tmp_path,
        squad_dir,
        lines,
        input_format="json",
        max_query_length=8,
    )
    assert same == answer
    cut = request["context"][answer["start"] : answer["end"]]
    assert answer["answer"] == " ".join(cut.split())
    assert answer["id"] == 7
    assert "truncated" not in answer


def test_an_id_and_a_cut_are_told(tmp_path, squad_dir):
    good = {
        "question": "who ? " * 5,
        "context": "the cat",
        "id": {"of": ["any", 3, None]},
    }
    lines = [
        good,
        {"question": "who ?", "id": "x"},
        {"question": "who ?", "context": "the cat"},
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    flags = {"input_format": "json", "on_error": "report", "max_query_length": 8}
    first, second, third = answers_to(tmp_path, squad_dir, data, **flags)
    assert first["id"] == good["id"]
    assert first["truncated"] is True
    assert second == {"id": "x", "error": "the fields context are missing"}
    assert third.keys() == {"answer", "start", "end", "score", "probability"}
    (answer,) = answers_to(
        tmp_path, squad_dir, (good["question"] + "\tthe cat").encode(), max_query_length=8
    )
    assert {"id": good["id"]} | answer == first


def test_fields_that_are_not_read_are_named_once(tmp_path, squad_dir, caplog):
    good = {"id": 1, "question": "who ?", "Context": "the cat"}
    requests = [
        good,
        good | {"Answer": "cat", "title": "x"},
        good | {"title": "y"},
    ]
    answers_to(
        tmp_path,
        squad_dir,
        "\n".join(map(json.dumps, requests)).encode(),
        input_format="json",
        max_query_length=8,
    )
    warnings = [message for message in caplog.messages if "Ignoring the fields" in message]
    known = "a request has question, context, id"
    assert warnings == [
        f"{tmp_path}/in: line 2: Ignoring the fields Answer, title, here and in later lines; "
        f"{known}"
    ]


def test_a_second_text_that_a_model_does_not_read_is_refused():
    predictor = types.SimpleNamespace(columns=("text_a",), num_required=1)
    assert predict.read_texts(
        {
            "Text_A": "a",
            "text_b": None,
            "label": "x",
        },
        predictor,
    ) == ["a"]
    with pytest.raises(InputError, match=r"^the model reads text_a alone; leave text_b out$"):
        predict.read_texts({"text_a": "a", "Text_B": "b"}, predictor)


BAD_JSON = [
    (b"", "no JSON (Expecting value: line 1 column 1 (char 0))"),
    (b"[" * 100000, "no JSON (maximum recursion depth exceeded"),
    (b'["who ?"]', "no JSON object; give one with the fields question, context"),
    (b'{"question": "who ?"}', "the fields context are missing"),
    (
        b'{"question": "a", "Question": "b", "context": "a"}',
        "two fields are called question, in any case; keep one",
    ),
    (b'{"question": "who ?", "context": ["a"]}', "the field context is no text"),
    (
        b'{"question": "\\ud800", "context": "a"}',
        r"the field question has '\ud800', half of a surrogate pair",
    ),
    (
        b'{"question": "a", "context": "a", "question": "b"}',
        "no JSON (an object has a name twice)",
    ),
    (b'{"question": 3, "context": "a"}', "the field question is no text"),
    (
        b'{"question": "a", "context": "a", "id": ["\\ud800"]}',
        "the field id has NaN, Infinity or half of a",
    ),
    (
        b'{"question": "a", "context": "a", "id": NaN}',
        "the field id has NaN, Infinity or half of a",
    ),
    (b"\xff", "byte 1 is no UTF-8"),
]
BAD_TSV = [
    (b"", "the model takes 2 texts (question, context), 1 given"),
    (b"who ?\tthe c\xe4t", "byte 12 is no UTF-8"),
]


@pytest.mark.parametrize(
    ("input_format", "good", "bad"),
    [
        ("json", b'{"question": "who ?", "context": "the cat"}', BAD_JSON),
        ("tsv", b"who ?\tthe cat", BAD_TSV),
    ],
)
def test_a_bad_line_is_reported_in_its_place(tmp_path, squad_dir, input_format, good, bad):
    lines = [part for line, _ in bad for part in (good, line)]
    flags = {"input_format": input_format, "on_error": "report", "max_query_length": 8}
    answers = answers_to(
        tmp_path,
        squad_dir,
        b"\n".join([*lines, good]),
        **flags,
    )
    for (_, sentence), answer in zip(bad, answers[1::2], strict=True):
        assert answer.keys() == {"error"}
        assert answer["error"].startswith(sentence)
    assert len({json.dumps(answer) for answer in answers[::2]}) == 1
    assert answers[0].keys() == {"answer", "start", "end", "score", "probability"}


def test_a_bad_line_stops_the_job_behind_the_answers_before_it(tmp_path, squad_dir, capfdbinary):
    sentence = r"in: line 2: the model takes 2 texts \(question, context\), 1 given; correct it, or give --on_error"
    data = b"who ?\tthe cat\nwho ?\nwho ?\tthe cat\n"
    with pytest.raises(InputError, match=sentence):
        answers_to(tmp_path, squad_dir, data, max_query_length=8)
    assert [path.name for path in tmp_path.iterdir()] == ["in"], "no half of an output file"
    with pytest.raises(InputError, match=sentence):
        answers_to(tmp_path, squad_dir, data, max_query_length=8, output_file="-")
    (line,) = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line)["answer"]


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory) -> str:
    """A pre-trained model, which answers single texts."""
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("base") / "model"))


def test_json_lines_that_are_read_as_texts_are_warned_of(tmp_path, base_dir, caplog):
    answers_to(tmp_path, base_dir, b"{not JSON\n{}")
    assert "JSON object" not in caplog.text
    answers_to(tmp_path, base_dir, b'\xef\xbb\xbf{"text": "a dog"}\n')
    assert (
        "line 1 is a JSON object and is read as a text; --input_format=json reads its fields"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        pytest.param(
            "in",
            "Text",
            "line 1 is read as a text and may be the names of columns; leave it out",
            id="name of a column",
        ),
        pytest.param(
            "in",
            "text_a\tsentence2",
            "line 1 is read as a text and may be the names",
            id="names of two columns",
        ),
        pytest.param(
            "in.csv",
            '"a dog",x',
            "each line is read as a text, with its quotes; leave --input_format out to read a table",
            id="CSV",
        ),
        pytest.param("in", "a text", None, id="text"),
        pytest.param("in", "", None, id="empty line"),
    ],
)
def test_tables_that_are_read_as_texts_are_warned_of(name, line, message, caplog):
    options = PredictOptions(model="m", input_file=name)
    predict.warn_about_other_format(
        line.encode(),
        ("text_a", "text_b"),
        options,
    )
    if message is None:
        assert caplog.messages == []
    else:
        (warning,) = caplog.messages
        assert f"{name}: {message}" in warning


def read_from_pipe(writes: list[bytes], max_lines: int) -> list[list[bytes]]:
    """Returns the lines that `read_available_lines` yields from a pipe; each write waits for the
    lines before it.
    """
    reading, writing = os.pipe()
    handed_on = threading.Event()

    def write():
        with open(writing, "wb", buffering=0) as file:
            for data in writes:
                file.write(data)
                if data.endswith(b"\n"):
                    assert handed_on.wait(timeout=30)
                    handed_on.clear()

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    with open(reading, "rb") as file:
        for lines in predict.read_available_lines(file, max_lines):
            found.append(list(lines))
            handed_on.set()
    writer.join()
    return found


def test_lines_of_a_pipe_are_handed_on_when_they_are_there():
    # A test that waits for more than is there never ends.
    assert read_from_pipe([b"a\n", b"b\nc\n", b"d", b"e\n", b"f"], max_lines=9) == [
        [b"a"],
        [b"b", b"c"],
        [b"de"],
        [b"f"],
    ]


def start(tags_dir, *others: str) -> subprocess.Popen:
    command = [
        forked_python(),
        *command_line("predict"),
        *flag_list(model=tags_dir),
        *others,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def ask(process: subprocess.Popen, line: str) -> dict:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_line_is_answered_before_the_next_one_is_there(tags_dir):
    process = start(tags_dir, "--on_error=report")
    first = ask(process, "the cat")
    assert words(first) == ["the", "cat"]
    assert ask(process, "the\tcat") == {"error": "the model takes 1 text (text), 2 given"}
    assert ask(process, "the cat") == first
    rest, log = process.communicate()
    assert rest == ""
    assert process.returncode == 0
    devices, warning = log.splitlines()
    assert devices.endswith("Devices: /device:CPU:0; strategy one_device, number of replicas 1")
    assert warning.endswith("standard input: 1 of 3 lines are no requests")


def test_a_reader_that_leaves_ends_the_job_quietly(tags_dir, tmp_path):
    (tmp_path / "in.txt").write_text("the cat\n" * 20000)
    process = start(tags_dir, f"--input_file={tmp_path / 'in.txt'}")
    assert words(json.loads(process.stdout.readline())) == ["the", "cat"]
    process.stdout.close()
    (devices,) = process.stderr.read().splitlines()
    assert "Devices: " in devices
    assert process.wait(timeout=60) == 0
