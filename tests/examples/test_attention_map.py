"""The attention map: what is drawn are the probabilities of one head, and wrong arguments end in one sentence."""

import importlib.util
import subprocess
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


def run(example, monkeypatch, checks_ending=False, **flags):
    if not checks_ending:  # it needs matplotlib
        monkeypatch.setattr(example, "check_ending", lambda output_file: None)
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


@pytest.mark.needs_extra("matplotlib")
@pytest.mark.parametrize("output_file", ["att.xyz", "att"])
def test_another_ending_is_refused_before_the_model_is_loaded(example, monkeypatch, output_file):
    with pytest.raises(
        SystemExit, match=rf"--output_file={output_file}: must end in one of .*\.pdf, .*\.png, "
    ):
        run(example, monkeypatch, checks_ending=True, model="/nowhere", text=TEXT, output_file=output_file)


@pytest.mark.needs_extra("matplotlib")
def test_nothing_but_the_picture_comes_out(folder, tmp_path):
    flags = [f"--model={folder}", f"--text={TEXT}", f"--output_file={tmp_path}/map.png"]
    finished = subprocess.run(
        [sys.executable, ROOT / "examples" / "attention_map.py", *flags], capture_output=True, text=True
    )
    assert (finished.returncode, finished.stdout) == (0, "")
    assert all("has weights that the model does not use" in line for line in finished.stderr.splitlines())
    assert (tmp_path / "map.png").stat().st_size


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
