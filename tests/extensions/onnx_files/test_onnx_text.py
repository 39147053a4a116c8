"""ONNX files that read raw text have the ids of FullTokenizer and the outputs of the SavedModel."""

import pydoc_data.topics
import random
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer, Predictor, catalog
from official_bert.graph_text.text_reader import TextReader
from official_bert.graph_text.tokenizer import TextTokenizer
from official_bert.serving.exported_model import OpenedExport
from official_bert.tasks.classification.windows import LongTexts
from tests.serving import exported
from tests.serving.answers import assert_near
from tests.shared import in_test_long

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

from official_bert.extensions.onnx_files import onnx_writer
from official_bert.extensions.onnx_files.traced_tokenizer import TracedTokenizer
from tests.extensions.onnx_files.onnx_models import (
    METADATA,
    draw_weights,
    make_config,
    open_session,
)

pytestmark = pytest.mark.needs_extra("onnx", "onnxruntime")

needs_runtimes = pytest.mark.skipif(
    "runtimes" not in {record.name for record in catalog.extensions()},
    reason="the extension runtimes is not installed",
)
TOLERANCE = 1e-5
LENGTH = 24  # of a window
NUM_RANDOM_TEXTS = 4000
# Pieces of several scripts, of which some have accents and some continue a word.
PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##", "#", ".", ",", "!", "日", "本", "##本"),
    *(chr(code) for code in range(ord("a"), ord("z") + 1)),
    *("##" + chr(code) for code in range(ord("a"), ord("z") + 1)),
    *("A", "B", "##B", "é", "##é", "ς", "##ς", "σ", "##σ", "Σ", "##Σ", "α", "##α", "i", "##İ"),
    *("the", "there", "##fore", "##or", "un", "##aff", "##able", "ᄒ", "##ᅡ", "##ᆫ", "𝒳", "##𝒳"),
)
CASES = [
    "",
    " \t\n",
    "The cat, the CAT: unaffable!",
    "a" * 200,
    "a" * 201,
    "the" + "β",
    "ΑΣ ΑΣΑ Σ ΑΣ. ΑΣ\u0301 Α\u0301Σ 1Σ Α'Σ",
    "İstanbul ǅ ﬁ ß ẞ",
    "日本語テキスト 한국어",
    "e\u0301 E\u0323\u0301 \u0301 x\u0301\u0323",
    "a\u1d165\u302e\u0323b \u1dfa\u302f",
    "\0\ufffd\u200b\ufeff a\u00adb\u2028c\x1cd\x85e",
    "[MASK] [UNK] ##a",
    "\U0001d4b3 \U0001d4b3\U0001d4b3 \U000f0000 \U0010ffff \u0378",
    "\u1100\u1161\u11a8 \uac01 \u0f71\u0f72\u0f74",
]


def draw_text(draws: random.Random) -> str:
    """Draws a text of characters of all planes of Unicode, many of them accents or letters."""
    ranges = [(0x20, 0x7F), (0x20, 0x250), (0x300, 0x370), (0x370, 0x3100), (0x3100, 0xD800)]
    ranges += [(0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)]
    characters = []
    for _ in range(draws.randrange(40)):
        if draws.random() < 0.4:
            characters.append(draws.choice("abzABZ ΣσςΑé.,-'"))
        else:
            characters.append(chr(draws.randrange(*draws.choice(ranges))))
    return "".join(characters)


def compile_text(outputs: Callable, tokenizer: FullTokenizer, dtype: str = "float32") -> Callable:
    """A function from texts to outputs, by a file that has nothing but what they need.

    Args:
        outputs: a function from a TracedTokenizer and texts to tensors by name.
        tokenizer: the tokenizer.
        dtype: the type of the weights.
    """
    traced = TracedTokenizer(tokenizer)
    content = onnx_writer.write_signature(
        lambda inputs: outputs(traced, inputs["texts"]),
        {"texts": ["batch"]},
        dtype,
        METADATA,
        traced.calls,
    )
    session = open_session(content)
    names = [output.name for output in session.get_outputs()]

    def run(texts: list[str]) -> dict[str, np.ndarray]:
        values = session.run(names, {"texts": np.array(texts, object)})
        return dict(zip(names, values, strict=True))

    return run


def compile_tokenizer(tokenizer: FullTokenizer):
    """A function from texts to their ids."""

    def encode_in_graph(traced, texts):
        ids = traced.encode(texts)
        return {"ids": ids.values, "splits": ids.row_splits}

    run = compile_text(encode_in_graph, tokenizer)

    def encode(texts: list[str]) -> list[list[int]]:
        outputs = run(texts)
        return [row.tolist() for row in np.split(outputs["ids"], outputs["splits"][1:-1])]

    return encode


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("do_lower_case", "strip_accents"), [(True, None), (False, None), (True, False), (False, True)]
)
def test_ids_of_random_texts(do_lower_case, strip_accents, vocab_file):
    tokenizer = FullTokenizer(vocab_file, do_lower_case, strip_accents)
    encode = compile_tokenizer(tokenizer)
    draws = random.Random(7)
    texts = [*CASES, *(draw_text(draws) for _ in range(NUM_RANDOM_TEXTS))]
    planes = {ord(character) >> 16 for text in texts for character in text}
    assert planes == set(range(17))
    expected = [tokenizer.encode(text) for text in texts]
    assert any(tokenizer.vocab["[UNK]"] in ids for ids in expected)
    assert encode(texts) == expected
    # Of texts alone, and of a batch without characters.
    for text in CASES:
        assert encode([text]) == [tokenizer.encode(text)], ascii(text)
    assert encode(["", ""]) == [[], []]


def test_every_code_point_alone_and_between_letters(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    encode = compile_tokenizer(tokenizer)
    codes = [code for code in range(0x3100) if unicodedata.category(chr(code)) != "Cs"]
    texts = [f"{chr(code)} a{chr(code)}b" for code in codes]
    assert encode(texts) == [tokenizer.encode(text) for text in texts]


def test_ids_of_english(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    encode = compile_tokenizer(tokenizer)
    texts = list(pydoc_data.topics.topics.values())[:20]
    assert encode(texts) == [tokenizer.encode(text) for text in texts]


TEXTS = [
    "the cat sat on the mat .",
    "",
    "  ",
    "rain",
    "a train left the station " * 9,
    "ΑΣ \u0301 日本 a café, e\u0301t\u00e9",
    "x" * 200 + " the",
    "the cat sat. " * 100,
]
PAIRS = [
    (first, second)
    for first in TEXTS
    for second in ("on the mat", "", "a train left the station at noon " * 3)
]


def make_requests(kind: str) -> dict[str, np.ndarray]:
    """The inputs of the signature of text."""
    if kind == "ner":
        columns = {"text": TEXTS}
    elif kind == "squad":
        columns = {"question": ["where is the cat", "", *TEXTS[2:]], "context": TEXTS}
    elif kind == "pretraining":
        masked = [text.replace("cat", "[MASK]") for text in TEXTS]
        columns = {"text_a": masked, "text_b": ["on [MASK] mat", "", *TEXTS[2:]]}
    elif kind == "swag":
        endings = [["the mat", "", "rain", "a train " * 20]] * len(TEXTS)
        columns = {"context": TEXTS, "endings": endings}
    elif kind == "embedding":
        columns = {"text_a": TEXTS}
    else:
        first, second = zip(*PAIRS, strict=True)
        columns = {"text_a": first, "text_b": second}
    encode = np.vectorize(str.encode, otypes=[object])
    return {name: encode(np.array(texts, object)) for name, texts in columns.items()}


PLACES = ("ids", "starts", "ends", "words", "word_starts", "word_ends")


def list_places(tokenizer, texts, splits_tokens: bool) -> dict[str, tf.Tensor]:
    """The values and the rows of all fields of `Pieces`, and the words."""
    pieces = tokenizer.pieces(texts, unknown_words=True, splits_tokens=splits_tokens)
    outputs = {}
    for name in PLACES:
        rows = getattr(pieces, name)
        outputs |= {name: rows.values, f"{name} by row": rows.row_lengths()}
    starts, ends = pieces.word_starts, pieces.word_ends
    outputs["text of words"] = tokenizer.substrings(
        texts, starts.value_rowids(), starts.values, ends.values
    )
    return outputs


@pytest.mark.parametrize("splits_tokens", [True, False])
def test_words_and_offsets_are_those_of_tensorflow(splits_tokens, vocab_file, tmp_path):
    tokenizer = FullTokenizer(vocab_file)
    run = compile_text(lambda traced, texts: list_places(traced, texts, splits_tokens), tokenizer)
    in_tensorflow = TextTokenizer(tokenizer, str(tmp_path))
    draws = random.Random(8)
    drawn_texts = [draw_text(draws) for _ in range(NUM_RANDOM_TEXTS // 4)]
    for texts in ([*CASES, *drawn_texts], ["x" * 1000 + " ab"], [""], ["", " "], ["a", ""]):
        encoded = tf.constant([text.encode() for text in texts])
        outputs = run(texts)
        for name, values in list_places(in_tensorflow, encoded, splits_tokens).items():
            expected = values.numpy()
            if expected.dtype == object:
                expected = np.array([text.decode() for text in expected], object)
            np.testing.assert_array_equal(outputs[name], expected, err_msg=name)
    # Words are cut from the text as it is.
    outputs = run(["Ab, the  THERE."])
    words = ["Ab", ",", "the", "THERE", "."] if splits_tokens else ["Ab,", "the", "THERE."]
    assert outputs["text of words"].tolist() == words


@needs_runtimes
@pytest.mark.parametrize(
    "kind",
    ["mrpc", "ner", *in_test_long("squad", "pretraining", "sts-b", "tsv", "swag", "embedding")],
)
def test_outputs_are_those_of_the_saved_model(kind, tmp_path_factory):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    saved_model = exported.shared_export(tmp_path_factory, kind, export_text=True, **flags)
    made = exported.shared_export(
        tmp_path_factory, kind, export_text=True, export_format="onnx", **flags
    )
    opened = OpenedExport(str(made.path))
    expected_export = OpenedExport(str(saved_model.path))
    requests = make_requests(kind)
    signatures = {"serving_text", "serving_fill_mask"} & expected_export.inputs.keys()
    for signature in sorted(signatures):
        names = expected_export.inputs[signature]
        assert sorted(opened.inputs[signature]) == sorted(names)
        # All texts, an empty one, one with a single window, and one with many windows.
        for rows in (slice(None), slice(1, 2), slice(0, 1), slice(-1, None)):
            inputs = {name: requests[name][rows] for name in names}
            expected = expected_export(signature, inputs)
            assert_same(opened(signature, inputs), expected)


def assert_same(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(outputs[name], values, atol=TOLERANCE, rtol=TOLERANCE)
        else:
            np.testing.assert_array_equal(outputs[name], values, err_msg=name)


@needs_runtimes
@pytest.mark.parametrize("dtype", ["float32", *in_test_long("int8")])
def test_a_predictor_answers_as_with_tensors(dtype, tmp_path_factory):
    folders = []
    for reads_text in (True, False):
        made = exported.shared_export(
            tmp_path_factory, "mrpc", export_text=reads_text, export_format="onnx", dtype=dtype
        )
        folders.append(made.path)
    text_model = onnx.load(folders[0] / "model.onnx")
    assert {entry.domain for entry in text_model.opset_import} == {
        "",
        "ai.onnx.ml",
        "com.microsoft",
    }
    assert not list(folders[0].glob("saved_model.pb"))
    answers = [Predictor(folder)(PAIRS) for folder in folders]
    for answer, expected in zip(*answers, strict=True):
        assert answer.keys() == expected.keys()
        assert answer["label"] == expected["label"]
        np.testing.assert_allclose(
            [*answer["probabilities"].values()],
            [*expected["probabilities"].values()],
            atol=TOLERANCE,
        )


@needs_runtimes
def test_bytes_that_are_no_utf8_are_left_out(tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_text=True, export_format="onnx")
    opened = OpenedExport(str(made.path))
    first = np.array([b"the \xffcat", b"the cat"], object)
    second = np.array([b"rain\xe6\x97", b"rain"], object)
    outputs = opened("serving_text", {"text_a": first, "text_b": second})
    np.testing.assert_array_equal(outputs["logits"][0], outputs["logits"][1])


LONG_TEXTS = [
    LongTexts(5, "mean"),
    *in_test_long(LongTexts(9, "max"), LongTexts(2, "first")),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int8_weights"])
@pytest.mark.parametrize("long_texts", LONG_TEXTS, ids=lambda rules: rules.pooling)
def test_windows_of_long_texts(dtype, long_texts, tokenizer, tmp_path):
    """The logits are those of the windows that the scripts make, pooled by numpy."""
    task = exported.make_task("tsv")
    task.long_texts = long_texts
    model = task.build_model(make_config(), use_one_hot_embeddings=False)
    draw_weights(model)

    def answer(traced, texts):
        reader = TextReader(tokenizer.vocab, LENGTH, traced)
        return task.serving_text(model, {"text_a": texts}, reader)

    run = compile_text(answer, tokenizer, dtype)
    for texts in (TEXTS, [""], ["rain"], [TEXTS[-1]]):
        windows = [long_texts.encode_windows(tokenizer, text, LENGTH) for text in texts]
        counts = np.array([len(text_windows) for text_windows in windows])
        rows = [ids for text_windows in windows for ids, _ in text_windows]
        input_ids = np.zeros((len(rows), LENGTH), np.int32)
        for index, ids in enumerate(rows):
            input_ids[index, : len(ids)] = ids
        features = {
            "input_ids": input_ids,
            "input_mask": (input_ids > 0).astype(np.int32),
            "segment_ids": np.zeros_like(input_ids),
        }
        expected = long_texts.pool(np.asarray(model(features)), counts)
        logits = run(texts)["logits"]
        assert logits.shape == expected.shape
        assert_near({"logits": logits}, {"logits": expected}, dtype)
    assert counts[0] > 32  # more windows than one batch


@needs_runtimes
@pytest.mark.parametrize(
    ("kind", "method", "requests"),
    [
        ("ner", "tag", ["The cat sat, on the mat.", "the cat " * 60]),
        *in_test_long(
            ("squad", "answer", [("where", "the cat sat on the mat " * 20)]),
            ("pretraining", "fill_mask", ["the [MASK] sat", "the cat [MASK] [MASK]"]),
        ),
    ],
)
def test_a_predictor_opens_the_file_like_a_saved_model(kind, method, requests, tmp_path_factory):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    answers = []
    for export_format in ("saved_model", "onnx"):
        made = exported.shared_export(
            tmp_path_factory, kind, export_text=True, export_format=export_format, **flags
        )
        answers.append(getattr(Predictor(made.path), method)(requests))
    assert_close(*answers)


def assert_close(answer, expected):
    """Compares answers of JSON, in which numbers may differ by rounding."""
    if isinstance(expected, dict):
        assert answer.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(answer[name], value)
    elif isinstance(expected, list):
        for one, other in zip(answer, expected, strict=True):
            assert_close(one, other)
    else:
        assert answer == (
            pytest.approx(expected, abs=TOLERANCE) if isinstance(expected, float) else expected
        )
