"""Sequences without padding: the tokens of a batch in one matrix, as in the unpadded BERTs of MLPerf.

Attention alone needs padding: there the sequences, sorted by length, are padded to the longest of their group. Each
function has a gradient of its own, which moves rows, too, where TensorFlow would add them up.

B batch   S length   T tokens of the batch, without padding   G sequences of a group   L length of a group
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

MAX_GROUPS = 4


class Places(NamedTuple):
    """Where the tokens of some sequences stand in a padded matrix and in a packed one."""

    rows: object  # int32[places], the row of the packed matrix that belongs in each place; any row for padding
    slots: object  # int32[tokens], the place of each token, in the order of the packed matrix
    is_token: object  # bool[places, 1], false in a place of padding

    def spread(self, packed):
        """Returns float[places, width], 0 in places of padding."""
        return ops.where(self.is_token, ops.take(packed, self.rows, axis=0), ops.cast(0, packed.dtype))

    def gathered(self, padded):
        """Returns float[tokens, width], without the places of padding."""
        return ops.take(padded, self.slots, axis=0)


class Group(NamedTuple):
    """Sequences of similar length, whose tokens are neighbours in the packed matrix."""

    places: Places  # of the tokens in the padded [G*L]; the rows are those among the tokens of the group
    first: object  # the first row of the group in the packed matrix
    mask: object  # int32[G, L], 1 for a token and 0 for padding


class Packing(NamedTuple):
    places: Places  # of its tokens in the padded [B*S]
    groups: list[Group]  # in the order of the packed matrix

    def packed(self, x):
        """Returns the tokens' vectors, float[T, width], for float[B*S, width]."""
        return ops.custom_gradient(lambda x: (self.places.gathered(x), self.places.spread))(x)

    def padded(self, x):
        """Returns float[B*S, width], 0 in places of padding, for the packed float[T, width]."""
        return ops.custom_gradient(lambda x: (self.places.spread(x), self.places.gathered))(x)

    def in_groups(self, x) -> Sequence:
        """Returns float[G*L, width] of each group for the packed float[T, width].

        A place of padding holds the vector of some token. That is no harm, since attention gives it the weight 0.
        """

        def gradient(*upstream):
            pairs = zip(self.groups, upstream, strict=True)
            return ops.concatenate([group.places.gathered(one) for group, one in pairs])

        def split(x):
            parts = [ops.take(x, group.first + group.places.rows, axis=0) for group in self.groups]
            return tuple(parts), gradient

        return ops.custom_gradient(split)(x)

    def from_groups(self, parts: Sequence):
        """Returns the packed float[T, width] for float[G*L, width] of each group."""

        def gradient(upstream):
            return tuple(
                group.places.spread(upstream[group.first : group.first + ops.shape(group.places.slots)[0]])
                for group in self.groups
            )

        def merge(*parts):
            pairs = zip(self.groups, parts, strict=True)
            return ops.concatenate([group.places.gathered(part) for group, part in pairs]), gradient

        return ops.custom_gradient(merge)(*parts)


def pack(input_mask) -> Packing:
    """Finds the tokens of a batch, by int32[B, S], 1 for a token and 0 for padding.

    The first position always counts as a token, so that a sequence of nothing but padding has one.
    """
    batch, length = ops.shape(input_mask)
    position = ops.arange(length, dtype="int32")
    is_token = (input_mask != 0) | (position == 0)  # [B, S]
    counts = ops.sum(ops.cast(is_token, "int32"), axis=1)
    order = ops.cast(ops.argsort(-counts), "int32")  # the longest sequence first
    rank = ops.cast(ops.argsort(order), "int32")  # of each sequence in this order
    lengths = ops.take(counts, order)
    starts = ops.cumsum(lengths) - lengths  # of the sequences in the packed matrix

    ordinals = ops.cumsum(ops.cast(is_token, "int32"), axis=1) - 1  # of the tokens in their sequence, [B, S]
    rows = ops.where(is_token, ops.take(starts, rank)[:, None] + ordinals, 0)
    sorted_slots = ops.reshape(order[:, None] * length + position, (-1,))
    slots = ops.take(sorted_slots, _true(ops.take(is_token, order, axis=0)))
    places = Places(ops.reshape(rows, (-1,)), slots, ops.reshape(is_token, (-1, 1)))

    num_groups = min(MAX_GROUPS, batch) if isinstance(batch, int) else 1
    bounds = [batch * number // num_groups for number in range(num_groups + 1)]
    groups = [_group(lengths[a:b], starts[a]) for a, b in itertools.pairwise(bounds)]
    return Packing(places, groups)


def _group(lengths, first) -> Group:
    """Returns the group of sequences with these lengths, int32[G], the longest first, which begins in row `first`."""
    position = ops.arange(lengths[0], dtype="int32")
    is_token = position < lengths[:, None]  # [G, L]
    starts = ops.cumsum(lengths) - lengths
    rows = starts[:, None] + ops.minimum(position, lengths[:, None] - 1)
    places = Places(ops.reshape(rows, (-1,)), _true(is_token), ops.reshape(is_token, (-1, 1)))
    return Group(places, first, ops.cast(is_token, "int32"))


def _true(values):
    """Returns the places, int32[n], where the flattened bool tensor is true."""
    return ops.cast(ops.nonzero(ops.reshape(values, (-1,)))[0], "int32")
