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

PAGE = (ROOT / "docs" / "from_transformers.md").read_text(encoding="utf-8")
ROWS = [
    line.split(" | ")
    for line in PAGE.splitlines()
    if line.startswith("| ") and line != "| theirs | ours |"
]
PIPELINES = {
    '"fill-mask"': "BertForMaskedLM",
    '"question-answering"': "BertForQuestionAnswering",
    '"ner"': "BertForTokenClassification",
    "masked LM": "BertForMaskedLM",
    "BertMaskedLM": "BertForMaskedLM",
}


def write_folder(folder, name: str, recorded):
    """Writes what transformers saved when the outputs were recorded."""
    folder.mkdir()
    tensors = {
        path: weight(path, shape) for path, *shape in map(json.loads, recorded[f"{name}.shapes"])
    }
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    labels = {"id2label": dict(enumerate(LABELS[name]))} if name in LABELS else {}
    config = SIZES | labels | {"architectures": [name], "model_type": "bert", "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "model_max_length": 128}'
    )
    toy.write_vocabulary(folder)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The folder with a folder of each class, and the outputs of all, as they were recorded."""
    made, recorded = tmp_path_factory.mktemp("recorded"), np.load(OUTPUTS)
    for name in CLASSES:
        write_folder(made / name, name, recorded)
    return made, recorded


def class_of(cell: str) -> str:
    """The class of transformers that the left cell of a row speaks of."""
    named = re.search(r"TF(Bert\w+)", cell)
    found = (name for word, name in PIPELINES.items() if word in cell)
    return named[1] if named else next(found, "BertForSequenceClassification")


def run_row(right: str, folder, new) -> dict:
    """Runs the code of a right cell as a reader would, behind the lines that came before it;
    returns all names.
    """
    names = {name: getattr(official_bert, name) for name in official_bert.__all__}
    tokenizer = FullTokenizer.from_pretrained(str(folder))
    batch = tokenizer(TEXTS, PAIRS, padding=True, truncation=True, return_tensors="tf")
    names |= {
        "keras": keras,
        "tf": tf,
        "folder": str(folder),
        "new": str(new),
        "tokenizer": tokenizer,
        "batch": batch,
    }
    names |= {
        "texts": TEXTS,
        "pairs": PAIRS,
        "text": TEXTS[0],
        "other": TEXTS[1],
        "labels": np.array([0, 1]),
    }
    names |= {"ids": batch["input_ids"].numpy(), "words": TEXTS[0].split()}
    if re.search(r"\bmodel\b", right) and "model = " not in right:
        names["model"] = official_bert.BertClassifier.from_pretrained(str(folder))
        names["model"].compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        names["data"] = tf.data.Dataset.from_tensor_slices((batch, names["labels"])).batch(2)
    if "BertPretrainer" in right and ".fit(" in right:  # whose step takes 9 s to compile
        tf.config.run_functions_eagerly(True)
    if "Classifier.train" in right:  # which needs a whole batch
        names |= {"texts": TEXTS * 16, "labels": [0, 1, 2, 0] * 8}
    for code in re.findall(r"`([^`]+)`", right):
        if re.search(r"[=(.]", code) and not code.startswith("labels="):
            exec(code, names)
    return names


def check_row(row, folder, expected, new):
    left, right = row[0], " ".join(row[1:])
    name, policy = class_of(left), keras.config.dtype_policy()
    try:
        names = run_row(right, folder / name, new)
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.run_functions_eagerly(False)
    forms = ("out.{}", "{} = model(batch)", "{} = model({{")
    outputs = [
        output for output in CLASSES[name] if any(form.format(output) in right for form in forms)
    ]
    for output in outputs:
        made = getattr(names["out"], output) if "out" in names else names[output]
        np.testing.assert_allclose(
            np.asarray(made), expected[f"{name}.{output}"], rtol=0, atol=1e-5, err_msg=output
        )
    assert bool(outputs) == ("TFBert" in left and "num_labels" not in left)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_line_of_the_page_runs_and_gives_their_outputs(row, theirs, tmp_path):
    check_row(row, *theirs, tmp_path / "new")


@pytest.mark.needs_extra("torch", "transformers")
def test_the_lines_run_beside_the_installed_classes(tmp_path):
    record_outputs(tmp_path, tmp_path / OUTPUTS.name)
    expected = np.load(tmp_path / OUTPUTS.name)
    for number, row in enumerate(ROWS):
        check_row(row, tmp_path, expected, tmp_path / str(number))


def test_the_whole_example_runs(theirs, tmp_path, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    block = block.replace("/tmp/", f"{tmp_path}/")
    block = block.replace(f"{tmp_path}/bert", str(theirs[0] / "BertForMaskedLM"))
    names = {}
    keras.utils.set_random_seed(0)
    exec(block, names)
    assert "'label': 'weather'" in capsys.readouterr().out
    served = tf.saved_model.load(f"{tmp_path}/exports/weather/1")
    theirs_by_ours = zip(
        ("input_ids", "attention_mask", "token_type_ids"), ENCODER_INPUTS, strict=True
    )
    features = {
        name: tf.constant(names["batch"][other], tf.int32) for other, name in theirs_by_ours
    }
    logits = names["model"].predict(names["batch"], verbose=0)
    np.testing.assert_allclose(served.serve(features), logits, atol=1e-5)


def test_answers_of_folders_without_a_record(theirs):
    """Those of a masked LM and of a model of spans, from the logits that PyTorch gives."""
    folder, expected = theirs
    best = Predictor(str(folder / "BertForMaskedLM")).fill_mask(TEXTS[0], PAIRS[0])
    tokenizer = FullTokenizer.from_pretrained(str(folder / "BertModel"))
    (at,) = np.flatnonzero(
        tokenizer(TEXTS, PAIRS, padding=True)["input_ids"][0] == np.int64(tokenizer.vocab["[MASK]"])
    )
    logits = np.float64(expected["BertForMaskedLM.logits"][0, at])
    assert best[0]["token"] == toy.VOCABULARY[logits.argmax()]
    assert best[0]["score"] == pytest.approx(
        np.exp(logits - logits.max()).max() / np.exp(logits - logits.max()).sum()
    )
    answer = Predictor(str(folder / "BertForQuestionAnswering")).answer(TEXTS[1], TEXTS[0])
    assert answer["answer"]
    assert TEXTS[0][answer["start"] : answer["end"]] == answer["answer"]


def test_words_of_running_text_are_tagged(theirs):
    """A word is tagged by its first piece, as with aggregation_strategy="first", and ends before
    punctuation.
    """
    folder, text = str(theirs[0] / "BertForTokenClassification"), "The cat sat, (on the sunny mat)."
    tokenizer, model = FullTokenizer.from_pretrained(folder), BertTagger.from_pretrained(folder)
    encoded = tokenizer(text, padding=False, return_offsets_mapping=True)
    pieces = zip(
        tokenizer.convert_ids_to_tokens(encoded["input_ids"]),
        encoded["offset_mapping"],
        strict=True,
    )
    best = model(tokenizer(text)).numpy()[0].argmax(-1)
    tags = LABELS["BertForTokenClassification"]
    expected = [
        (start, tags[number])
        for (piece, (start, end)), number in zip(pieces, best, strict=True)
        if end and not piece.startswith("##")
    ]
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
    assert [(word["start"], word["tag"]) for word in words] == expected
    entities = predictor.tag(text)
    assert entities, "the weights give no entity, so the test compares nothing"
    ends = {word["end"] for word in words}
    assert all(
        text[one["start"] : one["end"]] == one["word"] and one["end"] in ends for one in entities
    )
    by_blanks = Predictor(folder, split_punctuation=False)(text)["tags"]
    assert [word["word"] for word in by_blanks] == text.split()


def test_a_tagger_saved_here_tags_running_text(theirs, tmp_path):
    folder = str(theirs[0] / "BertForTokenClassification")
    tagger = BertTagger.from_pretrained(folder)
    for form in ("tf1", "huggingface"):
        new = str(tmp_path / form)
        tagger.save_pretrained(
            new, form, FullTokenizer.from_pretrained(folder), labels=["O", "B-PER", "I-PER"]
        )
        assert Predictor(new)("The cat.") == Predictor(folder)("The cat.")


def test_a_masked_lm_of_theirs_lacks_nothing_but_a_real_lack_is_named(theirs, tmp_path, caplog):
    recorded, name = theirs[1], "BertForMaskedLM"
    BertPretrainer.from_pretrained(str(theirs[0] / name))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    BertModel.from_pretrained(str(theirs[0] / name))  # whose pooler is asked for
    assert "randomly initialised: bert/pooler/dense/kernel" in caplog.text
    kept = [
        shape
        for shape in recorded[f"{name}.shapes"]
        if "cls.predictions.transform.dense.bias" not in shape
    ]
    write_folder(tmp_path / "cut", name, {f"{name}.shapes": kept})
    caplog.clear()
    BertPretrainer.from_pretrained(str(tmp_path / "cut"))
    assert "randomly initialised: cls/predictions/transform/dense/bias\n" in caplog.text
