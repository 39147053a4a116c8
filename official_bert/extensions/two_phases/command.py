"""Pre-trains in two phases: the runner of pretrain_two_phases.

In: a text, a vocabulary and a configuration. Out, in --output_dir: the records of both lengths, and
the model. Attention to 512 tokens costs four times as much a token as to 128, and only the position
embeddings need it (Devlin et al., 2019, appendix A.2).

Every command is printed before it runs. The same command continues after a stop: complete records
are kept, and the trainings resume from their newest checkpoint.
"""

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence

from official_bert import catalog
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.config import BertConfig
from official_bert.extensions.two_phases.options import TwoPhaseOptions
from official_bert.io import files, processes, reading
from official_bert.io.errors import InputError, did_you_mean
from official_bert.options.fields import find_text_fault, flag_fields, value_type

FIRST_SHARE = 0.9
_WARMUP_SHARE = 0.1
_MAX_WARMUP_STEPS = 10_000  # of the paper
_PREDICTIONS_SHARE = 0.15625  # 20 of 128 tokens and 80 of 512; about 15 % of them are masked
_PROGRAM = (sys.executable, "-m", "official_bert")
# What this command sets itself.
_RESERVED_FLAGS = (
    "bert_config_file",
    "do_train",
    "init_checkpoint",
    "input_file",
    "model",
    "output_dir",
    "stop_at_step",
    "vocab_file",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of the training.

    Attributes:
        folder: the folder of its model below --output_dir.
        length: the number of tokens of a sequence.
        batch_size: the number of sequences in a batch.
        flags: the flags of its schedule and of its start, by name.
        end: the step at which it ends; None if another run of it is harmless.
    """

    folder: str
    length: int
    batch_size: int
    flags: dict[str, object]
    end: int | None = None


def run(options: TwoPhaseOptions) -> None:
    """Makes the records, and trains both phases.

    The process ends with the status of the first command that fails.

    Args:
        options: the flags of the command.

    Raises:
        InputError: the flags or the configuration do not fit each other.
    """
    _check(options)
    phases = plan_phases(options)
    for phase in phases:  # All records come before the first phase, which may take weeks.
        _make_records(options, phase.length)
    for phase in phases:
        model_dir = os.path.join(options.output_dir, phase.folder)
        if phase.end is not None and _read_step(model_dir) >= phase.end:
            print(f"{model_dir} has finished the first phase.", flush=True)
            continue
        _run("run_pretraining", *_training_flags(options, phase, model_dir))
    print(f"\nThe model is in {os.path.join(options.output_dir, phases[-1].folder)}.")


def plan_phases(options: TwoPhaseOptions) -> tuple[Phase, Phase]:
    """Returns both phases.

    Args:
        options: the flags of the command.
    """
    num_steps = options.num_train_steps
    first_steps = round(FIRST_SHARE * num_steps)
    second_batch_size = options.phase2_train_batch_size or options.train_batch_size
    if not options.new_schedule:
        schedule = _schedule(options, num_steps, options.learning_rate)
        first = Phase(
            folder="model",
            length=options.max_seq_length,
            batch_size=options.train_batch_size,
            flags=schedule | {"stop_at_step": first_steps},
            end=first_steps,
        )
        second = Phase(
            folder="model",
            length=options.phase2_max_seq_length,
            batch_size=second_batch_size,
            flags=schedule,
        )
        return first, second
    first = Phase(
        folder="phase1",
        length=options.max_seq_length,
        batch_size=options.train_batch_size,
        flags=_schedule(options, first_steps, options.learning_rate),
    )
    rate = options.phase2_learning_rate or options.learning_rate
    start = {"init_checkpoint": os.path.join(options.output_dir, first.folder)}
    second = Phase(
        folder="phase2",
        length=options.phase2_max_seq_length,
        batch_size=second_batch_size,
        flags=_schedule(options, num_steps - first_steps, rate) | start,
    )
    return first, second


def _schedule(options: TwoPhaseOptions, num_steps: int, rate: float) -> dict[str, object]:
    """Returns the flags of a schedule."""
    num_warmup_steps = options.num_warmup_steps
    if num_warmup_steps is None:
        num_warmup_steps = min(round(_WARMUP_SHARE * num_steps), _MAX_WARMUP_STEPS)
    return {
        "num_train_steps": num_steps,
        "num_warmup_steps": num_warmup_steps,
        "learning_rate": rate,
    }


def _check(options: TwoPhaseOptions):
    """Refuses what would otherwise fail in the second phase."""
    lengths = (options.max_seq_length, options.phase2_max_seq_length)
    if lengths[0] == lengths[1]:
        raise InputError(
            f"--phase2_max_seq_length={lengths[1]}: is also the length of the first phase; give "
            "another one"
        )
    num_positions = BertConfig.from_json_file(options.bert_config_file).max_position_embeddings
    if num_positions < max(lengths):
        raise InputError(
            f"{options.bert_config_file}: max_position_embeddings is {num_positions}, and the "
            f"sequences have up to {max(lengths)} tokens; raise it, or give a shorter "
            "--phase2_max_seq_length"
        )
    _check_training_flags(options)


def _check_training_flags(options: TwoPhaseOptions):
    """Refuses flags behind `--` that the trainings would refuse after the records are made."""
    command_flags = {field.name for field in dataclasses.fields(options)}
    fields = {}
    for field in flag_fields(catalog.options_class("run_pretraining")):
        fields |= {field.name: field, field.metadata["alias"] or field.name: field}
    for word in options.training_flags:
        if not word.startswith("-"):
            continue  # the value of the flag before it
        name, has_value, value = word.lstrip("-").partition("=")
        if name in _RESERVED_FLAGS or name in command_flags:
            raise InputError(f"{word}: pretrain_two_phases sets this flag; give it before --")
        field = fields.get(name) or fields.get(name.removeprefix("no"))
        if field is None:
            question = did_you_mean(name, fields, "--")
            if question:  # Others are flags of every command, or ignored.
                raise InputError(f"{word}: run_pretraining has no such flag; {question}")
        elif has_value and value_type(field) != list[str]:
            fault = find_text_fault(field, value)
            if fault:
                raise InputError(f"{word}: {fault}; correct it")


def _count_predictions(length: int) -> int:
    """Returns the number of masked positions that a sequence has room for."""
    return max(1, round(_PREDICTIONS_SHARE * length))


def _records_dir(options: TwoPhaseOptions, length: int) -> str:
    return os.path.join(options.output_dir, f"records-{length}")


def _make_records(options: TwoPhaseOptions, length: int):
    """Makes the records of a length, unless their manifest says that they are complete."""
    folder = _records_dir(options, length)
    determining_flags = {
        "max_seq_length": length,
        "max_predictions_per_seq": _count_predictions(length),
        "dupe_factor": options.dupe_factor,
    }
    manifest_file = os.path.join(folder, "train.manifest.json")
    if files.exists(manifest_file):
        _check_records(folder, manifest_file, determining_flags)
        print(
            f"{folder} has the records of an earlier run with these flags. If the text has "
            "changed, delete the folder, so that they are made again.",
            flush=True,
        )
        return
    files.make_folder(folder)
    try:
        _run(
            "create_pretraining_data",
            "--generator=sharded",
            f"--input_file={','.join(options.input_file)}",
            f"--output_file={os.path.join(folder, 'train')}",
            f"--vocab_file={options.vocab_file}",
            *(f"--{name}={value}" for name, value in determining_flags.items()),
            f"--num_workers={options.num_workers}",
        )
    except SystemExit:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # unless it has finished shards, which the next run keeps
        raise


def _check_records(folder: str, manifest_file: str, flags_now: dict[str, int]):
    """Refuses records that an earlier run made with other flags."""
    manifest = reading.check_object(reading.read_json(manifest_file), manifest_file)
    flags_then = reading.field(manifest, "flags", dict, manifest_file)
    for name, value in flags_now.items():
        if flags_then.get(name) != value:
            raise InputError(
                f"--{name}={value}: the records in {folder} were made with "
                f"{flags_then.get(name)}; delete the folder, or name another --output_dir"
            )


def _training_flags(options: TwoPhaseOptions, phase: Phase, model_dir: str) -> Sequence[str]:
    """Returns the words of the training of a phase."""
    records = os.path.join(_records_dir(options, phase.length), "train-?????-of-?????")
    flags = {
        "do_train": True,
        "input_file": records,
        "output_dir": model_dir,
        "bert_config_file": options.bert_config_file,
        "vocab_file": options.vocab_file,
        # With few files, the original's order may read one twice at the same time.
        "file_order": "each_pass",
        "max_seq_length": phase.length,
        "max_predictions_per_seq": _count_predictions(phase.length),
        "train_batch_size": phase.batch_size,
        **phase.flags,
    }
    return [*(f"--{name}={value}" for name, value in flags.items()), *options.training_flags]


def _read_step(model_dir: str) -> int:
    """Returns the step of the newest checkpoint of a folder; 0 without one."""
    path = latest_checkpoint(model_dir)
    return int(path.rpartition("-")[2]) if path else 0


def _run(command: str, *flags: str):
    """Prints a command as a user would type it, runs it, and ends with its status if it fails."""
    words = [f"official-bert {command}", *map(shlex.quote, flags)]
    print("\n$ " + " \\\n    ".join(words), flush=True)
    with processes.Processes() as children:
        status = children.start([*_PROGRAM, command, *flags]).wait()
    if status:
        sys.exit(128 - status if status < 0 else status)
