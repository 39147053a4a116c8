"""Examples of text classification and regression, and their encoded form."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.data.model_inputs import ModelInputs, log_example, model_input_ids
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.options.fine_tuning import WINDOWS
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tokenization import FullTokenizer

# The squares of differences of scores, summed over a batch, fit float32.
LARGEST_SCORE = 1e15
LOGGED_EXAMPLES = 5

Target = int | float | list[int]


class Source(NamedTuple):
    """The place of an example in a table.

    Attributes:
        line: the number of its line, or of its row.
        row_id: its value in the column that names the rows; "" without such a column.
    """

    line: int
    row_id: str


@dataclasses.dataclass
class InputExample:
    """A text, or a pair of texts, with its label.

    Attributes:
        guid: the name of the example, for the log.
        text_a: the text, or the first text of the pair.
        text_b: the second text of the pair; None for a single text.
        label: the label; in regression the score as text, in multi-label classification a tuple of
            labels; None if it is unknown.
        source: where a user finds the example in his table; None if that is unknown.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | tuple[str, ...] | None = None
    source: Source | None = dataclasses.field(default=None, compare=False)


class PaddingInputExample:
    """Fills the last batch where all batches must have the same size; the metrics ignore it."""


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """An encoded data set of n texts or pairs, without padding. Its rows are the texts or pairs, or
    the windows of the texts.

    Attributes:
        inputs: the inputs of the rows.
        label_ids: the targets: int32[n]; in regression float32[n], in multi-label classification
            int32[n, labels].
        is_real_example: int32[n], 0 for padding examples and examples out of scope, else 1.
        shuffle_buffer_size: as in tasks/base.py.
        record_stem: as in tasks/base.py.
        is_out_of_scope: bool[n], whether the label is none of the task's; None if no label may be.
        num_windows: int64[n], the number of each text's windows; None for texts without windows.
        sources: the places of the examples in the table of a user; empty if they are unknown.
    """

    inputs: ModelInputs
    label_ids: np.ndarray
    is_real_example: np.ndarray
    shuffle_buffer_size: int = 0
    record_stem: str | None = None
    is_out_of_scope: np.ndarray | None = None
    num_windows: np.ndarray | None = None
    sources: Sequence[Source | None] = ()

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row, special tokens included: int64[rows]."""
        return self.inputs.lengths

    @property
    def counts(self) -> dict[str, int]:
        """The numbers for the log by prefix: first that of the rows, which defines an epoch."""
        if self.num_windows is None:
            return {"": len(self)}
        return {"window ": len(self.lengths), "text ": len(self)}

    @functools.cached_property
    def text_indices(self) -> np.ndarray:
        """The index of each row's example: int64[rows]."""
        indices = np.arange(len(self))
        return np.repeat(indices, 1 if self.num_windows is None else self.num_windows)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch of the features of some rows.

        Args:
            rows: the indices of the rows, int[b].
            length: the length to which they are padded.

        Returns:
            The encoder features, int32[b, length], `label_ids` and `is_real_example`. A batch of
            windows also has `example_weight`, float32[b], the share of each window in its text.
        """
        texts = self.text_indices[rows]
        batch = {
            **self.inputs.features(rows, length),
            "label_ids": self.label_ids[texts],
            "is_real_example": self.is_real_example[texts],
        }
        if self.num_windows is not None:
            shares = 1 / self.num_windows[texts]
            batch["example_weight"] = shares.astype(np.float32)
        return batch


def encode_examples(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
    long_texts: LongTexts | None = None,
    allows_unknown_labels: bool = False,
) -> EncodedExamples:
    """Encode examples as the original's `convert_examples_to_features` does, in arrays.

    Examples without a label and padding examples get the label 0.

    Args:
        examples: the examples.
        label_list: the labels by id; None in regression.
        max_seq_length: the largest length in tokens, special tokens included.
        tokenizer: the tokenizer of the model.
        long_texts: how texts are cut into windows; None truncates them.
        allows_unknown_labels: whether examples whose label is not in `label_list` are out of scope
            rather than an error.

    Returns:
        The encoded examples.

    Raises:
        InputError: a label or a score cannot be used, all examples are out of scope, or a pair
            should be cut into windows.
    """
    is_padding = [isinstance(example, PaddingInputExample) for example in examples]
    is_real = ~np.array(is_padding, bool)
    is_out_of_scope = None
    if allows_unknown_labels:
        is_out_of_scope = _has_unknown_label(examples, label_list or ())
        is_real &= ~is_out_of_scope
    label_ids = _encode_targets(examples, is_real, label_list)
    window_lists = _encode_texts(examples, max_seq_length, tokenizer, long_texts)
    num_windows: list[int] = []

    def rows():
        for windows in window_lists:
            num_windows.append(len(windows))
            yield from windows

    return EncodedExamples(
        inputs=ModelInputs(rows()),
        label_ids=label_ids,
        is_real_example=is_real.astype(np.int32),
        is_out_of_scope=is_out_of_scope,
        num_windows=np.array(num_windows, np.int64) if long_texts else None,
    )


def _encode_texts(
    examples: Sequence[InputExample | PaddingInputExample],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    long_texts: LongTexts | None,
) -> Iterator[list[tuple[list[int], int]]]:
    """Yields the windows of each example, or its only row: ids, and their number in segment 0."""
    for example in counted(examples, "examples encoded"):
        if isinstance(example, PaddingInputExample):
            yield [([], 0)]
        elif not long_texts:
            yield [model_input_ids(tokenizer, example.text_a, example.text_b, max_seq_length)]
        elif example.text_b:
            raise InputError(
                f"--long_texts={WINDOWS}: is for single texts, and example {example.guid} is a "
                "pair; leave the flag out"
            )
        else:
            yield long_texts.encode_windows(tokenizer, example.text_a, max_seq_length)


def _has_unknown_label(
    examples: Sequence[InputExample | PaddingInputExample], labels: Collection[str]
) -> np.ndarray:
    """Returns whether the label of each example is known and none of the labels: bool[n]."""
    scope = {None, *labels}
    is_out = [
        not isinstance(example, PaddingInputExample) and example.label not in scope
        for example in examples
    ]
    if all(is_out):
        raise InputError(
            "--abstain_below: no example of the development set has a label of the training set"
        )
    return np.array(is_out, bool)


def _encode_targets(
    examples: Sequence[InputExample | PaddingInputExample],
    is_real: np.ndarray,
    label_list: Sequence[str] | None,
) -> np.ndarray:
    """Returns the targets of examples, [n, ...]; those that are not real have zeros."""
    encode_target = make_target_encoder(label_list)
    targets: list[Target | None] = []
    for example, real in zip(examples, is_real, strict=True):
        if isinstance(example, PaddingInputExample) or not real:
            targets.append(None)
        else:
            targets.append(encode_target(example))
    first_target = next((target for target in targets if target is not None), 0)
    no_target = np.zeros_like(first_target)
    rows = [no_target if target is None else target for target in targets]
    return np.array(rows, np.float32 if label_list is None else np.int32)


def make_target_encoder(
    label_list: Sequence[str] | None,
) -> Callable[[InputExample], Target | None]:
    """Return a function from an example to its target.

    Args:
        label_list: the labels by id; None in regression.

    Returns:
        The function. A target is the id of a label, a score, or a list of 0 and 1 for several
        labels; it is None for an example without a label. The function raises InputError for a
        label or a score that cannot be used.
    """
    label_ids = {label: index for index, label in enumerate(label_list or ())}

    def encode_target(example: InputExample) -> Target | None:
        label = example.label
        if label is None:
            return None
        if label_list is None:
            return _parse_score(example.guid, label)
        for name in label if isinstance(label, tuple) else (label,):
            if name not in label_ids:
                raise InputError(
                    f"example {example.guid}: has the label {name!r}; the labels are "
                    f"{', '.join(map(str, label_ids))}"
                )
        if isinstance(label, tuple):
            return [int(name in label) for name in label_list]
        return label_ids[label]

    return encode_target


def _parse_score(guid: str, label: str | tuple[str, ...]) -> float:
    if isinstance(label, tuple):
        raise InputError(f"example {guid}: has the labels {label!r} in place of a score; give one")
    score = float(label)
    if not abs(score) <= LARGEST_SCORE:
        raise InputError(
            f"example {guid}: has the score {label!r}, on which no model can be trained; correct it"
        )
    return score


def log_first_examples(
    examples: Sequence[InputExample | PaddingInputExample],
    encoded: EncodedExamples,
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> None:
    """Log the first five examples from their ids, without tokenizing them again.

    Args:
        examples: the examples.
        encoded: the same examples, encoded.
        max_seq_length: the length to which the logged features are padded.
        tokenizer: the tokenizer of the model.
    """
    num_logged = min(LOGGED_EXAMPLES, len(encoded.lengths))
    batch = encoded.features(np.arange(num_logged), max_seq_length)
    for row in range(num_logged):
        example = examples[encoded.text_indices[row]]
        if isinstance(example, PaddingInputExample) or not batch["is_real_example"][row]:
            continue
        ids = encoded.inputs.ids[row].tolist()
        features = {name: values[row] for name, values in batch.items()}
        log_input_example(
            row,
            example,
            tokenizer.convert_ids_to_tokens(ids),
            features,
            label_id=features["label_ids"].tolist(),
        )


def log_input_example(
    index: int,
    example: InputExample,
    tokens: Sequence[str],
    features: Mapping[str, Any],
    label_id: Target,
) -> None:
    """Log an example as the original does: the first one, or with --verbosity=1 every one.

    Args:
        index: the index of the example in its set.
        example: the example.
        tokens: its tokens, special tokens included.
        features: its encoder features by name, padded.
        label_id: its target.
    """

    def details():
        yield f"guid: {example.guid}"
        yield f"tokens: {' '.join(tokens)}"
        for name in ENCODER_INPUTS:
            yield f"{name}: {' '.join(map(str, features[name]))}"
        yield f"label: {example.label} (id = {label_id})"

    log_example(tokens, index == 0, details)
