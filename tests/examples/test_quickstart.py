"""The quickstart's arithmetic, its corpus and its task; `make quickstart` runs the whole script."""

import contextlib
import csv
import types

import numpy as np
import pytest

from official_bert.data.records.framing import open_example_files
from tests.scripts import forked_python, run_script
from tests.shared import example

QUICKSTART, CORPUS = example("quickstart"), example("quickstart_corpus")


def test_baselines_are_counted_over_real_predictions(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[MASK]\nthe\nof\n")
    with open_example_files([str(tmp_path / "held_out.tfrecord")]) as records:
        records.write(
            {
                "masked_lm_ids": np.array([[2, 3, 0], [3, 3, 0], [2, 3, 2]]),
                "masked_lm_weights": np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0]], "float32"),
                "next_sentence_labels": np.array([[0], [1], [1]]),
            }
        )
    assert QUICKSTART.baselines(tmp_path) == QUICKSTART.Baselines(
        num_records=3,
        word="of",
        masked_lm_accuracy=3 / 5,  # "of" three times, "the" twice; three positions are padding
        next_sentence_accuracy=2 / 3,
    )


@pytest.mark.parametrize(
    ("setting", "masked_lm", "next_sentence", "sentence"),
    [
        ("full", 0.125, 0.53, None),
        ("full", 0.1249, 0.9, "does not reach 2 times the accuracy of always predicting 'the'"),
        (
            "full",
            0.9,
            0.529,
            "next sentences: the model is only 2.9% above the baseline, not the expected 3%",
        ),
        ("short", 0.125, 0.0, None),
    ],
)
def test_a_model_must_be_better_than_the_baselines(setting, masked_lm, next_sentence, sentence):
    baseline = QUICKSTART.Baselines(
        10, "the", masked_lm_accuracy=0.0625, next_sentence_accuracy=0.5
    )
    end = {"masked_lm_accuracy": masked_lm, "next_sentence_accuracy": next_sentence}
    with pytest.raises(SystemExit, match=sentence) if sentence else contextlib.nullcontext():
        QUICKSTART.check_learning(QUICKSTART.SETTINGS[setting], end, baseline)


def test_a_command_that_fails_ends_the_quickstart_with_its_status(monkeypatch, capsys):
    monkeypatch.setattr(QUICKSTART.sys, "executable", forked_python())
    with pytest.raises(SystemExit) as left:
        QUICKSTART.run("build_vocab", "--vocab_size=none of it")
    assert left.value.code == 1
    assert (
        "$ official-bert build_vocab \\\n    '--vocab_size=none of it'\n" in capsys.readouterr().out
    )


def test_a_finished_model_is_neither_trained_again_nor_deleted(tmp_path, monkeypatch, capsys):
    output = tmp_path / "short"
    (output / "bert").mkdir(parents=True)
    (output / "bert" / "bert_model.ckpt.index").touch()
    monkeypatch.setattr(QUICKSTART, "OUTPUTS", tmp_path)
    monkeypatch.setattr(QUICKSTART.os, "chdir", lambda _: None)
    monkeypatch.setattr(QUICKSTART, "run", lambda *command: pytest.fail(f"ran {command}"))
    monkeypatch.setattr(
        QUICKSTART, "predict_masked_words", lambda model: print(f"predicts with {model}")
    )
    monkeypatch.setattr(
        QUICKSTART, "compare_sentences", lambda model: print(f"compares with {model}")
    )
    monkeypatch.setattr(
        QUICKSTART, "baselines", lambda _: QUICKSTART.Baselines(9, "the", 0.05, 0.7)
    )
    for name, accuracy in (("untrained", 0.001), ("model", 0.3)):
        (output / name).mkdir()
        text = f"loss = 2.5\nmasked_lm_accuracy = {accuracy}\nnext_sentence_accuracy = 0.5\n"
        (output / name / "eval_results.txt").write_text(text)
    monkeypatch.setattr(QUICKSTART.sys, "argv", ["quickstart.py", "--setting=short"])
    QUICKSTART.main()
    said = capsys.readouterr().out
    assert f"{output}/bert holds a trained model already" in said
    assert "masked LM accuracy           0.1%    30.0%       5.0%" in said
    assert "The model finds 6.0\ntimes as many masked words. So short a training" in said
    assert f"predicts with {output}/bert\ncompares with {output}/bert" in said
    assert (output / "bert" / "bert_model.ckpt.index").exists()


def test_minimal_pairs_are_asked_if_they_are_there(tmp_path, monkeypatch, capsys):
    made_up = types.SimpleNamespace(
        score=lambda texts: [{"score": -float(len(text))} for text in texts]
    )
    monkeypatch.setattr(QUICKSTART, "open_predictor", lambda model: made_up)
    monkeypatch.setattr(QUICKSTART, "MINIMAL_PAIRS", tmp_path / "BLiMP.zip")
    ran = []

    def run(*command):
        ran.append(command)
        (tmp_path / "minimal_pairs.tsv").write_text(
            "phenomenon\tparadigm\tpairs\taccuracy\nall\tall\t40\t0.625\n"
        )

    monkeypatch.setattr(QUICKSTART, "run", run)
    QUICKSTART.compare_sentences(tmp_path / "bert")
    said = capsys.readouterr().out
    assert not ran
    for sentence in QUICKSTART.PAIR:
        assert f"{-float(len(sentence)):.2f}  {sentence}\n" in said
    (tmp_path / "BLiMP.zip").touch()
    QUICKSTART.compare_sentences(tmp_path / "bert")
    script, *flags = ran[0]
    assert (script, flags[0], flags[2]) == (
        "evaluate_minimal_pairs",
        f"--model={tmp_path}/bert",
        "--num_records=20",
    )
    assert (
        "Of 40 pairs of BLiMP the model prefers the right one in 62.5%" in capsys.readouterr().out
    )


PAGE = """
Mapping *types*
***************

A *mapping* object maps built-
in values, e.g. "numbers", to objects.  Can it be changed?

   >>> a = {}

   mapping ::= "{" [pairs] "}"

* The first point is about keys of
  the mapping.

len(d)

   Return the number of items in the dictionary.

Second section
==============

Too short for us: yes. This one is left alone by us.
"""


def test_running_text_is_kept_as_sentences():
    (document,) = CORPUS.documents(CORPUS.HEADING.split(PAGE)[::3])
    assert document == [
        "A mapping object maps built-in values, e.g. numbers, to objects.",
        "Can it be changed?",
        "The first point is about keys of the mapping.",
        "Return the number of items in the dictionary.",
    ]


MODULE = '''"""Reads and writes tables. A table has rows and columns."""

class Table(object):
    """A table of numbers in memory.

    Args:
      rows: The number of its rows, which is
        at least one.
      dtype (str): A type of `numbers`. Must be known to all.
    """

    async def close(self): "No row is written after this."

def undocumented():
    return "This is a text and not a docstring."
'''


def test_a_module_gives_the_prose_of_its_docstrings(tmp_path):
    (tmp_path / "a.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def :")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "b.py").write_text(MODULE)
    (document,) = CORPUS.documents(map(CORPUS.keep_paragraphs, CORPUS.docstrings(tmp_path)))
    assert document == [
        "Reads and writes tables.",
        "A table has rows and columns.",
        "A table of numbers in memory.",
        "The number of its rows, which is at least one.",
        "A type of numbers.",
        "Must be known to all.",
        "No row is written after this.",
    ]


def test_the_parts_are_files_of_documents_without_a_common_sentence(tmp_path):
    files = tmp_path / "train.txt", tmp_path / "held_out.txt"
    flags = (f"--train_file={files[0]}", f"--held_out_file={files[1]}")
    run_script("examples/quickstart_corpus.py", *flags, "--docstrings_of=email,numpy")
    assert (CORPUS.find_folder("python") / "email" / "parser.py").exists()
    train, held_out = (file.read_text(encoding="utf-8") for file in files)
    documents = [
        [part.split("\n") for part in text.strip().split("\n\n")] for text in (train, held_out)
    ]
    assert len(documents[0]) > 200
    assert len(documents[1]) > 5
    assert min(len(document) for part in documents for document in part) >= 3
    train_sentences, held_out_sentences = (
        {s for document in part for s in document} for part in documents
    )
    assert not train_sentences & held_out_sentences
    share = len(held_out_sentences) / (len(train_sentences) + len(held_out_sentences))
    assert 0.1 <= share < 0.2
    assert any("a new array" in sentence for sentence in train_sentences)  # of numpy


def test_the_files_hold_every_sentence_once_under_its_label(tmp_path):
    said = run_script("examples/quickstart_topics.py", f"--data_dir={tmp_path}/data").stdout
    rows = {}
    for name in ("train", "dev"):
        with (tmp_path / "data" / f"{name}.tsv").open(encoding="utf-8") as file:
            header, *rows[name] = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        assert header == ["sentence", "part"]
        assert {label for _, label in rows[name]} == {"classes", "debugger", "statements", "text"}
        assert f"{name}.tsv: {len(rows[name])} sentences" in said
    sentences = [sentence for part in rows.values() for sentence, _ in part]
    assert len(set(sentences)) == len(sentences)
    assert abs(len(rows["dev"]) / len(sentences) - 0.2) < 0.001
    labels = dict(rows["train"] + rows["dev"])
    assert (
        labels["The module pdb defines an interactive source code debugger for Python programs."]
        == "debugger"
    )
    assert (
        labels["Function and class definitions are also syntactically compound statements."]
        == "statements"
    )
