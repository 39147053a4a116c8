"""`Predictor` gives the scripts' predictions for the same texts, with an export of the same
checkpoint.
"""

import csv
import functools
import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.tables import read_conll
from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import (
    ChoiceOptions,
    ClassificationOptions,
    SquadOptions,
    TaggingOptions,
)
from official_bert.serving.predictor import Predictor
from tests import toy
from tests.serving import exported
from tests.shared import in_test_long

TOLERANCE = 1e-5
MASKED = ("[CLS]", "the", "[MASK]", "sat", "[SEP]", "[MASK]", ".", "[SEP]")
WORDS = [piece for piece in toy.VOCABULARY if piece.isalpha()]


def texts(count: int, longest: int, seed: int = 1) -> list[str]:
    """Texts of known and unknown words; one is empty, and more than a batch are longer than the
    model reads.
    """
    draws = np.random.default_rng(seed)
    found = [
        " ".join(draws.choice([*WORDS, "Unheard,"], draws.integers(1, longest + 1)))
        for _ in range(count)
    ]
    return [*found, ""]


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.fixture
def make(tmp_path_factory):
    """A function from a kind of task to its export."""
    return functools.partial(exported.shared_export, tmp_path_factory)


def flags_of(made: exported.Exported, tmp_path) -> dict:
    """What the script of an export's task must be told to predict, beside the task's own flags."""
    return {
        "output_dir": str(tmp_path / "output"),
        "init_checkpoint": made.options.init_checkpoint,
        "bert_config_file": made.options.bert_config_file,
        "vocab_file": made.options.vocab_file,
        "max_seq_length": made.options.max_seq_length,
        "do_predict": True,
    }


def predictor_of(made: exported.Exported, **settings) -> Predictor:
    return Predictor(made.options.export_dir, batch_size=7, **settings)


def write_tsv(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


@pytest.mark.parametrize("kind", ["mrpc", "sts-b"])
def test_pairs_are_classified_as_by_the_script(tmp_path, make, kind):
    made = make(kind)
    pairs = list(zip(texts(20, 20), texts(20, 12, seed=2), strict=True))
    first = {"mrpc": 3, "sts-b": 7}[kind]
    blank = ["x"] * first
    write_tsv(tmp_path / "test.tsv", [[*blank, "a", "b"], *([*blank, *pair] for pair in pairs)])
    fine_tune(
        ClassificationOptions(task_name=kind, data_dir=str(tmp_path), **flags_of(made, tmp_path))
    )
    predicted = np.loadtxt(tmp_path / "output" / "test_results.tsv", ndmin=2)

    predict = predictor_of(made)
    answers = list(predict.answers(pairs))
    if kind == "sts-b":
        found = [[answer["score"]] for answer in answers]
    else:
        found = [[answer["probabilities"][label] for label in "01"] for answer in answers]
        assert [answer["label"] for answer in answers] == [str(row.argmax()) for row in predicted]
    np.testing.assert_allclose(found, predicted, atol=TOLERANCE)
    assert predict(*pairs[4]).keys() == answers[4].keys()
    with pytest.raises(InputError, match=r"the model takes 2 texts \(text_a, text_b\), 1 given"):
        predict("alone")


@pytest.mark.parametrize("kind", ["tsv", "swag", "ner"])
def test_other_models_have_no_vectors(make, kind):
    with pytest.raises(
        InputError, match="gives no vectors of texts; name an export of --task_name=embedding"
    ):
        predictor_of(make(kind)).encode([])


def test_several_labels_are_those_of_the_script(tmp_path, make):
    made = make("tsv")
    singles = texts(20, 20)[:-1]
    write_tsv(tmp_path / "test.tsv", [["text"], *([text] for text in singles)])
    flags = {
        "task_name": "tsv",
        "label_type": "multi",
        "labels": exported.LABELS,
        "data_dir": str(tmp_path),
    }
    fine_tune(ClassificationOptions(**flags, **flags_of(made, tmp_path)))
    predicted = np.loadtxt(tmp_path / "output" / "test_results.tsv")
    answers = list(predictor_of(made).answers(singles))
    found = [[answer["probabilities"][label] for label in exported.LABELS] for answer in answers]
    np.testing.assert_allclose(found, predicted, atol=TOLERANCE)
    wanted = [
        [label for label, chance in zip(exported.LABELS, row, strict=True) if chance > 0.5]
        for row in predicted
    ]
    assert [answer["labels"] for answer in answers] == wanted


def test_choices_are_those_of_the_script(tmp_path, make):
    made = make("swag")
    # Context, start of the second text, endings.
    rows = np.array([texts(9, 14, seed) for seed in range(6)]).T
    with (tmp_path / "test.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["sent1", "sent2", *(f"ending{k}" for k in range(4))], *rows.tolist()]
        )
    fine_tune(ChoiceOptions(data_dir=str(tmp_path), **flags_of(made, tmp_path)))
    predicted = np.loadtxt(tmp_path / "output" / "test_results.tsv")
    requests = [
        [context, *(f"{start} {ending}" for ending in endings)]
        for context, start, *endings in rows.tolist()
    ]
    answers = list(predictor_of(made).answers(requests))
    np.testing.assert_allclose(
        [answer["probabilities"] for answer in answers], predicted, atol=TOLERANCE
    )
    assert [answer["choice"] for answer in answers] == predicted.argmax(1).tolist()


def test_tags_are_those_of_the_script(tmp_path, make):
    made = make("ner")
    sentences = texts(20, 60)[:-1]
    (tmp_path / "test.txt").write_text("\n\n".join(text.replace(" ", "\n") for text in sentences))
    fine_tune(TaggingOptions(data_dir=str(tmp_path), **flags_of(made, tmp_path)))
    predicted = read_conll(str(tmp_path / "output" / "predictions.conll")).sentences

    predict = predictor_of(made)
    answers = list(predict.answers(text.replace(" ", " \t") for text in sentences))
    for answer, sentence, text in zip(answers, predicted, sentences, strict=True):
        assert [found["tag"] for found in answer["tags"]] == sentence.tags
        assert [found["word"] for found in answer["tags"]] == text.split()
    assert predict(" the\tcat ")["tags"][1].items() >= {"word": "cat", "start": 5, "end": 8}.items()
    assert predict(" ") == {"tags": []}


@pytest.mark.parametrize(("version_2", "length_aware"), [(False, False), (True, True)])
def test_questions_are_answered_as_by_the_script(tmp_path, make, version_2, length_aware):
    made = make("squad")
    contexts = [text.replace("the ", "the  ") for text in texts(20, 60)]
    questions = [f"{text[:30]} ?" for text in texts(20, 12, seed=2)]
    paragraphs = [
        {"context": context, "qas": [{"id": str(number), "question": question}]}
        for number, (context, question) in enumerate(zip(contexts, questions, strict=True))
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    settings = {
        "doc_stride": 5,
        "max_query_length": 8,
        "version_2_with_negative": version_2,
        "null_score_diff_threshold": -0.35,
        "length_aware_batches": length_aware,
    }
    # It may be `auto`, too.
    of_script = flags_of(made, tmp_path) | settings | {"null_score_diff_threshold": "-0.35"}
    fine_tune(SquadOptions(predict_file=str(tmp_path / "dev.json"), **of_script))
    output = tmp_path / "output"
    predicted = json.loads((output / "predictions.json").read_text())
    nbest = json.loads((output / "nbest_predictions.json").read_text())

    answers = list(predictor_of(made, **settings).answers(zip(questions, contexts, strict=True)))
    assert [answer["answer"] for answer in answers] == list(predicted.values())
    for answer, context, entries in zip(answers, contexts, nbest.values(), strict=True):
        (entry,) = [entry for entry in entries if entry["text"] == answer["answer"]][:1]
        score = entry["start_logit"] + entry["end_logit"]
        assert answer["score"] == pytest.approx(score, abs=TOLERANCE)
        if not length_aware:  # the script ranks what padding is left in its batches
            assert answer["probability"] == pytest.approx(entry["probability"], abs=TOLERANCE)
        if answer["answer"] in ("", "empty"):
            assert answer["start"] is answer["end"] is None
        else:
            cut = context[answer["start"] : answer["end"]]
            assert " ".join(cut.split()) == answer["answer"]
    assert answers[-1]["answer"] == ("" if version_2 else "empty")  # its context is empty
    if version_2:
        null_odds = json.loads((output / "null_odds.json").read_text())
        found = [answer["null_odds"] for answer in answers]
        np.testing.assert_allclose(found, list(null_odds.values()), atol=TOLERANCE)
        assert 2 <= list(predicted.values()).count("") < len(predicted)


def test_a_pretrained_model_fills_masks_and_gives_vectors(make):
    made = make("pretraining")
    model = made.model
    ids = [toy.VOCABULARY.index(piece) for piece in MASKED]
    mask, segments = np.ones((1, 8), np.int32), np.int32([[0] * 5 + [1] * 3])
    encoded = model.bert(np.int32([ids]), mask, segments)
    logits = model.cls.predictions(
        encoded.sequence_output, np.int32([[2, 5]]), model.bert.embedding_table
    )
    exponents = np.exp(np.asarray(logits, np.float64))
    chances = exponents / exponents.sum(-1, keepdims=True)

    predict = predictor_of(made)
    filled, plain, one = predict.answers([("The [MASK] sat", "[MASK]."), ("The cat",), ("[MASK]",)])
    for found, position, wanted in zip(filled["masks"], (2, 5), chances, strict=True):
        order = (-wanted).argsort()[:10]
        assert found["position"] == position
        assert found["tokens"] == [toy.VOCABULARY[number] for number in order]
        np.testing.assert_allclose(found["probabilities"], wanted[order], atol=TOLERANCE)
    assert [found["position"] for found in one["masks"]] == [1]

    ids = np.int32([[toy.VOCABULARY.index(piece) for piece in ("[CLS]", "the", "cat", "[SEP]")]])
    encoded = model.bert(ids, np.ones_like(ids), np.zeros_like(ids))
    np.testing.assert_allclose(plain["pooled_output"], encoded.pooled_output[0], atol=TOLERANCE)
    answer = predictor_of(made, pooling="none")("The cat")
    assert answer["tokens"] == ["[CLS]", "the", "cat", "[SEP]"]
    np.testing.assert_allclose(
        answer["sequence_output"], encoded.sequence_output[0], atol=TOLERANCE
    )


def assert_alike(found, wanted):
    """Asserts that two JSON values are equal, numbers within the tolerance."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        found, wanted = found.values(), wanted.values()
    elif not isinstance(wanted, list):
        assert found == (
            pytest.approx(wanted, abs=TOLERANCE) if isinstance(wanted, float) else wanted
        )
        return
    for pair in zip(found, wanted, strict=True):
        assert_alike(*pair)


LONG = " ".join(toy.TEXT.split())
PAIRS = [
    *zip(texts(20, 20), texts(20, 12, seed=2), strict=True),
    ("the cat sat.", ""),
    (LONG * 20, "rain"),
    ("Zebra caf\u00e9 \u5317\u4eac!", LONG),
    ("  ", "\u200d"),
    ("a " * 300, "the driver"),
]
TEXT_REQUESTS = {
    "mrpc": PAIRS,
    "swag": np.array([texts(9, 14, seed) for seed in range(5)]).T.tolist(),
    "ner": [first.replace(" ", "\n ") for first, _ in PAIRS],
    # Without words that are unknown in part: the two cut them in different ways, see
    # docs/reports/exports.md.
    "squad": [
        (second, f"{first} {first}".replace("Unheard,", "here").replace("\u4eac!", ""))
        for first, second in PAIRS
    ],
    "pretraining": [
        *PAIRS,
        *(f"{first} [MASK] {second}" for first, second in PAIRS[:21]),
        ("the [MASK]", "[MASK]"),
    ],
}


@pytest.mark.parametrize("kind", ["ner", "pretraining", "squad", *in_test_long("mrpc", "swag")])
def test_a_model_that_reads_text_answers_the_same(make, kind):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    exports = make(kind), make(kind, export_text=True, **flags)
    tensors, text = predictor_of(exports[0], **flags), predictor_of(exports[1])
    assert text.model.record.settings.items() >= flags.items()
    assert (text.columns, text.num_required) == (tensors.columns, tensors.num_required)
    wanted = list(tensors.answers(TEXT_REQUESTS[kind]))
    for answer in wanted:
        answer.pop("probability", None)  # only in Python are there n-best lists
    assert_alike(list(text.answers(TEXT_REQUESTS[kind])), wanted)
    if kind == "pretraining":
        tensors, text = (predictor_of(made, pooling="none") for made in exports)
        assert_alike(text(*PAIRS[0]), tensors(*PAIRS[0]))
    if kind == "squad":
        sentence = rf"^n_best_size=3: {text.path} reads text itself, with what it was exported"
        with pytest.raises(InputError, match=sentence):
            Predictor(text.path, n_best_size=3)


def test_what_is_no_export_and_no_setting_is_said(tmp_path, make):
    with pytest.raises(
        InputError, match=r"top_k: Predictor has no such setting; it has doc_stride, .*, pooling"
    ):
        Predictor("/nowhere", top_k=3)
    with pytest.raises(InputError, match="absent: holds no model; name an --export_dir"):
        Predictor(str(tmp_path / "absent"))
    exports = tmp_path / "exports"
    version = shutil.copytree(make("squad").path, exports / "1")
    (version / "saved_model.pb").write_bytes(b"\x00damaged")
    with pytest.raises(InputError, match="1: is no complete SavedModel"):
        Predictor(str(exports))
    (version / "assets.extra" / "export.json").unlink()
    with pytest.raises(InputError, match=r"export.json: is missing, and with it how text is read"):
        Predictor(str(exports))
    for argument, value, fault in (
        ("batch_size", 0, "must be at least 1, and at most 4194304"),
        ("batch_size", "3", "must be a whole number"),
        ("batch_size", None, "must be a whole number"),
        ("batch_size", True, "must be a whole number"),
        ("n_best_size", 1.5, "must be a whole number"),
        ("null_score_diff_threshold", "-1", "must be a number"),
        ("version_2_with_negative", 1, "must be True or False"),
        ("pooling", "mean", "must be one of pooler, none"),
    ):
        with pytest.raises(InputError, match=f"^{argument}={value!r}: {fault}"):
            Predictor(str(exports), **{argument: value})
    with pytest.raises(InputError, match="model_dir=None: must be the path of a folder"):
        Predictor(None)


def test_an_export_of_an_earlier_version_is_read(tmp_path, make, monkeypatch):
    """Neither its record nor its graph knows the labels."""
    made = make("mrpc")
    version = shutil.copytree(made.path, tmp_path / "1")
    path = version / "assets.extra" / "export.json"
    record = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: record[name] for name in record if name not in ("labels", "checkpoint")})
    )
    load = tf.saved_model.load

    def load_without_labels(folder):
        loaded = load(folder)
        return types.SimpleNamespace(
            signatures=loaded.signatures, model_weights=loaded.model_weights
        )

    monkeypatch.setattr(tf.saved_model, "load", load_without_labels)
    assert_alike(
        Predictor(tmp_path)("the cat", "the mat"), predictor_of(made)("the cat", "the mat")
    )


@pytest.mark.parametrize(
    ("kind", "fits", "longer"),
    [
        ("mrpc", ("a " * 20, "a"), ("a " * 20, "a a")),
        ("pretraining", ("[MASK] " * 22,), ("[MASK] " * 23,)),
        ("swag", ("a " * 20, "a", "a", "a", "a"), ("a " * 20, "a", "a", "a", "a a")),
        ("squad", ("a " * 8, "a " * 90), ("a " * 9, "a")),
        ("ner", ("a " * 90,), None),
    ],
)
def test_a_request_that_is_longer_than_the_model_reads(make, kind, fits, longer):
    predictor = predictor_of(make(kind), **({"max_query_length": 8} if kind == "squad" else {}))
    assert not predictor.is_cut(fits)
    assert longer is None or predictor.is_cut(longer)


def test_a_call_takes_a_text_a_pair_or_a_list_of_either(make):
    predictor = predictor_of(make("mrpc"))
    pairs = list(zip(texts(5, 9), texts(5, 9, seed=2), strict=True))
    wanted = list(predictor.answers(pairs))
    assert predictor(*pairs[1]) == predictor(pairs[1])
    for pair, answer in zip(pairs, wanted, strict=True):
        np.testing.assert_allclose(
            predictor(pair)["probabilities"]["1"], answer["probabilities"]["1"], atol=1e-6
        )
    assert [answer["label"] for answer in predictor(pairs)] == [
        answer["label"] for answer in wanted
    ]
    assert predictor([]) == []
    pretrained = predictor_of(make("pretraining"))
    assert [list(answer) for answer in pretrained(["the cat", "the mat"])] == [
        ["pooled_output"]
    ] * 2
    for request, kind in ((("a", 3), "int"), ((["a", b"b"],), "bytes"), (([("a", {})],), "dict")):
        with pytest.raises(
            InputError,
            match=rf"^a request must be a text \(str\) or a tuple of texts, got {kind}; ",
        ):
            predictor(*request)


def test_a_classifier_gives_a_label_and_its_score(make):
    predictor = predictor_of(make("mrpc"))
    answer = predictor("the cat", "the mat")
    brief = {"label": answer["label"], "score": max(answer["probabilities"].values())}
    assert predictor.classify("the cat", "the mat") == brief
    assert predictor.classify([("the cat", "the mat")]) == [brief]
    regression = predictor_of(make("sts-b"))
    assert regression.classify("the cat", "the mat") == regression("the cat", "the mat")
    several = predictor_of(make("tsv"))
    answer = several("the cat")
    assert several.classify("the cat") == [
        {"label": label, "score": answer["probabilities"][label]} for label in answer["labels"]
    ]


def test_masked_words_are_filled_into_the_text(make):
    predictor = predictor_of(make("pretraining"))
    one, two = "the [MASK] sat", "the [MASK] sat on the [MASK]"
    (mask,) = predictor(one)["masks"]
    words = zip(mask["tokens"], mask["probabilities"], strict=True)
    wanted = [
        {"score": score, "token": token, "sequence": f"the {token} sat"} for token, score in words
    ]
    assert predictor.fill_mask(one) == wanted[:5]
    assert predictor.fill_mask(one, top_k=10) == wanted
    first, second = predictor.fill_mask(two, top_k=1)
    assert first[0]["sequence"] == f"the {first[0]['token']} sat on the [MASK]"
    assert second[0]["sequence"] == f"the [MASK] sat on the {second[0]['token']}"
    of_list = predictor.fill_mask([one, two], top_k=2)
    assert [len(of_list[0]), [len(mask) for mask in of_list[1]]] == [2, [2, 2]]
    assert of_list[0][0]["token"] == wanted[0]["token"]
    with pytest.raises(InputError, match=r"the text has no \[MASK\] to fill"):
        predictor.fill_mask("the cat sat")
    for wrong in (0, "2", True):
        with pytest.raises(
            InputError, match=f"top_k: must be a whole number from 1 to 10, got {wrong!r}"
        ):
            predictor.fill_mask(one, top_k=wrong)


@pytest.mark.parametrize("export_text", [False, *in_test_long(True)])
def test_a_mask_that_the_model_does_not_read_is_refused(make, export_text):
    predictor = predictor_of(make("pretraining", export_text=export_text))
    length = predictor.client.model.max_seq_length
    # Beside [CLS] and [SEP].
    fits, longer = ("cat " * (length - 3) + "[MASK]", "cat " * (length - 2) + "[MASK]")
    assert len(predictor(fits)["masks"]) == 1
    with pytest.raises(
        InputError, match=rf"the \[MASK\] lies behind the {length} tokens that the model reads"
    ):
        predictor.fill_mask(longer)
    with pytest.raises(InputError, match=rf"1 of 2 \[MASK\] lie behind the {length} tokens"):
        predictor("[MASK] " + fits)


def test_an_answer_and_its_offsets(make):
    predictor = predictor_of(make("squad"), max_query_length=5)
    context = "the driver waved his hand and the train left the station at noon"
    full = predictor("who waved", context)
    brief = predictor.answer("who waved", context)
    assert brief == {name: full[name] for name in ("answer", "start", "end")} | {
        "score": full["probability"]
    }
    assert context[brief["start"] : brief["end"]] == brief["answer"]


def test_tags_become_entities(make):
    predictor = predictor_of(make("ner"))
    text = "the  driver waved his hand and the train left the station at noon"
    words = predictor(text)["tags"]
    tags = [word["tag"] for word in words]
    found = predictor.tag(text)
    assert found, "the weights give no entity, so the test compares nothing"
    covered = set()
    for entity in found:
        assert entity["entity_group"] == "X"
        assert text[entity["start"] : entity["end"]] == entity["word"]
        inside = [
            k for k, word in enumerate(words) if entity["start"] <= word["start"] < entity["end"]
        ]
        assert all(tags[k] == "I-X" for k in inside[1:])  # B-X begins another entity
        covered |= set(inside)
    assert covered == {k for k, tag in enumerate(tags) if tag != "O"}
    assert predictor.tag([text]) == [found]


def test_the_method_of_another_task_is_refused(make):
    with pytest.raises(InputError, match=r"task mrpc, which has no fill_mask\(\); call classify"):
        predictor_of(make("mrpc")).fill_mask("the [MASK] sat")
    with pytest.raises(
        InputError, match=r"task swag, which has no tag\(\); call the predictor itself"
    ):
        predictor_of(make("swag")).tag("the cat")
