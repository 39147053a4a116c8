"""Small fine-tuning runs of every family of tasks, by the function that its script calls.

Texts are of very different lengths. Every example has a word of its own, which tells it from the
others wherever its ids are seen.
"""

import collections
import dataclasses
import json
import pathlib
import pickle
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from official_bert import catalog
from official_bert.checkpoints import named_variables, tf1
from official_bert.config import BertConfig
from official_bert.fine_tuning.run import fine_tune
from official_bert.modeling import BertModel
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.training.batches import ExampleBatches
from tests import session, toy

WORDS = (
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "was",
    "sunny",
    "day",
    "park",
    "train",
    "driver",
    "rain",
    "noon",
)
MARKS = [f"example{number}" for number in range(400)]
MAX_LENGTH = 48
SETS = {"train": 20, "dev": 14, "test": 14}
SQUAD_LENGTHS = {"max_seq_length": MAX_LENGTH, "doc_stride": 12, "max_query_length": 8}


def write_model(folder: pathlib.Path, head: str, num_outputs: int):
    """vocab.txt, bert_config.json without dropout, and bert_model.ckpt with weights so large
    that answers differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [*toy.VOCABULARY, *MARKS]
    toy.write_vocabulary(folder, pieces)
    sizes = {"vocab_size": len(pieces), "num_hidden_layers": 1}
    config = toy.BERT_CONFIG | toy.NO_DROPOUT | sizes
    (folder / "bert_config.json").write_text(json.dumps(config))
    encoder = BertModel(BertConfig.from_dict(config))
    variables = named_variables(encoder)
    shapes = {name: variable.shape for name, variable in variables.items()}
    shapes[f"{head}output_weights"] = (num_outputs, config["hidden_size"])
    shapes[f"{head}output_bias"] = (num_outputs,)
    random = np.random.default_rng(3)
    weights = {}
    for name, shape in shapes.items():
        mean = 1.0 if name.endswith("gamma") else 0.0
        values = random.normal(mean, 0.3, shape)
        weights[name] = values.astype(np.float32)
    tf1.write(str(folder / "bert_model.ckpt"), weights)


class Texts:
    """Texts of random words and lengths."""

    def __init__(self, seed: int):
        self._draws = np.random.default_rng(seed)

    def words(self, most: int = 36) -> list[str]:
        return list(self._draws.choice(WORDS, self._draws.integers(1, most)))

    def text(self, most: int = 36) -> str:
        return " ".join(self.words(most))

    def number(self, below: int) -> int:
        return int(self._draws.integers(below))


def write_tsv(path: pathlib.Path, count: int, texts: Texts, label: Callable[[], str]):
    lines = ["text\tlabel\n"]
    for mark in MARKS[:count]:
        text = texts.text()
        lines.append(f"{mark} {text}\t{label()}\n")
    path.with_suffix(".tsv").write_text("".join(lines))


def write_classes(path: pathlib.Path, count: int, texts: Texts):
    write_tsv(path, count, texts, lambda: "abc"[texts.number(3)])


def write_scores(path: pathlib.Path, count: int, texts: Texts):
    write_tsv(path, count, texts, lambda: f"{texts.number(50) / 10}")


def write_label_lists(path: pathlib.Path, count: int, texts: Texts):
    write_tsv(path, count, texts, lambda: ",".join(name for name in "abc" if texts.number(2)))


def write_cola(path: pathlib.Path, count: int, texts: Texts):
    """The layout of the original's task: no header, the label in the second column, the text in
    the fourth.
    """
    lines = []
    for mark in MARKS[:count]:
        label = texts.number(2)
        lines.append(f"s\t{label}\t\t{mark} {texts.text()}\n")
    path.with_suffix(".tsv").write_text("".join(lines))


def write_choices(path: pathlib.Path, count: int, texts: Texts):
    lines = []
    for mark in MARKS[:count]:
        choices = "\t".join(texts.text(24) for _ in range(4))
        question = texts.text(9)
        label = texts.number(4)
        lines.append(f"q\t{mark} {question}\t{choices}\t{label}\n")
    path.with_suffix(".tsv").write_text("".join(lines))


def write_scored_pairs(path: pathlib.Path, count: int, texts: Texts):
    """Pairs of texts with scores from -1 to 1, but for a training set, of which the default loss
    reads none.
    """
    has_scores = path.name != "train"
    lines = ["anchor\tpositive\tscore\n" if has_scores else "anchor\tpositive\n"]
    for mark in MARKS[:count]:
        anchor = texts.text()
        positive = texts.text(9)
        score = texts.number(21) / 10 - 1
        end = f"\t{score:.1f}\n" if has_scores else "\n"
        lines.append(f"{mark} {anchor}\t{positive}{end}")
    path.with_suffix(".tsv").write_text("".join(lines))


def write_rankings(path: pathlib.Path, count: int, texts: Texts):
    """Two documents for each query, the first of which is right."""
    lines = ["query\tdocument\tlabel\n"]
    for mark in MARKS[: count // 2]:
        query = texts.text(9)
        for label in (1, 0):
            lines.append(f"{mark} {query}\t{texts.text(24)}\t{label}\n")
    path.with_suffix(".tsv").write_text("".join(lines))


def write_tags(path: pathlib.Path, count: int, texts: Texts):
    tags = ("O", "B-X", "I-X")
    sentences = []
    for mark in MARKS[:count]:
        words = [mark, *texts.words(20)]
        lines = [f"{word} {tags[texts.number(3)]}\n" for word in words]
        sentences.append("".join(lines))
    path.with_suffix(".conll").write_text("\n".join(sentences))


def write_questions(path: pathlib.Path, count: int, texts: Texts):
    """A paragraph for each question; the longer ones take several windows."""
    paragraphs = []
    for number in range(count):
        words = texts.words(90)
        place = texts.number(len(words))
        beginning = " ".join([*words[:place], ""])
        answer = {
            "text": words[place],
            "answer_start": len(beginning),
        }
        question = {
            "id": str(number),
            "question": f"{MARKS[number]} what was it",
            "answers": [answer],
        }
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    dataset = {"version": "1.1", "data": [{"paragraphs": paragraphs}]}
    path.with_suffix(".json").write_text(json.dumps(dataset))


class Family(NamedTuple):
    """A family of tasks.

    Attributes:
        command: the command that trains it.
        run: what the script calls with them.
        write: (path without suffix, number of examples, texts) writes a set.
        flags: of a task, beside those that all have.
        predictions: name of the file of predictions.
        num_outputs: of the model's head.
        head: what the names of its weights begin with.
    """

    command: str
    run: Callable[[Any], Any]
    write: Callable[[pathlib.Path, int, Texts], None]
    flags: dict[str, Any]
    predictions: str
    num_outputs: int
    head: str = ""

    def make_options(self, **values):
        return catalog.options_class(self.command)(**values)


def _classifier(num_outputs, write, **flags) -> Family:
    flags = {"max_seq_length": MAX_LENGTH, **flags}
    return Family("run_classifier", fine_tune, write, flags, "test_results.tsv", num_outputs)


FAMILIES = {
    "classification": _classifier(3, write_classes, task_name="tsv"),
    "regression": _classifier(1, write_scores, task_name="tsv", label_type="score"),
    "multi-label": _classifier(
        3,
        write_label_lists,
        task_name="tsv",
        label_type="multi",
        labels=["a", "b", "c"],
    ),
    "original": _classifier(2, write_cola, task_name="CoLA"),
    "choice": Family(
        "run_swag",
        fine_tune,
        write_choices,
        {"task_name": "codah", "max_seq_length": MAX_LENGTH},
        "test_results.tsv",
        1,
    ),
    "tagging": Family(
        "run_ner",
        fine_tune,
        write_tags,
        {"max_seq_length": MAX_LENGTH},
        "predictions.conll",
        3,
    ),
    "embedding": Family(
        "run_embeddings",
        fine_tune,
        write_scored_pairs,
        {"max_seq_length": MAX_LENGTH},
        "test_vectors.npy",
        1,
    ),
    "reranking": Family(
        "run_reranker",
        fine_tune,
        write_rankings,
        {"max_seq_length": MAX_LENGTH},
        "test_scores.jsonl",
        1,
    ),
    "squad": Family(
        "run_squad",
        fine_tune,
        write_questions,
        SQUAD_LENGTHS,
        "predictions.json",
        2,
        "cls/squad/",
    ),
}


def needs_family(family: str):
    """Skips a test of a family whose extension somebody has deleted."""
    extensions = {"embedding": "embeddings", "reranking": "reranking"}
    if family in extensions and family not in catalog.families():
        pytest.skip(f"the extension {extensions[family]} is not installed")


def prepared(folder: pathlib.Path, family: str, **counts: int):
    """Writes a model and sets of a family, with `counts` of examples or those of SETS; the options
    of a run on them.

    They have no output_dir and nothing to do yet; the learning rate is one that moves the weights.
    """
    needs_family(family)
    kind = FAMILIES[family]
    write_model(folder / "model", kind.head, kind.num_outputs)
    for seed, (name, count) in enumerate((SETS | counts).items()):
        kind.write(folder / name, count, Texts(seed))
    if family == "squad":
        data = {
            "train_file": str(folder / "train.json"),
            "predict_file": str(folder / "dev.json"),
        }
    else:
        data = {"data_dir": str(folder)}
    return kind.make_options(
        vocab_file=str(folder / "model" / "vocab.txt"),
        bert_config_file=str(folder / "model" / "bert_config.json"),
        init_checkpoint=str(folder / "model" / "bert_model.ckpt"),
        output_dir="",
        random_seed=7,
        train_batch_size=4,
        num_train_epochs=1.0,
        learning_rate=1e-3,
        log_every_steps=1,
        **kind.flags,
        **data,
    )


def run(family: str, options, output_dir: pathlib.Path, **changes):
    """A run of the script with some options changed, and with padding to the longest example or
    not.
    """
    with pytest.MonkeyPatch.context() as patch:
        if family != "squad" and "length_aware_batches" in changes:
            patch.setattr(
                FineTuningOptions, "length_aware_batches", changes.pop("length_aware_batches")
            )
        FAMILIES[family].run(dataclasses.replace(options, output_dir=str(output_dir), **changes))


class SharedRun(NamedTuple):
    """A run that trained, evaluated and predicted: the folder of its model and sets, its
    options, and its output.
    """

    folder: pathlib.Path
    options: Any
    output_dir: pathlib.Path


def shared_run(tmp_path_factory, family: str, **changes) -> SharedRun:
    """Returns a run of a family of tasks with some options changed, for tests that only read what
    it wrote.

    The first test that needs it makes it, for all test files and for all processes of pytest-xdist.
    """
    parts = ["run", family]
    for option, value in sorted(changes.items()):
        parts.append(f"{option}-{value}")
    run_folder = session.shared_folder(tmp_path_factory) / "-".join(parts)
    with session.alone_in(run_folder) as folder:
        record = folder / "record.pickle"
        output_dir = folder / "output"
        if not record.exists():
            options = prepared(folder, family)
            run(family, options, output_dir, do_train=True, do_predict=True, **changes)
            states = session.file_states(output_dir)
            record.write_bytes(pickle.dumps((options, states)))
        options, recorded_states = pickle.loads(record.read_bytes())
        states = session.file_states(output_dir)
        assert states == recorded_states, f"a test has changed {output_dir}, which others read"
        return SharedRun(folder, options, output_dir)


def figures(output_dir: pathlib.Path) -> dict[str, float]:
    """What eval_results.txt holds."""
    results = {}
    for line in (output_dir / "eval_results.txt").read_text().splitlines():
        name, value = line.split(" = ")
        results[name] = float(value)
    return results


def predicted_numbers(path: pathlib.Path) -> np.ndarray | None:
    """The numbers of a file of predictions, [rows, n]; None for one of texts."""
    if path.suffix == ".tsv":
        return np.loadtxt(path, ndmin=2)
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".jsonl":
        return np.array([json.loads(line)["logit"] for line in path.read_text().splitlines()])
    return None


def mark_of(input_ids: np.ndarray) -> int:
    """The number of the example that a row of ids is of."""
    first_mark = len(toy.VOCABULARY)
    (mark,) = {number for number in input_ids.ravel() if number >= first_mark}
    return int(mark) - first_mark


def noted_batches(monkeypatch) -> list[dict[str, np.ndarray]]:
    """A list to which every batch that a run is trained on is added, {name: [batch, ...]}, as
    the model is fed.
    """
    batches = []
    real_init = ExampleBatches.__init__
    real_have_run = ExampleBatches.have_run

    def init(self, encoded, *arguments, **keywords):
        self.noted = collections.deque()

        def features(rows, length):
            self.noted.append(encoded.features(rows, length))
            return self.noted[-1]

        real_init(
            self,
            types.SimpleNamespace(lengths=encoded.lengths, features=features),
            *arguments,
            **keywords,
        )
        self.noted.clear()  # which showed the shapes

    def have_run(self, num_steps):
        batches.extend(self.noted.popleft() for _ in range(num_steps))
        real_have_run(self, num_steps)

    monkeypatch.setattr(ExampleBatches, "__init__", init)
    monkeypatch.setattr(ExampleBatches, "have_run", have_run)
    return batches
