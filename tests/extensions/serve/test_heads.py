"""The server hosts an export of many heads as one model, and each head as a model of its own."""

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.serving.model import Export
from tests.extensions.serve.test_paths import TEXTS, assert_close
from tests.serving.answers import call, signatures_of

pytestmark = [
    pytest.mark.needs_extra("starlette", "uvicorn", "prometheus_client"),
    pytest.mark.skipif(
        "export_heads" not in catalog.commands(), reason="many_heads is not installed"
    ),
]


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    from tests.extensions.many_heads.models import draw_encoder, write_model
    from tests.extensions.many_heads.test_export import run_heads

    folder = tmp_path_factory.mktemp("models")
    fields = {"num_hidden_layers": 1}
    encoder = draw_encoder(1, **fields)
    heads = {
        name: write_model(folder / name, kind, encoder, seed, **fields)
        for seed, (name, kind) in enumerate([("intent", "single"), ("pii", "tags")])
    }
    return run_heads(heads, tmp_path_factory.mktemp("export"), export_text=True)


@pytest.fixture(scope="module")
def address(version):
    from tests.extensions.serve.running import running

    with running({"all": version.parent}) as running_address:
        yield running_address


def test_one_request_has_the_answers_of_all_heads(address, version, monkeypatch):
    expected = Predictor(version)(TEXTS)
    calls = []
    run_signature = Export.__call__

    def count(export, signature, inputs):
        calls.append(signature)
        return run_signature(export, signature, inputs)

    monkeypatch.setattr(Export, "__call__", count)
    (text, *_) = TEXTS
    answer = address.post("/v1/models/all:run", {"instances": [text]})
    assert_close(answer["predictions"], expected[:1])
    assert calls == ["serving_text"]
    instances = [{"text_a": text} for text in TEXTS]
    answer = address.post("/v1/models/all/versions/1:run", {"instances": instances})
    assert_close(answer["predictions"], expected)
    assert set(answer["predictions"][0]["intent"]) == {"label", "probabilities"}


def test_each_head_is_a_model(address, version):
    predictor = Predictor(version)
    for head, verb in (("intent", "classify"), ("pii", "tag")):
        expected = predictor.head(head)(TEXTS)
        for path in (verb, "run"):
            answer = address.post(f"/v1/models/all/{head}:{path}", {"instances": TEXTS})
            assert_close(answer["predictions"], expected)
    sentence = address.refusal("/v1/models/all/pii:classify", {"instances": TEXTS})
    assert sentence.endswith("has no classify; use /v1/models/all/pii:tag")
    sentence = address.refusal("/v1/models/all:classify", {"instances": TEXTS})
    assert sentence.endswith("has no classify; use /v1/models/all:run")
    sentence = address.refusal("/v1/models/all/other:run", {"instances": TEXTS}, 404)
    assert sentence == "there is no model 'all/other'; this server has all, all/intent, all/pii"


def list_values(outputs) -> dict[str, list]:
    return {
        name: (values.astype(str) if values.dtype == object else values).tolist()
        for name, values in outputs.items()
    }


def test_the_paths_of_tensorflow_serving_have_all_signatures(address, version):
    signatures = signatures_of(version)
    inputs = {"text_a": np.array(TEXTS, object)}
    requests = {
        ("all", "serving_default"): "serving_default",
        ("all", "intent"): "intent",
        ("all/intent", "serving_default"): "intent",
        ("all/pii", "serving_text"): "pii",
    }
    for (model, signature), expected_signature in requests.items():
        content = {"signature_name": signature, "inputs": TEXTS}
        outputs = address.post(f"/v1/models/{model}:predict", content)["outputs"]
        assert_close(outputs, list_values(call(signatures[expected_signature], inputs)))
    metadata = address.call("GET", "/v1/models/all/metadata").content["metadata"]
    assert {"serving_default", "intent", "pii"} <= set(metadata["signature_def"]["signature_def"])
    metadata = address.call("GET", "/v1/models/all/intent/metadata").content
    assert metadata["model_spec"]["name"] == "all/intent"
    definition = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert set(definition["outputs"]) == {"label", "logits", "probabilities"}


def test_the_rows_of_a_signature_of_a_head_share_batches(address):
    from official_bert.extensions.serve.tensor_requests import read_tensor_request

    model = address.models.models["all"]
    keys = {read_tensor_request({"signature_name": "pii", "instances": ["a"]}, model).key}
    keys.add(read_tensor_request({"signature_name": "pii", "instances": ["b"]}, model).key)
    assert len(keys) == 1


def test_models_and_metrics_have_the_names_of_the_heads(address):
    address.post("/v1/models/all/pii:tag", {"instances": ["rain"]})
    models = address.call("GET", "/v1/models").content["data"]
    paths = {model["id"]: (model["task"], model["path"], model["labels"]) for model in models}
    assert paths == {
        "all": ("heads", "/v1/models/all:run", None),
        "all/intent": ("text", "/v1/models/all/intent:classify", ["left", "right", "up"]),
        "all/pii": ("ner", "/v1/models/all/pii:tag", ["O", "B-X", "I-X"]),
    }
    metrics = address.call("GET", "/metrics").content
    assert 'official_bert_requests_total{model="all/pii",path="/v1/models/:tag"' in metrics
    assert 'official_bert_tokens_total{model="all/pii"}' in metrics
    status = address.call("GET", "/v1/models/all/pii").content["model_version_status"]
    assert [each["version"] for each in status] == ["1"]
