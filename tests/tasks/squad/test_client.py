"""The client of a SQuAD model answers with the best span of the context, whatever the n best
starts and ends are.
"""

import types

import numpy as np
import pytest

from official_bert.tasks.squad.client import SquadClient
from official_bert.tasks.squad.rules import SquadRules

QUESTION = "it was the cat ?"
CONTEXT = "The  cat sat on the mat"
REQUEST = (QUESTION, CONTEXT)


def client_of(tokenizer, reads_text: bool = False, **rules) -> SquadClient:
    """A client of a model whose best starts are the last tokens, and whose best ends are the
    first ones.
    """

    def run(encoded, pads_to_longest):
        num_windows = len(encoded.lengths)
        starts = np.tile(np.arange(32.0), (num_windows, 1))
        return {
            "start_logits": starts,
            "end_logits": -0.9 * starts,
        }

    model = types.SimpleNamespace(
        tokenizer=tokenizer,
        reads_text=reads_text,
        run=run,
        max_seq_length=32,
    )
    rules = SquadRules(max_seq_length=32, max_query_length=8, **rules)
    return SquadClient(model, rules)


def test_the_best_span_is_searched_where_the_n_best_make_none(tokenizer):
    client = client_of(tokenizer, n_best_size=3)
    (answer,) = client.answers([REQUEST])
    # As the original's files.
    assert answer["answer"] == "empty"
    assert answer["start"] is None
    assert answer["probability"] == 1.0
    brief = client.postprocess(REQUEST, answer)
    # One token at position p has the logits p - 0.9 p, so the last token is the best, then the last
    # but one.
    weights = np.exp(0.1 * np.arange(3))
    score = weights[2] / weights.sum()
    assert brief == {
        "answer": "mat",
        "start": 20,
        "end": 23,
        "score": pytest.approx(score),
    }


def test_no_span_at_all_is_no_answer_with_a_score_of_zero(tokenizer):
    nothing = {
        "answer": "",
        "start": None,
        "end": None,
        "score": 0.0,
    }
    client = client_of(tokenizer)
    empty_request = (QUESTION, " ")
    (answer,) = client.answers([empty_request])
    assert client.postprocess(empty_request, answer) == nothing
    # The graph of an export of text searches for the spans of the n best only.
    graph_answer = nothing | {"answer": "empty"}
    text_client = client_of(tokenizer, reads_text=True)
    assert text_client.postprocess(REQUEST, graph_answer) == nothing


def test_no_answer_of_version_2_keeps_its_probability(tokenizer):
    client = client_of(tokenizer, n_best_size=3, version_2_with_negative=True)
    (answer,) = client.answers([REQUEST])
    brief = client.postprocess(REQUEST, answer)
    assert brief == {
        "answer": "",
        "start": None,
        "end": None,
        "score": answer["probability"],
    }
