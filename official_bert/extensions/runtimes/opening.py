"""Opens an export that has other files than a SavedModel, or in addition to one."""

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.runtimes.options import EXPORT_FORMATS, TENSORFLOW
from official_bert.extensions.runtimes.parts import compute_part_tokens
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.fine_tuning import AUTO
from official_bert.options.serving import SAVED_MODEL
from official_bert.options.shared import FLOAT32
from official_bert.serving.export_format import (
    ConvertedRuntime,
    FormatRuntime,
    RuntimeMissingError,
    export_formats,
    format_runtimes,
)
from official_bert.serving.exported_model import (
    CONFIG_FILE,
    DEFAULT,
    RECORD_FILE,
    ExportRuntimes,
    OpenedExport,
    Opening,
    Runtime,
    SavedModelRuntime,
    open_runtime,
)

# The batch that compares runtimes is large enough to show differences, and small enough to be fast.
_MAX_ROWS = 4
_TIMED_LENGTH = 128
_NUM_TIMED = 3
# Format -> the name of the file of `serving_default`.
FILES = {SAVED_MODEL: SavedModelRuntime.FILE}
for _format in export_formats().values():
    FILES[_format.name] = _format.file
# Format -> its main runtime, called with the folder of the files and the number of threads.
RUNTIMES: dict[str, Callable[[str, int | None], Runtime]] = {SAVED_MODEL: SavedModelRuntime}
for _runtime in format_runtimes():
    if _runtime.is_main:
        RUNTIMES[_runtime.export_format] = catalog.load(_runtime.runtime_class)
_TENSORFLOW = FormatRuntime(
    name=TENSORFLOW,
    export_format=SAVED_MODEL,
    package="tensorflow",
    runtime_class="",
    is_main=True,
)


class OtherRuntimes(ExportRuntimes):
    """onnxruntime, LiteRT and the runtimes of other extensions."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files of all formats."""
        return tuple(FILES.values())

    def open(self, export: OpenedExport, opening: Opening) -> Runtime:
        """Open the files by one runtime: that of the setting `runtime`, or the fastest.

        Args:
            export: the version.
            opening: the settings with which it is opened.

        Returns:
            The runtime.

        Raises:
            InputError: the version has no file for the runtime, or a file is damaged.
        """
        chosen = opening.settings.get("runtime", AUTO)
        runtimes = _list_runtimes(export)
        if chosen != AUTO:
            if chosen not in runtimes:
                raise InputError(
                    f"runtime={chosen}: {export.path} has no model for it; it has those of "
                    f"{', '.join(runtimes)}"
                )
            return _open_files(export, runtimes[chosen], opening.num_threads)
        dtype = (export.record.converted or {}).get("dtype", FLOAT32)
        tried = [runtime for runtime in runtimes.values() if _is_tried(runtime, dtype)]
        if len(tried) == 1:
            return _open_files(export, tried[0], opening.num_threads)
        return _open_fastest(export, tried, opening)

    def check_trained(self, model_dir: str, settings: Mapping[str, Any]) -> None:
        """Reject a runtime of exports for a trained model that is no export.

        Args:
            model_dir: the folder of the model.
            settings: the settings of extensions by name.

        Raises:
            InputError: the setting `runtime` is only for exports.
        """
        runtime = settings.get("runtime", AUTO)
        if runtime not in (AUTO, EXPORT_FORMATS[SAVED_MODEL]):
            raise InputError(
                f"runtime={runtime}: {model_dir} is no export, which TensorFlow computes; export it"
            )


def _list_runtimes(export: OpenedExport) -> dict[str, FormatRuntime]:
    """Returns the runtimes that can open the files of a version by name.

    Without any, the version is a SavedModel.
    """
    runtimes: dict[str, FormatRuntime] = {}
    reads_text = export.record.settings["export_text"]
    for runtime in (_TENSORFLOW, *format_runtimes()):
        has_file = files.exists(os.path.join(export.path, FILES[runtime.export_format]))
        # The operations for texts are those of the main runtime.
        if has_file and (runtime.is_main or not reads_text):
            # A runtime of two formats opens the files of which it is the main one.
            runtimes.setdefault(runtime.name, runtime)
    return runtimes or {TENSORFLOW: _TENSORFLOW}


def _is_tried(runtime: FormatRuntime, dtype: str) -> bool:
    """Returns whether a runtime is tried without a choice for weights of a type.

    A main runtime whose package is absent is tried, because the error then names the package.
    """
    is_installed = importlib.util.find_spec(runtime.package) is not None
    return dtype in runtime.tried_dtypes and (runtime.is_main or is_installed)


def _open_files(export: OpenedExport, runtime: FormatRuntime, num_threads: int | None) -> Runtime:
    """Opens the files of a version by a runtime."""
    if runtime.name == TENSORFLOW:
        return export.open_saved_model(num_threads)
    file = FILES[runtime.export_format]
    config = _check_files(export, file, export_formats()[runtime.export_format].data_suffix)
    runtime_class = catalog.load(runtime.runtime_class)
    opened = open_runtime(runtime_class, export.path, num_threads, what=file)
    opened.vocab_size = config.vocab_size
    if isinstance(opened, ConvertedRuntime):
        opened.max_part_tokens = compute_part_tokens(config.intermediate_size, num_threads)
    return opened


def _check_files(export: OpenedExport, file: str, data_suffix: str) -> BertConfig:
    """Checks the files of a model that is no SavedModel against the record.

    Its graph has no checks of its own.

    Returns:
        The configuration of the model.
    """
    where = os.path.join(export.path, RECORD_FILE)
    digests = field(export.record.converted or {}, "sha256", dict, f"{where}: converted")
    if file not in digests:
        raise InputError(f"{where}: does not name {file}; put the export's own file back")
    for name, digest in digests.items():
        path = os.path.join(export.path, os.path.basename(name))
        has_same_format = os.path.splitext(name)[1] in (os.path.splitext(file)[1], data_suffix)
        if has_same_format and files.sha256(path) != digest:
            raise InputError(f"{path}: is not the file that was exported; copy the version again")
    config = BertConfig.from_json_file(os.path.join(export.path, CONFIG_FILE))
    if export.record.settings["max_seq_length"] > config.max_position_embeddings:
        raise InputError(
            f"{where}: max_seq_length is beyond the model's {config.max_position_embeddings} "
            "positions"
        )
    return config


def _open_fastest(
    export: OpenedExport, tried: Sequence[FormatRuntime], opening: Opening
) -> Runtime:
    """Opens the files by each installed runtime; returns the fastest runtime."""
    num_rows = min(opening.batch_size, _MAX_ROWS)
    length = min(export.record.settings["max_seq_length"], _TIMED_LENGTH)
    secs: dict[str, float] = {}
    runtimes: dict[str, Runtime] = {}
    missing: RuntimeMissingError | None = None
    for runtime in tried:
        name = runtime.name
        try:
            runtimes[name] = _open_files(export, runtime, opening.num_threads)
        except RuntimeMissingError as error:
            logging.info("%s: is not tried (%s)", export.path, error)
            missing = error
            continue
        secs[name] = _measure_secs(runtimes[name], num_rows, length)
    if missing and not secs:
        raise missing
    best = min(secs, key=lambda name: secs[name])
    times = [f"{name} {1e3 * value:.1f}" for name, value in secs.items()]
    logging.info(
        "%s answers: milliseconds for %d rows of %d tokens: %s",
        best,
        num_rows,
        length,
        ", ".join(times),
    )
    return runtimes[best]


def _measure_secs(runtime: Runtime, num_rows: int, length: int) -> float:
    """Returns the seconds of the fastest of a few calls, after a first one."""
    choices = [2] * (runtime.rank - 2)  # A model of choices gets two.
    ids = np.ones((num_rows, *choices, length), np.int32)
    values = (ids, ids, np.zeros_like(ids))
    features: dict[str, np.ndarray] = dict(zip(ENCODER_INPUTS, values, strict=True))
    inputs = {name: features[name] for name in runtime.inputs[DEFAULT]}
    runtime(DEFAULT, inputs)
    times = [time.perf_counter()]
    for _ in range(_NUM_TIMED):
        runtime(DEFAULT, inputs)
        times.append(time.perf_counter())
    return np.diff(times).min()
