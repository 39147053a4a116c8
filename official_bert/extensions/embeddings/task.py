"""Sentence embeddings as a task: trained by run_embeddings, evaluated, and served."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.checkpoints.dense_module import Dense
from official_bert.config import BertConfig
from official_bert.data.prompts import Prompts, can_insert
from official_bert.data.text_examples import (
    DOCUMENT,
    POOLING_START,
    QUERY,
    QUERY_PREFIX,
    EncodedExamples,
    TextForm,
    all_texts,
    build_example_rows,
    read_margins,
)
from official_bert.data.text_tables import Example, read_examples
from official_bert.extensions.embeddings import evaluation, label_checks
from official_bert.extensions.embeddings.evaluation import EncodedTexts
from official_bert.extensions.embeddings.losses import LOSSES, Loss, Matryoshka
from official_bert.extensions.embeddings.model import BertEmbedder
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.extensions.embeddings.prompted_client import EmbeddingClient
from official_bert.extensions.embeddings.sentence_encoder import SentenceEncoder
from official_bert.extensions.embeddings.sentence_folder import NORMALIZE, SentenceModules
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from official_bert.features import ENCODER_INPUTS
from official_bert.graph_text.prompt_insertion import insert_prompt
from official_bert.graph_text.text_reader import TextReader
from official_bert.io import errors, writing
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import map_texts
from official_bert.model_dir import ModelFolder, has_checkpoints
from official_bert.modeling.heads import POOLINGS
from official_bert.options.fields import format_flag
from official_bert.serving.predictor import Predictor, compute_teacher_scores
from official_bert.tasks.base import DataFiles, Task, TaskObjective
from official_bert.tasks.clients import ServedModel
from official_bert.tokenization import FullTokenizer

_VECTORS = "vectors"


class EmbeddingTask(Task):
    """One vector for each text, pooled from the last layer."""

    settings_class = EmbeddingSettings
    text_inputs: ClassVar = {"text_a": [None]}

    def __init__(
        self,
        pooling: str = "mean",
        normalize: bool = True,
        projection: int | None = None,
        settings: EmbeddingSettings | None = None,
        prompts: Prompts | None = None,
    ):
        """Makes the task.

        Args:
            pooling: how the vectors of the tokens become one: a name of `POOLINGS`.
            normalize: whether vectors are divided by their norms.
            projection: the width of a linear layer after the pooling; None for no layer.
            settings: the other flags of run_embeddings; None for their defaults.
            prompts: the prompts of the texts; None for no prompts.
        """
        if pooling not in POOLINGS:
            raise InputError(f"--pooling={pooling}: must be one of {', '.join(POOLINGS)}")
        self.pooling = pooling
        self.normalize = normalize
        self.projection = projection
        self._settings = settings or EmbeddingSettings()
        self._kind = self._settings.eval_task or "sts"
        self.prompts = prompts or Prompts()
        self._target_width: int | None = None  # of the teacher's vectors
        self._tokenizer: FullTokenizer | None = None  # of the model that is served

    @classmethod
    def from_settings(cls, variant: None, settings: EmbeddingSettings) -> Self:
        """Makes the task of the flags and of the model's folder; see `ServedTask.from_settings`."""
        typed = settings.to_record()
        # The model of a run is that of its folder, if there is one.
        has_model = settings.output_dir and has_checkpoints(settings.output_dir)
        folder = settings.output_dir if has_model else settings.init_checkpoint
        recorded = _read_pooling_settings(folder) if folder else {}
        if folder and not settings.do_train:
            _refuse_contradictions(folder, typed, recorded)
        prompts = SentenceModules.load(folder).prompts if folder else Prompts()
        prompts = prompts.override(settings.values)
        return cls(**recorded | typed, settings=settings, prompts=prompts)

    def for_checkpoint(
        self, names: Collection[str], tokenizer: FullTokenizer, config: BertConfig
    ) -> Self:
        self._tokenizer = tokenizer
        return self

    @property
    def main_metric(self) -> str:
        return evaluation.list_evaluations()[self._kind].main_metric

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[Example]]:
        source: Any = data_files.path(
            set_name,
            [set_name + ending for ending in (".tsv", ".csv", ".jsonl", ".parquet", ".txt")],
        )
        examples = source  # in memory
        if isinstance(source, str):
            examples = read_examples(source, f"{set_name}_file", self._settings.values)
        if set_name == "dev":
            self._kind = self._settings.eval_task or evaluation.choose_kind(examples)
            logging.info(
                "The evaluation is %s, whose main metric is %s", self._kind, self.main_metric
            )
            parts_read = evaluation.list_evaluations()[self._kind].parts_read
            label_checks.warn_about_unread_parts(examples, self._kind, parts_read)
        return {"": examples}

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedExamples | EncodedTexts:
        self.prompts.check_length(tokenizer, max_seq_length)
        forms = self.prompts.make_forms(max_seq_length)
        if set_name == "train":
            return self._encoded_training_set(examples, tokenizer, forms)
        rows = all_texts(examples, _has_roles(forms))
        metrics = evaluation.prepare(examples, rows, self._kind) if set_name == "dev" else None
        return EncodedTexts(
            rows.encoded_in_forms(tokenizer, forms),
            rows.texts,
            metrics,
            rows.pooling_starts(tokenizer, forms),
        )

    def _encoded_training_set(
        self, examples: Sequence, tokenizer: FullTokenizer, forms: Mapping[str, TextForm]
    ) -> EncodedExamples:
        loss = self._loss()
        if loss.compares_batch and self._settings.train_batch_size == 1:
            errors.warn(
                "--train_batch_size=1: the loss compares the examples of a batch; give it several"
            )
        if self._settings.teacher and not {"targets", "margins"} & {*loss.reads}:
            raise InputError(
                "--teacher: goes with --loss=mse, which learns its vectors, gist and margin_mse, "
                f"not {self._settings.loss}"
            )
        rows, text_ids = build_example_rows(examples, loss, self._settings.loss, _has_roles(forms))
        label_checks.check_training(examples, self._settings.loss)
        further, targets = {}, None
        if "scores" in loss.reads:
            further["scores"] = np.array(
                [one.score() for one in examples for _ in one.positives], np.float32
            )
        if "text_ids" in loss.reads:
            further["text_ids"] = text_ids
        if "margins" in loss.reads:
            teacher = self._settings.teacher
            compute_scores = functools.partial(compute_teacher_scores, teacher) if teacher else None
            further["margins"] = read_margins(examples, text_ids.shape[1], compute_scores)
        if "targets" in loss.reads:
            targets = self._compute_targets(rows.texts)
            if loss.learns_targets:
                self._target_width = targets.shape[1]
        has_documents = text_ids.shape[1] > 1 and loss.num_texts != (1, 1)
        query_length = forms[QUERY].max_seq_length
        return EncodedExamples(
            rows.encoded_in_forms(tokenizer, forms),
            text_ids,
            further,
            targets,
            pooling_starts=rows.pooling_starts(tokenizer, forms),
            query_length=query_length if self.prompts.query_length and has_documents else None,
            is_query_padded=self._settings.use_tpu,
        )

    def _compute_targets(self, texts: list[str]) -> np.ndarray:
        """Returns the vectors of the teacher, float32[texts, D]."""
        if not self._settings.teacher:
            raise InputError(
                f"--loss={self._settings.loss}: needs a --teacher, whose vectors it reads"
            )
        logging.info("%d texts get their vectors from the teacher", len(texts))
        try:
            vectors = SentenceEncoder(self._settings.teacher).encode(texts)
        except InputError as error:
            raise InputError(f"--teacher={self._settings.teacher}: {error}") from None
        return vectors

    def _loss(self) -> Loss:
        loss = LOSSES[self._settings.loss](self._settings)
        widths = self._settings.matryoshka
        return Matryoshka(loss, [int(width) for width in widths]) if widths else loss

    def build_model(self, config: BertConfig, **arguments: Any) -> BertEmbedder:
        self._check_widths(self.projection or config.hidden_size)
        return BertEmbedder(config, self.pooling, self.projection, self.normalize, **arguments)

    def _check_widths(self, width: int):
        """Refuses vectors of a width that the loss cannot use."""
        if self._target_width not in (None, width):
            raise InputError(
                f"--teacher: its vectors have {self._target_width} components, those of the model "
                f"{width}; give --projection={self._target_width}"
            )
        widths = [int(one) for one in self._settings.matryoshka or []]
        if any(one > width for one in widths):
            raise InputError(
                f"--matryoshka={','.join(map(str, widths))}: the vectors of the model have {width} "
                "components; give no larger number"
            )
        if self._settings.loss == "angle" and any(one % 2 for one in (width, *widths)):
            raise InputError(
                "--loss=angle: takes two components for a complex number, so that their number "
                "must be even; change --projection or --matryoshka"
            )

    def objective(self, model: BertEmbedder) -> "BatchObjective | TaskObjective":
        loss = self._loss()
        if loss.compares_batch:
            return self.batch_objective(model)
        return TaskObjective(
            model,
            lambda model, features: loss(_vectors(model, features), features),
            lambda features: ops.ones(ops.shape(features["input_ids"])[:1]),
        )

    def batch_objective(self, model: BertEmbedder) -> "BatchObjective":
        self._check_widths(self.projection or model.config.hidden_size)
        return BatchObjective(model, self._loss())

    def outputs(self, model: BertEmbedder, features: dict) -> dict:
        """Returns `vectors`, float32[B, D], of texts."""
        return {_VECTORS: model(features)}

    def metrics(self, encoded: EncodedTexts, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        assert encoded.metrics is not None  # A set that is only predicted has no evaluation.
        return encoded.metrics(outputs[_VECTORS])

    def describe_predictions(
        self, encoded: EncodedTexts, outputs: dict[str, np.ndarray]
    ) -> Iterator[dict[str, Any]]:
        return map_texts(encoded.texts, outputs[_VECTORS])

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedTexts,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes test_vectors.npy, float32[texts, D], and test_texts.jsonl with the different
        texts, one a line.
        """
        for name, write in (
            ("test_vectors.npy", lambda file: np.save(file, outputs[_VECTORS])),
            (
                "test_texts.jsonl",
                lambda file: file.writelines(
                    f"{json.dumps(text)}\n".encode() for text in encoded.texts
                ),
            ),
        ):
            path = os.path.join(output_dir, name)
            with writing.replacing(path, "wb") as file:
                write(file)
            logging.info("Wrote %s", path)

    def serving_outputs(self, model: BertEmbedder, features: dict) -> dict:
        """Returns `embedding`, float32[B, D]."""
        return {EMBEDDING: tf.identity(model({name: features[name] for name in ENCODER_INPUTS}))}

    def serving_text(self, model: BertEmbedder, texts: dict, reader: TextReader) -> dict:
        form = self.prompts.make_form(reader.max_seq_length)
        return self._answer_texts(model, texts, reader, form)

    def further_signatures(
        self, model: BertEmbedder, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns `query` and `document` of an export of text, if the model has prompts."""
        if reader is None or not self.prompts.has_roles:
            return {}
        return {
            role: functools.partial(self._answer_texts, model, reader=reader, form=form)
            for role, form in self.prompts.make_forms(reader.max_seq_length).items()
        }

    def _answer_texts(
        self, model: BertEmbedder, texts: dict, reader: TextReader, form: TextForm
    ) -> dict:
        strings = texts["text_a"]
        if form.prompt:
            strings = tf.strings.join([form.prompt, strings])
        form_reader = dataclasses.replace(reader, max_seq_length=form.max_seq_length)
        return self._embed_prompted(model, form_reader.inputs(strings, None), form)

    def feature_signatures(self, model: BertEmbedder) -> dict[str, Callable[[dict], dict]]:
        """Returns `query` and `document`, which insert the prompt of the role."""
        if self._tokenizer is None:
            return {}
        answers = {}
        longest = model.config.max_position_embeddings
        for name, form in self.prompts.make_signature_forms(longest).items():
            if can_insert(form.prompt, self._tokenizer):
                answers[name] = functools.partial(self._answer_ids, model, form=form)
            else:
                errors.warn(
                    "The prompt %r ends in no blank or punctuation mark, so that its last word may "
                    "continue in a text: the export has no signature %s",
                    form.prompt,
                    name,
                )
        return answers

    def _answer_ids(self, model: BertEmbedder, features: dict, form: TextForm) -> dict:
        assert self._tokenizer is not None
        prompt_ids = self._tokenizer.encode(form.prompt)
        prompted = insert_prompt(features, prompt_ids, model.config.max_position_embeddings)
        return self._embed_prompted(model, prompted, form)

    def _embed_prompted(self, model: BertEmbedder, features: dict, form: TextForm) -> dict:
        """Returns the outputs for texts behind the prompt of a form."""
        assert self._tokenizer is not None
        start = form.find_pooling_start(self._tokenizer)
        if start:
            num_texts = tf.shape(features["input_ids"])[0]
            features = {**features, POOLING_START: tf.fill([num_texts], start)}
        return {EMBEDDING: tf.identity(model(features))}

    def settings(self) -> dict[str, Any]:
        settings = EmbeddingSettings(
            pooling=self.pooling,
            normalize=self.normalize,
            projection=self.projection,
        )
        return settings.to_record() | self.prompts.to_record()

    @classmethod
    def client(cls, model: ServedModel, settings: EmbeddingSettings) -> EmbeddingClient:
        return EmbeddingClient(model, Prompts.from_settings(settings.values))


def _has_roles(forms: Mapping[str, TextForm]) -> bool:
    return forms[QUERY] != forms[DOCUMENT]


def _read_pooling_settings(checkpoint: str) -> dict[str, Any]:
    """Returns how the folder of a checkpoint makes vectors, by the arguments of EmbeddingTask."""
    modules = SentenceModules.load(checkpoint)
    settings = {"pooling": modules.pooling, "normalize": NORMALIZE in modules.layers}
    if SentenceModules.read(checkpoint) is None:  # a folder of this project
        widths = [len(layer.kernel) for layer in modules.layers if isinstance(layer, Dense)]
        return settings | {"projection": widths[-1] if widths else None}
    for rule in modules.rules_without_field(ModelFolder(checkpoint).tokenizer_config()):
        errors.warn("%s: has %s, which the training leaves out", checkpoint, rule)
    return settings | {"projection": None}


def _refuse_contradictions(checkpoint: str, typed: Mapping[str, Any], recorded: Mapping[str, Any]):
    """Refuses flags that contradict a folder of sentence-transformers; those against task.json
    are refused before.
    """
    if SentenceModules.read(checkpoint) is None:
        return
    for name in ("pooling", "normalize"):
        if typed.get(name, recorded[name]) != recorded[name]:
            raise InputError(
                f"{format_flag(name, typed[name])}: the modules of {checkpoint} say "
                f"{recorded[name]}, with which the model was trained; leave the flag out"
            )


class BatchObjective:
    """The loss of vectors that are compared with those of the whole batch; `ComparingObjective`
    of training.
    """

    sum_names = ("loss",)
    tensorboard_only = ()

    def __init__(self, model: BertEmbedder, loss: Loss):
        self._model, self._loss, self.compared = model, loss, loss.reads

    def batch_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of a batch, float32[].

        Args:
            vectors: the vectors of the texts of all examples, float32[batch, N, D].
            features: the features with the keys of `compared`.
        """
        return ops.mean(self._loss(vectors, features))

    def vectors(self, features: dict, dropout_seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the vectors of the texts of examples, float32[b, N, D].

        Args:
            features: the features of the examples, int32[b, N, S], by name.
            dropout_seed: int32[2]; None for no dropout.
        """
        return _vectors(
            self._model, features, training=dropout_seed is not None, dropout_seed=dropout_seed
        )

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps.

        Args:
            sums: the sums of the steps, by name.
            num_steps: the number of these steps.
        """
        return {"loss": sums["loss"] / num_steps}


def _vectors(model: BertEmbedder, features: dict, **keywords: Any):
    """Returns the vectors of the texts of examples, float32[B, N, D], for features int32[B, N,
    S]; those of anchors may have another length, and names of their own.
    """
    shape = ops.shape(features["input_ids"])
    flat = {name: ops.reshape(features[name], (-1, shape[2])) for name in ENCODER_INPUTS}
    if POOLING_START in features:
        flat[POOLING_START] = ops.reshape(features[POOLING_START], (-1,))
    vectors = model(flat, **keywords)
    vectors = ops.reshape(vectors, (*shape[:2], vectors.shape[-1]))
    query_features = {}
    for name, values in features.items():
        if name.startswith(QUERY_PREFIX):
            query_features[name.removeprefix(QUERY_PREFIX)] = values
    if not query_features:
        return vectors
    anchors = _vectors(model, query_features, **keywords)
    return ops.concatenate([anchors, vectors], axis=1)


def predictor_methods() -> Mapping[str, Callable]:
    """Returns the methods of a Predictor."""
    return {"embed": embed, "encode_query": encode_query, "encode_document": encode_document}


def embed(predictor: Predictor, *texts: str | list[str]) -> Any:
    """Returns the vector of a text, a list of floats; for a list of texts a list of vectors.

    Args:
        predictor: the object that has this function as a method.
        *texts: a text, or a list of texts.

    Raises:
        InputError: the model has another method, or cannot read a text.
    """
    return predictor.postprocess("embed", texts)


def encode_query(
    predictor: Predictor,
    texts: str | list[str],
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> np.ndarray:
    """Returns the vectors of queries, float32[n, width]: those of `encode` with the prompt "query".

    Args:
        predictor: the object that has this function as a method.
        texts: a text, or a list of texts.
        prompt_name: the name of another prompt.
        prompt: a text to put before each query instead.

    Raises:
        InputError: the model has no such prompt, or cannot read a text.
    """
    return predictor.encode(texts, role=QUERY, prompt_name=prompt_name, prompt=prompt)


def encode_document(
    predictor: Predictor,
    texts: str | list[str],
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> np.ndarray:
    """Returns the vectors of documents, float32[n, width].

    They are those of `encode` with the prompt "document", or else "passage" or "corpus".

    Args:
        predictor: the object that has this function as a method.
        texts: a text, or a list of texts.
        prompt_name: the name of another prompt.
        prompt: a text to put before each document instead.

    Raises:
        InputError: the model has no such prompt, or cannot read a text.
    """
    return predictor.encode(texts, role=DOCUMENT, prompt_name=prompt_name, prompt=prompt)
