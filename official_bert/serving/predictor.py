"""Answers to texts from an exported model: `official_bert.Predictor`.

In: the folder of an export. Out: an object that is called with texts and gives what predict.py writes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official_bert.errors import InputError
from official_bert.options.predict import PredictorOptions
from official_bert.serving.loaded import LoadedModel
from official_bert.tasks.base import EncodedSet
from official_bert.tasks.choice import examples
from official_bert.tasks.classification import glue
from official_bert.tasks.clients import (
    Ask,
    ChoiceRequests,
    ClassifierRequests,
    PretrainedRequests,
    Row,
    TaggingRequests,
    TextRequests,
    Texts,
    choice_asker,
    pair_asker,
)
from official_bert.tasks.squad.client import SquadRequests, Windowing
from official_bert.tasks.squad.task import AnswerRules
from official_bert.tasks.text_model_clients import (
    MASK_SIGNATURE,
    SIGNATURE,
    TextModelQuestions,
    TextModelTags,
    TextModelVectors,
)
from official_bert.tokenization import FullTokenizer
from official_bert.training.prediction import predict

# What the inputs of text models are called.
_FIRST_TEXTS, _SECOND_TEXTS, _CHOICES = ("text_a", "text", "question"), ("text_b", "context"), "endings"
WINDOW_BATCHES = 16  # of requests that are put in order by length


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
        kind = _text_requests if SIGNATURE in model.inputs else _tensor_requests
        self._requests = kind(model, options)
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
    pads_to_longest = name != "squad" or settings["length_aware_batches"]
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
    how = run, tokenizer, length
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
    if name in examples.TASKS:
        return ChoiceRequests(choice_asker(*how))
    if name == "ner":
        return TaggingRequests(*how)
    if name == "pretraining":
        return PretrainedRequests(*how, *_heads(model, "serving_masked", options))
    return _classifier(model, pair_asker(*how))


def _text_requests(model: LoadedModel, options: PredictorOptions) -> TextRequests:
    """What a model answers that reads text itself."""
    given = [name for name in _DEFAULTS if getattr(options, name, None) is not None]
    if given:
        raise InputError(
            f"--{given[0]}: {model.path} reads text itself, with what it was exported with; export it anew to change it"
        )
    name = model.task_name

    def run(signature: str, requests: Sequence[Texts]) -> list[Row]:
        # Those of like length together: a batch is padded to its longest.
        order = sorted(range(len(requests)), key=lambda row: -sum(map(len, requests[row])))
        found = [{} for _ in requests]
        for start in range(0, len(order), options.batch_size):
            rows = order[start : start + options.batch_size]
            inputs = _strings(model.inputs[signature], [requests[row] for row in rows])
            for output, values in model(signature, inputs).items():
                for row, value in zip(rows, values, strict=True):
                    found[row][output] = value
        return found

    ask = functools.partial(run, SIGNATURE)
    if name == "squad":
        return TextModelQuestions(run)
    if name in examples.TASKS:
        return ChoiceRequests(ask)
    if name == "ner":
        return TextModelTags(run)
    if name == "pretraining":
        return TextModelVectors(run, *_heads(model, MASK_SIGNATURE, options))
    return _classifier(model, ask)


def _strings(names: Collection[str], requests: Sequence[Texts]) -> dict[str, np.ndarray]:
    """The inputs of a text model; a second text that is not given is "", which counts as absent."""
    found = {name: [texts[0] for texts in requests] for name in _FIRST_TEXTS if name in names}
    found |= {name: [(*texts, "")[1] for texts in requests] for name in _SECOND_TEXTS if name in names}
    if _CHOICES in names:
        found = {"context": [texts[0] for texts in requests], _CHOICES: [texts[1:] for texts in requests]}
    return {
        name: np.vectorize(str.encode, otypes=[object])(np.array(texts, object))
        for name, texts in found.items()
    }


def _heads(model: LoadedModel, mask_signature: str, options: PredictorOptions) -> tuple[bool, str, bool]:
    """Whether a pre-trained model fills masks, the vectors that are asked for, and whether it gives them."""
    return mask_signature in model.inputs, options.vectors, options.vectors in model.outputs


def _classifier(model: LoadedModel, ask: Ask) -> ClassifierRequests:
    if not {"score", "label", "labels"} & model.outputs:
        raise InputError(
            f"{model.path}: what the task {model.task_name} answers to a text is not known; use its signatures"
        )
    return ClassifierRequests(ask, model.labels, _num_texts(model.task_name, model.flags))


# What run_squad.py takes when an export does not say.
_DEFAULTS = {
    "strip_accents": None,
    "doc_stride": 128,
    "max_query_length": 64,
    "n_best_size": 20,
    "max_answer_length": 30,
    "version_2_with_negative": False,
    "null_score_diff_threshold": 0.0,
    "length_aware_batches": False,
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
    if name == "xnli":
        return 2
    if processor := glue.find(name):
        return 2 if processor.has_pairs else 1
    if "text_b_column" in flags:
        return 2 if flags["text_b_column"] else 1
    return None
