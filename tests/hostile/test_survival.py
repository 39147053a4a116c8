"""What a training survives: corrupt checkpoints and records, a loss that is not a number, a disk
that is full.
"""

import hashlib
import pathlib
import shutil

import pytest

from official_bert.checkpoints import CheckpointManager
from official_bert.checkpoints.folder import write_state
from official_bert.data.records.framing import frame, read_records
from official_bert.features import pretraining_features
from official_bert.training import run_log
from tests import training_state
from tests.commands.pretraining_run import PREDICTIONS, SEQ, checkpoint_values, write_records
from tests.hostile.commands import classifier, pretraining
from tests.scripts import end_of
from tests.shared import largest_file

SAVING = ("--save_checkpoints_steps=2", "--keep_checkpoint_max=0")
TRAINING = ("--do_train", *SAVING, "--log_every_steps=1", "--learning_rate=1e-3")
STEPS = (0, 2, 4, 6)
DATA = "data-00000-of-00001"


@pytest.fixture(scope="module")
def trained(good_files, tmp_path_factory):
    """A folder with the good files and, in `expected`, a run of 6 updates that nothing
    disturbed.
    """
    folder = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(good_files, folder)
    ended = end_of(*pretraining(folder, *TRAINING))
    assert ended.status == 0, ended.sentence
    (folder / "out").rename(folder / "expected")
    return folder


@pytest.fixture
def run(trained):
    """That folder, with a copy of the run in `out`: the state of the input holds the paths of
    the records.
    """
    shutil.rmtree(trained / "out", ignore_errors=True)
    shutil.copytree(trained / "expected", trained / "out")
    return trained


def damage(path: pathlib.Path, how: str):
    """Damages a file: "flipped" (one of its bits), "half", "empty" or "missing"."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0x10
    if how == "half":
        content = content[:middle]
    elif how == "empty":
        content = b""
    path.write_bytes(content)
    if how == "missing":
        path.unlink()


def go_back_to_step_4(out: pathlib.Path):
    for path in out.glob("*.ckpt-6*"):
        path.unlink()
    write_state(
        str(out),
        [f"model.ckpt-{step}" for step in (0, 2, 4)],
    )


def digests(out: pathlib.Path) -> dict[str, str]:
    """The digests of the files of all checkpoints and of their list."""
    digest_by_name = {}
    for path in (*out.glob("*.ckpt-*"), out / "checkpoint"):
        digest_by_name[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest_by_name


def logged_losses(out: pathlib.Path) -> list[tuple[int, float]]:
    """The step and the loss of each progress line."""
    return [(row["step"], row["loss"]) for row in run_log.read(str(out), run_log.TRAIN)]


def assert_ends_as_expected(folder: pathlib.Path):
    """The same checkpoints with the same bits, the same list and lines of the log as in
    `expected`.
    """
    out = folder / "out"
    expected = folder / "expected"
    for step in STEPS:
        name = f"model.ckpt-{step}"
        values = checkpoint_values(out / name)
        training_state.assert_equal(values, checkpoint_values(expected / name))
    assert (out / "checkpoint").read_text() == (expected / "checkpoint").read_text()
    assert logged_losses(out) == logged_losses(expected)


def assert_ends_at_step_6(folder: pathlib.Path):
    """The same command ends the run as expected, with the input at its place; returns its end."""
    ended = end_of(*pretraining(folder, *TRAINING))
    assert ended.status == 0, ended.sentence
    assert_ends_as_expected(folder)
    training_state.assert_input_is_at(
        folder / "out" / "input.ckpt-6-0",
        [str(folder / "records.tfrecord")],
        pretraining_features(SEQ, PREDICTIONS),
        batch_size=8,
        seed=7,
        num_read=6,
    )
    return ended


@pytest.mark.parametrize(
    ("names", "how", "step"),
    [
        # Nothing of either checkpoint is used.
        pytest.param(
            [f"model.ckpt-6.{DATA}", f"input.ckpt-4-0.{DATA}"],
            "flipped",
            2,
            id="weights of one and input of the other",
        ),
        # The same happens to a fine-tuning's checkpoint below.
        pytest.param(
            ["model.ckpt-6.index"],
            "half",
            4,
            id="half of the index",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [f"model.ckpt-6.{DATA}"],
            "missing",
            4,
            id="no weights",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [f"input.ckpt-6-0.{DATA}"],
            "empty",
            4,
            id="empty state of the input",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["input.ckpt-6-0.index"],
            "flipped",
            4,
            id="index of the input",
            marks=pytest.mark.long,
        ),
    ],
)
def test_training_goes_on_from_the_checkpoint_before_a_corrupt_one(run, names, how, step):
    for name in names:
        damage(run / "out" / name, how)
    ended = assert_ends_at_step_6(run)
    warnings = [line for line in ended.log.splitlines() if "is corrupt" in line]
    end = f"): training resumes from step {step}, that of the older {run}/out/model.ckpt-{step}"
    for name, line in zip(names, warnings, strict=True):
        assert line.startswith(f"{run}/out/{name} is corrupt (")
        assert line.endswith(end)


@pytest.mark.parametrize(
    ("flags", "corrupt", "how"),
    [
        pytest.param(["--do_eval"], [6], "empty", id="evaluation"),
        pytest.param(TRAINING, STEPS, "flipped", id="training"),
    ],
)
def test_where_no_older_checkpoint_is_taken_the_run_ends_and_changes_nothing(
    run, flags, corrupt, how
):
    """What does not train takes none, and a training finds none that is whole."""
    for step in corrupt:
        damage(run / "out" / f"model.ckpt-{step}.{DATA}", how)
    before = digests(run / "out")
    ended = end_of(*pretraining(run, *flags))
    assert ended.status == 1
    assert f"{run}/out/model.ckpt-6: " in ended.sentence
    assert "copy its files again or name another checkpoint" in ended.sentence
    assert digests(run / "out") == before


def test_evaluations_of_lost_steps_are_made_again(folder):
    """Fine-tuning with evaluations during the training: the history and the best checkpoint are
    as before.
    """
    flags = classifier(
        folder,
        *TRAINING,
        "--eval_every_steps=2",
        "--num_train_epochs=3",
        "--random_seed=3",
        "--labels=a,b,c",
    )
    out = folder / "out"
    expected = folder / "expected"
    ended = end_of(*flags)
    assert ended.status == 0, ended.sentence
    shutil.copytree(out, expected)
    damage(out / "model.ckpt-6.index", "half")
    ended = end_of(*flags)
    assert ended.status == 0, ended.sentence
    (line,) = [line for line in ended.log.splitlines() if "is corrupt" in line]
    assert line.startswith(f"{out}/model.ckpt-6.index is corrupt (")
    assert line.endswith(f"): training resumes from step 4, that of the older {out}/model.ckpt-4")
    assert_ends_as_expected(folder)
    history = run_log.read(str(out), run_log.EVALUATION)
    assert history == run_log.read(str(expected), run_log.EVALUATION)
    best_list = (out / "best" / "checkpoint").read_text()
    assert best_list == (expected / "best" / "checkpoint").read_text()


def test_a_loss_that_is_not_a_number_says_where_to_go_on(run):
    """A run that resumes from step 4 with a rate of 2e9: weights of that size give no finite
    loss.
    """
    out = run / "out"
    go_back_to_step_4(out)
    before = digests(out)
    flags = [
        *TRAINING,
        "--learning_rate=2e9",
        "--save_checkpoints_steps=100",
        "--num_train_steps=10",
    ]
    ended = end_of(*pretraining(run, *flags))
    assert ended.status == 1
    assert "the loss is nan between steps 6 and 7" in ended.sentence
    assert (
        f"the last checkpoint is valid: {out}/model.ckpt-4, from which the same command resumes"
        in ended.sentence
    )
    for remedy in (
        "lower --learning_rate",
        "--num_warmup_steps",
        "--optimizer_type=adamw_bias_correction",
        "--init_checkpoint",
    ):
        assert remedy in ended.sentence
    assert digests(out) == before


def test_a_full_disk_keeps_the_checkpoint_before(run, monkeypatch):
    """No file may grow beyond 16 kB while step 6 is saved; afterwards there is room again."""
    real_save = CheckpointManager.save
    out = run / "out"
    go_back_to_step_4(out)
    before = digests(out)

    def save(manager, *arguments):
        with largest_file(16 << 10):
            real_save(manager, *arguments)
            manager.wait()

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "save", save)
        ended = end_of(*pretraining(run, *TRAINING))
    assert ended.status == 1
    for part in (f"{out}/", "ckpt-6", "cannot be written (", "make room"):
        assert part in ended.sentence
    after = digests(out)
    new_names = {name for name in after if name.startswith("input.ckpt-6-")}
    assert {name: after[name] for name in after.keys() - new_names} == before
    assert_ends_at_step_6(run)


def test_a_corrupt_record_ends_the_run_with_its_place(folder):
    path = folder / "records.tfrecord"
    write_records(path, 16)
    records = [frame(data) for _, data in read_records(str(path))]
    offset = sum(map(len, records[:5]))
    content = bytearray(b"".join(records))
    content[offset + 40] ^= 1
    path.write_bytes(content)
    ended = end_of(*pretraining(folder, *TRAINING))
    assert ended.status == 1
    assert (
        f"{path}: record 5 (from 0) is corrupt: its bytes do not fit their checksum (it begins at "
        f"byte {offset}); make the file again with create_pretraining_data.py"
    ) in ended.sentence
