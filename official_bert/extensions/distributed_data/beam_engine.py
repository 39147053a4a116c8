"""Makes the parts in a pipeline of Apache Beam, which runs on Dataflow, Flink and Spark."""

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence

import apache_beam as beam  # pyright: ignore[reportMissingImports]
from apache_beam.options.pipeline_options import (  # pyright: ignore[reportMissingImports]
    PipelineOptions,
)

from official_bert.extensions.distributed_data.engines import make_part, manifest_file
from official_bert.extensions.distributed_data.options import EngineFlags
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.options.data_tools import PretrainingDataOptions

_SECS_BETWEEN_LOOKS = 2.0
# Beam puts the error of a worker into a text, with the traceback before it.
_SENTENCE = re.compile(r"InputError: (.+?)(?: \[while running|\\n|\n|$)")


def make_parts(tasks: Sequence[PretrainingDataOptions], flags: EngineFlags) -> None:
    """Makes all parts.

    Args:
        tasks: the flags of each part.
        flags: the flags of the engine, with the options of the pipeline.

    Raises:
        InputError: a part failed.
    """
    try:
        with (
            _shown_progress(tasks),
            beam.Pipeline(options=PipelineOptions(flags.beam_options or [])) as pipeline,
        ):
            _ = (
                pipeline
                | "list parts" >> beam.Create(tasks)
                | "spread over machines" >> beam.Reshuffle()
                | "make part" >> beam.Map(make_part)
            )
    except Exception as error:
        sentences = _SENTENCE.findall(str(error))
        if not sentences:
            raise
        # The last one is the error itself; those before are its causes.
        raise InputError(sentences[-1]) from error


@contextlib.contextmanager
def _shown_progress(tasks: Sequence[PretrainingDataOptions]) -> Iterator[None]:
    """Counts the manifests of complete parts in a thread, since a runner tells nothing else."""
    progress = Progress("parts", len(tasks))
    has_ended = threading.Event()
    manifests = [manifest_file(options) for options in tasks]

    def count():
        while not has_ended.wait(_SECS_BETWEEN_LOOKS):
            progress(sum(files.exists(path) for path in manifests))

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        progress.end()
