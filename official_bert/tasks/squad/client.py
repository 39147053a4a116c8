"""Questions about contexts, answered by an exported model as run_squad.py answers them.

In: questions with contexts, and a function that runs the model. Out: answers with their places in the contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official_bert.tasks.clients import Run, TextCount, Texts
from official_bert.tasks.squad.answers import Ranking, choose_answers, rank_answers
from official_bert.tasks.squad.examples import SquadExample, find_words
from official_bert.tasks.squad.task import (
    NO_POSITION,
    AnswerRules,
    EncodedWindows,
    WindowCollector,
    raw_results,
)
from official_bert.tasks.squad.windows import convert_examples_to_features
from official_bert.tokenization import FullTokenizer


class Windowing(NamedTuple):
    """How contexts are cut; the fields are arguments of `convert_examples_to_features`."""

    max_seq_length: int
    doc_stride: int
    max_query_length: int


class SquadRequests(TextCount):
    """A question and a context: the answer, its place and its score."""

    columns = ("question", "context")
    num_required = 2

    def __init__(
        self,
        run: Run,
        tokenizer: FullTokenizer,
        windowing: Windowing,
        rules: AnswerRules,
        null_score_diff_threshold: float,
        ranks_padding: bool,
    ):
        """Args:
        run: runs the model.
        tokenizer: with the vocabulary.
        windowing: how contexts are cut.
        rules: how logits become answers.
        null_score_diff_threshold: null odds above which a question is left unanswered; read with version 2 only.
        ranks_padding: whether padding takes part in the choice of the best starts and ends, as in the original.
        """
        self._run, self._tokenizer, self._windowing = run, tokenizer, windowing
        self._rules, self._threshold = rules, null_score_diff_threshold
        self._ranks_padding = ranks_padding

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`answer`, its `start` and `end` in the context, `score` (the sum of its logits), `probability` among the
        n-best answers and, with version 2, `null_odds`.

        `start` and `end` are None for an answer that is not cut from the context: "" for none, and "empty" where a
        model of version 1 has nothing to choose from, as in the script.
        """
        matches = [list(find_words(context)) for _, context in requests]
        examples = [
            SquadExample(str(number), question, [match.group() for match in words])
            for number, ((question, _), words) in enumerate(zip(requests, matches, strict=True))
        ]
        collector, windows = WindowCollector(), []

        def take(window):
            collector.add(window)
            windows.append(window)

        convert_examples_to_features(
            examples, self._tokenizer, *self._windowing, is_training=False, output_fn=take, num_logged=0
        )
        encoded = EncodedWindows(**collector.arrays())
        outputs = self._run("serving_default", encoded) if windows else {}
        if not self._ranks_padding:
            outputs = {name: _without_padding(logits, encoded.lengths) for name, logits in outputs.items()}
        rankings = rank_answers(examples, windows, raw_results(windows, outputs), **vars(self._rules))
        return [
            self._answer(ranking, [match.start() for match in words], example.doc_tokens)
            for ranking, words, example in zip(rankings, matches, examples, strict=True)
        ]

    def _answer(self, ranking: Ranking, word_starts: list[int], doc_tokens: list[str]) -> dict:
        nbest, odds = ranking.nbest(), ranking.null_odds
        null_odds = {} if odds is None else {"": odds}
        text = choose_answers({"": nbest}, null_odds, self._threshold)[""]
        number = [entry.text for entry in ranking.entries].index(text)
        entry = ranking.entries[number]
        start = end = None
        if entry.words and text:
            start, end = _place(text, entry.words, word_starts, doc_tokens)
        answer = {
            "answer": text,
            "start": start,
            "end": end,
            "score": entry.start_logit + entry.end_logit,
            "probability": nbest[number]["probability"],
        }
        return answer if odds is None else answer | {"null_odds": odds}


def _without_padding(logits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """float32[n, length] with NO_POSITION behind the first int[n]."""
    return np.where(np.arange(logits.shape[1]) < lengths[:, None], logits, NO_POSITION)


def _place(
    text: str, words: tuple[int, int], word_starts: Sequence[int], doc_tokens: Sequence[str]
) -> tuple[int, int]:
    """Where an answer begins and ends in its context, which may have other blanks between its words."""
    joined = " ".join(doc_tokens[words[0] : words[1] + 1])

    def in_context(index: int) -> int:
        word = words[0] + joined.count(" ", 0, index)
        return word_starts[word] + index - (joined.rfind(" ", 0, index) + 1)

    first = joined.index(text)
    return in_context(first), in_context(first + len(text) - 1) + 1
