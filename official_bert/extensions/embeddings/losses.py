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
_FAR = 1e9  # a distance larger than all others
_TRIPLET_EPSILON = 1e-6  # PyTorch adds it to each difference.


class Loss:
    """A loss; its docstring has the formula and the source.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        reads: the keys of the further features that it reads.
        compares_batch: whether the loss of an example depends on the others of the batch.
        learns_targets: whether the vectors become those of the teacher, and need their width.
        repeats: the number of times that a text of an example is encoded.
    """

    num_texts: tuple[int, int] = (2, 2)
    reads: tuple[str, ...] = ()
    compares_batch: bool = False
    learns_targets: bool = False
    repeats: int = 1

    def __init__(self, settings: EmbeddingSettings):
        """Creates a loss.

        Args:
            settings: the flags of run_embeddings.
        """
        self.scale = settings.scale
        self.symmetric = settings.symmetric
        self.triplet_margin = settings.triplet_margin
        self.contrastive_margin = settings.contrastive_margin

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        """Returns the loss.

        Args:
            vectors: the vectors of the texts, float32[B, N, D].
            features: the features `reads` of the examples.

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
    reads = ("text_ids",)
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


class Gist(Loss):
    """The loss `multiple_negatives_ranking` without what another model takes for false negatives.

    The vectors of the other model, the --teacher, decide: a text that is nearer to a_i in them than
    p_i is no negative of a_i. The candidates are also the other anchors and, beside a_i, the texts
    that p_i itself is compared with: the cosines of p_i and the other positives.
    Source: Solatorio, GISTEmbed (2024), section 3, with a temperature of 0.01, a --scale of 100.
    """

    num_texts = (2, 1000)
    reads = ("targets", "text_ids")
    compares_batch = True

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        cosines = _candidate_cosines(vectors)  # [B, C], C = B (N + 1)
        size, num_candidates = ops.shape(cosines)
        right = ops.arange(size, dtype="int32")
        is_right = ops.one_hot(right, num_candidates, dtype="bool")

        teacher_cosines = _candidate_cosines(features["targets"])
        right_cosines = ops.diagonal(teacher_cosines[:, :size])
        is_nearer = teacher_cosines > right_cosines[:, None]

        text_ids = features["text_ids"]
        is_same = ops.concatenate(
            [
                find_false_negatives(text_ids),
                _is_equal(text_ids[:, 0]),
                _is_equal(text_ids[:, 1]),
            ],
            axis=1,
        )
        is_false_negative = ops.logical_or(is_nearer, is_same)
        is_excluded = ops.logical_and(is_false_negative, ~is_right)
        logits = self.scale * cosines
        logits = ops.where(is_excluded, _EXCLUDED, logits)
        return ops.mean(cross_entropy(logits, right))


class Cosent(Loss):
    """The log-sum of all pairs of pairs whose cosines are in the wrong order of their scores.

        log( 1 + sum_(i, j: score_i < score_j) exp(scale (cos_i - cos_j)) )

    Source: Su (2022), https://kexue.fm/archives/8847.
    """

    reads = ("scores",)
    compares_batch = True

    def similarities(self, vectors: Tensor) -> Tensor:
        """Returns how alike the two texts of each example are, float32[B].

        Args:
            vectors: the vectors of the texts, float32[B, 2, D].
        """
        return _cosines(vectors)

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        similarities = self.scale * self.similarities(vectors)
        scores = features["scores"]
        differences = similarities[:, None] - similarities[None, :]  # [B, B]
        is_wrong = scores[:, None] < scores[None, :]
        exponents = ops.where(is_wrong, differences, _EXCLUDED)
        one = ops.zeros((1,))  # The 1 of the formula is exp(0).
        terms = ops.concatenate([one, ops.reshape(exponents, (-1,))])
        return ops.logsumexp(terms)


class Angle(Cosent):
    """The loss `cosent` of angles in the complex plane, whose gradient does not vanish as that of a
    cosine near 1 does.

    The halves of a vector are the real and the imaginary parts of D / 2 complex numbers. The two
    vectors of a pair are divided by their norms, and then each number of the first by the number of
    the second; the similarity is the absolute value of the sum of all parts of the quotients, which
    are not divided by the squares of the second numbers.
    Source: Li and Li, AnglE (2023), section 3.4.
    """

    def similarities(self, vectors: Tensor) -> Tensor:
        unit = normalized(vectors[:, :2])
        real, imaginary = ops.split(unit, 2, axis=-1)  # [B, 2, D / 2]
        first_real, second_real = ops.unstack(real, axis=1)
        first_imaginary, second_imaginary = ops.unstack(imaginary, axis=1)
        real_parts = first_real * second_real + first_imaginary * second_imaginary
        imaginary_parts = first_imaginary * second_real - first_real * second_imaginary
        sums = ops.sum(real_parts + imaginary_parts, axis=-1)
        return ops.abs(sums)


class CosineSimilarity(Loss):
    """The squared difference of cosine and score: (cos(a, b) - score)^2.

    Source: Reimers and Gurevych (2019).
    """

    reads = ("scores",)

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        return ops.square(_cosines(vectors) - features["scores"])


class Contrastive(Loss):
    """The loss of pairs of label 1, which are drawn together, and of label 0, which are pushed
    apart, up to a margin. The distance d is 1 - cos(a, b).

        (label d^2 + (1 - label) max(0, contrastive_margin - d)^2) / 2

    Source: Hadsell et al. (2006), section 2.1.
    """

    reads = ("scores",)

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        distances = 1.0 - _cosines(vectors)
        gaps = ops.relu(self.contrastive_margin - distances)
        labels = features["scores"]
        positive_terms = labels * ops.square(distances)
        negative_terms = (1.0 - labels) * ops.square(gaps)
        return (positive_terms + negative_terms) / 2.0


class OnlineContrastive(Loss):
    """The sum of the squares of `contrastive` over the hard pairs of a batch.

    A pair of label 1 is hard if it is farther apart than the nearest pair of label 0, and a pair of
    label 0 if it is nearer than the farthest pair of label 1. If the other label has no two pairs,
    the mean distance of the pairs of the same label decides.
    Source: Reimers and Gurevych, the loss OnlineContrastiveLoss of sentence-transformers.
    """

    reads = ("scores",)
    compares_batch = True

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        distances = 1.0 - _cosines(vectors)
        is_positive = features["scores"] > 0.5
        is_negative = ~is_positive
        positive_distances = ops.where(is_positive, distances, -_FAR)
        farthest = ops.max(positive_distances)
        negative_distances = ops.where(is_negative, distances, _FAR)
        nearest = ops.min(negative_distances)
        upper_limit = ops.where(
            _count(is_positive) > 1,
            farthest,
            _mean_where(is_negative, distances),
        )
        lower_limit = ops.where(
            _count(is_negative) > 1,
            nearest,
            _mean_where(is_positive, distances),
        )
        is_hard_negative = ops.logical_and(is_negative, distances < upper_limit)
        is_hard_positive = ops.logical_and(is_positive, distances > lower_limit)
        gaps = ops.relu(self.contrastive_margin - distances)
        positive_squares = ops.square(distances)
        negative_squares = ops.square(gaps)
        return _sum_where(is_hard_positive, positive_squares) + _sum_where(
            is_hard_negative, negative_squares
        )


class Triplet(Loss):
    """The triplet loss with Euclidean distances: max(0, |a - p| - |a - n| + triplet_margin).

    Source: Reimers and Gurevych (2019), section 3.
    """

    num_texts = (3, 3)

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        anchors = vectors[:, 0]
        near = _distance(anchors, vectors[:, 1])
        far = _distance(anchors, vectors[:, 2])
        return ops.relu(near - far + self.triplet_margin)


class Mse(Loss):
    """The mean squared difference between the vectors of the texts and those of a teacher.

    Source: Reimers and Gurevych (2020), section 2.
    """

    num_texts = (1, 1)
    reads = ("targets",)
    learns_targets = True

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        squares = ops.square(vectors - features["targets"])
        return ops.mean(squares, axis=(1, 2))


class MarginMse(Loss):
    """The squared error of margins: (a p - a n - margin)^2, with products of vectors.

    The margin is the difference of a teacher's scores of a p and a n.
    Source: Hofstätter et al. (2020), section 3.
    """

    num_texts = (3, 1000)
    reads = ("margins",)

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
        self.learns_targets = loss.learns_targets

    def __call__(self, vectors: Tensor, features: Features) -> Tensor:
        total = 0
        for width in self._widths:
            first_features = dict(features)
            if self._loss.learns_targets:
                first_features["targets"] = features["targets"][..., :width]
            total += self._loss(vectors[..., :width], first_features)
        return total


LOSSES = {
    "multiple_negatives_ranking": MultipleNegativesRanking,
    "gist": Gist,
    "simcse": SimCse,
    "cosent": Cosent,
    "angle": Angle,
    "cosine_similarity": CosineSimilarity,
    "contrastive": Contrastive,
    "online_contrastive": OnlineContrastive,
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


def _candidate_cosines(vectors: Tensor) -> Tensor:
    """Returns the cosines of a batch that `gist` compares, float32[B, B (N + 1)].

    The columns of row i are those of a_i and the positives, the further texts and the anchors of
    all examples, and then those of p_i and all positives.

    Args:
        vectors: the vectors of the texts, float32[B, N, D].
    """
    unit = normalized(vectors)
    anchors = unit[:, 0]
    positives = unit[:, 1]
    documents = stack_columns(unit[:, 1:])
    candidates = ops.concatenate([documents, anchors])
    anchor_cosines = ops.matmul(anchors, ops.transpose(candidates))
    positive_cosines = ops.matmul(positives, ops.transpose(positives))
    return ops.concatenate([anchor_cosines, positive_cosines], axis=1)


def _is_equal(text_ids: Tensor) -> Tensor:
    """Returns which texts are equal, bool[B, B], for int32[B]."""
    return ops.equal(text_ids[:, None], text_ids[None, :])


def _count(is_member: Tensor) -> Tensor:
    """Returns the number of members, float32[], for bool[B]."""
    return ops.sum(ops.cast(is_member, "float32"))


def _sum_where(is_member: Tensor, values: Tensor) -> Tensor:
    """Returns the sum of the values of members, float32[]."""
    return ops.sum(ops.where(is_member, values, 0.0))


def _mean_where(is_member: Tensor, values: Tensor) -> Tensor:
    """Returns the mean of the values of members, float32[]; 0 without members."""
    count = ops.maximum(_count(is_member), 1.0)
    return _sum_where(is_member, values) / count


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Returns the Euclidean distances, float32[B], of float32[B, D]."""
    squares = ops.square(a - b + _TRIPLET_EPSILON)
    return ops.sqrt(ops.sum(squares, axis=-1))
