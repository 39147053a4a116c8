"""Sparse embeddings as a task: trained by run_sparse_embeddings, evaluated, and served."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.config import BertConfig
from official_bert.data.model_inputs import ModelInputs
from official_bert.data.retrieval_sets import (
    IS_QUERY,
    EncodedTexts,
    check_pair_labels,
    encode_texts,
)
from official_bert.data.text_examples import EncodedExamples, build_example_rows
from official_bert.data.text_tables import Example, read_examples
from official_bert.extensions.sparse import evaluation, vocabulary_max
from official_bert.extensions.sparse.losses import LOSSES, flops
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.extensions.sparse.options import ACTIVATIONS, MODEL
from official_bert.extensions.sparse.settings import SparseSettings
from official_bert.extensions.sparse.sparse_folder import read_record
from official_bert.features import ENCODER_INPUTS
from official_bert.graph_text.text_reader import TextReader
from official_bert.io import errors, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import has_checkpoints
from official_bert.modeling.losses import stack_columns
from official_bert.options.fields import format_flag
from official_bert.serving.predictor import Predictor
from official_bert.tasks.base import DataFiles, Task
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers
from official_bert.tokenization import FullTokenizer

INDICES, WEIGHTS = "indices", "weights"
QUERY_SIGNATURE = "query"


class SparseTask(Task):
    """Weights of the words of the vocabulary for each text."""

    settings_class = SparseSettings
    text_inputs: ClassVar = {"text_a": [None]}
    main_metric = "eval_ndcg_at_10"

    def __init__(
        self,
        query_encoder: str = MODEL,
        term_activation: str = ACTIVATIONS[0],
        max_terms: int | None = None,
        settings: SparseSettings | None = None,
    ):
        """Makes the task.

        Args:
            query_encoder: one of QUERY_ENCODERS: how queries are encoded.
            term_activation: one of ACTIVATIONS: the weight of a word by its largest logit.
            max_terms: the number of words of a text that are kept; None for all with a weight.
            settings: the other flags of run_sparse_embeddings; None for their defaults.
        """
        self.query_encoder = query_encoder
        self.term_activation = term_activation
        self.max_terms = max_terms
        self._settings = settings or SparseSettings()
        self._vocab_size = 0
        self._document_frequencies: np.ndarray | None = None  # of the training set

    @classmethod
    def from_settings(cls, variant: None, settings: SparseSettings) -> Self:
        """Makes the task of the flags and of the model's folder; see `ServedTask.from_settings`."""
        typed = settings.to_record()
        # The model of a run is that of its folder, if there is one.
        has_model = settings.output_dir and has_checkpoints(settings.output_dir)
        folder = settings.output_dir if has_model else settings.init_checkpoint
        recorded = read_record(folder) if folder else {}
        if folder and not settings.do_train:
            for name in ("query_encoder", "term_activation"):
                if name in recorded and typed.get(name, recorded[name]) != recorded[name]:
                    raise InputError(
                        f"{format_flag(name, typed[name])}: the model of {folder} was trained with "
                        f"{recorded[name]}; leave the flag out"
                    )
        return cls(**recorded | typed, settings=settings)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[Example]]:
        path = data_files.path(
            set_name,
            [set_name + ending for ending in (".tsv", ".csv", ".jsonl", ".parquet", ".txt")],
        )
        return {"": read_examples(path, f"{set_name}_file", self._settings.values)}

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedExamples | EncodedTexts:
        if set_name == "train":
            return self._encode_training_set(examples, tokenizer, max_seq_length)
        return encode_texts(examples, tokenizer, max_seq_length, set_name == "dev")

    def _encode_training_set(
        self, examples: Sequence[Example], tokenizer: FullTokenizer, max_seq_length: int
    ) -> EncodedExamples:
        loss = LOSSES[self._settings.loss](self._settings)
        if self._settings.train_batch_size == 1 and loss.reads == "text_ids":
            errors.warn(
                "--train_batch_size=1: the loss compares the examples of a batch; give it several"
            )
        check_pair_labels(examples, self._settings.loss, loss.reads == "scores")
        rows, text_ids = build_example_rows(examples, loss, self._settings.loss)
        further = {"text_ids": text_ids}
        if loss.reads == "scores":
            scores = [one.score() for one in examples for _ in one.positives]
            further = {"scores": np.array(scores, np.float32)}
        inputs = rows.encoded(tokenizer, max_seq_length)
        if self.query_encoder != MODEL:
            documents = np.unique(text_ids[:, 1:])
            self._document_frequencies = count_documents(inputs, documents)
        return EncodedExamples(inputs, text_ids, further)

    def build_model(self, config: BertConfig, **arguments: Any) -> BertSparseEncoder:
        self._vocab_size = config.vocab_size
        model = BertSparseEncoder(config, self.query_encoder, self.term_activation, **arguments)
        if self._document_frequencies is not None:
            weights = compute_idf(self._document_frequencies, config.vocab_size)
            model.query_lookup.weights_by_word.assign(weights)
        return model

    def objective(self, model: BertSparseEncoder) -> "SparseObjective":
        # XLA lacks the operations.
        compiles = self._settings.values.get("jit_compile")
        model.pools_by_text = vocabulary_max.is_available() and not compiles
        return SparseObjective(model, self._settings)

    def outputs(self, model: BertSparseEncoder, features: dict) -> dict:
        """Returns the words of texts and their weights, int32[B, K] and float32[B, K].

        Each text is a query or a document, as the feature `is_query` says.
        """
        weights = model(features)
        if self.query_encoder != MODEL:
            queries = model.encode_queries(features)
            weights = tf.where(features[IS_QUERY][:, None] > 0, queries, weights)
        return list_terms(weights, self.max_terms)

    def metrics(self, encoded: EncodedTexts, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        return evaluation.measure(encoded, outputs[INDICES], outputs[WEIGHTS], self._vocab_size)

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedTexts,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes test_terms.jsonl: a line for each distinct text with its words and weights."""
        path = os.path.join(output_dir, "test_terms.jsonl")
        with writing.replacing(path) as file:
            for text, indices, weights in zip(
                encoded.texts, outputs[INDICES], outputs[WEIGHTS], strict=True
            ):
                file.write(json.dumps({"text": text, **make_answer(indices, weights)}) + "\n")
        logging.info("Wrote %s", path)

    def serving_outputs(self, model: BertSparseEncoder, features: dict) -> dict:
        """Returns the words of documents, int32[B, K], and their weights, float32[B, K]."""
        inputs = {name: features[name] for name in ENCODER_INPUTS}
        return list_terms(model(inputs), self.max_terms)

    def serving_text(self, model: BertSparseEncoder, texts: dict, reader: TextReader) -> dict:
        return self.serving_outputs(model, reader.inputs(texts["text_a"], None))

    def further_signatures(
        self, model: BertSparseEncoder, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns the signature of queries, if the model does not encode them as documents."""
        if self.query_encoder == MODEL:
            return {}

        def encode_queries(inputs: dict) -> dict:
            features = reader.inputs(inputs["text_a"], None) if reader else inputs
            return list_terms(model.encode_queries(features), self.max_terms)

        return {QUERY_SIGNATURE: encode_queries}

    def settings(self) -> dict[str, Any]:
        return SparseSettings(
            query_encoder=self.query_encoder,
            term_activation=self.term_activation,
            max_terms=self.max_terms,
        ).to_record()

    @classmethod
    def client(cls, model: ServedModel, settings: SparseSettings) -> "SparseClient":
        return SparseClient(model)


def list_terms(weights: tf.Tensor, max_terms: int | None) -> dict[str, tf.Tensor]:
    """Return the words of texts that have a weight, those with the largest weight first.

    Args:
        weights: the weights of all words, float32[B, V].
        max_terms: the number of words that are kept; None for all.

    Returns:
        `indices`, int32[B, K], and `weights`, float32[B, K]. K is `max_terms`, or the number of
        words of the text that has most. Texts with fewer words have weights of 0 behind them.
    """
    sizes = tf.abs(weights)
    if max_terms is not None:
        num_terms = min(max_terms, weights.shape[-1])
    else:
        counts = tf.math.count_nonzero(weights, axis=1, dtype=tf.int32)
        num_terms = tf.maximum(tf.reduce_max(counts), 1)
        context = tf.distribute.get_replica_context()
        if context and context.num_replicas_in_sync > 1:
            # The outputs of all replicas need one width; the sum is enough for each.
            num_terms = context.all_reduce(tf.distribute.ReduceOp.SUM, num_terms)
            num_terms = tf.minimum(num_terms, tf.shape(weights)[1])
    _, indices = tf.math.top_k(sizes, num_terms)
    largest_weights = tf.gather(weights, indices, batch_dims=1)
    return {INDICES: tf.identity(indices), WEIGHTS: tf.identity(largest_weights)}


def count_documents(inputs: ModelInputs, rows: np.ndarray) -> np.ndarray:
    """Return the number of documents that have each word, and behind it the number of all.

    Args:
        inputs: the inputs of the model, with [CLS] first and [SEP] last.
        rows: the rows of the documents.

    Returns:
        int64[words + 1].
    """
    ids = np.concatenate([np.unique(inputs.ids[row][1:-1]) for row in rows])
    return np.append(np.bincount(ids), len(rows))


def compute_idf(document_frequencies: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the inverse document frequencies of BM25, log(1 + (n - df + 0.5) / (df + 0.5)).

    Source: Robertson and Zaragoza (2009).

    Args:
        document_frequencies: the result of `count_documents`.
        vocab_size: V.

    Returns:
        float32[V].
    """
    *counts, num_documents = document_frequencies
    frequencies = np.zeros(vocab_size)
    frequencies[: len(counts)] = counts
    ratios = (num_documents - frequencies + 0.5) / (frequencies + 0.5)
    return np.log1p(ratios).astype(np.float32)


class SparseObjective:
    """The loss of a batch, and the FLOPS losses that make it sparse; a `ComparingObjective`."""

    sum_names = ("loss",)
    tensorboard_only = ()

    def __init__(self, model: BertSparseEncoder, settings: SparseSettings):
        self._model = model
        self._loss = LOSSES[settings.loss](settings)
        self._settings = settings
        self._step: tf.Variable | None = None
        self._num_warmup_steps = 1
        self.compared = (self._loss.reads,)

    def follow(self, step: tf.Variable, num_train_steps: int) -> None:
        """Let the weights of the FLOPS losses rise with the number of updates.

        Args:
            step: the number of updates that have been made, int64[].
            num_train_steps: the number of updates of the training.
        """
        self._step = step
        self._num_warmup_steps = max(1, int(num_train_steps * self._settings.flops_warmup))

    def vectors(self, features: dict, dropout_seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the weights of the texts of examples, float32[b, N, V].

        Args:
            features: the features of the examples, int32[b, N, S], by name.
            dropout_seed: int32[2]; None for no dropout.
        """
        settings = {"training": dropout_seed is not None, "dropout_seed": dropout_seed}
        inputs = {name: features[name] for name in ENCODER_INPUTS}
        if self._model.query_encoder == MODEL:
            return _encode_columns(self._model, inputs, settings)
        documents = {name: ids[:, 1:] for name, ids in inputs.items()}
        queries = {name: ids[:, 0] for name, ids in inputs.items()}
        return tf.concat(
            [
                self._model.encode_queries(queries)[:, None],
                _encode_columns(self._model, documents, settings),
            ],
            axis=1,
        )

    def batch_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of a whole batch, float32[].

        Args:
            vectors: the weights of all texts, float32[batch, N, V].
            features: the features with the keys of `compared`.
        """
        settings = self._settings
        sparsity = settings.document_flops * flops(stack_columns(vectors[:, 1:]))
        if self._model.query_encoder == MODEL:
            sparsity += settings.query_flops * flops(vectors[:, 0])
        return self._loss(vectors, features) + self._warmup_share() * sparsity

    def _warmup_share(self) -> tf.Tensor | float:
        """Returns the share of the FLOPS losses in this update."""
        if self._step is None:
            return 1.0
        position = tf.cast(self._step, tf.float32) / self._num_warmup_steps
        return tf.square(tf.minimum(position, 1.0))

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps.

        Args:
            sums: the sums of the steps, by name.
            num_steps: the number of these steps.
        """
        return {"loss": sums["loss"] / num_steps}


def _encode_columns(model: keras.Model, features: dict, settings: Mapping[str, Any]) -> tf.Tensor:
    """Returns the weights of texts, float32[B, N, V], for features int32[B, N, S]."""
    shape = ops.shape(features["input_ids"])
    flat = {name: ops.reshape(ids, (-1, shape[2])) for name, ids in features.items()}
    weights = model(flat, **settings)
    return ops.reshape(weights, (*shape[:2], weights.shape[-1]))


class SparseClient(TextClient):
    """A client that gets the words of a document and their weights."""

    method = "terms"

    def __init__(self, model: ServedModel):
        super().__init__(model, ("text_a",))
        self._words = {number: word for word, number in model.tokenizer.vocab.items()}

    def answer(self, row: Row) -> dict:
        answer = make_answer(row[INDICES], row[WEIGHTS])
        words = [self._words.get(index, str(index)) for index in answer[INDICES]]
        return answer | {"terms": dict(zip(words, answer[WEIGHTS], strict=True))}

    def postprocess(self, texts: Texts, answer: dict) -> dict[str, float]:
        return answer["terms"]


def make_answer(indices: np.ndarray, weights: np.ndarray) -> dict[str, list]:
    """Return the words of a text and their weights, ready for JSON.

    Args:
        indices: the words, int32[K].
        weights: their weights, float32[K]; words of weight 0 are left out.
    """
    is_active = weights != 0
    return {INDICES: indices[is_active].tolist(), WEIGHTS: numbers(weights[is_active])}


def predictor_methods() -> Mapping[str, Callable]:
    """Returns the methods of a Predictor."""
    return {"terms": terms}


def terms(predictor: Predictor, *texts: str | list[str]) -> Any:
    """Returns the words of a text with their weights, the largest first.

    Args:
        predictor: the object that has this function as a method.
        *texts: a text, or a list of texts.

    Returns:
        A dict of weights by word; for a list of texts a list of dicts.

    Raises:
        InputError: the model has another method, or cannot read a text.
    """
    return predictor.postprocess("terms", texts)
