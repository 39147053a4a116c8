"""Prompts are put before texts, and texts of both roles have the vectors that sentence-transformers
gives them: by the encoder, by a Predictor, by exports, in training and in evaluation.
"""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertModel, FullTokenizer, InputError, Predictor, SentenceEncoder, catalog
from official_bert.data.prompts import Prompts
from official_bert.data.text_examples import DOCUMENT, QUERY
from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings import task as task_module
from official_bert.extensions.embeddings.sentence_folder import SentenceModules, write
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from official_bert.extensions.embeddings.task import EmbeddingTask
from official_bert.model_dir import ModelFolder
from official_bert.serving import model as serving_model
from tests import toy
from tests.extensions.embeddings.test_command import model_of, write_pairs
from tests.extensions.embeddings.test_sentence_folder import convert
from tests.hostile.rows import edit_json
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

TEXTS = ["The cat sat on the mat. It was a sunny day in the park.", "", "A train left.", "Rain"]
QUERY_PROMPT, DOCUMENT_PROMPT = "the cat: ", "his hand "
BOTH = {"query": QUERY_PROMPT, "passage": DOCUMENT_PROMPT}
LENGTH = 12
FIXED = r"prompt='rain ': .* puts prompts before texts itself"


def write_folder(folder: pathlib.Path, prompts: Prompts, pooling: str = "mean") -> str:
    """Write a toy model as a folder of sentence-transformers; return its path."""
    base = toy.make_bert_base_dir(folder, num_hidden_layers=2)
    write(
        str(base), SentenceModules(str(base), ("Normalize",), pooling, LENGTH, prompts=prompts), 16
    )
    return str(base)


def compute_vectors(folder: str, texts: list[str], start: int = 0, pooling: str = "mean"):
    """Compute vectors of norm 1, one text at a time, without the first tokens."""
    model = BertModel.from_pretrained(folder)
    tokenizer = FullTokenizer.from_pretrained(folder)
    vectors = []
    for text in texts:
        outputs = model(**tokenizer(text, max_seq_length=LENGTH))
        tokens = outputs.sequence_output.numpy()[0, start:]
        pools = {
            "mean": tokens.mean(0),
            "cls": tokens[0],
            "max": tokens.max(0),
            "mean_sqrt_len": tokens.sum(0) / len(tokens) ** 0.5,
            # The places count from [CLS], whatever is left out.
            "weighted_mean": np.average(tokens, 0, np.arange(len(tokens)) + start + 1),
            "last": tokens[-1],
        }
        vectors.append(pools[pooling] / np.linalg.norm(pools[pooling]))
    return np.stack(vectors)


def prefixed(prompt: str, texts: list[str] = TEXTS) -> list[str]:
    return [prompt + text for text in texts]


def assert_near(vectors, expected):
    np.testing.assert_allclose(vectors, expected, atol=2e-6)


def test_each_call_has_its_prompt(tmp_path, caplog):
    folder = write_folder(tmp_path, Prompts({**BOTH, "other": "a park "}))
    encoder = SentenceEncoder(folder)
    assert encoder.prompts == {**BOTH, "other": "a park "}
    assert encoder.default_prompt_name is None
    queries = compute_vectors(folder, prefixed(QUERY_PROMPT))
    documents = compute_vectors(folder, prefixed(DOCUMENT_PROMPT))
    others = compute_vectors(folder, prefixed("a park "))
    for model in (encoder, Predictor(folder)):
        assert_near(model.encode(TEXTS), compute_vectors(folder, TEXTS))
        assert_near(model.encode_query(TEXTS), queries)
        assert_near(model.encode_document(TEXTS), documents)
        assert_near(model.encode_query(TEXTS, prompt_name="other"), others)
        assert_near(model.encode(TEXTS, prompt_name="passage"), documents)
        assert_near(model.encode_document(TEXTS, prompt="a park "), others)
        assert_near(model.encode_query(TEXTS, prompt=""), compute_vectors(folder, TEXTS))
        caplog.clear()
        assert_near(model.encode(TEXTS, prompt="a park ", prompt_name="query"), others)
        assert "prompt_name='query': has no effect beside prompt" in caplog.text
        message = "prompt_name='fact': the model has the prompts: query, passage, other"
        with pytest.raises(InputError, match=message):
            model.encode(TEXTS, prompt_name="fact")
        with pytest.raises(InputError, match="prompt=5: must be a text"):
            model.encode_query(TEXTS, prompt=5)


@pytest.mark.parametrize(
    ("texts", "default_name", "query", "document"),
    [
        pytest.param({"d": "a park "}, "d", "a park ", "a park ", id="default"),
        pytest.param({"d": "a park ", "query": ""}, "d", "", "a park ", id="no prompt of queries"),
        pytest.param({"corpus": "his hand ", "passage": "a "}, None, "", "a ", id="order of names"),
        pytest.param({}, None, "", "", id="none"),
    ],
)
def test_a_role_without_a_prompt_gets_the_default_one(texts, default_name, query, document):
    """The names and their order are those of sentence-transformers 6."""
    forms = Prompts(texts, default_name).make_forms(9)
    assert forms[QUERY].prompt == query
    assert forms[DOCUMENT].prompt == document
    assert Prompts(texts, default_name).make_form(9).prompt == texts.get(default_name, "")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"__version__": {"sentence_transformers": "2.2.2"}},
            id="version only",
        ),
        pytest.param(
            {
                "prompts": {},
                "default_prompt_name": None,
                "similarity_fn_name": None,
            },
            id="no prompts",
        ),
        pytest.param(
            {
                "prompts": {"query": "", "document": ""},
                "default_prompt_name": None,
                "similarity_fn_name": "cosine",
            },
            id="empty prompts",
        ),
        pytest.param(
            {
                "prompts": {"query": "q: ", "document": ""},
                "default_prompt_name": "document",
            },
            id="empty default prompt",
        ),
    ],
)
def test_prompts_without_text_change_nothing(tmp_path, settings):
    """As each version of sentence-transformers writes the file of a model without prompts."""
    folder = write_folder(tmp_path, Prompts())
    path = pathlib.Path(folder, "config_sentence_transformers.json")
    path.write_text(json.dumps(settings))
    if not any(settings.get("prompts", {}).values()):
        edit_json(pathlib.Path(folder, "1_Pooling", "config.json"), include_prompt=False)
    assert_near(SentenceEncoder(folder).encode(TEXTS), compute_vectors(folder, TEXTS))


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "max", "mean_sqrt_len", "weighted_mean", "last"]
)
def test_the_tokens_of_a_prompt_may_be_left_out(tmp_path, pooling):
    prompts = Prompts({**BOTH, "d": "a park "}, "d", is_pooled=False)
    folder = write_folder(tmp_path, prompts, pooling)
    tokenizer = FullTokenizer.from_pretrained(folder)
    encoder = SentenceEncoder(folder)
    predictor = Predictor(folder)
    for name, prompt in encoder.prompts.items():
        start = 1 + len(tokenizer.tokenize(prompt))
        expected = compute_vectors(folder, prefixed(prompt), start, pooling)
        assert_near(encoder.encode(TEXTS, prompt_name=name), expected)
        if name == "d":
            assert_near(encoder.encode(TEXTS), expected)
            assert_near(predictor.encode(TEXTS), expected)
            assert_near(predictor.embed(TEXTS), expected)
        else:
            assert_near(predictor.encode(TEXTS, prompt_name=name), expected)
    with pytest.raises(InputError, match=FIXED):
        predictor.encode(TEXTS, prompt="rain ")
    unprompted = compute_vectors(folder, TEXTS, 0, pooling)
    assert_near(predictor.encode(TEXTS, prompt=""), unprompted)


def export(folder: str, export_dir: pathlib.Path, exports_text: bool) -> str:
    options_class = catalog.options_class("export_saved_model")
    return serving_model.export(
        options_class(model=folder, export_dir=str(export_dir), export_text=exports_text)
    )


@pytest.fixture
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.mark.parametrize(
    ("exports_text", "is_pooled"),
    [
        pytest.param(True, False, id="text"),
        pytest.param(False, True, id="ids"),
        pytest.param(False, False, id="ids, prompts are not pooled"),
    ],
)
def test_exports_have_a_signature_for_each_role(tmp_path, exports_text, is_pooled):
    prompts = Prompts({**BOTH, "d": "a park "}, "d", is_pooled, query_length=8)
    if not exports_text and is_pooled:
        prompts = Prompts({**BOTH, "document": "no blan"}, None)
    folder = write_folder(tmp_path / "model", prompts)
    version = export(folder, tmp_path / "export", exports_text)
    encoder = SentenceEncoder(folder)
    predictor = Predictor(version)
    calls = ["encode", "encode_query", "encode_document"]
    for name in calls:
        assert_near(getattr(predictor, name)(TEXTS), getattr(encoder, name)(TEXTS))
    if not exports_text:
        opened = SentenceEncoder(version)
        for name in calls:
            assert_near(getattr(opened, name)(TEXTS), getattr(encoder, name)(TEXTS))
    functions = tf.saved_model.load(version).signatures
    if exports_text:
        with pytest.raises(InputError, match=FIXED):
            predictor.encode(TEXTS, prompt="rain ")
        assert_near(
            functions["serving_default"](tf.constant(TEXTS))["embedding"], encoder.encode(TEXTS)
        )
        vectors = functions["document"](tf.constant(TEXTS))["embedding"]
        assert_near(vectors, encoder.encode_document(TEXTS))
        return
    ids = encoder.tokenizer(TEXTS[1:])
    vectors = functions["query"](**{name: tf.constant(value) for name, value in ids.items()})
    assert_near(vectors["embedding"], encoder.encode_query(TEXTS[1:]))
    # The last word of the prompt of documents would be joined with the first word of a text.
    assert ("document" in functions) is not is_pooled
    too_long = {name: tf.ones([1, 510], tf.int32) for name in ids}
    too_long["segment_ids"] *= 0
    if is_pooled:
        with pytest.raises(tf.errors.InvalidArgumentError, match="a text may have 512 tokens"):
            functions["query"](**too_long)


def make_task(**flags) -> EmbeddingTask:
    settings = EmbeddingSettings.from_values({"output_dir": None, **flags})
    return EmbeddingTask.from_settings(None, settings)


EXAMPLES = [
    Example("row 1", "the cat", ("rain",), ("a train left the station",)),
    Example("row 2", "a sunny day in the park", ("the cat",), ("a mat",)),
    Example("row 3", "rain", ("a mat",), ("the cat",)),
]


def test_training_reads_the_texts_behind_their_prompts(base):
    tokenizer = FullTokenizer.from_pretrained(str(base))
    task = make_task(query_prompt=QUERY_PROMPT, document_prompt=DOCUMENT_PROMPT)
    encoded = task.encode(EXAMPLES, tokenizer, LENGTH, "train")
    written = []
    for where, anchor, positives, negatives, _ in EXAMPLES:
        documents = [tuple(prefixed(DOCUMENT_PROMPT, texts)) for texts in (positives, negatives)]
        written.append(Example(where, QUERY_PROMPT + anchor, *documents))
    expected = make_task().encode(written, tokenizer, LENGTH, "train")
    rows = np.array([2, 0, 1])
    np.testing.assert_array_equal(encoded.lengths, expected.lengths)
    features = encoded.features(rows, LENGTH)
    for name, values in expected.features(rows, LENGTH).items():
        np.testing.assert_array_equal(features[name], values)
    # "the cat" and "rain" are queries and documents, and "a mat" is a document twice.
    assert len(encoded.inputs) == 7
    assert set(features) == {"input_ids", "input_mask", "segment_ids", "text_ids"}


def test_short_queries_have_columns_of_their_own(base):
    """The vectors are those of one length for all texts, where no query is truncated."""
    tokenizer = FullTokenizer.from_pretrained(str(base))
    flags = {"query_prompt": QUERY_PROMPT, "include_prompt": False}
    apart = make_task(**flags, max_query_seq_length=9)
    together = make_task(**flags)
    examples = [EXAMPLES[0], EXAMPLES[2]]
    rows = np.array([1, 0])
    encoded = apart.encode(examples, tokenizer, 64, "train")
    features = encoded.features(rows, 64)
    assert features["input_ids"].shape == (2, 2, 64)
    assert features["query_input_ids"].shape == (2, 1, 8)
    assert encoded.lengths.tolist() == [7, 4]
    start = 1 + len(tokenizer.tokenize(QUERY_PROMPT))
    np.testing.assert_array_equal(features["query_pooling_start"], [[start]] * 2)
    np.testing.assert_array_equal(features["pooling_start"], [[0, 0]] * 2)
    model = apart.build_model(BertModel.from_pretrained(str(base)).config)
    expected = task_module._vectors(
        model, together.encode(examples, tokenizer, 64, "train").features(rows, 64)
    )
    vectors = task_module._vectors(model, features)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    # A longer query is truncated, and on a TPU all batches have one length.
    cut = make_task(max_query_seq_length=4, use_tpu=True).encode(EXAMPLES, tokenizer, 64, "train")
    ids = cut.features(np.array([1]), 64)["query_input_ids"]
    sep = tokenizer.vocab["[SEP]"]
    assert ids.tolist() == [[[*tokenizer("a sunny")["input_ids"][0][:3], sep]]]


def test_the_query_itself_is_not_ranked_in_its_other_role(base):
    tokenizer = FullTokenizer.from_pretrained(str(base))
    task = make_task(query_prompt=QUERY_PROMPT, eval_task="retrieval")
    examples = [Example("row 1", "a", ("b",)), Example("row 2", "c", ("a",))]
    encoded = task.encode(examples, tokenizer, LENGTH, "dev")
    assert encoded.texts == ["a", "b", "c", "a"]
    # As documents, "a" is nearest to the query "a", and "b" comes second.
    vectors = np.float32([[1, 0], [0.9, 0.5], [1, 0.1], [1, 0]])
    assert encoded.metrics(vectors)["eval_ndcg_at_10"] == 1.0


@pytest.mark.usefixtures("models_are_loaded_once")
def test_a_training_records_its_prompts(base, tmp_path):
    write_pairs(tmp_path / "train.tsv", 24, 1)
    write_pairs(tmp_path / "dev.tsv", 20, 2)
    flags = {
        "data_dir": tmp_path,
        "output_dir": tmp_path / "out",
        "train_batch_size": 8,
        "num_train_epochs": 1,
        "max_query_seq_length": 10,
        "query_prompt": QUERY_PROMPT,
        "document_prompt": DOCUMENT_PROMPT,
    }
    run_here(
        "run_embeddings",
        *flag_list(**model_of(base), **flags, do_train=True, do_eval=True),
        "--noinclude_prompt",
    )
    record = ModelFolder(str(tmp_path / "out")).task().settings
    assert record["prompts"] == {"query": QUERY_PROMPT, "document": DOCUMENT_PROMPT}
    assert record["include_prompt"] is False
    assert record["max_query_seq_length"] == 10
    encoder = SentenceEncoder(str(tmp_path / "out"))
    texts = ["the cat sat on the mat was a sunny day", "rain"]
    assert_near(Predictor(str(tmp_path / "out")).encode_query(texts), encoder.encode_query(texts))
    cut = encoder.encode(["the cat: the cat sat on the mat"])
    assert not np.allclose(cut, encoder.encode_query(texts[:1]), atol=1e-3)
    # The evaluation of the folder, and of its vectors, needs no flag.
    results = []
    for number, source in enumerate(["--model", "--vectors"]):
        files = {"dev_file": tmp_path / "dev.tsv", "output_dir": tmp_path / f"again{number}"}
        flags = flag_list(**files, do_eval=True)
        run_here("run_embeddings", *flags, f"{source}={tmp_path}/out")
        results.append((tmp_path / f"again{number}/eval_results.txt").read_text())
    first = (tmp_path / "out/eval_results.txt").read_text()
    for line in results[0].splitlines()[:-1]:
        assert line in first
        assert line.split(".")[0] in results[1]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            {"query_prompt": "the cat sat on the mat was a sunny day in the park"},
            "--query_prompt=the cat sat .* has 14 tokens, and a query may have 12",
            id="no room for a text",
        ),
        pytest.param(
            {"max_query_seq_length": 2}, "--max_query_seq_length=2: must", id="no token of a text"
        ),
    ],
)
def test_prompts_that_leave_no_room_are_refused(base, tmp_path, flags, sentence):
    write_pairs(tmp_path / "train.tsv", 8, 1)
    files = {"data_dir": tmp_path, "output_dir": tmp_path / "out", "do_train": True}
    model = model_of(base) | {"max_seq_length": LENGTH}
    ended = end_of("run_embeddings", *flag_list(**model, **files, **flags))
    assert ended.status == 1
    assert re.search(sentence, ended.sentence)


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "weighted_mean", "last"])
@pytest.mark.parametrize("is_pooled", [True, False])
@pytest.mark.parametrize("default_name", [None, "query"])
def test_the_vectors_are_those_of_sentence_transformers(tmp_path, pooling, is_pooled, default_name):
    import sentence_transformers

    prompts = Prompts(BOTH, default_name, is_pooled)
    folder = write_folder(tmp_path, prompts, pooling)
    (tmp_path / "converted").mkdir()
    ours = convert(folder, tmp_path / "converted" / "folder")
    encoder = SentenceEncoder(ours)
    library = sentence_transformers.SentenceTransformer(ours, device="cpu")
    for name in ("encode", "encode_query"):
        expected = getattr(library, name)(TEXTS)
        np.testing.assert_allclose(getattr(encoder, name)(TEXTS), expected, atol=1e-6)
    # Version 6.2 adds an empty prompt `document`, which its encode_document takes for `passage`.
    assert library.prompts == {**BOTH, "document": ""}
    expected = library.encode(TEXTS, prompt_name="passage")
    np.testing.assert_allclose(encoder.encode(TEXTS, prompt_name="passage"), expected, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_document(TEXTS), expected, atol=1e-6)
    library.save(str(tmp_path / "theirs"))
    theirs = SentenceEncoder(str(tmp_path / "theirs"))
    assert theirs._prompts.is_pooled == is_pooled
    np.testing.assert_allclose(theirs.encode_query(TEXTS), library.encode_query(TEXTS), atol=1e-6)
