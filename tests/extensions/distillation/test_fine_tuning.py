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
    soft_teacher_logits = teacher_logits / TEMPERATURE
    soft_logits = logits / TEMPERATURE
    return TEMPERATURE**2 * kl_divergence(soft_teacher_logits, soft_logits)


def pair_with_zeros(logits):
    """Return the logits of two classes for each label: x and 0."""
    zeros = np.zeros_like(logits)
    return np.stack([logits, zeros], axis=-1)


def binary_divergence(teacher_logits, logits):
    """Compute the mean over the labels, each of which has two classes with the logits x and 0."""
    teacher_pairs = pair_with_zeros(teacher_logits)
    pairs = pair_with_zeros(logits)
    return scaled_divergence(teacher_pairs, pairs).mean(-1)


def squared_difference(teacher_scores, scores):
    return (teacher_scores - scores)[:, 0] ** 2


def tag_divergence(teacher_logits, logits):
    return scaled_divergence(teacher_logits, logits).ravel()


def span_divergence(teacher_logits, logits):
    starts = scaled_divergence(teacher_logits[..., 0], logits[..., 0])
    ends = scaled_divergence(teacher_logits[..., 1], logits[..., 1])
    return (starts + ends) / 2


MULTI_LABEL = {
    "label_type": "multi",
    "labels": ["a", "b", "c"],
}
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
    logits = np.float32(generator.normal(0, 4, shape))
    teacher_logits = np.float32(generator.normal(0, 4, shape))
    task = registry.make_task(name, settings)
    soft_losses = find_soft_losses(task)

    losses = soft_losses(logits, teacher_logits, TEMPERATURE)

    expected = compute_losses(teacher_logits, logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    equal_losses = soft_losses(teacher_logits, teacher_logits, TEMPERATURE)
    assert np.abs(equal_losses).max() < 1e-5


def test_both_losses_are_of_one_call_of_the_model_and_have_the_same_weights():
    outputs = np.float32(DRAWS.normal(size=(4, 2)))
    hard = np.float32(DRAWS.random(4))
    soft = np.float32(DRAWS.random(4))
    weights = np.float32(DRAWS.random(4))
    calls = []

    def model(features, training, dropout_seed):
        calls.append(features)
        return outputs[:, 0], outputs[:, 1]

    def losses(model, features):
        stacked = np.stack(model(features), axis=-1)
        np.testing.assert_array_equal(stacked, outputs)
        return hard

    class Outside:
        """A task of another package, with a method of its own."""

        @staticmethod
        def soft_losses(stacked, taught, temperature):
            assert temperature == TEMPERATURE
            np.testing.assert_array_equal(stacked, outputs)
            return soft * taught

    def get_weights(features):
        return features["w"]

    objective = TaskObjective(model, losses, get_weights)
    teacher_outputs = np.float32([1, 2, 3, 4])
    features = {"w": weights, TEACHER_OUTPUTS: teacher_outputs}
    totals = {"weight": 5.0}
    flags = DistillationOptions(
        distillation_weight=0.25,
        distillation_temperature=TEMPERATURE,
    )

    distilled = fine_tuning.distill(objective, Outside(), flags)
    loss, _ = distilled.loss(features, totals, None)

    expected = 0.75 * hard + 0.25 * soft * teacher_outputs
    weighted_sum = (weights * expected).sum()
    assert float(loss) == pytest.approx(weighted_sum / 5.0, rel=1e-6)
    assert calls == [{"w": weights}]

    hard_loss, _ = objective.loss(features, totals, None)
    weighted_sum = (weights * hard).sum()
    assert float(hard_loss) == pytest.approx(weighted_sum / 5, rel=1e-6)


@pytest.fixture
def classifier(tmp_path_factory, tmp_path) -> SharedRun:
    """A shared run of classification, whose output is a copy that a test may change."""
    run = shared_run(tmp_path_factory, "classification")
    copy = shutil.copytree(
        run.output_dir,
        tmp_path / "teacher",
        copy_function=shutil.copyfile,
    )
    return run._replace(output_dir=copy)


def train_student(family: str, run: SharedRun, folder: pathlib.Path, **changes) -> pathlib.Path:
    """Train a student in a folder by the model of a shared run as the teacher.

    Returns:
        The folder.
    """
    flags = {
        "teacher": str(run.output_dir),
        "distillation_weight": 1.0,
        "learning_rate": 1e-6,
    }
    flags |= changes
    fine_tuning_runs.run(family, run.options, folder, do_train=True, **flags)
    return folder


def loss_by_step(folder: pathlib.Path) -> np.ndarray:
    losses = scalars(folder, "loss")
    steps = range(1, len(losses) + 1)
    assert list(losses) == list(steps)
    return np.array([losses[step] for step in steps])


@pytest.mark.parametrize(
    "family",
    ["squad", *in_test_long("tagging", "classification", "regression", "multi-label", "choice")],
)
def test_a_student_that_is_its_teacher_has_nothing_to_learn(tmp_path_factory, tmp_path, family):
    """With examples of very different lengths in another order, so that each has its own
    teacher's outputs.
    """
    run = shared_run(tmp_path_factory, family)
    train_student(
        family,
        run,
        tmp_path,
        init_checkpoint=str(run.output_dir),
        length_aware_batches=True,
    )
    losses = loss_by_step(tmp_path)
    assert abs(losses).max() < 1e-5


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
    losses = loss_by_step(half)
    expected = 0.5 * loss_by_step(plain)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)

    # The folder of a student is that of any training.
    assert list_files(half) == list_files(plain)
    half_weights = checkpoint_values(latest_checkpoint(str(half)))
    plain_weights = checkpoint_values(latest_checkpoint(str(plain)))
    assert half_weights.keys() == plain_weights.keys()


def list_files(folder: pathlib.Path) -> set[str]:
    """Return the names of the files of a training but those for TensorBoard."""
    names = {path.name for path in folder.iterdir()}
    return {name for name in names if "tfevents" not in name}


def assert_learns(student: pathlib.Path):
    losses = loss_by_step(student)
    assert losses[0] > 2e-3
    assert losses[4] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "family",
    in_test_long("tagging", "squad", "regression", "multi-label", "choice"),
)
def test_a_student_learns_what_its_teacher_computes(tmp_path_factory, tmp_path, family):
    """The test of accumulation has the same for classification."""
    run = shared_run(tmp_path_factory, family)
    student = train_student(family, run, tmp_path, learning_rate=1e-3)
    assert_learns(student)


def test_the_teacher_is_asked_without_dropout_in_bfloat16_if_the_run_is(
    classifier, tmp_path, monkeypatch
):
    edit_json(classifier.output_dir / "bert_config.json", hidden_dropout_prob=0.5)
    build = teacher.build
    teachers = []
    outputs = []

    def record_teacher(*args):
        teachers.append(build(*args))
        return teachers[-1]

    def record_outputs(plugin, trainer):
        outputs.append(plugin._teacher_outputs)

    def train(self, *sets):
        """Do not train, but call what comes after a training."""
        self._plugin.finish(self.trainer)

    monkeypatch.setattr(teacher, "build", record_teacher)
    monkeypatch.setattr(fine_tuning.FineTuningPlugin, "finish", record_outputs)
    monkeypatch.setattr(finetuner.Finetuner, "train", train)

    train_student("classification", classifier, tmp_path / "one", dtype="float32")
    train_student("classification", classifier, tmp_path / "again", dtype="float32")
    train_student("classification", classifier, tmp_path / "half", dtype="bfloat16")

    models = [opened.model for opened in teachers]
    dtypes = [model.dtype_policy.compute_dtype for model in models]
    assert dtypes == ["float32", "float32", "bfloat16"]
    assert not any(model.trainable_variables for model in models)

    one, again, half = outputs
    np.testing.assert_array_equal(one, again)
    difference = abs(half - one).max()
    assert 0 < difference < 0.1
    assert one.shape == (fine_tuning_runs.SETS["train"], 3)


def read_teacher_hash(folder: pathlib.Path) -> str:
    """Read the hash of the teacher's weights from the log of the last training in a folder."""
    last_training = run_log.trainings(str(folder))[-1]
    return last_training["teacher_sha256"]


def test_accumulation_and_a_resumed_run_have_the_numbers_of_one(tmp_path_factory, tmp_path):
    run = shared_run(tmp_path_factory, "classification")
    flags = {
        "learning_rate": 1e-3,
        "save_checkpoints_steps": 2,
        "keep_checkpoint_max": 0,
    }
    whole_dir = train_student("classification", run, tmp_path / "whole", **flags)
    assert_learns(whole_dir)
    whole = checkpoint_values(whole_dir / "model.ckpt-5")

    parts_dir = train_student(
        "classification",
        run,
        tmp_path / "parts",
        **flags,
        num_accumulation_steps=2,
    )
    parts = checkpoint_values(parts_dir / "model.ckpt-5")
    assert_close(parts, whole, weights=5e-6, first_moments=1e-6)

    resumed_dir = rewind(whole_dir, tmp_path / "resumed", step=2)
    train_student("classification", run, resumed_dir, **flags)
    resumed = checkpoint_values(resumed_dir / "model.ckpt-5")
    training_state.assert_equal(resumed, whole)
    assert read_teacher_hash(resumed_dir) == read_teacher_hash(whole_dir)


def test_a_training_that_goes_on_with_other_weights_of_its_teacher_is_warned_of(tmp_path, caplog):
    model = BertClassifier(BertConfig(8, 4, 1, 1, 4), num_outputs=2)
    zeros = np.zeros((1, 3), np.int32)
    model(dict.fromkeys(ENCODER_INPUTS, zeros))
    weight = model.weights[0]
    initial_value = weight.numpy()
    opened = TrainedModel(
        None,
        task=None,
        model=model,
        config=model.config,
        tokenizer=None,
        checkpoint_metadata={},
    )

    def metadata():
        return teacher.teacher_metadata("t", str(tmp_path), opened)

    first = metadata()
    start = {"num_updates": 5, "first_step": 0}
    run_log.write(str(tmp_path), run_log.START, start | first)

    weight.assign(initial_value + 1)
    assert metadata() != first
    assert caplog.text == "", "no checkpoint is in the folder, so nothing goes on"

    for name in ("checkpoint", "model.ckpt-2.index"):
        (tmp_path / name).write_text("")
    weight.assign(initial_value)
    assert metadata() == first
    assert caplog.text == "", "the teacher has the weights of the beginning"

    weight.assign(initial_value + 1)
    metadata()
    warning = f"--teacher=t: has other weights than when the training in {tmp_path} began"
    assert warning in caplog.text


def test_a_teacher_of_another_kind_is_refused(classifier, tmp_path):
    trained = classifier.output_dir
    vocabulary_file = trained / "vocab.txt"
    tokenizer_file = trained / "tokenizer_config.json"
    labels_file = trained / "labels.txt"
    record = model_dir.ModelFolder(str(trained)).task()
    refused_dir = tmp_path / "refused"

    def refused(message, **changes):
        with pytest.raises(InputError, match=message):
            train_student("classification", classifier, refused_dir, **changes)
        assert not (refused_dir / "checkpoint").exists()

    def write_record(**changes):
        model_dir.write_record(str(trained), record._replace(**changes))

    refused("--teacher=/nowhere: .*no", teacher="/nowhere")
    refused("--distillation_weight=1.0: has no effect without --teacher", teacher=None)

    vocabulary = vocabulary_file.read_text()
    vocabulary_file.write_text(vocabulary.replace("example7\n", "another\n"))
    refused(
        "--teacher=.*: has another vocabulary than the student; take a student of official-bert "
        "create_student"
    )
    vocabulary_file.write_text(vocabulary)

    edit_json(tokenizer_file, do_lower_case=False)
    refused("has another do_lower_case or strip_accents than the student")
    edit_json(tokenizer_file, do_lower_case=True)

    labels_file.write_text("b\na\nc\n")
    write_record(labels=None)
    refused("--teacher=.*: its outputs stand for b, a, c, and those of the student for a, b, c")
    labels_file.write_text("a\nb\nc\n")

    multi_label = {"label_type": "multi"}
    write_record(settings=record.settings | multi_label)
    refused("was trained on tsv of --label_type=multi, not on tsv")

    write_record(task_name="CoLA", settings={}, labels=None)
    labels_file.unlink()
    refused("--teacher=")

    refused(
        "--max_seq_length=600",
        teacher=None,
        distillation_weight=0.5,
        max_seq_length=600,
    )


def test_a_task_without_a_loss_for_a_teacher_says_so():
    pretraining = registry.make_task("pretraining", {})
    message = "--teacher: PretrainingTask has no method soft_losses; leave the flag out"
    with pytest.raises(InputError, match=message):
        find_soft_losses(pretraining)

    classification = registry.make_task("CoLA", {})
    options = DistillationOptions()
    message = "--teacher: the objective of ClassificationTask is no TaskObjective"
    with pytest.raises(InputError, match=message):
        fine_tuning.distill(object(), classification, options)


def test_equal_scores_can_be_trained_on_with_a_teacher(tmp_path_factory, tmp_path):
    """The teacher's answers differ although the labels do not."""
    run = shared_run(tmp_path_factory, "regression")
    train_file = tmp_path / "train.tsv"
    train_file.write_text("text\tlabel\nthe cat sat\t1.5\na sunny day\t1.5\n")
    data = {"train_file": str(train_file), "train_batch_size": 2}
    folder = tmp_path / "out"
    message = r"all examples have the score 1\.5, so that there is"
    with pytest.raises(InputError, match=message):
        train_student(
            "regression",
            run,
            folder,
            **data,
            teacher=None,
            distillation_weight=0.5,
        )

    train_student("regression", run, folder, **data)
    assert len(loss_by_step(folder)) == 1
