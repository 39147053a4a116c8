"""Tests which files of a model lie beside its checkpoint, and that they are written as they are read."""

import json

import pytest

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord, holds_checkpoints, write, write_record
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

RECORD = TaskRecord("squad", "squad", {"max_seq_length": 64, "null_score_diff_threshold": -1.5})


def write_all(folder, tmp_path):
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    write(str(folder), config, toy.write_vocabulary(tmp_path), TokenizerConfig(False), RECORD, ["b", "a"])


def test_what_is_written_is_found_beside_a_prefix_a_file_and_a_folder(tmp_path, monkeypatch):
    out = tmp_path / "made" / "out"
    write_all(out, tmp_path)
    monkeypatch.chdir(out)
    for checkpoint in (out, out / "model.ckpt-3", out / "model.safetensors", "model.ckpt-3", "."):
        folder = ModelFolder(str(checkpoint))
        assert folder.task() == RECORD
        assert folder.labels() == ["b", "a"]
        assert folder.tokenizer_config() == TokenizerConfig(False)
        with open(folder.vocab_file, encoding="utf-8") as file:
            assert file.read().split() == toy.VOCABULARY
        assert BertConfig.from_json_file(folder.config_file).to_dict() == toy.BERT_CONFIG


def test_a_best_checkpoint_takes_what_it_lacks_from_the_folder_above(tmp_path):
    out = tmp_path / "out"
    write_all(out, tmp_path)
    (out / "best").mkdir()
    write_record(str(out / "best"), RECORD._replace(task_name="mine"))
    best = ModelFolder(str(out / "best" / "model.ckpt-2"))
    assert best.task().task_name == "mine"
    assert best.labels() == ["b", "a"]
    assert best.tokenizer_config() == TokenizerConfig(False)
    (out / "other").mkdir()
    other = ModelFolder(str(out / "other"))
    assert (other.task(), other.labels(), other.vocab_file, other.config_file) == (None, None, None, None)
    assert other.tokenizer_config() is None


def test_a_vocabulary_that_is_there_is_not_copied_over_itself(tmp_path):
    vocab_file = toy.write_vocabulary(tmp_path)
    write(str(tmp_path), BertConfig.from_dict(toy.BERT_CONFIG), vocab_file, None)
    assert (tmp_path / "vocab.txt").read_text().split() == toy.VOCABULARY
    assert not (tmp_path / "tokenizer_config.json").exists()
    assert not (tmp_path / "task.json").exists()


def test_the_config_of_another_program_is_none_of_a_model(tmp_path):
    (tmp_path / "config.json").write_text('{"window": "large"}')
    assert ModelFolder(str(tmp_path)).config_file is None
    (tmp_path / "config.json").write_text(json.dumps(toy.BERT_CONFIG))
    assert ModelFolder(str(tmp_path)).config_file == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "task.json: line 1, column 2: no JSON"),
        ("[]", 'task.json: is no object; it should be one with the field "task_name"'),
        ('{"task_name": "squad", "family": "squad"}', 'task.json: "settings" is missing'),
        ('{"task_name": 3, "family": "squad", "settings": {}}', 'task.json: "task_name" is not a text'),
        (
            '{"task_name": "tsv", "family": "classification", "settings": {"regression": "no"}}',
            'task.json: "regression" is not true or false',
        ),
    ],
)
def test_a_damaged_record_is_refused(tmp_path, content, sentence):
    (tmp_path / "task.json").write_text(content)
    with pytest.raises(InputError, match=sentence):
        ModelFolder(str(tmp_path)).task()


@pytest.mark.parametrize(
    ("task_name", "settings", "expected"),
    [
        ("tsv", {"regression": True, "multi_label": False}, {"label_type": "score"}),
        ("tsv", {"regression": False, "multi_label": True}, {"label_type": "multi"}),
        ("tsv", {"regression": False}, {"label_type": "single"}),
        ("mine:Task", {"regression": 3}, {"regression": 3}),
    ],
)
def test_the_label_type_of_an_earlier_version(tmp_path, task_name, settings, expected):
    write_record(str(tmp_path), TaskRecord(task_name, "classification", settings))
    assert ModelFolder(str(tmp_path)).task().settings == expected


def test_a_list_of_checkpoints_makes_a_folder_of_a_run(tmp_path):
    assert not holds_checkpoints(str(tmp_path))
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "checkpoint").touch()
    assert holds_checkpoints(str(tmp_path))


def test_the_folder_above_a_best_one_is_found_by_a_relative_name(tmp_path, monkeypatch):
    write_all(tmp_path / "out", tmp_path)
    (tmp_path / "out" / "best").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert ModelFolder("best/model.ckpt-2").labels() == ["b", "a"]
    assert ModelFolder("best").labels() == ["b", "a"]
