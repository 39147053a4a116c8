"""The distinct texts of examples, and their encoded form for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from absl import logging

from official_bert.data.model_inputs import IdEncoder, ModelInputs, model_input_ids
from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer

QUERY, DOCUMENT = "query", "document"  # the roles of texts: an anchor, and any other text
POOLING_START = "pooling_start"  # the feature with the first pooled token of each text
QUERY_PREFIX = "query_"  # the names of the anchors' features, if these have a length of their own
_LENGTH_MULTIPLE = 8


class TextForm(NamedTuple):
    """How the texts of a role are encoded.

    Attributes:
        max_seq_length: the maximum number of tokens; longer texts are truncated.
        prompt: a text that is put before each text.
        is_prompt_pooled: whether the tokens of the prompt count in the pooling.
    """

    max_seq_length: int
    prompt: str = ""
    is_prompt_pooled: bool = True

    def find_pooling_start(self, tokenizer: IdEncoder) -> int:
        """Return the index of the first token that counts in the pooling.

        Args:
            tokenizer: the tokenizer of the model.
        """
        if self.is_prompt_pooled or not self.prompt:
            return 0
        num_tokens = 1 + len(tokenizer.encode(self.prompt))
        return min(num_tokens, self.max_seq_length - 1)


class TextLoss(Protocol):
    """What the rows of a training set depend on.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        repeats: the number of times that a text of an example is encoded.
    """

    num_texts: tuple[int, int]
    repeats: int


class TextRows:
    """The distinct texts of a set. The row of a text is its number in the order of appearance."""

    def __init__(self, has_roles: bool = False):
        """Creates an empty set of texts.

        Args:
            has_roles: whether a text that is both a query and a document has two rows.
        """
        self._has_roles = has_roles
        self._rows: dict[tuple[str, str], int] = {}

    @property
    def texts(self) -> list[str]:
        """The texts in the order of their rows."""
        return [text for text, _ in self._rows]

    @property
    def roles(self) -> list[str]:
        """The roles of the texts, DOCUMENT for all without roles."""
        return [role for _, role in self._rows]

    def __call__(self, text: str, role: str = DOCUMENT) -> int:
        """Return the row of a text in a role; add the text if it is new."""
        key = (text, role if self._has_roles else DOCUMENT)
        return self._rows.setdefault(key, len(self._rows))

    def find(self, text: str) -> int:
        """Return the row of a text as a document; -1 if it is none.

        Args:
            text: the text.
        """
        return self._rows.get((text, DOCUMENT), -1)

    def encoded(self, tokenizer: FullTokenizer, max_seq_length: int) -> ModelInputs:
        """Return the inputs of the model for all texts.

        Args:
            tokenizer: the tokenizer of the model.
            max_seq_length: the maximum number of tokens; longer texts are truncated.

        Returns:
            The inputs in the order of the rows.
        """
        form = TextForm(max_seq_length)
        return self.encoded_in_forms(tokenizer, {QUERY: form, DOCUMENT: form})

    def encoded_in_forms(
        self, tokenizer: FullTokenizer, forms: Mapping[str, TextForm]
    ) -> ModelInputs:
        """Return the inputs of the model for all texts, in the forms of their roles.

        Args:
            tokenizer: the tokenizer of the model.
            forms: how the texts of each role are encoded.

        Returns:
            The inputs in the order of the rows.
        """
        inputs = []
        for text, role in counted(self._rows, "texts encoded"):
            form = forms[role]
            full_text = form.prompt + text
            inputs.append(model_input_ids(tokenizer, full_text, None, form.max_seq_length))
        return ModelInputs(inputs)

    def pooling_starts(
        self, tokenizer: FullTokenizer, forms: Mapping[str, TextForm]
    ) -> np.ndarray | None:
        """Return the index of the first token of each text that counts in the pooling.

        Args:
            tokenizer: the tokenizer of the model.
            forms: how the texts of each role are encoded.

        Returns:
            int32[texts]; None if all tokens count.
        """
        role_starts = {role: form.find_pooling_start(tokenizer) for role, form in forms.items()}
        if not any(role_starts.values()):
            return None
        return np.array([role_starts[role] for role in self.roles], np.int32)


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The training set: n examples of N texts each, and the additional features of the loss.

    Attributes:
        inputs: the inputs of the model for all distinct texts.
        rows: the texts of each example as rows of `inputs`, int32[n, N].
        further: the additional features by key, a value for each example.
        targets: the teacher's embeddings of the texts, float32[texts, D]; None without a teacher.
        pooling_starts: the first pooled token of each text, int32[texts]; None for the first one.
        query_length: the maximum number of tokens of the anchors, whose features then have names
            and a length of their own; None to pad all texts of an example to one length.
        is_query_padded: whether the anchors are padded to that maximum, and not to the longest one
            of their batch.
        computed_features: the features that a teacher computes.
    """

    inputs: ModelInputs
    rows: np.ndarray
    further: Mapping[str, np.ndarray]
    targets: np.ndarray | None = None
    pooling_starts: np.ndarray | None = None
    query_length: int | None = None
    is_query_padded: bool = False
    computed_features: ClassVar[tuple[str, ...]] = ("targets",)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in the longest text of each example, int64[n].

        It is the longest of the documents if the anchors have a length of their own.
        """
        first = 0 if self.query_length is None else 1
        return self.inputs.lengths[self.rows[:, first:]].max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch.

        Args:
            rows: the rows of the examples, int[b].
            length: the number of tokens to which each text is padded.

        Returns:
            Encoder features, int32[b, N, length], and the additional features of the loss. If the
            anchors have a length of their own, N counts the documents, and QUERY_PREFIX begins the
            names of the features of the anchors.
        """
        texts = self.rows[rows]
        if self.query_length is None:
            batch = self._encoder_features(texts, length)
        else:
            batch = self._encoder_features(texts[:, 1:], length)
            anchors = texts[:, :1]
            query_length = self._padded_query_length(anchors)
            for name, values in self._encoder_features(anchors, query_length).items():
                batch[QUERY_PREFIX + name] = values
        if self.targets is not None:
            batch["targets"] = self.targets[texts]
        for name, values in self.further.items():
            batch[name] = values[rows]
        return batch

    def _encoder_features(self, texts: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of texts, int32[b, n, length], for their rows, int[b, n]."""
        batch = {}
        for name, values in self.inputs.features(texts.ravel(), length).items():
            batch[name] = values.reshape(*texts.shape, length)
        if self.pooling_starts is not None:
            batch[POOLING_START] = self.pooling_starts[texts]
        return batch

    def _padded_query_length(self, anchors: np.ndarray) -> int:
        assert self.query_length is not None
        if self.is_query_padded:
            return self.query_length
        num_multiples = -(-int(self.inputs.lengths[anchors].max()) // _LENGTH_MULTIPLE)
        return min(num_multiples * _LENGTH_MULTIPLE, self.query_length)


# A function from the vectors of the texts of a set, float32[texts, D], to metrics by name.
Metrics = Callable[[np.ndarray], dict[str, float]]


class VectorEvaluation(NamedTuple):
    """An evaluation of the vectors of a set with labels.

    Attributes:
        main_metric: the metric by which models are compared, such as eval_accuracy.
        parts_read: the parts of an example that it reads beside the first text: POSITIVE, NEGATIVE
            and LABEL of data/text_tables.py.
        prepare: a function from the examples and the rows of their texts to the metrics. It raises
            InputError for examples that it cannot evaluate.
    """

    main_metric: str
    parts_read: Collection[str]
    prepare: Callable[[Sequence[Example], TextRows], Metrics]


def all_texts(examples: Iterable[Example], has_roles: bool = False) -> TextRows:
    """Return the texts of examples.

    Args:
        examples: the examples.
        has_roles: whether anchors are queries, and other texts documents.

    Returns:
        The distinct texts among the anchors, positives and negatives of all examples.
    """
    rows = TextRows(has_roles)
    for example in examples:
        rows(example.anchor, QUERY)
        for text in (*example.positives, *example.negatives):
            rows(text)
    return rows


def build_example_rows(
    examples: Sequence[Example], loss: TextLoss, name: str, has_roles: bool = False
) -> tuple[TextRows, np.ndarray]:
    """Return the texts of a training set, and those of each example.

    An example with several positives becomes several examples, one for each positive. All examples
    get the same number of negatives. Examples with fewer negatives are left out.

    Args:
        examples: the examples of the set.
        loss: the loss, which limits the number of texts in an example.
        name: the name of the loss, for error messages.
        has_roles: whether anchors are queries, and other texts documents.

    Returns:
        All texts, and the rows of each example, int32[n, N].

    Raises:
        InputError: an example has too few texts for the loss.
    """
    fewest, most = loss.num_texts
    if most == 1:
        rows = all_texts(examples, has_roles)
        text_rows = np.arange(len(rows.texts), dtype=np.int32)
        return rows, np.repeat(text_rows[:, None], loss.repeats, axis=1)
    for example in examples:
        if not example.positives or len(example.negatives) < fewest - 2:
            needed = "an anchor, a positive and a negative text" if fewest == 3 else "two texts"
            raise InputError(
                f"{example.where}: --loss={name} needs {needed} in each example; name them with "
                "--anchor_column, --positive_column and --negative_columns"
            )
    num_negatives = _choose_num_negatives(examples, most - 2)
    rows = TextRows(has_roles)
    example_rows = []
    for example in examples:
        if len(example.negatives) < num_negatives:
            continue
        for positive in example.positives:
            documents = (positive, *example.negatives[:num_negatives])
            anchor_row = rows(example.anchor, QUERY)
            example_rows.append([anchor_row, *(rows(text) for text in documents)])
    return rows, np.array(example_rows, np.int32)


def read_margins(
    examples: Sequence[Example],
    num_texts: int,
    compute_scores: Callable[[list[tuple[str, str]]], np.ndarray] | None = None,
) -> np.ndarray:
    """Return how much better the positive of an example is than each of its negatives.

    Args:
        examples: the rows of the file, of which `build_example_rows` makes the examples.
        num_texts: the number of texts of an example.
        compute_scores: a function from pairs of texts to their scores, float[n]; None if the labels
            of the rows are the scores.

    Returns:
        float32[n, num_texts - 2].

    Raises:
        InputError: a label is no score.
    """
    num_negatives = num_texts - 2
    examples = [example for example in examples if len(example.negatives) >= num_negatives]
    if compute_scores is None:
        all_scores = [np.array(example.scores()) for example in examples]
    else:
        pairs = []
        ends = []
        for example in examples:
            texts = (*example.positives, *example.negatives)
            pairs += [(example.anchor, text) for text in texts]
            ends.append(len(pairs))
        all_scores = np.split(compute_scores(pairs), ends[:-1])
    margins = []
    for example, scores in zip(examples, all_scores, strict=True):
        num_positives = len(example.positives)
        negative_scores = scores[num_positives : num_positives + num_negatives]
        for positive_score in scores[:num_positives]:
            margins.append(positive_score - negative_scores)
    return np.array(margins, np.float32)


def _choose_num_negatives(examples: Sequence[Example], most: int) -> int:
    """Returns the smallest number of negatives above 0 that an example has, at most `most`."""
    counts = [len(example.negatives) for example in examples]
    num_negatives = min(most, min((count for count in counts if count), default=0))
    num_omitted = sum(count < num_negatives for count in counts)
    if num_omitted or max(counts, default=0) > num_negatives:
        logging.warning(
            "Each example has %d negatives; %d examples with fewer are left out",
            num_negatives,
            num_omitted,
        )
    return num_negatives
