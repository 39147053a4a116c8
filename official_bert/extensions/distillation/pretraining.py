"""Pre-training with a teacher: the losses against its outputs on plain text, and the objective.

B batch   S length   A relation heads   L layers
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
from official_bert.modeling import BertPretrainer, vocabulary_loss
from official_bert.modeling.attention import attention_bias
from official_bert.modeling.bert import BertOutput
from official_bert.modeling.layers import Scope, float32_weight
from official_bert.modeling.losses import masked_lm_loss
from official_bert.modeling.task_models import PretrainingOutput
from official_bert.options.training import PretrainingOptions
from official_bert.tasks.pretraining.objective import (
    PretrainingObjective,
    masked_lm_weights,
    score_logits,
)
from official_bert.tasks.pretraining.task import PretrainingTask

Tensor = Any  # A tensor of Keras; docstrings have its shape.


class MappedPretrainer(BertPretrainer):
    """BertPretrainer with a linear map from its width to a teacher's, float32[hidden, teacher's
    hidden].

    The map begins as the identity, or a part of it. A checkpoint has it as `distillation/hidden`,
    for a resumed training.
    """

    def __init__(self, config: BertConfig, *arguments: Any, teacher_width: int, **keywords: Any):
        """Builds the model.

        Args:
            config: the sizes of the student.
            *arguments: further arguments of BertPretrainer.
            teacher_width: the hidden size of the teacher.
            **keywords: further arguments of BertPretrainer.
        """
        self._teacher_width = teacher_width
        super().__init__(config, *arguments, **keywords)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the heads and of the map; the input shape does not matter."""
        super().build(input_shape)
        self.distillation = Scope(DISTILLATION)
        shape = (self.config.hidden_size, self._teacher_width)
        self.map = float32_weight(self.distillation, "hidden", shape, keras.initializers.Identity())


class PretrainingPlugin(TrainingPlugin):
    """Pre-trains a model on the records, and on the states of --teacher in --distillation."""

    def __init__(self, options: PretrainingOptions, config: BertConfig, task: PretrainingTask):
        """Reads the flags of the extension.

        Args:
            options: the flags of the run.
            config: the configuration of the student.
            task: the task.
        """
        self._flags = catalog.options_part(options, PretrainingDistillationOptions)
        self._task = task
        self._teacher: BertPretrainer | None = None

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Open the teacher; return its fields for run.jsonl."""
        path = self._flags.teacher
        if not path:
            return {}
        assert isinstance(run.options, PretrainingOptions)
        teacher = open_teacher(path, run, run.options.max_seq_length, "pretraining")
        assert isinstance(teacher.task, PretrainingTask)
        assert isinstance(teacher.model, BertPretrainer)
        check_teacher(self._flags, run.config, teacher.model, teacher.task.has_masked_lm)
        self._teacher = teacher.model
        if HIDDEN in list_targets(self._flags):
            width = teacher.model.config.hidden_size
            self._task.trained_class = functools.partial(MappedPretrainer, teacher_width=width)
        return teacher_metadata(path, run.options.output_dir, teacher)

    def wrap_objective(self, objective: PretrainingObjective) -> PretrainingObjective:
        """Return the objective with the losses against the teacher."""
        if self._teacher is None:
            return objective
        return DistillationObjective(objective, self._teacher, self._flags)


def list_targets(flags: PretrainingDistillationOptions) -> list[str]:
    """Return the outputs and states of the teacher that the student learns.

    Args:
        flags: the flags of the extension.

    Returns:
        The names in --distillation, or its default.
    """
    return flags.distillation or [LOGITS]


def check_teacher(
    flags: PretrainingDistillationOptions,
    config: BertConfig,
    teacher: BertPretrainer,
    has_masked_lm: bool,
) -> None:
    """Reject a teacher from which a student of this configuration cannot learn the targets.

    Args:
        flags: the flags of the extension.
        config: the configuration of the student.
        teacher: the model of the teacher.
        has_masked_lm: whether the teacher's masked LM head is trained.

    Raises:
        InputError: the student cannot learn.
    """
    teacher_config = teacher.config
    names = list_targets(flags)
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
            f"the student; give --distillation={HIDDEN} or {RELATIONS}, or another teacher"
        )
    layer = flags.teacher_layer
    if layer is not None and layer >= teacher_config.num_hidden_layers:
        last_layer = teacher_config.num_hidden_layers - 1
        raise InputError(
            f"--teacher_layer={layer}: the teacher has the layers 0 to {last_layer}; give one of "
            "these"
        )
    num_heads = flags.relation_heads or teacher_config.num_attention_heads
    width = config.hidden_size
    teacher_width = teacher_config.hidden_size
    if RELATIONS in names and (width % num_heads or teacher_width % num_heads):
        raise InputError(
            f"--relation_heads={num_heads}: does not divide the widths {width} of the student and "
            f"{teacher_width} of the teacher; give a divisor of both"
        )


class DistillationObjective(PretrainingObjective):
    """(1 - w) times the loss of pre-training plus w times the sum of the losses of a teacher.

    The losses are those of the whole update. The losses of tokens are means over all tokens that
    are no padding. The teacher has no dropout and gets no gradient.
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
            teacher: the model of the teacher.
            flags: the targets and their weight.
        """
        super().__init__(
            objective.pretrainer, objective.batch_size, objective.use_next_sentence_loss
        )
        self._teacher = teacher
        self._weight = flags.distillation_weight
        self._temperature = flags.distillation_temperature
        self._layer = self.pretrainer.config.num_hidden_layers - 1
        last_layer = teacher.config.num_hidden_layers - 1
        self._teacher_layer = last_layer if flags.teacher_layer is None else flags.teacher_layer
        self._num_heads = flags.relation_heads or teacher.config.num_attention_heads
        functions = {
            LOGITS: self._logits_loss,
            HIDDEN: self._hidden_loss,
            RELATIONS: self._relations_loss,
        }
        self._needs_logits = LOGITS in list_targets(flags)
        self._losses = {f"{name}_loss": functions[name] for name in list_targets(flags)}
        self.sum_names = (*self.sum_names, *self._losses)
        self.tensorboard_only = (*self.tensorboard_only, *self._losses)

    def totals(self, features: dict) -> dict:
        """Return the denominators of the losses of masked words and of tokens.

        Args:
            features: the features of a batch.

        Returns:
            The denominators by name.
        """
        mask = ops.cast(features["input_mask"], "float32")
        return super().totals(features) | {"tokens": ops.sum(mask)}

    def loss(self, features: dict, totals: dict, dropout_seed: Tensor | None) -> tuple:
        """Return this replica's share of the loss, and the sums over its examples.

        Args:
            features: the features of a batch.
            totals: the denominators of the whole update.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The loss, float32[], and the sums by name.
        """
        out = self.pretrainer(
            features, training=dropout_seed is not None, dropout_seed=dropout_seed
        )
        label_loss, sums = self._compute_loss(out, features, totals)
        teacher_out = self._teacher(features, training=False)
        shares = {}
        for name, compute in self._losses.items():
            shares[name] = compute(out, teacher_out, features, totals)
        loss = self._weight * sum(shares.values())
        if self._weight < 1.0:
            loss += (1.0 - self._weight) * label_loss
        return loss, sums | shares | {"loss": loss}

    def _score_words(
        self, out: PretrainingOutput, features: dict, words: Tensor
    ) -> vocabulary_loss.WordScores:
        # The loss of the logits needs the logits anyway.
        if self._needs_logits:
            return score_logits(out.masked_lm_logits, words)
        return super()._score_words(out, features, words)

    def _logits_loss(
        self, out: PretrainingOutput, teacher_out: PretrainingOutput, features: dict, totals: dict
    ) -> Tensor:
        teacher_logits = ops.stop_gradient(teacher_out.masked_lm_logits)
        losses = soft_cross_entropy(out.masked_lm_logits, teacher_logits, self._temperature)
        weights = ops.reshape(masked_lm_weights(features), (-1,))
        return masked_lm_loss(losses, weights, totals["masked_lm_weight"])

    def _hidden_loss(
        self, out: PretrainingOutput, teacher_out: PretrainingOutput, features: dict, totals: dict
    ) -> Tensor:
        losses = hidden_losses(
            states(out.encoded), states(teacher_out.encoded), self.pretrainer.map
        )
        return ops.sum(losses * ops.cast(features["input_mask"], "float32")) / totals["tokens"]

    def _relations_loss(
        self, out: PretrainingOutput, teacher_out: PretrainingOutput, features: dict, totals: dict
    ) -> Tensor:
        losses = relation_losses(
            projections(self.pretrainer, out, self._layer),
            projections(self._teacher, teacher_out, self._teacher_layer),
            self._num_heads,
            features["input_mask"],
        )
        return ops.sum(losses * ops.cast(features["input_mask"], "float32")) / totals["tokens"]

    def _means(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        num_batches = num_examples / self.batch_size
        means = super()._means(sums, num_examples)
        for name in self._losses:
            means[name] = sums[name] / num_batches
        return means


def states(encoded: BertOutput) -> list[Tensor]:
    """Return the embeddings and the outputs of all layers.

    Args:
        encoded: the outputs of an encoder.

    Returns:
        float32[B, S, hidden] each.
    """
    layers = (encoded.embedding_output, *encoded.all_encoder_layers)
    return [ops.cast(layer, "float32") for layer in layers]


def hidden_losses(ours: Sequence[Tensor], theirs: Sequence[Tensor], kernel: Tensor) -> Tensor:
    """Return the mean squared difference of mapped states and those of a teacher.

        mean_m mean_k ((h_m W)_k - t_g(m),k)^2, g(m) = m L' / L rounded down, m = 0 to L

    L and L' are the numbers of layers of student and teacher; layer 0 is the embeddings. Source:
    Jiao et al., TinyBERT (2020), equations 8 and 9, with one W for both.

    Args:
        ours: the states of the student, float32[B, S, hidden] each.
        theirs: the states of the teacher, float32[B, S, teacher's hidden] each.
        kernel: W, float32[hidden, teacher's hidden].

    Returns:
        float32[B, S].
    """
    last = len(theirs) - 1
    count = len(ours) - 1
    total = 0
    for number, state in enumerate(ours):
        target = ops.stop_gradient(theirs[number * last // count])
        differences = ops.matmul(state, kernel) - target
        total += ops.mean(ops.square(differences), axis=-1)
    return total / len(ours)


def projections(model: BertPretrainer, out: PretrainingOutput, number: int) -> list[Tensor]:
    """Return the queries, keys and values of a layer.

    Args:
        model: the model.
        out: its outputs.
        number: the number of the layer, from 0.

    Returns:
        float32[B, S, hidden] each.
    """
    heads = model.bert.encoder.stack[number].attention.heads
    x = states(out.encoded)[number]
    return [ops.cast(layer(x), "float32") for layer in (heads.query, heads.key, heads.value)]


def relation_losses(
    ours: Collection[Tensor], theirs: Collection[Tensor], num_heads: int, input_mask: Tensor
) -> Tensor:
    """Return how far relations are from a teacher's.

        sum over Q, K, V of mean_a KL(R'_a || R_a), R_a = softmax(X_a X_a^T / sqrt(d))

    X_a is the part of relation head a, d wide, and R' the teacher's. Source: Wang et al., MiniLMv2
    (2021), section 3.

    Args:
        ours: the queries, keys and values of the student, [B, S, hidden] each.
        theirs: those of the teacher, [B, S, teacher's hidden] each.
        num_heads: the number of relation heads.
        input_mask: int32[B, S], 0 for padding.

    Returns:
        float32[B, S].
    """
    bias = attention_bias(input_mask)

    def compute_scores(x: Tensor) -> Tensor:
        parts = ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))
        parts = ops.transpose(parts, (0, 2, 1, 3))  # [B, A, S, d]
        products = ops.matmul(parts, ops.transpose(parts, (0, 1, 3, 2)))
        return products * parts.shape[-1] ** -0.5 + bias

    total = 0
    for one, other in zip(ours, theirs, strict=True):
        scores = compute_scores(one)
        total += soft_cross_entropy(scores, ops.stop_gradient(compute_scores(other)))
    return ops.mean(total, axis=1)
