"""What the tasks share whose models encode queries and documents, and rank documents by scores.

In: the flags of a run, tables of related texts. Out: `RetrievalTask`, the base of such a task.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from official_bert.data.retrieval_sets import EncodedTexts, check_pair_labels, encode_texts
from official_bert.data.text_examples import EncodedExamples, TextLoss, build_example_rows
from official_bert.data.text_tables import Example, read_examples
from official_bert.features import select_encoder_inputs
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.model_dir import has_checkpoints
from official_bert.options.fields import format_flag
from official_bert.tasks.base import DataFiles, Task
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    import keras

    from official_bert.graph_text.text_reader import TextReader

QUERY_SIGNATURE = "query"
_ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet", ".txt")


class RetrievalFlags(Protocol):
    """The flags of a training on queries and documents."""

    @property
    def output_dir(self) -> str | None: ...

    @property
    def init_checkpoint(self) -> str | None: ...

    @property
    def do_train(self) -> bool: ...

    @property
    def train_batch_size(self) -> int: ...

    @property
    def loss(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...

    def to_record(self) -> dict[str, Any]:
        """Returns the flags that describe the model, without those of None."""
        ...


def choose_model_settings(
    flags: RetrievalFlags,
    read_record: Callable[[str], dict[str, Any]],
    fixed_names: Sequence[str],
) -> dict[str, Any]:
    """Return the settings of the model of a run: its flags, and else those of the model's folder.

    Args:
        flags: the flags of the run.
        read_record: returns the settings of the model of a folder.
        fixed_names: the settings that only a training can change.

    Raises:
        InputError: a flag contradicts the model, and the run does not train it.
    """
    typed = flags.to_record()
    # The model of a run is that of its folder, if there is one.
    has_model = flags.output_dir and has_checkpoints(flags.output_dir)
    folder = flags.output_dir if has_model else flags.init_checkpoint
    if not folder:
        return typed
    recorded = read_record(folder)
    if not flags.do_train:
        for name in fixed_names:
            value = typed.get(name, recorded.get(name))
            if value != recorded.get(name, value):
                raise InputError(
                    f"{format_flag(name, value)}: the model of {folder} was trained with "
                    f"{recorded[name]}; leave the flag out"
                )
    return recorded | typed


class RetrievalTask(Task):
    """A task that trains on queries with their documents, and measures how documents rank."""

    text_inputs: ClassVar = {"text_a": [None]}
    main_metric = "eval_ndcg_at_10"

    def __init__(self, flags: RetrievalFlags):
        """Makes the task.

        Args:
            flags: the flags of the run.
        """
        self._flags = flags

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[Example]]:
        path = data_files.path(set_name, [set_name + ending for ending in _ENDINGS])
        return {"": read_examples(path, f"{set_name}_file", self._flags.values)}

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedExamples | EncodedTexts:
        if set_name == "train":
            return self._encode_training_set(examples, tokenizer, max_seq_length)
        return encode_texts(examples, tokenizer, max_seq_length, set_name == "dev")

    @property
    @abc.abstractmethod
    def _text_loss(self) -> TextLoss:
        """The numbers of texts that the loss reads."""

    @property
    @abc.abstractmethod
    def _learns_margins(self) -> bool:
        """Whether a label is by how much a teacher scores a document above its negative."""

    def _encode_training_set(
        self, examples: Sequence[Example], tokenizer: FullTokenizer, max_seq_length: int
    ) -> EncodedExamples:
        flags = self._flags
        if flags.train_batch_size == 1 and not self._learns_margins:
            errors.warn(
                "--train_batch_size=1: the loss compares the examples of a batch; give it several"
            )
        check_pair_labels(examples, flags.loss, self._learns_margins)
        rows, text_ids = build_example_rows(examples, self._text_loss, flags.loss)
        further = {"text_ids": text_ids}
        if self._learns_margins:
            scores = [one.score() for one in examples for _ in one.positives]
            further = {"scores": np.array(scores, np.float32)}
        return EncodedExamples(rows.encoded(tokenizer, max_seq_length), text_ids, further)

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        return self.serving_outputs(model, reader.inputs(texts["text_a"], None))

    def further_signatures(
        self, model: keras.Model, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns the signature of queries."""

        def serve(inputs: dict) -> dict:
            features = reader.inputs(inputs["text_a"], None) if reader else inputs
            return self._serve_queries(model, select_encoder_inputs(features))

        return {QUERY_SIGNATURE: serve}

    @abc.abstractmethod
    def _serve_queries(self, model: keras.Model, features: dict) -> dict:
        """Returns the outputs of an export for queries, as `serving_outputs` does for documents.

        Args:
            model: the model of `build_model`.
            features: the three encoder features, int32[B, S] each.
        """
