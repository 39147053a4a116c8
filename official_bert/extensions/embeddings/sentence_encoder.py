"""Embeddings of texts from an encoder, for search and for comparison by cosine.

Input: the folder of a model, plain or of sentence-transformers with its modules. Output:
float32[texts, width].
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import catalog, model_hub
from official_bert.checkpoints import open_checkpoint
from official_bert.checkpoints.dense_module import Dense
from official_bert.data.prompts import Prompts, find_signature
from official_bert.data.text_examples import DOCUMENT, POOLING_START, QUERY, TextForm
from official_bert.extensions.embeddings.model import normalized
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.extensions.embeddings.sentence_folder import (
    COSINE,
    PROJECTION,
    SentenceModules,
)
from official_bert.features import ENCODER_INPUTS
from official_bert.io import progress
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from official_bert.modeling import BertModel
from official_bert.modeling.heads import POOLINGS, pool_texts
from official_bert.serving.encoding import check_positive, choose_max_seq_length
from official_bert.serving.exported_model import (
    DEFAULT,
    OpenedExport,
    check_trained,
    is_export,
    set_threads,
)
from official_bert.serving.extensible import Extensible
from official_bert.tokenization import FullTokenizer, convert_to_unicode
from official_bert.tokenizer_call import list_texts

_AHEAD = 4  # The batches that are tokenized while the model computes another one.

Vectors = Callable[[tf.Tensor], tf.Tensor]


def _layers_after_pooling(modules: SentenceModules, normalize: bool | None) -> list[Vectors]:
    """Returns the functions that follow the pooling."""
    layers: list[Vectors] = []
    for layer in modules.layers:
        if isinstance(layer, Dense):
            layers.append(_make_dense(layer))
        elif normalize is not False:  # The only other layer is NORMALIZE.
            layers.append(normalized)
    if modules.truncate_dim is not None:
        layers.append(lambda vectors: vectors[:, : modules.truncate_dim])
    if layers[-1:] != [normalized]:
        if normalize:
            layers.append(normalized)
        elif normalize is None and modules.similarity == COSINE:
            logging.warning(
                "%s: its vectors are not of norm 1; give normalize=True for cosines",
                modules.encoder,
            )
    return layers


def _check_family(folder: str):
    """Refuses a trained model whose vectors are not of the last layer's tokens."""
    record = ModelFolder(folder).task()
    family = catalog.families().get(record.family) if record else None
    if family and family.encoder not in ("", "SentenceEncoder"):
        raise InputError(
            f"{folder}: is a model of {family.script}, whose outputs SentenceEncoder does not "
            f"compute; open it with {family.encoder}"
        )


def _make_dense(layer: Dense) -> Vectors:
    activate = keras.activations.get(layer.activation)

    def apply(vectors: tf.Tensor) -> tf.Tensor:
        product = tf.matmul(vectors, layer.kernel, transpose_b=True)
        return activate(product + layer.bias)

    return apply


class SentenceEncoder(Extensible):
    """Encodes texts with the last layer of an encoder, as Reimers and Gurevych (2019) do.

    Extensions add methods, such as search: dir(encoder) lists them, and help(encoder.search)
    describes one.

    Attributes:
        model: the encoder, or an opened export.
        tokenizer: the tokenizer of the model.
        max_seq_length: the number of tokens to which texts are truncated.
        prompts: the prompts of the model by name, such as "query".
        default_prompt_name: the name of the prompt that `encode` puts before texts; None for none.
        comparison: the measure by which the vectors are to be compared: "cosine", or another one
            that the folder names.
        metrics: those of the dev set of `train` by name; None without one.

    Example:
        ```python
        from official_bert import SentenceEncoder

        encoder = SentenceEncoder("quickstart_output/full/bert")
        vectors = encoder.encode(["A train left.", "The train has left."])
        vectors.shape  # (2, hidden_size)
        encoder.search("When did it leave?", ["A train left.", "It rained."], k=1)
        # [{"text": ..., "row": ..., ...}]
        ```
    """

    methods_hook = "encoder_methods"
    metrics: dict[str, float] | None = None

    def __init__(
        self,
        folder: str,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        num_threads: int | None = None,
        runtime: str = "auto",
    ):
        """Loads the model and its vocabulary; what an argument leaves open, the folder says.

        Args:
            folder: an export of --task_name=embedding, of any format; or the folder of a model, or
                its name, as for `BertModel.from_pretrained`, with vocab.txt and, for a cased model,
                tokenizer_config.json; or one of sentence-transformers, with modules.json; or the
                --output_dir of a training of such vectors.
            pooling: "mean" of the tokens' vectors, special ones included; "mean_sqrt_len", their
                sum divided by the square root of their number; the vector of [CLS] ("cls"); the
                "max" of each coordinate; "weighted_mean", in which the n-th token counts n times;
                or the vector of the "last" token. It should be that with which the model was
                trained; "mean" if nothing says it.
            normalize: whether the vectors are divided by their norms; True if nothing says it.
            max_seq_length: the tokens to which texts are truncated; the longest sequence of the
                model if nothing says it.
            num_threads: the threads that an export computes with; by default those of all
                processors.
            runtime: the runtime of an export, a value of --runtime of official-bert predict, such
                as "openvino_bfloat16"; by default the fastest installed one. A trained model
                accepts only "auto" and "tensorflow".

        Raises:
            InputError: the folder has no model that can be used, or one whose vectors are of
                another kind, such as a sparse model.
        """
        self._folder = folder = model_hub.local_path(folder)
        self._prompts = Prompts()
        self.comparison = COSINE
        if is_export(folder):
            opened = OpenedExport(folder, num_threads, settings={"runtime": runtime})
            self._use_export(opened, {"pooling": pooling, "normalize": normalize}, max_seq_length)
            return
        set_threads(num_threads)
        _check_family(folder)
        modules = SentenceModules.load(folder)
        self._pooling, self._lowers = pooling or modules.pooling, modules.lowers
        if self._pooling not in POOLINGS:
            raise InputError(f"pooling={self._pooling!r}: must be one of {', '.join(POOLINGS)}")
        checkpoint = open_checkpoint(modules.encoder)
        check_trained(folder, {"runtime": runtime})
        for name in PROJECTION:  # which is among the layers
            checkpoint.shapes.pop(name, None)
        self.model = BertModel.from_pretrained(checkpoint)
        self.tokenizer = FullTokenizer.from_pretrained(modules.encoder)
        longest = self.model.config.max_position_embeddings
        self.max_seq_length = choose_max_seq_length(max_seq_length, modules.max_seq_length, longest)
        self._layers = _layers_after_pooling(modules, normalize)
        self._prompts = modules.prompts
        if self._layers[-1:] != [normalized]:  # of vectors of norm 1 the cosine is the dot product
            self.comparison = modules.similarity
        prompt_names = [name for name, prompt in self.prompts.items() if prompt]
        if prompt_names and self.default_prompt_name is None:
            logging.info(
                "%s: encode() puts none of the prompts %s before texts; call encode_query() and "
                "encode_document(), or pass prompt_name=...",
                folder,
                ", ".join(prompt_names),
            )
        # One trace for all shapes.
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ENCODER_INPUTS}
        encode = tf.function(self._vectors, input_signature=[signature], autograph=False)
        starts = {POOLING_START: tf.TensorSpec([None], tf.int32)}
        encode_from_starts = tf.function(
            self._vectors, input_signature=[signature | starts], autograph=False
        )
        self._functions = {"": encode, POOLING_START: encode_from_starts}
        self._width = encode.get_concrete_function().structured_outputs.shape[-1]

    @classmethod
    def train(  # noqa: PLR0913 - each is named in a call
        cls,
        folder: str | os.PathLike,
        texts: Iterable | None = None,
        labels: Iterable | None = None,
        dev: Iterable | tuple[Iterable, Iterable | None] | None = None,
        model: str | os.PathLike | None = None,
        *,
        data_sets: Mapping[str, Mapping[str, Any]] | None = None,
        overwrite: bool = False,
        resume: bool = False,
        verbose: int = 1,
        **flags: Any,
    ) -> Self:
        """Trains a model in a folder, as run_embeddings does; the same call again resumes a run
        that was killed.

        A folder with a training on other data or with other arguments is an error, unless you say
        what to do with it.

        Args:
            folder: the folder of the trained model.
            texts: for each example a tuple of a text, the text that belongs to it, and perhaps
                others that do not; or single texts, for the losses simcse and mse.
            labels: the score of each pair, or the class of each single text; None for losses that
                learn from texts alone.
            dev: what the trained model is evaluated on: a list of such examples, or a tuple of them
                and their labels.
            model: the folder or the name of the model to begin with.
            data_sets: several sets in place of texts, labels and dev. Each has a name, its texts,
                labels and dev, and flags of its own, such as loss and eval_task.
            overwrite: whether a training on other data or with other arguments is replaced.
            resume: whether such a training resumes, on these data and with these arguments.
            verbose: 1 shows the progress and the result, on a terminal and in a notebook as a bar;
                0 shows nothing.
            **flags: further flags of run_embeddings by name, such as loss="cosent".

        Returns:
            The trained encoder, whose `metrics` are those of the dev set.

        Raises:
            InputError: an argument, the data or the folder cannot be used.

        Example:
            ```python
            from official_bert import SentenceEncoder

            pairs = [("Who sat there?", "The cat sat on the mat."), ("What left?", "A train left.")]
            encoder = SentenceEncoder.train(
                "/tmp/my_encoder",
                pairs,
                model="quickstart_output/full/bert",
                train_batch_size=2,
                overwrite=True,
            )
            encoder.encode(["A train left."]).shape  # (1, hidden_size)
            ```
        """
        from official_bert.extensions.embeddings.python_training import TRAINING
        from official_bert.fine_tuning.python_training import Handling, TextSets, train_on_texts

        sets = TextSets(texts, labels, dev, data_sets)
        handling = Handling(overwrite, resume, verbose)
        metrics = train_on_texts(TRAINING, folder, sets, model, flags, handling)
        encoder = cls(os.fspath(folder))
        encoder.metrics = metrics
        return encoder

    def _use_export(self, opened: OpenedExport, fixed: Mapping, max_seq_length: int | None):
        folder = self._folder
        self.model = opened
        self.tokenizer = opened.tokenizer
        self._lowers = False
        longest = opened.record.settings["max_seq_length"]
        self.max_seq_length = longest if max_seq_length is None else max_seq_length
        if opened.outputs != {EMBEDDING} or opened.record.settings["export_text"]:
            raise InputError(
                f"{folder}: is no export of ids that gives vectors; open it with Predictor"
            )
        typed = [f"{name}={value!r}" for name, value in fixed.items() if value is not None]
        if typed or not 1 <= self.max_seq_length <= longest:
            what = typed[0] if typed else f"max_seq_length={max_seq_length}"
            raise InputError(
                f"{what}: {folder} is an export, whose pooling, norms and length are fixed; leave "
                "it out"
            )
        self._prompts = Prompts.from_settings(opened.record.settings)
        one_text = self.tokenizer([""], max_seq_length=longest)
        self._width = opened(DEFAULT, one_text)[EMBEDDING].shape[1]

    @property
    def prompts(self) -> Mapping[str, str]:
        return self._prompts.texts

    @property
    def default_prompt_name(self) -> str | None:
        return self._prompts.default_name

    def describe(self) -> Mapping[str, object]:
        """Returns what the encoder is, for people."""
        return {
            "folder": self._folder,
            "dimensions": self._width,
            "max_seq_length": self.max_seq_length,
            "comparison": self.comparison,
        }

    def encode(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Returns the vectors of texts in their order, float32[n, width]; a single text is a list
        of one.

        The texts are encoded in batches of like length, whose size does not change the vectors.

        Args:
            texts: the texts.
            batch_size: the number of texts that are encoded at once.
            prompt: a text to put before each text, such as "query: "; "" for no prompt.
            prompt_name: without `prompt`, the name of one of `prompts`. Without both, texts get
                the default prompt of the folder, if it has one.
            show_progress_bar: whether the progress is shown; by default only where the log has it.

        Raises:
            InputError: an argument cannot be used, or the model has no such prompt.
        """
        form = self._prompts.make_call_form(self.max_seq_length, None, prompt_name, prompt)
        return self._encode(form, texts, batch_size, show_progress_bar)

    def encode_query(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Returns the vectors of queries, float32[n, width]: those of `encode` with the prompt
        "query".

        A model without this prompt uses its default prompt. A query may have fewer tokens than
        other texts, if the model was trained so.

        Args:
            texts: the queries.
            batch_size: the number of texts that are encoded at once.
            prompt: a text to put before each query instead.
            prompt_name: the name of the prompt to put there instead.
            show_progress_bar: whether the progress is shown; by default only where the log has it.

        Raises:
            InputError: an argument cannot be used, or the model has no such prompt.
        """
        form = self._prompts.make_call_form(self.max_seq_length, QUERY, prompt_name, prompt)
        return self._encode(form, texts, batch_size, show_progress_bar)

    def encode_document(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Returns the vectors of documents, float32[n, width].

        They are those of `encode` with the prompt "document", or else "passage" or "corpus", or
        else the default prompt.

        Args:
            texts: the documents.
            batch_size: the number of texts that are encoded at once.
            prompt: a text to put before each document instead.
            prompt_name: the name of the prompt to put there instead.
            show_progress_bar: whether the progress is shown; by default only where the log has it.

        Raises:
            InputError: an argument cannot be used, or the model has no such prompt.
        """
        form = self._prompts.make_call_form(self.max_seq_length, DOCUMENT, prompt_name, prompt)
        return self._encode(form, texts, batch_size, show_progress_bar)

    def _encode(
        self,
        form: TextForm,
        texts: str | Iterable[str],
        batch_size: int,
        show_progress_bar: bool | None,
    ) -> np.ndarray:
        """Returns the vectors of texts in their order, float32[n, width]."""
        check_positive("batch_size", batch_size)
        texts = list_texts("texts", texts)
        # Characters tell enough about tokens.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        vectors = np.empty((len(texts), self._width), np.float32)

        def tokenize(rows: list[int]) -> tuple[dict[str, np.ndarray], str]:
            return self._tokenize([texts[row] for row in rows], form)

        # A thread tokenizes the next batches while the model computes.
        shown = progress.shown_in_python(show_progress_bar)
        with shown, concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = collections.deque(pool.submit(tokenize, rows) for rows in batches[:_AHEAD])
            for number, rows in enumerate(progress.counted(batches, "batches of texts")):
                features, signature = waiting.popleft().result()
                if number + _AHEAD < len(batches):
                    waiting.append(pool.submit(tokenize, batches[number + _AHEAD]))
                vectors[rows] = self._encode_batch(features, signature)
        return vectors

    def _tokenize(self, texts: list[str], form: TextForm) -> tuple[dict[str, np.ndarray], str]:
        """Returns the features of a few texts, and the signature that reads them."""
        is_export = not isinstance(self.model, BertModel)
        start = form.find_pooling_start(self.tokenizer)
        length = form.max_seq_length
        signature = DEFAULT
        if is_export and start:
            signature = find_signature(self._prompts, form, self.model.inputs, self._folder)
            length -= start - 1  # without the prompt, which the signature inserts
        elif form.prompt:
            texts = [form.prompt + convert_to_unicode(text) for text in texts]
        if self._lowers:
            texts = [text.lower() for text in texts]
        features = self.tokenizer(texts, max_seq_length=length)
        if start and not is_export:
            features[POOLING_START] = np.full(len(texts), start, np.int32)
        return features, signature

    def _encode_batch(self, features: dict, signature: str) -> np.ndarray | tf.Tensor:
        """Returns the vectors of a few tokenized texts."""
        if not isinstance(self.model, BertModel):
            return self.model(signature, features)[EMBEDDING]
        name = POOLING_START if POOLING_START in features else ""
        return self._functions[name](features)

    def _vectors(self, batch: dict) -> tf.Tensor:
        """Returns float32[B, width] for features int32[B, S]."""
        assert isinstance(self.model, BertModel)  # An export computes its vectors itself.
        inputs = (batch[name] for name in ENCODER_INPUTS)
        first_token_only = self._pooling == "cls" and POOLING_START not in batch
        out = self.model(*inputs, first_token_only=first_token_only)
        vectors = pool_texts(self._pooling, out.sequence_output, batch)
        for layer in self._layers:
            vectors = layer(vectors)
        return vectors
