"""Folders of sentence-transformers' CrossEncoder are read, trained on, converted and written."""

import json

import numpy as np
import pytest

from official_bert import BertClassifier, BertConfig, FullTokenizer, Predictor
from official_bert.checkpoints.layout import find_layout
from official_bert.extensions.reranking.layout import CrossEncoderLayout, read_activation
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from tests import toy
from tests.extensions.reranking.test_command import write_rows
from tests.scripts import flag_list, run_here
from tests.serving import exported

SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"
PAIRS = [
    ("the cat sat", "a train left the station at noon"),
    ("the cat sat", "the cat sat on the mat ."),
    ("it was a sunny day", "rain"),
]


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.fixture(scope="module")
def plain(base, tmp_path_factory):
    """The folder of a regression as transformers writes it, with 64 positions, and its model."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"max_position_embeddings": 64})
    model = BertClassifier(config, num_outputs=1)
    draws = np.random.default_rng(4)
    model.set_weights([draws.normal(scale=0.6, size=one.shape) for one in model.get_weights()])
    tokenizer = FullTokenizer.from_pretrained(str(base))
    model.save_pretrained(str(folder), format="huggingface", tokenizer=tokenizer)
    return folder, model, tokenizer


@pytest.fixture
def make_folder(plain, tmp_path):
    """A function that copies the folder with further fields of config.json, and the content of
    config_sentence_transformers.json.
    """

    def make(settings=None, **fields):
        folder = tmp_path / "theirs"
        folder.mkdir()
        for path in plain[0].iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        edit_json(folder / "config.json", **fields)
        if settings is not None:
            (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
            entries = [{"idx": 0, "name": "0", "path": "", "type": "a.Transformer"}]
            (folder / "modules.json").write_text(json.dumps(entries))
        return folder

    return make


def edit_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def compute_logits(plain, max_seq_length=64) -> np.ndarray:
    _, model, tokenizer = plain
    first, second = zip(*PAIRS, strict=True)
    features = tokenizer(list(first), list(second), max_seq_length=max_seq_length)
    return np.array(model(features))[:, 0]


def sigmoid(values):
    return 1 / (1 + np.exp(-np.float64(values)))


VERSION_6 = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}


@pytest.mark.parametrize(
    ("settings", "fields", "has_sigmoid"),
    [
        (VERSION_6 | {"activation_fn": SIGMOID}, {}, True),
        (VERSION_6 | {"activation_fn": IDENTITY}, {}, False),
        (VERSION_6, {}, True),
        (None, {"sentence_transformers": {"activation_fn": SIGMOID}}, True),
        (None, {"sentence_transformers": {"activation_fn": IDENTITY}}, False),
        (None, {"sbert_ce_default_activation_function": SIGMOID}, True),
    ],
)
def test_scores_follow_the_activation_of_the_folder(
    plain, make_folder, settings, fields, has_sigmoid
):
    folder = make_folder(settings, **fields)
    predictor = Predictor(str(folder))
    logits = compute_logits(plain)
    expected = sigmoid(logits) if has_sigmoid else logits
    scores = [answer["score"] for answer in predictor(PAIRS)]
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert np.ptp(scores) > 1e-2
    assert predictor.task_name == "reranking"
    assert predictor.model.max_seq_length == 64
    assert read_activation(str(folder)) == ("sigmoid" if has_sigmoid else "identity")


def test_the_length_is_that_of_the_tokenizer(plain, make_folder):
    folder = make_folder(VERSION_6 | {"activation_fn": IDENTITY})
    edit_json(folder / "tokenizer_config.json", model_max_length=10)
    scores = [answer["score"] for answer in Predictor(str(folder))(PAIRS)]
    np.testing.assert_allclose(scores, compute_logits(plain, 10), atol=2e-6)
    assert np.abs(scores - compute_logits(plain)).max() > 1e-2


def test_a_regression_without_an_activation_is_no_reranker(plain, make_folder):
    folder = str(make_folder())
    assert read_activation(folder) is None
    predictor = Predictor(folder)
    assert predictor.task_name != "reranking"
    scores = [answer["score"] for answer in predictor(PAIRS)]
    np.testing.assert_allclose(scores, compute_logits(plain), atol=2e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"activation_fn": "torch.nn.Tanh"}, "config.json: activation_fn is Tanh, which is not"),
        ({"default_prompt_name": "query"}, "default_prompt_name is 'query', and a reranker"),
    ],
)
def test_other_activations_and_prompts_are_refused(make_folder, settings, sentence):
    folder = make_folder(VERSION_6 | settings)
    with pytest.raises(InputError, match=sentence):
        Predictor(str(folder))


def test_a_folder_of_an_embedding_model_is_none_of_a_reranker(make_folder):
    folder = make_folder({"model_type": "SentenceTransformer"})
    assert not isinstance(find_layout(str(folder)), CrossEncoderLayout)


def test_a_conversion_to_the_format_of_the_original_keeps_the_scores(plain, make_folder, tmp_path):
    folder = make_folder(VERSION_6 | {"activation_fn": SIGMOID})
    out = tmp_path / "out"
    run_here("convert_checkpoint", *flag_list(model=folder, output_format="tf1", output_dir=out))
    record = ModelFolder(str(out)).task()
    assert record.family == record.task_name == "reranking"
    assert record.settings == {"activation": "sigmoid", "max_seq_length": 64}
    scores = [answer["score"] for answer in Predictor(str(out))(PAIRS)]
    np.testing.assert_allclose(scores, sigmoid(compute_logits(plain)), atol=2e-6)


def test_a_training_starts_from_the_scores_of_the_folder(make_folder, tmp_path):
    """With a learning rate of 0, the scores and the activation stay."""
    folder = make_folder(VERSION_6 | {"activation_fn": IDENTITY})
    write_rows(tmp_path / "rows.jsonl", 4, 1)
    out = tmp_path / "out"
    run_here(
        "run_reranker",
        *flag_list(
            model=folder,
            train_file=tmp_path / "rows.jsonl",
            output_dir=out,
            max_seq_length=32,
            do_train=True,
            train_batch_size=4,
            num_train_epochs=1,
            learning_rate=0,
        ),
    )
    expected = [answer["score"] for answer in Predictor(str(folder))(PAIRS)]
    scores = [answer["score"] for answer in Predictor(str(out))(PAIRS)]
    np.testing.assert_allclose(scores, expected, atol=2e-6)

    # The folder for sentence-transformers.
    converted = tmp_path / "converted"
    run_here(
        "convert_checkpoint",
        *flag_list(model=out, output_format="huggingface", output_dir=converted),
    )
    config = json.loads((converted / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "LABEL_0"}
    assert config["sentence_transformers"] == {"activation_fn": IDENTITY}
    tokenizer_config = json.loads((converted / "tokenizer_config.json").read_text())
    assert tokenizer_config["model_max_length"] == 32
    (converted / "task.json").unlink()  # sentence-transformers' own folders have none
    scores = [answer["score"] for answer in Predictor(str(converted))(PAIRS)]
    np.testing.assert_allclose(scores, expected, atol=2e-6)


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize("activation", ["sigmoid", "identity"])
def test_both_libraries_give_the_same_scores(plain, make_folder, tmp_path, activation):
    torch = pytest.importorskip("torch")
    from sentence_transformers import CrossEncoder

    class_name = SIGMOID if activation == "sigmoid" else IDENTITY
    folder = make_folder(sentence_transformers={"activation_fn": class_name})

    # Ours to theirs: the folder of earlier versions, which a conversion here writes, too.
    theirs = CrossEncoder(str(folder), device="cpu")
    expected = theirs.predict(PAIRS)
    scores = [answer["score"] for answer in Predictor(str(folder))(PAIRS)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    documents = [document for _, document in PAIRS]
    hits = Predictor(str(folder)).rank("the cat", documents)
    their_hits = theirs.rank("the cat", documents)
    assert [hit["row"] for hit in hits] == [hit["corpus_id"] for hit in their_hits]

    # Theirs to ours: the folder that the installed version writes.
    other = torch.nn.Identity() if activation == "sigmoid" else torch.nn.Sigmoid()
    theirs = CrossEncoder(str(folder), device="cpu", activation_fn=other, max_length=10)
    theirs.save_pretrained(str(tmp_path / "saved"))
    scores = [answer["score"] for answer in Predictor(str(tmp_path / "saved"))(PAIRS)]
    np.testing.assert_allclose(scores, theirs.predict(PAIRS), atol=1e-5)
