"""The encoder inside a model with a head: the base of the pre-training model and of the fine-tuning models.

In: a dict of features. Out, in subclasses: what the head computes from the encoder's output.
"""

from keras import ops

from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling.bert import BertModel
from official_bert.modeling.bilstm import BiLstm
from official_bert.modeling.configured import ConfiguredModel, in_context
from official_bert.modeling.directions import direction_of
from official_bert.modeling.inputs import checked_features, given_features


class HeadedModel(ConfiguredModel):
    """A model whose encoder is `bert`; a subclass builds the head and computes `call`.

    Attributes:
        feature_names: the features that may be keyword arguments of a call.
    """

    feature_names = ENCODER_INPUTS

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool, name: str):
        super().__init__(name=name)
        self.bert = BertModel(config, use_one_hot_embeddings)
        self.config, self.use_one_hot_embeddings = self.bert.config, use_one_hot_embeddings
        self.layers_on_top = self.make_bilstm()

    def make_bilstm(self) -> BiLstm | None:
        """Returns the BiLSTM between the encoder and the head, if the configuration has one."""
        if not self.config.num_layers_on_top:
            return None
        bilstm = BiLstm(self.config.num_layers_on_top, self.config.hidden_size)
        bilstm.build((None, None, self.config.hidden_size))
        return bilstm

    def __call__(self, features=None, training=None, dropout_seed=None, **keywords):
        """Checks the features and computes what `call` describes.

        Lists, arrays and tensors of other integers do as well. The features may also be keyword arguments:
        `model(**features)` is `model(features)`.

        Raises:
            InputError: as BertModel; or there are no features with `input_ids`, or a keyword argument is no feature.
        """
        for name in keywords:
            if name not in self.feature_names:
                raise InputError(
                    f"{name}: no argument of the model; it takes {', '.join(self.feature_names)}"
                )
        given = given_features(features, keywords)
        return super().__call__(self.checked(given), dropout_seed=dropout_seed, **in_context(training))

    def checked(self, given: dict) -> dict:
        """Returns the features, checked as far as their values are known."""
        return checked_features(self.config, given)

    def encoded(self, features, training, dropout_seed, first_token_only=False):
        """Returns the BertOutput of a batch of checked features; with a BiLSTM its last outputs are those above it."""
        inputs = [features.get(name) for name in ENCODER_INPUTS]
        first_token_only &= self.layers_on_top is None
        out = self.bert(
            *inputs, training=training, dropout_seed=dropout_seed, first_token_only=first_token_only
        )
        if self.layers_on_top is None:
            return out
        input_mask = ops.ones_like(inputs[0]) if inputs[1] is None else inputs[1]
        vectors = self.layers_on_top(out.sequence_output, input_mask)
        pooled = direction_of(self.config).pooled_vectors(vectors, input_mask)
        return out._replace(sequence_output=vectors, pooled_output=self.bert.pooler(pooled))
