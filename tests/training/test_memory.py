"""Models that are no longer used leave the memory, whatever private names TensorFlow has."""

import gc
import weakref

import keras
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.modeling import BertClassifier
from official_bert.training import memory
from tests import toy


def traced_model():
    """A model whose gelu has registered its gradient in a graph."""
    model = BertClassifier(BertConfig.from_dict(toy.BERT_CONFIG), 2)
    ids = tf.ones([1, 4], tf.int32)

    @tf.function
    def gradients(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model({"input_ids": ids, "input_mask": ids, "segment_ids": ids}))
        return tape.gradient(loss, [model.output_weights.value])

    gradients(ids)
    return weakref.ref(model.output_weights)


def test_the_weights_of_a_model_are_freed():
    weights = traced_model()
    gc.collect()
    memory.forget_models()
    gc.collect()
    assert weights() is None


def test_a_tensorflow_without_the_private_table_is_a_warning(monkeypatch, caplog):
    from tensorflow.python.framework import ops

    monkeypatch.delattr(ops, "gradient_registry")
    memory.forget_models()
    assert "keeps every model of a search in memory" in caplog.text
    assert keras.backend.backend() == "tensorflow"
