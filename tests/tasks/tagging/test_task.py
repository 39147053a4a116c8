import numpy as np
import pytest

from official_bert.data.model_inputs import ModelInputs, RaggedRows
from official_bert.data.tables import ConllFile, Sentence, to_iob2
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
    "label_ids": np.int32([[0, 1, 0, 2], [0, 0, 0, 0]]),
    "label_mask": np.int32([[0, 1, 0, 1], [0, 1, 0, 0]]),
}


def cross_entropies():
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(softmax, BATCH["label_ids"][..., None], -1)[..., 0])


def test_only_labelled_pieces_count():
    losses = np.asarray(TASK.losses(FixedModel(LOGITS), BATCH))
    np.testing.assert_allclose(losses, cross_entropies().ravel(), rtol=1e-5)
    np.testing.assert_array_equal(TASK.weights(BATCH), [0, 1, 0, 1, 0, 1, 0, 0])


def test_outputs_are_a_tag_for_each_piece_and_the_mean_loss_of_the_words():
    outputs = TASK.outputs(FixedModel(LOGITS), BATCH)
    np.testing.assert_array_equal(outputs["tags"], LOGITS.argmax(-1))
    each = cross_entropies()
    np.testing.assert_allclose(
        outputs["loss"], [(each[0, 1] + each[0, 3]) / 2, each[1, 1]], rtol=1e-5
    )
    np.testing.assert_array_equal(outputs["loss_weight"], [2.0, 1.0])


def test_metrics_are_those_of_the_files_sentences():
    sentences = [
        Sentence(1, 0, [["a", "B-X"], ["b", "I-X"]], ["B-X", "I-X"]),
        Sentence(4, 0, [["c", "O"], ["d", "B-X"]], ["O", "B-X"]),
    ]
    targets = [[0, 2, 3, 0], [0, 1, 2, 0]]
    source = ConllFile("here", sentences, "IOB2", False)
    encoded = EncodedWords(source, ModelInputs(([9] * 4, 4) for _ in targets), RaggedRows(targets))
    # The second sentence's entity begins a word too early; what [CLS] and [SEP] get does not
    # matter.
    outputs = {"tags": np.int32([[1, 1, 2, 1], [2, 1, 2, 2]])}
    assert TASK.predictions(encoded, outputs) == [["B-X", "I-X"], ["B-X", "I-X"]]
    expected = {"eval_precision": 0.5, "eval_recall": 0.5, "eval_f1": 0.5, "eval_accuracy": 0.5}
    metrics = TASK.metrics(encoded, outputs)
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["eval_f1_X"] == 0.5


@pytest.mark.parametrize(
    ("scheme", "written", "predicted", "accuracy"),
    [
        ("IOB1", ["I-X", "I-X"], [0, 1], 1 / 2),  # against O I-X
        ("IOB2", ["B-X", "I-X"], [0, 1], 0.0),  # against O B-X
        ("IOB2", ["I-X", "B-X"], [1, 1], 1 / 2),  # an odd beginning is compared as it is written
    ],
)
def test_the_accuracy_is_that_of_the_tags_as_predictions_conll_has_them(
    scheme, written, predicted, accuracy
):
    sentence = Sentence(1, 0, [["a", written[0]], ["b", written[1]]], to_iob2(written))
    source = ConllFile("here", [sentence], scheme, False)
    encoded = EncodedWords(source, ModelInputs([([9] * 4, 4)]), RaggedRows([[0, 2, 3, 0]]))
    metrics = TASK.metrics(encoded, {"tags": np.int32([[0, *predicted, 0]])})
    assert metrics["eval_accuracy"] == accuracy


def test_entities_without_types():
    sentence = Sentence(1, 0, [["a", "B"], ["b", "I"]], ["B", "I"])
    encoded = EncodedWords(
        ConllFile("here", [sentence], "IOB2", False),
        ModelInputs([([9] * 4, 4)]),
        RaggedRows([[0, 2, 3, 0]]),
    )
    task = TaggingTask.from_settings(
        None, TaggingSettings.from_values({"checkpoint_labels": ["O", "B", "I"]})
    )
    metrics = task.metrics(encoded, {"tags": np.int32([[0, 1, 2, 0]])})
    assert (metrics["eval_f1"], metrics["eval_f1__"]) == (1, 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["O", "B-X", "O"], "--labels=O,B-X,O: names a tag twice"),
        (["O", "S-X"], r"S-X: no tags \(tags are O, B-type and I-type, or B and I"),
    ],
)
def test_labels_that_are_no_tags(labels, message):
    with pytest.raises(InputError, match=message):
        TaggingTask.from_settings(None, TaggingSettings.from_values({"labels": labels}))


def test_predictions_of_types_with_blanks_are_refused_before_they_are_written(tmp_path):
    """A model of Hugging Face may have such types, and Predictor can say them."""
    (tmp_path / "test.conll").write_text("the\ncat\n")
    task = TaggingTask.from_settings(
        None,
        TaggingSettings.from_values({"checkpoint_labels": ["O", "B-Body Part", "I-Body Part"]}),
    )
    with pytest.raises(
        InputError, match=r"'B-Body Part': the tag has a blank, .* columns of predictions.conll"
    ):
        task.read(DataFiles(str(tmp_path)), "test")
