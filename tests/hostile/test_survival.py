"""What a training survives: damaged checkpoints and records, a loss that is not a number, a disk that is full.

Each test prints what it compared.
"""

import hashlib
import pathlib
import resource
import shutil

import pytest

from official_bert.checkpoints import CheckpointManager
from official_bert.data.records.framing import frame, read_records
from official_bert.features import pretraining_features
from official_bert.training import run_log
from tests import training_state
from tests.commands.pretraining_run import PREDICTIONS, SEQ, checkpoint_values, write_records
from tests.hostile.commands import classifier, pretraining
from tests.scripts import end_of
from tests.shared import in_test_long

TRAINING = (
    "--do_train",
    "--save_checkpoints_steps=2",
    "--keep_checkpoint_max=0",
    "--log_every_steps=1",
    "--learning_rate=1e-3",
)
STEPS = (0, 2, 4, 6)
DATA = "data-00000-of-00001"


@pytest.fixture(scope="module")
def trained(good_files, tmp_path_factory):
    """A folder with the good files and, in `expected`, a run of 6 updates that nothing disturbed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(good_files, folder)
    ended = end_of("run_pretraining.py", *pretraining(folder, *TRAINING))
    assert ended.status == 0, ended.sentence
    (folder / "out").rename(folder / "expected")
    return folder


@pytest.fixture
def run(trained):
    """That folder, with a copy of the run in `out`: the state of the input holds the paths of the records."""
    shutil.rmtree(trained / "out", ignore_errors=True)
    shutil.copytree(trained / "expected", trained / "out")
    return trained


def damage(path: pathlib.Path, how: str):
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 0x10
    if how in ("flipped", "half", "empty"):
        path.write_bytes(content[: {"half": len(content) // 2, "empty": 0}.get(how)])
    else:
        path.unlink()


def digests(out: pathlib.Path) -> dict[str, str]:
    """The digests of the files of all checkpoints and of their list."""
    paths = [*out.glob("*.ckpt-*"), out / "checkpoint"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


def assert_ends_as_expected(folder: pathlib.Path):
    """The same checkpoints with the same bits, the same list and lines of the log as in `expected`."""
    out, expected = folder / "out", folder / "expected"
    for step in STEPS:
        found, whole = (checkpoint_values(each / f"model.ckpt-{step}") for each in (out, expected))
        training_state.assert_equal(found, whole)
        print(f"step {step}: {len(whole)} tensors are equal, bit for bit")
    assert (out / "checkpoint").read_text() == (expected / "checkpoint").read_text()
    logs = [run_log.read(str(each), run_log.TRAIN) for each in (out, expected)]
    losses = [[(row["step"], row["loss"]) for row in log] for log in logs]
    print(f"losses by step: {losses[0]}")
    assert losses[0] == losses[1]


def assert_input_is_at(folder: pathlib.Path, step: int):
    """The state of the input that goes with a step of the pre-training run."""
    files, features = [str(folder / "records.tfrecord")], pretraining_features(SEQ, PREDICTIONS)
    prefix = folder / "out" / f"input.ckpt-{step}-0"
    training_state.assert_input_is_at(prefix, files, features, 8, seed=7, num_read=step)
    print(f"the input at step {step} has read {step} batches")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (f"model.ckpt-6.{DATA}", "flipped"),
        ("model.ckpt-6.index", "half"),
        (f"input.ckpt-6-0.{DATA}", "flipped"),
        *in_test_long(
            (f"model.ckpt-6.{DATA}", "half"),
            (f"model.ckpt-6.{DATA}", "empty"),
            (f"model.ckpt-6.{DATA}", "missing"),
            ("model.ckpt-6.index", "flipped"),
            ("model.ckpt-6.index", "empty"),
            (f"input.ckpt-6-0.{DATA}", "half"),
            (f"input.ckpt-6-0.{DATA}", "empty"),
            (f"input.ckpt-6-0.{DATA}", "missing"),
            ("input.ckpt-6-0.index", "flipped"),
        ),
    ],
)
def test_training_goes_on_from_the_checkpoint_before_a_damaged_one(run, name, how):
    damage(run / "out" / name, how)
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    assert ended.status == 0, ended.sentence
    (warning,) = [line for line in ended.log.splitlines() if "is damaged" in line]
    print(warning)
    assert warning.startswith(f"{run}/out/{name} is damaged (")
    assert warning.endswith(f"): training goes on from step 4, that of the older {run}/out/model.ckpt-4")
    assert_ends_as_expected(run)
    assert_input_is_at(run, 6)


def test_several_damaged_checkpoints_are_passed_over(run):
    """Weights at step 6 and the input at step 4 are damaged: nothing of both is used."""
    damage(run / "out" / f"model.ckpt-6.{DATA}", "flipped")
    damage(run / "out" / f"input.ckpt-4-0.{DATA}", "flipped")
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    assert ended.status == 0, ended.sentence
    warnings = [line for line in ended.log.splitlines() if "is damaged" in line]
    print(*warnings, sep="\n")
    assert [line.partition(" ")[0] for line in warnings] == [
        f"{run}/out/model.ckpt-6.{DATA}",
        f"{run}/out/input.ckpt-4-0.{DATA}",
    ]
    assert all("goes on from step 2" in line for line in warnings)
    assert_ends_as_expected(run)
    assert_input_is_at(run, 6)


def test_what_does_not_train_refuses_a_damaged_checkpoint(run):
    damage(run / "out" / f"model.ckpt-6.{DATA}", "empty")
    before = digests(run / "out")
    ended = end_of("run_pretraining.py", *pretraining(run, "--do_eval"))
    print(ended.sentence)
    assert ended.status == 1
    assert f"{run}/out/model.ckpt-6: " in ended.sentence
    assert "copy its files anew or name another checkpoint" in ended.sentence
    assert digests(run / "out") == before


def test_without_an_older_checkpoint_the_run_ends_and_changes_nothing(run):
    for step in STEPS:
        damage(run / "out" / f"model.ckpt-{step}.{DATA}", "flipped")
    before = digests(run / "out")
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    print(ended.sentence)
    assert ended.status == 1
    assert f"{run}/out/model.ckpt-6: " in ended.sentence
    assert "copy its files anew" in ended.sentence
    assert digests(run / "out") == before


def test_evaluations_of_lost_steps_are_made_again(folder):
    """Fine-tuning with evaluations during the training: the history and the best checkpoint are as before."""
    flags = classifier(folder, *TRAINING, "--eval_every=2", "--num_train_epochs=3", "--random_seed=3", "--labels=a,b,c")
    out, expected = folder / "out", folder / "expected"
    ended = end_of("run_classifier.py", *flags)
    assert ended.status == 0, ended.sentence
    shutil.copytree(out, expected)
    damage(out / f"model.ckpt-6.{DATA}", "half")
    ended = end_of("run_classifier.py", *flags)
    assert ended.status == 0, ended.sentence
    assert "training goes on from step 4" in ended.log
    assert_ends_as_expected(folder)
    history = run_log.read(str(out), run_log.EVALUATION)
    print(history)
    assert history == run_log.read(str(expected), run_log.EVALUATION)
    assert (out / "best" / "checkpoint").read_text() == (expected / "best" / "checkpoint").read_text()


def test_a_loss_that_is_not_a_number_says_where_to_go_on(run):
    """A run that goes on from step 4 with a rate of 2e9: weights of that size give no finite loss."""
    out = run / "out"
    for path in out.glob("*.ckpt-6*"):
        path.unlink()
    names = "".join(f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in (0, 2, 4))
    (out / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-4"\n{names}')
    before, flags = (digests(out), ("--learning_rate=2e9", "--save_checkpoints_steps=100", "--num_train_steps=10"))
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING, *flags))
    assert ended.status == 1
    sentence = ended.sentence
    print(sentence)
    assert "the loss is nan between steps 6 and 7" in sentence
    assert f"the last checkpoint is valid: {out}/model.ckpt-4, from which the same command goes on" in sentence
    for remedy in ("lower --learning_rate", "--num_warmup_steps", "--adam_bias_correction", "--init_checkpoint"):
        assert remedy in sentence
    assert digests(out) == before
    print(f"{len(before)} files of checkpoints are as before")
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    assert ended.status == 0, ended.sentence
    assert_ends_as_expected(run)
    assert_input_is_at(run, 6)


def test_a_full_disk_keeps_the_checkpoint_before(run, monkeypatch):
    """No file may grow beyond 16 kB while step 4 is saved; afterwards there is room again."""
    real, out = CheckpointManager.save, run / "out"
    shutil.rmtree(out)

    def save(self, step, *arguments):
        if step < 4:
            return real(self, step, *arguments)
        before, limits = digests(out), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, limits[1]))
        try:
            return real(self, step, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            left = {name: digest for name, digest in digests(out).items() if not name.startswith("input.ckpt-4-")}
            assert left == before
            print(f"{len(before)} files of checkpoints are as before: {', '.join(before)}")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "save", save)
        ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    print(ended.sentence)
    assert ended.status == 1
    assert f"{out}/" in ended.sentence
    assert "ckpt-4" in ended.sentence
    assert "cannot be written (" in ended.sentence
    assert "make room" in ended.sentence
    ended = end_of("run_pretraining.py", *pretraining(run, *TRAINING))
    assert ended.status == 0, ended.sentence
    assert_ends_as_expected(run)
    assert_input_is_at(run, 6)


def _damaged_records(folder: pathlib.Path) -> int:
    """Writes records.tfrecord of 16 records, of which record 5 is damaged; returns where it begins."""
    write_records(folder / "records.tfrecord", 16)
    records = [frame(data) for _, data in read_records(str(folder / "records.tfrecord"))]
    records[5] = records[5][:40] + bytes([records[5][40] ^ 1]) + records[5][41:]
    (folder / "records.tfrecord").write_bytes(b"".join(records))
    return sum(map(len, records[:5]))


def test_a_damaged_record_ends_the_run_with_its_place(folder):
    offset = _damaged_records(folder)
    ended = end_of("run_pretraining.py", *pretraining(folder, *TRAINING))
    print(ended.sentence)
    assert ended.status == 1
    assert (
        f"{folder}/records.tfrecord: record 5 (from 0) is damaged: its bytes do not fit their checksum (it begins at "
        f"byte {offset}); make the file anew with create_pretraining_data.py"
    ) in ended.sentence
