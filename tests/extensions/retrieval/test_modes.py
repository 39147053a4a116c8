"""predict with --index and --search: lines become an index, and lines are searched for in it."""

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
    folder = tmp_path_factory.mktemp("vectors")
    model = toy.make_bert_base_dir(folder / "model")
    return str(toy.write_sentence_modules(model))


def make_index(model: str, input_file, index_file, **flags):
    """Make an index of the lines of a file."""
    options = PredictWithSearch(
        model=model,
        input_file=str(input_file),
        index=str(index_file),
        **flags,
    )
    predict.run(options)


def test_lines_become_an_index_that_is_searched(tmp_path, vectors_dir, monkeypatch):
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 2)  # several windows
    pairs = zip(WORDS[:13], WORDS[13:26], strict=True)
    texts = [f"{first} {second}" for first, second in pairs]
    lines = "\r\n".join(texts)
    corpus = tmp_path / "corpus"
    corpus.write_text(f"\ufeff{lines}")
    index_file = str(tmp_path / "corpus.npz")
    make_index(vectors_dir, corpus, index_file, batch_size=3)

    index = Index.read(index_file)
    assert index.texts == texts
    predictor = Predictor(vectors_dir)
    vectors = predictor.encode(texts)
    np.testing.assert_allclose(index.vectors, vectors, atol=1e-6)

    # Queries with ids.
    cat_hits, train_hits = predictor.search(["the cat", "train noon"], index_file, 4)
    queries = b"""\
{"id": "cat", "text_a": "the cat"}
{"id": "train", "text_a": "train noon"}
"""
    answers = answers_to(
        tmp_path,
        vectors_dir,
        queries,
        search=index_file,
        top_k=4,
        input_format="json",
    )
    assert answers == [
        {"id": "cat", "hits": cat_hits},
        {"id": "train", "hits": train_hits},
    ]

    # By default there are ten hits.
    (answer,) = answers_to(tmp_path, vectors_dir, b"the cat", search=index_file)
    assert answer["hits"][:4] == cat_hits
    assert len(answer["hits"]) == 10

    answers = answers_to(
        tmp_path,
        vectors_dir,
        b"a\tb\nthe cat",
        search=index_file,
        on_error="report",
    )
    assert answers == [
        {"error": "the model takes 1 text (text_a), 2 given"},
        answer,
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            b"",
            "in: has no line to embed; give one text a line",
            id="no line",
        ),
        pytest.param(
            b"the cat\n" * 40 + b"a\tb\n",
            r"in: line 41: the model takes 1 text \(text_a\), 2 given; correct it$",
            id="a pair",
        ),
    ],
)
def test_lines_that_make_no_index_are_named(tmp_path, vectors_dir, data, message):
    input_file = tmp_path / "in"
    input_file.write_bytes(data)
    with pytest.raises(InputError, match=message):
        make_index(vectors_dir, input_file, tmp_path / "corpus.npz", batch_size=1)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_blank_lines_are_no_texts_of_an_index(tmp_path, vectors_dir, monkeypatch, caplog):
    """Also in a window of their own, and an error names the line of the file."""
    monkeypatch.setattr(predict, "WINDOW_BATCHES", 1)
    input_file = tmp_path / "in"
    index_file = str(tmp_path / "corpus.npz")
    input_file.write_text("""\
{"id": 1, "text_a": "the cat"}
{"text_a": " "}
{"text_a": ""}
{"text_a": "rain"}
""")
    make_index(vectors_dir, input_file, index_file, batch_size=2, input_format="json")

    index = Index.read(index_file)
    assert index.texts == ["the cat", "rain"]
    assert index.vectors.shape == (2, 16)
    assert "in: skipped 2 blank lines; rows count the texts" in caplog.text
    assert "in: an index keeps no ids" in caplog.text

    input_file.write_text("\n\nthe cat\na\tb\n")
    with pytest.raises(InputError, match="in: line 4: the model takes 1 text"):
        make_index(vectors_dir, input_file, index_file, batch_size=1, input_format="tsv")


def test_the_number_of_hits_has_no_effect_without_a_search():
    options = PredictWithSearch(model="m", top_k=3)
    assert flag_without_effect(options, options) == (
        "--top_k=3: has no effect without --search or --token_search; add that, or leave the flag out"
    )
    searching = PredictWithSearch(model="m", top_k=3, search="a.npz")
    assert flag_without_effect(searching, searching) is None
