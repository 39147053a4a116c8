"""official-bert convert_checkpoint: files of both formats, and errors for what cannot be
converted.
"""

import json
import os
import re
import shutil

import numpy as np
import pytest

from official_bert import model_dir
from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import huggingface, open_checkpoint, tf1
from official_bert.commands import convert_checkpoint
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.options.serving import ConversionOptions
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights, with_training_state
from tests.hostile.rows import edit_json

VOCAB = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "".join(f"w{i}\n" for i in range(15))


@pytest.fixture
def trained(tmp_path):
    """An output_dir of a training run: one checkpoint with its slots, config and vocabulary
    beside it.
    """
    folder = tmp_path / "trained"
    weights = random_weights(pretraining_shapes(CONFIG))
    tf1.write(
        str(folder / "model.ckpt-30"),
        with_training_state(weights, step=30),
    )
    checkpoint_folder.write_state(str(folder), ["model.ckpt-30"])
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    (folder / "vocab.txt").write_text(VOCAB)
    return folder, weights


def converted(**options):
    texts = {name: str(value) for name, value in options.items()}
    convert_checkpoint.run(ConversionOptions(**texts))


def test_to_hugging_face_and_back(tmp_path, trained):
    folder, weights = trained
    there = tmp_path / "there"
    back = tmp_path / "back"
    converted(model=folder, output_dir=there, output_format="huggingface")
    assert sorted(os.listdir(there)) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    assert json.loads((there / "config.json").read_text())["hidden_act"] == "gelu_new"
    converted(model=there, output_dir=back, output_format="tf1")
    assert sorted(os.listdir(back)) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    assert BertConfig.from_json_file(str(back / "bert_config.json")).to_dict() == CONFIG.to_dict()
    assert (back / "vocab.txt").read_text() == VOCAB
    checkpoint = open_checkpoint(str(back))
    assert list(checkpoint.shapes) == sorted(weights)
    for name, value in weights.items():
        assert checkpoint.read(name).tobytes() == value.tobytes()


def test_slots_stay_unless_they_are_stripped(tmp_path, trained):
    folder, weights = trained
    converted(
        model=folder / "model.ckpt-30",
        output_dir=tmp_path / "whole",
        output_format="tf1",
    )
    whole = open_checkpoint(str(tmp_path / "whole"))
    assert len(whole.shapes) == 139
    assert whole.read("global_step") == 30
    converted(model=folder, output_dir=tmp_path / "bare", output_format="tf1_weights")
    bare = open_checkpoint(str(tmp_path / "bare" / "bert_model.ckpt"))
    assert list(bare.shapes) == sorted(weights)
    np.testing.assert_array_equal(
        bare.read("bert/pooler/dense/kernel"), weights["bert/pooler/dense/kernel"]
    )


def test_the_activation_follows_the_rules(tmp_path, trained, caplog):
    folder, _ = trained
    there = tmp_path / "there"
    back = tmp_path / "back"
    converted(model=folder, output_dir=there, output_format="huggingface")
    edit_json(there / "config.json", hidden_act="gelu")  # of Hugging Face, the exact form
    converted(model=there, output_dir=back, output_format="tf1")
    assert json.loads((back / "bert_config.json").read_text())["hidden_act"] == "gelu_erf"
    assert "computes the tanh form" in caplog.text
    edit_json(there / "config.json", hidden_act="swish")
    with pytest.raises(InputError, match="hidden_act"):
        converted(model=there, output_dir=back, output_format="tf1")


def test_weights_without_another_name_are_named(tmp_path, trained, caplog):
    folder, weights = trained
    tf1.write(
        str(folder / "model.ckpt-30"),
        weights | {"mine/kernel": np.float32([1])},
    )
    converted(model=folder, output_dir=tmp_path / "hf", output_format="huggingface")
    assert "Left out, since no other name is known for them: mine/kernel" in caplog.text
    assert list(open_checkpoint(str(tmp_path / "hf")).shapes) == sorted(weights)
    converted(model=folder, output_dir=tmp_path / "tf1", output_format="tf1")
    assert "mine/kernel" in open_checkpoint(str(tmp_path / "tf1")).shapes


def test_the_class_of_a_linear_head(tmp_path, trained, caplog):
    """The record of the training says what the head reads; a flag goes before it."""
    folder, weights = trained
    head = {
        "output_weights": np.ones((3, 8), np.float32),
        "output_bias": np.zeros(3, np.float32),
    }
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    tf1.write(
        str(folder / "best" / "model.ckpt-20"),
        encoder | head,
    )
    checkpoint_folder.write_state(str(folder / "best"), ["model.ckpt-20"])
    shutil.copy(folder / "bert_config.json", folder / "best")

    def class_of(family: str, recorded: str = "mine", **flags) -> dict:
        if family:
            model_dir.write_record(
                str(folder),
                model_dir.TaskRecord(recorded, family, {}),
            )
        out = tmp_path / "out"
        converted(model=folder, output_dir=out, output_format="huggingface", **flags)
        return json.loads((out / "config.json").read_text())

    config = class_of("")
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert re.search("No task.json in .* says what the model was trained on", caplog.text)
    caplog.clear()
    assert class_of("classification", "mine:Processor")["architectures"] == [
        "BertForSequenceClassification"
    ]
    config = class_of("tagging")
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["label2id"] == {
        "LABEL_0": 0,
        "LABEL_1": 1,
        "LABEL_2": 2,
    }
    config = class_of("choice")
    assert config["architectures"] == ["BertForMultipleChoice"]
    assert "id2label" not in config
    assert "No task.json" not in caplog.text
    with pytest.raises(
        InputError, match=r"was trained on the task mine:Tagger, .* give --task_name=text.tsv"
    ):
        class_of("mine:Tagger", "mine:Tagger")
    for name in ("text", "tsv"):
        config = class_of("mine:Tagger", "mine:Tagger", task_name=name)
        assert config["architectures"] == ["BertForSequenceClassification"]
    config = class_of("mine:Tagger", "mine:Tagger", task_name="ner")
    assert config["architectures"] == ["BertForTokenClassification"]


def test_a_cased_vocabulary_without_a_config_is_lower_cased_as_by_all_scripts(
    tmp_path, trained, caplog
):
    folder, _ = trained
    (folder / "vocab.txt").write_text(VOCAB.replace("w1\n", "W1\n"))
    converted(model=folder, output_dir=tmp_path / "out", output_format="huggingface")
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings["do_lower_case"] is True
    assert (
        "vocab.txt: has capitals, but the text is lower-cased: is --do_lower_case=True right?"
        in caplog.text
    )


@pytest.mark.parametrize("form", ["tf1", "tf1_weights", "huggingface"])
@pytest.mark.parametrize(
    ("architecture", "label_type", "fields"),
    [
        ("BertForTokenClassification", None, {}),
        ("BertForSequenceClassification", "single", {}),
        ("BertForSequenceClassification", "multi", {"problem_type": "multi_label_classification"}),
    ],
)
def test_class_labels_and_problem_type_stay(
    tmp_path, trained, form, architecture, label_type, fields
):
    """What a folder of Hugging Face says of its head holds after a conversion, and after the way
    back.
    """
    _, weights = trained
    head = {
        "output_weights": np.ones((3, 8), np.float32),
        "output_bias": np.zeros(3, np.float32),
    }
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    there = tmp_path / "there"
    labels = ["O", "B-a", "I-a"]
    os.makedirs(there)
    huggingface.write(
        str(there),
        encoder | head,
        CONFIG,
        architecture,
        labels,
        fields,
    )
    wanted = model_dir.ModelFolder(str(there)).task()
    assert wanted.settings.get("label_type") == label_type

    converted(model=there, output_dir=tmp_path / "out", output_format=form)
    folder = model_dir.ModelFolder(str(tmp_path / "out"))
    assert folder.task()._replace(labels=None) == wanted
    assert folder.labels() == labels
    converted(
        model=tmp_path / "out",
        output_dir=tmp_path / "back",
        output_format="huggingface",
    )
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert list(config["id2label"].values()) == labels
    kinds = {"single": "single_label_classification", "multi": "multi_label_classification"}
    assert config.get("problem_type") == kinds.get(label_type)


def test_the_activation_of_a_cross_encoder_stays_or_is_refused(tmp_path, trained):
    _, weights = trained
    head = {
        "output_weights": np.ones((1, 8), np.float32),
        "output_bias": np.zeros(1, np.float32),
    }
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    there = tmp_path / "there"
    activation = {"activation_fn": "torch.nn.modules.activation.Tanh"}
    os.makedirs(there)
    fields = {"sentence_transformers": activation}
    huggingface.write(
        str(there), encoder | head, CONFIG, "BertForSequenceClassification", None, fields
    )
    converted(model=there, output_dir=tmp_path / "out", output_format="huggingface")
    assert (
        json.loads((tmp_path / "out" / "config.json").read_text())["sentence_transformers"]
        == activation
    )
    with pytest.raises(InputError, match="activation_fn is Tanh"):
        converted(model=there, output_dir=tmp_path / "out2", output_format="tf1")


def test_config_and_vocabulary_from_flags(tmp_path, trained, caplog):
    folder, _ = trained
    (folder / "vocab.txt").unlink()
    converted(model=folder, output_dir=tmp_path / "out", output_format="tf1")
    assert "No vocab.txt beside" in caplog.text
    assert "vocab.txt" not in os.listdir(tmp_path / "out")

    os.rename(folder / "bert_config.json", tmp_path / "mine.json")
    with pytest.raises(
        InputError, match=r"neither bert_config\.json nor config\.json .* --bert_config_file"
    ):
        converted(model=folder, output_dir=tmp_path / "out", output_format="tf1")
    (tmp_path / "mine.txt").write_text(VOCAB)
    flags = {
        "bert_config_file": tmp_path / "mine.json",
        "vocab_file": tmp_path / "mine.txt",
    }
    converted(model=folder, output_dir=tmp_path / "out", output_format="huggingface", **flags)
    assert (tmp_path / "out" / "vocab.txt").read_text() == VOCAB

    (tmp_path / "mine.txt").write_text(VOCAB + "one more\n")
    with pytest.raises(InputError, match=r"mine\.txt: has 21 lines, more than .* \(20\)"):
        converted(model=folder, output_dir=tmp_path / "out", output_format="huggingface", **flags)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"do_lower_case": False},
            "--do_lower_case=False: .*tokenizer_config.json says True, .*, or correct the file$",
        ),
        (
            {"vocab_file": "mine.txt"},
            "line 6 is 'w1', and 'w0' in .*vocab.txt, the vocabulary that",
        ),
        (
            {"bert_config_file": "mine.json"},
            "config.json: its hidden_act is gelu, and relu by --bert_",
        ),
    ],
)
def test_flags_that_contradict_the_folder_are_refused(tmp_path, trained, flags, sentence):
    there = str(tmp_path / "there")
    out = str(tmp_path / "out")
    converted(model=trained[0], output_dir=there, output_format="huggingface")
    (tmp_path / "mine.txt").write_text(VOCAB.replace("w0\nw1\n", "w1\nw0\n"))
    (tmp_path / "mine.json").write_text(json.dumps(CONFIG.to_dict() | {"hidden_act": "relu"}))
    paths = {name: str(tmp_path / value) for name, value in flags.items() if value}
    options = ConversionOptions(
        model=there,
        output_dir=out,
        output_format="tf1",
        **flags | paths,
    )
    with pytest.raises(InputError, match=sentence):
        convert_checkpoint.run(options)
    same = {"do_lower_case": True, "vocab_file": f"{there}/vocab.txt"}
    convert_checkpoint.run(
        ConversionOptions(model=there, output_dir=out, output_format="tf1", **same)
    )


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (
            "vocab_size",
            30522,
            r"word_embeddings has shape \[20, 8\], and \[30522, 8\] by the config",
        ),
        ("num_hidden_layers", 12, "has 2 layers, and 12 by the config"),
    ],
)
def test_a_config_of_another_model(tmp_path, trained, field, value, sentence):
    folder, _ = trained
    (folder / "bert_config.json").write_text(json.dumps(CONFIG.to_dict() | {field: value}))
    with pytest.raises(InputError, match=sentence):
        converted(model=folder, output_dir=tmp_path / "out", output_format="tf1")
    assert not (tmp_path / "out").exists()
