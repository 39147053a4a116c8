"""--dev_fraction and Classifier.train(dev=0.15): a development set from the training file."""

import collections
import json

import pytest

from official_bert import Classifier, InputError
from official_bert.data.tables import read_conll
from official_bert.extensions.tables.dev_split import split_examples
from official_bert.tasks.classification.examples import InputExample
from tests.extensions.tables.tickets import WORDS_BY_TEAM, make_rows, write_csv
from tests.hostile.rows import check, row, table
from tests.scripts import flag_list, run_here


def make_examples(counts: dict) -> list[InputExample]:
    examples = []
    for label, count in counts.items():
        for number in range(count):
            examples.append(InputExample(f"{label}-{number}", f"{label} {number}", None, label))
    return examples


def count_labels(examples) -> dict:
    return dict(collections.Counter(example.label for example in examples))


def test_both_parts_have_the_same_shares_of_the_labels():
    examples = make_examples({"a": 170, "b": 120, "c": 50, "d": 15, "e": 1, "f": 4})
    split = split_examples(examples, 0.15)
    assert (split.num_train, split.num_dev) == (306, 54)
    dev = count_labels(split.dev)
    for label, share in {"a": 25.5, "b": 18, "c": 7.5, "d": 2.25, "f": 0.6}.items():
        assert abs(dev.get(label, 0) - share) < 1
    # No label is only in the second part.
    assert count_labels(split.train).keys() == {*"abcdef"}
    # The parts have the order of the file, and no example is lost; each draw is the same.
    assert sorted(split.train + split.dev, key=examples.index) == examples
    for part in (split.train, split.dev):
        assert part == sorted(part, key=examples.index)
    assert split_examples(examples, 0.15) == split
    # The draws are random: not the first ones.
    assert split.dev[:25] != examples[:25]


def test_scores_are_drawn_from_their_whole_range():
    examples = [InputExample(f"{n}", f"text {n}", None, str(n / 10)) for n in range(200)]
    split = split_examples(examples, 0.1)
    bins = [int(float(example.label) // 2) for example in split.dev]
    assert bins == sorted([*range(10), *range(10)])


def test_several_labels_are_drawn_by_their_sets():
    examples = make_examples({("x",): 20, ("x", "y"): 20, (): 10})
    assert count_labels(split_examples(examples, 0.2).dev) == {("x",): 4, ("x", "y"): 4, (): 2}


def test_sets_of_labels_that_occur_once_are_split():
    """255 of 256 examples have a set of labels of their own."""
    names = "abcdefgh"
    sets = [
        tuple(name for place, name in enumerate(names) if number >> place & 1)
        for number in range(256)
    ]
    examples = [InputExample(f"{n}", f"text {n}", None, label) for n, label in enumerate(sets)]
    split = split_examples(examples, 0.25)
    assert split.num_dev == 64
    for name in names:  # Each label has a half of the file, and so has it of both parts.
        share = sum(name in example.label for example in split.dev) / split.num_dev
        assert abs(share - 0.5) < 0.15


def test_each_label_stays_in_the_first_part():
    """The labels x0 to x29 are the rarest of no example, so that no group keeps one of them."""
    sets = []
    for number in range(30):
        for other in "abc":
            sets += [(f"x{number}", f"{other}{number}"), (f"{other}{number}",)]
    examples = [InputExample(f"{n}", f"text {n}", None, label) for n, label in enumerate(sets)]
    split = split_examples(examples, 0.5)
    train_labels = {label for example in split.train for label in example.label}
    assert train_labels == {label for labels in sets for label in labels}
    assert 80 < split.num_dev < 90


def test_documents_stay_whole(tmp_path):
    path = tmp_path / "a.conll"
    sentence = "the B-X\ncat O\n\n"
    path.write_text("".join(f"-DOCSTART- O\n\n{sentence * (n % 3 + 1)}" for n in range(10)))
    split = split_examples(read_conll(str(path)), 0.3)
    documents = [
        {sentence.document for sentence in part.sentences} for part in (split.train, split.dev)
    ]
    assert not documents[0] & documents[1]
    assert len(documents[1]) == 3
    # A single document is split between its sentences.
    path.write_text(sentence * 10)
    assert split_examples(read_conll(str(path)), 0.3).num_dev == 3


def test_equal_texts_in_both_parts_are_warned_of(caplog):
    examples = [InputExample(f"{n}", "a text", None, "ab"[n % 2]) for n in range(20)]
    split_examples(examples, 0.2)
    assert "4 of 4 examples to evaluate on have a text of the training" in caplog.text


def test_one_file_is_enough(tickets, tmp_path):
    train = write_csv(tmp_path / "all.csv", make_rows(40))
    flags = {
        "task_name": "text",
        "train_file": train,
        "text_a_column": "Message",
        "label_column": "Team",
        "dev_fraction": 0.25,
        "max_seq_length": 16,
        "train_batch_size": 10,
        "num_train_epochs": 1,
        "random_seed": 3,
    }
    folder = tmp_path / "out"
    log = run_here(
        "run_classifier.py",
        "--do_train",
        "--do_eval",
        *flag_list(**flags, model=tickets.model.parent / "base", output_dir=folder),
    ).stderr
    assert "--dev_fraction=0.25: 30 examples to train on, 10 to evaluate on" in log
    start = json.loads((folder / "run.jsonl").read_text().splitlines()[0])
    expected = {"fraction": 0.25, "seed": 0, "num_train": 30, "num_dev": 10}
    assert start["dev_split"] == expected
    matrix = (folder / "confusion_matrix.tsv").read_text().splitlines()[1:]
    assert [sum(map(int, line.split("\t")[1:])) for line in matrix] == [5, 5]
    # A later evaluation draws the same examples.
    results = (folder / "eval_results.txt").read_text()
    (folder / "eval_results.txt").unlink()
    run_here("run_classifier.py", "--do_eval", *flag_list(**flags, output_dir=folder))
    assert (folder / "eval_results.txt").read_text() == results


def test_python_takes_a_share(tickets, tmp_path):
    texts = [row[1] for row in make_rows(40)]
    labels = list(WORDS_BY_TEAM) * 20
    arguments = {"model": tickets.model.parent / "base", "max_seq_length": 16}
    trained = Classifier.train(
        tmp_path / "model", texts, labels, dev=0.25, num_train_epochs=1, **arguments
    )
    assert "eval_accuracy" in trained.metrics
    with pytest.raises(
        InputError, match=r"^dev=1.5: must be between 0 and 1, such as 0.15 for 15 %$"
    ):
        Classifier.train(tmp_path / "other", texts, labels, dev=1.5, **arguments)
    with pytest.raises(InputError, match=r"^dev=0.01: 2 training examples are too few to split"):
        Classifier.train(tmp_path / "other", texts[:2], labels[:2], dev=0.01, **arguments)


def training(folder, *flags) -> list[str]:
    (folder / "train.tsv").write_text("text\tlabel\na\tx\nb\ty\n")
    files = [f"--model={folder}", f"--output_dir={folder / 'out'}"]
    return ["run_classifier.py", "--task_name=text", "--do_train", *files, *flags]


def make_sets(folder) -> str:
    """Makes a folder with a development set."""
    (folder / "sets").mkdir()
    (folder / "sets" / "dev.csv").write_text("text,label\na,x\n")
    return str(folder / "sets")


REFUSED = [
    row(
        "a development file",
        lambda at: training(
            at, "--dev_fraction=0.5", f"--train_file={at}/train.tsv", "--dev_file=d.tsv"
        ),
        "--dev_fraction=0.5: d.tsv is a development set; leave the flag out, or move the file away",
    ),
    row(
        "a development file in the folder",
        lambda at: training(at, "--dev_fraction=0.5", f"--data_dir={make_sets(at)}"),
        "dev.csv is a development set; leave the flag out",
    ),
    row(
        "two examples",
        lambda at: training(at, "--dev_fraction=0.1", f"--train_file={at}/train.tsv"),
        "--dev_fraction=0.1: 2 training examples are too few to split; give more, or",
    ),
    row(
        "all of them",
        lambda at: training(at, "--dev_fraction=1", f"--train_file={at}/train.tsv"),
        "--dev_fraction=1.0: must be between 0 and 1",
    ),
]


@table(REFUSED)
def test_splits_are_refused(row, folder):
    check(row, folder)
