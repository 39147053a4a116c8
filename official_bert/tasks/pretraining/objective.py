"""Pre-training as an objective: masked LM and next sentence, and their metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from official_bert.modeling import BertPretrainer


class PretrainingObjective:
    """The sum of both losses over the whole update. Devlin et al. (2019), section 3.1."""

    sum_names = (
        "loss",
        "masked_lm_loss",
        "masked_lm_correct",
        "masked_lm_weight",
        "next_sentence_loss",
        "next_sentence_correct",
    )

    def __init__(self, pretrainer: BertPretrainer, batch_size: int):
        """Wraps a model.

        Args:
            pretrainer: the model.
            batch_size: examples of one update, over all replicas.
        """
        self.pretrainer, self.batch_size = pretrainer, batch_size

    def totals(self, features: dict) -> dict:
        """The weights that the masked LM loss divides by."""
        from keras import ops

        return {"masked_lm_weight": ops.sum(features["masked_lm_weights"])}

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """This replica's share of the loss, and sums for the metrics.

        Args:
            features: the seven record features of this replica's part of the batch.
            totals: what `totals` gave, summed over the replicas.
            dropout_seed: int32[2], or None for no dropout.

        Returns:
            float32[] and a dict of float32[]: sums over this replica's examples.
        """
        from keras import ops

        from official_bert.modeling.losses import masked_lm_loss, next_sentence_loss

        out = self.pretrainer(features, training=dropout_seed is not None, dropout_seed=dropout_seed)
        weights = ops.reshape(features["masked_lm_weights"], (-1,))
        word_losses, next_losses = out.masked_lm_example_loss, out.next_sentence_example_loss
        loss = masked_lm_loss(word_losses, weights, totals["masked_lm_weight"])
        loss += next_sentence_loss(next_losses, self.batch_size)

        def correct(logits, labels):
            # Compared with the maximum that the loss needs anyway: Keras' argmax costs a tenth of a small
            # model's step. A label that ties with another counts as found.
            at_label = ops.take_along_axis(logits, ops.reshape(labels, (-1, 1)), axis=-1)[:, 0]
            return ops.cast(at_label >= ops.max(logits, axis=-1), "float32")

        return loss, {
            "loss": loss,
            "masked_lm_loss": ops.sum(word_losses * weights),
            "masked_lm_correct": ops.sum(correct(out.masked_lm_logits, features["masked_lm_ids"]) * weights),
            "masked_lm_weight": ops.sum(weights),
            "next_sentence_loss": ops.sum(next_losses),
            "next_sentence_correct": ops.sum(
                correct(out.next_sentence_logits, features["next_sentence_labels"])
            ),
        }

    def metrics(self, sums: dict[str, float], num_batches: int) -> dict[str, float]:
        """The original's metrics from sums over some batches.

        `loss` is the mean of the batches' losses; the others are means over predictions and examples, so `loss`
        need not be exactly the sum of the two.

        Args:
            sums: of `loss`, over all batches and replicas.
            num_batches: how many batches they are of.
        """
        weight, examples = sums["masked_lm_weight"], num_batches * self.batch_size
        return {
            "loss": sums["loss"] / num_batches,
            "masked_lm_accuracy": sums["masked_lm_correct"] / weight if weight else 0.0,
            "masked_lm_loss": sums["masked_lm_loss"] / weight if weight else 0.0,
            "next_sentence_accuracy": sums["next_sentence_correct"] / examples,
            "next_sentence_loss": sums["next_sentence_loss"] / examples,
        }
