"""The generator `sharded` as a pipeline of Apache Beam, which makes the same files as one machine does.

files -> the number of documents of each -> the number of its first document in the corpus
files and these numbers -> documents, by shard -> a temporary file and a report for each shard
all reports -> the files get their names; the manifest, which says that they are complete, comes last
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from official_bert.data.pretraining.documents import FileDocuments, documents_of, first_numbers, look_through, no_text
from official_bert.data.pretraining.one_shard import write_shard
from official_bert.data.pretraining.shards import ShardJob, manifest_of
from official_bert.io.errors import InputError
from official_bert.io.files import as_python_glob

LineReader = Callable[[str], Iterable[str]]


def open_file(path: str, mode: str = "rb"):
    """Opens a file of any file system as it is stored, for bytes."""
    open_or_create = FileSystems.open if mode == "rb" else FileSystems.create
    return open_or_create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def sizes_of(patterns: Sequence[str]) -> dict[str, int]:
    """Returns the files that names and globs match, sorted, with their numbers of bytes; raises InputError if none."""
    sizes = {}
    for pattern, result in zip(patterns, FileSystems.match([*map(as_python_glob, patterns)]), strict=True):
        if not result.metadata_list:
            raise InputError(f"--input_file: no file matches {pattern!r}; check the path or the glob")
        sizes |= {file.path: file.size_in_bytes for file in sorted(result.metadata_list, key=lambda file: file.path)}
    return sizes


def shards_beside(output_file: str) -> list[str]:
    """Returns the files whose names begin as those of the shards do."""
    return [file.path for file in FileSystems.match([f"{output_file}-*-of-*"])[0].metadata_list]


def write_shards(job: ShardJob, input_files: Sequence[str], read_lines: LineReader, arguments: Sequence[str]) -> dict:
    """Runs the pipeline and returns the manifest; raises InputError if an input cannot be read or has no text."""
    temporary = _beside(job.output_file, f"tmp-{uuid.uuid4().hex}")
    try:
        with beam.Pipeline(options=PipelineOptions(list(arguments))) as pipeline:
            files = pipeline | "files" >> beam.Create(list(enumerate(input_files))) | beam.Reshuffle()
            numbers = (
                files
                | "look through" >> beam.ParDo(_LookThrough(read_lines))
                | "all files" >> beam.combiners.ToList()
                | "number the documents" >> beam.Map(_first_numbers)
            )
            documents = files | "documents" >> beam.ParDo(
                _Documents(read_lines, job.num_shards), beam.pvalue.AsSingleton(numbers)
            )
            # So that a shard without documents is made, too.
            every_shard = pipeline | "shards" >> beam.Create([(number, (0, 0, "")) for number in range(job.num_shards)])
            _ = (
                (documents, every_shard)
                | beam.Flatten()
                | beam.GroupByKey()
                | "make shards" >> beam.ParDo(_MakeShard(job, temporary))
                | "all shards" >> beam.combiners.ToList()
                | "give names" >> beam.ParDo(_GiveNames(job, input_files))
            )
    except Exception as error:  # of the runner's choice, with the message of ours inside
        found = re.search(r"InputError: (.*?)(?: \[while running|\n|$)", f"{type(error).__name__}: {error}")
        if found:
            raise InputError(found[1]) from error
        raise
    finally:
        left = [file.path for file in FileSystems.match([f"{temporary}*"])[0].metadata_list]
        if left:
            FileSystems.delete(left)
    with open_file(job.manifest_file) as file:
        return json.loads(file.read())


class _LookThrough(beam.DoFn):
    """(index, path) -> (index, FileDocuments)."""

    def __init__(self, read_lines: LineReader):
        self._read_lines = read_lines

    def process(self, element):
        index, path = element
        yield index, tuple(look_through(self._read_lines(path)))


def _first_numbers(found: list) -> list[int]:
    return first_numbers([FileDocuments(*of_file) for _, of_file in sorted(found)])


class _Documents(beam.DoFn):
    """(index, path), first numbers -> (shard, (number of the document, index of the file, text))."""

    def __init__(self, read_lines: LineReader, num_shards: int):
        self._read_lines, self._num_shards = read_lines, num_shards

    def process(self, element, numbers):
        index, path = element
        for number, lines in enumerate(documents_of(self._read_lines(path)), start=numbers[index]):
            yield number % self._num_shards, (number, index, "\n".join(lines))


class _MakeShard(beam.DoFn):
    """(shard, documents) -> (shard, path of the temporary file, report)."""

    def __init__(self, job: ShardJob, temporary: str):
        self._job, self._temporary = job, temporary

    def process(self, element):
        shard, documents = element
        path = f"{self._temporary}-{shard:05}-{uuid.uuid4().hex}"  # a runner may do the work twice
        with open_file(path, "wb") as file:
            lines = _lines_of(sorted(documents))
            report = write_shard(shard, lines, file, self._job.tokenizer, self._job.config)
        yield shard, path, report


def _lines_of(documents: list[tuple[int, int, str]]) -> Iterator[str]:
    """Yields the lines of a shard; the parts of a document that lies in several files are one document."""
    before = None
    for number, _, text in documents:
        if not text:
            continue
        if number != before:
            yield ""
        before = number
        yield from text.split("\n")


class _GiveNames(beam.DoFn):
    """All reports -> nothing; the files have their names."""

    def __init__(self, job: ShardJob, input_files: Sequence[str]):
        self._job, self._input_files = job, list(input_files)

    def process(self, made):
        job, made = self._job, sorted(made, key=lambda one: one[0])
        manifest = manifest_of(job, [report for *_, report in made])
        if not manifest["counts"]["documents"]:
            raise no_text(self._input_files)
        if FileSystems.exists(job.manifest_file):
            FileSystems.delete([job.manifest_file])
        for shard, path, _ in made:
            if FileSystems.exists(path):  # a runner may do the work twice
                FileSystems.rename([path], [job.record_file(shard)])
        temporary = _beside(job.output_file, f"tmp-{uuid.uuid4().hex}")
        with open_file(temporary, "wb") as file:
            file.write((json.dumps(manifest, indent=1) + "\n").encode())
        FileSystems.rename([temporary], [job.manifest_file])
        return []


def _beside(path: str, ending: str) -> str:
    """Returns a name beside a path that begins with a dot, so that no glob of inputs matches it."""
    folder, name = FileSystems.split(path)
    return FileSystems.join(folder, f".{name}.{ending}") if folder else f".{name}.{ending}"
