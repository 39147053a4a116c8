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

_DIGEST = "teacher_sha256"  # A field of the start line of run.jsonl.


def open_teacher(
    path: str, run: TrainingRun, max_seq_length: int, task_name: str | None = None
) -> TrainedModel:
    """Build the model of --teacher on the devices of a run, in bfloat16 if the run computes in it.

    Args:
        path: the value of --teacher.
        run: the training of the student.
        max_seq_length: the longest input of the training.
        task_name: the task of the teacher; None for the one that its folder records.

    Returns:
        The teacher.

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
    weights_dtype = dtype if dtype == BFLOAT16 else FLOAT32
    try:
        with run.strategy.scope():
            flags = ServedOptions(
                model=path,
                task_name=task_name,
                max_seq_length=_length_without_record(path, max_seq_length),
            )
            teacher = build(flags, weights_dtype)
    except InputError as error:
        raise InputError(f"--teacher={path}: {error}") from None
    teacher.model.trainable = False  # No gradient is computed, and no memory is kept for one.
    _check_tokenizer(path, tokenizer, teacher.tokenizer)
    longest = teacher.config.max_position_embeddings
    if max_seq_length > longest:
        raise InputError(
            f"--max_seq_length={max_seq_length}: --teacher={path} was made for sequences up to "
            f"{longest} tokens; give a smaller number, or another teacher"
        )
    return teacher


def _length_without_record(path: str, max_seq_length: int) -> int | None:
    """Returns the length of the run for a folder that records none, as far as the model allows it.

    The default length of served models would reject models that are shorter.
    """
    folder = ModelFolder(model_hub.local_path(path))
    if folder.task_file or not folder.config_file:
        return None
    config = BertConfig.from_json_file(folder.config_file)
    return min(max_seq_length, config.max_position_embeddings)


def _check_tokenizer(path: str, tokenizer: FullTokenizer, teacher_tokenizer: FullTokenizer):
    """Rejects a teacher that reads text in another way than the student."""
    casing = _casing(tokenizer)
    difference = None
    if tokenizer.vocab != teacher_tokenizer.vocab:
        difference = "another vocabulary"
    # The casing is (None, None) in a pre-training, whose records do not contain it.
    elif casing not in ((None, None), _casing(teacher_tokenizer)):
        difference = "another do_lower_case or strip_accents"
    if difference:
        raise InputError(
            f"--teacher={path}: has {difference} than the student; take a student of "
            "official-bert create_student, or another teacher"
        )


def _casing(tokenizer: FullTokenizer) -> tuple[bool | None, bool | None]:
    """Returns whether text is lower-cased, and whether it loses its accents."""
    basic = tokenizer.basic_tokenizer
    lowers = basic.do_lower_case
    strips = lowers if basic.strip_accents is None else basic.strip_accents
    return lowers, strips


def teacher_metadata(path: str, output_dir: str, teacher: TrainedModel) -> dict[str, object]:
    """Return the fields of a teacher in the start line of run.jsonl.

    A warning is logged if the training resumes with other weights of its teacher.

    Args:
        path: the value of --teacher.
        output_dir: the folder of the training.
        teacher: the opened teacher.

    Returns:
        The digest of the weights.
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
