"""Models that Keras saves and loads, their inputs and their exports."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert import (
    BertChoice,
    BertClassifier,
    BertConfig,
    BertModel,
    BertPretrainer,
    BertSpans,
    BertTagger,
    InputError,
    keras_optimizer,
    modeling,
)
from official_bert.checkpoints import load_checkpoint, named_variables, tf1
from tests import toy
from tests.golden_model import largest_difference
from tests.shared import in_test_long

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG)
RNG = np.random.default_rng(1)
DRAWN_IDS = RNG.integers(5, len(toy.VOCABULARY), (6, 7))
IDS = DRAWN_IDS.astype(np.int32)
NUM_TOKENS = np.array([7, 4, 7, 5, 6, 7])
IS_TOKEN = np.arange(7) < NUM_TOKENS[:, None]
MASK = IS_TOKEN.astype(np.int32)
LABELS = np.int32([0, 1, 2, 0, 1, 2])


@keras.saving.register_keras_serializable(package="test")
class Parent(keras.Model):
    """A user's model around the encoder; `when` is the method in which the encoder is made."""

    def __init__(self, when="init", **arguments):
        super().__init__(**arguments)
        self.when = when
        if when == "init":
            self.bert = BertModel(CONFIG)
        self.head = keras.layers.Dense(3)

    def build(self, input_shape):
        if self.when == "build":
            self.bert = BertModel(CONFIG, name="encoder_a")
        self.head.build((None, CONFIG.hidden_size))

    def call(self, input_ids):
        return self.head(self.bert(input_ids).pooled_output)

    def get_config(self):
        return super().get_config() | {"when": self.when}


@keras.saving.register_keras_serializable(package="test")
class ParentOfDict(keras.Model):
    """A user's model without a `build`, which Keras builds by a call with float32 in the place
    of every input.
    """

    def __init__(self, kind="encoder", **arguments):
        super().__init__(**arguments)
        self.kind = kind
        self.bert = MODELS[kind]()
        self.head = keras.layers.Dense(3)

    def call(self, features):
        if self.kind != "encoder":
            return self.head(self.bert(features))
        return self.head(self.bert(**features).pooled_output)

    def get_config(self):
        return super().get_config() | {"kind": self.kind}


@keras.saving.register_keras_serializable(package="test")
class Outer(keras.Model):
    """A model around the user's model."""

    def build(self, input_shape):
        self.inner = Parent("build", name="parent")
        self.inner.build(input_shape)

    def call(self, input_ids):
        return self.inner(input_ids)


def features(model) -> dict:
    if isinstance(model, BertChoice):
        return {
            "input_ids": IDS.reshape(2, 3, 7),
            "input_mask": MASK.reshape(2, 3, 7),
        }
    return {"input_ids": IDS, "input_mask": MASK}


def assert_same(first, second):
    first_arrays = keras.tree.flatten(first)
    second_arrays = keras.tree.flatten(second)
    for one, other in zip(first_arrays, second_arrays, strict=True):
        assert_array_equal(one, other)


def saved_and_loaded(model, folder):
    path = folder / "model.keras"
    model.save(path)
    return keras.models.load_model(path)


def is_random(model, inputs, **arguments) -> bool:
    first = model(inputs, **arguments)
    second = model(inputs, **arguments)
    return largest_difference(first, second) > 1e-4


def make_functional_encoder() -> keras.Model:
    input_ids = keras.Input((None,), dtype="int32")
    out = BertModel(CONFIG)(input_ids)
    return keras.Model(input_ids, out.pooled_output)


def make_functional_classifier() -> keras.Model:
    input_ids = keras.Input((None,), dtype="int32")
    classifier = BertClassifier(CONFIG, 3)
    logits = classifier({"input_ids": input_ids})
    return keras.Model(input_ids, logits)


@pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(lambda: Parent("init"), id="encoder of a parent's init"),
        pytest.param(lambda: Parent("build"), id="encoder of a parent's build"),
        pytest.param(make_functional_encoder, id="functional encoder"),
        pytest.param(make_functional_classifier, id="functional classifier"),
    ],
)
def test_dropout_follows_the_calling_context(make_model):
    model = make_model()
    assert is_random(model, IDS, training=True)
    assert not is_random(model, IDS, training=False)
    assert not is_random(model, IDS)


def test_a_call_may_differ_from_its_context():
    class Frozen(keras.Model):
        def build(self, input_shape):
            self.bert = BertModel(CONFIG)

        def call(self, input_ids):
            return self.bert(input_ids, training=False).pooled_output

    assert not is_random(Frozen(), IDS, training=True)


MODELS = {
    "encoder": lambda: BertModel(CONFIG, name="mine"),
    "classifier": lambda: BertClassifier(CONFIG, 3),
    "tagger": lambda: BertTagger(CONFIG, 3),
    "spans": lambda: BertSpans(CONFIG, use_one_hot_embeddings=True),
    "choice": lambda: BertChoice(CONFIG, name="mine"),
    "pretrainer": lambda: BertPretrainer(CONFIG),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_file_holds_the_model(tmp_path, kind):
    model = MODELS[kind]()
    again = saved_and_loaded(model, tmp_path)
    assert type(again) is type(model)
    assert again.name == model.name
    assert again.use_one_hot_embeddings == model.use_one_hot_embeddings
    assert again.config.to_dict() == model.config.to_dict()
    assert list(named_variables(again)) == list(named_variables(model))
    batch = features(model)
    assert_same(again(batch), model(batch))


def test_a_clone_has_weights_of_its_own():
    model = MODELS["encoder"]()
    twin = keras.models.clone_model(model)
    assert twin.name == "mine"
    assert largest_difference(twin.weights[0], model.weights[0]) > 1e-3


@pytest.mark.parametrize(
    ("kind", "shape", "batch"),
    [
        pytest.param(
            "classifier",
            (None,),
            {"input_ids": IDS},
            id="classifier",
        ),
        pytest.param(
            "choice",
            (3, None),
            {
                "input_ids": IDS.reshape(2, 3, 7),
                "segment_ids": 1 - MASK.reshape(2, 3, 7),
            },
            id="choice",
        ),
    ],
)
def test_a_functional_model_takes_a_dict_and_is_saved(tmp_path, kind, shape, batch):
    model = MODELS[kind]()
    inputs = {name: keras.Input(shape, dtype="int32", name=name) for name in batch}
    logits = model(inputs)
    softmax = keras.layers.Softmax()
    functional = keras.Model(inputs, softmax(logits))
    probabilities = functional(batch)
    expected = tf.nn.softmax(model(batch))
    assert_allclose(probabilities, expected, atol=1e-6)
    again = saved_and_loaded(functional, tmp_path)
    assert_same(again(batch), probabilities)


def test_a_functional_model_on_the_encoder_is_saved(tmp_path):
    input_ids = keras.Input((7,), dtype="int64")
    mask = keras.Input((7,), dtype="int32")
    encoder = BertModel(CONFIG)
    out = encoder(
        input_ids,
        input_mask=mask,
        output_attentions=True,
    )
    dense = keras.layers.Dense(2, name="scores")
    scores = dense(out.sequence_output)
    probabilities = out.all_attention_probabilities[0]
    model = keras.Model([input_ids, mask], [scores, probabilities])
    assert model.output_shape == [(None, 7, 2), (None, 2, 7, 7)]
    again = saved_and_loaded(model, tmp_path)
    batch = [IDS, MASK]
    assert_same(again(batch), model(batch))
    assert "bert/pooler/dense/kernel" in named_variables(again)


@pytest.mark.parametrize("make", [lambda: Parent("init"), Outer])
def test_a_subclass_is_saved(tmp_path, make):
    model = make()
    expected = model(IDS)
    again = saved_and_loaded(model, tmp_path)
    assert_same(again(IDS), expected)


@pytest.mark.parametrize("kind", ["encoder", "choice"])
def test_a_subclass_that_keras_builds_keeps_its_own_layers(tmp_path, kind):
    model = ParentOfDict(kind)
    batch = features(model.bert)
    batch["segment_ids"] = 1 - batch["input_mask"]
    expected = model(batch)
    keras.backend.clear_session()
    again = saved_and_loaded(model, tmp_path)
    assert_same(again(batch), expected)


def test_training_goes_on_after_loading(tmp_path):
    """Two epochs, or one, a file and another one: the weights and the slots are the same, frozen
    layers stay so.
    """

    def fitted(model):
        model.fit(
            {"input_ids": IDS, "input_mask": MASK},
            LABELS,
            batch_size=3,
            shuffle=False,
            verbose=0,
        )
        return model

    config = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT)
    input_ids = keras.Input((7,), dtype="int32", name="input_ids")
    mask = keras.Input((7,), dtype="int32", name="input_mask")
    bert = BertModel(config)
    bert.embeddings.trainable = False
    out = bert(input_ids, mask)
    dense = keras.layers.Dense(3)
    logits = dense(out.pooled_output)
    model = keras.Model({"input_ids": input_ids, "input_mask": mask}, logits)
    model.compile(
        keras_optimizer(1e-2, 8, 2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    word_embeddings = bert.embeddings.word_embeddings
    before = word_embeddings.numpy()
    again = saved_and_loaded(fitted(model), tmp_path)
    num_trainable = len(model.trainable_variables)
    assert len(again.trainable_variables) == num_trainable
    assert num_trainable < len(model.weights)
    fitted(model)
    fitted(again)
    assert_same(model.get_weights(), again.get_weights())
    assert_same(model.optimizer.variables, again.optimizer.variables)
    assert int(again.optimizer.iterations) == 4
    assert_array_equal(word_embeddings.numpy(), before)


def test_the_compute_type_is_kept(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = BertClassifier(CONFIG, 3)
    finally:
        keras.config.set_dtype_policy("float32")
    again = saved_and_loaded(model, tmp_path)
    out = again.bert(IDS)
    assert out.pooled_output.dtype == tf.bfloat16
    assert keras.config.dtype_policy().name == "float32"
    batch = features(model)
    logits = again(batch)
    assert logits.dtype == tf.float32
    assert_same(logits, model(batch))


def test_a_function_in_the_configuration_cannot_be_saved():
    fields = toy.BERT_CONFIG | {"hidden_act": tf.nn.relu}
    model = BertModel(BertConfig.from_dict(fields))
    with pytest.raises(InputError, match=r"hidden_act: is a function.*by name"):
        model.get_config()


@pytest.mark.parametrize("kind", ["encoder", "choice", "pretrainer"])
def test_features_are_a_dict_or_keywords(kind):
    model = MODELS[kind]()
    batch = features(model)
    if kind == "pretrainer":
        batch["masked_lm_positions"] = np.int32([[1, 2]] * len(IDS))
    expected = model(*batch.values()) if kind == "encoder" else model.call(batch)
    labelled = batch | {"label_ids": LABELS}
    assert_same(model(labelled), expected)
    from_keywords = model(**batch, training=tf.constant(False))
    assert_same(from_keywords, expected)
    user_dict = collections.UserDict(batch)
    assert_same(model(user_dict), expected)
    symbolic = {
        name: keras.Input(value.shape[1:], dtype="int32", name=name)
        for name, value in batch.items()
    }
    functional = keras.Model(symbolic, model(symbolic))
    assert_same(functional(batch), expected)


def test_predict_takes_a_dict_and_ignores_other_names():
    model = MODELS["encoder"]()
    batch = features(model)
    expected = model(**batch)
    predictions = model.predict(batch, verbose=0)
    assert_allclose(
        predictions.pooled_output,
        expected.pooled_output,
        atol=1e-6,
    )
    labelled = batch | {"my_labels": LABELS}
    model.predict(labelled, verbose=0)
    misspelt = batch | {"input_masks": MASK}
    message = r"input_masks: no input .*; did you mean input_mask"
    with pytest.raises(InputError, match=message):
        model.predict(misspelt, verbose=0)


WRONG_FEATURES = {
    "classifier": [
        (
            lambda m: m({"input_ids": IDS}, input_mask=MASK),
            "input_mask: given beside the features",
        ),
        (
            lambda m: m(input_mask=MASK),
            "the model takes input_ids, .* in a dict or by name; got input_mask$",
        ),
        (
            lambda m: m(IDS, input_ids=IDS),
            "input_ids: given twice, with its name and without",
        ),
        (lambda m: m({}), "got nothing$"),
        (
            lambda m: m(IDS, MASK),
            r"training: is an array; give a mask by its name, as in model\(ids, input_mask",
        ),
        (
            lambda m: m(IDS, input_mask=MASK * -10000),
            r"input_mask holds -10000, outside 0 to 1 \(1 for a token",
        ),
        (
            lambda m: m({"input_ids": IDS, "input_mask": MASK[:, :3]}),
            "input_mask has shape",
        ),
    ],
    "encoder": [
        (
            lambda m: m({"input_ids": IDS}, input_mask=MASK),
            "input_mask: given beside the features",
        ),
        (
            lambda m: m({"input_ids": IDS, "input_masks": MASK}),
            "input_masks: no input .*; did you mean input_mask",
        ),
        (
            lambda m: m(IDS, mask=MASK),
            "mask: no input of the model, which takes input_ids, input_mask,",
        ),
        (
            lambda m: m(IDS, MASK * np.nan),
            r"input_mask holds numbers that are not whole; it takes 0 to 1 \(1 for a",
        ),
        (
            lambda m: m(IDS, MASK, MASK * 0.5),
            r"segment_ids holds numbers that are not whole; it takes 0 to 1 \(type",
        ),
        (
            lambda m: m(IDS, MASK.astype(str)),
            r"input_mask holds no numbers; it takes 0 to 1 \(1 for a token, 0",
        ),
        (
            lambda m: m(IDS, MASK, MASK + 1),
            r"segment_ids holds 2, outside 0 to 1 \(type_vocab_size 2\); use",
        ),
    ],
    "pretrainer": [
        (
            lambda m: m({"input_ids": IDS, "labels": IDS}),
            "labels: no input .* segment_ids, masked_lm_positions",
        )
    ],
    "choice": [
        (
            lambda m: m(IDS[:, None], input_mask=MASK[:, None] * 2),
            "input_mask holds 2, outside 0 to 1",
        )
    ],
}


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [(kind, *case) for kind, cases in WRONG_FEATURES.items() for case in cases],
)
def test_wrong_features_are_refused_in_one_sentence(kind, call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call(MODELS[kind]())
    assert "\n" not in str(refusal.value)


def test_what_is_no_configuration_or_of_the_original_is_named(monkeypatch, caplog):
    message = r"config: must be a BertConfig, as of BertConfig.from_size.*, got "
    for config in (None, {}, "base"):
        with pytest.raises(TypeError, match=message):
            BertModel(config)
        with pytest.raises(TypeError, match=message):
            BertSpans(config)
        with pytest.raises(TypeError, match=message):
            BertClassifier(config, 2)
    message = r"^is_training, input_ids: no argument of .* docs/public_names.md"
    with pytest.raises(TypeError, match=message):
        BertModel(CONFIG, is_training=True, input_ids=IDS)
    with pytest.raises(AttributeError, match=r"'layer_norm'; .* docs/public_names.md"):
        _ = modeling.layer_norm
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    MODELS["classifier"]()
    assert caplog.messages == [
        "KERAS_BACKEND=jax: models can be used, but not trained; set KERAS_BACKEND=tensorflow"
    ]


@pytest.mark.parametrize(
    "kind",
    ["encoder", "pretrainer", *in_test_long("classifier", "choice", "spans")],
)
def test_an_export_needs_no_call_before(tmp_path, kind):
    model = MODELS[kind]()
    model.export(tmp_path, verbose=False)
    batch = features(model)
    batch["segment_ids"] = 1 - batch["input_mask"]
    loaded = tf.saved_model.load(tmp_path)
    outputs = loaded.serve(batch)
    expected = model(batch)
    if kind in ("encoder", "pretrainer", "spans"):
        fields = expected._asdict()
        expected = {name: value for name, value in fields.items() if hasattr(value, "shape")}
        assert outputs.keys() == expected.keys()
    output_arrays = keras.tree.flatten(outputs)
    expected_arrays = keras.tree.flatten(expected)
    for output, expected_output in zip(output_arrays, expected_arrays, strict=True):
        assert_allclose(output, expected_output, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "make", "inner"),
    [
        ("encoder", lambda: Parent("init"), lambda model: model.bert),
        ("encoder", Outer, lambda model: model.inner.bert),
        ("classifier", lambda: ParentOfDict("classifier"), lambda model: model.bert),
    ],
)
def test_a_model_within_another_one_loads_a_checkpoint(tmp_path, kind, make, inner):
    source = MODELS[kind]()
    variables = named_variables(source)
    tf1.write(str(tmp_path / "bert_model.ckpt"), variables)
    batch = features(source)
    model = make()
    model(batch if kind == "classifier" else IDS)
    inner_model = inner(model)
    report = load_checkpoint(inner_model, str(tmp_path))
    assert sorted(report.matched) == sorted(variables)
    assert report.missing == []
    assert report.unexpected == []
    assert_same(inner_model(batch), source(batch))
