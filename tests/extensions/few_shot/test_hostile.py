"""Hostile runs of few-shot training: what is refused in one sentence, and leaves no file."""

import shutil
import sys

import pytest

from tests.hostile.commands import classifier
from tests.hostile.rows import check, contents, row, table
from tests.scripts import end_of, run_here

HEADER = "text\tlabel\n"
TRAIN = HEADER + "the cat\thome\nthe mat\thome\na train\ttravel\nthe station\ttravel\n"


def train(at, *flags: str, rows: str = TRAIN):
    """Write a table, and return the command of a training on it."""
    (at / "few.tsv").write_text(rows)
    files = [f"--train_file={at}/few.tsv", f"--model={at}", f"--output_dir={at}/out"]
    sizes = ["--max_seq_length=16", "--train_batch_size=4", "--num_pairs=1"]
    return ["run_few_shot", *files, *sizes, *(flag.replace("AT", str(at)) for flag in flags)]


def into_the_model(at):
    """Return the command of a training whose classifier would replace the files of its model."""
    model = at / "model"
    model.mkdir()
    for path in (at / "vocab.txt", at / "bert_config.json", *at.glob("bert_model.ckpt*")):
        shutil.copy(path, model / path.name.replace("bert_model", "model"))
    return train(at, f"--model={model}", f"--output_dir={model}/.")


def with_dev(at, rows: str):
    (at / "dev.tsv").write_text(rows)
    return train(at, f"--dev_file={at}/dev.tsv")


FLAGS = [
    *(
        row(flags, lambda at, flags=flags: train(at, *flags.split()), *sentence)
        for flags, *sentence in (
            ("--num_pairs=0", "--num_pairs=0: must be at least 1"),
            ("--loss=mse", "--loss=mse", "cosine_similarity|multiple_negatives_ranking|cosent"),
            ("--regularization=0", "--regularization=0.0: must be positive"),
            ("--max_seq_length=2", "--max_seq_length=2: must be at least 3"),
            (
                "--max_seq_length=600",
                "--max_seq_length=600: ",
                "was made for sequences up to 512 tokens; give a smaller number",
            ),
            (
                "--max_seq_length=600 --notrain_encoder",
                "was made for sequences up to 512 tokens; give a smaller number",
            ),
            (
                "--train_batch_size=9",
                "--train_batch_size=9: the 8 pairs of texts are no whole batch in 1 epochs; lower",
            ),
            (
                "--train_batch_size=5 --loss=multiple_negatives_ranking",
                "--train_batch_size=5: the 4 pairs of texts are no whole batch in 1 epochs; lower",
            ),
            ("--text_a_column=x", "--text_a_column=x: ", "only text, label"),
            ("--label_column=x", "--label_column=x: ", "only text, label"),
            ("--label_column=text", "is the column that text_a is read from"),
            ("--nohas_header", "few.tsv: the label 'label' has one text only"),
            ("--data_format=parquet", "few.tsv: ", "Parquet"),
            ("--model=AT/absent", "absent: no checkpoint there"),
            ("--model=AT/vocab.txt", "vocab.txt: cannot be read as a checkpoint"),
            ("--output_dir=AT/vocab.txt", "vocab.txt: no folder can be made there"),
            ("--train_file=AT", "its name ends in none of .tsv"),
            ("--dev_file=AT/absent.tsv", "absent.tsv"),
        )
    ),
    *(
        row(name, lambda at, rows=rows: train(at, rows=rows), "few.tsv: ", sentence)
        for name, rows, sentence in (
            ("an empty file", "", "holds no example; check the file"),
            ("names alone", HEADER, "holds no example; check the file"),
            ("no label", "text\na\nb\n", "has 1 columns, text; name that of label"),
            ("three columns", "t\tu\tv\na\tb\tc\n", "name that of text_a, --text_a_column=..."),
            ("a short row", f"{HEADER}a\nb\tx\n", "line 2: has 1 columns"),
            ("a blank label", f"{HEADER}a\t\nb\tx\n", "line 2: has no label"),
            (
                "a blank text",
                f"{HEADER}a\tx\n \tx\nb\ty\nc\ty\n",
                "line 3: the text is blank; give it a text, or leave the row out",
            ),
            (
                "one label",
                f"{HEADER}a\tx\nb\tx\n",
                "all examples have the label 'x', so that there is nothing to learn; check "
                "--label_column, or add texts of another label",
            ),
            (
                "a label of one text",
                f"{HEADER}a\tx\nb\tx\nc\ty\n",
                "the label 'y' has one text only; give each label two or more",
            ),
        )
    ),
    row(
        "a development set with another label",
        lambda at: with_dev(at, f"{HEADER}noon\tfood\n"),
        "dev.tsv: line 2: has the label 'food', which is none of home, travel",
    ),
    row(
        "a development set without rows",
        lambda at: with_dev(at, HEADER),
        "dev.tsv: holds no example; check the file",
    ),
    row(
        "the folder of the model as that of the classifier",
        into_the_model,
        "is the folder of --model, and would become that of the classifier; name another folder",
    ),
]


@table(FLAGS)
def test_one_sentence_ends_a_wrong_run(row, folder):
    check(row, folder)


def test_nothing_is_trained_without_scikit_learn(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    ended = end_of(*train(folder))
    assert ended.status == 1
    assert "needs scikit-learn, which cannot be imported" in ended.sentence
    assert not (folder / "out").exists()


def test_a_killed_training_resumes_with_the_same_flags_only(folder):
    """Before the classifier is written, the encoder has a checkpoint of half of the training."""
    command = train(folder, "--num_train_epochs=2")
    run_here(*command)
    for path in (folder / "out").glob("bert_model.ckpt*"):
        path.unlink()
    encoder = (folder / "out/encoder/checkpoint").read_text()
    for flag in ("--num_train_epochs=3", "--num_pairs=2", "--notrain_encoder"):
        ended = end_of(*command, flag)
        assert ended.status == 1
        assert "was trained on other examples or with other flags" in ended.sentence
        assert not [*(folder / "out").glob("bert_model.ckpt*")]
    run_here(*command)
    assert [*(folder / "out").glob("bert_model.ckpt*")]
    assert (folder / "out/encoder/checkpoint").read_text() == encoder


def test_no_other_training_replaces_the_classifier(folder):
    run_here(*train(folder, "--notrain_encoder"))
    before = contents(folder / "out")
    ended = end_of(*classifier(folder, "--do_train"))
    assert ended.status == 1
    assert "out: holds a model that no training can resume, and whose files" in ended.sentence
    assert contents(folder / "out") == before


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--max_seq_length=32"], "--max_seq_length=32: "),
        (["--max_terms=3"], "--max_terms=3: "),
    ],
)
def test_exports_with_other_flags_are_refused(folder, flags, sentence):
    run_here(*train(folder, "--notrain_encoder"))
    export = ["export_saved_model", f"--model={folder}/out", f"--export_dir={folder}/export"]
    ended = end_of(*export, *flags)
    assert ended.status == 1
    assert sentence in ended.sentence
    assert not (folder / "export").exists()
