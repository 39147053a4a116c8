"""Models that Keras saves and loads, their inputs and their exports."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

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
from tests.shared import in_test_long

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG)
IDS = np.random.default_rng(1).integers(5, len(toy.VOCABULARY), (6, 7)).astype(np.int32)
MASK = (np.arange(7) < [[7], [4], [7], [5], [6], [7]]).astype(np.int32)
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
        return {"input_ids": IDS.reshape(2, 3, 7), "input_mask": MASK.reshape(2, 3, 7)}
    return {"input_ids": IDS, "input_mask": MASK}


def assert_same(first, second):
    for one, other in zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True):
        np.testing.assert_array_equal(one, other)


def saved_and_loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def is_random(model, inputs, **arguments) -> bool:
    first, second = (np.asarray(model(inputs, **arguments)) for _ in range(2))
    return bool(np.abs(first - second).max() > 1e-4)


def test_dropout_follows_the_calling_context():
    input_ids = keras.Input((None,), dtype="int32")
    functional = [
        keras.Model(input_ids, outputs)
        for outputs in (
            BertModel(CONFIG)(input_ids).pooled_output,
            BertClassifier(CONFIG, 3)({"input_ids": input_ids}),
        )
    ]
    for model in (Parent("init"), Parent("build"), *functional):
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
    assert (again.name, again.use_one_hot_embeddings) == (model.name, model.use_one_hot_embeddings)
    assert again.config.to_dict() == model.config.to_dict()
    assert list(named_variables(again)) == list(named_variables(model))
    batch = features(model)
    assert_same(again(batch), model(batch))


def test_a_clone_has_weights_of_its_own():
    model = MODELS["encoder"]()
    twin = keras.models.clone_model(model)
    assert twin.name == "mine"
    assert np.abs(twin.weights[0].numpy() - model.weights[0].numpy()).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "given"),
    [("classifier", ("input_ids",)), ("choice", ("input_ids", "segment_ids"))],
)
def test_a_functional_model_takes_a_dict_and_is_saved(tmp_path, kind, given):
    model = MODELS[kind]()
    arrays = {"input_ids": IDS, "input_mask": MASK, "segment_ids": 1 - MASK}
    if kind == "choice":
        arrays = {name: array.reshape(2, 3, 7) for name, array in arrays.items()}
    shape = (None,) if kind == "classifier" else (3, None)
    inputs = {name: keras.Input(shape, dtype="int32", name=name) for name in given}
    functional = keras.Model(inputs, keras.layers.Softmax()(model(inputs)))
    batch = {name: arrays[name] for name in given}
    np.testing.assert_allclose(functional(batch), tf.nn.softmax(model(batch)), atol=1e-6)
    assert_same(saved_and_loaded(functional, tmp_path)(batch), functional(batch))


def test_a_functional_model_on_the_encoder_is_saved(tmp_path):
    input_ids, mask = (keras.Input((7,), dtype=dtype) for dtype in ("int64", "int32"))
    out = BertModel(CONFIG)(input_ids, input_mask=mask, output_attentions=True)
    scores = keras.layers.Dense(2, name="scores")(out.sequence_output)
    model = keras.Model([input_ids, mask], [scores, out.all_attention_probabilities[0]])
    assert model.output_shape == [(None, 7, 2), (None, 2, 7, 7)]
    again = saved_and_loaded(model, tmp_path)
    assert_same(again([IDS, MASK]), model([IDS, MASK]))
    assert "bert/pooler/dense/kernel" in named_variables(again)


@pytest.mark.parametrize("make", [lambda: Parent("init"), Outer])
def test_a_subclass_is_saved(tmp_path, make):
    model = make()
    expected = model(IDS)
    assert_same(saved_and_loaded(model, tmp_path)(IDS), expected)


@pytest.mark.parametrize("kind", ["encoder", "choice"])
def test_a_subclass_that_keras_builds_keeps_its_own_layers(tmp_path, kind):
    model = ParentOfDict(kind)
    batch = features(model.bert) | {"segment_ids": 1 - features(model.bert)["input_mask"]}
    expected = model(batch)
    keras.backend.clear_session()
    assert_same(saved_and_loaded(model, tmp_path)(batch), expected)


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
    input_ids, mask = (
        keras.Input((7,), dtype="int32", name=name) for name in ("input_ids", "input_mask")
    )
    bert = BertModel(config)
    bert.embeddings.trainable = False
    output = keras.layers.Dense(3)(bert(input_ids, mask).pooled_output)
    model = keras.Model({"input_ids": input_ids, "input_mask": mask}, output)
    model.compile(
        keras_optimizer(1e-2, 8, 2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    before = bert.embeddings.word_embeddings.numpy()
    again = saved_and_loaded(fitted(model), tmp_path)
    assert len(again.trainable_variables) == len(model.trainable_variables) < len(model.weights)
    fitted(model), fitted(again)
    assert_same(model.get_weights(), again.get_weights())
    assert_same(model.optimizer.variables, again.optimizer.variables)
    assert int(again.optimizer.iterations) == 4
    np.testing.assert_array_equal(bert.embeddings.word_embeddings.numpy(), before)


def test_the_compute_type_is_kept(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = BertClassifier(CONFIG, 3)
    finally:
        keras.config.set_dtype_policy("float32")
    again = saved_and_loaded(model, tmp_path)
    assert again.bert(IDS).pooled_output.dtype == tf.bfloat16
    assert keras.config.dtype_policy().name == "float32"
    assert again(features(again)).dtype == tf.float32
    assert_same(again(features(again)), model(features(model)))


def test_a_function_in_the_configuration_cannot_be_saved():
    model = BertModel(BertConfig.from_dict(toy.BERT_CONFIG | {"hidden_act": tf.nn.relu}))
    with pytest.raises(InputError, match=r"hidden_act: is a function.*by name"):
        model.get_config()


@pytest.mark.parametrize("kind", ["encoder", "choice", "pretrainer"])
def test_features_are_a_dict_or_keywords(kind):
    model = MODELS[kind]()
    batch = features(model)
    predictions = (
        {"masked_lm_positions": np.int32([[1, 2]] * len(IDS))} if kind == "pretrainer" else {}
    )
    batch |= predictions
    expected = model(*batch.values()) if kind == "encoder" else model.call(batch)
    assert_same(model(batch | {"label_ids": LABELS}), expected)
    assert_same(model(**batch, training=tf.constant(False)), expected)
    assert_same(model(collections.UserDict(batch)), expected)
    symbolic = {
        name: keras.Input(value.shape[1:], dtype="int32", name=name)
        for name, value in batch.items()
    }
    assert_same(keras.Model(symbolic, model(symbolic))(batch), expected)
    if kind == "encoder":
        np.testing.assert_allclose(
            model.predict(batch, verbose=0).pooled_output,
            expected.pooled_output,
            atol=1e-6,
        )
        model.predict(batch | {"my_labels": LABELS}, verbose=0)
        with pytest.raises(InputError, match=r"input_masks: no input .*; did you mean input_mask"):
            model.predict(batch | {"input_masks": MASK}, verbose=0)


WRONG_FEATURES = {
    "classifier": [
        (lambda m: m({"input_ids": IDS}, input_mask=MASK), "input_mask: given beside the features"),
        (
            lambda m: m(input_mask=MASK),
            "the model takes input_ids, .* in a dict or by name; got input_mask$",
        ),
        (lambda m: m(IDS, input_ids=IDS), "input_ids: given twice, with its name and without"),
        (lambda m: m({}), "got nothing$"),
        (
            lambda m: m(IDS, MASK),
            r"training: is an array; give a mask by its name, as in model\(ids, input_mask",
        ),
        (
            lambda m: m(IDS, input_mask=MASK * -10000),
            r"input_mask holds -10000, outside 0 to 1 \(1 for a token",
        ),
        (lambda m: m({"input_ids": IDS, "input_mask": MASK[:, :3]}), "input_mask has shape"),
    ],
    "encoder": [
        (lambda m: m({"input_ids": IDS}, input_mask=MASK), "input_mask: given beside the features"),
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
    for made in (BertModel, BertSpans, lambda config: BertClassifier(config, 2)):
        for config in (None, {}, "base"):
            with pytest.raises(
                TypeError,
                match=r"config: must be a BertConfig, as of BertConfig.from_size.*, got ",
            ):
                made(config)
    with pytest.raises(
        TypeError,
        match=r"^is_training, input_ids: no argument of .* docs/public_names.md",
    ):
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
    answers, expected = loaded.serve(batch), model(batch)
    if kind in ("encoder", "pretrainer", "spans"):
        expected = {
            name: value for name, value in expected._asdict().items() if hasattr(value, "shape")
        }
        assert answers.keys() == expected.keys()
    for one, other in zip(keras.tree.flatten(answers), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "make", "inner"),
    [
        ("encoder", lambda: Parent("init"), lambda model: model.bert),
        ("encoder", Outer, lambda model: model.inner.bert),
        ("classifier", lambda: ParentOfDict("classifier"), lambda model: model.bert),
    ],
)
def test_a_model_within_another_one_loads_a_checkpoint(tmp_path, kind, make, inner):
    source, model = MODELS[kind](), make()
    tf1.write(str(tmp_path / "bert_model.ckpt"), named_variables(source))
    model(features(source) if kind == "classifier" else IDS)
    report = load_checkpoint(inner(model), str(tmp_path))
    assert (sorted(report.matched), report.missing, report.unexpected) == (
        sorted(named_variables(source)),
        [],
        [],
    )
    assert_same(inner(model)(features(source)), source(features(source)))
