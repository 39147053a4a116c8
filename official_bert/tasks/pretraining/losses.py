"""What a student learns of a teacher on plain text, and the objective that adds it to that of
pre-training.

B batch   S length   A relation heads   L layers
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import keras
from keras import ops

from official_bert.checkpoints.names import DISTILLATION
from official_bert.config import BIDIRECTIONAL, BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling import BertPretrainer
from official_bert.modeling.attention import attention_bias
from official_bert.modeling.layers import Scope, float32_weight
from official_bert.modeling.losses import masked_lm_loss, soft_cross_entropy
from official_bert.options.training import HIDDEN, LOGITS, RELATIONS
from official_bert.tasks.base import Settings
from official_bert.tasks.pretraining.objective import PretrainingObjective, masked_lm_weights


class MappedPretrainer(BertPretrainer):
    """BertPretrainer with a linear map from its width to a teacher's, float32[hidden, teacher's
    hidden].

    It begins as the identity, or a part of it. A checkpoint has it as `distillation/hidden`, for a
    resumed training.
    """

    def __init__(self, config: BertConfig, teacher_width: int, *arguments, **keywords):
        self._teacher_width = teacher_width
        super().__init__(config, *arguments, **keywords)

    def build(self, input_shape=None):
        super().build(input_shape)
        self.distillation = Scope(DISTILLATION)
        shape = (self.config.hidden_size, self._teacher_width)
        self.map = float32_weight(self.distillation, "hidden", shape, keras.initializers.Identity())


def check_teacher(
    flags: Settings, config: BertConfig, teacher: BertPretrainer, has_masked_lm: bool
):
    """Raises InputError if a student of this configuration cannot learn what the flags say."""
    chosen, theirs, layer = flags["distillation"], teacher.config, flags["teacher_layer"]
    name = f"--teacher={flags['teacher']}"
    if {config.direction, theirs.direction} != {BIDIRECTIONAL}:
        raise InputError(
            f"{name}: only models that read in both directions can teach and learn; leave the flag "
            "out"
        )
    if LOGITS in chosen and not has_masked_lm:
        raise InputError(
            f"{name}: has no masked LM head for --distillation={LOGITS}; give {HIDDEN} or "
            f"{RELATIONS}"
        )
    if LOGITS in chosen and config.vocab_size != theirs.vocab_size:
        raise InputError(
            f"{name}: its vocab_size is {theirs.vocab_size}, and {config.vocab_size} of the student"
        )
    if layer is not None and layer >= theirs.num_hidden_layers:
        raise InputError(
            f"--teacher_layer={layer}: the teacher has the layers 0 to "
            f"{theirs.num_hidden_layers - 1}"
        )
    heads = flags["relation_heads"] or theirs.num_attention_heads
    if RELATIONS in chosen and (config.hidden_size % heads or theirs.hidden_size % heads):
        raise InputError(
            f"--relation_heads={heads}: does not divide the widths {config.hidden_size} of the "
            f"student and {theirs.hidden_size} of the teacher"
        )


class DistillationObjective(PretrainingObjective):
    """(1 - w) times the loss of pre-training plus w times the sum of the losses of a teacher, over
    the whole update.

    The losses of tokens are means over all that are no padding. The teacher has no dropout and gets
    no gradient.
    """

    def __init__(self, pretrainer: BertPretrainer, teacher: BertPretrainer, flags: Settings):
        """Wraps both models; `flags` are those of run_pretraining.py."""
        super().__init__(pretrainer, flags["train_batch_size"], flags["use_next_sentence"])
        self._teacher, self._weight = teacher, flags["distillation_weight"]
        self._temperature = flags["distillation_temperature"]
        layer, last = flags["teacher_layer"], teacher.config.num_hidden_layers - 1
        self._layers = pretrainer.config.num_hidden_layers - 1, last if layer is None else layer
        self._heads = flags["relation_heads"] or teacher.config.num_attention_heads
        self._losses = {
            f"{name}_loss": getattr(self, f"_{name}_loss") for name in flags["distillation"]
        }
        self.sum_names = (*self.sum_names, *self._losses)
        self.tensorboard_only = (*self.tensorboard_only, *self._losses)

    def totals(self, features: dict) -> dict:
        """Returns the denominators: of the masked words' losses, and the number of tokens."""
        return super().totals(features) | {
            "tokens": ops.sum(ops.cast(features["input_mask"], "float32"))
        }

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        out = self.pretrainer(
            features, training=dropout_seed is not None, dropout_seed=dropout_seed
        )
        own, sums = self._loss_of(out, features, totals)
        taught = self._teacher(features, training=False)
        shares = {
            name: of_teacher(out, taught, features, totals)
            for name, of_teacher in self._losses.items()
        }
        loss = self._weight * sum(shares.values())
        if self._weight < 1.0:
            loss += (1.0 - self._weight) * own
        return loss, sums | shares | {"loss": loss}

    def _logits_loss(self, out, taught, features: dict, totals: dict):
        logits = ops.stop_gradient(taught.masked_lm_logits)
        losses = soft_cross_entropy(out.masked_lm_logits, logits, self._temperature)
        return masked_lm_loss(
            losses, ops.reshape(masked_lm_weights(features), (-1,)), totals["masked_lm_weight"]
        )

    def _hidden_loss(self, out, taught, features: dict, totals: dict):
        losses = hidden_losses(states(out.encoded), states(taught.encoded), self.pretrainer.map)
        return ops.sum(losses * ops.cast(features["input_mask"], "float32")) / totals["tokens"]

    def _attention_relations_loss(self, out, taught, features: dict, totals: dict):
        models = zip((self.pretrainer, self._teacher), (out, taught), self._layers, strict=True)
        losses = relation_losses(
            *(projections(*one) for one in models), self._heads, features["input_mask"]
        )
        return ops.sum(losses * ops.cast(features["input_mask"], "float32")) / totals["tokens"]

    def _means(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        num_batches = num_examples / self.batch_size
        return super()._means(sums, num_examples) | {
            name: sums[name] / num_batches for name in self._losses
        }


def states(encoded) -> list:
    """Returns the embeddings and the outputs of all layers of a BertOutput, float32[B, S,
    hidden] each.
    """
    return [
        ops.cast(one, "float32") for one in (encoded.embedding_output, *encoded.all_encoder_layers)
    ]


def hidden_losses(ours: Sequence, theirs: Sequence, kernel):
    """Returns the mean squared difference of mapped states and those of a teacher, float32[B, S].

        mean_m mean_k ((h_m W)_k - t_g(m),k)^2, g(m) = m L' / L rounded down, of layers m = 0 (the
        embeddings) to L

    L and L' are the numbers of layers of student and teacher. Source: Jiao et al., TinyBERT (2020),
    equations 8 and 9, with one W for both.
    """
    last, count = len(theirs) - 1, len(ours) - 1
    pairs = [
        (one, ops.stop_gradient(theirs[number * last // count])) for number, one in enumerate(ours)
    ]
    return sum(
        ops.mean(ops.square(ops.matmul(one, kernel) - other), axis=-1) for one, other in pairs
    ) / len(pairs)


def projections(model: BertPretrainer, out, number: int) -> list:
    """Returns the queries, keys and values of a layer, float32[B, S, hidden] each."""
    heads, x = model.bert.encoder.stack[number].attention.heads, states(out.encoded)[number]
    return [ops.cast(layer(x), "float32") for layer in (heads.query, heads.key, heads.value)]


def relation_losses(ours: Collection, theirs: Collection, num_heads: int, input_mask):
    """Returns how far relations are from a teacher's, float32[B, S], of queries, keys and values,
    [B, S, hidden] each.

        sum over Q, K, V of mean_a KL(R'_a || R_a), R_a = softmax(X_a X_a^T / sqrt(d))

    X_a is the part of relation head a, d wide, and R' the teacher's. Source: Wang et al., MiniLMv2
    (2021), section 3.
    """
    bias = attention_bias(input_mask)

    def scores(x):
        parts = ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))
        parts = ops.transpose(parts, (0, 2, 1, 3))  # [B, A, S, d]
        return (
            ops.matmul(parts, ops.transpose(parts, (0, 1, 3, 2))) * parts.shape[-1] ** -0.5 + bias
        )

    pairs = zip(ours, theirs, strict=True)
    apart = [
        soft_cross_entropy(scores(one), ops.stop_gradient(scores(other))) for one, other in pairs
    ]
    return ops.mean(sum(apart), axis=1)
