"""Hard negatives against a plain search by numpy; a run that was killed ends with the bytes of
one that was not.
"""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest

from official_bert import catalog
from official_bert.commands import predict
from official_bert.extensions.retrieval import mining
from official_bert.extensions.retrieval.options import MiningOptions
from official_bert.serving.predictor import Predictor
from tests import toy

WORDS = [piece for piece in toy.VOCABULARY if piece.isalpha()]
DRAWS = np.random.default_rng(5)
PAIRS = [(" ".join(DRAWS.choice(WORDS, 3)), " ".join(DRAWS.choice(WORDS, 6))) for _ in range(20)]
PAIRS[7] = (PAIRS[2][0], PAIRS[7][1])  # an anchor with two positives
PAIRS[9] = (PAIRS[9][0], PAIRS[4][1])  # a positive of two anchors
PAIRS[11] = (PAIRS[11][0], PAIRS[3][0])  # which is an anchor, too
PAIRS_BY_ID = list(enumerate(PAIRS))
PLAIN = {"top_k": 20, "skip_top": 0, "num_negatives": 5, "margin": None, "max_score": None}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    pytest.importorskip("official_bert.extensions.embeddings")
    return str(
        toy.write_sentence_modules(
            toy.make_bert_base_dir(tmp_path_factory.mktemp("vectors") / "model")
        )
    )


@pytest.fixture(scope="module")
def load_predictor():
    """A function that opens a model once for each pooling: its opening and its first call take
    seconds.
    """
    load = functools.cache(lambda folder, batch_size, pooling: Predictor(folder, batch_size))

    def load_predictor(folder: str, batch_size: int = 32, **_) -> Predictor:
        return load(
            folder, batch_size, (pathlib.Path(folder) / "1_Pooling" / "config.json").read_text()
        )

    return load_predictor


@pytest.fixture
def loads_once(monkeypatch, load_predictor):
    """The commands open each model once."""
    for command in (mining, predict):
        monkeypatch.setattr(command, "Predictor", load_predictor)


def write_pairs(folder: pathlib.Path):
    """Writes the pairs with blanks around the texts."""
    rows = [
        ("id", "question", "answer"),
        *((str(number), f" {one}", f"{two} ") for number, (one, two) in PAIRS_BY_ID),
    ]
    (folder / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))


def options_of(folder: pathlib.Path, model: str, **changes) -> MiningOptions:
    files = {"input_file": str(folder / "pairs.tsv"), "output_file": str(folder / "mined.jsonl")}
    return MiningOptions(
        **files | {"model": model, "columns": "anchor=question,positive=answer"} | changes
    )


def expected(
    predictor: Predictor, corpus: list[str], top_k, skip_top, num_negatives, margin, max_score
) -> list[dict]:
    """What the options ask for, by all cosines."""
    corpus = list(dict.fromkeys(corpus))
    table = np.array(predictor.similarity([anchor for anchor, _ in PAIRS], corpus))
    pair_scores = np.diag(predictor.similarity(*map(list, zip(*PAIRS, strict=True))))
    lines = []
    for number, (anchor, positive) in enumerate(PAIRS):
        excluded = {anchor, *(other for one, other in PAIRS if one == anchor)}
        nearest = [
            row for row in np.argsort(-table[number], kind="stable") if corpus[row] not in excluded
        ]
        bound = min(
            np.inf if margin is None else pair_scores[number] - margin,
            np.inf if max_score is None else max_score,
        )
        kept = [corpus[row] for row in nearest[skip_top:top_k] if table[number, row] <= bound]
        lines.append({"anchor": anchor, "positive": positive, "negative": kept[:num_negatives]})
    return lines


def read_lines(folder: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "mined.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"top_k": 4},
        {"skip_top": 3, "num_negatives": 2},
        {"margin": 0.0},
        {"margin": 0.02},
        {"max_score": 0.85},
    ],
)
@pytest.mark.usefixtures("loads_once")
def test_the_negatives_are_the_nearest_others(tmp_path, model, load_predictor, changes):
    write_pairs(tmp_path)
    mining.run(options_of(tmp_path, model, **changes))
    corpus = [positive for _, positive in PAIRS]
    mined = read_lines(tmp_path)
    assert mined == expected(load_predictor(model), corpus, **PLAIN | changes)
    numbers = {len(line["negative"]) for line in mined}
    assert (
        len(numbers) > 1
        if {"margin", "max_score"} & changes.keys()
        else numbers == {min(5, *changes.values(), 5)}
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mined.jsonl", "pairs.tsv"]


@pytest.mark.usefixtures("loads_once")
def test_a_corpus_may_be_a_file_or_an_index(tmp_path, model, load_predictor):
    corpus = [f"{first} {second}" for first, second in zip(WORDS, WORDS[3:], strict=False)] + [
        PAIRS[0][1]
    ]
    (tmp_path / "corpus.txt").write_text(
        "\n\n".join(f" {text}" for text in [*corpus, *[corpus[3]] * 80])
    )
    write_pairs(tmp_path)
    mining.run(options_of(tmp_path, model, corpus_file=str(tmp_path / "corpus.txt"), margin=0.01))
    lines = expected(load_predictor(model), corpus, **PLAIN | {"top_k": 50, "margin": 0.01})
    assert read_lines(tmp_path) == lines
    index = {"input_file": str(tmp_path / "index.txt"), "index": str(tmp_path / "corpus.npz")}
    (tmp_path / "index.txt").write_text("\n".join([*corpus[:-1], f" {corpus[-1]}", corpus[3]]))
    predict.run(catalog.options_class("predict")(model=model, **index))
    mining.run(options_of(tmp_path, model, corpus_file=index["index"], margin=0.01))
    assert read_lines(tmp_path) == lines


def killed(folder: pathlib.Path, model: str, monkeypatch, calls: int = 3, **changes) -> list[int]:
    """Runs with windows of four pairs until this call of the search; returns how many pairs each
    had.
    """
    done = []

    def search(*arguments):
        done.append(len(arguments[0]))
        if len(done) == calls:
            raise KeyboardInterrupt
        return SEARCH(*arguments)

    monkeypatch.setattr(mining, "WINDOW_BATCHES", 2)
    monkeypatch.setattr(mining, "search", search)
    try:
        mining.run(options_of(folder, model, batch_size=2, **changes))
    except KeyboardInterrupt:
        assert not (folder / "mined.jsonl").exists()
    return done


SEARCH = mining.search


@pytest.mark.usefixtures("loads_once")
def test_a_killed_run_goes_on_where_it_was(tmp_path, model, monkeypatch):
    write_pairs(tmp_path)
    assert killed(tmp_path, model, monkeypatch, calls=99) == [4] * 5
    whole = (tmp_path / "mined.jsonl").read_bytes()
    for left in ("", '{"anchor": "half', f"{whole.splitlines()[8].decode()}\n"):
        (tmp_path / "mined.jsonl").unlink()
        assert killed(tmp_path, model, monkeypatch) == [4] * 3
        with open(tmp_path / ".mined.jsonl.mining" / "lines", "a") as file:
            file.write(left)
        assert killed(tmp_path, model, monkeypatch, calls=99) == [4] * 3, (
            "two of the five windows were kept"
        )
        assert (tmp_path / "mined.jsonl").read_bytes() == whole
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mined.jsonl", "pairs.tsv"]


@pytest.mark.usefixtures("loads_once")
def test_what_another_run_left_is_not_used(tmp_path, model, monkeypatch, caplog):
    write_pairs(tmp_path)
    other = shutil.copytree(model, tmp_path / "other")
    (other / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    twin = shutil.copytree(model, tmp_path / "twin")
    changes = [{"top_k": 7}, {"input": PAIRS[5][1]}, {"model": str(other)}, {"swap": twin}]
    for change in changes:
        (tmp_path / "mined.jsonl").unlink(missing_ok=True)
        write_pairs(tmp_path)
        killed(tmp_path, str(twin), monkeypatch)
        if "input" in change:
            (tmp_path / "pairs.tsv").write_text(
                (tmp_path / "pairs.tsv").read_text().replace(change["input"], "rain")
            )
        if "swap" in change:  # another model of the same name
            shutil.copy(other / "1_Pooling" / "config.json", twin / "1_Pooling")
        flags = {name: value for name, value in change.items() if name == "top_k"}
        caplog.clear()
        assert (
            killed(tmp_path, change.get("model", str(twin)), monkeypatch, calls=99, **flags)
            == [4] * 5
        )
        assert (
            "mined.jsonl: begins anew, since the run that was killed had other flags or inputs"
            in caplog.text
        )
