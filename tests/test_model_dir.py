"""The files of a model beside its checkpoint are written as they are read, tokenizer_config.json
as Hugging Face's.
"""

import hashlib
import json

import pytest

from official_bert.checkpoints import open_checkpoint
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord, has_checkpoints, write, write_record
from official_bert.tokenization import FullTokenizer, load_vocab
from official_bert.tokenizer_config import TokenizerConfig, has_capital_pieces
from tests import toy
from tests.shared import shared

RECORD = TaskRecord("squad", "squad", {"max_seq_length": 64, "null_score_diff_threshold": -1.5})


def write_all(folder, tmp_path):
    config = BertConfig.from_dict(toy.BERT_CONFIG)
    write(
        str(folder),
        config,
        toy.write_vocabulary(tmp_path),
        TokenizerConfig(False),
        RECORD,
        ["b", "a"],
    )


def test_what_is_written_is_found_beside_a_prefix_a_file_and_a_folder(tmp_path, monkeypatch):
    out = tmp_path / "made" / "out"
    write_all(out, tmp_path)
    monkeypatch.chdir(out)
    for checkpoint in (out, out / "model.ckpt-3", out / "model.safetensors", "model.ckpt-3", "."):
        folder = ModelFolder(str(checkpoint))
        told = {"number": 2, "sha256": hashlib.sha256(b"b\na\n").hexdigest()}
        assert folder.task() == RECORD._replace(labels=told)
        assert folder.labels() == ["b", "a"]
        assert folder.tokenizer_config() == TokenizerConfig(False)
        with open(folder.vocab_file, encoding="utf-8") as file:
            assert file.read().split() == toy.VOCABULARY
        assert BertConfig.from_json_file(folder.config_file).to_dict() == toy.BERT_CONFIG


def test_a_best_checkpoint_takes_what_it_lacks_from_the_folder_above(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_all(out, tmp_path)
    (out / "best").mkdir()
    write_record(str(out / "best"), RECORD._replace(task_name="mine"))
    best = ModelFolder(str(out / "best" / "model.ckpt-2"))
    assert best.task().task_name == "mine"
    assert best.labels() == ["b", "a"]
    assert best.tokenizer_config() == TokenizerConfig(False)
    (out / "other").mkdir()
    assert not has_checkpoints(str(out))
    (out / "best" / "checkpoint").touch()
    assert has_checkpoints(str(out))
    other = ModelFolder(str(out / "other"))
    assert (other.task(), other.labels(), other.vocab_file, other.config_file) == (
        None,
        None,
        None,
        None,
    )
    assert other.tokenizer_config() is None
    monkeypatch.chdir(out)
    assert ModelFolder("best/model.ckpt-2").labels() == ModelFolder("best").labels() == ["b", "a"]


def test_a_vocabulary_that_is_there_is_not_copied_over_itself(tmp_path):
    vocab_file = toy.write_vocabulary(tmp_path)
    write(str(tmp_path), BertConfig.from_dict(toy.BERT_CONFIG), vocab_file, None)
    assert (tmp_path / "vocab.txt").read_text().split() == toy.VOCABULARY
    assert not (tmp_path / "tokenizer_config.json").exists()
    assert not (tmp_path / "task.json").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "task.json: line 1, column 2: no JSON"),
        ('{"task_name": "squad", "family": "squad"}', 'task.json: "settings" is missing'),
        (
            '{"task_name": 3, "family": "squad", "settings": {}}',
            'task.json: "task_name" is not a text',
        ),
    ],
)
def test_a_corrupt_record_is_refused(tmp_path, content, sentence):
    (tmp_path / "task.json").write_text(content)
    with pytest.raises(InputError, match=sentence):
        ModelFolder(str(tmp_path)).task()


@pytest.mark.parametrize("content", ['{"version": "2.0.0", "tasks": []}', "[]"])
def test_a_record_of_another_program_decides_nothing(tmp_path, content):
    write_all(tmp_path / "out", tmp_path)
    (tmp_path / "out" / "task.json").write_text(content)
    folder = ModelFolder(str(tmp_path / "out"))
    assert (folder.task_file, folder.task(), folder.labels()) == (None, None, ["b", "a"])


def huggingface_folder(folder, labels, **fields) -> ModelFolder:
    ids = {str(number): label for number, label in enumerate(labels)}
    content = {
        "num_attention_heads": 2,
        "architectures": ["BertForSequenceClassification"],
        "id2label": ids,
    }
    (folder / "config.json").write_text(json.dumps(content | fields))
    return ModelFolder(str(folder))


def test_the_labels_of_a_config_go_before_a_file_without_a_record(tmp_path, caplog):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    folder = huggingface_folder(tmp_path, ["no", "yes"])
    assert (folder.labels(), folder.labels_source) == (["no", "yes"], str(tmp_path / "config.json"))
    assert "Ignoring" in caplog.text
    folder = huggingface_folder(tmp_path, ["LABEL_0", "LABEL_1"])
    assert (folder.labels(), folder.labels_source) == (["cat", "dog"], str(tmp_path / "labels.txt"))
    (tmp_path / "labels.txt").unlink()
    folder = huggingface_folder(tmp_path, ["LABEL_0", "LABEL_1"])
    assert (folder.labels(), folder.output_names()) == (None, ["LABEL_0", "LABEL_1"])


def test_a_config_without_names_has_the_number_of_its_labels(tmp_path):
    for fields, number in (({}, 2), ({"num_labels": 3}, 3), ({"num_labels": None}, 2)):
        folder = huggingface_folder(tmp_path, [], **fields | {"id2label": None})
        assert folder.output_names() == [f"LABEL_{label}" for label in range(number)]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"problem_type": "multilabel"},
            "problem_type is 'multilabel'; write one of .*multi_label_classification, ",
        ),
        ({"id2label": ["a", "b"]}, r"id2label is \['a', 'b'\]; write a name for each output"),
    ],
)
def test_fields_of_outputs_that_name_nothing_are_refused(tmp_path, fields, sentence):
    with pytest.raises(InputError, match=f"config.json: {sentence}"):
        huggingface_folder(tmp_path, ["a", "b"], **fields).task()


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        (["a", ""], "a label is empty"),
        (["a", "a"], "the label a is there twice"),
        (["a", "b\nc"], "a label has a line end"),
        (["a", "b\rc"], "a label has a line end"),
    ],
)
def test_labels_of_a_config_that_no_output_can_have_are_refused(tmp_path, labels, fault):
    with pytest.raises(
        InputError, match=f"config.json: id2label: {fault}; write a name for each output"
    ):
        huggingface_folder(tmp_path, labels).labels()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", lambda folder: ModelFolder(folder)),
        ("config.json", lambda folder: BertConfig.from_json_file(f"{folder}/config.json")),
        ("task.json", lambda folder: ModelFolder(folder)),
        ("labels.txt", lambda folder: ModelFolder(folder)),
        ("tokenizer_config.json", lambda folder: TokenizerConfig.read(folder)),
        ("vocab.txt", lambda folder: FullTokenizer.from_pretrained(folder)),
        ("model.safetensors", open_checkpoint),
        ("model.safetensors.index.json", open_checkpoint),
        ("bert_model.ckpt.index", open_checkpoint),
        ("checkpoint", open_checkpoint),
    ],
)
def test_a_file_that_may_never_end_is_not_read(tmp_path, name, read):
    """A FIFO, too, is no regular file; with /dev/null, this test ends even if the file is read."""
    (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(
        InputError, match=f"{name}: is not a regular file, but a device or a pipe; put the model's"
    ):
        read(str(tmp_path))
    if name.endswith((".json", ".txt")):
        (tmp_path / name).unlink()
        size = 1 << (26 if name.endswith(".json") else 30)
        with open(tmp_path / name, "wb") as file:
            file.truncate(size + 1)
        with pytest.raises(InputError, match=f"{name}: has more than {size >> 20} MiB; put"):
            read(str(tmp_path))


def write_tokenizer_config(folder, content):
    (folder / "tokenizer_config.json").write_text(
        content if isinstance(content, str) else json.dumps(content)
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, TokenizerConfig(True, None, None)),
        ({"do_lower_case": False, "model_max_length": 512}, TokenizerConfig(False, None, 512)),
        (
            {"strip_accents": False, "tokenizer_class": "BertTokenizerFast"},
            TokenizerConfig(True, False, None),
        ),
        ({"model_max_length": 1000000000000000019884624838656}, TokenizerConfig(True, None, None)),
        ({"model_max_length": True}, TokenizerConfig(True, None, None)),
    ],
)
def test_the_file_of_hugging_face_is_read(tmp_path, content, expected):
    write_tokenizer_config(tmp_path, content)
    assert TokenizerConfig.read(str(tmp_path)) == expected


def test_what_is_written_is_read_again_and_complete_for_hugging_face(tmp_path):
    config = TokenizerConfig(do_lower_case=False, strip_accents=True, model_max_length=64)
    write_tokenizer_config(tmp_path, config.to_json_string())
    assert TokenizerConfig.read(str(tmp_path)) == config
    written = json.loads(config.to_json_string())
    assert written["tokenizer_class"] == "BertTokenizer"
    special = {name: value for name, value in written.items() if name.endswith("_token")}
    assert special == {
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "tokenizer_config.json: is not an object"),
        ("{", "tokenizer_config.json: line 1, column 2: no JSON"),
        (
            {"do_lower_case": "no"},
            "tokenizer_config.json: do_lower_case is 'no'; write true or false",
        ),
        (
            {"tokenizer_class": "RobertaTokenizer"},
            r"is of a RobertaTokenizer; only models with WordPieces",
        ),
        (
            {"word_tokenizer_type": "mecab"},
            "word_tokenizer_type is 'mecab', and only 'basic' can be used; take another",
        ),
        (
            {"subword_tokenizer_type": "character"},
            "subword_tokenizer_type is 'character', and only 'wordpiece'",
        ),
        ({"do_basic_tokenize": False}, "do_basic_tokenize is False, and only True"),
        ({"truncation_side": "left"}, "truncation_side is 'left', and only 'right'"),
        ({"cls_token": "<s>"}, r"cls_token is '<s>', and only '\[CLS\]' can be used"),
        ({"sep_token": {"content": "</s>"}}, "sep_token is '</s>'"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, content, sentence):
    write_tokenizer_config(tmp_path, content)
    with pytest.raises(InputError, match=sentence):
        TokenizerConfig.read(str(tmp_path))


def test_ideographs_that_form_words_are_warned_of(tmp_path, caplog):
    write_tokenizer_config(tmp_path, {"tokenize_chinese_chars": False})
    TokenizerConfig.read(str(tmp_path))
    assert "tokenize_chinese_chars is false, but ideographs are always single words" in caplog.text


def test_words_that_are_not_split_elsewhere_are_warned_of(tmp_path, caplog):
    write_tokenizer_config(tmp_path, {"never_split": ["[USER]", "[LINK]"]})
    TokenizerConfig.read(str(tmp_path))
    assert "never_split has [USER], [LINK], but each text is split at punctuation" in caplog.text


def test_the_tokenizer_of_a_config_counts_where_no_other_file_names_it(tmp_path):
    content = {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"config.json: is of a BertJapaneseTokenizer; only models with WordPieces"
    ):
        TokenizerConfig.read(str(tmp_path))
    write_tokenizer_config(tmp_path, {"tokenizer_class": "BertTokenizer"})
    assert TokenizerConfig.read(str(tmp_path)) == TokenizerConfig()
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text('{"tokenizer_class": "mine"}')  # of another program
    assert TokenizerConfig.read(str(tmp_path)) is None


def test_a_cased_vocabulary_without_a_config_is_lower_cased_with_a_warning(tmp_path, caplog):
    toy.write_vocabulary(tmp_path, [*toy.VOCABULARY, "The"])
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("The") == ["the"]
    assert (
        "vocab.txt: has capitals, but the text is lower-cased: is --do_lower_case=True right?"
        in caplog.text
    )


def test_a_vocabulary_with_capitals_is_cased():
    uncased = ["[PAD]", "[UNK]", "<S>", "the", "##ing", "é", "猫"]
    assert not has_capital_pieces(uncased)
    assert has_capital_pieces([*uncased, "The"])
    # A slip among thousands of pieces is no sign of a cased vocabulary.
    assert not has_capital_pieces([f"piece{number}" for number in range(3000)] + ["T"])


@pytest.mark.needs_shared("data/vocab")
@pytest.mark.parametrize(
    ("name", "is_uncased"), [("uncased", True), ("cased", False), ("chinese", True)]
)
def test_the_released_vocabularies_are_told_apart(name, is_uncased):
    vocabulary = load_vocab(str(shared("data", "vocab", f"{name}_vocab.txt")))
    assert has_capital_pieces(vocabulary) is not is_uncased
