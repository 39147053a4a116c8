"""Late interaction as a task: trained by run_late_interaction, evaluated, and served."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.data.retrieval_sets import IS_QUERY, EncodedTexts
from official_bert.data.text_examples import EncodedExamples, TextLoss
from official_bert.data.text_tables import Example
from official_bert.extensions.late_interaction.losses import ranking_loss, score_all, score_pairs
from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
from official_bert.extensions.late_interaction.multi_vector_folder import (
    MODEL_SETTINGS,
    read_record,
)
from official_bert.extensions.late_interaction.options import QUERY_LENGTH, TOKEN_WIDTH
from official_bert.extensions.late_interaction.settings import LateInteractionSettings
from official_bert.extensions.late_interaction.token_features import TokenRules
from official_bert.extensions.late_interaction.token_vectors import TokenVectors, score_blocks
from official_bert.features import select_encoder_inputs
from official_bert.io import errors, writing
from official_bert.io.errors import InputError
from official_bert.modeling.losses import encode_each_text, stack_columns
from official_bert.tasks.clients import Row, ServedModel, TextClient, plain
from official_bert.tasks.retrieval_task import RetrievalTask, choose_model_settings
from official_bert.tokenization import FullTokenizer
from official_bert.training.whole_batch import MeanLoss

VECTORS, COUNTS = "vectors", "mask"
_MARGIN_MSE = "margin_mse"


class _Texts:
    """The numbers of texts that a loss reads; a `TextLoss` of data/text_examples.py."""

    repeats = 1

    def __init__(self, loss: str):
        self.num_texts: tuple[int, int] = (3, 3) if loss == _MARGIN_MSE else (2, 1000)


class LateInteractionTask(RetrievalTask):
    """A vector for each token of a text, compared by MaxSim."""

    settings_class = LateInteractionSettings

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        token_width: int = TOKEN_WIDTH,
        query_length: int = QUERY_LENGTH,
        attend_to_expansion: bool = False,
        skip_punctuation: bool = True,
        query_marker: str = "",
        document_marker: str = "",
        settings: LateInteractionSettings | None = None,
    ):
        """Makes the task.

        Args:
            token_width: the number of components of the vector of a token.
            query_length: the number of tokens of every query; 0 leaves queries as they are.
            attend_to_expansion: whether queries attend to the [MASK] behind them.
            skip_punctuation: whether the vectors of punctuation in documents are left out.
            query_marker: the word of the vocabulary behind the [CLS] of queries; "" for none.
            document_marker: that of documents.
            settings: the other flags of run_late_interaction; None for their defaults.
        """
        self.token_width = token_width
        self.query_length = query_length
        self.attend_to_expansion = attend_to_expansion
        self.skip_punctuation = skip_punctuation
        self.query_marker = query_marker
        self.document_marker = document_marker
        self._settings = settings or LateInteractionSettings()
        super().__init__(self._settings)
        self._rules: TokenRules | None = None

    @classmethod
    def from_settings(cls, variant: None, settings: LateInteractionSettings) -> Self:
        """Makes the task of the flags and of the model's folder; see `ServedTask.from_settings`."""
        model_settings = choose_model_settings(settings, read_record, MODEL_SETTINGS)
        return cls(**model_settings, settings=settings)

    @property
    def rules(self) -> TokenRules:
        """How tokens are treated; known from the tokenizer on."""
        assert self._rules is not None  # A set was encoded, or a checkpoint opened.
        return self._rules

    def for_checkpoint(self, names: Any, tokenizer: FullTokenizer, config: BertConfig) -> Self:
        recorded_length = self._settings.values.get("max_seq_length")
        longest = recorded_length or config.max_position_embeddings
        self._rules = TokenRules.make(tokenizer, self, longest)
        return self

    @property
    def _text_loss(self) -> TextLoss:
        return _Texts(self._settings.loss)

    @property
    def _learns_margins(self) -> bool:
        return self._settings.loss == _MARGIN_MSE

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedExamples | EncodedTexts:
        self._rules = TokenRules.make(tokenizer, self, max_seq_length)
        return super().encode(examples, tokenizer, max_seq_length, set_name)

    def _encode_training_set(
        self, examples: Sequence[Example], tokenizer: FullTokenizer, max_seq_length: int
    ) -> EncodedExamples:
        if self.query_length > max_seq_length:
            errors.warn(
                "--max_seq_length=%d: truncates queries, too, before --query_length=%d fills them "
                "up",
                max_seq_length,
                self.query_length,
            )
        return super()._encode_training_set(examples, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig, **arguments: Any) -> BertMultiVectorEncoder:
        if self.query_length > config.max_position_embeddings:
            raise InputError(
                f"--query_length={self.query_length}: the model was made for sequences up to "
                f"{config.max_position_embeddings} tokens; give a smaller number"
            )
        return BertMultiVectorEncoder(config, self.token_width, **arguments)

    def objective(self, model: BertMultiVectorEncoder) -> "MaxSimObjective":
        return MaxSimObjective(model, self.rules, self._settings)

    def outputs(self, model: BertMultiVectorEncoder, features: dict) -> dict:
        """Returns the vectors of texts, float32[B, S, D], and which count, float32[B, S].

        Each text is a query or a document, as the feature `is_query` says.
        """
        is_query = features[IS_QUERY] > 0
        inputs = select_encoder_inputs(features)
        query_inputs, query_counts = self.rules.expand_queries(inputs)
        document_inputs, document_counts = self.rules.mark_documents(inputs)

        def choose_rows(queries: tf.Tensor, documents: tf.Tensor) -> tf.Tensor:
            return tf.where(is_query[:, None], *_pad_equally(queries, documents))

        counts = choose_rows(query_counts, document_counts)
        chosen_inputs = {
            name: choose_rows(query_inputs[name], document_inputs[name]) for name in query_inputs
        }
        return {
            VECTORS: model(chosen_inputs) * counts[..., None],
            COUNTS: counts,
        }

    def metrics(self, encoded: EncodedTexts, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        assert encoded.retrieval is not None  # A set that is only predicted has no evaluation.
        texts = _unpad(outputs)
        queries = TokenVectors.pack(texts[: encoded.num_queries], self.token_width)
        documents = TokenVectors.pack(texts[encoded.num_queries :], self.token_width)
        metrics = encoded.retrieval.measure(score_blocks(queries, documents))
        metrics["document_tokens"] = len(documents.values) / len(documents)
        return {f"eval_{name}": value for name, value in metrics.items()}

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedTexts,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes test_vectors.npz, which `TokenVectors.load` reads, and test_texts.txt."""
        vectors = TokenVectors.pack(_unpad(outputs), self.token_width)
        path = os.path.join(output_dir, "test_vectors.npz")
        vectors.save(path)
        logging.info("Wrote %s", path)
        path = os.path.join(output_dir, "test_texts.txt")
        with writing.replacing(path) as file:
            file.writelines(f"{text}\n" for text in encoded.texts)
        logging.info("Wrote %s", path)

    def serving_outputs(self, model: BertMultiVectorEncoder, features: dict) -> dict:
        """Returns the vectors of documents, float32[B, S, D], and which count, int32[B, S]."""
        inputs = select_encoder_inputs(features)
        return _name_outputs(*encode_documents(model, self.rules, inputs))

    def _serve_queries(self, model: BertMultiVectorEncoder, features: dict) -> dict:
        return _name_outputs(*encode_queries(model, self.rules, features))

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MODEL_SETTINGS}

    @classmethod
    def client(
        cls, model: ServedModel, settings: LateInteractionSettings
    ) -> "LateInteractionClient":
        return LateInteractionClient(model, ("text_a",))


def encode_queries(
    model: Callable[[dict], tf.Tensor], rules: TokenRules, features: dict
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the vectors of queries, float32[B, L, D], and which count, float32[B, L].

    Args:
        model: the model, or a call of it with further arguments.
        rules: how tokens are treated.
        features: the inputs of the encoder, int32[B, S], by name.
    """
    inputs, counts = rules.expand_queries(features)
    return model(inputs) * counts[..., None], counts


def encode_documents(
    model: Callable[[dict], tf.Tensor], rules: TokenRules, features: dict
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the vectors of documents, float32[B, L, D], and which count, as `encode_queries` does.

    Args:
        model: the model, or a call of it with further arguments.
        rules: how tokens are treated.
        features: the inputs of the encoder, int32[B, S], by name.
    """
    inputs, counts = rules.mark_documents(features)
    return model(inputs) * counts[..., None], counts


def _pad_equally(a: tf.Tensor, b: tf.Tensor, axis: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns two tensors with zeros at the end of an axis, which then has one length in both."""
    length = tf.maximum(tf.shape(a)[axis], tf.shape(b)[axis])
    padded = []
    for values in (a, b):
        paddings: list[list[Any]] = [[0, 0]] * values.shape.rank
        paddings[axis] = [0, length - tf.shape(values)[axis]]
        padded.append(tf.pad(values, paddings))
    return padded[0], padded[1]


def _unpad(outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the vectors of each text that count, float32[tokens, D]."""
    pairs = zip(outputs[VECTORS], outputs[COUNTS], strict=True)
    return [vectors[counts > 0] for vectors, counts in pairs]


def _name_outputs(vectors: tf.Tensor, counts: tf.Tensor) -> dict[str, tf.Tensor]:
    return {VECTORS: tf.identity(vectors), COUNTS: tf.cast(counts, tf.int32)}


class MaxSimObjective(MeanLoss):
    """The loss of the MaxSim scores of a batch; a `ComparingObjective` of training.

    The last component of each vector says whether it counts.
    """

    def __init__(
        self, model: BertMultiVectorEncoder, rules: TokenRules, settings: LateInteractionSettings
    ):
        self._model = model
        self._rules = rules
        self._settings = settings
        self.compared = ("scores",) if settings.loss == _MARGIN_MSE else ("text_ids",)

    def vectors(self, features: dict, dropout_seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the vectors of the texts of examples, float32[b, N, S, D + 1].

        Args:
            features: the features of the examples, int32[b, N, S], by name.
            dropout_seed: int32[2]; None for no dropout.
        """
        encode = functools.partial(
            self._model, training=dropout_seed is not None, dropout_seed=dropout_seed
        )

        def encode_joined_queries(inputs: dict) -> tf.Tensor:
            return _join(*encode_queries(encode, self._rules, inputs))

        def encode_joined_documents(inputs: dict) -> tf.Tensor:
            return _join(*encode_documents(encode, self._rules, inputs))

        inputs = select_encoder_inputs(features)
        queries = {name: ids[:, :1] for name, ids in inputs.items()}
        documents = {name: ids[:, 1:] for name, ids in inputs.items()}
        columns = _pad_equally(
            encode_each_text(encode_joined_queries, queries),
            encode_each_text(encode_joined_documents, documents),
            axis=2,
        )
        return tf.concat(columns, axis=1)

    def batch_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of a whole batch, float32[].

        Args:
            vectors: the vectors of all texts, float32[batch, N, S, D + 1].
            features: the features with the keys of `compared`.
        """
        queries = _split(vectors[:, 0])
        if self._settings.loss == _MARGIN_MSE:
            margins = score_pairs(*queries, *_split(vectors[:, 1]))
            margins -= score_pairs(*queries, *_split(vectors[:, 2]))
            return tf.reduce_mean(tf.square(margins - features["scores"]))
        scores = score_all(*queries, *_split(stack_columns(vectors[:, 1:])))
        return ranking_loss(scores, features["text_ids"], self._settings.scale)


def _join(vectors: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns float32[..., D + 1] of float32[..., D] and float32[...]."""
    return tf.concat([vectors, counts[..., None]], axis=-1)


def _split(joined: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns what `_join` has joined."""
    return joined[..., :-1], tf.stop_gradient(joined[..., -1])


class LateInteractionClient(TextClient):
    """A client that gets the vectors of the tokens of a document."""

    vectors_hint = "give --token_index for the vectors of its tokens, or use MultiVectorEncoder"

    def answer(self, row: Row) -> dict:
        return {VECTORS: plain(row[VECTORS][row[COUNTS] > 0])}
