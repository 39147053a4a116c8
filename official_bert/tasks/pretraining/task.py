"""Pre-training as a task on record files, whose exports give vectors, and words for masked
tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import tensorflow as tf
from absl import logging

from official_bert.config import LEFT_TO_RIGHT, BertConfig
from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.data.pretraining.settings import InstanceVocabulary, mask_config
from official_bert.data.records import pretraining_input
from official_bert.data.records.record_files import expand_records, record_contents
from official_bert.features import (
    ENCODER_INPUTS,
    MASKED_LM_POSITIONS,
    Feature,
    pretraining_features,
    unmasked_features,
)
from official_bert.io.errors import InputError
from official_bert.modeling import BertPretrainer
from official_bert.options.serving import POOLER
from official_bert.options.shared import MaskingOptions
from official_bert.tasks.base import DataFiles, TrainableTask
from official_bert.tasks.clients import ServedModel
from official_bert.tasks.pretraining.client import (
    MASK,
    MASK_SIGNATURE,
    POOLED,
    SEQUENCE,
    TEXT_MASK_SIGNATURE,
    TOP_K,
    PretrainingClient,
)
from official_bert.tasks.pretraining.objective import LeftToRightObjective, PretrainingObjective
from official_bert.tasks.settings import TaskSettings, recorded
from official_bert.tokenization import FullTokenizer, load_vocab

if TYPE_CHECKING:
    import keras

    from official_bert.graph_text.text_reader import TextReader

_POOLER, _MASKED_LM, _NEXT_SENTENCE = "bert/pooler", "cls/predictions", "cls/seq_relationship"


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """Record files with these features; `masks` makes from a seed what masks the batches of
    records without masks.
    """

    files: Sequence[str]
    features: Sequence[Feature]
    masks: Callable[[int], DynamicMasks] | None = None

    def training(
        self, config: BertConfig, batch_size: int, seed: int, shuffles_each_pass: bool
    ) -> tuple[tf.data.Dataset, int]:
        """Returns endless shuffled batches.

        Args:
            config: the configuration of the model, which limits the values of the features.
            batch_size: the number of records of a batch.
            seed: the seed of the order and of the masks.
            shuffles_each_pass: whether the files are shuffled within each pass. Otherwise they are
                shuffled across passes, as in the original, so that of a few files one may be read
                twice at the same time.

        Returns:
            The batches, and the key without which their position has no meaning.

        Raises:
            InputError: the first record of a file is invalid, or no file has a record.
        """
        reading = self.files, self.features, batch_size
        masks = self.masks and self.masks(seed)
        limits = self._limits(config)
        dataset = pretraining_input.training_dataset(
            *reading, seed, limits, masks, shuffles_each_pass
        )
        contents = record_contents(self.files)
        return dataset, pretraining_input.reading_key(
            contents, self.features, batch_size, shuffles_each_pass
        )

    def evaluation(
        self, config: BertConfig, batch_size: int, seed: int, repeat: bool
    ) -> tf.data.Dataset:
        """Returns batches in the order of the files.

        Args:
            config: the configuration of the model, which limits the values of the features.
            batch_size: the number of records of a batch.
            seed: the seed of the masks; records with masks need none.
            repeat: whether the batches are endless; otherwise they have every record once, and the
                last batch may be smaller.

        Raises:
            InputError: the first record of a file is invalid, or no file has a record.
        """
        masks = self.masks and self.masks(seed)
        return pretraining_input.evaluation_dataset(
            self.files, self.features, batch_size, self._limits(config), repeat, masks
        )

    def check(self, config: BertConfig) -> None:
        """Validates the first record of each file.

        Args:
            config: the configuration of the model, which limits the values of the features.

        Raises:
            InputError: the first record of a file is invalid, or no file has a record.
        """
        pretraining_input.check_first_records(self.files, self.features, self._limits(config))

    def count(self) -> int:
        return pretraining_input.count_records(self.files)

    def explaining_errors(self, config: BertConfig) -> contextlib.AbstractContextManager:
        """Returns a context around the use of batches, which explains TensorFlow's errors.

        It replaces an error about a record by an InputError that names the record.

        Args:
            config: the configuration of the model, which limits the values of the features.
        """
        return pretraining_input.explaining_input_errors(
            self.files, self.features, self._limits(config)
        )

    def _limits(self, config: BertConfig) -> dict[str, pretraining_input.Limit]:
        length = next(feature.length for feature in self.features if feature.name == "input_ids")
        limits = pretraining_input.pretraining_limits(
            config.vocab_size, config.type_vocab_size, length
        )
        return {feature.name: limits[feature.name] for feature in self.features}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(TaskSettings, MaskingOptions):
    """The flags of run_pretraining.py that the task reads, and the setting of a client; flags have
    their help texts.

    Attributes:
        pooling: how a client makes one vector of a text.
    """

    max_seq_length: int | None = recorded()
    max_predictions_per_seq: int | None = recorded()
    dynamic_masking: bool = False
    use_next_sentence: bool = True
    train_batch_size: int = 32
    recompute_layers: bool = False
    vocab_file: str | None = None
    bert_config_file: str | None = None
    pooling: str = POOLER

    @property
    def is_export(self) -> bool:
        """Whether the settings are those of an export, which reads no records."""
        return "input_file" not in self.values


class PretrainingTask(TrainableTask):
    """The objectives of pre-training; of an export, the outputs of the encoder and of the heads
    of a checkpoint.

    Attributes:
        trained_class: makes the model of a training, with the arguments of BertPretrainer; a plugin
            of the training may replace it.
    """

    settings_class = PretrainingSettings
    trained_class: Callable[..., BertPretrainer] = BertPretrainer
    text_inputs: ClassVar = {"text_a": [None], "text_b": [None]}

    def __init__(
        self,
        tokens: Sequence[str] = (),
        has_pooler: bool = True,
        has_masked_lm: bool = True,
        settings: PretrainingSettings | None = None,
    ):
        """Sets the outputs of an export or the flags of a training.

        Args:
            tokens: the tokens of the vocabulary by id, for an export.
            has_pooler: whether an export returns the pooled output.
            has_masked_lm: whether an export fills masks.
            settings: the flags of run_pretraining.py; None for an export.
        """
        self.tokens = tokens
        self.has_pooler = has_pooler
        self.has_masked_lm = has_masked_lm
        self._settings = settings

    @property
    def _run_settings(self) -> PretrainingSettings:
        """The flags of run_pretraining.py."""
        assert self._settings is not None, "only run_pretraining.py reads records"
        return self._settings

    @classmethod
    def from_settings(cls, variant: None, settings: PretrainingSettings) -> Self:
        """Makes the task of an export or of run_pretraining.py."""
        if settings.is_export:
            return cls()
        _check_masking(settings)
        return cls(settings=settings)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[str]]:
        """Returns the names of the record files; those of the training set are evaluated if
        there are no others.
        """
        patterns = data_files.named.get(set_name)
        flag = "eval_input_file" if patterns and set_name == "dev" else "input_file"
        return {"": expand_records(patterns or data_files.named["train"], flag)}

    def encode(
        self,
        examples: list[str],
        tokenizer: FullTokenizer | None,
        max_seq_length: int,
        set_name: str,
    ) -> RecordSet:
        # An evaluation may have fixed masks, which compare well.
        if self._run_settings.dynamic_masking and not (
            set_name == "dev" and pretraining_input.have_masks(examples)
        ):
            return RecordSet(examples, unmasked_features(max_seq_length), self._make_masks)
        return RecordSet(examples, pretraining_features(**self.settings()))

    def _make_masks(self, seed: int) -> DynamicMasks:
        settings = self._run_settings
        assert settings.vocab_file is not None  # A pre-training that draws masks needs it.
        vocabulary = InstanceVocabulary.from_vocab(load_vocab(settings.vocab_file))
        return DynamicMasks(vocabulary, mask_config(settings), seed)

    def objective(
        self, model: BertPretrainer, batch_size: int | None = None
    ) -> PretrainingObjective | LeftToRightObjective:
        """Returns the objective of the attention's direction.

        Args:
            model: the model.
            batch_size: the examples of an evaluation batch, over all replicas; None in training.
        """
        batch_size = batch_size or self._run_settings.train_batch_size
        if model.config.direction == LEFT_TO_RIGHT:
            return LeftToRightObjective(model, batch_size)
        return PretrainingObjective(model, batch_size, self._run_settings.use_next_sentence)

    def settings(self) -> dict[str, int]:
        """Returns the lengths of the records; none for an export."""
        return self._settings.to_record() if self._settings else {}

    def for_checkpoint(
        self, names: Collection[str], tokenizer: FullTokenizer, config: BertConfig
    ) -> PretrainingTask:
        """Returns the task with the heads of the checkpoint; the log names the missing heads."""
        has = {head: any(name.startswith(head) for name in names) for head in (_POOLER, _MASKED_LM)}
        if config.direction == LEFT_TO_RIGHT:
            logging.warning(
                "The model predicts from left to right, not masked words: %s is left out",
                MASK_SIGNATURE,
            )
            return PretrainingTask(_tokens(tokenizer, config), has[_POOLER], has_masked_lm=False)
        for head, output in ((_POOLER, POOLED), (_MASKED_LM, MASK_SIGNATURE)):
            if not has[head]:
                logging.warning(
                    "The checkpoint has no %s: %s is left out of the export", head, output
                )
        return PretrainingTask(_tokens(tokenizer, config), has[_POOLER], has[_MASKED_LM])

    def build_model(self, config: BertConfig, **arguments: Any) -> BertPretrainer:
        if self._settings:
            return self._build_trained_model(config, **arguments)
        model = BertPretrainer(config, **arguments)
        absent = {_POOLER: not self.has_pooler, _MASKED_LM: not self.has_masked_lm}
        model.unused_weights = (
            _NEXT_SENTENCE,
            *(name for name, is_absent in absent.items() if is_absent),
        )
        return model

    def _build_trained_model(
        self, config: BertConfig, use_one_hot_embeddings: bool
    ) -> BertPretrainer:
        settings = self._run_settings
        if config.num_layers_on_top:
            raise InputError(
                f"{settings.bert_config_file}: has num_bilstm_layers={config.num_layers_on_top}, "
                "which is for fine-tuning; remove the field"
            )
        return self.trained_class(
            config, use_one_hot_embeddings, recompute_layers=settings.recompute_layers
        )

    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `sequence_output`, float32[B, S, hidden], and `pooled_output`, float32[B,
        hidden].
        """
        encoded = _encoded(model, features)
        outputs = {SEQUENCE: tf.cast(encoded.sequence_output, tf.float32)}
        if self.has_pooler:
            outputs[POOLED] = tf.cast(encoded.pooled_output, tf.float32)
        return outputs

    def further_signatures(
        self, model: keras.Model, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns `masked_words` or, of text, `fill_masks`, if the checkpoint has a masked LM
        head for [MASK].
        """
        if not self.has_masked_lm or (reader and MASK not in reader.vocab):
            return {}
        if reader:
            return {TEXT_MASK_SIGNATURE: lambda texts: self.fill_masks(model, texts, reader)}
        return {MASK_SIGNATURE: lambda features: self.masked_words(model, features)}

    def masked_words(self, model: keras.Model, features: dict) -> dict:
        """Returns the most probable words at `masked_lm_positions`, the most probable first.

        Args:
            model: the BertPretrainer.
            features: the encoder features, int32[B, S], and `masked_lm_positions`, int32[B, P].

        Returns:
            `top_k_probabilities`, `top_k_ids` and `top_k_tokens`, each [B, P, k].
        """
        positions = features[MASKED_LM_POSITIONS]
        encoded = _encoded(model, features)
        logits = model.cls.predictions(
            encoded.sequence_output, positions, model.bert.embedding_table
        )
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))  # [B*P, V]
        best, ids = tf.math.top_k(probabilities, k=min(TOP_K, len(self.tokens)))
        shape = tf.concat([tf.shape(positions), [-1]], axis=0)
        return {
            "top_k_probabilities": tf.reshape(best, shape),
            "top_k_ids": tf.reshape(ids, shape),
            "top_k_tokens": tf.reshape(tf.gather(tf.constant(self.tokens), ids), shape),
        }

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        """Returns `serving_outputs` for a text, or for a pair if `text_b` has a token, and its
        `tokens`, string[B, S].

        The tokenizer keeps [MASK] as one token.
        """
        features = _text_features(texts, reader)
        numbers = tf.where(features["input_mask"] > 0, features["input_ids"] + 1, 0)
        return self.serving_outputs(model, features) | {
            "tokens": tf.gather(tf.constant(["", *self.tokens]), numbers)
        }

    def fill_masks(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        """Returns `masked_words` for every [MASK] in a text or a pair, [B, masks], in order.

        Further outputs are `num_masks`, int32[B], and `positions`, int32[B, masks], the positions
        among the tokens. After the last mask of a text, positions and ids are -1, probabilities are
        0 and tokens are "".

        Args:
            model: the BertPretrainer.
            texts: `text_a` and `text_b`, string[B]; `text_b` is "" for a single text.
            reader: makes encoder features of the texts; its vocabulary contains [MASK].
        """
        features = _text_features(texts, reader)
        is_mask = features["input_ids"] == reader.vocab[MASK]
        columns = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(columns, is_mask)
        outputs = self.masked_words(model, features | {MASKED_LM_POSITIONS: positions.to_tensor()})
        is_there = tf.sequence_mask(positions.row_lengths())[..., None]
        nothing = {"top_k_probabilities": 0.0, "top_k_ids": -1, "top_k_tokens": ""}
        return {
            name: tf.where(is_there, values, nothing[name]) for name, values in outputs.items()
        } | {
            "num_masks": tf.cast(positions.row_lengths(), tf.int32),
            "positions": positions.to_tensor(-1),
        }

    @classmethod
    def client(cls, model: ServedModel, settings: PretrainingSettings) -> PretrainingClient:
        return PretrainingClient(model, settings.pooling)


def _check_masking(settings: PretrainingSettings):
    """Validates flags of masks, which need records without masks, and the vocabulary."""
    if settings.dynamic_masking:
        mask_config(settings)
        if settings.vocab_file is None:
            raise InputError(
                "--dynamic_masking: needs the vocabulary that the records were made with; give "
                "--vocab_file"
            )
        return
    for field in dataclasses.fields(MaskingOptions):
        if getattr(settings, field.name) != field.default:
            raise InputError(
                f"--{field.name}: the records have their masks; give --dynamic_masking with "
                "records that have none, or give the flag to create_pretraining_data.py"
            )


def _tokens(tokenizer: FullTokenizer, config: BertConfig) -> list[str]:
    """Returns the tokens by id, "" for the ids of the model that the vocabulary lacks."""
    return [tokenizer.inv_vocab.get(number, "") for number in range(config.vocab_size)]


def _text_features(texts: dict, reader: TextReader) -> dict:
    """Makes encoder features of `text_inputs`; [MASK] stays one token if the vocabulary contains
    it.
    """
    tokenizer = reader.tokenizer
    encode = tokenizer.encode_with_masks if MASK in reader.vocab else tokenizer.encode
    return reader.build_inputs(encode(texts["text_a"]), encode(texts["text_b"]))


def _encoded(model: keras.Model, features: dict):
    return model.bert(*(features[name] for name in ENCODER_INPUTS))
