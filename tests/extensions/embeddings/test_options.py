"""The flags of run_embeddings and of an export: which change a training, and which need others."""

import dataclasses
import types

import pytest

from official_bert import catalog
from official_bert.extensions.embeddings.options import EmbeddingOptions
from official_bert.io.errors import InputError
from official_bert.model_dir import TaskRecord
from official_bert.options.fields import flag_names
from official_bert.tasks import registry
from official_bert.training import starting_point
from tests import fine_tuning_runs
from tests.options import test_declarations as declarations
from tests.training import test_starting_point as starting_points

PAIR = "multiple_negatives_ranking"


def test_every_flag_changes_a_training_or_is_known_not_to():
    names = {field.name for field in dataclasses.fields(EmbeddingOptions)}
    columns = {"anchor_column", "positive_column", "negative_columns"}
    unchanging = declarations.CHANGE_NOTHING | columns | {"eval_task", "vectors"}
    assert set(flag_names(EmbeddingOptions, "changes_training")) == names - unchanging


def test_what_cannot_change_in_the_middle_of_a_training():
    fixed = {"loss", "matryoshka", "pooling", "projection", "normalize"}
    fixed |= {"include_prompt", "max_query_seq_length"}
    expected = declarations.FIXED_IN_FINE_TUNING | fixed
    assert set(flag_names(EmbeddingOptions, "fixed_by_training")) == expected


@pytest.mark.parametrize(
    ("options_class", "idle", "needed", "missing"),
    [
        (
            EmbeddingOptions,
            {"symmetric": True, "loss": "cosent"},
            {"loss": PAIR},
            f"--loss={PAIR}|simcse",
        ),
        (
            EmbeddingOptions,
            {"scale": 2.0, "loss": "mse"},
            {"loss": "cosent"},
            f"--loss={PAIR}|gist|simcse|cosent|angle",
        ),
        (EmbeddingOptions, {"triplet_margin": 2.0}, {"loss": "triplet"}, "--loss=triplet"),
        (
            EmbeddingOptions,
            {"eval_task": "sts"},
            {"eval_every_steps": 5},
            "--do_eval or --eval_every_steps or --eval_every_epochs",
        ),
    ],
)
def test_a_flag_without_effect_is_named(options_class, idle, needed, missing):
    declarations.test_a_flag_without_effect_is_named(options_class, idle, needed, missing)


@pytest.mark.parametrize(
    ("options_class", "before", "now", "sentence"),
    [
        (
            EmbeddingOptions,
            {"pooling": "cls"},
            {"pooling": "max"},
            "began with --pooling=cls, which .* has --pooling=max",
        ),
        (
            EmbeddingOptions,
            {},
            {"normalize": False},
            "began with no --normalize, which .* has --normalize=False",
        ),
        (
            EmbeddingOptions,
            {},
            {"loss": "cosent"},
            "began with --loss=multiple_negatives_ranking, .* --loss=cosent",
        ),
        (
            EmbeddingOptions,
            {},
            {"matryoshka": ["8", "4"]},
            "began with no --matryoshka, .* has --matryoshka=8,4",
        ),
    ],
)
def test_a_resumed_training_with_another_fixed_flag_is_refused(
    tmp_path, options_class, before, now, sentence
):
    starting_points.test_what_cannot_change_in_the_middle_is_refused(
        tmp_path, options_class, before, now, sentence
    )


@pytest.mark.parametrize(
    ("options_class", "now", "words"),
    [
        (
            EmbeddingOptions,
            {"scale": 5.0, "symmetric": True},
            "--scale=5.0 (20.0 before), --symmetric=True (False be",
        ),
        (EmbeddingOptions, {"teacher": "b"}, "--teacher=b (a before)"),
    ],
)
def test_a_resumed_training_with_another_flag_is_warned_of(
    tmp_path, caplog, options_class, now, words
):
    starting_points.test_what_may_change_is_named(tmp_path, caplog, options_class, now, words)


def test_the_same_teacher_by_another_path_is_no_change(tmp_path, caplog):
    teacher = str(tmp_path / "teacher")
    options = starting_points.earlier_run(tmp_path, EmbeddingOptions, teacher=teacher)
    same = dataclasses.replace(options, teacher=f"{tmp_path}/./teacher/")
    starting_point.warn_of_changed_flags(same, str(tmp_path), 4)
    assert not caplog.records


def test_what_the_folder_says_of_an_open_flag_counts(tmp_path, caplog):
    """A training with the pooling of its model's folder resumes with the same as a flag."""
    options, recorded = (
        starting_points.earlier_run(tmp_path, EmbeddingOptions),
        {"pooling": "cls", "normalize": True},
    )
    same = dataclasses.replace(options, pooling="cls", normalize=True)
    record = TaskRecord("embedding", "embedding", recorded)
    starting_point.check_output_dir(types.SimpleNamespace(options=same, resumes=True, task=record))
    starting_point.warn_of_changed_flags(same, str(tmp_path), 4)
    assert not caplog.records
    with pytest.raises(
        InputError,
        match=r"began with --pooling=cls, which .* this command has --pooling=max; give the",
    ):
        starting_point.refuse_fixed_flags(dataclasses.replace(options, pooling="max"), recorded)
    with pytest.raises(
        InputError, match=r"began with no --projection, which .* this command has --projection=8"
    ):
        starting_point.refuse_fixed_flags(dataclasses.replace(options, projection=8), recorded)


def test_a_teacher_needs_the_loss_that_learns_its_vectors(tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, "embedding")
    with pytest.raises(
        InputError,
        match="--teacher: goes with --loss=mse, which learns its vectors, gist and margin_mse, not",
    ):
        fine_tuning_runs.run(
            "embedding", options, tmp_path / "out", do_train=True, teacher="a", loss="cosent"
        )


def test_the_task_is_found_by_its_name():
    assert type(registry.make_task("embedding", {})).__name__ == "EmbeddingTask"
    assert registry.task_family("Embedding") == "embedding"


def test_an_export_has_the_flags_of_embeddings():
    """They stand where the core's flag of the same name stands, among those of the model."""
    names = [
        field.name for field in dataclasses.fields(catalog.options_class("export_saved_model"))
    ]
    assert names.count("pooling") == names.count("normalize") == 1
    assert names.index("pooling") < names.index("export_dir")
