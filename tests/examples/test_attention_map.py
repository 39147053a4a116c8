"""The attention map: what is drawn are the probabilities of one head, and wrong arguments end in one sentence."""

import importlib.util
import sys

import numpy as np
import pytest

from official_bert import BertModel, FullTokenizer
from tests import toy
from tests.shared import ROOT

TEXT = "The sunny cat sat."


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("attention_map", ROOT / "examples" / "attention_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2))


def run(example, monkeypatch, **flags):
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    monkeypatch.setattr(sys, "argv", ["attention_map.py", *arguments])
    example.main()


def test_one_head_is_drawn(example, folder, monkeypatch):
    drawn = []
    monkeypatch.setattr(example, "draw", lambda *arguments: drawn.append(arguments))
    run(example, monkeypatch, model=folder, text=TEXT, pair="Rain", layer=-2, head=1, output_file="map.png")
    ((probabilities, tokens, output_file),) = drawn
    assert (" ".join(tokens), output_file) == ("[CLS] the sun ##ny cat sat . [SEP] rain [SEP]", "map.png")
    batch = FullTokenizer(f"{folder}/vocab.txt")(TEXT, "Rain")
    layers = BertModel.from_pretrained(folder)(**batch, output_attentions=True).all_attention_probabilities
    np.testing.assert_allclose(probabilities, layers[0][0, 1], atol=1e-6)


@pytest.mark.needs_extra("matplotlib")
def test_the_picture_is_written(example, tmp_path):
    path = tmp_path / "map.png"
    example.draw(np.eye(4, dtype=np.float32), ["[CLS]", "a", "b", "[SEP]"], str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"layer": 2}, "--layer=2: must be from -2 to 1"),
        ({"head": -1}, "--head=-1: must be from 0 to 1"),
        ({"model": "/nowhere"}, "/nowhere: no checkpoint there"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(example, folder, monkeypatch, flags, message):
    with pytest.raises(SystemExit, match=message):
        run(example, monkeypatch, **({"model": folder, "text": TEXT, "output_file": "map.png"} | flags))
