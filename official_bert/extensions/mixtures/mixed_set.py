"""Several encoded sets as one, and the order in which a training takes batches from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from official_bert.data.joined_sets import JoinedSets, SetPart
from official_bert.extensions.mixtures.options import PROPORTIONAL
from official_bert.features import EncodedSet
from official_bert.io.errors import InputError
from official_bert.training.batches import example_order, take_turns

SET_NUMBER = "set_number"  # the feature with the number of the set of each example


class MixedSet(JoinedSets):
    """The examples of several sets as one set.

    Attributes:
        members: the sets by name.
    """

    def __init__(self, members: Mapping[str, EncodedSet]):
        """Joins sets.

        Args:
            members: the sets by name.
        """
        sets = list(members.values())
        super().__init__(list(members), sets)
        self.members = members

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of some examples, padded to one length.

        What a set lacks is filled up with zeros: a feature, or a text in examples of several.

        Args:
            rows: the indices of the examples, int[b].
            length: the number of tokens.
        """
        parts = self.read_parts(rows, length).values()
        names: dict[str, None] = {}
        for part in parts:
            names |= dict.fromkeys(part.features)
        batch = {}
        for name in names:
            with_feature = [part for part in parts if name in part.features]
            batch[name] = _join(name, with_feature, len(rows))
        return batch


def _join(name: str, parts: Sequence[SetPart], batch_size: int) -> np.ndarray:
    """Returns a feature of a batch; where no part has values, it has zeros."""
    arrays = [part.features[name] for part in parts]
    shapes = [values.shape[1:] for values in arrays]
    largest = np.max(shapes, axis=0, initial=0)
    joined = np.zeros((batch_size, *largest), arrays[0].dtype)
    for part, values in zip(parts, arrays, strict=True):
        corner = tuple(map(slice, values.shape[1:]))
        joined[(part.places, *corner)] = values
    return joined


class MixedTrainingSet(MixedSet):
    """Several training sets, of which each batch has examples of one.

    Each batch has the features of all sets; what its set lacks has no values.
    """

    has_several_shapes = True

    def __init__(self, members: Mapping[str, EncodedSet], sampling: str, batch_size: int):
        """Joins training sets.

        Args:
            members: the sets by name.
            sampling: PROPORTIONAL or ROUND_ROBIN: how many batches each set gives.
            batch_size: the number of examples in a batch.

        Raises:
            InputError: a set is smaller than a batch, or only some sets have anchors with a length
                of their own.
        """
        super().__init__(members)
        self._sampling = sampling
        self._check_sizes(batch_size)
        self._empty: dict[str, np.ndarray] = {}
        num_inputs = {}
        for set_name, encoded in members.items():
            first_length = int(encoded.lengths[0])
            features = encoded.features(np.zeros(1, np.int64), first_length)
            num_inputs[set_name] = sum(name.endswith("input_ids") for name in features)
            for name, values in features.items():
                no_sizes = [0] * (values.ndim - 1)
                self._empty[name] = np.zeros((1, *no_sizes), values.dtype)
        _check_inputs(num_inputs)

    def _check_sizes(self, batch_size: int):
        for name, encoded in self.members.items():
            size = len(encoded.lengths)
            if size < batch_size:
                raise InputError(
                    f"--data_sets: [{name}] has {size} training examples, fewer than a batch of "
                    f"{batch_size}; lower --train_batch_size"
                )

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        batch = super().features(rows, length)
        for name, values in self._empty.items():
            if name not in batch:
                batch[name] = np.repeat(values, len(rows), axis=0)
        numbers = self.find_sets(rows)
        batch[SET_NUMBER] = numbers.astype(np.int32)
        return batch

    def example_order(self, seed: int, batch_size: int, buffer_size: int) -> Iterator[int]:
        """Yields the indices of examples without end; each batch is of one set.

        Args:
            seed: the seed of the order.
            batch_size: the number of examples in a batch.
            buffer_size: the size of the buffer from which the examples of a set are drawn; 0
                shuffles each set whole.
        """
        sizes = [len(encoded.lengths) for encoded in self._sets]
        weights = sizes
        if self._sampling != PROPORTIONAL:
            weights = [1] * len(sizes)
        orders = []
        for number, size in enumerate(sizes):
            order = example_order(size, seed + number, buffer_size)
            orders.append(order)
        for number in take_turns(weights):
            start = self._starts[number]
            for index in itertools.islice(orders[number], batch_size):
                yield start + index


def _check_inputs(num_inputs: Mapping[str, int]):
    """Refuses sets of which only some have anchors with a length of their own.

    Args:
        num_inputs: the number of inputs of the encoder in each set.
    """
    fewest = min(num_inputs, key=lambda name: num_inputs[name])
    if num_inputs[fewest] < max(num_inputs.values()):
        raise InputError(
            f"--data_sets: [{fewest}] has single texts, which --max_query_seq_length does not tell "
            "from anchors; leave the flag out, or train on the set alone"
        )
