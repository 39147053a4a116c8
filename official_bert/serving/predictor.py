"""Answers texts with a trained model: `official_bert.Predictor`."""

from __future__ import annotations

import dataclasses
import itertools
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from absl import logging

from official_bert import catalog
from official_bert.io import errors, reading
from official_bert.io.errors import InputError, naming_arguments
from official_bert.options.fields import find_fault, value_type
from official_bert.options.serving import PredictorOptions, PredictorSettings
from official_bert.serving.extensible import Extensible
from official_bert.serving.model import BatchedModel, CheckpointModel, export, open_model
from official_bert.tasks import registry
from official_bert.tasks.clients import TextClient, Texts
from official_bert.tokenizer_call import list_texts

# A text, the texts of one request, or a list of requests.
Request = str | tuple[str, ...] | list
CUT = "truncated"  # the field of an answer to texts of which the model reads a part
_MOST_LABELS = 8  # labels that a description shows
WINDOW_BATCHES = 16  # number of batches of requests that are sorted by length together
# Name of a setting -> the family whose clients have it, although no record of a model has it.
_FAMILY_SETTINGS = {
    "pooling": "pretraining",
    "pre_tokenized": "tagging",
    "abstain_below": registry.CLASSIFICATION,
}
# The graph of an export of text has them. One without a record has the value True.
_TEXT_GRAPH_SETTINGS = ("pre_tokenized",)
# Type of a flag -> the types of its value in Python, and their name in messages.
_KINDS = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
    list[str]: (list, "a list of texts"),
}


class RequestFrame(NamedTuple):
    """The requests of a frame of pandas.

    Attributes:
        requests: the texts of each row.
        add_answers: makes a frame with the columns of the answers, which it is given in the order
            of the rows.
    """

    requests: Sequence[Texts]
    add_answers: Callable[[Sequence], Any]


class Predictor(Extensible):
    """A loaded model that answers texts.

    Extensions add methods, such as score: dir(predictor) lists them, and help(predictor.score)
    describes one.

    Attributes:
        columns: names of the texts of a request, in order: `text_a` and `text_b`; `question` and
            `context`; `context` and `ending0` to `ending3`.
        num_required: how many of them a request must have; the rest are optional.
        path: the folder of the loaded version.
        task_name: the name of the model's task.
        batch_size: number of examples of a call of the model.
        model: the opened model, an Export or a CheckpointModel of serving/model.py, or a head of an
            export.
        method: the method that returns the model's answers in the form of transformers' pipelines,
            such as "classify"; "" if there is none.
        client: the Client of tasks/clients.py that sends texts to the model.
        heads: the heads of an export of many heads: name -> a Predictor of its answers. It is empty
            for other models.
        cache: values that the methods of extensions keep between calls, by name.

    Example:
        ```python
        from official_bert import Predictor

        predictor = Predictor("quickstart_output/full/bert")
        predictor.fill_mask("The expression [MASK] evaluated in the current scope.", top_k=1)
        # [{"score": ..., "token": "is", "sequence": "The expression is evaluated ..."}]
        predictor  # says which method fits the model: classify, answer, tag, encode or fill_mask
        ```
    """

    methods_hook = "predictor_methods"

    def __init__(self, model_dir: str | os.PathLike, batch_size: int = 32, **settings: Any):
        """Loads a model.

        Args:
            model_dir: the path of a model, or its name, which is downloaded. The path is a version
                of an export, an export_dir, whose newest version is loaded, or the folder of a
                model, such as the output_dir of a training.
            batch_size: number of examples of a call of the model.
            **settings: further flags of official-bert predict that change the answers of a model,
                such as null_score_diff_threshold=-1.5. None means the default.

        Raises:
            InputError: there is no model, a file is corrupt, or a setting is not for the model.
        """
        names = {field.name for field in setting_fields()} - {"model"}
        with naming_arguments(names, {"--model": "model_dir"}):
            self._open(model_dir, batch_size, _check_arguments(settings, batch_size))

    def _open(self, model_dir: str | os.PathLike, batch_size: int, settings: dict[str, Any]):
        """Loads a model; the settings are valid."""
        if not isinstance(model_dir, (str, os.PathLike)):
            raise InputError(f"model_dir={model_dir!r}: must be the path of a folder")
        num_threads = settings.pop("num_threads", None)
        core_names = {field.name for field in dataclasses.fields(PredictorOptions)}
        core_settings = {}
        extension_settings = {}
        for name, value in settings.items():
            part = core_settings if name in core_names else extension_settings
            part[name] = value
        model: BatchedModel = open_model(
            os.fspath(model_dir),
            batch_size,
            num_threads,
            extension_settings,
        )
        for choose_part in catalog.hooks("predictor_model"):
            model = choose_part(model, extension_settings)
        self._use(model, core_settings)

    @classmethod
    def from_model(cls, model: BatchedModel, **settings: Any) -> Self:
        """Makes the Predictor of a model that is open.

        Args:
            model: the model.
            **settings: flags of official-bert predict that change the answers.

        Raises:
            InputError: a setting is not for the model.
        """
        predictor = cls.__new__(cls)
        predictor._use(model, _check_arguments(settings, model.batch_size))
        return predictor

    def _use(self, model: BatchedModel, settings: Mapping[str, Any]):
        """Connects the client of a model; the settings are valid."""
        _check_settings(settings, model)
        record = model.record
        self.model = model
        self.path = model.path
        self.batch_size = model.batch_size
        self.task_name = record.task_name
        self.cache: dict[str, Any] = {}
        self._has_warned_of_cut = False
        values = {
            **record.settings,
            "labels": model.labels,
            **settings,
        }
        task_class = registry.task_class(record.family)
        self.client = task_class.client(model, task_class.settings_class.from_values(values))
        self.columns = self.client.columns
        self.num_required = self.client.num_required
        # A client of another package may lack the attribute.
        self.method = getattr(self.client, "method", "")
        self.heads: Mapping[str, Predictor] = getattr(self.client, "heads", {})

    def describe(self) -> Mapping[str, object]:
        """Returns what the model is, for people."""
        description: dict[str, object] = {"folder": self.path, "task": self.task_name}
        if labels := self.model.labels:
            shown = ", ".join(labels[:_MOST_LABELS])
            others = ", ..." if len(labels) > _MOST_LABELS else ""
            description["labels"] = f"{len(labels)}: {shown}{others}"
        if self.heads:
            description["heads"] = ", ".join(self.heads)
        description["texts"] = ", ".join(self.columns)
        description["max_seq_length"] = self.model.max_seq_length
        return description

    def __call__(self, *texts: Request) -> dict | list[dict]:
        """Answers one request or several.

            predictor("a text")                        # an answer
            predictor("a text", "another")             # an answer to a pair
            predictor(("a text", "another"))           # the same
            predictor(["a text", "another"])           # a list of answers
            predictor([("a text", "another"), ("a third", "a fourth")])  # a list of answers

        Args:
            *texts: a text, the texts of one request, a list of requests, or a frame of pandas,
                whose columns are found as those of a table of official-bert predict.

        Returns:
            The answer, a dict whose fields depend on the task, with `truncated` if the model reads
            a part of the texts; for a list, a list of answers; for a frame, the frame with columns
            of the answers.

        Raises:
            InputError: the model cannot answer a request.
        """
        if frame := self._split_frame(texts):
            return frame.add_answers(list(self.answers(frame.requests)))
        requests, is_one = split_requests(texts)
        answers = list(self.answers(requests))
        return answers[0] if is_one else answers

    def _split_frame(self, texts: Sequence) -> RequestFrame | None:
        """Returns the requests of a frame of pandas; None for other arguments."""
        frames = (split(self, texts) for split in catalog.hooks("predictor_frame"))
        return next((frame for frame in frames if frame is not None), None)

    def classify(self, *texts: Request) -> Any:
        """Classifies texts or pairs.

        Args:
            *texts: a text, the two texts of a pair, or a list of these.

        Returns:
            A dict with `label` and `score`; a list of these from a model of several labels. For a
            list, a list.

        Raises:
            InputError: the model is no classifier, or cannot answer a request.
        """
        return self.postprocess("classify", texts)

    def fill_mask(self, *texts: Request, top_k: int = 5) -> Any:
        """Returns the most probable words for each [MASK] of a text, best first.

        Args:
            *texts: a text, the two texts of a pair, or a list of these.
            top_k: the number of words, at most the number of words in the model's answer.

        Returns:
            A list of dicts with `score`, `token` and `sequence`; a list of such lists for a text
            with several [MASK]. For a list of texts, a list.

        Raises:
            InputError: the model is no masked LM, or cannot answer a request.
        """
        return self.postprocess("fill_mask", texts, top_k=top_k)

    def answer(self, question: str, context: str | None = None) -> dict:
        """Answers a question about a text.

        Args:
            question: the question, or a frame of pandas with questions and contexts.
            context: the text that contains the answer.

        Returns:
            A dict with `answer`, its `start` and `end` in the context, and `score`.

        Raises:
            InputError: the model answers no questions, or cannot answer this one.
        """
        texts = (question,) if context is None else (question, context)
        return self.postprocess("answer", texts)

    def tag(self, *texts: str | list[str]) -> Any:
        """Finds the entities of texts.

        Args:
            *texts: a text, or a list of texts.

        Returns:
            A list of dicts with `entity_group`, `word`, `start` and `end`; for a list, a list of
            such lists.

        Raises:
            InputError: the model is no tagger, or cannot answer a request.
        """
        return self.postprocess("tag", texts)

    def encode(self, texts: str | list[str], **settings: Any) -> np.ndarray:
        """Computes the embeddings of texts.

        Args:
            texts: a list of texts, or a text, which is a list of one.
            **settings: further arguments of the client's `vectors`, such as prompt.

        Returns:
            float32[n, width].

        Raises:
            InputError: the model computes no embeddings, or cannot read a text.
        """
        compute_vectors = getattr(self.client, "vectors", None)
        if compute_vectors is None:
            hint = getattr(
                self.client,
                "vectors_hint",
                "name an export of --task_name=embedding, or a folder of sentence-transformers",
            )
            raise InputError(
                f"{self.path}: a model of {self.task_name} gives no vectors of texts; {hint}"
            )
        requests = [self._read_request(text) for text in list_texts("texts", texts)]
        vectors = np.empty((0, 0), np.float32)
        window_size = self.batch_size * WINDOW_BATCHES
        for start in range(0, len(requests), window_size):
            end = start + window_size
            window = compute_vectors(requests[start:end], **settings)
            if start == 0:  # the width is known from here on
                vectors = np.empty((len(requests), window.shape[1]), np.float32)
            vectors[start:end] = window
        return vectors

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Computes the scores from which another model can learn.

        Args:
            pairs: pairs of texts, such as a query and a document.

        Returns:
            The logits of a reranker, or the scores of a regression, float32[n].

        Raises:
            InputError: the model gives pairs no score.
        """
        client = self.client
        has_score = len(self.columns) == 2 and "score" in self.model.outputs
        if not has_score or not isinstance(client, TextClient):
            raise InputError(
                f"{self.path}: a model of {self.task_name} gives pairs of texts no score; name a "
                "reranker"
            )
        rows = client.rows(pairs)
        scores = [row.get("logit", row["score"]) for row in rows]
        return np.array(scores, np.float32)

    def export(self, export_dir: str | os.PathLike) -> str:
        """Exports the model as a SavedModel that accepts raw text, for servers.

        official-bert export_saved_model has more formats and settings.

        Args:
            export_dir: the folder of the versions. Each export becomes the next version.

        Returns:
            The folder of the new version.

        Raises:
            InputError: the model is an export, its task has no export that accepts raw text, or
                the folder cannot be written.
        """
        if not isinstance(self.model, CheckpointModel):
            raise InputError(f"{self.path}: is an export; open the folder of its training")
        options_class = catalog.options_class("export_saved_model")
        with naming_arguments(["export_dir", "model"], {}):
            return export(
                options_class(model=self.path, export_dir=os.fspath(export_dir), export_text=True)
            )

    def check_method(self, method: str, caller: str = "") -> None:
        """Checks that the model's answers have the form of a method.

        Args:
            method: the method, such as "classify".
            caller: the name of the method that was called, if it is another one.

        Raises:
            InputError: the model has another method, or none.
        """
        if self.method != method:
            hint = "call the predictor itself"
            if self.method:
                hint = f"call {self.method}()"
            raise InputError(
                f"{self.path}: this is a model of the task {self.task_name}, which has no "
                f"{caller or method}(); {hint}"
            )

    def postprocess(self, method: str, texts: Sequence, **settings: Any) -> Any:
        """Answers the requests of a call of a method.

        Args:
            method: the name of the method, such as "classify".
            texts: the arguments of the call, as `split_requests` takes them.
            **settings: further arguments of the client's `postprocess`.

        Returns:
            The answer in the form of the method; for a list of requests, a list.

        Raises:
            InputError: the model has another method, or cannot answer a request.
        """
        self.check_method(method)
        if frame := self._split_frame(texts):
            return frame.add_answers(self._postprocess(frame.requests, settings))
        requests, is_one = split_requests(texts)
        results = self._postprocess(requests, settings)
        return results[0] if is_one else results

    def _postprocess(self, requests: Sequence[Texts], settings: Mapping[str, Any]) -> list:
        """Returns the answers to requests in the form of the model's method."""
        results = []
        for request, answer in zip(requests, self.answers(requests), strict=True):
            result = self.client.postprocess(request, answer, **settings)
            if CUT in answer and isinstance(result, dict):
                result = {**result, CUT: True}
            results.append(result)
        return results

    def answers(self, requests: Iterable[str | Texts]) -> Iterator[dict]:
        """Answers many requests in order, of which it reads a few batches at a time.

        Args:
            requests: the requests, each a text or the texts of one request.

        Yields:
            The answer to each request.

        Raises:
            InputError: the model cannot answer a request.
        """
        # The second iterator is at most a window behind the first.
        checked, again = itertools.tee(map(self._read_request, requests))
        for texts, answer in zip(again, self.answers_to_checked(checked), strict=False):
            if self.is_cut(texts):
                self._warn_of_cut()
                answer = {**answer, CUT: True}
            yield answer

    def _warn_of_cut(self):
        """Warns of the first text that the model truncates."""
        if not self._has_warned_of_cut:
            self._has_warned_of_cut = True
            errors.warn(
                "%s: the model reads %d tokens, and texts are longer; their answers have "
                "truncated=True",
                self.path,
                self.model.max_seq_length,
            )

    def answers_to_checked(self, requests: Iterable[Texts]) -> Iterator[dict]:
        """Answers many requests that have passed `check`, as `answers` does.

        Args:
            requests: the texts of each request.

        Yields:
            The answer to each request.
        """
        requests = iter(requests)
        window_size = self.batch_size * WINDOW_BATCHES
        while window := list(itertools.islice(requests, window_size)):
            yield from self.client.answers(window)

    def _read_request(self, request: str | Texts) -> Texts:
        texts = _list_texts(request)
        self.check(texts)
        return texts

    def check(self, texts: Texts) -> None:
        """Checks a request.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: the model cannot answer it.
        """
        self.check_characters(texts)
        self.client.check(texts)

    def check_characters(self, texts: Texts) -> None:
        """Checks the characters of a request.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: a text has half of a surrogate pair.
        """
        for name, text in zip(self.columns, texts, strict=False):
            if half := reading.half_pair_in(text):
                raise InputError(f"the field {name} has {half}")

    def is_cut(self, texts: Texts) -> bool:
        """Returns whether the model truncates a request.

        Args:
            texts: the texts of the request.
        """
        is_cut = getattr(self.client, "is_cut", None)
        # A client of another package may lack the method.
        return is_cut is not None and is_cut(texts)


def setting_fields() -> list[dataclasses.Field]:
    """Returns the fields of all settings of Predictor: those of the core and of extensions."""
    options_class = catalog.options_class("predict")
    parts = [part for part in options_class.__mro__ if PredictorSettings in part.__bases__]
    names = {field.name for part in parts for field in dataclasses.fields(part)}
    return [field for field in dataclasses.fields(options_class) if field.name in names]


def compute_teacher_scores(teacher: str, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Computes the scores of the reranker that a flag --teacher names.

    Args:
        teacher: the value of the flag.
        pairs: pairs of texts.

    Returns:
        float32[n].

    Raises:
        InputError: there is no such model, or it gives pairs no score.
    """
    logging.info("%d pairs get their scores from the teacher", len(pairs))
    try:
        return Predictor(teacher).score_pairs(pairs)
    except InputError as error:
        raise InputError(f"--teacher={teacher}: {error}") from None


def split_requests(texts: Sequence) -> tuple[list[Texts], bool]:
    """Splits the arguments of a method into requests.

    Args:
        texts: a text, the texts of one request, or a list of requests, as `*texts` collects them.

    Returns:
        The texts of each request, and whether the arguments were a single request.

    Raises:
        InputError: an argument has another type.
    """
    if len(texts) == 1 and hasattr(texts[0], "tolist"):  # an array, or a column of pandas
        texts = (texts[0].tolist(),)
    if len(texts) == 1 and isinstance(texts[0], list):
        return [_list_texts(request) for request in texts[0]], False
    request = texts[0] if len(texts) == 1 else texts
    return [_list_texts(request)], True


def _list_texts(request: Any) -> Texts:
    """Returns the texts of a request, which is a text or several."""
    if isinstance(request, str):
        return (request,)
    items = request if isinstance(request, (tuple, list)) else [request]
    for item in items:
        if not isinstance(item, str):
            raise InputError(
                "a request must be a text (str) or a tuple of texts, got "
                f"{type(item).__name__}; pass several requests as a list"
            )
    return tuple(items)


def _check_arguments(settings: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
    """Checks the arguments of a Predictor by their flags; returns the settings without None."""
    fields = {field.name: field for field in setting_fields()}
    fields.pop("model", None)
    for name in settings:
        if name not in fields:
            names = ", ".join(fields)
            raise InputError(f"{name}: Predictor has no such setting; it has {names}")
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, value in settings.items():
        check_value(fields[name], value)
    check_value(fields["batch_size"], batch_size)
    return settings


def check_value(field: dataclasses.Field, value: Any) -> None:
    """Checks the value of an argument as its flag would be checked.

    Args:
        field: the field of the flag.
        value: the value.

    Raises:
        InputError: the flag would refuse it.
    """
    kind = value_type(field)
    types, kind_name = _KINDS[kind]
    is_typed = isinstance(value, types)
    # Python's True and False are numbers, too.
    if kind is not bool and isinstance(value, bool):
        is_typed = False
    fault = f"must be {kind_name}"
    if is_typed:
        fault = find_fault(field, value)
    if fault:
        raise InputError(f"{field.name}={value!r}: {fault}")


def _check_settings(settings: Mapping[str, Any], model: BatchedModel):
    """Refuses settings that the task of a model does not have, or that a graph has fixed."""
    record = model.record
    for name, value in settings.items():
        family = _FAMILY_SETTINGS.get(name)
        has_setting = name in record.settings
        if family:
            has_setting = record.family == family or registry.is_outside(record.family)
        if not has_setting:
            raise InputError(
                f"{name}={value!r}: {model.path}, a model of {record.task_name}, has no such "
                "setting; leave it out"
            )
        is_in_graph = not family or name in _TEXT_GRAPH_SETTINGS
        is_changed = not family or record.settings.get(name, True) != value
        if record.settings["export_text"] and is_in_graph and is_changed:
            raise InputError(
                f"{name}={value!r}: {model.path} has a text graph with the settings of its "
                "export; export it again to change one"
            )
