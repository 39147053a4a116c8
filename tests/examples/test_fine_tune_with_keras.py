"""The example, in this process: it learns, and what it saves is read by load_model and
by from_pretrained.
"""

import sys

import numpy as np
import pytest

from official_bert import (
    BertClassifier,
    BertConfig,
    BertPretrainer,
    FullTokenizer,
    Predictor,
    load_model,
)
from tests import toy
from tests.scripts import flag_list
from tests.shared import example

CAT, TRAIN = "the cat sat on the mat", "a train left the station"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("model")
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"initializer_range": 0.2})
    BertPretrainer(config).save_pretrained(str(folder), tokenizer=tokenizer)
    return folder


def test_it_learns_and_saves(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "train.tsv").write_text(
        f"{CAT}\tanimal\n{TRAIN}\tmachine\n" * 20 + f"{CAT}\tanimal\n"
    )
    output = tmp_path / "output"
    files = {"model": folder, "train_file": tmp_path / "train.tsv", "output_dir": output}
    flags = flag_list(**files, learning_rate=0.01, epochs=8)
    monkeypatch.setattr(sys, "argv", ["fine_tune_with_keras.py", *flags])
    example("fine_tune_with_keras").main()
    printed = capsys.readouterr().out
    assert "accuracy on 5 held-out examples: 1.0000" in printed
    names = {path.name for path in output.iterdir() if not path.name.startswith("bert_model.ckpt")}
    saved = {
        "bert_config.json",
        "labels.txt",
        "model.keras",
        "task.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert names == saved
    assert (output / "labels.txt").read_text() == "animal\nmachine\n"
    predictor = Predictor(str(output))
    assert [answer["label"] for answer in predictor([CAT, TRAIN])] == ["animal", "machine"]
    assert f"official-bert predict --model={output}\n" in printed
    loaded, trained = (
        load_model(output / "model.keras"),
        BertClassifier.from_pretrained(output),
    )
    batch = FullTokenizer(str(output / "vocab.txt"))([CAT, TRAIN])
    np.testing.assert_array_equal(loaded(batch), trained(batch))
    np.testing.assert_array_equal(np.argmax(loaded(batch), axis=-1), [0, 1])
    assert int(loaded.optimizer.iterations) == 8 * 2  # 36 examples in batches of 32
    assert float(loaded.optimizer.learning_rate) == 0.0
