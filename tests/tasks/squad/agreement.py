"""Measures how far answers to raw text agree with those of run_squad.py:
docs/reports/exports.md.
"""

import collections
import math
import os
from typing import NamedTuple

import numpy as np

from official_bert.checkpoints import load_checkpoint
from official_bert.config import BertConfig
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.tasks.squad.answers import extract_candidates, raw_results
from official_bert.tasks.squad.examples import SquadExample, find_words, read_squad_json
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.squad.windows import encode_questions
from official_bert.tokenization import FullTokenizer
from tests.oracles import plain_squad

LENGTH, STRIDE, QUERY = 256, 128, 64
CLOSE = 1e-4
KINDS = ("span", "blanks", "[UNK]", "not aligned", "other")
_AT_ONCE = 16


class Difference(NamedTuple):
    """A question that is answered otherwise: one of KINDS, how far the script's best score
    leads, and both answers.
    """

    kind: str
    gap: float
    script: str
    text: str


def read_questions(path: str, count: int) -> list[tuple[str, str]]:
    """Questions from all over a SQuAD file, with their contexts."""
    pairs = []
    for article in read_squad_json(path):
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            pairs += [(question["question"], context) for question in paragraph["qas"]]
    step = max(1, len(pairs) // count)
    return pairs[::step][:count]


def examples_of(pairs: list[tuple[str, str]]) -> list[SquadExample]:
    examples = []
    for number, (question, context) in enumerate(pairs):
        words = [word.group() for word in find_words(context)]
        examples.append(SquadExample(str(number), question, words))
    return examples


def agreement(
    folder: str, export_dir: str, pairs: list[tuple[str, str]]
) -> tuple[dict, list[Difference]]:
    """Exports a folder's checkpoint, and compares what it answers to texts with what the script
    makes of them.
    """
    options = ExportOptions(
        task_name="squad",
        export_dir=export_dir,
        export_text=True,
        init_checkpoint=folder,
        bert_config_file=os.path.join(folder, "bert_config.json"),
        vocab_file=os.path.join(folder, "vocab.txt"),
        max_seq_length=LENGTH,
        doc_stride=STRIDE,
        max_query_length=QUERY,
    )
    serving_model.export(options)
    answers = _graph_answers(options.export_dir, pairs)

    rules = SquadRules.from_values(vars(options))
    examples = examples_of(pairs)
    windows, results = _script(options, SquadTask(rules), examples)
    nbest = extract_candidates(examples, windows, results, rules).nbest
    windows_of = collections.defaultdict(list)
    for window, result in zip(windows, results, strict=True):
        entry = (window, result.start_logits, result.end_logits)
        windows_of[window.example_index].append(entry)
    num_close = 0
    differing = []
    for number, (_, context) in enumerate(pairs):
        question_windows = windows_of[number]
        ranked = plain_squad.spans(
            question_windows,
            rules.n_best_size,
            rules.max_answer_length,
        )
        gap = _gap(ranked)
        num_close += gap < CLOSE
        answer = {name: values[number] for name, values in answers.items()}
        text = answer["answer"].decode()
        best_entry, *_ = nbest[str(number)]
        script = best_entry["text"]
        expected = (-1, -1)
        if ranked:
            expected = plain_squad.pieces_of(ranked[0], question_windows, LENGTH, STRIDE)
        if (answer["start_piece"], answer["end_piece"]) != expected:
            differing.append(Difference("span", gap, script, text))
            continue
        if ranked:
            start, end = answer["start"], answer["end"]
            assert context[start:end] == text
        if text != script:
            window_number, first, last, _ = ranked[0]
            window, _, _ = question_windows[window_number]
            tokens = window.tokens[first : last + 1]
            kind = _kind(script, text, tokens)
            differing.append(Difference(kind, gap, script, text))
    best_texts = {entries[0]["text"] for entries in nbest.values()}
    kinds = collections.Counter(one.kind for one in differing)
    counts = {
        "questions": len(pairs),
        "windows": len(windows),
        "different_answers": len(best_texts),
        "two_best_scores_are_close": num_close,
        "differences": {kind: kinds[kind] for kind in KINDS},
    }
    return counts, differing


def _graph_answers(export_dir: str, pairs: list[tuple[str, str]]) -> dict[str, list]:
    """The outputs of an export that reads text, by name."""
    import tensorflow as tf

    loaded = tf.saved_model.load(os.path.join(export_dir, "1"))
    serve = loaded.signatures["serving_text"]
    answers = collections.defaultdict(list)
    for start in range(0, len(pairs), _AT_ONCE):
        request = pairs[start : start + _AT_ONCE]
        outputs = serve(
            question=tf.constant([question for question, _ in request]),
            context=tf.constant([context for _, context in request]),
        )
        for name, values in outputs.items():
            answers[name].extend(values.numpy())
    return answers


def _gap(ranked: list) -> float:
    """How far the score of the best span leads."""
    if len(ranked) < 2:
        return math.inf
    best, second, *_ = ranked
    return best[3] - second[3]


def _kind(script: str, text: str, tokens: list[str]) -> str:
    if script == " ".join(text.split()):
        return "blanks"
    if "[UNK]" in tokens:
        return "[UNK]"
    return "not aligned" if text in script else "other"


def _script(options: ExportOptions, task: SquadTask, examples: list[SquadExample]):
    """Windows and logits as in run_squad.py."""
    import tensorflow as tf

    tokenizer = FullTokenizer(options.vocab_file, task.rules.do_lower_case)
    encoded = encode_questions(examples, tokenizer, task.rules)
    config = BertConfig.from_json_file(options.bert_config_file)
    model = task.build_model(config, use_one_hot_embeddings=False)
    load_checkpoint(model, options.init_checkpoint)

    @tf.function(autograph=False, reduce_retracing=True)
    def run(features):
        return task.outputs(model, features)

    windows = encoded.windows
    outputs = collections.defaultdict(list)
    for start in range(0, len(windows), _AT_ONCE):
        end = min(start + _AT_ONCE, len(windows))
        batch = encoded.features(np.arange(start, end), LENGTH)
        for name, logits in run(batch).items():
            outputs[name].extend(logits.numpy())
    return windows, raw_results(windows, outputs)
