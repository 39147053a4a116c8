"""Examples of text classification and regression, and their encoded form."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.data.model_inputs import ModelInputs, log_example, model_input_ids
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.options.fine_tuning import WINDOWS
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tokenization import FullTokenizer

LARGEST_SCORE = 1e15  # squares of differences, summed over a batch, fit float32
LOGGED_EXAMPLES = 5


@dataclasses.dataclass
class InputExample:
    """A text, or a pair of texts, with its label.

    Attributes:
        guid: name of the example, for the log.
        label: in regression the score, as text; in multi-label classification a tuple of labels;
            None if unknown.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | tuple[str, ...] | None = None


class PaddingInputExample:
    """Fills the last batch where all batches must have the same size; the metrics ignore it."""


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """An encoded data set without padding, of n texts or pairs.

    `label_ids` are int32[n]; float32[n] in regression; int32[n, labels] in multi-label
    classification. `is_real_example`, int32[n], is 0 for padding examples, and for those that are
    out of scope, bool[n]. The rows are the windows of the texts if these have `num_windows`,
    int64[n], each.
    """

    inputs: ModelInputs
    label_ids: np.ndarray
    is_real_example: np.ndarray
    shuffle_buffer_size: int = 0
    record_stem: str | None = None
    is_out_of_scope: np.ndarray | None = None
    num_windows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> np.ndarray:
        """int64[rows], tokens of each, including the special tokens."""
        return self.inputs.lengths

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of examples or, of windows, theirs, which define an epoch, and that
        of the texts.
        """
        return (
            {"": len(self)}
            if self.num_windows is None
            else {"window ": len(self.lengths), "text ": len(self)}
        )

    @functools.cached_property
    def texts(self) -> np.ndarray:
        """int64[rows], the index of each row's example."""
        return np.repeat(np.arange(len(self)), 1 if self.num_windows is None else self.num_windows)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch: the encoder features, int32[b, length], `label_ids` and
        `is_real_example`.

        Of windows it has `example_weight`, float32[b], the share of each in its text.
        """
        texts = self.texts[rows]
        batch = {
            **self.inputs.features(rows, length),
            "label_ids": self.label_ids[texts],
            "is_real_example": self.is_real_example[texts],
        }
        if self.num_windows is None:
            return batch
        return batch | {"example_weight": (1 / self.num_windows[texts]).astype(np.float32)}


def encoded_examples(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
    logs_first: bool = False,
    long_texts: LongTexts | None = None,
    takes_unknown: bool = False,
) -> EncodedExamples:
    """Encodes examples as the original's `convert_examples_to_features` does, in arrays.

    Examples without a label and padding examples get the label 0. `label_list` is None in
    regression. With `long_texts` the examples of the result are windows of texts. With
    `takes_unknown` those with another label are out of scope.
    """
    num_windows = []

    def encoded(example):
        if isinstance(example, PaddingInputExample):
            return [([], 0)]
        if not long_texts:
            return [model_input_ids(tokenizer, example.text_a, example.text_b, max_seq_length)]
        if example.text_b:
            raise InputError(
                f"--long_texts={WINDOWS}: is for single texts, and example {example.guid} is a "
                "pair; leave the flag out"
            )
        return long_texts.windows(tokenizer, example.text_a, max_seq_length)

    def inputs():
        for example in counted(examples, "examples encoded"):
            found = encoded(example)
            num_windows.append(len(found))
            yield from found

    is_real = np.array([not isinstance(example, PaddingInputExample) for example in examples], bool)
    is_out_of_scope = None
    if takes_unknown:
        is_out_of_scope = is_real & [
            getattr(example, "label", None) not in {None, *label_list} for example in examples
        ]
        if is_out_of_scope.all():
            raise InputError(
                "--abstain_below: no example of the development set has a label of the training set"
            )
        is_real &= ~is_out_of_scope
    target_of = target_maker(label_list)
    targets = [
        target_of(example) if real else None
        for example, real in zip(examples, is_real, strict=True)
    ]
    no_target = np.zeros_like(next((target for target in targets if target is not None), 0))
    encoded_set = EncodedExamples(
        inputs=ModelInputs(inputs()),
        label_ids=np.array(
            [no_target if target is None else target for target in targets],
            np.float32 if label_list is None else np.int32,
        ),
        is_real_example=is_real.astype(np.int32),
        is_out_of_scope=is_out_of_scope,
        num_windows=np.array(num_windows, np.int64) if long_texts else None,
    )
    if logs_first:
        _log_first(examples, encoded_set, max_seq_length, tokenizer)
    return encoded_set


def target_maker(
    label_list: Sequence[str] | None,
) -> Callable[[InputExample], int | float | list[int] | None]:
    """Returns a function from an example to its target: a label id, a score, a list of 0 and 1,
    or None.
    """
    numbers = {label: number for number, label in enumerate(label_list or ())}

    def target_of(example):
        label = example.label
        if label is None:
            return None
        if label_list is None:
            score = float(label)
            if not abs(score) <= LARGEST_SCORE:
                raise InputError(
                    f"example {example.guid}: has the score {label!r}, on which no model can be "
                    "trained; correct it"
                )
            return score
        for one in label if isinstance(label, tuple) else (label,):
            if one not in numbers:
                raise InputError(
                    f"example {example.guid}: has the label {one!r}; the labels are "
                    f"{', '.join(map(str, numbers))}"
                )
        if isinstance(label, tuple):
            return [int(one in label) for one in label_list]
        return numbers[label]

    return target_of


def _log_first(
    examples: Sequence, encoded: EncodedExamples, max_seq_length: int, tokenizer: FullTokenizer
):
    """Logs the first five examples from their ids, without tokenizing them again."""
    rows = np.arange(min(LOGGED_EXAMPLES, len(encoded.lengths)))
    batch = encoded.features(rows, max_seq_length)
    for row in rows:
        if batch["is_real_example"][row]:
            ids = encoded.inputs.ids[row].tolist()
            features = {name: values[row] for name, values in batch.items()}
            label_id = features["label_ids"].tolist()
            log_input_example(
                row,
                examples[encoded.texts[row]],
                tokenizer.convert_ids_to_tokens(ids),
                features,
                label_id,
            )


def log_input_example(
    index: int, example: InputExample, tokens: Sequence[str], features: Mapping[str, Any], label_id
):
    def details():
        yield f"guid: {example.guid}"
        yield f"tokens: {' '.join(tokens)}"
        for name in ENCODER_INPUTS:
            yield f"{name}: {' '.join(map(str, features[name]))}"
        yield f"label: {example.label} (id = {label_id})"

    log_example(tokens, index == 0, details)
