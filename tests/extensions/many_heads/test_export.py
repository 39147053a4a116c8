"""export_heads: the answers of the heads, and what they share."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert import catalog
from official_bert.checkpoints.names import list_adapters
from official_bert.graph_text.text_reader import TextReader
from official_bert.graph_text.tokenizer import TextTokenizer
from official_bert.serving.exported_model import RECORD_FILE
from official_bert.serving.model import CheckpointModel, build, export
from tests import toy
from tests.extensions.many_heads.models import draw_encoder, write_model
from tests.scripts import end_of, flag_list, run_here, run_interpreter

TEXTS = ["the cat sat on the mat .", "rain", "nobody was on board at noon in the park"]
LONG_TEXT = " ".join(TEXTS * 4)
HEADS = ("single", "score", "multi", "tags")


def make_features(num_rows: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    lengths = random.integers(3, length + 1, num_rows)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    ids = random.integers(5, 40, (num_rows, length)).astype(np.int32) * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def run_heads(folders: dict[str, pathlib.Path], export_dir, **changes) -> pathlib.Path:
    heads = ",".join(f"{name}={folder}" for name, folder in folders.items())
    run_here("export_heads", *flag_list(heads=heads, export_dir=export_dir, **changes))
    return export_dir / str(max(int(path.name) for path in export_dir.iterdir()))


def call(model, signature: str, inputs) -> dict[str, np.ndarray]:
    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    outputs = model.signatures[signature](**tensors)
    return {name: value.numpy() for name, value in outputs.items()}


def assert_equal_outputs(outputs, expected, prefix: str = ""):
    names = {name for name in outputs if name.startswith(prefix)}
    assert names == {f"{prefix}{name}" for name in expected}
    for name, values in expected.items():
        result = outputs[f"{prefix}{name}"]
        if values.dtype == object:
            assert result.tolist() == values.tolist(), name
        else:
            np.testing.assert_allclose(result, values, atol=1e-6, err_msg=name)


def list_heads() -> tuple[str, ...]:
    has_embeddings = "embedding" in catalog.families()
    return (*HEADS, "vectors") if has_embeddings else HEADS


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, pathlib.Path]:
    """A model of each kind, whose encoders are equal but for their poolers."""
    folder = tmp_path_factory.mktemp("heads")
    encoder = draw_encoder(1)
    return {
        name: write_model(folder / name, name, encoder, seed)
        for seed, name in enumerate(list_heads())
    }


@pytest.fixture(scope="module")
def text_version(folders, tmp_path_factory) -> pathlib.Path:
    """An export of text of a classifier and a tagger."""
    two = {name: folders[name] for name in ("single", "tags")}
    return run_heads(two, tmp_path_factory.mktemp("text"), export_text=True)


@pytest.fixture(scope="module")
def pair_folders(folders, tmp_path_factory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pairs")
    encoder = draw_encoder(1)
    pair_folders = {
        "pairs": write_model(folder / "pairs", "pairs", encoder, 7),
        "long": write_model(folder / "long", "long", encoder, 8),
    }
    if "vectors" in folders:
        pair_folders["vectors"] = folders["vectors"]
    return pair_folders


@pytest.fixture(scope="module")
def pair_version(pair_folders, tmp_path_factory) -> pathlib.Path:
    """An export of text of a model of pairs, of windows of long texts, and of vectors."""
    return run_heads(pair_folders, tmp_path_factory.mktemp("pairs"), export_text=True)


def answer_alone(folder: pathlib.Path, texts, vocabulary_folder) -> dict[str, np.ndarray]:
    """What the text export of a model computes, without an export."""
    options_class = catalog.options_class("export_saved_model")
    built = build(options_class(model=str(folder), export_dir="", export_text=True))
    tokenizer = TextTokenizer(built.tokenizer, str(vocabulary_folder))
    reader = TextReader(built.tokenizer.vocab, built.max_seq_length, tokenizer)
    inputs = zip(built.task.text_inputs, texts, strict=False)
    strings = {name: tf.constant(values) for name, values in inputs}
    outputs = built.task.serving_text(built.model, strings, reader)
    return {name: value.numpy() for name, value in outputs.items()}


def count_lookups(version: pathlib.Path, signature: str) -> int:
    """The number of operations that look up segments: one for each encoder in the graph."""
    function = tf.saved_model.load(str(version)).signatures[signature]
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    return sum(node.op == "OneHot" for node in nodes)


def test_tensors_get_the_answers_of_each_model(folders, tmp_path):
    version = run_heads(folders, tmp_path / "heads")
    inputs = make_features(5, 12)
    model = tf.saved_model.load(str(version))
    all_outputs = call(model, "serving_default", inputs)
    ids = {"input_ids": inputs["input_ids"]}
    ids_outputs = call(model, "serving_ids", ids)
    for name, folder in folders.items():
        expected = CheckpointModel(str(folder))("serving_default", inputs)
        assert_equal_outputs(all_outputs, expected, f"{name}/")
        assert_equal_outputs(ids_outputs, expected, f"{name}/")
        assert_equal_outputs(call(model, name, inputs), expected)
    assert count_lookups(version, "serving_default") == 1
    record = json.loads((version / RECORD_FILE).read_text())
    assert record["settings"]["shared_encoders"] == [list(folders)]
    assert record["settings"]["heads"]["single"]["label_names"] == ["left", "right", "up"]
    weights = tf.train.load_checkpoint(str(version / "variables/variables"))
    names = weights.get_variable_to_shape_map()
    assert sum("word_embeddings" in name for name in names) == 1


def test_an_export_of_one_model_has_the_same_answers(folders, tmp_path):
    version = run_heads({name: folders[name] for name in ("single", "tags")}, tmp_path / "heads")
    options_class = catalog.options_class("export_saved_model")
    alone = export(options_class(model=str(folders["tags"]), export_dir=str(tmp_path / "tags")))
    inputs = make_features(3, 9)
    expected = call(tf.saved_model.load(alone), "serving_default", inputs)
    assert_equal_outputs(call(tf.saved_model.load(str(version)), "tags", inputs), expected)


@pytest.mark.parametrize("name", ["single", "tags"])
def test_texts_get_the_answers_of_each_model(folders, text_version, tmp_path, name):
    texts = [*TEXTS, LONG_TEXT, ""]
    model = tf.saved_model.load(str(text_version))
    expected = answer_alone(folders[name], [texts], tmp_path)
    outputs = call(model, "serving_default", {"text_a": texts})
    assert_equal_outputs(outputs, expected, f"{name}/")
    assert_equal_outputs(call(model, name, {"text_a": texts}), expected)


def test_heads_may_read_pairs_windows_and_single_texts(pair_folders, pair_version, tmp_path):
    firsts, seconds = [*TEXTS, LONG_TEXT], ["rain started", *TEXTS]
    model = tf.saved_model.load(str(pair_version))
    outputs = call(model, "serving_default", {"text_a": firsts, "text_b": seconds})
    for name, folder in pair_folders.items():
        expected = answer_alone(folder, [firsts, seconds], tmp_path)
        assert_equal_outputs(outputs, expected, f"{name}/")


WITHOUT_THE_PACKAGE = """
import sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
outputs = model.signatures["serving_default"](text_a=tf.constant(["the cat sat"]))
print(*sorted(outputs), outputs["tags/num_words"].numpy())
assert "official_bert" not in sys.modules
"""


def test_a_saved_model_reads_text_without_the_package(text_version):
    ended = run_interpreter("-c", WITHOUT_THE_PACKAGE, str(text_version))
    assert ended.stdout.split()[:3] == ["single/label", "single/logits", "single/probabilities"]
    assert ended.stdout.rstrip().endswith("tags/words [3]")


def draw_adapters(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    adapters = {}
    for name, weight in draw_encoder(1).items():
        if name.endswith("kernel") and "encoder" in name:
            for adapter, shape in zip(
                list_adapters(name), [(weight.shape[0], 2), (2, weight.shape[1])], strict=True
            ):
                adapters[adapter] = random.normal(0.0, 0.1, shape).astype(np.float32)
    return adapters


def test_adapters_share_the_weights_of_their_base(tmp_path):
    encoder = draw_encoder(1)
    folders = {
        "a": write_model(tmp_path / "a", "single", encoder, 1, further=draw_adapters(1)),
        "base": write_model(tmp_path / "base", "tags", encoder, 2),
        "b": write_model(tmp_path / "b", "multi", encoder, 3, further=draw_adapters(2)),
        "same": write_model(tmp_path / "same", "score", encoder, 4, further=draw_adapters(2)),
    }
    version = run_heads(folders, tmp_path / "heads")
    inputs = make_features(4, 10)
    outputs = call(tf.saved_model.load(str(version)), "serving_default", inputs)
    for name, folder in folders.items():
        expected = CheckpointModel(str(folder))("serving_default", inputs)
        assert_equal_outputs(outputs, expected, f"{name}/")
    record = json.loads((version / RECORD_FILE).read_text())
    assert record["settings"]["shared_encoders"] == [["a"], ["base"], ["b", "same"]]
    assert count_lookups(version, "serving_default") == 3
    weights = tf.train.load_checkpoint(str(version / "variables/variables"))
    names = weights.get_variable_to_shape_map()
    assert sum("layer_0" in name and "query.Skernel" in name for name in names) == 1
    assert sum("layer_0" in name and "query.Slora_kernel_a" in name for name in names) == 2


WRONG_HEADS = {
    "a=ONE": "--heads: names one model; give two or more",
    "a=ONE,a=TWO": "--heads: a names ",
    "a=ONE,ONE": "is not NAME=FOLDER; give each folder a name",
    "A=ONE,b=TWO": "--heads: 'A' cannot be a name",
    "serving_default=ONE,b=TWO": "--heads: 'serving_default' cannot be a name",
    "a=ONE,b=nowhere": "--heads: b=nowhere: no such folder; check the path",
}


@pytest.mark.parametrize("heads", WRONG_HEADS)
def test_wrong_heads_are_named(folders, tmp_path, heads):
    values = heads.replace("ONE", str(folders["single"])).replace("TWO", str(folders["tags"]))
    ended = end_of("export_heads", f"--heads={values}", f"--export_dir={tmp_path / 'out'}")
    assert ended.status == 1
    assert WRONG_HEADS[heads] in ended.sentence
    assert not (tmp_path / "out").exists()


def make_other_models(folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, str]]:
    """Models that do not fit, and the sentences about them."""
    encoder = draw_encoder(1)
    other = dict(encoder)
    name = "bert/encoder/layer_1/output/dense/bias"
    other[name] = other[name] + 1e-6
    pieces = [*toy.VOCABULARY[:-1], "other"]
    return {
        "weight": (
            write_model(folder / "weight", "single", other, 5),
            f"differ, first in {name}; ",
        ),
        "pieces": (
            write_model(folder / "pieces", "single", encoder, 5, pieces=pieces),
            "have different vocabularies",
        ),
        "case": (
            write_model(folder / "case", "single", encoder, 5, do_lower_case=False),
            "read texts with different do_lower_case, True and False",
        ),
        "length": (
            write_model(folder / "length", "single", encoder, 5, length=12),
            "were trained with different lengths, 24 and 12 tokens; train them with the same "
            "--max_seq_length",
        ),
        "activation": (
            write_model(folder / "activation", "single", encoder, 5, hidden_act="relu"),
            "have encoders with different hidden_act, gelu and relu",
        ),
        "size": (
            write_model(
                folder / "size",
                "single",
                draw_encoder(1, num_hidden_layers=1),
                5,
                num_hidden_layers=1,
            ),
            "differ, first in bert/encoder/layer_1/attention/self/query/kernel; ",
        ),
    }


def test_models_that_do_not_fit_are_named(folders, tmp_path):
    for name, (folder, sentence) in make_other_models(tmp_path).items():
        heads = f"a={folders['tags']},b={folder}"
        ended = end_of("export_heads", f"--heads={heads}", f"--export_dir={tmp_path / 'out'}")
        assert ended.status == 1, name
        assert sentence in ended.sentence, name
        assert str(folders["tags"]) in ended.sentence
        assert str(folder) in ended.sentence


def test_a_model_of_choices_is_no_head(folders, tmp_path):
    folder = write_model(tmp_path / "choices", "choices", draw_encoder(1), 5)
    ended = end_of(
        "export_heads",
        f"--heads=a={folders['single']},b={folder}",
        f"--export_dir={tmp_path / 'out'}",
    )
    assert ended.status == 1
    assert "is a model of swag, which does not read one sequence of tokens" in ended.sentence


def test_another_export_in_the_folder_causes_a_warning(folders, tmp_path, caplog):
    one = {name: folders[name] for name in ("single", "multi")}
    run_heads(one, tmp_path / "heads")
    run_heads(one, tmp_path / "heads")
    assert "holds versions with other signatures" not in caplog.text
    run_heads({"single": folders["single"], "other": folders["multi"]}, tmp_path / "heads")
    assert "holds versions with other signatures" in caplog.text
