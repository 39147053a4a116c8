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

    def emptied(pairs):
        return {name: numbers.extend(part) if name == "values" else part for name, part in pairs}

    return json.dumps(json.loads(json.dumps(value), object_pairs_hook=emptied)), numbers


@pytest.mark.usefixtures("with_grappler")
def test_the_originals_file(tmp_path):
    _, recorded = run_recorded("extract_features", tmp_path, run_here)
    actual = read_output(tmp_path / "features.jsonl")
    expected = read_output(recorded("features.jsonl"))
    text, numbers = with_numbers_apart(actual)
    expected_text, expected_numbers = with_numbers_apart(expected)
    assert text == expected_text
    differences = np.abs(np.subtract(numbers, expected_numbers))
    assert np.all(differences <= 2e-5 * np.maximum(1, np.abs(expected_numbers)))


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
        ids = [toy.VOCABULARY.index(token) for token in tokens_of(example).split()]
        first_end = ids.index(toy.VOCABULARY.index("[SEP]")) + 1
        segments = [0] * first_end + [1] * (len(ids) - first_end)
        expected = model(np.int32([ids]), segment_ids=np.int32([segments])).all_encoder_layers
        for place, (index, layer) in enumerate(((1, 1), (-4, 0), (3, 3), (1, 1))):
            written = [feature["layers"][place] for feature in example["features"]]
            assert {vector["index"] for vector in written} == {index}
            np.testing.assert_allclose(
                [vector["values"] for vector in written], expected[layer][0], atol=2e-6
            )


def test_attentions_are_the_models(options, plain_run):
    plain = lines_of(plain_run)
    extract_features.run(dataclasses.replace(options, attentions=True))
    written = lines_of(options.output_file)
    examples = [json.loads(line) for line in written]
    for line, plain_line, example in zip(written, plain, examples, strict=True):
        assert line.startswith(
            plain_line.removesuffix("}\n") + ', "attentions": [{"index": -1, "heads": [[['
        )
        assert list(example) == ["linex_index", "features", "attentions"]

    model = BertModel.from_pretrained(options.init_checkpoint)
    tokenizer = FullTokenizer(options.vocab_file)
    texts = [("The cat sat on the mat.", "It was a sunny day."), ("", None)]  # padded and empty
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
    tokens = read_output(plain_run)
    for pooling, pool in (
        ("mean", np.mean),
        ("cls", lambda vectors, axis: vectors[0]),
        ("max", np.max),
    ):
        extract_features.run(dataclasses.replace(options, pooling=pooling))
        for line, (pooled, whole) in enumerate(
            zip(read_output(options.output_file), tokens, strict=True)
        ):
            assert list(pooled) == ["linex_index", "values"]
            assert pooled["linex_index"] == whole["linex_index"] == line
            vectors = np.array([feature["layers"][0]["values"] for feature in whole["features"]])
            np.testing.assert_allclose(
                pooled["values"],
                pool(vectors, axis=0),
                atol=2e-6,
            )


def test_the_output_does_not_depend_on_the_batch_size_and_the_lookup(options, plain_run):
    expected_text, expected_numbers = with_numbers_apart(read_output(plain_run))
    for changes in ({"batch_size": 1}, {"batch_size": 32, "use_one_hot_embeddings": True}):
        extract_features.run(dataclasses.replace(options, **changes))
        text, numbers = with_numbers_apart(read_output(options.output_file))
        assert text == expected_text
        np.testing.assert_allclose(numbers, expected_numbers, rtol=0, atol=2e-6)


def test_the_cores_of_a_tpu_share_each_batch(options, plain_run):
    text, numbers = with_numbers_apart(read_output(plain_run))
    on_tpu = dataclasses.replace(
        options, batch_size=4, use_tpu=True, master="grpc://10.0.0.2:8470", num_tpu_cores=2
    )
    assert (
        run_python("-c", TWO_CORES, json.dumps(dataclasses.asdict(on_tpu))).stdout
        == "grpc://10.0.0.2:8470 2\n"
    )
    shared_text, shared_numbers = with_numbers_apart(read_output(options.output_file))
    assert shared_text == text
    np.testing.assert_allclose(shared_numbers, numbers, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"layers": "-1,-5"},
            r"^--layers=-1,-5: the model has no layer -5; its 4 layers are 0 to 3, or -4 to -1$",
        ),
        ({"layers": "-1,"}, r"^--layers=-1,: must be whole numbers separated by commas"),
        (
            {"max_seq_length": 513},
            r"^--max_seq_length=513: the model of .* max_position_embeddings=512$",
        ),
        ({"use_tpu": True}, r"^--use_tpu needs --master"),
        ({"pooling": "mean", "attentions": True}, r"^--attentions: does not go with --pooling"),
        ({"input_file": os.devnull}, r"null: is empty; give it one example a line$"),
        (
            {"output_file": "absent/output.jsonl"},
            r"^absent/output.jsonl: cannot be written \(No such file",
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
    vectors = {"float32": np.array(with_numbers_apart(read_output(plain_run))[1])}
    for dtype in ("bfloat16", "auto"):
        output = str(tmp_path / f"{dtype}.jsonl")
        with caplog.at_level(logging.INFO, logger="absl"):
            extract_features.run(dataclasses.replace(options, output_file=output, dtype=dtype))
        vectors[dtype] = np.array(with_numbers_apart(read_output(output))[1])
    difference = np.sqrt(np.mean(np.square(vectors["bfloat16"] - vectors["float32"])))
    assert 1e-4 < difference / vectors["float32"].std() < 3e-2
    assert any(np.array_equal(vectors["auto"], vectors[dtype]) for dtype in ("float32", "bfloat16"))
    assert "--dtype=auto: " in caplog.text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-1e-9, "[-0.0]"),
        (1.0, "[1.0]"),
        (1e-6, "[1e-06]"),
        (999.125, "[999.125]"),
        (2.0**-7, "[0.007812]"),  # 0.0078125 lies half-way: to the even digit
        (3 * 2.0**-7, "[0.023438]"),
    ],
)
def test_numbers_by_hand(number, text):
    assert list(extract_features.format_json_vectors(np.float32([[number]]))) == [text]


def test_numbers_of_every_size_and_near_half_a_millionth_are_those_of_pythons_round_and_json():
    draws = np.random.default_rng(0)
    of_every_size = draws.standard_normal((200, 768)) * 10.0 ** draws.integers(-8, 5, (200, 1))
    halves = (np.arange(-20000, 20000) + 0.5) / 10**6
    near = [np.nextafter(np.float32(halves), np.float32(way)) for way in (-1, 1)] + [halves]
    for vectors in (np.float32(of_every_size), np.float32(near)):
        plain = [json.dumps([round(float(x), 6) for x in vector]) for vector in vectors]
        assert list(extract_features.format_json_vectors(vectors)) == plain


@pytest.mark.parametrize(
    ("name", "line", "is_warned"),
    [
        ("texts.jsonl", "the cat", True),
        ("texts.txt", '{"text": "the cat"}', True),
        ("texts.txt", "the cat\ta mat", True),
        ("texts.txt", "the cat ||| a mat", False),
    ],
)
def test_tables_that_are_read_as_texts_are_warned_of(caplog, name, line, is_warned):
    extract_features._warn_about_tables(f"/data/{name}", line)
    assert (f"/data/{name}: each line is read as a text" in caplog.text) is is_warned
