"""The attention map: what is drawn are the probabilities of one head, and the picture is
written.
"""

import sys

import numpy as np
import pytest

from official_bert import BertModel, FullTokenizer
from tests import toy
from tests.scripts import run_script
from tests.shared import example

TEXT = "The sunny cat sat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("model")
    return str(toy.make_bert_base_dir(parent, num_hidden_layers=2))


def test_one_head_is_drawn(folder, monkeypatch):
    script = example("attention_map")
    drawings = []
    monkeypatch.setattr(script, "check_ending", lambda output_file: None)  # it needs matplotlib
    monkeypatch.setattr(script, "draw", lambda *arguments: drawings.append(arguments))
    command = [
        "attention_map.py",
        f"--model={folder}",
        f"--text={TEXT}",
        "--pair=Rain",
        "--layer=-2",
        "--head=1",
        "--output_file=map.png",
    ]
    monkeypatch.setattr(sys, "argv", command)
    script.main()
    ((probabilities, tokens, output_file),) = drawings
    assert " ".join(tokens) == "[CLS] the sun ##ny cat sat . [SEP] rain [SEP]"
    assert output_file == "map.png"

    tokenizer = FullTokenizer(f"{folder}/vocab.txt")
    batch = tokenizer(TEXT, "Rain")
    model = BertModel.from_pretrained(folder)
    outputs = model(**batch, output_attentions=True)
    first_layer, _ = outputs.all_attention_probabilities
    np.testing.assert_allclose(probabilities, first_layer[0, 1], atol=1e-6)


@pytest.mark.needs_extra("matplotlib")
def test_the_picture_is_written(folder, tmp_path):
    picture = tmp_path / "map.png"
    run_script(
        "examples/attention_map.py",
        f"--model={folder}",
        f"--text={TEXT}",
        f"--output_file={picture}",
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
