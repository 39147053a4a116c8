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
    choices = [*WORDS, "Unheard,"]
    drawn_texts = []
    for _ in range(count):
        length = draws.integers(1, longest + 1)
        words = draws.choice(choices, length)
        drawn_texts.append(" ".join(words))
    return [*drawn_texts, ""]


def text_pairs(count: int, longest: int, longest_second: int) -> list[tuple[str, str]]:
    """Pairs of `texts`, the second ones of another seed."""
    first_texts = texts(count, longest)
    second_texts = texts(count, longest_second, seed=2)
    return list(zip(first_texts, second_texts, strict=True))


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
    options = made.options
    return {
        "output_dir": str(tmp_path / "output"),
        "init_checkpoint": options.init_checkpoint,
        "bert_config_file": options.bert_config_file,
        "vocab_file": options.vocab_file,
        "max_seq_length": options.max_seq_length,
        "do_predict": True,
    }


def run_script(options_class, made: exported.Exported, tmp_path, **flags):
    """Predicts by the script of an export's task, into the folder "output"."""
    flags = flags_of(made, tmp_path) | flags
    fine_tune(options_class(**flags))


def predictor_of(made: exported.Exported, **settings) -> Predictor:
    return Predictor(made.options.export_dir, batch_size=7, **settings)


@pytest.fixture
def load_predictor(make):
    """A function from a kind of task to a predictor of its export."""

    def load_export(kind: str, **settings) -> Predictor:
        return predictor_of(make(kind), **settings)

    return load_export


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE)


def values_of(entries: list[dict], name: str) -> list:
    """The values of one key in a list of dictionaries."""
    return [entry[name] for entry in entries]


def write_tsv(path, rows):
    lines = ["\t".join(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))


def load_test_results(tmp_path, **arguments) -> np.ndarray:
    """The predictions of the script."""
    return np.loadtxt(tmp_path / "output" / "test_results.tsv", **arguments)


@pytest.mark.parametrize(
    ("kind", "num_columns_before"),
    [
        pytest.param("mrpc", 3, id="mrpc"),
        pytest.param("sts-b", 7, id="sts-b"),
    ],
)
def test_pairs_are_classified_as_by_the_script(tmp_path, make, kind, num_columns_before):
    made = make(kind)
    pairs = text_pairs(20, 20, 12)
    blank = ["x"] * num_columns_before
    header = [*blank, "a", "b"]
    rows = [[*blank, *pair] for pair in pairs]
    write_tsv(tmp_path / "test.tsv", [header, *rows])
    run_script(
        ClassificationOptions,
        made,
        tmp_path,
        task_name=kind,
        data_dir=str(tmp_path),
    )
    predicted = load_test_results(tmp_path, ndmin=2)

    predict = predictor_of(made)
    answers = list(predict.answers(pairs))
    if kind == "sts-b":
        values = [[answer["score"]] for answer in answers]
    else:
        values = [label_probabilities(answer, "01") for answer in answers]
        labels = values_of(answers, "label")
        assert labels == [str(row.argmax()) for row in predicted]
    assert_close(values, predicted)
    assert predict(*pairs[4]).keys() == answers[4].keys()
    message = r"the model takes 2 texts \(text_a, text_b\), 1 given"
    with refusal(message):
        predict("alone")


def label_probabilities(answer: dict, labels) -> list[float]:
    """The probabilities of an answer in the order of the labels."""
    probabilities = answer["probabilities"]
    return [probabilities[label] for label in labels]


@pytest.mark.parametrize("kind", ["tsv", "swag", "ner"])
def test_other_models_have_no_vectors(load_predictor, kind):
    predictor = load_predictor(kind)
    message = "gives no vectors of texts; name an export of --task_name=embedding"
    with refusal(message):
        predictor.encode([])


def test_several_labels_are_those_of_the_script(tmp_path, make):
    made = make("tsv")
    singles = texts(20, 20)[:-1]
    rows = [[text] for text in singles]
    write_tsv(tmp_path / "test.tsv", [["text"], *rows])
    run_script(
        ClassificationOptions,
        made,
        tmp_path,
        task_name="tsv",
        label_type="multi",
        labels=exported.LABELS,
        data_dir=str(tmp_path),
    )
    predicted = load_test_results(tmp_path)
    answers = list(predictor_of(made).answers(singles))
    probabilities = [label_probabilities(answer, exported.LABELS) for answer in answers]
    assert_close(probabilities, predicted)
    for answer, row in zip(answers, predicted, strict=True):
        chances = zip(exported.LABELS, row, strict=True)
        assert answer["labels"] == [label for label, chance in chances if chance > 0.5]


def test_choices_are_those_of_the_script(tmp_path, make):
    made = make("swag")
    columns = [texts(9, 14, seed) for seed in range(6)]
    # Context, start of the second text, endings.
    rows = np.array(columns).T.tolist()
    header = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3"]
    with (tmp_path / "test.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    run_script(ChoiceOptions, made, tmp_path, data_dir=str(tmp_path))
    predicted = load_test_results(tmp_path)

    requests = []
    for context, start, *endings in rows:
        second_texts = [f"{start} {ending}" for ending in endings]
        requests.append([context, *second_texts])
    answers = list(predictor_of(made).answers(requests))
    assert_close(values_of(answers, "probabilities"), predicted)
    choices = predicted.argmax(1)
    assert values_of(answers, "choice") == choices.tolist()


def test_tags_are_those_of_the_script(tmp_path, make):
    made = make("ner")
    sentences = texts(20, 60)[:-1]
    one_word_a_line = [text.replace(" ", "\n") for text in sentences]
    (tmp_path / "test.txt").write_text("\n\n".join(one_word_a_line))
    run_script(TaggingOptions, made, tmp_path, data_dir=str(tmp_path))
    output_file = tmp_path / "output" / "predictions.conll"
    predicted = read_conll(str(output_file)).sentences
    expected_tags = [sentence.tags for sentence in predicted]

    predict = predictor_of(made, pre_tokenized=True)
    requests = [text.replace(" ", " \t") for text in sentences]
    answers = list(predict.answers(requests))
    for answer, tags, text in zip(answers, expected_tags, sentences, strict=True):
        words = answer["tags"]
        assert values_of(words, "tag") == tags
        assert values_of(words, "word") == text.split()
    _, second_word = predict(" the\tcat ")["tags"]
    assert second_word["word"] == "cat"
    assert second_word["start"] == 5
    assert second_word["end"] == 8
    assert predict(" ") == {"tags": [], "entities": []}


@pytest.mark.parametrize(
    ("version_2", "length_aware"),
    [
        pytest.param(False, False, id="SQuAD 1.1"),
        pytest.param(True, True, id="SQuAD 2.0 in batches by length"),
    ],
)
def test_questions_are_answered_as_by_the_script(tmp_path, make, version_2, length_aware):
    made = make("squad")
    contexts = [text.replace("the ", "the  ") for text in texts(20, 60)]
    questions = [f"{text[:30]} ?" for text in texts(20, 12, seed=2)]
    predict_file = tmp_path / "dev.json"
    write_questions(predict_file, questions, contexts)
    settings = {
        "doc_stride": 5,
        "max_query_length": 8,
        "version_2_with_negative": version_2,
        "null_score_diff_threshold": -0.35,
        "length_aware_batches": length_aware,
    }
    # It may be `auto`, too.
    script_settings = settings | {"null_score_diff_threshold": "-0.35"}
    run_script(
        SquadOptions,
        made,
        tmp_path,
        predict_file=str(predict_file),
        **script_settings,
    )
    predicted = read_script_json(tmp_path, "predictions.json")
    nbest = read_script_json(tmp_path, "nbest_predictions.json")

    predictor = predictor_of(made, **settings)
    requests = zip(questions, contexts, strict=True)
    answers = list(predictor.answers(requests))
    assert values_of(answers, "answer") == predicted
    for answer, context, entries in zip(answers, contexts, nbest, strict=True):
        text = answer["answer"]
        entry = next(entry for entry in entries if entry["text"] == text)
        assert_close(answer["score"], entry["start_logit"] + entry["end_logit"])
        if not length_aware:  # the script ranks what padding is left in its batches
            assert_close(answer["probability"], entry["probability"])
        start = answer["start"]
        end = answer["end"]
        if text in ("", "empty"):
            assert start is None
            assert end is None
        else:
            words = context[start:end].split()
            assert " ".join(words) == text
    no_answer = "" if version_2 else "empty"
    assert predicted[-1] == no_answer  # its context is empty
    if version_2:
        null_odds = read_script_json(tmp_path, "null_odds.json")
        assert_close(values_of(answers, "null_odds"), null_odds)
        assert 2 <= predicted.count("") < len(predicted)


def read_script_json(tmp_path, name: str) -> list:
    """What the script has written for each question."""
    path = tmp_path / "output" / name
    return list(json.loads(path.read_text()).values())


def write_questions(path, questions: list[str], contexts: list[str]):
    """Writes a file of SQuAD with one question for each context."""
    paragraphs = []
    for context, question in zip(contexts, questions, strict=True):
        number = len(paragraphs)
        entry = {"id": str(number), "question": question}
        paragraphs.append({"context": context, "qas": [entry]})
    article = {"paragraphs": paragraphs}
    path.write_text(json.dumps({"data": [article]}))


def encode(model, pieces: tuple[str, ...], segments: list[int]):
    """The outputs of a model's encoder for one text."""
    ids = [toy.VOCABULARY.index(piece) for piece in pieces]
    mask = np.ones_like(ids)
    return model.bert(
        np.int32([ids]),
        np.int32([mask]),
        np.int32([segments]),
    )


def test_a_pretrained_model_fills_masks_and_gives_vectors(make):
    made = make("pretraining")
    model = made.model
    positions = [2, 5]
    encoded = encode(model, MASKED, [0] * 5 + [1] * 3)
    logits = model.cls.predictions(
        encoded.sequence_output,
        np.int32([positions]),
        model.bert.embedding_table,
    )
    logits = np.asarray(logits, np.float64)
    exponents = np.exp(logits)
    chances = exponents / exponents.sum(-1, keepdims=True)

    predict = predictor_of(made)
    requests = [
        ("The [MASK] sat", "[MASK]."),
        ("The cat",),
        ("[MASK]",),
    ]
    filled, plain, one = predict.answers(requests)
    masks = filled["masks"]
    assert values_of(masks, "position") == positions
    for mask, row in zip(masks, chances, strict=True):
        best_ids = (-row).argsort()[:10]
        assert mask["tokens"] == [toy.VOCABULARY[number] for number in best_ids]
        assert_close(mask["probabilities"], row[best_ids])
    assert values_of(one["masks"], "position") == [1]

    pieces = ("[CLS]", "the", "cat", "[SEP]")
    encoded = encode(model, pieces, [0] * 4)
    (pooled_output,) = encoded.pooled_output
    assert_close(plain["pooled_output"], pooled_output)
    answer = predictor_of(made, pooling="none")("The cat")
    assert answer["tokens"] == list(pieces)
    (sequence_output,) = encoded.sequence_output
    assert_close(answer["sequence_output"], sequence_output)


def assert_alike(actual, expected):
    """Asserts that two JSON values are equal, numbers within the tolerance."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert_alike(actual[name], value)
    elif isinstance(expected, list):
        for actual_item, expected_item in zip(actual, expected, strict=True):
            assert_alike(actual_item, expected_item)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=TOLERANCE)
    else:
        assert actual == expected


LONG = " ".join(toy.TEXT.split())
PAIRS = [
    *text_pairs(20, 20, 12),
    ("the cat sat.", ""),
    (LONG * 20, "rain"),
    ("Zebra caf\u00e9 \u5317\u4eac!", LONG),
    ("  ", "\u200d"),
    ("a " * 300, "the driver"),
]


def choice_requests() -> list[list[str]]:
    """A context and four continuations in each request."""
    columns = [texts(9, 14, seed) for seed in range(5)]
    return np.array(columns).T.tolist()


def question_requests() -> list[tuple[str, str]]:
    """Questions and contexts without words that are unknown in part.

    The two kinds of exports cut such words in different ways, see docs/reports/exports.md.
    """
    requests = []
    for context, question in PAIRS:
        context = f"{context} {context}"
        context = context.replace("Unheard,", "here").replace("\u4eac!", "")
        requests.append((question, context))
    return requests


def masked_requests() -> list:
    masked_texts = [f"{first} [MASK] {second}" for first, second in PAIRS[:21]]
    return [*PAIRS, *masked_texts, ("the [MASK]", "[MASK]")]


TEXT_REQUESTS = {
    "mrpc": PAIRS,
    "swag": choice_requests(),
    "ner": [f'{first.replace(" ", ", ")} ("on") 北京.' for first, _ in PAIRS],
    "squad": question_requests(),
    "pretraining": masked_requests(),
}


@pytest.mark.parametrize("kind", ["ner", "pretraining", "squad", *in_test_long("mrpc", "swag")])
def test_a_model_that_reads_text_answers_the_same(make, kind):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    tensor_export = make(kind)
    text_export = make(kind, export_text=True, **flags)
    tensors = predictor_of(tensor_export, **flags)
    text = predictor_of(text_export)
    assert text.model.record.settings.items() >= flags.items()
    assert text.columns == tensors.columns
    assert text.num_required == tensors.num_required
    requests = TEXT_REQUESTS[kind]
    expected = list(tensors.answers(requests))
    for answer in expected:
        answer.pop("probability", None)  # only in Python are there n-best lists
    assert_alike(list(text.answers(requests)), expected)
    if kind == "ner":
        assert predictor_of(text_export, pre_tokenized=False)(requests[0]) == text(requests[0])
        sentence = rf"^pre_tokenized=True: {text.path} has a text graph with the settings of its"
        with refusal(sentence):
            predictor_of(text_export, pre_tokenized=True)
        text_export = make(kind, export_text=True, pre_tokenized=True)
        requests = [first.replace(" ", "\n ") for first, _ in PAIRS]
        expected = list(predictor_of(tensor_export, pre_tokenized=True).answers(requests))
        assert_alike(list(predictor_of(text_export).answers(requests)), expected)
    if kind == "pretraining":
        tensors = predictor_of(tensor_export, pooling="none")
        text = predictor_of(text_export, pooling="none")
        assert_alike(text(*PAIRS[0]), tensors(*PAIRS[0]))
    if kind == "squad":
        sentence = rf"^n_best_size=3: {text.path} has a text graph with the settings of its"
        with refusal(sentence):
            Predictor(text.path, n_best_size=3)


def test_what_is_no_export_and_no_setting_is_said(tmp_path, make):
    message = r"top_k: Predictor has no such setting; it has doc_stride, .*, pooling"
    with refusal(message):
        Predictor("/nowhere", top_k=3)
    with refusal("absent: holds no model; name an --export_dir"):
        Predictor(str(tmp_path / "absent"))
    exports = tmp_path / "exports"
    version = shutil.copytree(make("squad").path, exports / "1")
    (version / "saved_model.pb").write_bytes(b"\x00damaged")
    with refusal("1: is no complete SavedModel"):
        Predictor(str(exports))
    (version / "assets.extra" / "export.json").unlink()
    message = r"export.json: is missing, and with it how text is read"
    with refusal(message):
        Predictor(str(exports))
    with refusal("model_dir=None: must be the path of a folder"):
        Predictor(None)


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        pytest.param(
            "batch_size",
            0,
            "must be at least 1, and at most 4194304",
            id="empty batches",
        ),
        pytest.param(
            "batch_size",
            "3",
            "must be a whole number",
            id="a text as batch size",
        ),
        pytest.param(
            "batch_size",
            None,
            "must be a whole number",
            id="no batch size",
        ),
        pytest.param(
            "batch_size",
            True,
            "must be a whole number",
            id="a boolean as batch size",
        ),
        pytest.param(
            "n_best_size",
            1.5,
            "must be a whole number",
            id="a fraction as size of a list",
        ),
        pytest.param(
            "null_score_diff_threshold",
            "-1",
            "must be a number",
            id="a text as threshold",
        ),
        pytest.param(
            "version_2_with_negative",
            1,
            "must be True or False",
            id="a number as boolean",
        ),
        pytest.param(
            "pooling",
            "mean",
            "must be one of pooler, none",
            id="a pooling of embedding models",
        ),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_before_the_model_is_read(
    tmp_path, make, setting, value, fault
):
    exports = tmp_path / "exports"
    version = shutil.copytree(make("squad").path, exports / "1")
    (version / "saved_model.pb").write_bytes(b"\x00damaged")
    (version / "assets.extra" / "export.json").unlink()
    with refusal(f"^{setting}={value!r}: {fault}"):
        Predictor(str(exports), **{setting: value})


def test_an_export_of_an_earlier_version_is_read(tmp_path, make, monkeypatch):
    """Neither its record nor its graph knows the labels."""
    made = make("mrpc")
    version = shutil.copytree(made.path, tmp_path / "1")
    path = version / "assets.extra" / "export.json"
    record = json.loads(path.read_text())
    later_fields = ("labels", "checkpoint")
    earlier_record = {name: record[name] for name in record if name not in later_fields}
    path.write_text(json.dumps(earlier_record))
    load = tf.saved_model.load

    def load_without_labels(folder):
        loaded = load(folder)
        return types.SimpleNamespace(
            signatures=loaded.signatures,
            model_weights=loaded.model_weights,
        )

    monkeypatch.setattr(tf.saved_model, "load", load_without_labels)
    answer = Predictor(tmp_path)("the cat", "the mat")
    assert_alike(answer, predictor_of(made)("the cat", "the mat"))


A_20_TIMES = "a " * 20


@pytest.mark.parametrize(
    ("kind", "fits", "longer"),
    [
        pytest.param(
            "mrpc",
            (A_20_TIMES, "a"),
            (A_20_TIMES, "a a"),
            id="a pair",
        ),
        pytest.param(
            "pretraining",
            ("[MASK] " * 22,),
            ("[MASK] " * 23,),
            id="a text",
        ),
        pytest.param(
            "swag",
            (A_20_TIMES, "a", "a", "a", "a"),
            (A_20_TIMES, "a", "a", "a", "a a"),
            id="choices",
        ),
        pytest.param(
            "squad",
            ("a " * 8, "a " * 90),
            ("a " * 9, "a"),
            id="a question",
        ),
        pytest.param(
            "ner",
            ("a " * 90,),
            None,
            id="words to tag",
        ),
    ],
)
def test_a_request_that_is_longer_than_the_model_reads(load_predictor, kind, fits, longer):
    settings = {"max_query_length": 8} if kind == "squad" else {}
    predictor = load_predictor(kind, **settings)
    assert not predictor.is_cut(fits)
    assert longer is None or predictor.is_cut(longer)


def test_a_call_takes_a_text_a_pair_or_a_list_of_either(load_predictor):
    predictor = load_predictor("mrpc")
    pairs = text_pairs(5, 9, 9)
    expected = list(predictor.answers(pairs))
    assert predictor(*pairs[1]) == predictor(pairs[1])
    for pair, answer in zip(pairs, expected, strict=True):
        (probability,) = label_probabilities(predictor(pair), "1")
        (expected_probability,) = label_probabilities(answer, "1")
        np.testing.assert_allclose(probability, expected_probability, atol=1e-6)
    answers = predictor(pairs)
    assert values_of(answers, "label") == values_of(expected, "label")
    assert predictor([]) == []
    pretrained = load_predictor("pretraining")
    first, second = pretrained(["the cat", "the mat"])
    assert first.keys() == {"pooled_output"}
    assert second.keys() == {"pooled_output"}


@pytest.mark.parametrize(
    ("request_texts", "kind"),
    [
        pytest.param(("a", 3), "int", id="a number"),
        pytest.param((["a", b"b"],), "bytes", id="bytes in a list"),
        pytest.param(([("a", {})],), "dict", id="a dictionary in a tuple"),
    ],
)
def test_a_request_of_another_type_is_refused(load_predictor, request_texts, kind):
    predictor = load_predictor("mrpc")
    message = rf"^a request must be a text \(str\) or a tuple of texts, got {kind}; "
    with refusal(message):
        predictor(*request_texts)


def test_a_classifier_gives_a_label_and_its_score(load_predictor):
    predictor = load_predictor("mrpc")
    answer = predictor("the cat", "the mat")
    brief = {
        "label": answer["label"],
        "score": max(answer["probabilities"].values()),
    }
    assert predictor.classify("the cat", "the mat") == brief
    assert predictor.classify([("the cat", "the mat")]) == [brief]


def test_a_regression_gives_its_score(load_predictor):
    regression = load_predictor("sts-b")
    assert regression.classify("the cat", "the mat") == regression("the cat", "the mat")


def test_pairs_get_scores_from_a_regression_alone(load_predictor):
    regression = load_predictor("sts-b")
    pairs = [("the cat", "the mat"), ("a train", "rain")]
    expected = [regression(pair)["score"] for pair in pairs]
    np.testing.assert_allclose(regression.score_pairs(pairs), expected, atol=1e-6)
    with pytest.raises(InputError, match="a model of mrpc gives pairs of texts no score"):
        load_predictor("mrpc").score_pairs(pairs)


def test_a_classifier_of_several_labels_gives_each_with_its_score(load_predictor):
    several = load_predictor("tsv")
    answer = several("the cat")
    expected = []
    for label in answer["labels"]:
        expected.append({"label": label, "score": answer["probabilities"][label]})
    assert several.classify("the cat") == expected


def test_masked_words_are_filled_into_the_text(load_predictor):
    predictor = load_predictor("pretraining")
    one = "the [MASK] sat"
    two = "the [MASK] sat on the [MASK]"
    (mask,) = predictor(one)["masks"]
    expected = []
    for token, score in zip(mask["tokens"], mask["probabilities"], strict=True):
        entry = {
            "score": score,
            "token": token,
            "sequence": f"the {token} sat",
        }
        expected.append(entry)
    assert predictor.fill_mask(one) == expected[:5]
    assert predictor.fill_mask(one, top_k=10) == expected
    (first,), (second,) = predictor.fill_mask(two, top_k=1)
    token = first["token"]
    assert first["sequence"] == f"the {token} sat on the [MASK]"
    token = second["token"]
    assert second["sequence"] == f"the [MASK] sat on the {token}"
    words_of_one, masks_of_two = predictor.fill_mask([one, two], top_k=2)
    assert len(words_of_one) == 2
    assert [len(words) for words in masks_of_two] == [2, 2]
    assert words_of_one[0]["token"] == expected[0]["token"]
    with refusal(r"the text has no \[MASK\] to fill"):
        predictor.fill_mask("the cat sat")


@pytest.mark.parametrize("top_k", [0, "2", True])
def test_a_top_k_that_is_no_number_of_words_is_refused(load_predictor, top_k):
    predictor = load_predictor("pretraining")
    message = f"top_k: must be a whole number from 1 to 10, got {top_k!r}"
    with refusal(message):
        predictor.fill_mask("the [MASK] sat", top_k=top_k)


@pytest.mark.parametrize("export_text", [False, *in_test_long(True)])
def test_a_mask_that_the_model_does_not_read_is_refused(make, export_text):
    predictor = predictor_of(make("pretraining", export_text=export_text))
    length = predictor.client.model.max_seq_length
    # [CLS], [SEP] and the mask are tokens, too.
    fits = "cat " * (length - 3) + "[MASK]"
    longer = "cat " * (length - 2) + "[MASK]"
    assert len(predictor(fits)["masks"]) == 1
    message = rf"the \[MASK\] is behind the {length} tokens that the model reads"
    with refusal(message):
        predictor.fill_mask(longer)
    message = rf"1 of 2 \[MASK\] are behind the {length} tokens"
    with refusal(message):
        predictor(f"[MASK] {fits}")


def test_an_answer_and_its_offsets(load_predictor):
    predictor = load_predictor("squad", max_query_length=5)
    context = "the driver waved his hand and the train left the station at noon"
    full = predictor("who waved", context)
    brief = predictor.answer("who waved", context)
    assert brief == {
        "answer": full["answer"],
        "start": full["start"],
        "end": full["end"],
        "score": full["probability"],
    }
    assert context[brief["start"] : brief["end"]] == brief["answer"]


def test_tags_become_entities(load_predictor):
    predictor = load_predictor("ner")
    text = "the  driver waved his hand and the train left the station at noon"
    words = predictor(text)["tags"]
    tags = values_of(words, "tag")
    entities = predictor.tag(text)
    assert entities, "the weights give no entity, so the test compares nothing"
    covered = set()
    for entity in entities:
        start, end = entity["start"], entity["end"]
        assert entity["entity_group"] == "X"
        assert text[start:end] == entity["word"]
        first, *later = [k for k, word in enumerate(words) if start <= word["start"] < end]
        assert all(tags[k] == "I-X" for k in later)  # B-X begins another entity
        covered.update([first, *later])
    assert covered == {k for k, tag in enumerate(tags) if tag != "O"}
    assert predictor.tag([text]) == [entities]


def test_the_method_of_another_task_is_refused(load_predictor):
    classifier = load_predictor("mrpc")
    message = r"task mrpc, which has no fill_mask\(\); call classify"
    with refusal(message):
        classifier.fill_mask("the [MASK] sat")
    chooser = load_predictor("swag")
    message = r"task swag, which has no tag\(\); call the predictor itself"
    with refusal(message):
        chooser.tag("the cat")
