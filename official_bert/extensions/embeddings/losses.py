"""The losses of sentence embeddings, by their name in --loss.

A loss gets the vectors of examples of N texts, float32[B, N, D], and reads of their features
`scores`, float32[B], `targets`, float32[B, N, D], or `text_ids`, int32[B, N], which are equal for
equal texts. One that compares the examples of a batch returns float32[], the loss of all of them;
another returns that of each example, float32[B].

B batch   N texts of an example   D width   C candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keras import ops

from official_bert.extensions.embeddings.model import normalized
from official_bert.modeling.losses import cross_entropy

_EXCLUDED = -1e9  # the logit of a candidate that is no negative
_TRIPLET_EPSILON = 1e-6  # PyTorch's, added to each difference


class Loss:
    """A loss; its docstring has the formula and the source.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        reads: the key of the further feature that it reads, "" for none.
        compares_batch: whether the loss of an example depends on the others of the batch.
        repeats: how often a text of an example is encoded.
    """

    num_texts: ClassVar[tuple[int, int]] = (2, 2)
    reads: ClassVar[str] = ""
    compares_batch: ClassVar[bool] = False
    repeats: ClassVar[int] = 1

    def __init__(self, settings: Mapping[str, Any]):
        """Takes the values of the flags that the loss reads, by their names."""
        self.scale = settings.get("scale", 20.0)
        self.symmetric = settings.get("symmetric", False)
        self.margin = settings.get("triplet_margin", 5.0)

    def __call__(self, vectors, features: dict):
        raise NotImplementedError


class MultipleNegativesRanking(Loss):
    """The cross-entropy of the right text among all of the batch, for each anchor.

        -log( exp(scale cos(a_i, p_i)) / sum_c exp(scale cos(a_i, c)) )

    a is the first text of an example, p the second; the candidates c are the second texts of all
    examples and, as hard negatives, their further texts. With --symmetric it is the mean of this
    and of the loss that finds the anchor of each p among all anchors. A text that is equal to p_i,
    or the p of an anchor equal to a_i, is no negative of a_i.
    Sources: Henderson et al. (2017), section 4.4; symmetric: Radford et al. (2021).
    """

    num_texts = (2, 1000)
    reads = "text_ids"
    compares_batch = True

    def __call__(self, vectors, features):
        # [B, D], [C, D].
        anchors, candidates = normalized(vectors[:, 0]), normalized(_stack_columns(vectors[:, 1:]))
        # [B, C], C = B (N - 1).
        logits = self.scale * ops.matmul(anchors, ops.transpose(candidates))
        logits = ops.where(_no_negatives(features["text_ids"]), _EXCLUDED, logits)
        size = ops.shape(logits)[0]
        right = ops.arange(size, dtype="int32")
        loss = ops.mean(cross_entropy(logits, right))
        if self.symmetric:
            loss = (loss + ops.mean(cross_entropy(ops.transpose(logits[:, :size]), right))) / 2.0
        return loss


class SimCse(MultipleNegativesRanking):
    """The loss `multiple_negatives_ranking` of a sentence and itself, under two dropout masks. No
    labels are needed.

    Source: Gao et al., SimCSE (2021), section 3, with a temperature of 0.05, a --scale of 20.
    """

    num_texts = (1, 1)
    repeats = 2


class Cosent(Loss):
    """The log-sum of all pairs of pairs whose cosines are in the wrong order of their scores.

        log( 1 + sum_(i, j: score_i < score_j) exp(scale (cos_i - cos_j)) )

    Source: Su (2022), https://kexue.fm/archives/8847.
    """

    reads = "scores"
    compares_batch = True

    def __call__(self, vectors, features):
        cosines, scores = self.scale * _cosines(vectors), features["scores"]
        differences = cosines[:, None] - cosines[None, :]  # [B, B]
        wrong = ops.where(scores[:, None] < scores[None, :], differences, _EXCLUDED)
        return ops.logsumexp(ops.concatenate([ops.zeros((1,)), ops.reshape(wrong, (-1,))]))


class CosineSimilarity(Loss):
    """The squared difference of cosine and score: (cos(a, b) - score)^2. Source: Reimers and
    Gurevych (2019).
    """

    reads = "scores"

    def __call__(self, vectors, features):
        return ops.square(_cosines(vectors) - features["scores"])


class Triplet(Loss):
    """The triplet loss with Euclidean distances: max(0, |a - p| - |a - n| + triplet_margin).

    Source: Reimers and Gurevych (2019), section 3.
    """

    num_texts = (3, 3)

    def __call__(self, vectors, features):
        near, far = (_distance(vectors[:, 0], vectors[:, column]) for column in (1, 2))
        return ops.relu(near - far + self.margin)


class Mse(Loss):
    """The mean squared difference to the vectors that a teacher gives to the texts.

    Source: Reimers and Gurevych (2020), section 2.
    """

    num_texts = (1, 1)
    reads = "targets"

    def __call__(self, vectors, features):
        return ops.mean(ops.square(vectors - features["targets"]), axis=(1, 2))


class Matryoshka(Loss):
    """The sum of a loss over the first components of the vectors, several numbers of them.

    Source: Kusupati et al. (2022), section 3.
    """

    def __init__(self, loss: Loss, widths: Sequence[int]):
        """Takes the loss, and the numbers of components, such as 768, 384, 128, 64."""
        self._loss, self._widths = loss, widths
        self.num_texts, self.reads, self.repeats = loss.num_texts, loss.reads, loss.repeats
        self.compares_batch = loss.compares_batch

    def __call__(self, vectors, features):
        def first(width):
            targets = {"targets": features["targets"][..., :width]} if "targets" in features else {}
            return self._loss(vectors[..., :width], features | targets)

        return sum(first(width) for width in self._widths)


LOSSES = {
    "multiple_negatives_ranking": MultipleNegativesRanking,
    "simcse": SimCse,
    "cosent": Cosent,
    "cosine_similarity": CosineSimilarity,
    "triplet": Triplet,
    "mse": Mse,
}


def _stack_columns(values):
    """Returns [C, ...] of [B, N, ...]: the first texts of all examples, then the second ones,
    and so on.
    """
    shape = ops.shape(values)
    columns = ops.transpose(values, (1, 0, *range(2, len(shape))))
    return ops.reshape(columns, (-1, *shape[2:]))


def _no_negatives(text_ids):
    """Returns bool[B, C]: which candidates are right for an anchor, beside its own."""
    anchors, candidates = text_ids[:, 0], _stack_columns(text_ids[:, 1:])
    size, num_candidates = ops.shape(anchors)[0], ops.shape(candidates)[0]
    has_equal_text = text_ids[:, 1][:, None] == candidates[None, :]
    is_second = ops.arange(num_candidates) < size
    candidate_anchors = ops.where(
        is_second, ops.take(anchors, ops.arange(num_candidates) % size), -1
    )
    has_equal_anchor = anchors[:, None] == candidate_anchors[None, :]
    is_itself = ops.arange(size)[:, None] == ops.arange(num_candidates)[None, :]
    return ops.logical_and(
        ops.logical_or(has_equal_text, has_equal_anchor), ops.logical_not(is_itself)
    )


def _cosines(vectors):
    """Returns the cosines of the first two texts, float32[B]."""
    return ops.sum(normalized(vectors[:, 0]) * normalized(vectors[:, 1]), axis=-1)


def _distance(a, b):
    return ops.sqrt(ops.sum(ops.square(a - b + _TRIPLET_EPSILON), axis=-1))
