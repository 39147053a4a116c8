"""The models with a head.

They are for pre-training, classification or regression, choice, tagging and answer spans. A model
may name the weights that no output reads, `unused_weights`, by prefixes.

B batch   S length   P predictions per sequence   V vocabulary   K outputs   N choices
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import (
    HeadedModel,
    LinearHead,
    MaskedLmHead,
    add_output_weights,
    head_dropout,
    head_seed,
    linear_logits,
)
from official_bert.modeling.inputs import checked_ids
from official_bert.modeling.layers import Scope, Tensor
from official_bert.options.serving import MODEL_CLASSES


class PretrainingOutput(NamedTuple):
    """The result of a call of BertPretrainer.

    Extensions add names: those of transformers are in extensions/huggingface_api/models.py.

    Attributes:
        masked_lm_logits: float32[B*P, V], or float32[B, S, V] for a call without
            `masked_lm_positions`.
        next_sentence_logits: float32[B, 2], class 0 for a second segment that follows the first, 1
            for a random one.
        encoded: the BertOutput of the encoder.
    """

    masked_lm_logits: Any
    next_sentence_logits: Any
    encoded: Any

    def __getattr__(self, name: str) -> Any:
        return catalog.bind_member("pretraining_output_members", self, name)

    @property
    def masked_lm_log_probs(self) -> Tensor:
        """The log-probabilities of words, float32 of the same shape as the logits."""
        return ops.log_softmax(ops.cast(self.masked_lm_logits, "float32"))

    @property
    def next_sentence_log_probs(self) -> Tensor:
        """The log-probabilities of both classes, float32[B, 2]."""
        return ops.log_softmax(ops.cast(self.next_sentence_logits, "float32"))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertPretrainer(HeadedModel):
    """BertModel with both pre-training heads, whose losses are in tasks/pretraining/objective.py.

    Example:
        ```python
        from official_bert import BertPretrainer, FullTokenizer

        folder = "quickstart_output/full/bert"
        tokenizer = FullTokenizer.from_pretrained(folder)
        features = tokenizer(["A train left the station."], max_seq_length=16)
        features["masked_lm_positions"] = [[2, 3]]
        output = BertPretrainer.from_pretrained(folder)(features)
        output.masked_lm_log_probs.shape  # [2, vocab_size]
        output.next_sentence_log_probs.shape  # [1, 2]
        ```
    """

    default_name = "pretrainer"
    feature_names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    bilstm_class = BertModel  # a pre-training has none

    def build(self, input_shape: Any = None) -> None:
        """Makes both heads with their weights.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        self.cls = Scope(
            "cls",
            predictions=MaskedLmHead(self.config),
            seq_relationship=LinearHead(2, "seq_relationship", self.config.initializer_range),
        )
        self.cls.build((None, self.config.hidden_size))

    def checked(self, features: dict) -> dict:
        """Returns the features that the model reads, checked as far as their values are known."""
        features = super().checked(features)
        checked = {name: features[name] for name in ENCODER_INPUTS if name in features}
        if MASKED_LM_POSITIONS in features:
            length = checked["input_ids"].shape[-1]
            checked[MASKED_LM_POSITIONS] = checked_ids(
                MASKED_LM_POSITIONS, features[MASKED_LM_POSITIONS], length, "sequence length"
            )
        return checked

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> PretrainingOutput:
        """Encodes a batch and scores words and next sentences.

        Args:
            features: the features of BertModel, and perhaps `masked_lm_positions`, int32[B, P],
                without which every position is scored.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            PretrainingOutput.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        words = self.cls.predictions(
            encoded.sequence_output, features.get(MASKED_LM_POSITIONS), self.bert.embedding_table
        )
        return PretrainingOutput(words, self.cls.seq_relationship(encoded.pooled_output), encoded)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool | None = True,
    ) -> Any:
        """Computes the loss of `fit`.

        Labels that are one tensor are those of the words, as of a masked LM. The arguments are
        those of Keras.

        Args:
            x: the features of the batch.
            y: the labels: those of the words, or a structure like PretrainingOutput.
            y_pred: the PretrainingOutput of the batch.
            sample_weight: the weights of the labels, as Keras takes them; None for the same weight.
            training: whether this is the loss of a training, as opposed to an evaluation.

        Returns:
            The loss of Keras.
        """
        return super().compute_loss(x, y, _labelled_output(y, y_pred), sample_weight, training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the metrics of `fit` for the output that `compute_loss` takes.

        Args:
            x: the features of the batch.
            y: the labels, as in `compute_loss`.
            y_pred: the PretrainingOutput of the batch.
            sample_weight: the weights of the labels, as in `compute_loss`.

        Returns:
            The metrics of Keras, by name.
        """
        return super().compute_metrics(x, y, _labelled_output(y, y_pred), sample_weight)


def _labelled_output(labels: Any, output: Any) -> Any:
    """Returns the part of a PretrainingOutput that labels belong to."""
    return output if keras.tree.is_nested(labels) else output.masked_lm_logits


def _logits(
    model: HeadedModel,
    features: dict,
    training: bool | None,
    dropout_seed: Tensor | None,
    output: str,
):
    """Returns logits, float32[..., K], for the encoder's output of this name in BertOutput."""
    seed = head_seed(training, dropout_seed)
    # Training computes the last layer for all tokens, because a shorter layer would draw other
    # dropout masks from the same seed.
    first_token_only = output == "pooled_output" and not training
    encoded = model.bert(
        features, training=training, dropout_seed=seed, first_token_only=first_token_only
    )
    return linear_logits(model, head_dropout(model.config, getattr(encoded, output), seed))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertClassifier(HeadedModel):
    """A classifier or, with K = 1, a regression model of a text or a pair.

    Source: Devlin et al. (2019), section 4.1. The model computes K outputs from the pooled output:
    the logits of K classes, or one score. As in the original, the variables of the head have no
    scope.

    Example:
        ```python
        import keras
        from official_bert import BertClassifier, FullTokenizer, keras_optimizer

        folder = "quickstart_output/full/bert"
        texts = ["A train left.", "It was sunny."] * 8
        labels = keras.ops.array([0, 1] * 8)
        features = FullTokenizer.from_pretrained(folder)(texts, max_seq_length=32)
        model = BertClassifier.from_pretrained(folder, num_outputs=2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras_optimizer(1e-4), loss, metrics=["accuracy"])
        model.fit(features, labels, epochs=3)
        model(features).shape  # [16, 2]
        ```
    """

    default_name = "classifier"
    needs_num_outputs = True
    huggingface_class = MODEL_CLASSES["classification"]
    encoder_output = "pooled_output"  # the encoder's output that the head reads

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; arguments and errors are those of BertModel.

        Args:
            config: the configuration of the model.
            num_outputs: K.
            use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
            name: the name of the model; None for `default_name`.
            recompute_layers: whether the backward pass computes each layer again.
        """
        self.num_outputs = num_outputs
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the head.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        add_output_weights(self, self.num_outputs, self.config.hidden_size)

    def get_config(self) -> dict:
        return super().get_config() | {"num_outputs": self.num_outputs}

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the logits of a batch.

        Args:
            features: a dict with `input_ids`, `input_mask` and `segment_ids`, each int32[B, S]; the
                last two may be absent, as in BertModel, and others are not read.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            float32[B, K] or, of a tagger, float32[B, S, K].
        """
        return _logits(self, features, training, dropout_seed, self.encoder_output)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertTagger(BertClassifier):
    """A classifier of every token: float32[B, S, K]. Devlin et al. (2019), section 5.3.

    Example:
        ```python
        from official_bert import BertTagger, FullTokenizer

        folder = "quickstart_output/full/bert"
        features = FullTokenizer.from_pretrained(folder)(["A train left."], max_seq_length=16)
        model = BertTagger.from_pretrained(folder, num_outputs=5)
        model(features).shape  # [1, 16, 5]
        ```
    """

    default_name = "tagger"
    huggingface_class = MODEL_CLASSES["tagging"]
    encoder_output = "sequence_output"
    unused_weights = ("bert/pooler",)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertChoice(HeadedModel):
    """A multiple-choice model: one score for each of N texts or pairs.

    Source: Devlin et al. (2019), section 4.4.

    Example:
        ```python
        from official_bert import BertChoice, FullTokenizer

        folder = "quickstart_output/full/bert"
        tokenizer = FullTokenizer.from_pretrained(folder)
        choices = ["The street is wet.", "A train left."]
        pairs = tokenizer(["It rained."] * 2, choices, max_seq_length=32)
        features = {name: ids[None] for name, ids in pairs.items()}  # one example, two choices
        BertChoice.from_pretrained(folder)(features).shape  # [1, 2]
        ```
    """

    default_name = "choice"
    axes = (None, None)
    num_outputs = 1
    huggingface_class = MODEL_CLASSES["choice"]

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the head.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        add_output_weights(self, self.num_outputs, self.config.hidden_size)

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the score of each choice.

        Args:
            features: the features of BertClassifier, but int32[B, N, S].
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            float32[B, N].
        """
        shape = ops.shape(features["input_ids"])
        names = [name for name in ENCODER_INPUTS if name in features]
        flat = {name: ops.reshape(features[name], (-1, shape[2])) for name in names}
        scores = _logits(self, flat, training, dropout_seed, "pooled_output")
        return ops.reshape(scores, shape[:2])


class SpanOutput(NamedTuple):
    """The result of a call of BertSpans.

    Attributes:
        start_logits: float32[B, S].
        end_logits: float32[B, S].
    """

    start_logits: Any
    end_logits: Any


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertSpans(HeadedModel):
    """A model of answer spans: a start and an end logit for every token.

    Source: Devlin et al. (2019), section 4.2.

    Example:
        ```python
        from official_bert import BertSpans, FullTokenizer

        folder = "quickstart_output/full/bert"
        tokenizer = FullTokenizer.from_pretrained(folder)
        features = tokenizer(["When did it leave?"], ["The train left at noon."], max_seq_length=32)
        output = BertSpans.from_pretrained(folder)(features)
        output.start_logits.shape, output.end_logits.shape  # [1, 32], [1, 32]
        ```
    """

    default_name = "spans"
    unused_weights = ("bert/pooler",)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the head.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        self.cls = Scope("cls", squad=LinearHead(2, name="squad"))
        self.cls.build((None, self.config.hidden_size))

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> SpanOutput:
        """Computes the logits of start and end, in which padding is not masked out.

        Args:
            features: the features of BertClassifier.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            SpanOutput.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        logits = self.cls.squad(encoded.sequence_output)  # [B, S, 2]
        return SpanOutput(logits[..., 0], logits[..., 1])
