"""Tests of the quickstart's arithmetic; `make quickstart` runs the whole script."""

import contextlib
import importlib.util

import numpy as np
import pytest

from official_bert.data.records.framing import open_example_files
from tests.shared import ROOT


@pytest.fixture(scope="module")
def quickstart():
    spec = importlib.util.spec_from_file_location("quickstart", ROOT / "examples" / "quickstart.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_baselines_are_counted_over_real_predictions(quickstart, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[MASK]\nthe\nof\n")
    with open_example_files([str(tmp_path / "held_out.tfrecord")]) as records:
        records.write(
            {
                "masked_lm_ids": np.array([[2, 3, 0], [3, 3, 0], [2, 3, 2]]),
                "masked_lm_weights": np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0]], "float32"),
                "next_sentence_labels": np.array([[0], [1], [1]]),
            }
        )
    assert quickstart.baselines(tmp_path) == quickstart.Baselines(
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
        ("full", 0.9, 0.529, "next sentences: the model is only 2.9% above the baseline, not the expected 3%"),
        ("short", 0.125, 0.0, None),
    ],
)
def test_a_model_must_be_better_than_the_baselines(quickstart, setting, masked_lm, next_sentence, sentence):
    baseline = quickstart.Baselines(10, "the", masked_lm_accuracy=0.0625, next_sentence_accuracy=0.5)
    end = {"masked_lm_accuracy": masked_lm, "next_sentence_accuracy": next_sentence}
    with pytest.raises(SystemExit, match=sentence) if sentence else contextlib.nullcontext():
        quickstart.check_learning(quickstart.SETTINGS[setting], end, baseline)


def test_a_command_that_fails_ends_the_quickstart_with_its_status(quickstart, capsys):
    with pytest.raises(SystemExit) as left:
        quickstart.run("build_vocab.py", "--vocab_size=none of it")
    assert left.value.code == 1
    assert "$ python build_vocab.py \\\n    '--vocab_size=none of it'\n" in capsys.readouterr().out


def test_a_finished_model_is_neither_trained_again_nor_deleted(quickstart, tmp_path, monkeypatch, capsys):
    output = tmp_path / "short"
    (output / "bert").mkdir(parents=True)
    (output / "bert" / "bert_model.ckpt.index").touch()
    monkeypatch.setattr(quickstart, "OUTPUTS", tmp_path)
    monkeypatch.setattr(quickstart.os, "chdir", lambda _: None)
    monkeypatch.setattr(quickstart, "run", lambda *command: pytest.fail(f"ran {command}"))
    monkeypatch.setattr(quickstart, "predict_masked_words", lambda model: print(f"predicts with {model}"))
    monkeypatch.setattr(quickstart, "baselines", lambda _: quickstart.Baselines(9, "the", 0.05, 0.7))
    for name, accuracy in (("untrained", 0.001), ("model", 0.3)):
        (output / name).mkdir()
        text = f"loss = 2.5\nmasked_lm_accuracy = {accuracy}\nnext_sentence_accuracy = 0.5\n"
        (output / name / "eval_results.txt").write_text(text)
    monkeypatch.setattr(quickstart.sys, "argv", ["quickstart.py", "--setting=short"])
    quickstart.main()
    said = capsys.readouterr().out
    assert f"{output}/bert holds a trained model already" in said
    assert "masked LM accuracy           0.1%    30.0%       5.0%" in said
    assert "The model finds 6.0\ntimes as many masked words. So short a training" in said
    assert f"predicts with {output}/bert" in said
    assert f"export MODEL={output}/bert" in said
    assert (output / "bert" / "bert_model.ckpt.index").exists()
