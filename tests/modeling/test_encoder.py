"""Layers that are computed again in the backward pass give the same gradients, with the same dropout."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig
from official_bert.checkpoints import named_variables
from official_bert.modeling import BertPretrainer
from tests import toy


def test_no_two_dropouts_share_a_mask():
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 3})
    layers = BertPretrainer(config).bert.encoder.stack
    parts = [part for layer in layers for part in (layer.attention, layer.attention.merge, layer.merge)]
    assert len({0, *(part.dropout_index for part in parts)}) == 10, "0 is that of the embeddings"


@pytest.mark.parametrize(("jit_compile", "num_layers"), [(False, 2), (True, 1)])
def test_computing_again_changes_no_gradient(jit_compile, num_layers):
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": num_layers})
    keeping = BertPretrainer(config)
    recomputing = BertPretrainer(config, recompute_layers=True)
    recomputing.set_weights(keeping.get_weights())
    ids = np.random.default_rng(0).integers(1, len(toy.VOCABULARY), (4, 16), dtype=np.int32)
    features = {"input_ids": ids, "masked_lm_positions": np.array([[1, 3]] * 4, np.int32)}

    def gradients(model):
        variables = {name: variable.value for name, variable in named_variables(model).items()}

        @tf.function(jit_compile=jit_compile)
        def compute():
            with tf.GradientTape() as tape:
                out = model(features, training=True, dropout_seed=tf.constant([1, 2]))
                loss = tf.reduce_sum(out.masked_lm_logits**2) + tf.reduce_sum(out.next_sentence_logits)
            found = tape.gradient(loss, variables)
            return {name: tf.convert_to_tensor(found[name]) for name in variables}

        return {name: value.numpy() for name, value in compute().items()}

    kept, again = gradients(keeping), gradients(recomputing)
    for name, gradient in kept.items():
        np.testing.assert_allclose(again[name], gradient, atol=2e-6, rtol=1e-5, err_msg=name)
    assert np.abs(kept["bert/encoder/layer_0/attention/self/query/kernel"]).max() > 1e-6
