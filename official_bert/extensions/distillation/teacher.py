"""The teacher of a distillation: a trained model whose outputs another one learns.

A teacher computes without dropout, and is never saved with its student.
"""

from __future__ import annotations

from absl import logging

from official_bert import model_hub
from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.fine_tuning.plugin import TrainingRun
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, has_checkpoints
from official_bert.options.serving import ServedOptions
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.serving.export import TrainedModel, compute_weights_digest
from official_bert.serving.model import build
from official_bert.tokenization import FullTokenizer
from official_bert.training import precision, run_log

_DIGEST = "teacher_sha256"  # in the start line of run_log.py


def open_teacher(path: str, run: TrainingRun, task_name: str | None = None) -> TrainedModel:
    """Builds the model of --teacher on the devices of a run, in bfloat16 if the run computes in it.

    Args:
        path: the value of --teacher.
        run: the training of the student.
        task_name: the task of the teacher; None for the one that its folder records.

    Raises:
        InputError: the folder has no model of the task, another vocabulary than the student, or
            the model is too short.
    """
    dtype, _ = precision.choose(run.options.dtype, run.strategy)
    tokenizer = run.make_tokenizer()
    if tokenizer is None:
        raise InputError(
            "--vocab_file: must be given with --teacher, whose vocabulary must be the same"
        )
    try:
        with run.strategy.scope():
            stored = dtype if dtype == BFLOAT16 else FLOAT32
            length = _length_without_record(path, run.options.max_seq_length)
            flags = ServedOptions(model=path, task_name=task_name, max_seq_length=length)
            teacher = build(flags, stored)
    except InputError as error:
        raise InputError(f"--teacher={path}: {error}") from None
    teacher.model.trainable = False  # so that no gradient is computed, and nothing kept for one
    _check_tokenizer(path, tokenizer, teacher.tokenizer)
    length = run.options.max_seq_length
    if length > teacher.config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={length}: --teacher={path} was made for sequences up to "
            f"{teacher.config.max_position_embeddings} tokens"
        )
    return teacher


def _length_without_record(path: str, max_seq_length: int) -> int | None:
    """Returns the length of the run for a folder that records none, as far as the model allows it.

    The default length of served models would refuse shorter ones, whatever the run's length is.
    """
    folder = ModelFolder(model_hub.local_path(path))
    if folder.task_file or not folder.config_file:
        return None
    return min(
        max_seq_length, BertConfig.from_json_file(folder.config_file).max_position_embeddings
    )


def _check_tokenizer(path: str, tokenizer: FullTokenizer, teacher_tokenizer: FullTokenizer):
    difference = None
    if tokenizer.vocab != teacher_tokenizer.vocab:
        difference = "another vocabulary"
    # (None, None): the records of a pre-training do not say how their text was read.
    elif _casing(tokenizer) not in ((None, None), _casing(teacher_tokenizer)):
        difference = "another do_lower_case or strip_accents"
    if difference:
        raise InputError(
            f"--teacher={path}: has {difference} than the student; take a student of "
            "official-bert create_student, or another teacher"
        )


def _casing(tokenizer: FullTokenizer) -> tuple[bool | None, bool | None]:
    """Returns whether text is lower-cased, and whether it loses its accents."""
    lower, strip = tokenizer.basic_tokenizer.do_lower_case, tokenizer.basic_tokenizer.strip_accents
    return lower, lower if strip is None else strip


def teacher_metadata(path: str, output_dir: str, teacher: TrainedModel) -> dict[str, object]:
    """Returns what the start line of run_log.py keeps of a teacher.

    A training that resumes with other weights of its teacher than it began with is warned of.

    Args:
        path: the value of --teacher.
        output_dir: the folder of the training.
        teacher: the opened teacher.
    """
    weights = {name: variable.value for name, variable in named_variables(teacher.model).items()}
    digest = compute_weights_digest(weights)
    earlier = run_log.trainings(output_dir) if has_checkpoints(output_dir) else []
    if earlier and earlier[-1].get(_DIGEST, digest) != digest:
        logging.warning(
            "--teacher=%s: has other weights than when the training in %s began; the rest of the "
            "training learns from these",
            path,
            output_dir,
        )
    return {_DIGEST: digest}
