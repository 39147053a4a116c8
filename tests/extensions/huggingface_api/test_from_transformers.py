"""docs/from_transformers.md runs, line by line, and gives the outputs of PyTorch's classes with
the same weights.
"""

import json
import re

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official_bert
from official_bert import BertModel, BertPretrainer, BertTagger, FullTokenizer, Predictor
from official_bert.features import ENCODER_INPUTS
from tests import toy
from tests.golden.record_transformers import (
    CLASSES,
    LABELS,
    OUTPUTS,
    PAIRS,
    SIZES,
    TEXTS,
    record_outputs,
    weight,
)
from tests.shared import ROOT

PAGE_PATH = ROOT / "docs" / "from_transformers.md"
PAGE = PAGE_PATH.read_text(encoding="utf-8")
TABLE_LINES = [line for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = [line.split(" | ") for line in TABLE_LINES if line != "| theirs | ours |"]
PIPELINES = {
    '"fill-mask"': "BertForMaskedLM",
    '"question-answering"': "BertForQuestionAnswering",
    '"ner"': "BertForTokenClassification",
    "masked LM": "BertForMaskedLM",
    "BertMaskedLM": "BertForMaskedLM",
}


def write_folder(folder, name: str, recorded):
    """Write what transformers saved when the outputs were recorded."""
    folder.mkdir()
    tensors = {}
    for line in recorded[f"{name}.shapes"]:
        path, *shape = json.loads(line)
        tensors[path] = weight(path, shape)
    safetensors.numpy.save_file(
        tensors,
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )

    config = dict(SIZES)
    if name in LABELS:
        config["id2label"] = dict(enumerate(LABELS[name]))
    config |= {
        "architectures": [name],
        "model_type": "bert",
        "hidden_act": "gelu",
    }
    tokenizer_config = {
        "do_lower_case": True,
        "model_max_length": 128,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    toy.write_vocabulary(folder)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The folder with a folder of each class, and the outputs of all, as they were recorded."""
    folder = tmp_path_factory.mktemp("recorded")
    recorded = np.load(OUTPUTS)
    for name in CLASSES:
        write_folder(folder / name, name, recorded)
    return folder, recorded


def find_class(cell: str) -> str:
    """Return the class of transformers to which the left cell of a row refers."""
    match = re.search(r"TF(Bert\w+)", cell)
    if match:
        return match[1]
    for word, name in PIPELINES.items():
        if word in cell:
            return name
    return "BertForSequenceClassification"


def has_code_to_run(code: str) -> bool:
    is_name = re.search(r"[=(.]", code) is None
    return not is_name and not code.startswith("labels=")


def run_row(right: str, folder, new) -> dict:
    """Run the code of a right cell as a reader would, behind the lines that came before it.

    Returns:
        All variables of the code by name.
    """
    tokenizer = FullTokenizer.from_pretrained(str(folder))
    batch = tokenizer(
        TEXTS,
        PAIRS,
        padding=True,
        truncation=True,
        return_tensors="tf",
    )
    labels = np.array([0, 1])
    names = {name: getattr(official_bert, name) for name in official_bert.__all__}
    names |= {
        "keras": keras,
        "tf": tf,
        "folder": str(folder),
        "new": str(new),
        "tokenizer": tokenizer,
        "batch": batch,
        "texts": TEXTS,
        "pairs": PAIRS,
        "text": TEXTS[0],
        "other": TEXTS[1],
        "labels": labels,
        "ids": batch["input_ids"].numpy(),
        "words": TEXTS[0].split(),
    }
    needs_model = re.search(r"\bmodel\b", right) and "model = " not in right
    if needs_model:
        model = official_bert.BertClassifier.from_pretrained(str(folder))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        examples = tf.data.Dataset.from_tensor_slices((batch, labels))
        names["model"] = model
        names["data"] = examples.batch(2)
    if "BertPretrainer" in right and ".fit(" in right:  # whose step takes 9 s to compile
        tf.config.run_functions_eagerly(True)
    if "Classifier.train" in right:  # which needs a whole batch
        names["texts"] = TEXTS * 16
        names["labels"] = [0, 1, 2, 0] * 8

    for code in re.findall(r"`([^`]+)`", right):
        if has_code_to_run(code):
            exec(code, names)
    return names


def is_output(name: str, code: str) -> bool:
    """Return whether the code of a right cell reads the output of this name."""
    forms = (
        f"out.{name}",
        f"{name} = model(batch)",
        f"{name} = model({{",
    )
    return any(form in code for form in forms)


def check_row(row, folder, expected, new):
    left, *right_cells = row
    right = " ".join(right_cells)
    name = find_class(left)
    policy = keras.config.dtype_policy()
    try:
        names = run_row(right, folder / name, new)
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.run_functions_eagerly(False)

    outputs = [output for output in CLASSES[name] if is_output(output, right)]
    for output in outputs:
        value = getattr(names["out"], output) if "out" in names else names[output]
        np.testing.assert_allclose(
            np.asarray(value),
            expected[f"{name}.{output}"],
            rtol=0,
            atol=1e-5,
            err_msg=output,
        )
    has_recorded_outputs = "TFBert" in left and "num_labels" not in left
    assert bool(outputs) == has_recorded_outputs


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_line_of_the_page_runs_and_gives_their_outputs(row, theirs, tmp_path):
    check_row(row, *theirs, tmp_path / "new")


@pytest.mark.needs_extra("torch", "transformers")
def test_the_lines_run_beside_the_installed_classes(tmp_path):
    recording = tmp_path / OUTPUTS.name
    record_outputs(tmp_path, recording)
    expected = np.load(recording)
    for number, row in enumerate(ROWS):
        check_row(row, tmp_path, expected, tmp_path / str(number))


def test_the_whole_example_runs(theirs, tmp_path, capsys):
    folder, _ = theirs
    masked_lm = folder / "BertForMaskedLM"
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    block = block.replace("/tmp/", f"{tmp_path}/")
    block = block.replace(f"{tmp_path}/bert", str(masked_lm))
    names = {}
    keras.utils.set_random_seed(0)
    exec(block, names)
    assert "'label': 'weather'" in capsys.readouterr().out

    batch = names["batch"]
    logits = names["model"].predict(batch, verbose=0)
    served = tf.saved_model.load(f"{tmp_path}/exports/weather/1")
    their_inputs = ("input_ids", "attention_mask", "token_type_ids")
    features = {}
    for name, their_name in zip(ENCODER_INPUTS, their_inputs, strict=True):
        features[name] = tf.constant(batch[their_name], tf.int32)
    served_logits = served.serve(features)
    np.testing.assert_allclose(served_logits, logits, atol=1e-5)


def test_answers_of_folders_without_a_record(theirs):
    """Those of a masked LM and of a model of spans, from the logits that PyTorch gives."""
    folder, expected = theirs
    masked_lm = Predictor(str(folder / "BertForMaskedLM"))
    best, *_ = masked_lm.fill_mask(TEXTS[0], PAIRS[0])

    tokenizer = FullTokenizer.from_pretrained(str(folder / "BertModel"))
    ids = tokenizer(TEXTS, PAIRS, padding=True)["input_ids"]
    mask_id = np.int64(tokenizer.vocab["[MASK]"])
    (position,) = np.flatnonzero(ids[0] == mask_id)
    logits = np.float64(expected["BertForMaskedLM.logits"][0, position])
    exponentials = np.exp(logits - logits.max())
    assert best["token"] == toy.VOCABULARY[logits.argmax()]
    score = exponentials.max() / exponentials.sum()
    assert best["score"] == pytest.approx(score)

    context = TEXTS[0]
    reader = Predictor(str(folder / "BertForQuestionAnswering"))
    answer = reader.answer(TEXTS[1], context)
    assert answer["answer"]
    start = answer["start"]
    end = answer["end"]
    assert context[start:end] == answer["answer"]


def compute_word_tags(folder: str, text: str) -> list[tuple[int, str]]:
    """Compute the start and the tag of each first piece of a word from the logits of the model."""
    tokenizer = FullTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, padding=False, return_offsets_mapping=True)
    pieces = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    model = BertTagger.from_pretrained(folder)
    (logits,) = model(tokenizer(text)).numpy()
    names = LABELS["BertForTokenClassification"]
    tags = [names[number] for number in logits.argmax(-1)]
    word_tags = []
    for piece, (start, end), tag in zip(pieces, encoded["offset_mapping"], tags, strict=True):
        is_special = end == 0
        if not is_special and not piece.startswith("##"):
            word_tags.append((start, tag))
    return word_tags


def test_words_of_running_text_are_tagged(theirs):
    """A word is tagged by its first piece, as with aggregation_strategy="first", and ends before
    punctuation.
    """
    folder = str(theirs[0] / "BertForTokenClassification")
    text = "The cat sat, (on the sunny mat)."
    predictor = Predictor(folder)
    words = predictor(text)["tags"]
    assert [word["word"] for word in words] == [
        "The",
        "cat",
        "sat",
        ",",
        "(",
        "on",
        "the",
        "sunny",
        "mat",
        ")",
        ".",
    ]
    tags = [(word["start"], word["tag"]) for word in words]
    assert tags == compute_word_tags(folder, text)

    entities = predictor.tag(text)
    assert entities, "the weights give no entity, so the test compares nothing"
    word_ends = {word["end"] for word in words}
    for entity in entities:
        start = entity["start"]
        end = entity["end"]
        assert entity["word"] == text[start:end]
        assert end in word_ends

    splits_at_blanks = Predictor(folder, pre_tokenized=True)
    words = splits_at_blanks(text)["tags"]
    assert [word["word"] for word in words] == text.split()


def test_a_tagger_saved_here_tags_running_text(theirs, tmp_path):
    folder = str(theirs[0] / "BertForTokenClassification")
    tagger = BertTagger.from_pretrained(folder)
    tokenizer = FullTokenizer.from_pretrained(folder)
    expected = Predictor(folder)("The cat.")
    for form in ("tf1", "huggingface"):
        new = str(tmp_path / form)
        tagger.save_pretrained(
            new,
            form,
            tokenizer,
            labels=["O", "B-PER", "I-PER"],
        )
        assert Predictor(new)("The cat.") == expected


def test_a_masked_lm_of_theirs_lacks_nothing_but_a_real_lack_is_named(theirs, tmp_path, caplog):
    name = "BertForMaskedLM"
    folder, recorded = theirs
    masked_lm = str(folder / name)
    BertPretrainer.from_pretrained(masked_lm)
    levels = {record.levelname for record in caplog.records}
    assert "WARNING" not in levels

    BertModel.from_pretrained(masked_lm)  # whose pooler is missing
    assert "randomly initialised: bert/pooler/dense/kernel" in caplog.text

    # Leave one weight out.
    shapes = []
    for line in recorded[f"{name}.shapes"]:
        if "cls.predictions.transform.dense.bias" not in line:
            shapes.append(line)
    cut_dir = tmp_path / "cut"
    write_folder(cut_dir, name, {f"{name}.shapes": shapes})
    caplog.clear()
    BertPretrainer.from_pretrained(str(cut_dir))
    assert "randomly initialised: cls/predictions/transform/dense/bias\n" in caplog.text
