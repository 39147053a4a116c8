"""The method `score` of Predictor, and the mode --score of `official-bert predict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from official_bert import catalog
from official_bert.commands.predict_mode import PredictMode
from official_bert.extensions.scoring.options import WITHIN_WORD, ScoreOptions
from official_bert.extensions.scoring.scores import Scorer
from official_bert.io.errors import InputError
from official_bert.options.serving import PredictOptions
from official_bert.serving.predictor import Predictor, split_requests


def methods() -> Mapping[str, Callable]:
    """Return the methods of Predictor that this extension adds, by name."""
    return {"score": score}


def score(predictor: Predictor, *texts: str | list[str], method: str = WITHIN_WORD) -> Any:
    """Return how probable a pre-trained model thinks a text; for a list of texts a list.

        predictor.score("The cats sleep.")  # {"score": -14.6, "num_tokens": 4}

    It needs the folder of a model, no export. The pseudo-perplexity of texts is
    exp(-sum(scores) / sum(num_tokens)).

    Args:
        predictor: the opened model.
        texts: a text, or a list of texts.
        method: "within_word" or "pll"; extensions/scoring/scores.py has the formulas.

    Returns:
        `score`, the natural logarithm of the probability of the text's WordPieces, a
        pseudo-log-likelihood, and `num_tokens`, their number.

    Raises:
        InputError: the model cannot score, or a request is a pair.
    """
    requests, is_one = split_requests(texts)
    for request in requests:
        check_request(predictor, request)
    scorer = make_scorer(predictor)
    scores = scorer.score([text for (text,) in requests], method)
    return scores[0] if is_one else scores


def check_request(predictor: Predictor, texts: Sequence[str]) -> None:
    """Reject a pair, which has no score. A score needs no pooler.

    Args:
        predictor: the opened model.
        texts: the texts of a request.

    Raises:
        InputError: the request is a pair, or a text has a character that no text may have.
    """
    if len(texts) != 1:
        raise InputError(
            f"scores are for single texts, and this request has {len(texts)}; join them"
        )
    predictor.check_characters(texts)


def make_scorer(predictor: Predictor) -> Scorer:
    """Return the scorer of a predictor, always the same one.

    Args:
        predictor: the opened model.

    Returns:
        The scorer.

    Raises:
        InputError: the model does not predict words.
    """
    if "scorer" not in predictor.cache:
        predictor.cache["scorer"] = Scorer(predictor.model, predictor.batch_size)
    return predictor.cache["scorer"]


def score_mode(options: PredictOptions) -> PredictMode | None:
    """Return the mode of predict that --score chooses.

    Args:
        options: the flags of predict.

    Returns:
        The mode; None without the flag.
    """
    flags = catalog.options_part(options, ScoreOptions)
    return ScoreMode(options, flags.score) if flags.score else None


class ScoreMode(PredictMode):
    """Answers each line with the logarithm of its probability."""

    flag = "--score"

    def __init__(self, options: PredictOptions, method: str):
        super().__init__(options)
        self._method = method
        if options.pooling:
            raise InputError(
                "--pooling: does not go with --score, which reads the heads of the words; leave it "
                "out"
            )

    def start(self, predictor: Predictor) -> None:
        """Use a model; reject one that does not predict words."""
        super().start(predictor)
        self._scorer = make_scorer(predictor)

    def check(self, texts: Sequence[str]) -> None:
        """Reject a request that has no score."""
        check_request(self.predictor, texts)

    def answers(self, requests: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Yield the score of each request."""
        texts = [text for (text,) in requests]
        return iter(self._scorer.score(texts, self._method))

    def finish(self) -> None:
        """Log the perplexity of all texts."""
        logging.info(
            "The perplexity of all %d tokens is %.4f",
            self._scorer.num_tokens,
            self._scorer.perplexity,
        )
