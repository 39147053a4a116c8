"""predict with --index and --search: lines become an index, and lines are searched for in it."""

import json

import numpy as np
import pytest

from official_bert import catalog
from official_bert.commands import predict
from official_bert.extensions.retrieval.index import Index
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_without_effect
from official_bert.serving.predictor import Predictor
from tests import toy
from tests.commands.test_predict import answers_to

PredictWithSearch = catalog.options_class("predict")
WORDS = [piece for piece in toy.VOCABULARY if piece.isalpha()]


@pytest.fixture(scope="module")
def vectors_dir(tmp_path_factory) -> str:
    pytest.importorskip("official_bert.extensions.embeddings")
    return str(
        toy.write_sentence_modules(
            toy.make_bert_base_dir(tmp_path_factory.mktemp("vectors") / "model")
        )
    )


def test_lines_become_an_index_that_is_searched(tmp_path, vectors_dir, monkeypatch):
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 2)  # several windows
    texts = [" ".join(words) for words in zip(WORDS[:13], WORDS[13:26], strict=True)]
    (tmp_path / "corpus").write_text("\ufeff" + "\r\n".join(texts))
    index = str(tmp_path / "corpus.npz")
    predict.run(
        PredictWithSearch(
            model=vectors_dir, input_file=str(tmp_path / "corpus"), index=index, batch_size=3
        )
    )
    assert Index.read(index).texts == texts
    predictor = Predictor(vectors_dir)
    np.testing.assert_allclose(Index.read(index).vectors, predictor.encode(texts), atol=1e-6)
    queries = ["the cat", "train noon"]
    data = "\n".join(json.dumps({"id": query, "text_a": query}) for query in queries).encode()
    found = answers_to(tmp_path, vectors_dir, data, search=index, top_k=4, input_format="json")
    assert found == [
        {"id": query, "hits": hits}
        for query, hits in zip(queries, predictor.search(queries, index, 4), strict=True)
    ]
    (answer,) = answers_to(tmp_path, vectors_dir, b"the cat", search=index)
    assert (answer["hits"][:4], len(answer["hits"])) == (found[0]["hits"], 10)
    first, second = answers_to(
        tmp_path, vectors_dir, b"a\tb\nthe cat", search=index, on_error="report"
    )
    assert (first, second) == ({"error": "the model takes 1 text (text_a), 2 given"}, answer)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "in: has no line to embed; give one text a line"),
        (
            b"the cat\n" * 40 + b"a\tb\n",
            r"in: line 41: the model takes 1 text \(text_a\), 2 given; correct it$",
        ),
    ],
)
def test_lines_that_make_no_index_are_named(tmp_path, vectors_dir, data, message):
    (tmp_path / "in").write_bytes(data)
    files = {"input_file": str(tmp_path / "in"), "index": str(tmp_path / "corpus.npz")}
    with pytest.raises(InputError, match=message):
        predict.run(PredictWithSearch(model=vectors_dir, batch_size=1, **files))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_blank_lines_are_no_texts_of_an_index(tmp_path, vectors_dir, monkeypatch, caplog):
    """Also in a window of their own, and an error names the line of the file."""
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 1)
    lines = [{"id": 1, "text_a": "the cat"}, {"text_a": " "}, {"text_a": ""}, {"text_a": "rain"}]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {
        "input_file": str(tmp_path / "in"),
        "index": str(tmp_path / "corpus.npz"),
        "input_format": "json",
    }
    predict.run(PredictWithSearch(model=vectors_dir, batch_size=2, **files))
    index = Index.read(files["index"])
    assert (index.texts, index.vectors.shape) == (["the cat", "rain"], (2, 16))
    assert "in: skipped 2 blank lines; rows count the texts" in caplog.text
    assert "in: an index keeps no ids" in caplog.text
    (tmp_path / "in").write_text("\n\nthe cat\na\tb\n")
    with pytest.raises(InputError, match="in: line 4: the model takes 1 text"):
        predict.run(
            PredictWithSearch(model=vectors_dir, batch_size=1, **files | {"input_format": "tsv"})
        )


def test_the_number_of_hits_has_no_effect_without_a_search():
    options = PredictWithSearch(model="m", top_k=3)
    assert flag_without_effect(options, options) == (
        "--top_k=3: has no effect without --search; add that, or leave the flag out"
    )
    searching = PredictWithSearch(model="m", top_k=3, search="a.npz")
    assert flag_without_effect(searching, searching) is None
