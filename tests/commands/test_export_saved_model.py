"""Tests that exports of every kind of task give the scripts' predictions, from Python and from a
C program.
"""

import dataclasses
import hashlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import named_variables, tf1
from official_bert.data.records.framing import encode_examples
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from tests import toy
from tests.serving import c_runner, exported
from tests.serving.answers import TOLERANCE, assert_same, call, signatures_of
from tests.serving.exported import KINDS, Exported, batch, expected, export_options, make_checkpoint
from tests.shared import in_test_long

SHAPES = [
    (1, 9),
    (7, 9),
    (7, 128),
    (1, 384),
]


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory) -> Exported:
    return exported.shared_export(tmp_path_factory, request.param)


@pytest.fixture(scope="module")
def c_program(tmp_path_factory) -> pathlib.Path:
    return c_runner.build(tmp_path_factory)


def examples_of(features: dict[str, np.ndarray]) -> np.ndarray:
    """A record for each example, with a feature that no signature reads."""
    num_examples = len(features["input_ids"])
    flat = {}
    for name, values in features.items():
        flat[name] = values.reshape(num_examples, -1)
    flat["unique_ids"] = np.ones((num_examples, 1), np.int32)
    return np.array(encode_examples(flat), object)


def segments_of(ids: np.ndarray, kind: str) -> np.ndarray:
    """Segment 1 from the token behind the first [SEP] of a pair to its last token."""
    segments = np.zeros_like(ids)
    if kind == "ner":
        return segments
    length = ids.shape[-1]
    id_rows = ids.reshape(-1, length)
    segment_rows = segments.reshape(-1, length)
    for row_ids, row_segments in zip(id_rows, segment_rows, strict=True):
        ends = np.flatnonzero(row_ids == toy.VOCABULARY.index("[SEP]"))
        if len(ends):
            start = ends[0] + 1
            row_segments[start:] = row_ids[start:] != 0
    return segments


def test_every_signature_answers_as_the_scripts_do(made, c_program):
    kind = made.options.task_name
    signatures = signatures_of(made.path)
    requests = []
    answers = []
    for size, length in SHAPES:
        features = batch(kind, size, length)
        wanted = expected(made, features)
        ids = features["input_ids"]
        with_segments = features | {"segment_ids": segments_of(ids, kind)}
        for name, inputs, answer in (
            ("serving_default", features, wanted),
            ("serving_examples", {"examples": examples_of(features)}, wanted),
            ("serving_ids", {"input_ids": ids}, expected(made, with_segments)),
        ):
            assert_same(call(signatures[name], inputs), answer)
            requests.append((name, inputs))
            answers.append(answer)
    # Without Python, the same.
    for found, answer in zip(c_runner.run(c_program, made.path, requests), answers, strict=True):
        assert_same(found, answer)


def test_every_weight_is_held_once_and_nothing_else(made):
    reader = tf.train.load_checkpoint(str(made.path / "variables" / "variables"))
    stored = reader.get_variable_to_shape_map()
    stored.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    weights = {
        name: list(variable.shape)
        for name, variable in named_variables(made.model).items()
        if not name.startswith("cls/seq_relationship")
    }
    shapes = {}
    for name, shape in weights.items():
        escaped_name = name.replace("/", ".S")
        shapes[f"model_weights/{escaped_name}/.ATTRIBUTES/VARIABLE_VALUE"] = shape
    assert stored == shapes
    num_bytes = sum(4 * int(np.prod(shape)) for shape in weights.values())
    (data,) = (made.path / "variables").glob("*.data*")
    assert num_bytes <= data.stat().st_size < num_bytes + 8192


def test_what_lies_beside_the_model(made):
    assert (made.path / "assets" / "vocab.txt").read_text().split() == toy.VOCABULARY
    extra = made.path / "assets.extra"
    assert json.loads((extra / "bert_config.json").read_text())["num_hidden_layers"] == 1
    record = json.loads((extra / "export.json").read_text())
    assert record["task_name"] == made.options.task_name
    assert record["flags"]["max_seq_length"] == 24
    digest = hashlib.sha256()
    for name, variable in sorted(named_variables(made.model).items()):
        digest.update(name.encode() + variable.numpy().tobytes())
    checkpoint = made.options.init_checkpoint
    assert record["checkpoint"] == {
        "path": checkpoint,
        "step": None,
        "metrics": {},
        "weights_sha256": digest.hexdigest(),
    }
    if made.task.labels:
        labels = (extra / "labels.txt").read_bytes()
        assert labels.decode().splitlines() == made.task.labels
        digest = hashlib.sha256(labels).hexdigest()
        assert record["labels"] == {
            "number": len(made.task.labels),
            "sha256": digest,
        }
    else:
        assert not (extra / "labels.txt").exists()
        assert record["labels"] is None


def test_the_record_has_the_step_and_its_metrics(tmp_path):
    """An evaluation of other weights than those of the checkpoint is left out."""
    _, model = make_checkpoint(tmp_path, "mrpc")
    weights = {name: variable.numpy() for name, variable in named_variables(model).items()}
    tf1.write(
        str(tmp_path / "model.ckpt"),
        weights | {"global_step": np.int64(7)},
    )
    (tmp_path / "eval_results.txt").write_text(
        "eval_accuracy = 0.75\neval_loss = 0.5\nglobal_step = 7\n"
    )
    (tmp_path / "eval_results_mm.txt").write_text("eval_accuracy = 0.5\nglobal_step = 6\n")
    (tmp_path / "eval_results_x.txt").write_text("none\n")
    metadata = serving_model.build(export_options(tmp_path, "mrpc")).checkpoint_metadata
    metrics = {"eval_results.txt": {"eval_accuracy": 0.75, "eval_loss": 0.5}}
    assert metadata == {
        "path": str(tmp_path / "model.ckpt"),
        "step": 7,
        "metrics": metrics,
    }


@pytest.mark.parametrize("default", ["tensors", "examples"])
def test_a_client_of_an_estimators_export_is_answered(tmp_path_factory, c_program, default):
    """By the default signature, whose only output is `probabilities`, and our own client by its
    own.
    """
    made = exported.shared_export(tmp_path_factory, "mrpc", estimator_signatures=default)
    features = batch("mrpc", 7, 9)
    labelled = features | {"label_ids": np.arange(7, dtype=np.int32)}
    inputs = (
        labelled
        if default == "tensors"
        else {"examples": examples_of(labelled | {"label_ids": np.ones((7, 1))})}
    )
    wanted = expected(made, features)
    found = call(signatures_of(made.path)["serving_default"], inputs)
    assert_same(found, {"probabilities": wanted["probabilities"]})
    assert_same(
        c_runner.run(c_program, made.path, [("serving_default", inputs)])[0],
        found,
    )
    assert_same(
        serving_model.Export(str(made.path))("serving_default", features),
        wanted,
    )


def test_masked_words_are_those_of_the_pretraining_model(tmp_path_factory, c_program):
    made = exported.shared_export(tmp_path_factory, "pretraining")
    features = batch("pretraining", 3, 11)
    positions = np.int32([[1, 4], [0, 10], [2, 2]])
    signature = signatures_of(made.path)["serving_masked"]
    inputs = features | {"masked_lm_positions": positions}
    found = call(signature, inputs)
    log_probabilities = np.asarray(made.model(inputs).masked_lm_log_probs)
    probabilities = np.exp(log_probabilities).reshape(3, 2, -1)
    order = np.argsort(-probabilities, axis=-1)[..., :10]
    np.testing.assert_array_equal(found["top_k_ids"], order)
    wanted = np.take_along_axis(probabilities, order, axis=-1)
    np.testing.assert_allclose(
        found["top_k_probabilities"],
        wanted,
        rtol=1e-4,
    )
    pieces = np.array([piece.encode() for piece in toy.VOCABULARY], object)
    np.testing.assert_array_equal(found["top_k_tokens"], pieces[order])
    (by_c,) = c_runner.run(
        c_program,
        made.path,
        [("serving_masked", inputs)],
    )
    assert_same(by_c, found)
    outside = features | {"masked_lm_positions": positions + 1}
    with pytest.raises(tf.errors.InvalidArgumentError, match="below the length of input_ids"):
        call(signature, outside)


def test_a_checkpoint_without_heads_is_exported_without_them(tmp_path, caplog):
    _, model = make_checkpoint(tmp_path, "pretraining")
    heads = ("bert/pooler", "cls/")
    weights = {
        name: variable.numpy()
        for name, variable in named_variables(model).items()
        if not name.startswith(heads)
    }
    tf1.write(str(tmp_path / "model.ckpt"), weights)
    serving_model.export(export_options(tmp_path, "pretraining"))
    assert "no bert/pooler: pooled_output is left out of the export" in caplog.text
    assert "no cls/predictions: serving_masked is left out" in caplog.text
    signatures = signatures_of(tmp_path / "exports" / "1")
    assert set(signatures) == {"serving_default", "serving_ids", "serving_examples"}
    features = batch("pretraining", 2, 5)
    found = call(signatures["serving_default"], features)
    assert found.keys() == {"sequence_output"}
    encoded = model.bert(*features.values())
    np.testing.assert_allclose(
        found["sequence_output"],
        encoded.sequence_output,
        atol=TOLERANCE,
    )


@pytest.mark.parametrize(
    ("exported_as", "trained_as", "flags", "sentence"),
    [
        pytest.param(
            "squad",
            "ner",
            {},
            "lacks cls/squad/output_weights, cls/squad/output_bias, which --task_name=squad",
            id="checkpoint of another head",
        ),
        pytest.param(
            "mnli",
            "mrpc",
            {},
            "its labels are contradiction, entailment, neutral, but those beside .* are 0, 1",
            id="checkpoint with other labels",
        ),
        pytest.param(
            "ner",
            "squad",
            {},
            "no labels.txt beside the checkpoint",
            id="checkpoint without labels",
        ),
        pytest.param(
            "tsv",
            "swag",
            {},
            "--labels: are not known",
            id="unknown labels",
        ),
        pytest.param(
            "swag",
            "mrpc",
            {},
            "output_weights has shape .* in the checkpoint and .* in the model",
            id="weights of another shape",
        ),
        pytest.param(
            "sts-b",
            "sts-b",
            {"export_dir": __file__},
            "is a file; name a folder",
            id="file as export_dir",
        ),
        pytest.param(
            "squad",
            "squad",
            {"estimator_signatures": "tensors"},
            "is for tensor models with labels",
            id="estimator signatures without labels",
        ),
        pytest.param(
            "mrpc",
            "mrpc",
            {"estimator_signatures": "examples", "export_text": True},
            "is for tensor models with labels",
            id="estimator signatures of text",
        ),
        pytest.param(
            "tsv",
            "tsv",
            {"pooling": "max"},
            "--pooling=max: the task of this model does not read it; .* or name",
            id="pooling of a classifier",
        ),
        pytest.param(
            "mrpc",
            "mrpc",
            {"doc_stride": 9},
            "--doc_stride=9: the task of this model does not read it; leave the flag",
            id="doc_stride of a classifier",
        ),
        pytest.param(
            "ner",
            "ner",
            {"null_score_diff_threshold": -1.5},
            "--null_score_diff_threshold=-1.5: the task of this",
            id="null threshold of a tagger",
        ),
        pytest.param(
            "squad",
            "squad",
            {"label_type": "multi"},
            "--label_type=multi: the task of this model does not read it; ",
            id="label_type of question answering",
        ),
        pytest.param(
            "swag",
            "swag",
            {"labels": ["a", "b"]},
            "--labels=a,b: the task of this model does not read it; ",
            id="labels of multiple choice",
        ),
    ],
)
def test_exports_that_cannot_work_are_refused(tmp_path, exported_as, trained_as, flags, sentence):
    make_checkpoint(tmp_path, trained_as)
    options = dataclasses.replace(export_options(tmp_path, exported_as), **flags)
    with pytest.raises(InputError, match=sentence):
        serving_model.export(options)
    assert not (tmp_path / "exports").exists()


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("squad", {"doc_stride": 9, "n_best_size": 3}),
        ("mrpc", {"doc_stride": 128, "pooling": "mean"}),
    ],
)
def test_flags_of_the_task_and_defaults_of_others_are_no_fault(tmp_path, kind, flags):
    make_checkpoint(tmp_path, kind)
    task = serving_model.build(dataclasses.replace(export_options(tmp_path, kind), **flags)).task
    assert kind == "mrpc" or task.settings().items() >= flags.items()


@pytest.mark.parametrize(
    "kind", ["mrpc", "pretraining", *in_test_long("sts-b", "tsv", "swag", "squad", "ner")]
)
def test_an_export_in_bfloat16_answers_nearly_the_same(tmp_path_factory, c_program, kind):
    """Kernels and tables are stored rounded, all else in float32; inputs and outputs have the
    same form.
    """
    made = exported.shared_export(tmp_path_factory, kind, dtype="bfloat16")
    whole = exported.shared_export(tmp_path_factory, kind)
    reader = tf.train.load_checkpoint(str(made.path / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    types.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    weights = {
        f"model_weights/{name.replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE": (
            name,
            variable.numpy(),
        )
        for name, variable in named_variables(made.model).items()
    }
    num_rounded = 0
    for key, dtype in types.items():
        name, values = weights[key]
        is_short = name.endswith(("/kernel", "_embeddings"))
        num_rounded += values.size if is_short else 0
        assert dtype == (tf.bfloat16 if is_short else tf.float32), name
        wanted = tf.cast(values, dtype).numpy()
        np.testing.assert_array_equal(
            reader.get_tensor(key),
            wanted,
            err_msg=name,
        )
    (data,) = (made.path / "variables").glob("*.data*")
    (whole_data,) = (whole.path / "variables").glob("*.data*")
    assert whole_data.stat().st_size - data.stat().st_size == 2 * num_rounded

    features = batch(kind, 7, 24)
    signature = signatures_of(made.path)["serving_default"]
    exact = signatures_of(whole.path)["serving_default"]
    assert signature.structured_outputs == exact.structured_outputs
    found = call(signature, features)
    errors = []
    for name, values in call(exact, features).items():
        if values.dtype == np.float32:
            largest_difference = np.abs(found[name] - values).max()
            errors.append(largest_difference / np.abs(values).max())
    assert 1e-4 < max(errors) < 3e-2
    (by_c,) = c_runner.run(
        c_program,
        made.path,
        [("serving_default", features)],
    )
    assert_same(by_c, found)
