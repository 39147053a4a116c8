"""The losses of sentence embeddings, by their name in --loss.

A loss gets the vectors of examples of N texts, float32[B, N, D]. Of their features it reads
`scores`, float32[B], `targets`, float32[B, N, D], `margins`, float32[B, N - 2], or `text_ids`,
int32[B, N], which are equal for equal texts. A loss that compares the examples of a batch returns
float32[], the loss of all of them; the others return that of each example, float32[B].

B batch   N texts of an example   D width   C candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keras import ops

from official_bert.extensions.embeddings.model import Tensor, normalized
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from official_bert.modeling.losses import cross_entropy, find_false_negatives, stack_columns

Features = Mapping[str, Tensor]  # The features of a batch by name.

_EXCLUDED = -1e9  # The logit of a candidate that is no negative.
_TRIPLET_EPSILON = 1e-6  # PyTorch adds it to each difference.


class Loss:
    """A loss; its docstring has the formula and the source.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        reads: the key of the further feature that it reads, "" for none.
        compares_batch: whether the loss of an example depends on the others of the batch.
        repeats: the number of times that a text of an example is encoded.
    """

    num_texts: tuple[int, int] = (2, 2)
    reads: str = ""
    compares_batch: bool = False
    repeats: int = 1

    def __init__(self, settings: EmbeddingSettings):
        """Creates a loss.

        Args:
            settings: the flags of run_embeddings.
        """
        self.scale = settings.scale
        self.symmetric = settings.symmetric
        self.margin = settings.triplet_margin

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        """Returns the loss.

        Args:
            vectors: the vectors of the texts, float32[B, N, D].
            features: the feature `reads` of the examples, if the loss reads one.

        Returns:
            float32[] if the loss compares the examples of a batch, else float32[B].
        """
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

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        anchors = normalized(vectors[:, 0])  # [B, D]
        candidates = normalized(stack_columns(vectors[:, 1:]))  # [C, D], C = B (N - 1)
        cosines = ops.matmul(anchors, ops.transpose(candidates))  # [B, C]
        logits = self.scale * cosines
        logits = ops.where(find_false_negatives(features["text_ids"]), _EXCLUDED, logits)
        size = ops.shape(logits)[0]
        right = ops.arange(size, dtype="int32")
        loss = ops.mean(cross_entropy(logits, right))
        if self.symmetric:
            anchor_logits = ops.transpose(logits[:, :size])
            loss = (loss + ops.mean(cross_entropy(anchor_logits, right))) / 2.0
        return loss


class SimCse(MultipleNegativesRanking):
    """The loss `multiple_negatives_ranking` of a sentence and itself, under two dropout masks.

    It needs no labels. Source: Gao et al., SimCSE (2021), section 3, with a temperature of 0.05, a
    --scale of 20.
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

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        cosines = self.scale * _cosines(vectors)
        scores = features["scores"]
        differences = cosines[:, None] - cosines[None, :]  # [B, B]
        is_wrong = scores[:, None] < scores[None, :]
        exponents = ops.where(is_wrong, differences, _EXCLUDED)
        one = ops.zeros((1,))  # The 1 of the formula is exp(0).
        terms = ops.concatenate([one, ops.reshape(exponents, (-1,))])
        return ops.logsumexp(terms)


class CosineSimilarity(Loss):
    """The squared difference of cosine and score: (cos(a, b) - score)^2.

    Source: Reimers and Gurevych (2019).
    """

    reads = "scores"

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        return ops.square(_cosines(vectors) - features["scores"])


class Triplet(Loss):
    """The triplet loss with Euclidean distances: max(0, |a - p| - |a - n| + triplet_margin).

    Source: Reimers and Gurevych (2019), section 3.
    """

    num_texts = (3, 3)

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        anchors = vectors[:, 0]
        near = _distance(anchors, vectors[:, 1])
        far = _distance(anchors, vectors[:, 2])
        return ops.relu(near - far + self.margin)


class Mse(Loss):
    """The mean squared difference between the vectors of the texts and those of a teacher.

    Source: Reimers and Gurevych (2020), section 2.
    """

    num_texts = (1, 1)
    reads = "targets"

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        squares = ops.square(vectors - features["targets"])
        return ops.mean(squares, axis=(1, 2))


class MarginMse(Loss):
    """The squared error of margins: (a p - a n - margin)^2, with products of vectors.

    The margin is the difference of a teacher's scores of a p and a n.
    Source: Hofstätter et al. (2020), section 3.
    """

    num_texts = (3, 1000)
    reads = "margins"

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        anchors = vectors[:, :1]
        products = ops.sum(anchors * vectors[:, 1:], axis=-1)
        margins = products[:, :1] - products[:, 1:]
        return ops.mean(ops.square(margins - features["margins"]), axis=-1)


class Matryoshka(Loss):
    """The sum of a loss over the first components of the vectors, for several numbers of them.

    Source: Kusupati et al. (2022), section 3.
    """

    def __init__(self, loss: Loss, widths: Sequence[int]):
        """Creates the sum of a loss.

        Args:
            loss: the loss.
            widths: the numbers of components, such as 768, 384, 128, 64.
        """
        self._loss = loss
        self._widths = widths
        self.num_texts = loss.num_texts
        self.reads = loss.reads
        self.repeats = loss.repeats
        self.compares_batch = loss.compares_batch

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        total = 0
        for width in self._widths:
            first_features = dict(features)
            if "targets" in features:
                first_features["targets"] = features["targets"][..., :width]
            total += self._loss(vectors[..., :width], first_features)
        return total


LOSSES = {
    "multiple_negatives_ranking": MultipleNegativesRanking,
    "simcse": SimCse,
    "cosent": Cosent,
    "cosine_similarity": CosineSimilarity,
    "triplet": Triplet,
    "mse": Mse,
    "margin_mse": MarginMse,
}


def _cosines(vectors: Tensor) -> Tensor:
    """Returns the cosines of the first two texts, float32[B]."""
    return ops.sum(
        normalized(vectors[:, 0]) * normalized(vectors[:, 1]),
        axis=-1,
    )


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Returns the Euclidean distances, float32[B], of float32[B, D]."""
    squares = ops.square(a - b + _TRIPLET_EPSILON)
    return ops.sqrt(ops.sum(squares, axis=-1))
