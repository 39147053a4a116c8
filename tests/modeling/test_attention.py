"""Both directions of attention, and what the last layer computes of one token."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert import BertConfig, BertModel, BertPretrainer, InputError
from official_bert.modeling import BertClassifier, BertSpans, BertTagger
from official_bert.modeling.attention import MASKED, attention_bias
from official_bert.training.starting_point import seed_initial_weights
from tests import fine_tuning_runs, toy
from tests.golden_model import largest_difference
from tests.hostile.rows import edit_json
from tests.modeling.test_bert import probabilities_by_numpy

LENGTH = 12
FIELDS = toy.BERT_CONFIG | {"num_hidden_layers": 3, "initializer_range": 0.5}
LEFT_TO_RIGHT = BertConfig.from_dict(FIELDS | {"attention_direction": "left_to_right"})
NUM_TOKENS = np.array([12, 7, 1])
IS_TOKEN = np.arange(LENGTH) < NUM_TOKENS[:, None]
INPUT_MASK = IS_TOKEN.astype(int)


def draw_ids() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(
        low=5,
        high=len(toy.VOCABULARY),
        size=INPUT_MASK.shape,
    )


def replace_words(words: np.ndarray, place) -> np.ndarray:
    """Returns a copy of `words` in which each word at `place` has become another one."""
    changed = words.copy()
    num_words = len(toy.VOCABULARY) - 5
    changed[place] = 5 + (changed[place] - 4) % num_words
    return changed


def make_model(model_class, *arguments, config=LEFT_TO_RIGHT, **others):
    seed_initial_weights(4)
    return model_class(config, *arguments, **others)


# The class of a model, the arguments after its config, and how to read its outputs.
OUTPUTS = {
    "pre-training": (BertPretrainer, (), lambda out: out.masked_lm_logits),
    "encoder": (BertModel, (), lambda out: out.sequence_output),
    "tags": (BertTagger, (5,), lambda out: out),
    "answer spans": (BertSpans, (), lambda out: tf.stack(out, axis=-1)),
}


@pytest.mark.parametrize(
    ("name", "is_training"),
    [
        ("pre-training", False),
        ("encoder", True),
        ("tags", True),
        ("answer spans", False),
    ],
)
def test_no_output_depends_on_what_comes_after_it(name, is_training):
    """Each position's word is changed in turn, in evaluation and with the dropout of training."""
    model_class, arguments, read = OUTPUTS[name]
    model = make_model(model_class, *arguments)

    @tf.function(autograph=False)
    def compute(input_ids):
        features = {"input_ids": input_ids, "input_mask": INPUT_MASK}
        seed = tf.constant([1, 2]) if is_training else None
        out = model(
            features,
            training=is_training,
            dropout_seed=seed,
        )
        return read(out)

    words = draw_ids()
    before = compute(tf.constant(words)).numpy()
    for place in range(LENGTH):
        changed = replace_words(words, np.s_[:, place])
        after = compute(tf.constant(changed)).numpy()
        assert_array_equal(after[:, :place], before[:, :place])
        # The first text has no padding.
        difference = largest_difference(
            after[0, place:],
            before[0, place:],
        )
        assert difference > 1e-3

    # In the usual model the first output depends on the last word.
    bidirectional = make_model(
        model_class,
        *arguments,
        config=BertConfig.from_dict(FIELDS),
    )
    first_outputs = []
    for ids in (words, changed):
        features = {"input_ids": ids, "input_mask": INPUT_MASK}
        output = read(bidirectional(features))
        first_outputs.append(output[0, 0])
    assert largest_difference(*first_outputs) > 1e-3


def test_the_attention_is_that_of_numpy():
    """The probabilities of the first layer, from its own queries and keys."""
    model = make_model(BertModel)
    out = model(draw_ids(), INPUT_MASK, output_attentions=True)
    every_pair = np.ones((LENGTH, LENGTH))
    is_before = np.tril(every_pair)
    is_token = INPUT_MASK[:, None, None]
    is_allowed = is_before * is_token
    embedding_output = out.embedding_output.numpy()
    expected = probabilities_by_numpy(
        model,
        0,
        embedding_output,
        is_allowed,
    )
    probabilities = out.all_attention_probabilities[0]
    assert_allclose(probabilities, expected, atol=1e-6)

    bias = attention_bias(INPUT_MASK, direction="left_to_right")
    assert_array_equal(bias == 0, is_allowed == 1)
    assert np.max(bias) == 0
    assert np.min(bias) == 2 * MASKED


@pytest.mark.parametrize("first_token_only", [False, True])
def test_the_last_token_is_pooled(first_token_only):
    model = make_model(BertModel)
    ids = draw_ids()
    out = model(ids, INPUT_MASK, first_token_only=first_token_only)
    whole = model(ids, INPUT_MASK, first_token_only=False)
    texts = [0, 1, 2]
    last_tokens = NUM_TOKENS - 1
    all_vectors = whole.sequence_output.numpy()
    last_vectors = all_vectors[texts, last_tokens]
    dense = model.pooler.dense
    kernel = dense.kernel.numpy()
    bias = dense.bias.numpy()
    expected = np.tanh(last_vectors @ kernel + bias)
    assert_allclose(out.pooled_output, expected, atol=1e-5)

    # With `first_token_only`, the sequence has the last token alone.
    places = 0 if first_token_only else last_tokens
    vectors = out.sequence_output.numpy()
    assert_allclose(vectors[texts, places], last_vectors, atol=1e-5)


def test_a_classifier_reads_the_whole_text():
    model = make_model(BertClassifier, 2)
    words = draw_ids()
    before = model({"input_ids": words, "input_mask": INPUT_MASK})
    for text in (0, 1):
        length = NUM_TOKENS[text]
        for place in (0, length // 2, length - 1):
            changed = replace_words(words, (text, place))
            after = model({"input_ids": changed, "input_mask": INPUT_MASK})
            assert largest_difference(after[text], before[text]) > 1e-4


def test_other_directions_are_refused_and_hugging_face_has_none(tmp_path):
    upward = BertConfig.from_dict(FIELDS | {"attention_direction": "up"})
    message = "attention_direction must be bidirectional or left_to_right, got 'up'"
    with pytest.raises(InputError, match=message):
        BertModel(upward)
    model = make_model(BertModel)
    folder = str(tmp_path / "hf")
    message = "attention_direction: is left_to_right, which Hugging Face's BERT"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(folder, "huggingface")


def test_a_model_keeps_its_direction_in_its_folder(tmp_path, caplog):
    model = make_model(BertTagger, 3)
    folder = str(tmp_path / "saved")
    model.save_pretrained(folder)
    assert "the original BERT does not know it" in caplog.text
    loaded = BertTagger.from_pretrained(folder)
    assert loaded.config.direction == "left_to_right"
    features = {"input_ids": draw_ids(), "input_mask": INPUT_MASK}
    assert_array_equal(loaded(features), model(features))
    usual_config = BertConfig.from_dict(FIELDS)
    assert "attention_direction" not in usual_config.to_dict()


def draw_pairs_of_sentences() -> np.ndarray:
    """Draws 40 sentences of ten words, of which two each have the same six first words."""
    rng = np.random.default_rng(2)
    beginnings = rng.choice(fine_tuning_runs.WORDS, (20, 6))
    ends = rng.choice(fine_tuning_runs.WORDS, (40, 4))
    repeated_beginnings = np.repeat(beginnings, 2, axis=0)
    return np.concatenate([repeated_beginnings, ends], axis=1)


def format_conll(sentences) -> str:
    blocks = []
    for sentence in sentences:
        lines = [f"{word} O\n" for word in sentence]
        blocks.append("".join(lines))
    return "\n".join(blocks)


def read_tags(conll: str) -> np.ndarray:
    """Reads the last column of sentences that all have the same number of words."""
    rows = []
    for block in conll.strip("\n").split("\n\n"):
        rows.append([line.split()[-1] for line in block.splitlines()])
    return np.array(rows)


def test_a_fine_tuning_keeps_the_direction_of_its_model(tmp_path):
    """The tags that the run predicts do not depend on later words."""
    options = fine_tuning_runs.prepared(tmp_path, "tagging", train=8)  # two updates
    model_dir = tmp_path / "model"
    config_file = model_dir / "bert_config.json"
    edit_json(config_file, attention_direction="left_to_right")
    sentences = draw_pairs_of_sentences()
    test_file = tmp_path / "test.conll"
    test_file.write_text(format_conll(sentences))
    out = tmp_path / "out"
    fine_tuning_runs.run(
        "tagging",
        options,
        out,
        do_train=True,
        do_predict=True,
        model=str(model_dir),
        vocab_file=None,
        bert_config_file=None,
        init_checkpoint=None,
    )

    predictions = (out / "predictions.conll").read_text()
    tags = read_tags(predictions)
    assert tags.shape == sentences.shape
    tags_of_beginnings = tags[:, :6]
    assert len(np.unique(tags_of_beginnings)) > 1
    assert_array_equal(tags_of_beginnings[::2], tags_of_beginnings[1::2])
    model = BertTagger.from_pretrained(str(out))
    assert model.config.direction == "left_to_right"
