"""The client of a SQuAD model: it answers a question about a context as run_squad.py does."""

from collections.abc import Sequence

import numpy as np

from official_bert.features import length_mask
from official_bert.io.errors import InputError
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts
from official_bert.tasks.squad.answers import Ranking, choose_answers, rank_answers, raw_results
from official_bert.tasks.squad.examples import SquadExample, find_words
from official_bert.tasks.squad.rules import NO_POSITION, SquadRules
from official_bert.tasks.squad.windows import encode_questions


class SquadClient(TextClient):
    """A client that asks for the answer to a question about a context, with its offsets and its
    score.
    """

    method = "answer"

    def __init__(self, model: ServedModel, rules: SquadRules):
        """Validates that the lengths leave room for a context, and that the threshold is known."""
        super().__init__(model, ("question", "context"))
        self._rules = rules
        if model.reads_text:
            return
        if rules.is_tuned:
            raise InputError(
                "--null_score_diff_threshold: must be given, the model was exported before the "
                "number was tuned; run_squad.py with --do_predict tunes it and writes it into "
                "eval_results.txt"
            )
        rules.check_room()

    def is_cut(self, texts: Texts) -> bool:
        """Tells whether the question is cut; a context is read in windows, as a whole."""
        question_ids = self.model.tokenizer.encode(texts[0])
        return len(question_ids) > self._rules.max_query_length

    def postprocess(self, texts: Texts, answer: dict) -> dict:
        """Returns `answer`, `start`, `end`, and `score`: the probability, or from an export of text
        the logits' sum.

        Where the n best starts and ends of version 1 make no span, the answer is the best of all
        spans. If there is none, or an export of text searched for it, the answer is "" with the
        score 0, and not "empty" with the probability 1 as in the original's files.
        """
        if answer["start"] is None and not self._rules.version_2_with_negative:
            if not self.model.reads_text:
                rules = self._rules.with_all_positions()
                (answer,) = self._answers([texts], rules)
            if answer["start"] is None:
                return {
                    "answer": "",
                    "start": None,
                    "end": None,
                    "score": 0.0,
                }
        return {
            "answer": answer["answer"],
            "start": answer["start"],
            "end": answer["end"],
            "score": answer.get("probability", answer["score"]),
        }

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns `answer`, `start`, `end`, `score`, `probability` and, with version 2,
        `null_odds`.

        `score` is the sum of its two logits, `probability` that among the n-best answers, which an
        export of text does not give. The offsets are None for an answer that is no part of the
        context: "", or "empty" in version 1.
        """
        if self.model.reads_text:
            return super().answers(requests)
        return self._answers(requests, self._rules)

    def _answers(self, requests: Sequence[Texts], rules: SquadRules) -> list[dict]:
        """Returns the answers by an export of tensors, from the spans that the rules consider."""
        examples = []
        word_starts = []
        for number, (question, context) in enumerate(requests):
            matches = list(find_words(context))
            words = [match.group() for match in matches]
            examples.append(SquadExample(str(number), question, words))
            word_starts.append([match.start() for match in matches])
        encoded = encode_questions(
            examples,
            self.model.tokenizer,
            self._rules,
            num_logged=0,
        )
        pads_to_longest = self._rules.length_aware_batches
        outputs = {}
        if encoded.windows:
            outputs = self.model.run(encoded, pads_to_longest=pads_to_longest)
        if pads_to_longest:
            for name, logits in outputs.items():
                is_token = length_mask(encoded.lengths, logits.shape[1])
                outputs[name] = np.where(is_token, logits, NO_POSITION)
        results = raw_results(encoded.windows, outputs)
        rankings = rank_answers(examples, encoded.windows, results, rules)
        return [
            self._make_answer(ranking, starts, example.doc_tokens)
            for ranking, starts, example in zip(rankings, word_starts, examples, strict=True)
        ]

    def _make_answer(
        self,
        ranking: Ranking,
        word_starts: list[int],
        doc_tokens: list[str],
    ) -> dict:
        if not self._rules.version_2_with_negative:
            entries = ranking.entries[: self._rules.n_best_size]
            ranking = ranking._replace(entries=entries)
        nbest = ranking.nbest()
        odds = ranking.null_odds
        texts = choose_answers(
            nbest={"": nbest},
            null_odds={} if odds is None else {"": odds},
            null_score_diff_threshold=self._rules.null_score_diff_threshold,
        )
        text = texts[""]
        entry_texts = [entry.text for entry in ranking.entries]
        number = entry_texts.index(text)
        entry = ranking.entries[number]
        start = end = None
        if entry.words and text:
            start, end = _offsets(text, entry.words, word_starts, doc_tokens)
        answer = {
            "answer": text,
            "start": start,
            "end": end,
            "score": entry.start_logit + entry.end_logit,
            "probability": nbest[number]["probability"],
        }
        if odds is not None:
            answer["null_odds"] = odds
        return answer

    def answer(self, row: Row) -> dict:
        is_cut = row["start"] >= 0
        answer = {
            "answer": row["answer"].decode(),
            "start": int(row["start"]) if is_cut else None,
            "end": int(row["end"]) if is_cut else None,
            "score": float(row["score"]),
        }
        if "null_odds" in row:
            answer["null_odds"] = float(row["null_odds"])
        return answer


def _offsets(
    text: str,
    words: tuple[int, int],
    word_starts: Sequence[int],
    doc_tokens: Sequence[str],
) -> tuple[int, int]:
    """Returns the offsets of an answer in its context, whose words may be separated by any white
    space.
    """
    first_word, last_word = words
    joined = " ".join(doc_tokens[first_word : last_word + 1])

    def find_offset(index: int) -> int:
        word = first_word + joined.count(" ", 0, index)
        word_index = joined.rfind(" ", 0, index) + 1
        return word_starts[word] + index - word_index

    first = joined.index(text)
    last = first + len(text) - 1
    return find_offset(first), find_offset(last) + 1
