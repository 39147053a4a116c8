"""Tests of the scores of texts against loops over masked copies or prefixes."""

import functools
import json
import math
import shutil

import numpy as np
import pytest

from official_bert import Predictor
from official_bert.checkpoints import load_checkpoint, named_variables, tf1
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling import BertPretrainer
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.scripts import end_of, run_here
from tests.serving import exported

load_predictor = functools.cache(Predictor)  # its first call takes a second

TEXTS = [
    "the cat sat on the mat .",
    "football",
    "sunny football park",
    "",
    "the unheard cat",
    "football",
]


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    _, model = exported.make_checkpoint(folder, "pretraining")
    return folder, model


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    exported.make_checkpoint(folder, "pretraining")
    config = BertConfig.from_dict(
        {
            **toy.BERT_CONFIG,
            "num_hidden_layers": 1,
            "vocab_size": len(toy.VOCABULARY),
            "attention_direction": "left_to_right",
        }
    )
    (folder / "bert_config.json").write_text(config.to_json_string())
    model = BertPretrainer(config)
    load_checkpoint(model, str(folder / "model.ckpt"))
    return folder, model


def write_folder_without(folder, model, part, new_folder):
    """Write a folder like that of a model, without the weights whose names contain `part`."""
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(folder / name, new_folder / name)
    weights = {}
    for name, variable in named_variables(model).items():
        if part not in name:
            weights[name] = variable.numpy()
    tf1.write(str(new_folder / "model.ckpt"), weights)


def log_softmax(logits):
    logits = np.float64(logits)
    shifted = logits - logits.max()
    total = np.exp(shifted).sum()
    return shifted - math.log(total)


def compute_log_probability(model, ids, position, word_id) -> float:
    """Compute the log-probability of a word at a position of one sequence."""
    inputs = {
        "input_ids": np.int32([ids]),
        "masked_lm_positions": np.int32([[position]]),
    }
    (logits,) = np.array(model(inputs).masked_lm_logits)
    return log_softmax(logits)[word_id]


def score_by_loop(folder, model, text, method):
    """Score one masked copy for each piece; return the score and the number of pieces."""
    tokenizer = FullTokenizer(str(folder / "vocab.txt"))
    tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    score = 0.0
    for position in range(1, len(tokens) - 1):
        copy = list(tokens)
        copy[position] = "[MASK]"
        if method == "within_word":
            later = position + 1
            while tokens[later].startswith("##"):
                copy[later] = "[MASK]"
                later += 1
        masked_ids = tokenizer.convert_tokens_to_ids(copy)
        score += compute_log_probability(model, masked_ids, position, ids[position])
    return score, len(tokens) - 2


def list_scores(results: list[dict]) -> list[float]:
    return [result["score"] for result in results]


@pytest.mark.parametrize("method", ["pll", "within_word"])
def test_scores_are_those_of_a_loop_over_masked_copies(masked, method):
    folder, model = masked
    predictor = load_predictor(folder, batch_size=1)
    results = predictor.score(TEXTS, method=method)

    expected_scores = []
    expected_counts = []
    for text in TEXTS:
        score, count = score_by_loop(folder, model, text, method)
        expected_scores.append(score)
        expected_counts.append(count)
    assert max(expected_counts) > 6
    scores = list_scores(results)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    assert [result["num_tokens"] for result in results] == expected_counts

    in_one_batch = load_predictor(folder).score(TEXTS, method=method)
    np.testing.assert_allclose(list_scores(in_one_batch), scores, atol=1e-5)


def test_a_single_piece_has_the_probability_of_fill_mask(masked):
    folder, _ = masked
    predictor = load_predictor(folder)
    scores = []
    probabilities = []
    for answer in predictor.fill_mask("[MASK]", top_k=10):
        token = answer["token"]
        if token.isalpha():
            result = predictor.score(token)
            scores.append(result["score"])
            probabilities.append(answer["score"])
    assert scores
    np.testing.assert_allclose(np.exp(scores), probabilities, rtol=1e-5)


def test_a_left_to_right_model_follows_the_chain_rule(causal):
    """Each piece is predicted from a sequence that ends before it."""
    folder, model = causal
    tokenizer = FullTokenizer(str(folder / "vocab.txt"))
    for text in TEXTS:
        tokens = ["[CLS]", *tokenizer.tokenize(text)]
        ids = tokenizer.convert_tokens_to_ids(tokens)
        expected = 0.0
        for end in range(1, len(ids)):
            prefix = ids[:end]
            expected += compute_log_probability(model, prefix, end - 1, ids[end])
        result = load_predictor(folder).score(text)
        assert result["score"] == pytest.approx(expected, abs=1e-5)
        assert result["num_tokens"] == len(ids) - 1


def test_a_model_without_a_pooler_scores(masked, tmp_path):
    """The masked language models of transformers have none."""
    folder, model = masked
    write_folder_without(folder, model, "pooler", tmp_path)
    (tmp_path / "lines").write_text("the cat\n")
    run_here(
        "predict",
        f"--model={tmp_path}",
        f"--input_file={tmp_path}/lines",
        f"--output_file={tmp_path}/out",
        "--score=within_word",
    )
    result = json.loads((tmp_path / "out").read_text())
    expected = load_predictor(folder).score("the cat")
    assert result["score"] == pytest.approx(expected["score"], abs=1e-5)


def test_predict_scores_lines_and_logs_the_perplexity(masked, tmp_path):
    folder, _ = masked
    texts = TEXTS[:3]
    (tmp_path / "lines").write_text("\n".join(texts))
    ended = run_here(
        "predict",
        f"--model={folder}",
        f"--input_file={tmp_path}/lines",
        f"--output_file={tmp_path}/out",
        "--score=pll",
    )
    lines = (tmp_path / "out").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    assert results == load_predictor(folder).score(texts, method="pll")

    count = sum(result["num_tokens"] for result in results)
    mean_score = sum(list_scores(results)) / count
    perplexity = math.exp(-mean_score)
    assert f"The perplexity of all {count} tokens is {perplexity:.4f}" in ended.stderr


def test_predict_refuses_to_score_pairs(masked, tmp_path):
    (tmp_path / "lines").write_text("the cat\tthe mat\n")
    ended = end_of(
        "predict",
        f"--model={masked[0]}",
        f"--input_file={tmp_path}/lines",
        f"--output_file={tmp_path}/out",
        "--score=pll",
    )
    assert ended.status == 1
    assert "scores are for single texts, and this request has 2" in ended.sentence


def test_a_long_text_is_truncated(masked):
    folder, _ = masked
    predictor = load_predictor(folder)
    max_tokens = predictor.model.max_seq_length - 2
    longest_text = "cat " * max_tokens
    longer_text = longest_text + "cat " * 9
    longer, longest = predictor.score([longer_text, longest_text])
    assert longer["score"] == pytest.approx(longest["score"], rel=1e-6)
    assert longer["num_tokens"] == max_tokens
    assert longest["num_tokens"] == max_tokens


def test_models_that_cannot_score_are_refused(masked, tmp_path, tmp_path_factory):
    export = exported.shared_export(tmp_path_factory, "pretraining")
    message = "is an export, which cannot score; give the folder of the trained model"
    with pytest.raises(InputError, match=message):
        Predictor(export.path).score("the cat", method="x")

    write_folder_without(*masked, "cls/predictions", tmp_path)
    message = "has no head that predicts words; give a pre-trained model"
    with pytest.raises(InputError, match=message):
        Predictor(tmp_path).score("the cat", method="x")


def test_wrong_arguments_are_named(masked):
    predictor = load_predictor(masked[0])
    with pytest.raises(InputError, match=r"method='x': must be one of pll, within_word"):
        predictor.score("the cat", method="x")
    with pytest.raises(InputError, match=r"the field text_a has .* half of a surrogate pair"):
        predictor.score("\ud800")
    with pytest.raises(
        InputError, match="scores are for single texts, and this request has 2; join them"
    ):
        predictor.score([("the cat", "a cat")])
