"""extract_features.py: the original's file, the vectors of the model, and the text of its
numbers.
"""

import dataclasses
import json
import logging
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import extract_features
from official_bert.io.errors import InputError
from official_bert.modeling import BertConfig, BertModel
from official_bert.options.serving import ExtractionOptions
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.scripts import run_here, run_python, run_recorded

TEXT = (
    "The cat sat on the mat. ||| It was a sunny day.\n\na ||| b ||| rain\nNobody  waved\n"
    + "train " * 60
)

# Two logical CPUs stand for the cores of a TPU.
TWO_CORES = """
import json
import sys
import tensorflow as tf
from official_bert.options.shared import DistributionOptions
from official_bert.options.serving import ExtractionOptions
from official_bert.commands import extract_features
from official_bert.tokenization import FullTokenizer
from official_bert.training import distribution

make_strategy = distribution.make_strategy
two_cpus = DistributionOptions(distribution_strategy="mirrored", num_devices=2)
distribution.make_strategy = lambda options: print(options.master, options.num_tpu_cores) or make_strategy(two_cpus)
extract_features.run(ExtractionOptions(**json.loads(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return toy.make_bert_base_dir(tmp_path_factory.mktemp("base"), num_hidden_layers=4)


def options_of(base: pathlib.Path, folder: pathlib.Path) -> ExtractionOptions:
    return ExtractionOptions(
        input_file=toy.write_text(folder, TEXT),
        output_file=str(folder / "output.jsonl"),
        vocab_file=str(base / "vocab.txt"),
        bert_config_file=str(base / "bert_config.json"),
        init_checkpoint=str(base / "bert_model.ckpt"),
        layers="-1,0",
        max_seq_length=32,
        batch_size=2,
    )


@pytest.fixture
def options(base, tmp_path):
    return options_of(base, tmp_path)


@pytest.fixture(scope="module")
def plain_run(base, tmp_path_factory) -> pathlib.Path:
    """The output of a run whose further options tests change."""
    folder = tmp_path_factory.mktemp("plain")
    options = options_of(base, folder)
    extract_features.run(options)
    return pathlib.Path(options.output_file)


def lines_of(path) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.readlines()


def read_output(path) -> list[dict]:
    return list(map(json.loads, lines_of(path)))


def tokens_of(example: dict) -> str:
    return " ".join(feature["token"] for feature in example["features"])


def with_numbers_apart(value) -> tuple[str, list[float]]:
    """A JSON value's text with every vector emptied, and the numbers of all of them."""
    numbers = []

    def empty_vectors(pairs):
        fields = dict(pairs)
        if "values" in fields:
            numbers.extend(fields["values"])
            fields["values"] = None
        return fields

    emptied = json.loads(json.dumps(value), object_pairs_hook=empty_vectors)
    return json.dumps(emptied), numbers


def numbers_of(path) -> list[float]:
    """The numbers of all vectors of an output."""
    _, numbers = with_numbers_apart(read_output(path))
    return numbers


@pytest.mark.usefixtures("with_grappler")
def test_the_originals_file(tmp_path):
    _, recorded = run_recorded("extract_features", tmp_path, run_here)
    actual = read_output(tmp_path / "features.jsonl")
    expected = read_output(recorded("features.jsonl"))
    text, numbers = with_numbers_apart(actual)
    expected_text, expected_numbers = with_numbers_apart(expected)
    assert text == expected_text
    differences = np.abs(np.subtract(numbers, expected_numbers))
    sizes = np.maximum(1, np.abs(expected_numbers))
    assert np.all(differences <= 2e-5 * sizes)


def test_values_are_the_models_layers(options):
    extract_features.run(dataclasses.replace(options, layers="1,-4,3,1"))
    examples = read_output(options.output_file)
    assert [example["linex_index"] for example in examples] == [0, 1, 2, 3, 4]
    assert [tokens_of(example) for example in examples] == [
        "[CLS] the cat sat on the mat . [SEP] it was a sun ##ny day . [SEP]",
        "[CLS] [SEP]",
        "[CLS] a [UNK] [UNK] [UNK] [UNK] [SEP] rain [SEP]",
        "[CLS] no ##body wave ##d [SEP]",
        "[CLS] " + "train " * 30 + "[SEP]",
    ]

    config = BertConfig.from_json_file(options.bert_config_file)
    model = BertModel(config)
    reader = tf.train.load_checkpoint(options.init_checkpoint)
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    for example in examples:
        tokens = tokens_of(example).split()
        ids = [toy.VOCABULARY.index(token) for token in tokens]
        first_length = tokens.index("[SEP]") + 1
        second_length = len(tokens) - first_length
        segment_ids = [0] * first_length + [1] * second_length
        outputs = model(np.int32([ids]), segment_ids=np.int32([segment_ids]))
        # Place in the output, number in the flag, layer of the model.
        for place, index, layer in ((0, 1, 1), (1, -4, 0), (2, 3, 3), (3, 1, 1)):
            written = [feature["layers"][place] for feature in example["features"]]
            vectors = [vector["values"] for vector in written]
            (expected,) = outputs.all_encoder_layers[layer]
            assert {vector["index"] for vector in written} == {index}
            np.testing.assert_allclose(vectors, expected, atol=2e-6)


def test_attentions_are_the_models(options, plain_run):
    plain = lines_of(plain_run)
    extract_features.run(dataclasses.replace(options, attentions=True))
    written = lines_of(options.output_file)
    examples = [json.loads(line) for line in written]
    for line, plain_line, example in zip(written, plain, examples, strict=True):
        start = plain_line.removesuffix("}\n")
        assert line.startswith(start + ', "attentions": [{"index": -1, "heads": [[[')
        assert list(example) == ["linex_index", "features", "attentions"]

    model = BertModel.from_pretrained(options.init_checkpoint)
    tokenizer = FullTokenizer(options.vocab_file)
    # A padded line and an empty one.
    texts = [
        ("The cat sat on the mat.", "It was a sunny day."),
        ("", None),
    ]
    for example, (text, pair) in zip(examples, texts, strict=False):
        batch = tokenizer([text], [pair])
        length = batch["input_ids"].shape[1]
        expected = model(**batch, output_attentions=True).all_attention_probabilities
        assert [layer["index"] for layer in example["attentions"]] == [-1, 0]
        for layer, index in zip(example["attentions"], (3, 0), strict=True):
            heads = np.array(layer["heads"])
            assert heads.shape == (2, length, length)
            np.testing.assert_allclose(
                heads,
                expected[index][0],
                atol=1.1e-6,
            )


def test_a_vector_for_each_line(options, plain_run):
    examples = read_output(plain_run)
    token_vectors = []
    for line, example in enumerate(examples):
        assert example["linex_index"] == line
        vectors = [feature["layers"][0]["values"] for feature in example["features"]]
        token_vectors.append(np.array(vectors))
    expected_by_pooling = {
        "mean": [np.mean(vectors, axis=0) for vectors in token_vectors],
        "cls": [vectors[0] for vectors in token_vectors],
        "max": [np.max(vectors, axis=0) for vectors in token_vectors],
    }
    for pooling, expected_values in expected_by_pooling.items():
        extract_features.run(dataclasses.replace(options, pooling=pooling))
        pooled = read_output(options.output_file)
        assert [example["linex_index"] for example in pooled] == list(range(len(examples)))
        for example, expected in zip(pooled, expected_values, strict=True):
            assert list(example) == ["linex_index", "values"]
            np.testing.assert_allclose(example["values"], expected, atol=2e-6)


def test_the_output_does_not_depend_on_the_batch_size_and_the_lookup(options, plain_run):
    expected_text, expected_numbers = with_numbers_apart(read_output(plain_run))
    one_by_one = {"batch_size": 1}
    one_batch = {"batch_size": 32, "use_one_hot_embeddings": True}
    for changes in (one_by_one, one_batch):
        extract_features.run(dataclasses.replace(options, **changes))
        text, numbers = with_numbers_apart(read_output(options.output_file))
        assert text == expected_text
        np.testing.assert_allclose(numbers, expected_numbers, rtol=0, atol=2e-6)


def test_the_cores_of_a_tpu_share_each_batch(options, plain_run):
    text, numbers = with_numbers_apart(read_output(plain_run))
    on_tpu = dataclasses.replace(
        options,
        batch_size=4,
        use_tpu=True,
        master="grpc://10.0.0.2:8470",
        num_tpu_cores=2,
    )
    ran = run_python("-c", TWO_CORES, json.dumps(dataclasses.asdict(on_tpu)))
    assert ran.stdout == "grpc://10.0.0.2:8470 2\n"
    shared_text, shared_numbers = with_numbers_apart(read_output(options.output_file))
    assert shared_text == text
    np.testing.assert_allclose(shared_numbers, numbers, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            {"layers": "-1,-5"},
            r"^--layers=-1,-5: the model has no layer -5; its 4 layers are 0 to 3, or -4 to -1$",
            id="absent layer",
        ),
        pytest.param(
            {"layers": "-1,"},
            r"^--layers=-1,: must be whole numbers separated by commas",
            id="comma at the end",
        ),
        pytest.param(
            {"max_seq_length": 513},
            r"^--max_seq_length=513: the model of .* max_position_embeddings=512; give a smaller",
            id="longer than the position embeddings",
        ),
        pytest.param(
            {"use_tpu": True},
            r"^--use_tpu needs --master",
            id="TPU without a name",
        ),
        pytest.param(
            {"pooling": "mean", "attentions": True},
            r"^--attentions: does not go with --pooling",
            id="attentions of pooled vectors",
        ),
        pytest.param(
            {"input_file": os.devnull},
            r"null: is empty; give it one example a line$",
            id="empty input",
        ),
        pytest.param(
            {"output_file": "absent/output.jsonl"},
            r"^absent/output.jsonl: cannot be written \(No such file",
            id="absent folder",
        ),
    ],
)
def test_options_that_cannot_be_used(options, tmp_path, change, sentence):
    with pytest.raises(InputError, match=sentence):
        extract_features.run(dataclasses.replace(options, **change))
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_bfloat16_gives_nearly_the_vectors_of_float32(options, plain_run, tmp_path, caplog):
    """The difference, in shares of the vectors' size, is that of products with 8 bits of
    mantissa.
    """

    def vectors_of(dtype: str) -> np.ndarray:
        output_file = str(tmp_path / f"{dtype}.jsonl")
        extract_features.run(dataclasses.replace(options, output_file=output_file, dtype=dtype))
        return np.array(numbers_of(output_file))

    float32_vectors = np.array(numbers_of(plain_run))
    with caplog.at_level(logging.INFO, logger="absl"):
        bfloat16_vectors = vectors_of("bfloat16")
        auto_vectors = vectors_of("auto")
    squares = np.square(bfloat16_vectors - float32_vectors)
    difference = np.sqrt(np.mean(squares))
    assert 1e-4 < difference / float32_vectors.std() < 3e-2
    is_float32 = np.array_equal(auto_vectors, float32_vectors)
    is_bfloat16 = np.array_equal(auto_vectors, bfloat16_vectors)
    assert is_float32 or is_bfloat16
    assert "--dtype=auto: " in caplog.text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-1e-9, "[-0.0]"),
        (1.0, "[1.0]"),
        (1e-6, "[1e-06]"),
        (999.125, "[999.125]"),
        # 0.0078125 is half-way between two texts: the even digit wins.
        (2.0**-7, "[0.007812]"),
        (3 * 2.0**-7, "[0.023438]"),
    ],
)
def test_numbers_by_hand(number, text):
    assert list(extract_features.format_json_vectors(np.float32([[number]]))) == [text]


def test_numbers_of_every_size_and_near_half_a_millionth_are_those_of_pythons_round_and_json():
    draws = np.random.default_rng(0)
    numbers = draws.standard_normal((200, 768))
    exponents = draws.integers(-8, 5, (200, 1))
    numbers_of_every_size = np.float32(numbers * 10.0**exponents)

    halves = np.float32((np.arange(-20000, 20000) + 0.5) / 10**6)
    below = np.nextafter(halves, np.float32(-1))
    above = np.nextafter(halves, np.float32(1))
    for vectors in (numbers_of_every_size, np.stack([below, above, halves])):
        texts = list(extract_features.format_json_vectors(vectors))
        for text, vector in zip(texts, vectors, strict=True):
            rounded = [round(float(number), 6) for number in vector]
            assert text == json.dumps(rounded)


@pytest.mark.parametrize(
    ("name", "line", "is_warned"),
    [
        pytest.param("texts.jsonl", "the cat", True, id="name of a table"),
        pytest.param("texts.txt", '{"text": "the cat"}', True, id="JSON"),
        pytest.param("texts.txt", "the cat\ta mat", True, id="tab"),
        pytest.param("texts.txt", "the cat ||| a mat", False, id="pair of texts"),
    ],
)
def test_tables_that_are_read_as_texts_are_warned_of(caplog, name, line, is_warned):
    extract_features.warn_about_tables(f"/data/{name}", line)
    assert (f"/data/{name}: each line is read as a text" in caplog.text) is is_warned
