"""Sparse embeddings as a task: trained by run_sparse_embeddings, evaluated, and served."""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.data.model_inputs import ModelInputs
from official_bert.data.retrieval_sets import IS_QUERY, EncodedTexts
from official_bert.data.text_examples import EncodedExamples, TextLoss
from official_bert.data.text_tables import Example
from official_bert.extensions.sparse import evaluation, vocabulary_max
from official_bert.extensions.sparse.losses import LOSSES, flops
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.extensions.sparse.options import ACTIVATIONS, MODEL
from official_bert.extensions.sparse.settings import SparseSettings
from official_bert.extensions.sparse.sparse_folder import read_record
from official_bert.features import select_encoder_inputs
from official_bert.graph_text.text_reader import TextReader
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.modeling.losses import encode_each_text, stack_columns
from official_bert.options.fields import format_flag
from official_bert.serving.predictor import Predictor
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers
from official_bert.tasks.retrieval_task import RetrievalTask, choose_model_settings
from official_bert.tokenization import FullTokenizer
from official_bert.training.whole_batch import MeanLoss

INDICES, WEIGHTS = "indices", "weights"


class SparseTask(RetrievalTask):
    """Weights of the words of the vocabulary for each text."""

    settings_class = SparseSettings

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
        super().__init__(self._settings)
        self._vocab_size = 0
        self._document_frequencies: np.ndarray | None = None  # of the training set

    @classmethod
    def from_settings(cls, variant: None, settings: SparseSettings) -> Self:
        """Makes the task of the flags and of the model's folder; see `ServedTask.from_settings`."""
        fixed_names = ("query_encoder", "term_activation")
        model_settings = choose_model_settings(settings, read_record, fixed_names)
        query_encoder = model_settings.get("query_encoder", MODEL)
        if query_encoder != MODEL and settings.query_flops != SparseSettings.query_flops:
            raise InputError(
                f"{format_flag('query_flops', settings.query_flops)}: has no effect with "
                f"--query_encoder={query_encoder}, whose queries have no such loss; leave the flag "
                "out"
            )
        return cls(**model_settings, settings=settings)

    @property
    def _text_loss(self) -> TextLoss:
        return LOSSES[self._settings.loss](self._settings)

    @property
    def _learns_margins(self) -> bool:
        return LOSSES[self._settings.loss].reads == "scores"

    def _encode_training_set(
        self, examples: Sequence[Example], tokenizer: FullTokenizer, max_seq_length: int
    ) -> EncodedExamples:
        encoded = super()._encode_training_set(examples, tokenizer, max_seq_length)
        if self.query_encoder != MODEL:
            documents = np.unique(encoded.rows[:, 1:])
            self._document_frequencies = count_documents(encoded.inputs, documents)
        return encoded

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
        return list_terms(model(select_encoder_inputs(features)), self.max_terms)

    def further_signatures(
        self, model: BertSparseEncoder, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns the signature of queries, if the model does not encode them as documents."""
        return {} if self.query_encoder == MODEL else super().further_signatures(model, reader)

    def _serve_queries(self, model: BertSparseEncoder, features: dict) -> dict:
        return list_terms(model.encode_queries(features), self.max_terms)

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


class SparseObjective(MeanLoss):
    """The loss of a batch, and the FLOPS losses that make it sparse; a `ComparingObjective`."""

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
        encode = functools.partial(
            self._model, training=dropout_seed is not None, dropout_seed=dropout_seed
        )
        inputs = select_encoder_inputs(features)
        if self._model.query_encoder == MODEL:
            return encode_each_text(encode, inputs)
        documents = {name: ids[:, 1:] for name, ids in inputs.items()}
        queries = {name: ids[:, 0] for name, ids in inputs.items()}
        return tf.concat(
            [
                self._model.encode_queries(queries)[:, None],
                encode_each_text(encode, documents),
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


class SparseClient(TextClient):
    """A client that gets the words of a document and their weights."""

    method = "terms"
    vectors_hint = "use SparseEncoder of Python, which encodes and searches"

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
