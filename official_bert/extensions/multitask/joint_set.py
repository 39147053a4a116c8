"""Several sets of different tasks as one, and the order in which a training reads batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.joined_sets import JoinedSets, SetPart
from official_bert.extensions.multitask.sampling import Sampling
from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.training.batches import example_order, take_turns

TASK_NUMBER = "task_number"  # the feature with the number of the task of each example
_INPUT_IDS = "input_ids"


class Member(NamedTuple):
    """A set of a joint set.

    Attributes:
        task_name: the name of its task.
        encoded: the set.
    """

    task_name: str
    encoded: EncodedSet


class JointSet(JoinedSets):
    """The examples of the sets of several tasks.

    Attributes:
        members: the sets by name.
    """

    def __init__(self, members: Mapping[str, Member]):
        """Joins sets.

        Args:
            members: the sets by name.
        """
        sets = [member.encoded for member in members.values()]
        super().__init__(list(members), sets)
        self.members = members

    @property
    def counts(self) -> dict[str, int]:
        """The number of all examples, and of those of each set, for the log."""
        sizes = {}
        for name, member in self.members.items():
            sizes[f"{name} "] = len(member.encoded.lengths)
        total = sum(sizes.values())
        return {"": total} | sizes


def _spread(part: SetPart, name: str, batch_size: int) -> np.ndarray:
    """Returns a feature of the whole batch, which is 0 for the examples of other sets."""
    values = part.features[name]
    shape = (batch_size, *values.shape[1:])
    spread = np.zeros(shape, values.dtype)
    spread[part.places] = values
    return spread


def name_feature(task_name: str, feature: str) -> str:
    """Returns the name of a feature of a task in a batch of several tasks.

    Args:
        task_name: the name of the task.
        feature: the name of the feature.
    """
    return f"{task_name}/{feature}"


def select_features(task_name: str, features: Mapping) -> dict:
    """Returns the features of a task by their names in the task.

    Args:
        task_name: the name of the task.
        features: the features of a batch of several tasks.
    """
    prefix = name_feature(task_name, "")
    return {
        name.removeprefix(prefix): values
        for name, values in features.items()
        if name.startswith(prefix)
    }


class JointTrainingSet(JointSet):
    """The training sets of all tasks. Each batch has examples of one of them.

    A batch has the features of all tasks, of which those of the others are empty. `input_ids` has
    the ids of the examples, in which the texts of an example follow one another.
    """

    has_several_shapes = True

    def __init__(self, members: Mapping[str, Member], sampling: Sampling):
        """Joins training sets.

        Args:
            members: the sets by the names of their tasks.
            sampling: how many batches each set gives.
        """
        super().__init__(members)
        self._sampling = sampling
        self._empty: dict[str, dict[str, np.ndarray]] = {}
        for name, member in members.items():
            encoded = member.encoded
            first_row = np.zeros(1, np.int64)
            first_length = int(encoded.lengths[0])
            features = encoded.features(first_row, first_length)
            self._empty[name] = {}
            for feature, values in features.items():
                no_sizes = [0] * (values.ndim - 1)
                no_values = np.zeros((1, *no_sizes), values.dtype)
                self._empty[name][feature] = no_values

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of a batch.

        Args:
            rows: the indices of the examples, int[b].
            length: the number of tokens.
        """
        numbers = self.find_sets(rows)
        batch = {TASK_NUMBER: numbers.astype(np.int32)}
        parts = self.read_parts(rows, length)
        for number, name in enumerate(self._empty):
            part = parts.get(number)
            for feature, values in self._read_task(name, part, len(rows)).items():
                key = name_feature(name, feature)
                batch[key] = values
        batch[_INPUT_IDS] = _join_ids(list(parts.values()), len(rows))
        return batch

    def _read_task(self, name: str, part: SetPart | None, batch_size: int) -> dict[str, np.ndarray]:
        """Returns the features of a task; without examples in the batch they are empty."""
        features = {}
        for feature, no_values in self._empty[name].items():
            if part is None:
                features[feature] = np.repeat(no_values, batch_size, axis=0)
            else:
                features[feature] = _spread(part, feature, batch_size)
        return features

    def example_order(self, seed: int, batch_size: int, buffer_size: int) -> Iterator[int]:
        """Yields the indices of examples without end; each batch is of one set.

        Args:
            seed: the seed of the order.
            batch_size: the number of examples in a batch.
            buffer_size: not read; the sampling has the size of the buffer.
        """
        sizes = [len(encoded.lengths) for encoded in self._sets]
        orders = []
        for number, encoded in enumerate(self._sets):
            set_buffer = self._sampling.buffer_size
            if set_buffer is None:
                set_buffer = getattr(encoded, "shuffle_buffer_size", 0)
            order = example_order(sizes[number], seed + number, set_buffer)
            orders.append(order)
        num_batches = sum(sizes) / batch_size
        epoch_turns = math.ceil(num_batches)
        for epoch in itertools.count():
            weights = self._sampling.compute_weights(sizes, epoch)
            turns = take_turns(weights)
            for number in itertools.islice(turns, epoch_turns):
                start = self._starts[number]
                for index in itertools.islice(orders[number], batch_size):
                    yield start + index


def _join_ids(parts: Sequence[SetPart], batch_size: int) -> np.ndarray:
    """Returns the ids of all examples, int32[b, longest]; several texts follow one another."""
    all_ids = []
    for part in parts:
        ids = _spread(part, _INPUT_IDS, batch_size)
        flat_ids = ids.reshape(batch_size, -1)
        all_ids.append(flat_ids)
    longest = max(ids.shape[1] for ids in all_ids)
    joined = np.zeros((batch_size, longest), np.int32)
    for ids in all_ids:
        length = ids.shape[1]
        joined[:, :length] += ids
    return joined


class JointEvaluationSet(JointSet):
    """The development sets, or the test sets, of the tasks.

    A batch has the encoder features, and the other features of each task under its name.
    """

    def __init__(self, members: Mapping[str, Member], templates: Mapping[str, EncodedSet]):
        """Joins sets.

        Args:
            members: the sets by name.
            templates: a set of each task by its name, whose features a batch without examples of
                the task has, too.
        """
        super().__init__(members)
        self._templates = templates

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of a batch.

        Args:
            rows: the indices of the examples, int[b].
            length: the number of tokens.
        """
        batch_size = len(rows)
        task_names = [member.task_name for member in self.members.values()]
        batch: dict[str, np.ndarray] = {}

        # The features of the examples. An example has zeros in those of other tasks.
        parts = self.read_parts(rows, length)
        for number, part in parts.items():
            for feature in part.features:
                name = feature
                if feature not in ENCODER_INPUTS:
                    name = name_feature(task_names[number], feature)
                values = _spread(part, feature, batch_size)
                if name in batch:
                    values = values + batch[name]
                batch[name] = values

        # The features of tasks without an example in this batch.
        no_rows = np.zeros(0, np.int64)
        for task_name, template in self._templates.items():
            for feature, values in template.features(no_rows, length).items():
                name = name_feature(task_name, feature)
                is_task_feature = feature not in ENCODER_INPUTS
                if is_task_feature and name not in batch:
                    shape = (batch_size, *values.shape[1:])
                    batch[name] = np.zeros(shape, values.dtype)
        return dict(sorted(batch.items()))
