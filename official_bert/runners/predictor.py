"""Answers to texts from an exported model: `official_bert.Predictor`.

In: the folder of an export. Out: an object that is called with texts and gives what predict.py writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official_bert.errors import InputError
from official_bert.options.predict import PredictorOptions
from official_bert.serving.loaded import LoadedModel
from official_bert.tasks import choices, glue
from official_bert.tasks.base import EncodedSet
from official_bert.tasks.squad_requests import SquadRequests, Windowing
from official_bert.tasks.squad_task import AnswerRules
from official_bert.tasks.text_requests import (
    ChoiceRequests,
    ClassifierRequests,
    PretrainedRequests,
    TaggingRequests,
    TextRequests,
    Texts,
)
from official_bert.tokenization import FullTokenizer
from official_bert.training.prediction import predict

WINDOW_BATCHES = 16  # of requests that are put in order by length
_SINGLE_TEXTS = ("cola", "sst2")  # of the named classification tasks; the others take pairs


class Predictor:
    """A model that was loaded once and answers text.

        predictor = Predictor("exports/mrpc")
        predictor("The cat sat.", "A cat was sitting.")  # {"label": "1", "probabilities": {"0": ..., "1": ...}}

    Attributes:
        columns: names of the texts of a request, in order: `text_a` and `text_b`; `question` and `context`;
            `context` and `ending0` to `ending3`.
        num_required: how many of them must be given.
        path: the version that was loaded.
    """

    def __init__(self, model_dir: str, batch_size: int = 32, **settings: Any):
        """Loads a model.

        Args:
            model_dir: a version's folder, or an export_dir, of which the newest version is taken.
            batch_size: examples that the model is given at once.
            **settings: other flags of predict.py that say how a model answers, such as
                null_score_diff_threshold=-1.5.

        Raises:
            InputError: no model there, or one that cannot be used so.
        """
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size}: must be positive")
        options = PredictorOptions(model_dir=model_dir, batch_size=batch_size, **settings)
        model = LoadedModel(model_dir)
        self.path, self._batch_size = model.path, batch_size
        self._requests = _tensor_requests(model, options)
        self.columns, self.num_required = self._requests.columns, self._requests.num_required

    def __call__(self, *texts: str) -> dict:
        """The answer to one request: a text, or the texts of `columns`."""
        return next(self.answers([texts]))

    def answers(self, requests: Iterable[str | Texts]) -> Iterator[dict]:
        """The answers to many requests, in their order; read, and answered, a few batches at a time.

        Args:
            requests: each a text, or its texts.

        Raises:
            InputError: a request that the model cannot answer, see `check`.
        """
        requests = ((request,) if isinstance(request, str) else request for request in requests)
        while window := list(itertools.islice(requests, self._batch_size * WINDOW_BATCHES)):
            for texts in window:
                self.check(texts)
            yield from self._requests.answers(window)

    def check(self, texts: Texts):
        """Refuses a request that the model cannot answer.

        Raises:
            InputError: says why.
        """
        self._requests.check(texts)


def _tensor_requests(model: LoadedModel, options: PredictorOptions) -> TextRequests:
    """What a model of tensors answers, with the tokenizer in Python."""
    settings = _settings(model.flags, options)
    name, length = model.task_name, settings["max_seq_length"]
    # Padding to the longest changes an answer in SQuAD only, where padding takes part in the ranking.
    pads_to_longest = name != "squad" or options.length_aware_batches
    strategy = tf.distribute.get_strategy()

    def run(signature: str, encoded: EncodedSet) -> dict[str, np.ndarray]:
        return predict(
            lambda inputs: model(signature, inputs),
            strategy,
            encoded.features,
            encoded.lengths,
            options.batch_size,
            length,
            pads_to_longest,
        )

    tokenizer = FullTokenizer(
        model.vocab_file, settings["do_lower_case"], strip_accents=settings["strip_accents"]
    )
    if name == "squad":
        if length <= settings["max_query_length"] + 3:
            raise InputError(
                f"{model.path}: was exported with --max_seq_length={length}, which leaves no room for a context behind "
                f"--max_query_length={settings['max_query_length']}; export it with a larger one"
            )
        return SquadRequests(
            run,
            tokenizer,
            Windowing(length, settings["doc_stride"], settings["max_query_length"]),
            AnswerRules(
                n_best_size=settings["n_best_size"],
                max_answer_length=settings["max_answer_length"],
                do_lower_case=settings["do_lower_case"],
                version_2_with_negative=settings["version_2_with_negative"],
                strip_accents=settings["strip_accents"],
            ),
            _threshold(settings),
            ranks_padding=not pads_to_longest,
        )
    if name in choices.TASKS:
        return ChoiceRequests(run, tokenizer, length)
    if name == "ner":
        return TaggingRequests(run, tokenizer, length)
    if name == "pretraining":
        fills_masks, has_vectors = "serving_masked" in model.inputs, options.vectors in model.outputs
        return PretrainedRequests(run, tokenizer, length, fills_masks, options.vectors, has_vectors)
    if not {"score", "label", "labels"} & model.outputs:
        raise InputError(
            f"{model.path}: what the task {name} answers to a text is not known; use its signatures"
        )
    return ClassifierRequests(run, tokenizer, length, model.labels, _num_texts(name, model.flags))


# What run_squad.py takes when an export does not say.
_DEFAULTS = {
    "strip_accents": None,
    "doc_stride": 128,
    "max_query_length": 64,
    "n_best_size": 20,
    "max_answer_length": 30,
    "version_2_with_negative": False,
    "null_score_diff_threshold": "0.0",
}


def _settings(flags: Mapping[str, Any], options: PredictorOptions) -> dict[str, Any]:
    """Settings by name: as given, else as exported, else the defaults of the scripts."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    names = ("max_seq_length", "do_lower_case", *_DEFAULTS)
    return {name: given.get(name, flags.get(name, _DEFAULTS.get(name))) for name in names}


def _threshold(settings: Mapping[str, Any]) -> float:
    try:
        return float(settings["null_score_diff_threshold"])
    except ValueError:
        raise InputError(
            "--null_score_diff_threshold: must be given, the model was exported by a run that tuned it; the number "
            "is in that run's eval_results.txt"
        ) from None


def _num_texts(task_name: str, flags: Mapping[str, Any]) -> int | None:
    """Texts of an example of a classification task; None if the export does not say."""
    name = glue.plain_name(task_name)
    if glue.find(name) or name == "xnli":
        return 1 if name in _SINGLE_TEXTS else 2
    if "text_b_column" in flags:
        return 2 if flags["text_b_column"] else 1
    return None
