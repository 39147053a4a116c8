"""Pre-training with a teacher: what a student learns of it on plain text, and the objective.

B batch   S length   A relation heads   L layers
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import keras
from keras import ops

from official_bert import catalog
from official_bert.checkpoints.names import DISTILLATION
from official_bert.config import BIDIRECTIONAL, BertConfig
from official_bert.extensions.distillation.losses import soft_cross_entropy
from official_bert.extensions.distillation.options import (
    HIDDEN,
    LOGITS,
    RELATIONS,
    PretrainingDistillationOptions,
)
from official_bert.extensions.distillation.teacher import open_teacher, teacher_metadata
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun
from official_bert.io.errors import InputError
from official_bert.modeling import BertPretrainer
from official_bert.modeling.attention import attention_bias
from official_bert.modeling.layers import Scope, float32_weight
from official_bert.modeling.losses import masked_lm_loss
from official_bert.options.training import PretrainingOptions
from official_bert.tasks.pretraining.objective import PretrainingObjective, masked_lm_weights
from official_bert.tasks.pretraining.task import PretrainingTask


class MappedPretrainer(BertPretrainer):
    """BertPretrainer with a linear map from its width to a teacher's, float32[hidden, teacher's
    hidden].

    It begins as the identity, or a part of it. A checkpoint has it as `distillation/hidden`, for a
    resumed training.
    """

    def __init__(self, config: BertConfig, *arguments, teacher_width: int, **keywords):
        self._teacher_width = teacher_width
        super().__init__(config, *arguments, **keywords)

    def build(self, input_shape=None):
        super().build(input_shape)
        self.distillation = Scope(DISTILLATION)
        shape = (self.config.hidden_size, self._teacher_width)
        self.map = float32_weight(self.distillation, "hidden", shape, keras.initializers.Identity())


class PretrainingPlugin(TrainingPlugin):
    """Pre-trains a model on what --distillation says of --teacher, and on the records."""

    def __init__(self, options: PretrainingOptions, config: BertConfig, task: PretrainingTask):
        self._flags = catalog.options_part(options, PretrainingDistillationOptions)
        self._teacher: BertPretrainer | None = None

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        path = self._flags.teacher
        if not path:
            return {}
        teacher = open_teacher(path, run, "pretraining")
        check_teacher(self._flags, run.config, teacher.model, teacher.task.has_masked_lm)
        self._teacher = teacher.model
        if HIDDEN in targets(self._flags):
            width = teacher.model.config.hidden_size
            run.task.trained_class = functools.partial(MappedPretrainer, teacher_width=width)
        return teacher_metadata(path, run.options.output_dir, teacher)

    def wrap_objective(self, objective: PretrainingObjective) -> PretrainingObjective:
        if self._teacher is None:
            return objective
        return DistillationObjective(objective, self._teacher, self._flags)


def targets(flags: PretrainingDistillationOptions) -> list[str]:
    """Returns what is learned of the teacher: --distillation, or its default."""
    return flags.distillation or [LOGITS]


def check_teacher(
    flags: PretrainingDistillationOptions,
    config: BertConfig,
    teacher: BertPretrainer,
    has_masked_lm: bool,
):
    """Raises InputError if a student of this configuration cannot learn what the flags say."""
    teacher_config, names, layer = teacher.config, targets(flags), flags.teacher_layer
    flag = f"--teacher={flags.teacher}"
    if {config.direction, teacher_config.direction} != {BIDIRECTIONAL}:
        raise InputError(
            f"{flag}: only models that read in both directions can teach and learn; leave the flag "
            "out"
        )
    if LOGITS in names and not has_masked_lm:
        raise InputError(
            f"{flag}: has no masked LM head for --distillation={LOGITS}; give {HIDDEN} or "
            f"{RELATIONS}"
        )
    if LOGITS in names and config.vocab_size != teacher_config.vocab_size:
        raise InputError(
            f"{flag}: its vocab_size is {teacher_config.vocab_size}, and {config.vocab_size} of "
            "the student"
        )
    if layer is not None and layer >= teacher_config.num_hidden_layers:
        raise InputError(
            f"--teacher_layer={layer}: the teacher has the layers 0 to "
            f"{teacher_config.num_hidden_layers - 1}"
        )
    heads = flags.relation_heads or teacher_config.num_attention_heads
    widths = config.hidden_size, teacher_config.hidden_size
    if RELATIONS in names and any(width % heads for width in widths):
        raise InputError(
            f"--relation_heads={heads}: does not divide the widths {widths[0]} of the student and "
            f"{widths[1]} of the teacher"
        )


class DistillationObjective(PretrainingObjective):
    """(1 - w) times the loss of pre-training plus w times the sum of the losses of a teacher, over
    the whole update.

    The losses of tokens are means over all that are no padding. The teacher has no dropout and gets
    no gradient.
    """

    def __init__(
        self,
        objective: PretrainingObjective,
        teacher: BertPretrainer,
        flags: PretrainingDistillationOptions,
    ):
        """Adds a teacher to an objective.

        Args:
            objective: the objective of the student without a teacher.
            teacher: the model whose outputs are learned.
            flags: what is learned, and its weight.
        """
        super().__init__(
            objective.pretrainer, objective.batch_size, objective.use_next_sentence_loss
        )
        self._teacher, self._weight = teacher, flags.distillation_weight
        self._temperature = flags.distillation_temperature
        teacher_layer = flags.teacher_layer
        if teacher_layer is None:
            teacher_layer = teacher.config.num_hidden_layers - 1
        self._layers = self.pretrainer.config.num_hidden_layers - 1, teacher_layer
        self._heads = flags.relation_heads or teacher.config.num_attention_heads
        self._losses = {f"{name}_loss": getattr(self, f"_{name}_loss") for name in targets(flags)}
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
        label_loss, sums = self._loss_of(out, features, totals)
        teacher_out = self._teacher(features, training=False)
        shares = {
            name: compute(out, teacher_out, features, totals)
            for name, compute in self._losses.items()
        }
        loss = self._weight * sum(shares.values())
        if self._weight < 1.0:
            loss += (1.0 - self._weight) * label_loss
        return loss, sums | shares | {"loss": loss}

    def _logits_loss(self, out, teacher_out, features: dict, totals: dict):
        logits = ops.stop_gradient(teacher_out.masked_lm_logits)
        losses = soft_cross_entropy(out.masked_lm_logits, logits, self._temperature)
        return masked_lm_loss(
            losses, ops.reshape(masked_lm_weights(features), (-1,)), totals["masked_lm_weight"]
        )

    def _hidden_loss(self, out, teacher_out, features: dict, totals: dict):
        losses = hidden_losses(
            states(out.encoded), states(teacher_out.encoded), self.pretrainer.map
        )
        return ops.sum(losses * ops.cast(features["input_mask"], "float32")) / totals["tokens"]

    def _attention_relations_loss(self, out, teacher_out, features: dict, totals: dict):
        models = zip(
            (self.pretrainer, self._teacher), (out, teacher_out), self._layers, strict=True
        )
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

        mean_m mean_k ((h_m W)_k - t_g(m),k)^2, g(m) = m L' / L rounded down, of layers m = 0 (the embeddings) to L

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
