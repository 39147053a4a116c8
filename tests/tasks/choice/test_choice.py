import json

import numpy as np
import pytest

from official_bert.data.model_inputs import ModelInputs
from official_bert.io.errors import InputError
from official_bert.tasks.base import DataFiles
from official_bert.tasks.choice.examples import (
    ChoiceExample,
    EncodedChoices,
    encoded_choices,
    read_codah,
    read_swag,
)
from official_bert.tasks.choice.task import ChoiceTask
from tests.tasks.classification.test_task import FixedModel

HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
SWAG_ROW = "0,v,1,s,a,b,g,w,x,y,z"
LOGITS = np.float32([[2.0, -1.0, 0.5, 0.0], [0.0, 0.0, 3.0, 1.0]])
OF_CODAH = (
    "instead of 7: category, stem, ending 0, ending 1, ending 2, ending 3, answer; correct the row"
)
OF_UNLABELLED = "instead of 6: category, stem, ending 0, ending 1, ending 2, ending 3; correct"
COMPLETE = "complete the row, and put texts with commas into quotes"


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> str:
        path = tmp_path / "file"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


def test_swag(write):
    row = '0,v,1,"A cat sat. It","A cat, sat.",It,gold,"purrs, ""loud"".",b,c,d'
    path = write(f"{HEADER},label\n{row},2\n")
    choices = ('It purrs, "loud".', "It b", "It c", "It d")
    assert read_swag(path, "train") == [ChoiceExample("train-1", "A cat, sat.", choices, 2)]
    assert read_swag(write(f"{HEADER.title()},Label\n{row},2\n"), "train")[0].label == 2
    assert read_swag(write(f"{HEADER}\n{row}\n"), "test", labelled=False) == [
        ChoiceExample("test-1", "A cat, sat.", choices, None)
    ]


@pytest.mark.parametrize(
    ("labels", "warning"),
    [
        (
            [1, 2, 3] * 7,
            "no example has the label 0, the first ending; subtract 1 from labels that",
        ),
        ([1, 2, 3], None),
        ([2, 2], "all 2 examples have the label 2"),
        ([0, 1] * 10, None),
    ],
)
def test_labels_that_count_from_1_or_are_all_equal(write, caplog, labels, warning):
    rows = "".join(f"0,v,1,s,a,b,gold,p,q,r,s,{label}\n" for label in labels)
    path = write(f"{HEADER},label\n{rows}")
    ChoiceTask().read(DataFiles(named={"train": path}), "train")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.startswith(f"{path}: {warning}") for text in warnings] == [True] * bool(warning)


def test_swag_as_json_lines(tmp_path):
    """Labels are numbers or texts; columns that SWAG lacks do not count."""
    texts = {"sent1": "A cat, sat.", "sent2": "It"} | {f"ending{k}": "abcd"[k] for k in range(4)}
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"label": label, "id": [1], **texts}) + "\n" for label in (2, "3"))
    )
    expected = [("A cat, sat.", ("It a", "It b", "It c", "It d"), label) for label in (2, 3)]
    assert [example[1:] for example in read_swag(str(path), "train")] == expected
    assert [example[1:] for example in read_swag(f"{path},{path}", "train")] == expected * 2
    for changes, message in (
        ({"ending1": ["b"]}, "line 1: ending1 is not a text; give it a text"),
        ({"label": -1}, "line 1: has the label '-1', which is none of 0 to 3"),
        ({"label": None}, "line 1: has the label '', which is none of 0 to 3"),
    ):
        path.write_text(json.dumps({"label": 0, **texts, **changes}))
        with pytest.raises(InputError, match=f"^{path}: {message}"):
            read_swag(str(path), "train")
    path.write_text(json.dumps(texts))
    with pytest.raises(
        InputError, match=f"^{path}: has no column label; its first row must name SWAG's columns"
    ):
        read_swag(str(path), "train")


def test_codah(write):
    row = "i\tI am\ta\tb\tc\td"
    example = ChoiceExample("dev-0", "I am", ("a", "b", "c", "d"), 3)
    assert read_codah(write(f"{row}\t3\n"), "dev") == [example]
    for text in (f"{row}\n", f"{row}\t3\n"):
        assert read_codah(write(text), "dev", labelled=False) == [example._replace(label=None)]


@pytest.mark.parametrize(
    ("read", "labelled", "text", "message"),
    [
        (
            read_swag,
            True,
            f"{HEADER}\n",
            "has no column label; its first row must name SWAG's columns",
        ),
        (read_swag, True, f"{HEADER},label\n", "holds no example"),
        (
            read_swag,
            True,
            f"{HEADER},label\n{SWAG_ROW},4\n",
            "line 2: has the label '4', which is none of 0 to 3",
        ),
        (
            read_swag,
            True,
            f"{HEADER},label\n{SWAG_ROW}\n",
            f"line 2: has 11 columns and the header 12; {COMPLETE}",
        ),
        (read_swag, False, f"{HEADER}\n{SWAG_ROW},3\n", "line 2: has 12 columns and the header 11"),
        (
            read_swag,
            True,
            f"{HEADER},label,ending1\n",
            "names the column ending1 twice; name each column once",
        ),
        (
            read_swag,
            True,
            f"{HEADER},label,Label\n",
            "names the column label twice; name each column once",
        ),
        (
            read_swag,
            True,
            f"{HEADER},ending4,label\n",
            "has the column ending4, but there are 4 choices; keep ending0 to ending3",
        ),
        (read_codah, True, "i\ts\ta\tb\tc\td\n", f"line 1: has 6 columns {OF_CODAH}"),
        (
            read_codah,
            True,
            "i\ts\ta\tb\tc\td\tx\n",
            "line 1: has the label 'x', which is none of 0 to 3",
        ),
        (read_codah, False, "i\ts\ta\tb\tc\n", f"line 1: has 5 columns {OF_CODAH}"),
        (
            read_codah,
            False,
            "i\ts\ta\tb\tc\t3\n",
            "line 1: has the answer 3 instead of an ending; give it 4",
        ),
        (
            read_codah,
            False,
            "i\ts\ta\tb\tc\td\ni\ts\ta\tb\tc\tc\td\n",
            f"line 2: has 7 columns {OF_UNLABELLED}",
        ),
    ],
)
def test_files_that_cannot_be_used(write, read, labelled, text, message):
    path = write(text)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        read(path, "train", labelled=labelled)


def test_every_choice_stands_behind_its_context(tokenizer):
    examples = [
        ChoiceExample("a", "the cat", ("sat", "was a sunny day", "", "rain"), 1),
        ChoiceExample("b", "it", ("a", "a", "a", "his hand"), None),
    ]
    encoded = encoded_choices(examples, 7, tokenizer)
    assert (len(encoded), encoded.lengths.tolist(), encoded.label_ids.tolist()) == (
        2,
        [7, 6],
        [1, 0],
    )
    batch = encoded.features(np.array([1, 0]), 7)
    pieces = [
        [" ".join(tokenizer.convert_ids_to_tokens(row)) for row in rows]
        for rows in batch["input_ids"].tolist()
    ]
    assert pieces == [
        ["[CLS] it [SEP] a [SEP] [PAD] [PAD]"] * 3 + ["[CLS] it [SEP] his hand [SEP] [PAD]"],
        [
            "[CLS] the cat [SEP] sat [SEP] [PAD]",
            "[CLS] the cat [SEP] was a [SEP]",  # the longer text is cut, from its end
            "[CLS] the cat [SEP] [PAD] [PAD] [PAD]",
            "[CLS] the cat [SEP] rain [SEP] [PAD]",
        ],
    ]
    assert batch["segment_ids"][1].tolist() == [
        [0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1],
        [0] * 7,
        [0, 0, 0, 0, 1, 1, 0],
    ]
    assert batch["input_mask"][0].sum(axis=1).tolist() == [5, 5, 5, 6]
    assert batch["label_ids"].tolist() == [0, 1]


def test_a_softmax_over_the_choices():
    batch = {"label_ids": np.int32([0, 3])}
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    expected = -np.log(softmax[[0, 1], [0, 3]])
    np.testing.assert_allclose(ChoiceTask().losses(FixedModel(LOGITS), batch), expected, rtol=1e-6)
    np.testing.assert_array_equal(ChoiceTask().weights(batch), [1.0, 1.0])
    outputs = {
        name: np.asarray(value)
        for name, value in ChoiceTask().outputs(FixedModel(LOGITS), batch).items()
    }
    np.testing.assert_allclose(outputs["probabilities"], softmax, rtol=1e-6)
    np.testing.assert_allclose(outputs["loss"], expected, rtol=1e-6)
    encoded = EncodedChoices(ModelInputs([([1], 1)] * 8), batch["label_ids"])
    assert ChoiceTask().metrics(encoded, outputs) == {"eval_accuracy": 0.5}


def test_probabilities_are_written_a_line_an_example(tmp_path):
    probabilities = np.float32([[0.5, 0.25, 0.125, 0.125]])
    assert (
        ChoiceTask().write_predictions(str(tmp_path), None, {"probabilities": probabilities})
        is None
    )
    assert (tmp_path / "test_results.tsv").read_text() == "0.5\t0.25\t0.125\t0.125\n"
