"""The file of --mediapipe: its metadata by a reader of its own, its outputs, and MediaPipe itself."""

import io
import random
import struct
import types
import unicodedata
import zipfile
from typing import NamedTuple, Self

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer, Predictor
from official_bert.extensions.runtimes import mediapipe_file, tflite_metadata
from official_bert.extensions.runtimes.tflite_metadata import ModelNote, TensorNote
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from tests import toy
from tests.extensions.runtimes.converted import read_conversion
from tests.serving import exported
from tests.shared import in_test_long

TOLERANCE = 1e-5
EIGHT_BITS = 0.1  # the greatest difference of a probability
LENGTH = 24  # of exported.export_options
kinds = pytest.mark.parametrize("kind", ["tsv", "embedding"])
OUTPUTS = {"tsv": "probabilities", "embedding": "embedding"}
needs_litert = pytest.mark.needs_extra("ai_edge_litert")
needs_mediapipe = pytest.mark.needs_extra("ai_edge_litert", "mediapipe")
# Model -> subgraphs, buffers, metadata; SubGraph -> tensors, inputs; Tensor -> name.
SUBGRAPHS, BUFFERS, METADATA = 2, 4, 6
TENSORS, INPUTS, TENSOR_NAME = 0, 1, 3


class FlatTable(NamedTuple):
    """A table of a flatbuffer: a reader that shares nothing with the package flatbuffers."""

    data: bytes
    position: int

    @classmethod
    def root(cls, data: bytes) -> Self:
        return cls(data, struct.unpack_from("<I", data)[0])

    def find(self, slot: int) -> int | None:
        """The position of a field; None if the table lacks it."""
        (distance,) = struct.unpack_from("<i", self.data, self.position)
        vtable = self.position - distance
        (size,) = struct.unpack_from("<H", self.data, vtable)
        entry = 4 + 2 * slot
        if entry >= size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, vtable + entry)
        return self.position + offset if offset else None

    def follow(self, position: int) -> int:
        return position + struct.unpack_from("<I", self.data, position)[0]

    def number(self, slot: int, form: str) -> int:
        position = self.find(slot)
        return 0 if position is None else struct.unpack_from(form, self.data, position)[0]

    def table(self, slot: int) -> Self:
        return type(self)(self.data, self.follow(self.find(slot)))

    def vector(self, slot: int) -> tuple[int, int]:
        """The position of the first element, and the number of elements."""
        start = self.follow(self.find(slot))
        return start + 4, struct.unpack_from("<I", self.data, start)[0]

    def tables(self, slot: int) -> list[Self]:
        first, count = self.vector(slot)
        return [type(self)(self.data, self.follow(first + 4 * index)) for index in range(count)]

    def content(self, slot: int) -> bytes:
        first, count = self.vector(slot)
        return self.data[first : first + count]

    def text(self, slot: int) -> str:
        return self.content(slot).decode()


def read_file(made) -> bytes:
    return (made.path / mediapipe_file.FILE).read_bytes()


def shared_export(tmp_path_factory, kind: str, **flags) -> exported.Exported:
    return exported.shared_export(
        tmp_path_factory, kind, export_format="litert", mediapipe=True, **flags
    )


def read_metadata(content: bytes) -> FlatTable:
    """The metadata of a TFLite file."""
    model = FlatTable.root(content)
    numbers = {entry.text(0): entry.number(1, "<I") for entry in model.tables(METADATA)}
    buffer = model.tables(BUFFERS)[numbers["TFLITE_METADATA"]]
    data = buffer.content(0)
    assert data[4:8] == b"M001"
    return FlatTable.root(data)


@needs_litert
@kinds
def test_the_metadata_names_tensors_tokenizer_and_files(kind, tmp_path_factory):
    content = read_file(shared_export(tmp_path_factory, kind))
    assert content[4:8] == b"TFL3"
    metadata = read_metadata(content)
    assert metadata.text(0) == f"BERT {kind}"
    assert metadata.text(7) == "1.1.0"
    (subgraph,) = metadata.tables(3)

    names = [tensor.text(0) for tensor in subgraph.tables(2)]
    assert sorted(names) == ["ids", "mask", "segment_ids"]
    graph = FlatTable.root(content).tables(SUBGRAPHS)[0]
    first, count = graph.vector(INPUTS)
    tensors = graph.tables(TENSORS)
    for name, number in zip(names, struct.unpack_from(f"<{count}i", content, first), strict=True):
        assert name in tensors[number].text(TENSOR_NAME)

    (output,) = subgraph.tables(3)
    if kind == "tsv":
        assert output.text(0) == "probability"
        (labels,) = output.tables(6)
        assert (labels.text(0), labels.number(2, "<b")) == ("labels.txt", 2)
    else:
        assert output.text(0) == "embedding"
        assert output.find(6) is None

    (unit,) = subgraph.tables(5)
    assert unit.number(0, "<b") == 4
    (vocabulary,) = unit.table(1).tables(0)
    assert (vocabulary.text(0), vocabulary.number(2, "<b")) == ("vocab.txt", 5)


@needs_litert
@kinds
def test_the_archive_has_vocabulary_and_labels(kind, tmp_path_factory):
    made = shared_export(tmp_path_factory, kind)
    with zipfile.ZipFile(io.BytesIO(read_file(made))) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    expected = {"vocab.txt": (made.path / "assets/vocab.txt").read_bytes()}
    if kind == "tsv":
        expected["labels.txt"] = (made.path / "assets.extra/labels.txt").read_bytes()
    assert contents == expected


@needs_litert
def test_the_bytes_of_the_model_do_not_change(tmp_path_factory):
    """They keep their alignment, and all of them but the root table are read."""
    archive_start = b"PK\x03\x04"
    content = read_file(shared_export(tmp_path_factory, "tsv")).partition(archive_start)[0]
    note = ModelNote("toy", "", [TensorNote("ids", "")], [TensorNote("embedding", "")], "vocab.txt")
    longer = tflite_metadata.write_metadata(content, note, {"vocab.txt": b"[PAD]"})
    assert longer.index(content) % 64 == 0

    before = FlatTable.root(content)
    after = FlatTable.root(longer)
    assert after.number(0, "<I") == before.number(0, "<I") == 3  # the version of the schema
    assert len(after.tables(BUFFERS)) == len(before.tables(BUFFERS)) + 1
    for buffer, expected in zip(after.tables(BUFFERS), before.tables(BUFFERS), strict=False):
        assert (buffer.find(0) is None) == (expected.find(0) is None)
        if buffer.find(0) is not None:
            assert buffer.content(0) == expected.content(0)


@needs_litert
@kinds
def test_outputs_are_those_of_the_model(kind, tmp_path_factory):
    made = shared_export(tmp_path_factory, kind)
    interpreter = tf.lite.Interpreter(model_content=read_file(made))
    run = interpreter.get_signature_runner("serving_default")
    name = OUTPUTS[kind]
    for size in (1, 2, 3):
        features = exported.batch(kind, size, LENGTH)
        expected = made.task.serving_outputs(made.model, features)[name].numpy()
        for row in range(size):
            outputs = run(**{key: values[row : row + 1] for key, values in features.items()})
            assert list(outputs) == [name]
            np.testing.assert_allclose(outputs[name][0], expected[row], atol=TOLERANCE)


@needs_litert
def test_the_other_files_do_not_change(tmp_path_factory):
    made = shared_export(tmp_path_factory, "tsv")
    plain = exported.shared_export(tmp_path_factory, "tsv", export_format="litert")
    name = "model.tflite"
    assert (made.path / name).read_bytes() == (plain.path / name).read_bytes()
    record = read_conversion(made.path)
    assert record["mediapipe"]["file"] == mediapipe_file.FILE
    assert "mediapipe" not in read_conversion(plain.path)
    assert list(record["sha256"]) == [name]


# What MediaPipe cannot serve.


@needs_litert
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("mrpc", "does not read one text"),
        ("ner", "its outputs are logits, probabilities, tags"),
        *in_test_long(
            ("sts-b", "does not read one text"),
            ("swag", "does not read one text"),
            ("squad", "does not read one text"),
            ("pretraining", "does not read one text"),
        ),
    ],
)
def test_other_kinds_of_models_are_refused(kind, reason, tmp_path):
    exported.make_checkpoint(tmp_path, kind)
    flags = {"export_format": "litert", "mediapipe": True}
    with pytest.raises(InputError, match=f"--mediapipe: .*--task_name={kind} .*{reason}"):
        serving_model.export(exported.export_options(tmp_path, kind, **flags))
    assert not (tmp_path / "exports").exists()


@needs_litert
def test_a_cased_model_is_refused(tmp_path):
    exported.make_checkpoint(tmp_path, "tsv")
    flags = {"export_format": "litert", "mediapipe": True, "do_lower_case": False}
    with pytest.raises(InputError, match=r"the model is cased .* MediaPipe lower-cases"):
        serving_model.export(exported.export_options(tmp_path, "tsv", **flags))


@pytest.mark.parametrize("export_format", ["saved_model", "onnx"])
def test_the_flag_needs_litert(export_format, tmp_path):
    if export_format == "onnx":
        pytest.importorskip("onnxruntime")
    exported.make_checkpoint(tmp_path, "tsv")
    flags = {"export_format": export_format, "mediapipe": True}
    with pytest.raises(InputError, match=r"--mediapipe: .* give --export_format=litert"):
        serving_model.export(exported.export_options(tmp_path, "tsv", **flags))


def make_stub(settings: dict, pieces=toy.VOCABULARY):
    """A model of which only the task's settings and the vocabulary are read."""
    task = types.SimpleNamespace(
        settings=lambda: settings, num_choices=None, text_inputs={"text_a": [None]}
    )
    basic_tokenizer = types.SimpleNamespace(do_lower_case=True)
    tokenizer = types.SimpleNamespace(basic_tokenizer=basic_tokenizer, vocab=set(pieces))
    return types.SimpleNamespace(
        task=task, tokenizer=tokenizer, task_name="toy", vocab_file="vocab.txt"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_texts": 2}, "does not read one text"),
        ({"long_texts": "windows"}, "in windows .* MediaPipe truncates"),
        (
            {"prompts": {"document": "passage: "}, "default_prompt_name": "document"},
            "the prompt 'passage: ' before each text",
        ),
    ],
)
def test_models_that_read_texts_otherwise_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        mediapipe_file.make_text_task(make_stub(settings))


def test_a_model_of_scores_is_refused():
    built = make_stub({"num_texts": 1})
    built.model = None
    built.max_seq_length = LENGTH
    built.task.serving_outputs = lambda _model, features: {"score": features["input_ids"][:, 0]}
    with pytest.raises(InputError, match="its outputs are score"):
        mediapipe_file.make_text_task(built)


def test_a_vocabulary_without_a_special_piece_is_refused():
    pieces = [piece for piece in toy.VOCABULARY if piece != "[UNK]"]
    with pytest.raises(InputError, match=r"vocab.txt lacks \[UNK\]"):
        mediapipe_file.make_text_task(make_stub({"num_texts": 1}, pieces))


# MediaPipe itself.

LETTERS = "abcxyzABCXYZéÉñÇßΣσςЖжİıfiﬁ漢字か가"
OTHERS = " \t\n\u00a0\u2003.,-'“—…$+^\x07\x7f\u200b\u0301\u3000\ufffd"


def draw_texts(count: int, characters: str) -> list[str]:
    draws = random.Random(5)
    texts = []
    for _ in range(count):
        texts.append("".join(draws.choice(characters) for _ in range(draws.randint(0, 40))))
    return texts


def draw_sentences(count: int) -> list[str]:
    """Draw texts of the toy vocabulary's words, some of them longer than the model reads."""
    draws = random.Random(6)
    words = [piece for piece in toy.VOCABULARY if piece.isalpha()]
    words += ["The", "CAT,", "playing.", "sunny!", "unknown", "(mat)"]
    return [" ".join(draws.choices(words, k=draws.randint(0, 30))) for _ in range(count)]


def normalize(text: str) -> str:
    """Do what the guide recommends to apps: MediaPipe then has the tokens of FullTokenizer."""
    characters = []
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character).startswith("Z"):
            characters.append(" ")
        elif character != "\ufffd" and unicodedata.category(character) not in ("Cc", "Cf"):
            characters.append(character)
    decomposed = unicodedata.normalize("NFD", "".join(characters).lower())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def test_normalized_texts_have_the_same_tokens(tmp_path):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, make_pieces()))
    for text in draw_texts(300, LETTERS + OTHERS):
        assert tokenizer.tokenize(normalize(text)) == tokenizer.tokenize(text)


def make_pieces() -> list[str]:
    """A vocabulary of all characters that FullTokenizer makes of LETTERS and OTHERS."""
    characters = sorted({*normalize(LETTERS + OTHERS + LETTERS.lower())} - {" "})
    return [*toy.VOCABULARY, *characters, *(f"##{character}" for character in characters)]


@needs_mediapipe
@pytest.mark.parametrize("dtype", ["float32", *in_test_long("int8")])
def test_mediapipe_classifies_as_predictor(dtype, tmp_path_factory):
    from mediapipe.tasks.python import text as mediapipe_text

    made = shared_export(tmp_path_factory, "tsv", dtype=dtype)
    texts = draw_sentences(50)
    saved_model = exported.shared_export(tmp_path_factory, "tsv")
    expected = Predictor(saved_model.path)([(text,) for text in texts])
    path = str(made.path / mediapipe_file.FILE)
    with mediapipe_text.TextClassifier.create_from_model_path(path) as classifier:
        results = [classifier.classify(text) for text in texts]
    tolerance = TOLERANCE if dtype == "float32" else EIGHT_BITS
    for result, answer in zip(results, expected, strict=True):
        (head,) = result.classifications
        probabilities = {one.category_name: one.score for one in head.categories}
        assert probabilities == pytest.approx(answer["probabilities"], abs=tolerance)


@needs_mediapipe
def test_mediapipe_embeds_as_predictor(tmp_path_factory):
    from mediapipe.tasks.python import text as mediapipe_text

    made = shared_export(tmp_path_factory, "embedding")
    texts = draw_sentences(50)
    saved_model = exported.shared_export(tmp_path_factory, "embedding")
    expected = Predictor(saved_model.path)([(text,) for text in texts])
    path = str(made.path / mediapipe_file.FILE)
    with mediapipe_text.TextEmbedder.create_from_model_path(path) as embedder:
        results = [embedder.embed(text).embeddings[0].embedding for text in texts]
    vectors = [answer["embedding"] for answer in expected]
    np.testing.assert_allclose(results, vectors, atol=TOLERANCE)


@needs_mediapipe
def test_mediapipe_has_the_tokens_of_normalized_texts(tmp_path):
    """A file that returns its ids shows the tokens. Without normalize, some of them differ."""
    from mediapipe.tasks.python import text as mediapipe_text

    vocab_file = toy.write_vocabulary(tmp_path, make_pieces())
    path = tmp_path / "ids.tflite"
    path.write_bytes(make_id_echo((tmp_path / "vocab.txt").read_bytes()))
    tokenizer = FullTokenizer(vocab_file)
    texts = [*draw_texts(300, LETTERS + OTHERS), "a" * 100, "CAFÉ"]
    ascii_texts = draw_texts(100, "".join(chr(code) for code in range(32, 127)))
    with mediapipe_text.TextEmbedder.create_from_model_path(str(path)) as embedder:

        def read_ids(text: str) -> list[int]:
            values = embedder.embed(text).embeddings[0].embedding
            return np.trim_zeros(values.astype(int), "b").tolist()

        for text in texts:
            tokens = ["[CLS]", *tokenizer.tokenize(text)[: ECHO_LENGTH - 2], "[SEP]"]
            assert read_ids(normalize(text)) == tokenizer.convert_tokens_to_ids(tokens)
        for text in ascii_texts:
            tokens = ["[CLS]", *tokenizer.tokenize(text)[: ECHO_LENGTH - 2], "[SEP]"]
            assert read_ids(text) == tokenizer.convert_tokens_to_ids(tokens)
        unknown = tokenizer.convert_tokens_to_ids(["[CLS]", "[UNK]", "[SEP]"])
        assert read_ids("CAFÉ") == unknown  # an accent
        assert read_ids("a" * 101) == unknown  # more than 100 bytes
        assert tokenizer.tokenize("a" * 101)[0] == "a"


ECHO_LENGTH = 128


def make_id_echo(vocabulary: bytes) -> bytes:
    """A TFLite file whose embedding is its token ids."""
    names = {"input_ids": "ids", "input_mask": "mask", "segment_ids": "segment_ids"}
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([1, ECHO_LENGTH], tf.int32)] * 3)
    def echo(input_ids, input_mask, segment_ids):
        zeros = tf.cast(input_mask * 0 + segment_ids * 0, tf.float32)
        return {"embedding": tf.cast(input_ids, tf.float32) + zeros}

    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [echo.get_concrete_function()], module
    )
    content = converter.convert()
    inputs = []
    for tensor_name in tflite_metadata.read_input_names(content):
        (name,) = [note for name, note in names.items() if name in tensor_name]
        inputs.append(TensorNote(name, ""))
    note = ModelNote("ids", "", inputs, [TensorNote("embedding", "")], "vocab.txt")
    return tflite_metadata.write_metadata(content, note, {"vocab.txt": vocabulary})
