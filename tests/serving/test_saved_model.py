"""Exports of raw text give the scripts' predictions from a C program; test_predictor.py asks them from Python."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest

from official_bert.commands import export_saved_model
from official_bert.data.model_inputs import model_input, padded_features
from official_bert.data.tables import IOB2, ConllFile, Sentence
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.serving import export
from official_bert.serving.export import check_text_export
from official_bert.serving.model import SavedModel
from official_bert.tasks.choice.examples import NUM_CHOICES
from official_bert.tasks.squad.answers import choose_answers, extract_candidates, raw_results
from official_bert.tasks.squad.examples import SquadExample, find_words
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.squad.windows import encode_questions
from official_bert.tasks.tagging.windows import encoded_words
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.serving import c_runner, exported
from tests.serving.answers import TOLERANCE, assert_same, call, signatures_of
from tests.serving.exported import KINDS, TAGS, Exported, export_options, make_checkpoint
from tests.serving.test_warmup import requests_of
from tests.shared import in_test_long

LENGTH = 24
SHORT, LONG = "the cat sat.", " ".join(toy.TEXT.split())
FIRST = [SHORT, "", LONG * 20, "Zebra caf\u00e9 \u5317\u4eac!", "  ", "Nobody", "a " * 300]
SECOND = ["", "", "rain", LONG, "noon", "\u200d", "the driver"]
LIBRARIES = [
    pathlib.Path(find_spec("tensorflow_text").origin).parent / "python" / "ops" / f"{name}.so"
    for name in ("_normalize_ops", "_regex_split_ops", "_wordpiece_tokenizer")
]


@pytest.fixture(scope="module")
def made_of(tmp_path_factory) -> Callable[[str], Exported]:
    """A function from a kind of task to its export."""

    def made(kind: str) -> Exported:
        flags = exported.SQUAD_2 if kind == "squad" else {}
        return exported.shared_export(tmp_path_factory, kind, export_text=True, **flags)

    return made


def strings(texts) -> np.ndarray:
    return np.vectorize(str.encode, otypes=[object])(np.array(texts, object))


def encoded(tokenizer, pairs) -> dict[str, np.ndarray]:
    inputs = [model_input(tokenizer, first, second, LENGTH) for first, second in pairs]
    return padded_features(inputs, tokenizer, max(len(one.tokens) for one in inputs))


def request_of(kind: str, rows: slice) -> dict[str, np.ndarray]:
    """The inputs of some of the seven requests."""
    if kind == "ner":
        return {"text": strings(FIRST[rows])}
    if kind == "swag":
        endings = [[second, "park", "", LONG] for second in SECOND[rows]]
        return {"context": strings(FIRST[rows]), "endings": strings(endings)}
    if kind == "squad":
        # Where a piece is unknown the script does not cut words, which tests/tasks/squad/test_in_graph.py shows.
        contexts = [text.removesuffix(" \u5317\u4eac!") for text in FIRST]
        return {"question": strings(SECOND[rows]), "context": strings(contexts[rows])}
    return {"text_a": strings(FIRST[rows]), "text_b": strings(SECOND[rows])}


def of_script(made: Exported, request: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the answer of the task's script to a request, under the names of the signature's outputs."""
    kind = made.options.task_name
    tokenizer = FullTokenizer(made.options.vocab_file, made.options.do_lower_case is not False)
    texts = {name: np.vectorize(bytes.decode, otypes=[object])(values) for name, values in request.items()}
    if kind == "ner":
        return tagged(made, tokenizer, texts["text"])
    if kind == "squad":
        return answered(made, tokenizer, texts["question"], texts["context"])
    if kind == "swag":
        pairs = [
            (context, ending) for context, row in zip(texts["context"], texts["endings"], strict=True) for ending in row
        ]
        features = encoded(tokenizer, pairs)
        return exported.expected(
            made, {name: values.reshape(-1, NUM_CHOICES, values.shape[-1]) for name, values in features.items()}
        )
    features = encoded(tokenizer, zip(texts["text_a"], texts["text_b"], strict=True))
    wanted = exported.expected(made, features)
    if kind == "pretraining":
        pieces = strings(toy.VOCABULARY)[features["input_ids"]]
        wanted["tokens"] = np.where(features["input_mask"] == 1, pieces, b"")
    return wanted


def tagged(made: Exported, tokenizer, texts) -> dict[str, np.ndarray]:
    sentences = [Sentence(number, number, [[word] for word in text.split()], None) for number, text in enumerate(texts)]
    words = encoded_words(ConllFile("", sentences, IOB2, has_documents=False), (), LENGTH, tokenizer)
    tags = iter(())
    if len(words):
        features = words.features(np.arange(len(words)), LENGTH)
        tags = iter(words.of_words(np.asarray(made.task.outputs(made.model, features)["tags"])))
    most = max(len(text.split()) for text in texts)
    wanted = {
        "num_words": np.int32([len(text.split()) for text in texts]),
        "words": np.full([len(texts), most], b"", object),
        "tags": np.full([len(texts), most], b"", object),
        "starts": np.zeros([len(texts), most], np.int32),
        "ends": np.zeros([len(texts), most], np.int32),
    }
    for row, text in enumerate(texts):
        end = 0
        for column, word in enumerate(text.split()):
            start = text.index(word, end)
            end = start + len(word)
            wanted["words"][row, column], wanted["tags"][row, column] = (word.encode(), TAGS[next(tags)].encode())
            wanted["starts"][row, column], wanted["ends"][row, column] = start, end
    return wanted


def answered(made: Exported, tokenizer, questions, contexts) -> dict[str, np.ndarray]:
    """The places in pieces are those of the answers' words here: see tests/tasks/squad/test_in_graph.py."""
    examples = [
        SquadExample(str(number), question, [word.group() for word in find_words(context)])
        for number, (question, context) in enumerate(zip(questions, contexts, strict=True))
    ]
    rules = SquadRules.from_settings(vars(made.options))
    encoded = encode_questions(examples, tokenizer, rules)
    results = []
    if encoded.windows:
        features = encoded.features(np.arange(len(encoded.windows)), LENGTH)
        outputs = SquadTask(rules).outputs(made.model, features)
        outputs = {name: np.asarray(logits) for name, logits in outputs.items()}
        results = raw_results(encoded.windows, outputs)
    candidates = extract_candidates(examples, encoded.windows, results, rules)
    chosen = choose_answers(*candidates, made.options.null_score_diff_threshold)
    entries = [
        next(entry for entry in candidates.nbest[name] if entry["text"] == text) for name, text in chosen.items()
    ]
    wanted = {
        "answer": strings(list(chosen.values())),
        "score": np.float32([entry["start_logit"] + entry["end_logit"] for entry in entries]),
    }
    if candidates.null_odds:
        wanted["null_odds"] = np.float32(list(candidates.null_odds.values()))
    return wanted


@pytest.mark.needs_program("cc")
@pytest.mark.parametrize("kind", ["mrpc", "squad", "ner", *in_test_long("pretraining", "sts-b", "swag", "tsv")])
def test_texts_get_the_answers_of_the_scripts(made_of, kind, tmp_path_factory):
    made = made_of(kind)
    # Of every kind the two signatures are one function; the first call of either takes seconds, so one kind has both.
    default = "serving_default" if kind == KINDS[0] else "serving_text"
    requests = [
        ("serving_text", request_of(kind, slice(7))),
        ("serving_text", request_of(kind, slice(1, 2))),
        (default, request_of(kind, slice(3, 4))),
    ]
    others = {"start", "end", "start_piece", "end_piece"} if kind == "squad" else set()
    found = c_runner.run(c_runner.build(tmp_path_factory), made.path, requests, LIBRARIES)
    for (_, request), answer in zip(requests, found, strict=True):
        wanted = of_script(made, request)
        assert_same({name: answer[name] for name in wanted}, wanted)
        assert answer.keys() - wanted.keys() == others
        if kind == "squad" and len(wanted["answer"]) == 7:  # some questions have no answer
            np.testing.assert_array_equal(answer["start"] < 0, wanted["answer"] == b"")
            assert len(set(wanted["null_odds"] > made.options.null_score_diff_threshold)) == 2


@pytest.mark.needs_extra("tensorflow_serving")
def test_what_lies_beside_the_model(made_of):
    made = made_of("pretraining")
    vocabulary = (made.path / "assets" / "vocab.txt").read_text().splitlines()
    assert vocabulary == toy.VOCABULARY
    record = json.loads((made.path / "assets.extra" / "export.json").read_text())
    assert record["flags"]["export_text"] is True
    signatures = signatures_of(made.path)
    requests = requests_of(made.path / "assets.extra" / "tf_serving_warmup_requests")
    assert sorted(name for name, _ in requests) == sorted(signatures)
    for name, inputs in requests:
        assert call(signatures[name], inputs)


@pytest.mark.long
def test_an_unusual_vocabulary_answers(tmp_path):
    """It is cased, and has repeated and blank lines, and a line separator, as Google's Chinese one has."""
    pieces = [*toy.VOCABULARY, "cat", "", "\u2028", "\u5317", "\u4eac", "", "\u8fce", "zoo", "CAT"]
    task, model = make_checkpoint(tmp_path, "mrpc", pieces)
    options = export_options(tmp_path, "mrpc", export_text=True, do_lower_case=False)
    export_saved_model.run(options)
    made = Exported(tmp_path / "exports" / "1", options, task, model)
    texts = {
        "text_a": strings(["the cat", "zoo", "\u5317\u4eac\u2028\u6b22\u8fce"]),
        "text_b": strings(["", "CAT zoo", "a"]),
    }
    loaded = SavedModel(str(made.path))
    assert loaded.tokenizer.tokenize("CAT cat") == ["CAT", "cat"]
    assert_same(loaded("serving_text", texts), of_script(made, texts))


IN_A_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf
import tensorflow_text

version, question, context = sys.argv[1:]
serve = tf.saved_model.load(version).signatures["serving_text"]
answer = serve(question=tf.constant([question]), context=tf.constant([context]))
print(json.dumps([answer["answer"].numpy()[0].decode(), answer["score"].numpy()[0].item()]))
print([name for name in sys.modules if name.startswith("official_bert")])
"""


def test_a_clean_process_answers(made_of, tmp_path):
    """Without this package, from another folder, and lower-casing also where `I` is not the capital of `i`."""
    made = made_of("squad")
    question, context = "the cat IN", LONG.upper()
    finished = subprocess.run(
        [sys.executable, "-c", IN_A_CLEAN_PROCESS, shutil.copytree(made.path, tmp_path / "moved"), question, context],
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "tr_TR.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    answered, modules, end = finished.stdout.split("\n")
    assert (modules, end) == ("[]", "")
    wanted = of_script(made, {"question": strings([question]), "context": strings([context])})
    answer, score = json.loads(answered)
    assert answer == wanted["answer"][0].decode()
    assert abs(score - wanted["score"][0]) <= TOLERANCE


def test_what_cannot_be_exported_is_said(tmp_path):
    with pytest.raises(InputError, match="--export_text: the task does not say what it answers to text"):
        check_text_export(types.SimpleNamespace(text_inputs={}))
    make_checkpoint(tmp_path, "squad")
    options = export_options(tmp_path, "squad", export_text=True, max_query_length=21)
    with pytest.raises(InputError, match="--max_seq_length=24: leaves no room for a document"):
        export_saved_model.run(options)


@pytest.mark.parametrize(
    ("task_name", "export_text", "is_warned"), [("mrpc", False, False), ("mrpc", True, True), ("sst-2", False, True)]
)
def test_versions_of_another_kind_are_warned_of(tmp_path, caplog, task_name, export_text, is_warned):
    record = {"task_name": "mrpc", "settings": {"export_text": False}}
    (tmp_path / "3" / "assets.extra").mkdir(parents=True)
    (tmp_path / "3" / "assets.extra" / "export.json").write_text(json.dumps(record))
    options = ExportOptions(export_dir=str(tmp_path), export_text=export_text)
    export._warn_of_other_versions(options, task_name)
    assert ("holds versions of another task or with other signatures" in caplog.text) is is_warned
