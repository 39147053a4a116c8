"""Tests of --teacher of the fine-tuning scripts: losses against numpy, training and refusals."""

import pathlib
import shutil

import numpy as np
import pytest

from official_bert import BertClassifier, BertConfig, model_dir
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.extensions.distillation import fine_tuning, teacher
from official_bert.extensions.distillation.fine_tuning import TEACHER_OUTPUTS
from official_bert.extensions.distillation.losses import find_soft_losses
from official_bert.extensions.distillation.options import DistillationOptions
from official_bert.features import ENCODER_INPUTS
from official_bert.fine_tuning import finetuner
from official_bert.io.errors import InputError
from official_bert.modeling import heads
from official_bert.serving.export import TrainedModel
from official_bert.tasks import registry
from official_bert.tasks.base import TaskObjective
from official_bert.training import run_log
from tests import fine_tuning_runs, training_state
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.extensions.distillation.test_pretraining import kl_divergence
from tests.fine_tuning_runs import SharedRun, shared_run
from tests.hostile.rows import edit_json
from tests.shared import in_test_long
from tests.training.rewinding import rewind
from tests.training_state import assert_close

TEMPERATURE = 3.0
DRAWS = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _no_dropout_of_heads(monkeypatch):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)


def scaled_divergence(teacher_logits, logits):
    return TEMPERATURE**2 * kl_divergence(teacher_logits / TEMPERATURE, logits / TEMPERATURE)


def binary_divergence(teacher_logits, logits):
    """Compute the mean over the labels, each of which has two classes with the logits x and 0."""
    teacher_pairs = np.stack([teacher_logits, np.zeros_like(teacher_logits)], axis=-1)
    pairs = np.stack([logits, np.zeros_like(logits)], axis=-1)
    return scaled_divergence(teacher_pairs, pairs).mean(-1)


def squared_difference(teacher_scores, scores):
    return (teacher_scores - scores)[:, 0] ** 2


def tag_divergence(teacher_logits, logits):
    return scaled_divergence(teacher_logits, logits).ravel()


def span_divergence(teacher_logits, logits):
    starts = scaled_divergence(teacher_logits[..., 0], logits[..., 0])
    ends = scaled_divergence(teacher_logits[..., 1], logits[..., 1])
    return (starts + ends) / 2


MULTI_LABEL = {"label_type": "multi", "labels": ["a", "b", "c"]}
TAGS = {"labels": ["O", "B-X", "I-X"]}


@pytest.mark.parametrize(
    ("name", "settings", "shape", "compute_losses"),
    [
        pytest.param("CoLA", {}, (5, 2), scaled_divergence, id="classification"),
        pytest.param("text", MULTI_LABEL, (5, 3), binary_divergence, id="several labels"),
        pytest.param("STS-B", {}, (5, 1), squared_difference, id="regression"),
        pytest.param("swag", {}, (5, 4), scaled_divergence, id="multiple choice"),
        pytest.param("ner", TAGS, (5, 7, 3), tag_divergence, id="tagging"),
        pytest.param("squad", {}, (5, 7, 2), span_divergence, id="question answering"),
    ],
)
def test_each_kind_of_task_has_the_loss_of_its_formula(name, settings, shape, compute_losses):
    generator = np.random.default_rng(4)
    logits = generator.normal(0, 4, shape).astype(np.float32)
    teacher_logits = generator.normal(0, 4, shape).astype(np.float32)
    soft_losses = find_soft_losses(registry.make_task(name, settings))

    losses = soft_losses(logits, teacher_logits, TEMPERATURE).numpy()

    expected = compute_losses(teacher_logits, logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    equal_losses = soft_losses(teacher_logits, teacher_logits, TEMPERATURE).numpy()
    assert abs(equal_losses).max() < 1e-5


def test_both_losses_are_of_one_call_of_the_model_and_have_the_same_weights():
    outputs = DRAWS.normal(size=(4, 2)).astype(np.float32)
    hard, soft, weights = (DRAWS.random(4).astype(np.float32) for _ in range(3))
    calls = []

    def model(features, training, dropout_seed):
        calls.append(features)
        return outputs[:, 0], outputs[:, 1]

    def losses(model, features):
        np.testing.assert_array_equal(np.stack(model(features), axis=-1), outputs)
        return hard

    class Outside:
        """A task of another package, with a method of its own."""

        @staticmethod
        def soft_losses(stacked, taught, temperature):
            assert temperature == TEMPERATURE
            np.testing.assert_array_equal(stacked, outputs)
            return soft * taught

    objective = TaskObjective(model, losses, lambda features: features["w"])
    features = {"w": weights, TEACHER_OUTPUTS: np.float32([1, 2, 3, 4])}
    flags = DistillationOptions(distillation_weight=0.25, distillation_temperature=TEMPERATURE)
    distilled = fine_tuning.distill(objective, Outside(), flags)
    loss, _ = distilled.loss(features, {"weight": 5.0}, None)
    expected = (weights * (0.75 * hard + 0.25 * soft * [1, 2, 3, 4])).sum() / 5.0
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert calls == [{"w": weights}]
    assert float(objective.loss(features, {"weight": 5.0}, None)[0]) == pytest.approx(
        (weights * hard).sum() / 5, rel=1e-6
    )


@pytest.fixture
def classifier(tmp_path_factory, tmp_path) -> SharedRun:
    """A shared run of classification, whose output is a copy that a test may change."""
    run = shared_run(tmp_path_factory, "classification")
    copy = shutil.copytree(run.output_dir, tmp_path / "teacher", copy_function=shutil.copyfile)
    return run._replace(output_dir=copy)


def train_student(family: str, run: SharedRun, folder: pathlib.Path, **changes) -> pathlib.Path:
    """Trains a student in a folder by the model of a shared run as the teacher; returns the
    folder.
    """
    flags = {"teacher": str(run.output_dir), "distillation_weight": 1.0, "learning_rate": 1e-6}
    fine_tuning_runs.run(family, run.options, folder, do_train=True, **flags | changes)
    return folder


def loss_by_step(folder: pathlib.Path) -> np.ndarray:
    losses = scalars(folder, "loss")
    assert list(losses) == list(range(1, len(losses) + 1))
    return np.array(list(losses.values()))


@pytest.mark.parametrize(
    "family",
    ["squad", *in_test_long("tagging", "classification", "regression", "multi-label", "choice")],
)
def test_a_student_that_is_its_teacher_has_nothing_to_learn(tmp_path_factory, tmp_path, family):
    """With examples of very different lengths in another order, so that each has its own
    teacher's outputs.
    """
    run = shared_run(tmp_path_factory, family)
    folder = train_student(
        family, run, tmp_path, init_checkpoint=str(run.output_dir), length_aware_batches=True
    )
    assert abs(loss_by_step(folder)).max() < 1e-5


@pytest.mark.parametrize(
    "family",
    ["tagging", *in_test_long("squad", "classification", "regression", "multi-label", "choice")],
)
def test_the_labels_keep_their_share_of_the_loss(tmp_path_factory, tmp_path, family):
    """The student is its teacher, whose share of the loss is 0; the batches are those of the
    test above.
    """
    run = shared_run(tmp_path_factory, family)
    flags = {
        "init_checkpoint": str(run.output_dir),
        "length_aware_batches": True,
        "distillation_weight": 0.5,
    }
    half = train_student(family, run, tmp_path / "half", **flags)
    plain = train_student(family, run, tmp_path / "plain", **flags, teacher=None)
    np.testing.assert_allclose(loss_by_step(half), 0.5 * loss_by_step(plain), rtol=0, atol=1e-5)
    # The folder of a student is that of any training.
    names = [
        {path.name for path in one.iterdir() if "tfevents" not in path.name}
        for one in (half, plain)
    ]
    assert names[0] == names[1]
    checkpoints = [checkpoint_values(latest_checkpoint(str(one))) for one in (half, plain)]
    assert checkpoints[0].keys() == checkpoints[1].keys()


def assert_learns(student: pathlib.Path):
    losses = loss_by_step(student)
    assert losses[0] > 2e-3
    assert losses[4] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "family", in_test_long("tagging", "squad", "regression", "multi-label", "choice")
)
def test_a_student_learns_what_its_teacher_computes(tmp_path_factory, tmp_path, family):
    """The test of accumulation has the same for classification."""
    run = shared_run(tmp_path_factory, family)
    assert_learns(train_student(family, run, tmp_path, learning_rate=1e-3))


def test_the_teacher_is_asked_without_dropout_in_bfloat16_if_the_run_is(
    classifier, tmp_path, monkeypatch
):
    edit_json(classifier.output_dir / "bert_config.json", hidden_dropout_prob=0.5)
    opened, real = [], teacher.build
    monkeypatch.setattr(teacher, "build", lambda *given: opened.append(real(*given)) or opened[-1])
    outputs, plugin = [], fine_tuning.FineTuningPlugin
    monkeypatch.setattr(
        plugin, "finish", lambda self, trainer: outputs.append(self._teacher_outputs)
    )
    monkeypatch.setattr(
        finetuner.Finetuner, "train", lambda self, *sets: self._plugin.finish(self.trainer)
    )
    for name, dtype in (("one", "float32"), ("again", "float32"), ("half", "bfloat16")):
        train_student("classification", classifier, tmp_path / name, dtype=dtype)
    assert [one.model.dtype_policy.compute_dtype for one in opened] == [
        *["float32"] * 2,
        "bfloat16",
    ]
    assert not any(one.model.trainable_variables for one in opened)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    apart = abs(outputs[2] - outputs[0]).max()
    assert 0 < apart < 0.1
    assert outputs[0].shape == (fine_tuning_runs.SETS["train"], 3)


def test_accumulation_and_a_resumed_run_have_the_numbers_of_one(tmp_path_factory, tmp_path):
    run = shared_run(tmp_path_factory, "classification")
    flags = {"learning_rate": 1e-3, "save_checkpoints_steps": 2, "keep_checkpoint_max": 0}
    whole = train_student("classification", run, tmp_path / "whole", **flags)
    assert_learns(whole)
    parts = train_student(
        "classification", run, tmp_path / "parts", **flags, num_accumulation_steps=2
    )
    weights = [checkpoint_values(one / "model.ckpt-5") for one in (parts, whole)]
    assert_close(*weights, weights=5e-6, first_moments=1e-6)
    resumed = train_student(
        "classification", run, rewind(whole, tmp_path / "resumed", step=2), **flags
    )
    training_state.assert_equal(
        checkpoint_values(resumed / "model.ckpt-5"), checkpoint_values(whole / "model.ckpt-5")
    )
    first, second = (
        run_log.trainings(str(folder))[-1]["teacher_sha256"] for folder in (whole, resumed)
    )
    assert first == second


def test_a_training_that_goes_on_with_other_weights_of_its_teacher_is_warned_of(tmp_path, caplog):
    model = BertClassifier(BertConfig(8, 4, 1, 1, 4), num_outputs=2)
    model({name: np.zeros((1, 3), np.int32) for name in ENCODER_INPUTS})
    opened = TrainedModel(
        None, task=None, model=model, config=model.config, tokenizer=None, checkpoint_metadata={}
    )

    def metadata():
        return teacher.teacher_metadata("t", str(tmp_path), opened)

    first, weight = metadata(), model.weights[0].numpy()
    run_log.write(str(tmp_path), run_log.START, {"num_updates": 5, "first_step": 0} | first)
    model.weights[0].assign_add(np.ones_like(model.weights[0]))
    assert metadata() != first
    assert caplog.text == "", "no checkpoint is in the folder, so nothing goes on"
    for name in ("checkpoint", "model.ckpt-2.index"):
        (tmp_path / name).write_text("")
    model.weights[0].assign(weight)
    assert metadata() == first
    assert caplog.text == "", "the teacher has the weights of the beginning"
    model.weights[0].assign_add(np.ones_like(model.weights[0]))
    metadata()
    assert (
        f"--teacher=t: has other weights than when the training in {tmp_path} began" in caplog.text
    )


def test_a_teacher_of_another_kind_is_refused(classifier, tmp_path):
    trained = classifier.output_dir
    record = model_dir.ModelFolder(str(trained)).task()

    def refused(message, **changes):
        with pytest.raises(InputError, match=message):
            train_student("classification", classifier, tmp_path / "refused", **changes)
        assert not (tmp_path / "refused" / "checkpoint").exists()

    refused("--teacher=/nowhere: .*no", teacher="/nowhere")
    refused("--distillation_weight=1.0: has no effect without --teacher", teacher=None)
    vocab = (trained / "vocab.txt").read_text()
    (trained / "vocab.txt").write_text(vocab.replace("example7\n", "another\n"))
    refused(
        "--teacher=.*: has another vocabulary than the student; take a student of official-bert "
        "create_student"
    )
    (trained / "vocab.txt").write_text(vocab)
    edit_json(trained / "tokenizer_config.json", do_lower_case=False)
    refused("has another do_lower_case or strip_accents than the student")
    edit_json(trained / "tokenizer_config.json", do_lower_case=True)
    (trained / "labels.txt").write_text("b\na\nc\n")
    model_dir.write_record(str(trained), record._replace(labels=None))
    refused("--teacher=.*: its outputs stand for b, a, c, and those of the student for a, b, c")
    (trained / "labels.txt").write_text("a\nb\nc\n")
    model_dir.write_record(
        str(trained), record._replace(settings=record.settings | {"label_type": "multi"})
    )
    refused("was trained on tsv of --label_type=multi, not on tsv")
    model_dir.write_record(
        str(trained), record._replace(task_name="CoLA", settings={}, labels=None)
    )
    (trained / "labels.txt").unlink()
    refused("--teacher=")
    refused("--max_seq_length=600", teacher=None, distillation_weight=0.5, max_seq_length=600)


def test_a_task_without_a_loss_for_a_teacher_says_so():
    task = registry.make_task("pretraining", {})
    with pytest.raises(
        InputError,
        match="--teacher: PretrainingTask has no method soft_losses; leave the flag out",
    ):
        find_soft_losses(task)
    with pytest.raises(
        InputError, match="--teacher: the objective of ClassificationTask is no TaskObjective"
    ):
        fine_tuning.distill(object(), registry.make_task("CoLA", {}), DistillationOptions())


def test_equal_scores_can_be_trained_on_with_a_teacher(tmp_path_factory, tmp_path):
    """The teacher's answers differ although the labels do not."""
    run = shared_run(tmp_path_factory, "regression")
    (tmp_path / "train.tsv").write_text("text\tlabel\nthe cat sat\t1.5\na sunny day\t1.5\n")
    data = {"train_file": str(tmp_path / "train.tsv"), "train_batch_size": 2}
    with pytest.raises(InputError, match=r"all examples have the score 1\.5, so that there is"):
        train_student(
            "regression", run, tmp_path / "out", **data, teacher=None, distillation_weight=0.5
        )
    train_student("regression", run, tmp_path / "out", **data)
    assert len(loss_by_step(tmp_path / "out")) == 1
