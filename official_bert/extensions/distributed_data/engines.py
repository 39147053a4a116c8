"""Makes all parts of a set of records on other machines, by the engine of a flag.

In: the flags of create_pretraining_data with --engine and --num_parts. Out: the files of all parts,
the same bytes as those of `--part=1/N` to `--part=N/N`. An engine starts each part again on another
machine if one fails.
"""

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from official_bert import catalog
from official_bert.commands import create_pretraining_data
from official_bert.data.records.framing import COMPRESSED_SUFFIX
from official_bert.data.records.parts import Part
from official_bert.data.records.record_files import MANIFEST_SUFFIX
from official_bert.extensions.distributed_data.options import RAY, EngineFlags
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.options.data_tools import SHARDED, PretrainingDataOptions

_HERE = "official_bert.extensions.distributed_data"
_PACKAGES = {
    "ray": ("ray", "install it: pip install 'official-bert[ray]'"),
    "beam": (
        "apache_beam",
        "run the command in an environment that has it: docs/records_many_machines.md tells how",
    ),
}
_PATH_FLAGS = ("input_file", "output_file", "vocab_file", "model", "work_dir")


def choose_engine(options: PretrainingDataOptions) -> Callable[[Any], None] | None:
    """Returns the function that makes the records, or None without --engine.

    Args:
        options: the flags of create_pretraining_data.

    Raises:
        InputError: a flag is only for an engine, or the engine is not installed.
    """
    flags = catalog.options_part(options, EngineFlags)
    if flags.engine is None:
        for name in ("num_parts", "beam_options"):
            if getattr(flags, name):
                raise InputError(f"--{name}: is for an engine; add --engine, or give --part")
        return None
    if flags.beam_options and flags.engine == RAY:
        raise InputError("--beam_options: is for --engine=beam; leave it out")
    module, remedy = _PACKAGES[flags.engine]
    if importlib.util.find_spec(module) is None:
        raise InputError(f"--engine={flags.engine}: needs the package {module}; {remedy}")
    return run


def run(options: PretrainingDataOptions) -> None:
    """Makes all parts.

    Args:
        options: the flags of create_pretraining_data, with an engine.

    Raises:
        InputError: a flag or a file cannot be used, or a part failed.
    """
    flags = catalog.options_part(options, EngineFlags)
    tasks = split_into_parts(options)
    engine = importlib.import_module(f"{_HERE}.{flags.engine}_engine")
    engine.make_parts(tasks, flags)
    _log_set(tasks)


def split_into_parts(options: PretrainingDataOptions) -> list[PretrainingDataOptions]:
    """Returns the flags of each part, with paths that do not depend on the working folder.

    Args:
        options: the flags of create_pretraining_data, with an engine.

    Raises:
        InputError: a flag contradicts the engine, or there are fewer input files than parts.
    """
    flags = catalog.options_part(options, EngineFlags)
    if options.generator != SHARDED or options.part is not None:
        raise InputError(
            f"--engine={flags.engine}: makes all parts of --generator=sharded; add it, and leave "
            "out --part"
        )
    if flags.num_parts is None:
        raise InputError(f"--engine={flags.engine}: needs --num_parts; give the number of parts")
    Part(1, flags.num_parts).select_files(files.expand(options.input_file, "input_file"))
    no_engine = dataclasses.asdict(EngineFlags())
    paths = {name: _make_absolute(getattr(options, name)) for name in _PATH_FLAGS}
    return [
        dataclasses.replace(options, **no_engine, **paths, part=f"{number}/{flags.num_parts}")
        for number in range(1, flags.num_parts + 1)
    ]


def make_part(options: PretrainingDataOptions) -> None:
    """Makes a part, on the machine that an engine chose.

    Another process that still makes the part is waited for, since the engine may have lost it.

    Args:
        options: the flags of the part.

    Raises:
        InputError: as of create_pretraining_data.
    """
    create_pretraining_data.run(options, waits=True)


def manifest_file(options: PretrainingDataOptions) -> str:
    """Returns the path of the manifest of a part.

    Args:
        options: the flags of the part.
    """
    assert options.part is not None
    (output_file,) = options.output_file
    set_name = output_file.removesuffix(COMPRESSED_SUFFIX)
    return Part.parse(options.part).output_file(set_name) + MANIFEST_SUFFIX


def _make_absolute(value: str | list[str] | None) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_make_absolute(path) for path in value]
    # --model may also be a name.
    is_path = not files.is_remote(value) and (os.path.exists(value) or os.path.dirname(value))
    return os.path.abspath(value) if is_path else value


def _log_set(tasks: Sequence[PretrainingDataOptions]):
    num_records = 0
    for options in tasks:
        path = manifest_file(options)
        if not files.exists(path):
            raise InputError(
                f"{path}: is not there, though part {options.part} is made; name an --output_file "
                "on a file system that all machines share"
            )
        manifest = reading.read_json(path)
        num_records += manifest["counts"]["records"]
    logging.info("*** Wrote %d parts of %s ***", len(tasks), tasks[0].output_file[0])
    logging.info("Wrote %d total instances", num_records)
