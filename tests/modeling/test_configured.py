"""The models as parts of Keras: the calling context, functional models, `fit`, and files that hold all of a model."""

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
)
from official_bert.checkpoints import load_checkpoint, named_variables, tf1
from tests import toy

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG)
IDS = np.random.default_rng(1).integers(5, len(toy.VOCABULARY), (6, 7)).astype(np.int32)
MASK = (np.arange(7) < [[7], [4], [7], [5], [6], [7]]).astype(np.int32)
LABELS = np.int32([0, 1, 2, 0, 1, 2])


@keras.saving.register_keras_serializable(package="test")
class Parent(keras.Model):
    """A user's model around the encoder; `when` is the method in which the encoder is made."""

    def __init__(self, when="init", encoder="bert", **arguments):
        super().__init__(**arguments)
        self.when, self.encoder = when, encoder
        if when == "init":
            self.bert = BertModel(CONFIG, name=encoder)
        self.head = keras.layers.Dense(3)

    def build(self, input_shape):
        if self.when == "build":
            self.bert = BertModel(CONFIG, name=self.encoder)
        self.head.build((None, CONFIG.hidden_size))

    def call(self, input_ids):
        return self.head(self.bert(input_ids).pooled_output)

    def get_config(self):
        return super().get_config() | {"when": self.when, "encoder": self.encoder}


@keras.saving.register_keras_serializable(package="test")
class ParentOfDict(keras.Model):
    """A user's model without a `build`, which Keras builds by a call with float32 in the place of every input."""

    def __init__(self, kind="encoder", **arguments):
        super().__init__(**arguments)
        self.kind = kind
        self.bert = MODELS[kind]() if kind in MODELS else BertModel(CONFIG)
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
        self.inner = Parent("build", "encoder_a", name="parent")
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


@pytest.mark.parametrize("when", ["init", "build"])
def test_dropout_follows_the_calling_context(when):
    model = Parent(when)
    assert is_random(model, IDS, training=True)
    assert not is_random(model, IDS, training=False)
    assert not is_random(model, IDS)


def test_a_call_may_differ_from_its_context():
    class Frozen(keras.Model):
        def __init__(self):
            super().__init__()
            self.bert = BertModel(CONFIG)

        def call(self, input_ids):
            return self.bert(input_ids, training=False).pooled_output

    assert not is_random(Frozen(), IDS, training=True)


def test_dropout_of_a_functional_model_follows_the_context():
    input_ids = keras.Input((None,), dtype="int32")
    model = keras.Model(input_ids, BertModel(CONFIG)(input_ids).pooled_output)
    assert is_random(model, IDS, training=True)
    assert not is_random(model, IDS)
    classifier = keras.Model(input_ids, BertClassifier(CONFIG, 3)({"input_ids": input_ids}))
    assert is_random(classifier, IDS, training=True)
    assert not is_random(classifier, IDS)


MODELS = {
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


def test_an_encoder_is_saved_too(tmp_path):
    model = BertModel(CONFIG, name="mine")
    again = saved_and_loaded(model, tmp_path)
    assert_same(again(IDS, MASK), model(IDS, MASK))
    twin = keras.models.clone_model(model)
    assert twin.name == "mine"
    assert np.abs(twin.weights[0].numpy() - model.weights[0].numpy()).max() > 1e-3, "with weights of its own"


@pytest.mark.parametrize("given", [("input_ids",), ("input_ids", "input_mask"), ("input_ids", "segment_ids")])
@pytest.mark.parametrize("kind", ["classifier", "choice"])
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
    output = BertModel(CONFIG)(input_ids, input_mask=mask).sequence_output
    model = keras.Model([input_ids, mask], keras.layers.Dense(2, name="scores")(output))
    assert model.output_shape == (None, 7, 2)
    again = saved_and_loaded(model, tmp_path)
    assert_same(again([IDS, MASK]), model([IDS, MASK]))
    assert "bert/pooler/dense/kernel" in named_variables(again)


def test_a_functional_model_gives_attentions(tmp_path):
    input_ids = keras.Input((7,), dtype="int32")
    out = BertModel(CONFIG)(input_ids, output_attentions=True)
    model = keras.Model(input_ids, out.all_attention_probabilities[0])
    probabilities = saved_and_loaded(model, tmp_path)(IDS)
    assert_same(probabilities, model(IDS))
    np.testing.assert_allclose(np.sum(probabilities, axis=-1), np.ones((6, 2, 7)), rtol=1e-5)


@pytest.mark.parametrize("make", [lambda: Parent("init"), lambda: Parent("build"), Outer])
def test_a_subclass_is_saved(tmp_path, make):
    model = make()
    expected = model(IDS)
    assert_same(saved_and_loaded(model, tmp_path)(IDS), expected)


@pytest.mark.parametrize("kind", ["encoder", "classifier", "choice"])
def test_a_subclass_that_keras_builds_keeps_its_own_layers(tmp_path, kind):
    model = ParentOfDict(kind)
    batch = features(model.bert) | {"segment_ids": 1 - features(model.bert)["input_mask"]}
    expected = model(batch)
    keras.backend.clear_session()
    assert_same(saved_and_loaded(model, tmp_path)(batch), expected)


def test_a_subclass_that_keras_builds_keeps_its_training(tmp_path):
    model = ParentOfDict("classifier")
    model.compile(keras_optimizer(1e-2, 8, 2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = {"input_ids": IDS, "input_mask": MASK}
    model.fit(batch, LABELS, batch_size=3, verbose=0)
    again = saved_and_loaded(model, tmp_path)
    assert_same(again(batch), model(batch))
    assert_same(again.optimizer.variables, model.optimizer.variables)


def test_a_compiled_step_refuses_float_ids():
    with pytest.raises(InputError, match="input_ids must be whole numbers, got float32"):
        MODELS["classifier"]().predict({"input_ids": IDS + 0.5}, verbose=0)


def test_training_goes_on_after_loading(tmp_path):
    """Two epochs, or one, a file and another one: the weights and the slots are the same, frozen layers stay so."""

    def fitted(model):
        model.fit({"input_ids": IDS, "input_mask": MASK}, LABELS, batch_size=3, shuffle=False, verbose=0)
        return model

    config = BertConfig.from_dict(
        toy.BERT_CONFIG | {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    )
    input_ids, mask = (keras.Input((7,), dtype="int32", name=name) for name in ("input_ids", "input_mask"))
    bert = BertModel(config)
    bert.embeddings.trainable = False
    output = keras.layers.Dense(3)(bert(input_ids, mask).pooled_output)
    model = keras.Model({"input_ids": input_ids, "input_mask": mask}, output)
    model.compile(keras_optimizer(1e-2, 8, 2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
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


@pytest.mark.parametrize("kind", ["encoder", "classifier", "choice", "spans", "pretrainer"])
def test_features_are_a_dict_or_keywords(kind):
    model = BertModel(CONFIG) if kind == "encoder" else MODELS[kind]()
    batch = features(model)
    if kind == "pretrainer":
        batch["masked_lm_positions"] = np.int32([[1, 2]] * len(IDS))
    expected = model(*batch.values()) if kind == "encoder" else model.call(batch)
    assert_same(model(batch | {"labels": LABELS}), expected)
    assert_same(model(**batch), expected)


def test_an_encoder_predicts_for_a_dict():
    model = BertModel(CONFIG)
    predicted = model.predict({"input_ids": IDS, "input_mask": MASK}, verbose=0)
    np.testing.assert_allclose(predicted.pooled_output, model(IDS, MASK).pooled_output, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "positional", "keywords", "message"),
    [
        ("classifier", ({"input_ids": IDS},), {"input_mask": MASK}, "input_mask: given beside the features"),
        (
            "classifier",
            (),
            {"attention_mask": MASK},
            "attention_mask: no argument of the model; it takes input_ids,",
        ),
        ("classifier", (), {"input_mask": MASK}, "takes a dict of features.*got input_mask$"),
        ("encoder", ({"input_ids": IDS},), {"input_mask": MASK}, "input_mask: given beside the features"),
        ("encoder", ({"input_mask": IDS},), {}, "takes a dict of features.*got input_mask$"),
    ],
)
def test_features_in_two_ways_or_none_are_refused(make, positional, keywords, message):
    model = BertModel(CONFIG) if make == "encoder" else MODELS[make]()
    with pytest.raises(InputError, match=message):
        model(*positional, **keywords)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (IDS, "takes a dict of features with input_ids, input_mask, segment_ids.*got ndarray"),
        ({"ids": IDS}, "got ids$"),
        ({}, "got an empty one$"),
        ({"input_ids": IDS, "input_mask": MASK[:, :3]}, "input_mask has shape"),
    ],
)
def test_wrong_features_are_refused_in_one_sentence(wrong, message):
    with pytest.raises(InputError, match=message) as refusal:
        MODELS["classifier"]()(wrong)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "make", [lambda: Parent("init"), lambda: Parent("build"), lambda: Parent("build", "encoder_a"), Outer]
)
def test_the_encoder_of_another_model_loads_a_checkpoint(tmp_path, make):
    source = BertModel(CONFIG)
    tf1.write(str(tmp_path / "bert_model.ckpt"), named_variables(source))
    model = make()
    model(IDS)
    bert = model.bert if isinstance(model, Parent) else model.inner.bert
    report = load_checkpoint(bert, str(tmp_path))
    assert (sorted(report.matched), report.missing) == (sorted(named_variables(source)), [])
    assert_same(bert(IDS).pooled_output, source(IDS).pooled_output)


def test_a_task_model_of_another_model_loads_a_checkpoint(tmp_path):
    class Two(keras.Model):
        def build(self, input_shape=None):
            self.first, self.second = (
                BertClassifier(CONFIG, 3, name="first"),
                BertSpans(CONFIG, name="second"),
            )

    for source, name in ((BertClassifier(CONFIG, 3), "first"), (BertSpans(CONFIG), "second")):
        tf1.write(str(tmp_path / "bert_model.ckpt"), named_variables(source))
        model = Two(name="outer")
        model.build()
        report = load_checkpoint(getattr(model, name), str(tmp_path))
        assert report.missing == report.unexpected == []
