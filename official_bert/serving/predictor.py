"""Answers texts with a trained model: `official_bert.Predictor`."""

from __future__ import annotations

import dataclasses
import itertools
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert import catalog
from official_bert.io import reading
from official_bert.io.errors import InputError
from official_bert.options.fields import fault_of, kind_of
from official_bert.options.serving import POOLER, PredictorOptions, PredictorSettings
from official_bert.serving.extensible import Extensible
from official_bert.serving.model import Export, InMemoryModel, open_model
from official_bert.tasks import registry
from official_bert.tasks.clients import Texts
from official_bert.tokenizer_call import list_texts

WINDOW_BATCHES = 16  # number of batches of requests that are sorted by length together
# Settings that the clients of one family take, whatever the record of a model has.
_FAMILY_SETTINGS = {"pooling": "pretraining", "abstain_below": registry.CLASSIFICATION}
_KINDS = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
    list[str]: (list, "a list of texts"),
}


class Predictor(Extensible):
    """A loaded model that answers texts.

        predictor = Predictor("exports/mrpc")
        predictor("The cat sat.", "A cat was sitting.")  # {"label": "1", "probabilities": {"0": ..., "1": ...}}
        predictor.classify("The cat sat.", "A cat was sitting.")  # {"label": "1", "score": ...}

    Extensions add methods, such as score: dir(predictor) lists them, and help(predictor.score)
    describes one.

    Attributes:
        columns: names of the texts of a request, in order: `text_a` and `text_b`; `question` and
            `context`; `context` and `ending0` to `ending3`.
        num_required: how many of them a request must have; the rest are optional.
        path: the folder of the loaded version.
        task_name: the name of the model's task.
        batch_size: number of examples that the model processes at once.
        model: the opened model, an Export or an InMemoryModel of serving/model.py.
        method: the method that gives the model's answers in the form of transformers' pipelines,
            such as "classify"; "" if there is none.
        client: what sends texts to the model, a Client of tasks/clients.py.
        cache: what the methods of extensions keep from one call to the next, by name.
    """

    methods_hook = "predictor_methods"

    def __init__(self, model_dir: str | os.PathLike, batch_size: int = 32, **settings: Any):
        """Loads a model.

        Args:
            model_dir: a version's folder, an export_dir, of which the newest version is loaded, or
                the folder of a model, such as the output_dir of a training, or the name of a model,
                which is downloaded.
            batch_size: number of examples that the model processes at once.
            **settings: further flags of official-bert predict that change the answers of a model,
                such as null_score_diff_threshold=-1.5.
        """
        known = {field.name: field for field in setting_fields() if field.name != "model"}
        for name in settings:
            if name not in known:
                raise InputError(
                    f"{name}: Predictor has no such setting; it has {', '.join(known)}"
                )
        settings = {name: value for name, value in settings.items() if value is not None}
        for name, value in (settings | {"batch_size": batch_size}).items():
            check_value(known[name], value)
        if not isinstance(model_dir, (str, os.PathLike)):
            raise InputError(f"model_dir={model_dir!r}: must be the path of a folder")
        core_names = {field.name for field in dataclasses.fields(PredictorOptions)}
        extension_settings = {
            name: settings.pop(name) for name in [*settings] if name not in core_names
        }
        num_threads = settings.pop("num_threads", None)
        model = open_model(os.fspath(model_dir), batch_size, num_threads, extension_settings)
        record = model.record
        _check_settings(settings, model)
        self.model, self.path = model, model.path
        self.batch_size, self.task_name = batch_size, record.task_name
        self.cache: dict[str, Any] = {}
        client_settings = (
            {"pooling": POOLER} | record.settings | {"labels": model.labels} | settings
        )
        self.client = registry.task_class(record.family).client(model, client_settings)
        self.columns, self.num_required = self.client.columns, self.client.num_required
        self.method = getattr(self.client, "method", "")  # a client of the user's own may lack it

    def __call__(self, *texts: str | tuple[str, ...] | list) -> dict | list[dict]:
        """Answers one request or several.

            predictor("a text")                        # an answer
            predictor("a text", "another")             # an answer to a pair
            predictor(("a text", "another"))           # the same
            predictor(["a text", "another"])           # a list of answers
            predictor([("a text", "another"), ("a third", "a fourth")])  # a list of answers

        Raises InputError if the model cannot answer a request.
        """
        requests, is_one = split_requests(texts)
        answers = list(self.answers(requests))
        return answers[0] if is_one else answers

    def classify(self, *texts: str | tuple[str, ...] | list) -> Any:
        """Returns `label` and `score` for a text or a pair; a list of these for several labels;
        for a list, a list.
        """
        return self.postprocess("classify", texts)

    def fill_mask(self, *texts: str | tuple[str, ...] | list, top_k: int = 5) -> Any:
        """Returns the most probable words for the [MASK] of a text, best first, or for each of
        several.

        Each is a dict with `score`, `token` and `sequence`; for a list of texts the result is a
        list. `top_k` is at most the number of words in the model's answer.
        """
        return self.postprocess("fill_mask", texts, top_k=top_k)

    def answer(self, question: str, context: str) -> dict:
        """Returns `answer`, `start`, `end` and `score` for a question about a context."""
        return self.postprocess("answer", (question, context))

    def tag(self, *texts: str | list[str]) -> Any:
        """Returns the entities of a text, each with `entity_group`, `word`, `start` and `end`;
        for a list, a list.
        """
        return self.postprocess("tag", texts)

    def encode(self, texts: str | list[str]) -> np.ndarray:
        """Returns the vectors of texts, float32[n, width]; a single text is a list of one."""
        vectors_of = getattr(self.client, "vectors", None)
        if vectors_of is None:
            raise InputError(
                f"{self.path}: a model of {self.task_name} gives no vectors of texts; name an "
                "export of --task_name=embedding, or a folder of sentence-transformers"
            )
        requests = list(map(self._checked, list_texts("texts", texts)))
        vectors, size = np.empty((0, 0), np.float32), self.batch_size * WINDOW_BATCHES
        for start in range(0, len(requests), size):
            window = vectors_of(requests[start : start + size])
            if not start:
                vectors = np.empty((len(requests), window.shape[1]), np.float32)
            vectors[start : start + size] = window
        return vectors

    def check_method(self, method: str, caller: str = ""):
        """Raises InputError unless the model's answers have the form of a method.

        Args:
            method: the method, such as "classify".
            caller: the name of the method that was called, if it is another one.
        """
        if self.method != method:
            hint = f"call {self.method}" if self.method else "call the predictor itself"
            raise InputError(
                f"{self.path}: {caller or method} is not for a model of {self.task_name}; {hint}"
            )

    def postprocess(self, method: str, texts: Sequence, **settings: Any) -> Any:
        """Answers the requests of a call of a method; raises InputError if the model has another.

        Args:
            method: the name of the method, such as "classify".
            texts: the arguments of the call, as `split_requests` takes them.
            **settings: further arguments of the client's `postprocess`.
        """
        self.check_method(method)
        requests, is_one = split_requests(texts)
        results = [
            self.client.postprocess(request, answer, **settings)
            for request, answer in zip(requests, self.answers(requests), strict=True)
        ]
        return results[0] if is_one else results

    def answers(self, requests: Iterable[str | Texts]) -> Iterator[dict]:
        """Answers many requests, each of one or several texts, in order; it reads a few batches
        at a time.
        """
        return self.answers_to_checked(map(self._checked, requests))

    def answers_to_checked(self, requests: Iterable[Texts]) -> Iterator[dict]:
        """Answers many requests that have passed `check`, as `answers` does."""
        requests = iter(requests)
        while window := list(itertools.islice(requests, self.batch_size * WINDOW_BATCHES)):
            yield from self.client.answers(window)

    def _checked(self, request: str | Texts) -> Texts:
        texts = _as_request(request)
        self.check(texts)
        return texts

    def check(self, texts: Texts):
        """Validates a request; raises InputError if the model cannot answer it."""
        self.check_characters(texts)
        self.client.check(texts)

    def check_characters(self, texts: Texts):
        """Raises InputError for a text with half of a surrogate pair."""
        for name, text in zip(self.columns, texts, strict=False):
            if half := reading.half_pair_in(text):
                raise InputError(f"the field {name} has {half}")

    def is_cut(self, texts: Texts) -> bool:
        """Tells whether the model reads only a part of a request, whose other tokens have no
        effect.
        """
        # A client of the user's own may lack it.
        return getattr(self.client, "is_cut", lambda _: False)(texts)


def setting_fields() -> list[dataclasses.Field]:
    """Returns the fields of all settings of Predictor: the core's, and those of extensions."""
    options_class = catalog.options_class("predict")
    parts = [part for part in options_class.__mro__ if PredictorSettings in part.__bases__]
    names = {field.name for part in parts for field in dataclasses.fields(part)}
    return [field for field in dataclasses.fields(options_class) if field.name in names]


def split_requests(texts: Sequence) -> tuple[list[Texts], bool]:
    """Returns the requests in the arguments of a method, and whether it was a single one.

    Args:
        texts: a text, the texts of one request, or a list of requests, as `*texts` collects them.
    """
    if len(texts) == 1 and isinstance(texts[0], list):
        return list(map(_as_request, texts[0])), False
    return [_as_request(texts[0] if len(texts) == 1 else texts)], True


def _as_request(request: Any) -> Texts:
    """Returns the texts of a request, which is a text or several."""
    texts = [request] if isinstance(request, str) else request
    is_sequence = isinstance(texts, (tuple, list))
    wrong = [text for text in texts if not isinstance(text, str)] if is_sequence else [texts]
    if wrong:
        raise InputError(
            f"a request must be a text (str) or a tuple of texts, got {type(wrong[0]).__name__}; "
            "pass several requests as a list"
        )
    return tuple(texts)


def check_value(field: dataclasses.Field, value: Any):
    """Refuses the value of an argument that its flag would refuse."""
    kind, name = _KINDS[kind_of(field)]
    is_typed = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fault := fault_of(field, value) if is_typed else f"must be {name}":
        raise InputError(f"{field.name}={value!r}: {fault}")


def _check_settings(settings: Mapping[str, Any], model: Export | InMemoryModel):
    """Refuses settings that the task of a model does not have, and changes of what the graph of
    an export fixes.
    """
    record = model.record
    for name, value in settings.items():
        family = _FAMILY_SETTINGS.get(name)
        if family and (record.family == family or registry.is_outside(record.family)):
            continue
        if family or name not in record.settings:
            raise InputError(
                f"{name}={value!r}: {model.path}, a model of {record.task_name}, has no such "
                "setting; leave it out"
            )
        if record.settings["export_text"]:
            raise InputError(
                f"{name}={value!r}: {model.path} reads text itself, with what it was exported "
                "with; export it anew to change it"
            )
