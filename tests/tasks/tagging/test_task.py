import numpy as np
import pytest

from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.data.tables import ConllFile, Sentence
from official_bert.data.tag_schemes import IOB2, convert_chunks
from official_bert.io.errors import InputError
from official_bert.tasks.base import DataFiles
from official_bert.tasks.tagging.task import TaggingSettings, TaggingTask
from official_bert.tasks.tagging.windows import EncodedWords
from tests.tasks.classification.test_task import FixedModel

TASK = TaggingTask(["O", "B-X", "I-X"])
LOGITS = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
# [CLS] and pieces that go on with a word carry no label; the second window has one word and
# padding.
BATCH = {
    "label_ids": np.int32(
        [
            [0, 1, 0, 2],
            [0, 0, 0, 0],
        ]
    ),
    "label_mask": np.int32(
        [
            [0, 1, 0, 1],
            [0, 1, 0, 0],
        ]
    ),
}


def compute_cross_entropies():
    exponents = np.exp(LOGITS)
    softmax = exponents / exponents.sum(-1, keepdims=True)
    label_ids = BATCH["label_ids"][..., None]
    label_probabilities = np.take_along_axis(softmax, label_ids, -1)
    return -np.log(label_probabilities[..., 0])


def encode_two_words(sentences: list[Sentence], scheme: str = "IOB2") -> EncodedWords:
    """Sentences of two words each, in windows of [CLS], a piece for each word and [SEP].

    The targets are the first tag and the second one, then the second tag and the third one.
    """
    source = ConllFile("here", sentences, scheme, False)
    targets = [[0, 2, 3, 0], [0, 1, 2, 0]]
    targets = targets[: len(sentences)]
    pieces = [([9] * 4, 4)] * len(sentences)
    return EncodedWords(source, ModelInputs(pieces), RaggedRows(targets))


def test_only_labelled_pieces_count():
    losses = np.asarray(TASK.losses(FixedModel(LOGITS), BATCH))
    expected = compute_cross_entropies().ravel()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    weights = [0, 1, 0, 1, 0, 1, 0, 0]
    np.testing.assert_array_equal(TASK.weights(BATCH), weights)


def test_outputs_are_a_tag_for_each_piece_and_the_mean_loss_of_the_words():
    outputs = TASK.outputs(FixedModel(LOGITS), BATCH)
    np.testing.assert_array_equal(outputs["tags"], LOGITS.argmax(-1))
    first, second = compute_cross_entropies()
    losses = [
        (first[1] + first[3]) / 2,
        second[1],
    ]
    np.testing.assert_allclose(outputs["loss"], losses, rtol=1e-5)
    np.testing.assert_array_equal(outputs["loss_weight"], [2.0, 1.0])


def test_metrics_are_those_of_the_files_sentences():
    sentences = [
        Sentence(1, 0, [["a", "B-X"], ["b", "I-X"]], ["B-X", "I-X"]),
        Sentence(4, 0, [["c", "O"], ["d", "B-X"]], ["O", "B-X"]),
    ]
    encoded = encode_two_words(sentences)
    # The second sentence's entity begins a word too early; what [CLS] and [SEP] get does not
    # matter.
    outputs = {"tags": np.int32([[1, 1, 2, 1], [2, 1, 2, 2]])}
    predictions = TASK.predictions(encoded, outputs)
    assert predictions == [["B-X", "I-X"], ["B-X", "I-X"]]
    metrics = TASK.metrics(encoded, outputs)
    assert metrics["eval_precision"] == 0.5
    assert metrics["eval_recall"] == 0.5
    assert metrics["eval_f1"] == 0.5
    assert metrics["eval_accuracy"] == 0.5
    assert metrics["eval_f1_X"] == 0.5


@pytest.mark.parametrize(
    ("scheme", "written", "predicted", "accuracy"),
    [
        pytest.param(
            "IOB1",
            ["I-X", "I-X"],
            [0, 1],  # against O I-X
            1 / 2,
            id="an entity begins with I in IOB1",
        ),
        pytest.param(
            "IOB2",
            ["B-X", "I-X"],
            [0, 1],  # against O B-X
            0.0,
            id="an entity begins with B in IOB2",
        ),
        pytest.param(
            "IOB2",
            ["I-X", "B-X"],
            [1, 1],
            1 / 2,
            id="an odd beginning is compared as it is written",
        ),
    ],
)
def test_the_accuracy_is_that_of_the_tags_as_predictions_conll_has_them(
    scheme, written, predicted, accuracy
):
    first, second = written
    sentence = Sentence(1, 0, [["a", first], ["b", second]], convert_chunks(written, IOB2))
    encoded = encode_two_words([sentence], scheme)
    outputs = {"tags": np.int32([[0, *predicted, 0]])}
    metrics = TASK.metrics(encoded, outputs)
    assert metrics["eval_accuracy"] == accuracy


def task_with(**settings) -> TaggingTask:
    """The task of settings, without a processor."""
    return TaggingTask.from_settings(None, TaggingSettings.from_values(settings))


def test_entities_without_types():
    sentence = Sentence(1, 0, [["a", "B"], ["b", "I"]], ["B", "I"])
    encoded = encode_two_words([sentence])
    task = task_with(checkpoint_labels=["O", "B", "I"])
    outputs = {"tags": np.int32([[0, 1, 2, 0]])}
    metrics = task.metrics(encoded, outputs)
    assert metrics["eval_f1"] == 1
    assert metrics["eval_f1__"] == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param(
            ["O", "B-X", "O"],
            "--labels=O,B-X,O: names a tag twice",
            id="a repeated tag",
        ),
        pytest.param(
            ["O", "S-X"],
            r"S-X: no tags \(tags are O, B-type and I-type, or B and I",
            id="a tag of another scheme",
        ),
    ],
)
def test_labels_that_are_no_tags(labels, message):
    with pytest.raises(InputError, match=message):
        task_with(labels=labels)


def test_predictions_of_types_with_blanks_are_refused_before_they_are_written(tmp_path):
    """A model of Hugging Face may have such types, and Predictor can say them."""
    (tmp_path / "test.conll").write_text("the\ncat\n")
    task = task_with(checkpoint_labels=["O", "B-Body Part", "I-Body Part"])
    files = DataFiles(str(tmp_path))
    message = r"'B-Body Part': the tag has a blank, .* columns of predictions.conll"
    with pytest.raises(InputError, match=message):
        task.read(files, "test")
