"""The attention map: what is drawn are the probabilities of one head, and the picture is written."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from official_bert import BertModel, FullTokenizer
from tests import toy
from tests.shared import ROOT

SCRIPT = ROOT / "examples" / "attention_map.py"
TEXT = "The sunny cat sat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2))


def test_one_head_is_drawn(folder, monkeypatch):
    spec = importlib.util.spec_from_file_location("attention_map", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    drawn = []
    monkeypatch.setattr(example, "check_ending", lambda output_file: None)  # it needs matplotlib
    monkeypatch.setattr(example, "draw", lambda *arguments: drawn.append(arguments))
    flags = [f"--model={folder}", f"--text={TEXT}", "--pair=Rain", "--layer=-2", "--head=1"]
    monkeypatch.setattr(sys, "argv", ["attention_map.py", *flags, "--output_file=map.png"])
    example.main()
    ((probabilities, tokens, output_file),) = drawn
    assert (" ".join(tokens), output_file) == ("[CLS] the sun ##ny cat sat . [SEP] rain [SEP]", "map.png")
    batch = FullTokenizer(f"{folder}/vocab.txt")(TEXT, "Rain")
    layers = BertModel.from_pretrained(folder)(**batch, output_attentions=True).all_attention_probabilities
    np.testing.assert_allclose(probabilities, layers[0][0, 1], atol=1e-6)


@pytest.mark.needs_extra("matplotlib")
def test_the_picture_is_written(folder, tmp_path):
    flags = [f"--model={folder}", f"--text={TEXT}", f"--output_file={tmp_path}/map.png"]
    subprocess.run([sys.executable, SCRIPT, *flags], check=True)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
