"""Tests of hard negatives against a plain search by numpy, and of runs that are killed."""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest

from official_bert import catalog
from official_bert.commands import predict
from official_bert.extensions.retrieval import mining
from official_bert.extensions.retrieval.index import Index
from official_bert.extensions.retrieval.options import MiningOptions
from official_bert.serving.predictor import Predictor
from tests import toy

WORDS = [piece for piece in toy.VOCABULARY if piece.isalpha()]


def draw_pairs() -> list[tuple[str, str]]:
    """Draw anchors and positives."""
    generator = np.random.default_rng(5)
    anchors = []
    positives = []
    for _ in range(20):
        anchor_words = generator.choice(WORDS, 3)
        positive_words = generator.choice(WORDS, 6)
        anchors.append(" ".join(anchor_words))
        positives.append(" ".join(positive_words))
    anchors[7] = anchors[2]  # the anchor has two positives
    positives[9] = positives[4]  # the positive has two anchors
    positives[11] = anchors[3]  # the positive is an anchor, too
    return list(zip(anchors, positives, strict=True))


PAIRS = draw_pairs()
ANCHORS = [anchor for anchor, _ in PAIRS]
POSITIVES = [positive for _, positive in PAIRS]
PLAIN = {
    "top_k": 20,
    "skip_top": 0,
    "num_negatives": 5,
    "margin": None,
    "max_score": None,
}
SEARCH = Index.search


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    pytest.importorskip("official_bert.extensions.embeddings")
    parent = tmp_path_factory.mktemp("vectors")
    folder = toy.make_bert_base_dir(parent / "model")
    return str(toy.write_sentence_modules(folder))


@pytest.fixture(scope="module")
def load_predictor():
    """A function that opens a model once for each pooling.

    To open a model and to call it for the first time take seconds.
    """

    @functools.cache
    def load(folder, batch_size, pooling):
        return Predictor(folder, batch_size)

    def load_predictor(folder: str, batch_size: int = 32, **_) -> Predictor:
        pooling_file = pathlib.Path(folder) / "1_Pooling" / "config.json"
        pooling = pooling_file.read_text()
        return load(folder, batch_size, pooling)

    return load_predictor


@pytest.fixture
def loads_once(monkeypatch, load_predictor):
    """The commands open each model once."""
    for command in (mining, predict):
        monkeypatch.setattr(command, "Predictor", load_predictor)


def write_pairs(folder: pathlib.Path):
    """Write the pairs with blanks around the texts."""
    lines = ["id\tquestion\tanswer\n"]
    for number, (anchor, positive) in enumerate(PAIRS):
        lines.append(f"{number}\t {anchor}\t{positive} \n")
    (folder / "pairs.tsv").write_text("".join(lines))


def make_options(folder: pathlib.Path, model: str, **changes) -> MiningOptions:
    flags = {
        "input_file": str(folder / "pairs.tsv"),
        "output_file": str(folder / "mined.jsonl"),
        "model": model,
        "anchor_column": "question",
        "positive_column": "answer",
    }
    return MiningOptions(**flags | changes)


def find_excluded(anchor: str) -> set[str]:
    """Return the texts that are no negatives of an anchor: itself and its positives."""
    positives = {positive for first, positive in PAIRS if first == anchor}
    return {anchor, *positives}


def mine_plainly(
    predictor: Predictor,
    corpus: list[str],
    top_k,
    skip_top,
    num_negatives,
    margin,
    max_score,
) -> list[dict]:
    """Compute the lines of the output from the cosines of all anchors and all texts."""
    corpus = list(dict.fromkeys(corpus))
    table = np.array(predictor.similarity(ANCHORS, corpus))
    positive_scores = np.diag(predictor.similarity(ANCHORS, POSITIVES))
    lines = []
    for number, (anchor, positive) in enumerate(PAIRS):
        excluded = find_excluded(anchor)
        scores = table[number]
        order = np.argsort(-scores, kind="stable")
        nearest = [row for row in order if corpus[row] not in excluded]

        highest = np.inf if max_score is None else max_score
        if margin is not None:
            highest = min(highest, positive_scores[number] - margin)
        candidates = nearest[skip_top:top_k]
        negatives = [corpus[row] for row in candidates if scores[row] <= highest]
        line = {
            "anchor": anchor,
            "positive": positive,
            "negative": negatives[:num_negatives],
        }
        lines.append(line)
    return lines


def read_lines(folder: pathlib.Path) -> list[dict]:
    lines = (folder / "mined.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def list_names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("changes", "num_negatives"),
    [
        pytest.param({}, 5, id="default flags"),
        pytest.param({"top_k": 4}, 4, id="few candidates"),
        pytest.param({"skip_top": 3, "num_negatives": 2}, 2, id="nearest ones skipped"),
        pytest.param({"margin": 0.0}, None, id="margin of 0"),
        pytest.param({"margin": 0.02}, None, id="margin"),
        pytest.param({"max_score": 0.85}, None, id="highest score"),
    ],
)
@pytest.mark.usefixtures("loads_once")
def test_the_negatives_are_the_nearest_others(
    tmp_path, model, load_predictor, changes, num_negatives
):
    """By scores the anchors have different numbers of negatives."""
    write_pairs(tmp_path)
    mining.run(make_options(tmp_path, model, **changes))

    lines = read_lines(tmp_path)
    settings = PLAIN | changes
    assert lines == mine_plainly(load_predictor(model), POSITIVES, **settings)
    counts = {len(line["negative"]) for line in lines}
    if num_negatives is None:
        assert len(counts) > 1
    else:
        assert counts == {num_negatives}
    assert list_names(tmp_path) == {"mined.jsonl", "pairs.tsv"}


@pytest.mark.usefixtures("loads_once")
def test_a_corpus_may_be_a_file_or_an_index(tmp_path, model, load_predictor):
    corpus = []
    for word, later_word in zip(WORDS, WORDS[3:], strict=False):
        corpus.append(f"{word} {later_word}")
    corpus.append(POSITIVES[0])
    write_pairs(tmp_path)

    corpus_file = tmp_path / "corpus.txt"
    repeated = [corpus[3]] * 80
    lines = [f" {text}" for text in corpus + repeated]
    corpus_file.write_text("\n\n".join(lines))
    mining.run(make_options(tmp_path, model, corpus_file=str(corpus_file), margin=0.01))
    settings = PLAIN | {"top_k": 50, "margin": 0.01}
    expected = mine_plainly(load_predictor(model), corpus, **settings)
    assert read_lines(tmp_path) == expected

    *first_texts, last_text = corpus
    lines = [*first_texts, f" {last_text}", corpus[3]]
    index_texts = tmp_path / "index.txt"
    index_texts.write_text("\n".join(lines))
    index_file = tmp_path / "corpus.npz"
    options_class = catalog.options_class("predict")
    options = options_class(
        model=model,
        input_file=str(index_texts),
        index=str(index_file),
    )
    predict.run(options)
    mining.run(make_options(tmp_path, model, corpus_file=str(index_file), margin=0.01))
    assert read_lines(tmp_path) == expected


def mine(
    folder: pathlib.Path,
    model: str,
    monkeypatch,
    stop_at: int | None = None,
    **changes,
) -> list[int]:
    """Mine with windows of four pairs.

    Args:
        folder: The folder of the pairs and of the output.
        model: The folder of the model.
        monkeypatch: The fixture.
        stop_at: The number of the search that a signal interrupts. By default none does.
        changes: Other flags.

    Returns:
        The numbers of pairs of all searches, the interrupted one included.
    """
    window_sizes = []

    def search(index, window, *arguments):
        window_sizes.append(len(window))
        if len(window_sizes) == stop_at:
            raise KeyboardInterrupt
        return SEARCH(index, window, *arguments)

    monkeypatch.setattr(mining, "WINDOW_BATCHES", 2)
    monkeypatch.setattr(Index, "search", search)
    options = make_options(folder, model, batch_size=2, **changes)
    if stop_at is None:
        mining.run(options)
    else:
        with pytest.raises(KeyboardInterrupt):
            mining.run(options)
        assert not (folder / "mined.jsonl").exists()
    return window_sizes


@pytest.mark.usefixtures("loads_once")
def test_a_killed_run_resumes_after_its_last_whole_line(tmp_path, model, monkeypatch):
    write_pairs(tmp_path)
    output_file = tmp_path / "mined.jsonl"
    assert mine(tmp_path, model, monkeypatch) == [4] * 5
    uninterrupted = output_file.read_bytes()
    complete_line = uninterrupted.splitlines()[8].decode()

    for remainder in ("", '{"anchor": "half', f"{complete_line}\n"):
        output_file.unlink()
        window_sizes = mine(tmp_path, model, monkeypatch, stop_at=3)
        assert window_sizes == [4] * 3
        with open(tmp_path / ".mined.jsonl.mining" / "lines", "a") as file:
            file.write(remainder)
        # Two of the five windows are complete.
        window_sizes = mine(tmp_path, model, monkeypatch)
        assert window_sizes == [4] * 3
        assert output_file.read_bytes() == uninterrupted
        assert list_names(tmp_path) == {"mined.jsonl", "pairs.tsv"}


@pytest.fixture
def other_model(tmp_path, model) -> pathlib.Path:
    """A copy of the model with another pooling."""
    folder = shutil.copytree(model, tmp_path / "other")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


@pytest.fixture
def stopped_model(tmp_path, model, monkeypatch) -> pathlib.Path:
    """A copy of the model, which a run used that was killed in its third window."""
    folder = shutil.copytree(model, tmp_path / "twin")
    write_pairs(tmp_path)
    mine(tmp_path, str(folder), monkeypatch, stop_at=3)
    return folder


def assert_starts_again(folder: pathlib.Path, model: pathlib.Path, monkeypatch, caplog, **flags):
    """Assert that a run uses nothing of the run that was killed."""
    caplog.clear()
    assert mine(folder, str(model), monkeypatch, **flags) == [4] * 5
    message = "mined.jsonl: begins anew, since the run that was killed had other flags or inputs"
    assert message in caplog.text


@pytest.mark.usefixtures("loads_once")
def test_a_run_with_other_flags_starts_again(tmp_path, stopped_model, monkeypatch, caplog):
    assert_starts_again(tmp_path, stopped_model, monkeypatch, caplog, top_k=7)


@pytest.mark.usefixtures("loads_once")
def test_a_run_on_other_pairs_starts_again(tmp_path, stopped_model, monkeypatch, caplog):
    input_file = tmp_path / "pairs.tsv"
    text = input_file.read_text()
    input_file.write_text(text.replace(POSITIVES[5], "rain"))
    assert_starts_again(tmp_path, stopped_model, monkeypatch, caplog)


@pytest.mark.usefixtures("loads_once", "stopped_model")
def test_a_run_of_another_model_starts_again(tmp_path, other_model, monkeypatch, caplog):
    assert_starts_again(tmp_path, other_model, monkeypatch, caplog)


@pytest.mark.usefixtures("loads_once")
def test_a_run_of_a_changed_model_folder_starts_again(
    tmp_path, stopped_model, other_model, monkeypatch, caplog
):
    shutil.copy(other_model / "1_Pooling" / "config.json", stopped_model / "1_Pooling")
    assert_starts_again(tmp_path, stopped_model, monkeypatch, caplog)
