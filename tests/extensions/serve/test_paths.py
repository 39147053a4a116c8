"""The paths of the server give the numbers of the models, and refuse faulty requests."""

import base64
import concurrent.futures
import re

import numpy as np
import pytest

from official_bert import Predictor
from official_bert.data.records.framing import encode_examples
from tests import toy
from tests.extensions.serve.conftest import MODELS
from tests.serving import exported
from tests.serving.answers import TOLERANCE, call, signatures_of

pytestmark = pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client")

TEXTS = ["the cat sat", "a train left the station at noon .", "rain"]
PAIRS = [["the cat sat", "a cat was in the park"], ["rain", "a train"]]
# Name of a model -> a request, and the path that answers it.
REQUESTS = {
    "mrpc": (PAIRS[0], "classify"),
    "text": (PAIRS[0], "classify"),
    "score": (PAIRS[1], "classify"),
    "multi": ("the cat sat", "classify"),
    "swag": (["the cat", "sat", "was", "left", "rain"], "run"),
    "squad": ({"question": "who sat ?", "context": "the cat sat on the mat ."}, "answer"),
    "ner": ("the cat sat on the mat .", "tag"),
    "masks": ("the [MASK] sat", "fill_mask"),
    "encoder": ("the cat sat", "embed"),
}


def assert_close(values, expected):
    """Equal answers; numbers within the tolerance of exports, because batches differ."""
    if isinstance(expected, dict):
        assert values.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(values[name], value)
    elif isinstance(expected, list):
        assert len(values) == len(expected)
        for value, expected_value in zip(values, expected, strict=True):
            assert_close(value, expected_value)
    elif isinstance(expected, float):
        assert values == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE)
    else:
        assert values == expected


def list_texts(instance):
    """The texts of an instance, for Predictor."""
    if isinstance(instance, dict):
        return tuple(instance.values())
    return (instance,) if isinstance(instance, str) else tuple(instance)


@pytest.mark.parametrize("name", MODELS)
def test_texts_have_the_answers_of_the_predictor(address, paths, name):
    instance, verb = REQUESTS[name]
    (expected,) = Predictor(paths[name])([list_texts(instance)])
    for path in (verb, "run"):
        answer = address.post(f"/v1/models/{name}:{path}", {"instances": [instance]})
        (prediction,) = answer["predictions"]
        assert_close(prediction, expected)


def test_a_classifier_has_labels_and_probabilities(address, tmp_path_factory):
    """The numbers come from the model in Keras."""
    made = exported.shared_export(tmp_path_factory, "mrpc")
    answer = address.post("/v1/models/mrpc:classify", {"instances": PAIRS})
    for (first, second), prediction in zip(PAIRS, answer["predictions"], strict=True):
        tokens = ["[CLS]", *first.split(), "[SEP]"]
        num_first = len(tokens)
        tokens += [*second.split(), "[SEP]"]
        ids = [toy.VOCABULARY.index(token) for token in tokens]
        features = {
            "input_ids": np.int32([ids]),
            "input_mask": np.ones((1, len(ids)), np.int32),
            "segment_ids": np.int32([[0] * num_first + [1] * (len(ids) - num_first)]),
        }
        (logits,) = np.asarray(made.model(features))
        exponents = np.exp(logits - logits.max())
        probabilities = (exponents / exponents.sum()).tolist()
        expected = dict(zip(made.task.labels, probabilities, strict=True))
        assert_close(prediction["probabilities"], expected)
        assert prediction["label"] == made.task.labels[logits.argmax()]


def test_a_text_that_is_cut_is_marked(address):
    long_text = "the cat sat on the mat . " * 10
    instances = [[long_text, "a"], ["a", "b"]]
    answer = address.post("/v1/models/mrpc:classify", {"instances": instances})
    assert [prediction.get("truncated") for prediction in answer["predictions"]] == [True, None]


@pytest.mark.parametrize(
    ("name", "signature", "rows"),
    [
        ("mrpc", "serving_ids", [[2, 5, 6, 3], [2, 7, 3, 0]]),
        ("text", "serving_default", [{"text_a": "the cat", "text_b": "sat"}] * 2),
        ("multi", "serving_ids", [[2, 5, 6, 3]]),
    ],
)
def test_tensors_have_the_outputs_of_the_signature(address, paths, name, signature, rows):
    serve = signatures_of(paths[name])[signature]
    if isinstance(rows[0], dict):
        inputs = {field: np.array([row[field] for row in rows], object) for field in rows[0]}
    else:
        inputs = {"input_ids": np.int32(rows)}
    expected = {}
    for output, values in call(serve, inputs).items():
        texts = values.astype(str) if values.dtype == object else values
        expected[output] = texts.tolist()

    request = {"signature_name": signature}
    path = f"/v1/models/{name}:predict"
    by_rows = address.post(path, request | {"instances": rows})["predictions"]
    columns = {field: [row[field] for row in rows] for field in inputs} if name == "text" else rows
    by_columns = address.post(path, request | {"inputs": columns})["outputs"]

    assert_close(by_columns, expected)
    for index, row in enumerate(by_rows):
        assert_close(row, {output: values[index] for output, values in expected.items()})


def test_a_single_output_has_no_name_and_bytes_are_base64(address, paths):
    features = {
        "input_ids": np.int32([[2, 5, 3]]),
        "input_mask": np.int32([[1, 1, 1]]),
        "segment_ids": np.int32([[0, 0, 0]]),
    }
    (record,) = encode_examples(features)
    expected = call(signatures_of(paths["score"])["serving_default"], features)["score"]
    content = {
        "signature_name": "serving_examples",
        "instances": [{"b64": base64.b64encode(record).decode()}],
    }
    answer = address.post("/v1/models/score/versions/1:predict", content)
    assert_close(answer, {"predictions": expected.tolist()})


def test_requests_of_many_clients_share_batches(address, paths):
    """Each client gets its rows, whatever the batches were."""
    predictor = Predictor(paths["encoder"])
    texts = [
        " ".join(["cat", "sat", "mat"][: 1 + number % 3] * (1 + number % 5)) for number in range(60)
    ]
    expected = predictor.encode(texts)

    def send(number):
        row = {"input_ids": [2] + [5 + number % 30] * 3 + [3]}
        tensors = address.post(
            "/v1/models/mrpc:predict", {"signature_name": "serving_ids", "instances": [row]}
        )
        vectors = address.post("/v1/embeddings", {"input": texts[number]})
        return vectors["data"][0]["embedding"], row, tensors["predictions"][0]

    before = count_batches(address)
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(send, range(len(texts)), timeout=120))
    assert count_batches(address) - before <= 2 * len(texts)

    serve = signatures_of(paths["mrpc"])["serving_ids"]
    for number, (vector, row, prediction) in enumerate(answers):
        np.testing.assert_allclose(vector, expected[number], atol=TOLERANCE)
        outputs = call(serve, {"input_ids": np.int32([row["input_ids"]])})
        np.testing.assert_allclose(prediction["logits"], outputs["logits"][0], atol=TOLERANCE)


def count_batches(address):
    text = address.call("GET", "/metrics").content
    counts = re.findall(r"official_bert_batch_rows_count\{.*\} (\S+)", text)
    return sum(map(float, counts))


def test_embeddings_are_those_of_openai(address, paths):
    expected = Predictor(paths["encoder"]).encode(TEXTS)
    answer = address.post("/v1/embeddings", {"input": TEXTS, "model": "encoder", "user": "me"})
    assert answer["object"] == "list"
    assert answer["model"] == "encoder"
    assert [row["index"] for row in answer["data"]] == [0, 1, 2]
    vectors = [row["embedding"] for row in answer["data"]]
    np.testing.assert_allclose(vectors, expected, atol=TOLERANCE)
    # [CLS] and [SEP] count; "station at noon ." is four pieces.
    assert answer["usage"] == {"prompt_tokens": 5 + 10 + 3, "total_tokens": 18}

    content = {"input": TEXTS[0], "encoding_format": "base64", "dimensions": 4}
    (row,) = address.post("/v1/embeddings", content)["data"]
    vector = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    first = expected[0, :4]
    np.testing.assert_allclose(vector, first / np.linalg.norm(first), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["score", "mrpc"])
def test_documents_are_ranked(address, paths, name):
    query = "the cat sat"
    answers = Predictor(paths[name])([(query, text) for text in TEXTS])
    scores = [
        answer["score"] if name == "score" else answer["probabilities"]["1"] for answer in answers
    ]
    order = np.argsort(np.negative(scores), kind="stable").tolist()

    cohere = {"model": name, "query": query, "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]}
    ranking = address.post("/v1/rerank", cohere | {"top_n": 2, "return_documents": True})
    assert [result["index"] for result in ranking["results"]] == order[:2]
    for result in ranking["results"]:
        index = result["index"]
        assert result["document"] == {"text": TEXTS[index]}
        assert result["relevance_score"] == pytest.approx(scores[index], abs=TOLERANCE)
    assert len(address.post("/v2/rerank", cohere)["results"]) == 3

    inference = {"model": name, "query": query, "texts": TEXTS}
    hits = address.post("/rerank", inference)
    assert [hit["index"] for hit in hits] == order
    assert hits[0].keys() == {"index", "score"}
    hits = address.post("/rerank", inference | {"return_text": True, "raw_scores": True})
    assert hits[0]["text"] == TEXTS[order[0]]


def test_the_state_and_the_signatures_of_models(address):
    listed = address.call("GET", "/v1/models").content["data"]
    assert {model["id"]: model["path"].split(":")[1] for model in listed} == {
        name: verb for name, (_, verb) in REQUESTS.items()
    }
    for path in ("/v1/models/mrpc", "/v1/models/mrpc/versions/1"):
        state = address.call("GET", path).content
        assert state["labels"] == ["0", "1"]
        (version,) = state["model_version_status"]
        assert version["version"] == "1"
        assert version["state"] == "AVAILABLE"
    metadata = address.call("GET", "/v1/models/mrpc/metadata").content["metadata"]
    signature = metadata["signature_def"]["signature_def"]["serving_ids"]
    assert signature["inputs"]["input_ids"]["dtype"] == "DT_INT32"
    sizes = [dim["size"] for dim in signature["inputs"]["input_ids"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "-1"]
    assert signature["outputs"]["label"]["dtype"] == "DT_STRING"
    assert address.call("GET", "/health").content == {"status": "ok"}
    assert address.call("GET", "/ready").content["models"] == list(MODELS)


def test_metrics_count_requests_and_tokens(address):
    address.post("/v1/models/ner:tag", {"instances": ["the cat sat"]})
    address.refusal("/v1/models/ner:tag", {"instances": []})
    text = address.call("GET", "/metrics").content
    line = 'official_bert_requests_total{model="ner",path="/v1/models/:tag",status="%d"}'
    assert line % 200 in text
    assert line % 400 in text
    tokens = float(re.search(r'official_bert_tokens_total\{model="ner"\} (\S+)', text)[1])
    padded = float(re.search(r'official_bert_padded_tokens_total\{model="ner"\} (\S+)', text)[1])
    assert 5 <= tokens <= padded
    assert 'official_bert_queue_rows{model="ner"} 0.0' in text


@pytest.mark.parametrize(
    ("path", "content", "sentence"),
    [
        (
            "/v1/models/ner:classify",
            {"instances": ["a"]},
            "the model 'ner' of the task ner has no classify; use /v1/models/ner:tag",
        ),
        (
            "/v1/embeddings",
            {"input": "a", "model": "ner"},
            "the model 'ner' of the task ner cannot compute embeddings; name one of encoder, or "
            "use /v1/models/ner:tag",
        ),
        (
            "/v1/rerank",
            {"query": "a", "documents": ["b"], "model": "encoder"},
            "the model 'encoder' of the task embedding cannot rank documents; name one of mrpc, "
            "text, score, or use /v1/models/encoder:embed",
        ),
        (
            "/v1/rerank",
            {"query": "a", "documents": ["b"]},
            "model: is missing, and several models can rank documents; name one of mrpc, text, "
            "score",
        ),
        (
            "/v1/models/mrpc:predict",
            {"instances": [{"text_a": "a"}]},
            "missing input: input_ids, input_mask, segment_ids; the signature serving_default has "
            "input_ids, input_mask, segment_ids; send texts to /v1/models/mrpc:classify",
        ),
        (
            "/v1/models/mrpc:predict",
            {"signature_name": "serving_ids", "instances": [[2, 99]]},
            "assertion failed: [input_ids must be at least 0 and below 50",
        ),
        (
            "/v1/models/mrpc:predict",
            {"signature_name": "serving_ids", "instances": [[2, 5], [2]]},
            "rows must have equal lengths",
        ),
        (
            "/v1/models/mrpc:predict",
            {"signature_name": "serving_ids", "instances": [[2, 5.5]]},
            "input_ids: is no tensor of int32 [any, any]",
        ),
        (
            "/v1/models/mrpc:predict",
            {"signature_name": "none", "instances": [[2]]},
            "there is no signature 'none'; the model has ",
        ),
        (
            "/v1/models/mrpc:classify",
            {"instances": ["a", "b"]},
            "request 0: the model takes 2 texts (text_a, text_b), 1 given",
        ),
        (
            "/v1/models/squad:answer",
            {"instances": [{"question": "a"}]},
            "instances[0]: the fields context are missing",
        ),
        ("/v1/embeddings", {"input": [[1, 2]]}, "input[0]: must be a text"),
        ("/v1/embeddings", {"input": "a", "dimensions": 17}, "dimensions: must be at most 16"),
        ("/v1/embeddings", {"input": "a", "input_type": "x"}, "input_type: must be query or"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "x"}, "must be float or base64"),
        ("/v1/rerank", {"query": "a", "documents": [{}]}, "documents[0]: must be a text"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n: must be positive"),
        ("/v1/rerank", {"documents": ["b"], "texts": ["b"]}, "send one of them"),
    ],
)
def test_a_wrong_request_gets_a_sentence_with_a_remedy(address, path, content, sentence):
    assert sentence in address.refusal(path, content)


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/v1/models/none", 404, "there is no model 'none'; this server has mrpc, text,"),
        ("GET", "/v1/models/mrpc/versions/2", 404, "there is no version 2; the server has 1"),
        ("GET", "/v1/models/mrpc/labels/stable", 404, "no labels of versions"),
        ("GET", "/v1/models/mrpc:predict", 405, "GET is not a method of :predict; use POST"),
        ("GET", "/v1/embeddings", 405, "GET is not a method of this path"),
        ("POST", "/v1/models/mrpc", 405, "POST needs a verb, as in /v1/models/mrpc:classify"),
        ("POST", "/v1/models/mrpc:regress", 404, "there is no path :regress; a model has"),
        ("POST", "/v2/models", 404, "there is no such path; this server has /v1/models,"),
        ("DELETE", "/v1/models/mrpc", 405, "DELETE is not a method of this path"),
    ],
)
def test_a_wrong_path_gets_a_sentence(address, method, path, status, sentence):
    answer = address.call(method, path, {} if method == "POST" else None)
    assert answer.status == status
    assert sentence in answer.content["error"]


def test_web_pages_are_not_answered(address):
    answer = address.call("POST", "/v1/embeddings", {"input": "a"}, Origin="https://page.example")
    assert answer.status == 403
    assert "web pages are not answered" in answer.content["error"]["message"]
