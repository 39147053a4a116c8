"""How the folder of a model completes the flags of a run, and which flags it contradicts."""

import dataclasses
import json
import re

import pytest
import tensorflow as tf

from official_bert import model_dir
from official_bert.checkpoints import CheckpointManager
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.model_source import ModelSource, check_stored_config, resolve
from official_bert.options.data_tools import PretrainingDataOptions
from official_bert.options.fine_tuning import (
    ChoiceOptions,
    ClassificationOptions,
    SquadOptions,
    TaggingOptions,
)
from official_bert.options.serving import ExportOptions, ExtractionOptions
from official_bert.options.training import PretrainingOptions
from official_bert.tasks import registry
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy

TOKENIZER = TokenizerConfig(do_lower_case=False, strip_accents=True, model_max_length=48)
SQUAD = {
    "max_seq_length": 40,
    "doc_stride": 9,
    "version_2_with_negative": True,
    "null_score_diff_threshold": -2.5,
}


@pytest.fixture
def make(tmp_path):
    """Makes the folder of a model without weights, which no test here reads."""

    def model(name="model", record=None, tokenizer=TOKENIZER, pieces=toy.VOCABULARY):
        folder = tmp_path / name
        config = BertConfig.from_dict(toy.BERT_CONFIG)
        vocab_file = toy.write_vocabulary(tmp_path, pieces)
        model_dir.write(str(folder), config, vocab_file, tokenizer, record)
        return folder

    return model


def resolved(options, family=None):
    return resolve(options, family).options


def record(family="classification", **settings):
    return model_dir.TaskRecord("tsv", family, settings)


def classification(**changes) -> ClassificationOptions:
    return ClassificationOptions(
        **{"data_dir": "d", "task_name": "tsv", "output_dir": "absent"} | changes
    )


def test_the_folder_stands_for_the_three_flags_and_says_how_text_is_read(make):
    folder = make()
    found = resolved(classification(model=str(folder), do_train=True), "classification")
    assert (found.model, found.init_checkpoint) == (None, str(folder))
    assert found.vocab_file == str(folder / "vocab.txt")
    assert found.bert_config_file == str(folder / "bert_config.json")
    assert (found.do_lower_case, found.strip_accents) == (False, True)
    assert found.max_seq_length == 48  # 128 by default, which the model has no positions for
    assert resolved(found, "classification") == found
    by_three = classification(
        init_checkpoint=str(folder),
        vocab_file=found.vocab_file,
        bert_config_file=found.bert_config_file,
        do_train=True,
    )
    assert resolved(by_three, "classification") == found


def test_without_a_folder_that_knows_the_originals_defaults_hold(tmp_path):
    toy.write_vocabulary(tmp_path)
    given = {
        "vocab_file": str(tmp_path / "vocab.txt"),
        "bert_config_file": "c",
        "output_dir": "absent",
    }
    found = resolved(classification(**given))
    assert (found.do_lower_case, found.strip_accents, found.max_seq_length) == (True, None, 128)
    assert found.label_type == "single"
    assert resolved(SquadOptions(**given)).max_seq_length == 384
    assert (
        resolved(classification(**given, do_lower_case=False, max_seq_length=9)).max_seq_length == 9
    )


def test_a_file_that_nobody_names_is_asked_for(tmp_path):
    given = {"vocab_file": "v"}
    with pytest.raises(InputError, match=r"^--vocab_file: must be given, or --model"):
        resolved(classification(bert_config_file="c"))
    said = f"^--bert_config_file: must be given, since {tmp_path} has no such file; if it is not"
    with pytest.raises(InputError, match=said):
        resolved(classification(**given, init_checkpoint=str(tmp_path)))
    with pytest.raises(InputError, match=r"; --output_dir=absent holds no trained model$"):
        resolved(classification(**given, do_predict=True))
    with pytest.raises(InputError, match=r"^--model=nowhere: no such folder; check the path$"):
        resolved(classification(**given, model="nowhere"))


def test_the_model_of_output_dir_goes_before_all_others(make):
    out = make("out", record(max_seq_length=16, label_type="multi"))
    (out / "checkpoint").touch()
    other = make("other", tokenizer=TokenizerConfig(True))
    found = resolved(
        classification(output_dir=str(out), model=str(other), do_eval=True), "classification"
    )
    assert found.vocab_file == str(out / "vocab.txt")
    assert (found.do_lower_case, found.max_seq_length) == (False, 16)
    assert found.label_type == "multi"


def test_the_settings_of_a_training_are_those_of_its_own_task_alone(make):
    folder = make(record=record(max_seq_length=16, label_type="multi"))
    evaluation = classification(model=str(folder), do_eval=True)
    assert resolved(evaluation, "classification").max_seq_length == 16
    assert resolved(evaluation, "squad").max_seq_length == 48
    training = dataclasses.replace(evaluation, do_train=True, max_seq_length=32)
    assert resolved(training, "classification").max_seq_length == 32


def test_an_export_takes_the_rules_of_squad_and_the_tuned_threshold(make):
    folder = make(record=record("squad", **SQUAD))
    exported = resolved(
        ExportOptions(model=str(folder), export_dir="e", task_name="squad"), "squad"
    )
    assert {name: getattr(exported, name) for name in SQUAD} == SQUAD
    assert (exported.n_best_size, exported.max_answer_length) == (20, 30)
    # Rules choose among the answers, so another one is no contradiction.
    given = ExportOptions(
        model=str(folder), export_dir="e", task_name="squad", null_score_diff_threshold=0.5
    )
    assert resolved(given, "squad").null_score_diff_threshold == 0.5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"do_lower_case": True},
            "--do_lower_case=True: .*/tokenizer_config.json says False, with which",
        ),
        (
            {"max_seq_length": 32},
            "--max_seq_length=32: .*/task.json says 16, with which the model was trained",
        ),
        ({"label_type": "score"}, "--label_type=score: .*/task.json says multi"),
        (
            {"init_checkpoint": "x"},
            "--init_checkpoint=x: --model=.* names a checkpoint, too; give one",
        ),
    ],
)
def test_a_flag_that_contradicts_the_folder_is_refused(make, changes, sentence):
    folder = make(record=record(max_seq_length=16, label_type="multi"))
    with pytest.raises(InputError, match=sentence):
        resolved(classification(model=str(folder), do_eval=True, **changes), "classification")


def test_accents_follow_the_case_where_the_folder_does_not_name_them(make):
    folder = str(make(tokenizer=TokenizerConfig(False)))
    same = resolved(classification(model=folder, strip_accents=False), "classification")
    assert same.do_lower_case is False
    assert same.strip_accents is False
    default = resolved(classification(model=folder), "classification")
    assert default.strip_accents is None
    contradiction = classification(model=folder, strip_accents=True)
    with pytest.raises(InputError, match=r"--strip_accents=True: .* says False, with which"):
        resolved(contradiction, "classification")


def test_a_casing_that_nobody_knows_is_asked_for(make):
    folder = make(tokenizer=TokenizerConfig(None))
    message = r"tokenizer_config.json: leaves open whether .*; write true or false"
    with pytest.raises(InputError, match=message):
        resolved(classification(model=str(folder)))
    with pytest.raises(InputError, match=message):
        FullTokenizer.from_pretrained(folder)
    answered = resolved(classification(model=str(folder), do_lower_case=False))
    assert answered.do_lower_case is False


def test_another_vocabulary_is_refused_but_for_pieces_that_no_training_used(make, tmp_path):
    folder = make(pieces=[*toy.VOCABULARY, "[unused1]"])
    mine = tmp_path / "mine"
    mine.mkdir()
    vocab_file = toy.write_vocabulary(mine, [*toy.VOCABULARY, "domain"])
    options = classification(model=str(folder), vocab_file=vocab_file)
    assert resolved(options).vocab_file == vocab_file

    message = "--vocab_file=.*mine/vocab.txt: {} .* the vocabulary that"
    toy.write_vocabulary(mine, ["the", *toy.VOCABULARY[1:], "x"])
    other_first_line = message.format(r"line 1 is 'the', and '\[PAD\]' in")
    with pytest.raises(InputError, match=other_first_line):
        resolved(options)
    toy.write_vocabulary(mine, toy.VOCABULARY[:-1])
    no_last_line = message.format(f"line {len(toy.VOCABULARY)} is '', and '.' in")
    with pytest.raises(InputError, match=no_last_line):
        resolved(options)

    # The folder of a released model does not know itself: its users have always been free to take
    # another file.
    (folder / "tokenizer_config.json").unlink()
    assert resolved(options).vocab_file == vocab_file


def test_a_record_with_a_value_that_no_flag_accepts_is_refused(make):
    folder = make(record=record(label_type="many"))
    with pytest.raises(
        InputError,
        match=r"task.json: label_type is 'many', which the flag does not accept; restore",
    ):
        resolved(classification(model=str(folder), do_eval=True), "classification")


def test_a_folder_of_hugging_face_with_capitals_is_not_lower_cased(make):
    """The three flags of the original name its files one by one."""
    folder = make(tokenizer=TokenizerConfig(False))
    (folder / "bert_config.json").rename(folder / "config.json")
    options = ExtractionOptions(
        input_file="i",
        output_file="o",
        init_checkpoint=str(folder / "model.safetensors"),
        vocab_file=str(folder / "vocab.txt"),
        bert_config_file=str(folder / "config.json"),
    )
    assert resolved(options).do_lower_case is False
    files = {"input_file": ["i"], "output_file": ["o"]}
    assert (
        resolved(
            PretrainingDataOptions(**files, vocab_file=str(folder / "vocab.txt"))
        ).do_lower_case
        is False
    )
    by_folder = resolved(PretrainingDataOptions(**files, model=str(folder)))
    assert by_folder.vocab_file == str(folder / "vocab.txt")


def test_the_vocabulary_of_a_pretraining_is_found_or_warned_of(make, tmp_path, caplog):
    folder = make()

    def found(**changes):
        given = {
            "input_file": ["i"],
            "output_dir": "absent",
            "bert_config_file": str(folder / "bert_config.json"),
        }
        return resolve(PretrainingOptions(**given | changes)).vocabulary()

    assert found() == (str(folder / "vocab.txt"), TokenizerConfig(False, True, 512))
    with pytest.raises(
        InputError, match=r"--do_lower_case=True: .*/tokenizer_config.json says False"
    ):
        found(do_lower_case=True)
    (folder / "tokenizer_config.json").unlink()
    assert found(do_lower_case=False, strip_accents=True)[1] == TokenizerConfig(False, True, 512)
    # The vocabulary has no capitals, but the text may have.
    caplog.clear()
    assert found()[1] == TokenizerConfig(None, None, 512)
    assert "tokenizer_config.json in absent leaves it open" in caplog.text
    assert "has no capitals, but the text keeps its own" not in caplog.text
    (tmp_path / "alone.json").write_text(json.dumps(toy.BERT_CONFIG))
    alone = str(tmp_path / "alone.json")
    (tmp_path / "vocab.txt").unlink()
    assert found(bert_config_file=alone) == (None, None)
    assert "--vocab_file is not given, so absent gets no vocabulary" in caplog.text
    assert found(bert_config_file=alone, vocab_file=str(folder / "vocab.txt"))[0] == str(
        folder / "vocab.txt"
    )


def test_the_casing_of_a_pretraining_is_that_of_all_its_records(make, tmp_path):
    folder = make()
    (folder / "tokenizer_config.json").unlink()
    for name, do_lower_case in (("lower", True), ("cased", False)):
        (tmp_path / name).write_bytes(b"12")
        manifest = {
            "flags": {"do_lower_case": do_lower_case},
            "shards": [{"file": name, "bytes": 2}],
        }
        (tmp_path / f".{name}.manifest.json").write_text(json.dumps(manifest))
    options = PretrainingOptions(
        input_file=["i"],
        output_dir="absent",
        bert_config_file=str(folder / "bert_config.json"),
    )
    source = resolve(options)
    lower = str(tmp_path / "lower")
    cased = str(tmp_path / "cased")
    _, lower_config = source.vocabulary([lower])
    assert lower_config.do_lower_case is True
    _, cased_config = source.vocabulary([cased])
    assert cased_config.do_lower_case is False
    sentence = (
        "lower was made into records with do_lower_case=True, and .* or another file of records "
        "says False"
    )
    with pytest.raises(InputError, match=sentence):
        source.vocabulary([lower, cased])


def test_a_config_that_changes_the_numbers_is_refused(make):
    folder = make()
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"hidden_dropout_prob": 0.3})
    check_stored_config(str(folder), config)
    other_dropout = r"bert_config.json: its hidden_dropout_prob is 0.1, and 0.3 by"
    with pytest.raises(InputError, match=other_dropout):
        check_stored_config(str(folder), config, is_training=True)
    config.num_attention_heads = 4
    other_heads = "its num_attention_heads is 2, and 4 by --bert_config_file"
    with pytest.raises(InputError, match=other_heads):
        check_stored_config(str(folder / "model.ckpt-3"), config)


@pytest.fixture
def choice(tmp_path):
    return ChoiceOptions(vocab_file="v", bert_config_file="c", output_dir=str(tmp_path / "out"))


def save_model(folder, labels):
    step = tf.Variable(3, dtype=tf.int64)
    manager = CheckpointManager(str(folder), {"global_step": step})
    manager.save(3)
    lines = [f"{label}\n" for label in labels]
    (folder / "labels.txt").write_text("".join(lines))


def test_labels_come_from_where_the_weights_come_from(choice, tmp_path, monkeypatch):
    assert ModelSource(choice).labels is None
    save_model(tmp_path / "given", "ab")
    (tmp_path / "out").mkdir()
    # Of a run that was killed before it saved.
    (tmp_path / "out" / "labels.txt").write_text("stale\n")
    monkeypatch.chdir(tmp_path / "given")
    for given in (tmp_path / "given", "model.ckpt-3"):
        choice = dataclasses.replace(choice, init_checkpoint=str(given))
        assert ModelSource(choice).labels == ["a", "b"]
    save_model(tmp_path / "out" / "best", "cd")
    assert ModelSource(choice).labels == ["stale"]
    save_model(tmp_path / "out", "cd")
    assert ModelSource(choice).labels == ["c", "d"]


@pytest.mark.parametrize("do_train", [True, False])
def test_a_trained_models_outputs_get_no_other_names(choice, tmp_path, do_train):
    choice = dataclasses.replace(choice, do_train=do_train)
    without_model = ModelSource(choice)
    without_model.check_labels(["a", "b"])
    save_model(tmp_path / "out", "ab")
    source = ModelSource(choice)
    source.check_labels(["a", "b"])
    source.check_labels(None)  # a regression
    hint = "give another --output_dir" if do_train else "take a checkpoint of this task"
    path = re.escape(str(tmp_path / "out" / "labels.txt"))
    for labels, label_list in ((["b", "a"], "b, a"), (["a"], "a")):
        message = (
            f"^{path}: the model's outputs stand for a, b, but the task's labels are {label_list}; "
            f"name the labels in the model's order, or {hint}$"
        )
        with pytest.raises(InputError, match=message):
            source.check_labels(labels)


def test_a_training_may_begin_from_a_model_of_other_labels(choice, tmp_path):
    save_model(tmp_path / "given", "ab")
    choice = dataclasses.replace(choice, init_checkpoint=str(tmp_path / "given"))
    ModelSource(dataclasses.replace(choice, do_train=True)).check_labels(["x", "y"])
    with pytest.raises(InputError, match="stand for a, b, but the task's labels are x, y"):
        ModelSource(choice).check_labels(["x", "y"])


def write_huggingface_config(
    folder, architecture="BertForSequenceClassification", labels=("x", "y", "z"), **fields
):
    names = {str(number): label for number, label in enumerate(labels)}
    content = {
        "model_type": "bert",
        "num_attention_heads": 2,
        "architectures": [architecture],
        "id2label": names,
    }
    (folder / "config.json").write_text(json.dumps(content | fields))


@pytest.mark.parametrize("task_labels", [["y", "x", "z"], ["x", "y"], ["X", "Y", "Z"]])
def test_the_labels_of_a_config_are_compared_as_those_of_labels_txt(tmp_path, choice, task_labels):
    write_huggingface_config(tmp_path)
    source = ModelSource(dataclasses.replace(choice, init_checkpoint=str(tmp_path)))
    assert source.labels == ["x", "y", "z"]
    source.check_labels(["x", "y", "z"])
    with pytest.raises(
        InputError,
        match=r"config.json: the model's outputs stand for x, y, z, but the task's labels",
    ):
        source.check_labels(task_labels)


def test_labels_of_a_config_that_name_nothing_else_are_no_contradiction(tmp_path, choice):
    source = dataclasses.replace(choice, init_checkpoint=str(tmp_path))
    write_huggingface_config(tmp_path, labels=("not_equivalent", "equivalent"))
    ModelSource(source).check_labels(["0", "1"])  # of MRPC: the numbers of the outputs
    with pytest.raises(InputError, match="outputs stand for not_equivalent, equivalent"):
        ModelSource(source).check_labels(["1", "0"])
    # As transformers writes them without names.
    write_huggingface_config(tmp_path, labels=("LABEL_0", "LABEL_1"))
    ModelSource(source).check_labels(["b", "a"])


def test_what_a_config_says_of_the_outputs_decides_how_they_are_used(make):
    folder = make()
    write_huggingface_config(folder, problem_type="multi_label_classification")
    (folder / "bert_config.json").unlink()
    use = classification(model=str(folder), task_name="text", do_eval=True)
    assert resolved(use, "classification").label_type == "multi"
    assert (
        resolved(dataclasses.replace(use, do_train=True), "classification").label_type == "single"
    )
    assert (
        resolved(dataclasses.replace(use, task_name="CoLA"), "classification").label_type
        == "single"
    )
    with pytest.raises(
        InputError, match=r"config.json: is of a BertForSequenceClassification, whose head .*=tsv"
    ):
        resolved(use, "tagging")
    sentence = r"config.json: activation_fn is Sigmoid, which is not applied .* write torch.nn.modules.linear.Identity"
    cross_encoder = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    write_huggingface_config(folder, labels=("LABEL_0",), sentence_transformers=cross_encoder)
    with pytest.raises(InputError, match=sentence):
        resolved(use, "classification")
    assert (
        resolved(dataclasses.replace(use, do_train=True), "classification").label_type == "single"
    )


def test_a_config_of_a_class_without_settings_needs_no_flag(make):
    folder = make()
    write_huggingface_config(folder, "BertForQuestionAnswering")
    (folder / "bert_config.json").unlink()
    source = resolve(SquadOptions(model=str(folder), output_dir="absent", do_predict=True), "squad")
    assert (source.task.family, source.labels) == ("squad", None)
    write_huggingface_config(folder, "BertForTokenClassification", labels=("O", "B-a"))
    assert resolve(
        TaggingOptions(model=str(folder), output_dir="absent", do_eval=True), "tagging"
    ).labels == [
        "O",
        "B-a",
    ]


def test_a_folder_keeps_its_task(choice, tmp_path, caplog):
    save_model(tmp_path / "out", "ab")
    model_dir.write_record(
        str(tmp_path / "out"), model_dir.TaskRecord("sst-2", "classification", {})
    )
    training = dataclasses.replace(choice, do_train=True)
    for same in ("SST-2", "sst2"):
        ModelSource(training).check_task(same, registry.is_same)
        ModelSource(choice).check_task(same, registry.is_same)
    assert "another task" not in caplog.text
    with pytest.raises(
        InputError,
        match=r"--output_dir=.*out: its model is trained on sst-2, as .*out/task\.json says, and this "
        "run is of CoLA; give the folder as --model",
    ):
        ModelSource(training).check_task("CoLA", registry.is_same)
    ModelSource(choice).check_task("CoLA", registry.is_same)
    assert "was trained on sst-2" in caplog.text
    caplog.clear()
    beginning = dataclasses.replace(
        training, output_dir=str(tmp_path / "new"), init_checkpoint=str(tmp_path / "out")
    )
    # A new model may begin with the weights of another task.
    ModelSource(beginning).check_task("CoLA", registry.is_same)
    assert not caplog.text
