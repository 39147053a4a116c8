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
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2))


def test_one_head_is_drawn(folder, monkeypatch):
    script, drawn = example("attention_map"), []
    monkeypatch.setattr(script, "check_ending", lambda output_file: None)  # it needs matplotlib
    monkeypatch.setattr(script, "draw", lambda *arguments: drawn.append(arguments))
    flags = [f"--model={folder}", f"--text={TEXT}", "--pair=Rain", "--layer=-2", "--head=1"]
    monkeypatch.setattr(sys, "argv", ["attention_map.py", *flags, "--output_file=map.png"])
    script.main()
    ((probabilities, tokens, output_file),) = drawn
    assert (" ".join(tokens), output_file) == (
        "[CLS] the sun ##ny cat sat . [SEP] rain [SEP]",
        "map.png",
    )
    batch = FullTokenizer(f"{folder}/vocab.txt")(TEXT, "Rain")
    layers = BertModel.from_pretrained(folder)(
        **batch, output_attentions=True
    ).all_attention_probabilities
    np.testing.assert_allclose(probabilities, layers[0][0, 1], atol=1e-6)


@pytest.mark.needs_extra("matplotlib")
def test_the_picture_is_written(folder, tmp_path):
    flags = [f"--model={folder}", f"--text={TEXT}", f"--output_file={tmp_path}/map.png"]
    run_script("examples/attention_map.py", *flags)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
