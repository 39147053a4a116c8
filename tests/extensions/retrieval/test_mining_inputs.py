"""What mining reads as a corpus, which texts it takes for one, and which files in its work
folder it trusts.
"""

import json
import os
import pathlib
import threading

import numpy as np
import pytest

from official_bert.extensions.retrieval import mining
from official_bert.extensions.retrieval.index import Index, write_index
from official_bert.extensions.retrieval.options import MiningOptions
from official_bert.io.errors import InputError
from official_bert.serving.extensible import Extensible

TRAIN = "anchor\tpositive\nthe cat\ta dog\nit was\tthe dog\n"


class Table(Extensible):
    """A model without weights, that reads lower case, as an uncased tokenizer does."""

    methods_hook = "encoder_methods"

    def __init__(self, *_):
        pass

    def encode(self, texts):
        texts = [texts] if isinstance(texts, str) else texts
        vectors = []
        for text in texts:
            words = text.lower().split()
            seed = list(" ".join(words).encode())
            generator = np.random.default_rng(seed)
            vectors.append(generator.normal(size=8))
        return np.float32(vectors).reshape(-1, 8)

    def token_ids(self, text: str) -> tuple[str, ...]:
        words = text.lower().replace("\ufeff", "").split()
        return tuple(words)


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setattr(mining, "Predictor", Table)


@pytest.fixture(autouse=True)
def all_lines(caplog):
    caplog.set_level("INFO", logger="absl")


def mine(
    folder: pathlib.Path,
    pairs: str = TRAIN,
    name: str = "train.tsv",
    **flags,
) -> list[dict]:
    """Return the lines of a run; files are named relative to the folder."""
    if pairs:
        (folder / name).write_text(pairs, encoding="utf-8")
    if "corpus_file" in flags:
        flags["corpus_file"] = str(folder / flags["corpus_file"])
    files = {
        "input_file": str(folder / name),
        "output_file": str(folder / "o.jsonl"),
        "model": str(folder / "no"),
    }
    mining.run(MiningOptions(**files | flags))
    lines = (folder / "o.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def negatives(
    folder: pathlib.Path,
    content: str | None = None,
    name: str = "corpus.txt",
    **flags,
) -> list[set[str]]:
    """Return the negatives of each pair from a corpus."""
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    lines = mine(folder, corpus_file=name, **flags)
    return [set(line["negative"]) for line in lines]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("corpus.txt", "\ufeffrain\n\n  snow \nrain\n"),
        ("corpus", "rain\nsnow"),
        ("corpus.tsv", "text\nrain\nsnow\n"),
        ("corpus.csv", 'id,text\n1,"rain"\n2,snow\n'),
        ("corpus.jsonl", '{"text": "rain"}\n{"text": "snow"}\n'),
        ("corpus.tsv", "query\tanswer\nwhy\train\nhow\tsnow\n"),
        ("corpus.csv", "\ufeffanchor,positive\nwhy,rain\nhow,snow\n"),
        ("corpus.csv", "id,Passage,title\n1,rain,a\n2,snow,b\n"),
        ("corpus.jsonl", '{"document": ["rain", "snow"]}\n'),
    ],
)
def test_a_corpus_is_read_as_what_its_name_says(tmp_path, name, content):
    assert negatives(tmp_path, content, name) == [{"rain", "snow"}] * 2


def test_pairs_in_a_file_of_lines_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"pairs.txt: holds no pair; each line of a .txt file is"):
        mine(tmp_path, name="pairs.txt")
    assert mine(tmp_path, name="pairs.txt", data_format="tsv")


def test_a_corpus_with_unknown_columns_names_those_that_are_read(tmp_path):
    with pytest.raises(
        InputError,
        match=r"corpus.csv: has 3 columns, a, b, c, and none called anchor or .* or text or",
    ):
        negatives(tmp_path, "a,b,c\nrain,1,2\n", "corpus.csv")
    with pytest.raises(
        InputError, match=r"columns passage and document could be positive; rename all but one"
    ):
        negatives(tmp_path, "passage,document\nrain,1\n", "corpus.csv")


def test_the_pairs_are_a_corpus_of_their_positives(tmp_path):
    """Under a second name and with the columns of the flag, too."""
    wanted = [{"the dog"}, {"a dog"}]
    assert negatives(tmp_path, name="train.tsv") == wanted
    renamed = {
        "pairs": TRAIN.replace("anchor", "q").replace("positive", "a"),
        "anchor_column": "q",
        "positive_column": "a",
    }
    assert negatives(tmp_path, name="train.tsv", **renamed) == wanted
    os.link(tmp_path / "train.tsv", tmp_path / "same")
    assert negatives(tmp_path, name="same", **renamed | {"data_format": "tsv"}) == wanted


def test_json_lines_are_no_plain_text(tmp_path, caplog):
    with pytest.raises(InputError, match=r"corpus\.txt: line 1 is a JSON object, and no text"):
        negatives(tmp_path, '{"text": "rain"}\n')
    assert negatives(tmp_path, "{rain\n") == [{"{rain"}] * 2
    assert "has a tab" not in caplog.text
    assert negatives(tmp_path, "rain\tsnow\n") == [{"rain\tsnow"}] * 2
    assert "corpus.txt: line 1 has a tab" in caplog.text


def test_texts_are_compared_by_what_the_tokenizer_reads(tmp_path):
    """Neither a positive nor a negative comes a second time in other letters."""
    corpus = "A Dog\na  dog\nA DOG\nTHE CAT\nThe Dog\nthe  dog\nRain\nrain\nRAIN\n"
    assert negatives(tmp_path, corpus) == [
        {"The Dog", "Rain"},
        {"A Dog", "THE CAT", "Rain"},
    ]
    # Anchors that are one text for the tokenizer have the positives of both.
    pairs = "anchor\tpositive\nthe cat\train\nThe  Cat\tsnow\n"
    assert negatives(tmp_path, "rain\nsnow\nhail\n", pairs=pairs) == [{"hail"}] * 2


def test_texts_of_equal_ids_take_no_place_of_others(tmp_path):
    """All spellings of a positive are nearer than any other text; the search goes on behind
    them.
    """
    articles = ["the", "thE", "tHe", "tHE", "The", "ThE", "THe", "THE"]
    spellings = [f"{article} DOG" for article in articles]
    with_blanks = [f"{text} " for text in spellings]
    corpus = "\n".join([*spellings, *with_blanks, "rain", "snow", "hail"])
    (tmp_path / "corpus.txt").write_text(corpus)
    pairs = TRAIN.replace("a dog", "the dog")
    first, _ = mine(tmp_path, pairs, top_k=2, corpus_file="corpus.txt")
    assert len(first["negative"]) == 2
    for text in first["negative"]:
        assert text.lower() not in ("the dog", "the cat")


def test_blank_and_equal_texts_of_an_index_are_no_negatives(tmp_path):
    texts = ["", "rain", " ", "rain", " rain ", "snow"]
    vectors = Table().encode(texts)
    write_index(str(tmp_path / "corpus.npz"), texts, [vectors])
    assert negatives(tmp_path, name="corpus.npz") == [{"rain", "snow"}] * 2


@pytest.mark.parametrize(
    ("header", "value", "message", "num_lines"),
    [
        pytest.param("label", "0", "1 pairs with label 0 are left out", 2, id="labels"),
        pytest.param("negative", "rain", "3 examples have negatives", 3, id="negatives"),
    ],
)
def test_further_columns_are_warned_of(tmp_path, caplog, header, value, message, num_lines):
    first, second, third = TRAIN.splitlines()
    lines = [
        f"{first}\t{header}",
        f"{second}\t1",
        f"{third}\t1",
        f"the cat\tred car\t{value}",
    ]
    mined = mine(tmp_path, "\n".join(lines))
    assert message in caplog.text
    assert len(mined) == num_lines


@pytest.mark.parametrize("label", ["0.5", "5", "entailment"])
def test_other_labels_are_refused(tmp_path, label):
    with pytest.raises(InputError, match=r"train\.tsv: line 2: .*label"):
        mine(tmp_path, f"anchor\tpositive\tlabel\na\tb\t{label}\n")


def make_work_folder(folder: pathlib.Path) -> pathlib.Path:
    work_folder = folder / ".o.jsonl.mining"
    work_folder.mkdir()
    return work_folder


@pytest.mark.parametrize("name", ["mine/precious", "notes.txt", "lines/x", "run.json/x"])
def test_files_of_others_in_the_work_folder_are_refused(tmp_path, name):
    path = make_work_folder(tmp_path) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    message = r"is in the work folder of --output_file, and no file of mining"
    with pytest.raises(InputError, match=message):
        mine(tmp_path)
    assert path.read_text() == "precious"
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("name", ["lines", "run.json"])
def test_a_link_in_the_work_folder_is_refused(tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = make_work_folder(tmp_path) / name
    link.symlink_to(precious)
    with pytest.raises(InputError, match=f"{name}: is in the work folder"):
        mine(tmp_path)
    assert precious.read_text() == "precious"


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """The folder of a run that ended in its second window, and the lines that it should have
    written.
    """
    monkeypatch.setattr(mining, "WINDOW_BATCHES", 1)
    whole_search = Index.search
    whole = mine(tmp_path, batch_size=1)
    (tmp_path / "o.jsonl").unlink()
    calls = []

    def search(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole_search(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "search", search)
        with pytest.raises(KeyboardInterrupt):
            mine(tmp_path, batch_size=1)
    return tmp_path, whole


HEADERS = [
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff",
    b"[" * 100_000,
    b'{"vector": null}',
    b'{"vector": ["a"]}',
    b'{"vector": {}}',
    b'{"flags": 1, "sha256": 2, "vector": 3}',
]


@pytest.mark.parametrize("content", HEADERS, ids=lambda content: repr(content[:20]))
def test_a_damaged_header_begins_anew(killed, caplog, content):
    folder, whole = killed
    (folder / ".o.jsonl.mining" / "run.json").write_bytes(content)
    assert mine(folder, batch_size=1) == whole
    assert "begins anew" in caplog.text
    assert sorted(path.name for path in folder.iterdir()) == ["o.jsonl", "train.tsv"]


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(None, id="null"),
        pytest.param({}, id="object"),
        pytest.param(["a"] * 8, id="texts"),
        pytest.param([True] * 8, id="truth values"),
        pytest.param([[]] * 8, id="lists"),
        pytest.param([1e999] * 8, id="infinite numbers"),
        pytest.param([0.0], id="another length"),
    ],
)
def test_a_damaged_vector_of_the_header_begins_anew(killed, caplog, vector):
    folder, whole = killed
    path = folder / ".o.jsonl.mining" / "run.json"
    header = json.loads(path.read_text())
    header["vector"] = vector
    path.write_text(json.dumps(header))
    assert mine(folder, batch_size=1) == whole
    assert "begins anew" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 60 + b"\n",
        b"{}\n",
        b"[" * 9999 + b"\n",
        b'{"anchor": "x", "positive": "y", "negative": []}\n',
    ],
    ids=lambda content: repr(content[:20]),
)
def test_lines_of_another_run_are_not_kept(killed, caplog, content):
    folder, whole = killed
    lines = folder / ".o.jsonl.mining" / "lines"
    lines.write_bytes(content)
    caplog.clear()
    assert mine(folder, batch_size=1) == whole
    assert "resumes after 0 lines" in caplog.text


def test_what_the_kill_left_is_continued(killed, caplog):
    folder, whole = killed
    assert mine(folder, batch_size=1) == whole
    assert "resumes after 1 lines" in caplog.text


def test_pairs_through_a_pipe_are_read_once(tmp_path):
    """The digest of the inputs is of what was read, and needs no second writer."""
    pipe = tmp_path / "train.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[TRAIN])
    writer.start()
    first, second = mine(tmp_path, "")
    assert first["negative"] == ["the dog"]
    assert second["negative"] == ["a dog"]
    writer.join()
