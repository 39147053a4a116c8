"""Both directions of attention, and what the last layer computes of one token."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertModel, BertPretrainer, InputError
from official_bert.modeling import BertClassifier, BertSpans, BertTagger
from official_bert.modeling.attention import MASKED, attention_bias
from official_bert.training.starting_point import seed_initial_weights
from tests import fine_tuning_runs, toy
from tests.hostile.rows import edit_json
from tests.modeling.test_bert import probabilities_by_numpy

LENGTH = 12
FIELDS = toy.BERT_CONFIG | {"num_hidden_layers": 3, "initializer_range": 0.5}
LEFT_TO_RIGHT = BertConfig.from_dict(FIELDS | {"attention_direction": "left_to_right"})
INPUT_MASK = np.array([[1] * 12, [1] * 7 + [0] * 5, [1] + [0] * 11])


def draw_ids(seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(seed)
    return draws.integers(5, len(toy.VOCABULARY), INPUT_MASK.shape)


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
    [("pre-training", False), ("encoder", True), ("tags", True), ("answer spans", False)],
)
def test_no_output_depends_on_what_comes_after_it(name, is_training):
    """Each position's word is changed in turn, in evaluation and with the dropout of training."""
    model_class, arguments, read = OUTPUTS[name]
    model = make_model(model_class, *arguments)

    @tf.function(autograph=False)
    def outputs(input_ids):
        features = {"input_ids": input_ids, "input_mask": INPUT_MASK}
        seed = tf.constant([1, 2]) if is_training else None
        return read(model(features, training=is_training, dropout_seed=seed))

    words = draw_ids()
    before = outputs(tf.constant(words)).numpy()
    for place in range(LENGTH):
        changed = replace_words(words, np.s_[:, place])
        after = outputs(tf.constant(changed)).numpy()
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert np.abs(after[0, place:] - before[0, place:]).max() > 1e-3

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
        first_outputs.append(output.numpy()[0, 0])
    assert np.abs(first_outputs[0] - first_outputs[1]).max() > 1e-3


def test_the_attention_is_that_of_numpy():
    """The probabilities of the first layer, from its own queries and keys."""
    model = make_model(BertModel)
    out = model(draw_ids(), INPUT_MASK, output_attentions=True)
    is_before = np.tril(np.ones((LENGTH, LENGTH)))
    is_allowed = is_before[None, None] * INPUT_MASK[:, None, None]
    embedding_output = out.embedding_output.numpy()
    expected = probabilities_by_numpy(model, 0, embedding_output, is_allowed)
    np.testing.assert_allclose(out.all_attention_probabilities[0], expected, atol=1e-6)

    bias = attention_bias(INPUT_MASK, direction="left_to_right")
    np.testing.assert_array_equal(bias == 0, is_allowed == 1)
    assert bias.numpy().max() == 0
    assert bias.numpy().min() == 2 * MASKED


@pytest.mark.parametrize("first_token_only", [False, True])
def test_the_last_token_is_pooled(first_token_only):
    model = make_model(BertModel)
    out = model(draw_ids(), INPUT_MASK, first_token_only=first_token_only)
    whole = model(draw_ids(), INPUT_MASK, first_token_only=False)
    rows = [0, 1, 2]
    last_tokens = [11, 6, 0]
    last = whole.sequence_output.numpy()[rows, last_tokens]
    dense = model.pooler.dense
    expected = np.tanh(last @ dense.kernel.numpy() + dense.bias.numpy())
    np.testing.assert_allclose(out.pooled_output, expected, atol=1e-5)

    # With `first_token_only`, the sequence has the last token alone.
    places = 0 if first_token_only else last_tokens
    sequence_output = out.sequence_output.numpy()
    np.testing.assert_allclose(sequence_output[rows, places], last, atol=1e-5)


def test_a_classifier_reads_the_whole_text():
    model = make_model(BertClassifier, 2)
    words = draw_ids()
    before = model({"input_ids": words, "input_mask": INPUT_MASK}).numpy()
    for row, length in enumerate((12, 7)):
        for place in (0, length // 2, length - 1):
            changed = replace_words(words, (row, place))
            after = model({"input_ids": changed, "input_mask": INPUT_MASK}).numpy()
            assert np.abs(after[row] - before[row]).max() > 1e-4


def test_other_directions_are_refused_and_hugging_face_has_none(tmp_path):
    upward = BertConfig.from_dict(FIELDS | {"attention_direction": "up"})
    message = "attention_direction must be bidirectional or left_to_right, got 'up'"
    with pytest.raises(InputError, match=message):
        BertModel(upward)
    message = "attention_direction: is left_to_right, which Hugging Face's BERT"
    with pytest.raises(InputError, match=message):
        make_model(BertModel).save_pretrained(str(tmp_path / "hf"), "huggingface")


def test_a_model_keeps_its_direction_in_its_folder(tmp_path, caplog):
    model = make_model(BertTagger, 3)
    folder = str(tmp_path / "saved")
    model.save_pretrained(folder)
    assert "the original BERT does not know it" in caplog.text
    loaded = BertTagger.from_pretrained(folder)
    assert loaded.config.direction == "left_to_right"
    features = {"input_ids": draw_ids(), "input_mask": INPUT_MASK}
    np.testing.assert_array_equal(loaded(features), model(features))
    assert "attention_direction" not in BertConfig.from_dict(FIELDS).to_dict()


def test_a_fine_tuning_keeps_the_direction_of_its_model(tmp_path):
    """The tags that the run predicts do not depend on later words."""
    options = fine_tuning_runs.prepared(tmp_path, "tagging", train=8)  # two updates
    edit_json(tmp_path / "model/bert_config.json", attention_direction="left_to_right")
    # Two sentences each have the same six first words.
    draws = np.random.default_rng(2)
    beginnings = draws.choice(fine_tuning_runs.WORDS, (20, 6))
    ends = draws.choice(fine_tuning_runs.WORDS, (40, 4))
    sentences = np.concatenate([np.repeat(beginnings, 2, axis=0), ends], axis=1)
    blocks = ["".join(f"{word} O\n" for word in sentence) for sentence in sentences]
    (tmp_path / "test.conll").write_text("\n".join(blocks))
    model_flags = {
        "model": str(tmp_path / "model"),
        "vocab_file": None,
        "bert_config_file": None,
        "init_checkpoint": None,
    }
    out = tmp_path / "out"
    fine_tuning_runs.run("tagging", options, out, do_train=True, do_predict=True, **model_flags)

    predictions = (out / "predictions.conll").read_text().strip("\n")
    rows = []
    for block in predictions.split("\n\n"):
        rows.append([line.split()[-1] for line in block.splitlines()])
    tags = np.array(rows)
    assert tags.shape == sentences.shape
    assert len(set(tags[:, :6].ravel())) > 1
    np.testing.assert_array_equal(tags[::2, :6], tags[1::2, :6])
    model = BertTagger.from_pretrained(str(out))
    assert model.config.direction == "left_to_right"
