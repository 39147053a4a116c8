"""The scores of texts equal loops over masked copies, or over prefixes, with the model itself."""

import functools
import json
import math

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
    config = toy.BERT_CONFIG | {"num_hidden_layers": 1, "vocab_size": len(toy.VOCABULARY)}
    config = BertConfig.from_dict(config | {"attention_direction": "left_to_right"})
    (folder / "bert_config.json").write_text(config.to_json_string())
    model = BertPretrainer(config)
    load_checkpoint(model, str(folder / "model.ckpt"))
    return folder, model


def folder_without(made, part, folder):
    """Writes a folder like that of a model, without the weights of a part."""
    for name in ("bert_config.json", "vocab.txt"):
        (folder / name).write_text((made[0] / name).read_text())
    values = {
        name: variable.numpy()
        for name, variable in named_variables(made[1]).items()
        if part not in name
    }
    tf1.write(str(folder / "model.ckpt"), values)


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


def word_logits(model, ids, position):
    """The logits of a position of one sequence, of all words."""
    out = model({"input_ids": np.int32([ids]), "masked_lm_positions": np.int32([[position]])})
    return np.array(out.masked_lm_logits)[0]


def by_loop(folder, model, text, method):
    """One copy for each piece, one after the other."""
    tokenizer = FullTokenizer(str(folder / "vocab.txt"))
    tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
    score = 0.0
    for position in range(1, len(tokens) - 1):
        copy = list(tokens)
        copy[position] = "[MASK]"
        if method == "within_word":
            later = position + 1
            while tokens[later].startswith("##"):
                copy[later] = "[MASK]"
                later += 1
        (word,) = tokenizer.convert_tokens_to_ids([tokens[position]])
        score += log_softmax(word_logits(model, tokenizer.convert_tokens_to_ids(copy), position))[
            word
        ]
    return score, len(tokens) - 2


@pytest.mark.parametrize("method", ["pll", "within_word"])
def test_scores_are_those_of_a_loop_over_masked_copies(masked, method):
    folder, model = masked
    expected = [by_loop(folder, model, text, method) for text in TEXTS]
    assert max(num_tokens for _, num_tokens in expected) > 6
    found = load_predictor(folder, batch_size=1).score(TEXTS, method=method)
    np.testing.assert_allclose(
        [one["score"] for one in found], [score for score, _ in expected], atol=1e-5
    )
    assert [one["num_tokens"] for one in found] == [num_tokens for _, num_tokens in expected]
    at_once = load_predictor(folder).score(TEXTS, method=method)
    np.testing.assert_allclose(
        [one["score"] for one in at_once], [one["score"] for one in found], atol=1e-5
    )


def test_a_single_piece_has_the_probability_that_fill_mask_tells(masked):
    predictor = load_predictor(masked[0])
    words = [one for one in predictor.fill_mask("[MASK]", top_k=10) if one["token"].isalpha()]
    assert words
    scores = [predictor.score(word["token"])["score"] for word in words]
    np.testing.assert_allclose(np.exp(scores), [word["score"] for word in words], rtol=1e-5)


def test_a_left_to_right_model_follows_the_chain_rule(causal):
    """Each piece is predicted from a sequence that ends before it."""
    folder, model = causal
    tokenizer = FullTokenizer(str(folder / "vocab.txt"))
    for text in TEXTS:
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text)])
        expected = sum(
            log_softmax(word_logits(model, ids[:end], end - 1))[ids[end]]
            for end in range(1, len(ids))
        )
        found = load_predictor(folder).score(text)
        assert found["score"] == pytest.approx(expected, abs=1e-5)
        assert found["num_tokens"] == len(ids) - 1


def test_a_model_without_a_pooler_scores(masked, tmp_path):
    """As the masked language models of transformers are."""
    folder_without(masked, "pooler", tmp_path)
    (tmp_path / "lines").write_text("the cat\n")
    flags = [
        f"--model={tmp_path}",
        f"--input_file={tmp_path}/lines",
        f"--output_file={tmp_path}/out",
    ]
    run_here("predict", *flags, "--score=within_word")
    found = json.loads((tmp_path / "out").read_text())
    assert found["score"] == pytest.approx(
        load_predictor(masked[0]).score("the cat")["score"], abs=1e-5
    )


def test_predict_scores_lines_and_tells_the_perplexity(masked, tmp_path):
    (tmp_path / "lines").write_text("\n".join(TEXTS[:3]) + "\n")
    flags = [
        f"--model={masked[0]}",
        f"--input_file={tmp_path}/lines",
        f"--output_file={tmp_path}/out",
    ]
    ended = run_here("predict", *flags, "--score=pll")
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert found == load_predictor(masked[0]).score(TEXTS[:3], method="pll")
    total, count = (sum(one[name] for one in found) for name in ("score", "num_tokens"))
    assert f"The perplexity of all {count} tokens is {math.exp(-total / count):.4f}" in ended.stderr
    (tmp_path / "lines").write_text("the cat\tthe mat\n")
    ended = end_of("predict", *flags, "--score=pll")
    assert (ended.status, "a score is of a single text, and not of 2" in ended.sentence) == (
        1,
        True,
    )


def test_a_long_text_is_cut(masked):
    predictor = load_predictor(masked[0])
    most = predictor.model.max_seq_length - 2
    found = predictor.score(["cat " * (most + 9), "cat " * most])
    assert found[0]["score"] == pytest.approx(found[1]["score"], rel=1e-6)
    assert [one["num_tokens"] for one in found] == [most, most]


def test_what_cannot_be_scored_is_said(masked, tmp_path, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "pretraining")
    folder_without(masked, "cls/predictions", tmp_path)
    for predictor, sentence in (
        (
            Predictor(made.path),
            "is an export, which cannot score; give the folder of the trained model",
        ),
        (Predictor(tmp_path), "has no head that predicts words; give a pre-trained model"),
        (load_predictor(masked[0]), r"method='x': must be one of pll, within_word"),
    ):
        with pytest.raises(InputError, match=sentence):
            predictor.score("the cat", method="x")
    with pytest.raises(InputError, match=r"the field text_a has .* half of a surrogate pair"):
        load_predictor(masked[0]).score("\ud800")
    with pytest.raises(InputError, match="a score is of a single text, and not of 2 texts"):
        load_predictor(masked[0]).score([("the cat", "a cat")])
