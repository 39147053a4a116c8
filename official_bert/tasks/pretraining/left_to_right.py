"""The objective of a left-to-right language model: each token predicts the next. Devlin et al. (2019), section 5.1.

In: the records of the masked LM, whose masked words are put back. Out: losses and metrics. Next sentences are
not learnt, as in the paper's "LTR & No NSP".
"""

from __future__ import annotations

from keras import ops

from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.modeling import BertPretrainer
from official_bert.modeling.inputs import checked_ids
from official_bert.modeling.losses import cross_entropy, masked_lm_loss
from official_bert.tasks.pretraining.objective import is_correct


class LeftToRightObjective:
    """The mean loss of the next token over all tokens of an update but the first of each sequence."""

    sum_names = ("loss", "next_token_loss", "next_token_correct", "next_token_weight")

    def __init__(self, pretrainer: BertPretrainer, batch_size: int):
        """Wraps a model.

        Args:
            pretrainer: a model whose attention goes from left to right; its masked LM head predicts.
            batch_size: examples of one update, over all replicas.
        """
        self.pretrainer, self.batch_size = pretrainer, batch_size

    def totals(self, features: dict) -> dict:
        """Returns the number of the predicted tokens, the denominator of the loss."""
        return {"next_token_weight": ops.sum(_weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """Returns this replica's share of the loss, and the sums for the metrics.

        Args:
            features: the seven record features of this replica's part of the batch.
            totals: the results of `totals`, summed over the replicas.
            dropout_seed: int32[2], or None for no dropout.

        Returns:
            float32[] and a dict of float32[]: sums over this replica's examples.

        Raises:
            InputError: in eager calls, a masked word lies outside the vocabulary.
        """
        ids = unmasked_ids(features, self.pretrainer.config.vocab_size)  # [B, S]
        batch, length = ops.shape(ids)
        inputs = {name: features[name] for name in ENCODER_INPUTS} | {"input_ids": ids}
        inputs[MASKED_LM_POSITIONS] = ops.broadcast_to(
            ops.arange(length - 1, dtype="int32"), (batch, length - 1)
        )
        out = self.pretrainer(inputs, training=dropout_seed is not None, dropout_seed=dropout_seed)
        logits, words = out.masked_lm_logits, ops.reshape(ids[:, 1:], (-1,))  # [B*(S-1), V], [B*(S-1)]
        losses, weights = cross_entropy(logits, words), ops.reshape(_weights(features), (-1,))
        loss = masked_lm_loss(losses, weights, totals["next_token_weight"])
        return loss, {
            "loss": loss,
            "next_token_loss": ops.sum(losses * weights),
            "next_token_correct": ops.sum(is_correct(logits, words) * weights),
            "next_token_weight": ops.sum(weights),
        }

    def metrics(self, sums: dict[str, float], num_batches: int) -> dict[str, float]:
        """Returns the mean of the batches' losses, and the means over the tokens.

        Args:
            sums: the sums that `loss` returns, over all batches and replicas.
            num_batches: the number of these batches.
        """
        return {"loss": sums["loss"] / num_batches, **_means(sums)}

    def metrics_of_all(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        """Returns the metrics of a whole set of `num_examples` examples as if it were one batch."""
        means = _means(sums)
        return {"loss": means["next_token_loss"], **means}


def unmasked_ids(features: dict, vocab_size: int):
    """Returns the ids of the text, int32[B, S], with the masked words in their places again."""
    ids = ops.cast(features["input_ids"], "int32")
    positions = ops.cast(features[MASKED_LM_POSITIONS], "int32")  # [B, P]
    words = checked_ids("masked_lm_ids", features["masked_lm_ids"], vocab_size, "vocab_size")
    # Padding predicts nothing: it puts back what is in its place.
    there = ops.take_along_axis(ids, positions, axis=1)
    words = ops.where(ops.convert_to_tensor(features["masked_lm_weights"]) > 0, words, there)
    rows = ops.broadcast_to(ops.arange(ops.shape(ids)[0], dtype="int32")[:, None], ops.shape(positions))
    return ops.scatter_update(ids, ops.stack([rows, positions], axis=-1), words)


def _weights(features: dict):
    """Float32[B, S-1], 1.0 where the next position holds a token and 0.0 where it holds padding."""
    return ops.cast(ops.convert_to_tensor(features["input_mask"])[:, 1:], "float32")


def _means(sums: dict[str, float]) -> dict[str, float]:
    weight = sums["next_token_weight"]
    return {
        "next_token_accuracy": sums["next_token_correct"] / weight if weight else 0.0,
        "next_token_loss": sums["next_token_loss"] / weight if weight else 0.0,
    }
