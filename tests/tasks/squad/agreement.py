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
    pairs = [
        (question["question"], paragraph["context"])
        for article in read_squad_json(path)
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return pairs[:: max(1, len(pairs) // count)][:count]


def examples_of(pairs: list[tuple[str, str]]) -> list[SquadExample]:
    return [
        SquadExample(str(number), question, [word.group() for word in find_words(context)])
        for number, (question, context) in enumerate(pairs)
    ]


def agreement(
    folder: str, export_dir: str, pairs: list[tuple[str, str]]
) -> tuple[dict, list[Difference]]:
    """Exports a folder's checkpoint, and compares what it answers to texts with what the script
    makes of them.
    """
    import tensorflow as tf

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
    serve = tf.saved_model.load(os.path.join(options.export_dir, "1")).signatures["serving_text"]
    found = collections.defaultdict(list)
    for start in range(0, len(pairs), _AT_ONCE):
        questions, contexts = map(tf.constant, zip(*pairs[start : start + _AT_ONCE], strict=True))
        for name, values in serve(question=questions, context=contexts).items():
            found[name].extend(values.numpy())

    rules, examples = SquadRules.from_values(vars(options)), examples_of(pairs)
    windows, results = _script(options, SquadTask(rules), examples)
    nbest = extract_candidates(examples, windows, results, rules).nbest
    own = collections.defaultdict(list)
    for window, result in zip(windows, results, strict=True):
        own[window.example_index].append((window, result.start_logits, result.end_logits))
    num_close, differing = 0, []
    for number, (_, context) in enumerate(pairs):
        ranked = plain_squad.spans(own[number], rules.n_best_size, rules.max_answer_length)
        gap = ranked[0][3] - ranked[1][3] if len(ranked) > 1 else math.inf
        num_close += gap < CLOSE
        script, text = nbest[str(number)][0]["text"], found["answer"][number].decode()
        expected = (
            plain_squad.pieces_of(ranked[0], own[number], LENGTH, STRIDE) if ranked else (-1, -1)
        )
        if (found["start_piece"][number], found["end_piece"][number]) != expected:
            differing.append(Difference("span", gap, script, text))
            continue
        if ranked:
            assert context[found["start"][number] : found["end"][number]] == text
        if text != script:
            window, start, end = own[number][ranked[0][0]][0], *ranked[0][1:3]
            differing.append(
                Difference(_kind(script, text, window.tokens[start : end + 1]), gap, script, text)
            )
    counts = {
        "questions": len(pairs),
        "windows": len(windows),
        "different_answers": len({entries[0]["text"] for entries in nbest.values()}),
        "two_best_scores_are_close": num_close,
        "differences": {kind: sum(one.kind == kind for one in differing) for kind in KINDS},
    }
    return counts, differing


def _kind(script: str, text: str, tokens: list[str]) -> str:
    if script == " ".join(text.split()):
        return "blanks"
    if "[UNK]" in tokens:
        return "[UNK]"
    return "not aligned" if text in script else "other"


def _script(options: ExportOptions, task: SquadTask, examples: list[SquadExample]):
    """Windows and logits as in run_squad.py."""
    import tensorflow as tf

    encoded = encode_questions(
        examples, FullTokenizer(options.vocab_file, task.rules.do_lower_case), task.rules
    )
    model = task.build_model(
        BertConfig.from_json_file(options.bert_config_file), use_one_hot_embeddings=False
    )
    load_checkpoint(model, options.init_checkpoint)
    run = tf.function(
        lambda features: task.outputs(model, features), autograph=False, reduce_retracing=True
    )
    outputs = collections.defaultdict(list)
    for start in range(0, len(encoded.windows), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(encoded.windows)))
        for name, logits in run(encoded.features(rows, LENGTH)).items():
            outputs[name].extend(logits.numpy())
    return encoded.windows, raw_results(encoded.windows, outputs)
