"""Frames of pandas: the Predictor answers their rows, and returns them with its answers."""

import numpy as np
import pytest

from official_bert import ClassificationData, Classifier, InputError, Predictor
from tests.extensions.tables.tickets import COLUMNS, make_rows
from tests.serving import exported

pytestmark = pytest.mark.needs_extra("pandas")


@pytest.fixture(scope="module")
def predictor(tickets):
    return Predictor(tickets.model)


def make_frame(rows, columns=COLUMNS, **arguments):
    import pandas

    return pandas.DataFrame(rows, columns=list(columns), **arguments)


def test_a_frame_gets_the_columns_of_the_answers(predictor):
    frame = make_frame(make_rows(4), index=[7, 5, 3, 1])
    answered = predictor.classify(frame)
    assert list(answered.columns) == [*COLUMNS, "label", "score"]
    assert list(answered.index) == [7, 5, 3, 1]
    texts = frame["Message"].tolist()
    expected = predictor.classify(texts)
    assert answered[["label", "score"]].to_dict("records") == expected
    # The frame of the user is as it was.
    assert list(frame.columns) == list(COLUMNS)

    called = predictor(frame)
    names = ["label", "probability", "probability_cats, dogs", "probability_trains"]
    assert list(called.columns) == [*COLUMNS, *names]
    assert called["probability"].tolist() == answered["score"].tolist()
    # A column, and an array, are lists of texts.
    assert predictor.classify(frame["Message"]) == expected
    assert predictor.classify(np.array(texts)) == expected


def test_every_method_takes_a_frame(tmp_path_factory):
    squad = Predictor(exported.shared_export(tmp_path_factory, "squad").path, max_query_length=8)
    frame = make_frame([["the cat sat on the mat", "who ?", 1]], ["context", "question", "score"])
    answered = squad.answer(frame)
    (row,) = answered.to_dict("records")
    expected = squad.answer("who ?", "the cat sat on the mat")
    assert row["answer"] == expected["answer"]
    assert row["score"] == 1
    assert row["predicted_score"] == expected["score"]

    tagger = Predictor(exported.shared_export(tmp_path_factory, "ner").path)
    frame = make_frame([["the cat"], ["a train left"]], ["text"])
    assert tagger.tag(frame)["entities"].tolist() == tagger.tag(["the cat", "a train left"])


def test_a_model_of_a_frame_knows_its_columns(tickets, tmp_path):
    frame = make_frame(make_rows(16))
    data = ClassificationData.from_frame(frame, text="Message", label="Team")
    model = tickets.model.parent / "base"
    flags = {"max_seq_length": 16, "num_train_epochs": 1, "train_batch_size": 4}
    trained = Classifier.train(tmp_path / "model", data, dev=0.25, model=model, **flags)
    assert list(trained.classify(frame).columns) == [*COLUMNS, "label", "score"]
    # The same call has nothing to train.
    same = Classifier.train(tmp_path / "model", data, dev=0.25, model=model, **flags)
    assert same.classify(frame).equals(trained.classify(frame))


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        pytest.param(
            [["a", "b", "c"]],
            ["x", "y", "z"],
            "^the frame: has 3 columns, x, y, z, and none called text or text_a or sentence or "
            "sentence1; name it so$",
            id="no column of texts",
        ),
        pytest.param(
            [["a", 1], [None, 2]],
            ["text", "n"],
            "^the frame: row 1: text is missing; give it a text$",
            id="a missing text",
        ),
        pytest.param(
            [["a", 1], [float("nan"), 2]],
            ["text", "n"],
            "^the frame: row 1: text is missing",
            id="NaN",
        ),
        pytest.param([["a", "b"]], ["text", "text"], "names a column twice", id="twice"),
        pytest.param([[3]], ["text"], "row 0: text is not a text; give", id="a number"),
    ],
)
def test_frames_that_cannot_be_answered(predictor, rows, columns, message):
    with pytest.raises(InputError, match=message):
        predictor.classify(make_frame(rows, columns))


def test_frames_with_missing_values_and_arrays(predictor):
    import pandas

    frame = make_frame(make_rows(4))
    frame["Channel"] = pandas.array(["mail", None, "phone", None], dtype="string")
    frame["day"] = pandas.to_datetime(["2026-01-02", None, None, "2026-01-03"])
    frame["vector"] = [np.zeros(2), np.ones(3), np.array([np.nan]), None]
    frame["set"] = [{"a"}, None, pandas.NA, pandas.Series([1, 2])]
    answered = predictor.classify(frame)
    expected = predictor.classify(frame["Message"].tolist())
    assert answered[["label", "score"]].to_dict("records") == expected
    assert answered["vector"][1] is frame["vector"][1]

    frame["Message"] = pandas.array([*frame["Message"][:3], pandas.NA], dtype="string")
    with pytest.raises(InputError, match=r"^the frame: row 3: Message is missing; give"):
        predictor.classify(frame)


def test_labels_that_pandas_lacks(tmp_path):
    import pandas

    frame = make_frame(make_rows(4))
    frame["Team"] = pandas.array(["a", None, "b", "a"], dtype="string")
    data = ClassificationData.from_frame(frame, text="Message", label="Team")
    assert data.labels == ["a", None, "b", "a"]
    frame["spam"] = pandas.array([1, 0, pandas.NA, 0], dtype="Int64")
    with pytest.raises(InputError, match=r"^label: row 2: the column spam has None; give columns"):
        ClassificationData.from_frame(frame, text="Message", label=["spam"])


def test_truncated_texts_are_told(predictor, caplog):
    long_text = "the cat " * 40
    answers = predictor([long_text, "the cat"])
    assert [answer.get("truncated") for answer in answers] == [True, None]
    assert predictor.classify(long_text).keys() == {"label", "score", "truncated"}
    assert predictor.classify("the cat").keys() == {"label", "score"}
    # Once for a Predictor.
    (warning,) = [text for text in caplog.messages if "truncated" in text]
    assert warning.endswith(
        "the model reads 24 tokens, and texts are longer; their answers have truncated=True"
    )
