"""Makes the files of the generator `sharded`: work folder, worker processes, what a killed run
left, manifest.

All is made in a folder beside the outputs whose name begins with a dot; the files get their names
when the last one is complete. A finished shard lies there with its report, so that another run can
resume after a kill.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import glob
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from official_bert.data.model_inputs import warn_about_unknown
from official_bert.data.pretraining.documents import (
    DistributedFiles,
    Piece,
    assign_pieces,
    distribute,
    no_text,
    split_files,
    text_digest,
)
from official_bert.data.pretraining.one_shard import ALGORITHM, ShardConfig, make_shard
from official_bert.data.pretraining.pool import WorkerProcesses, worker_processes
from official_bert.data.pretraining.settings import pair_config, records_mask_config
from official_bert.data.records.framing import COMPRESSED_SUFFIX
from official_bert.data.records.parts import Part
from official_bert.data.records.record_files import (
    MANIFEST_SUFFIX,
    SHARD_NAME,
    for_each,
    hidden_manifest,
    vocabulary_digest,
)
from official_bert.io import errors, files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.options.data_tools import EXACT, SHARDED, PretrainingDataOptions
from official_bert.tokenization import FullTokenizer

T = TypeVar("T")

SHARD_BYTES = 32 << 20  # of text, the size of the shards of a large corpus
# The flags that only the generator `sharded` has, and all that determine its records, beside text
# and vocabulary.
SHARDED_ONLY_FLAGS = ("mask_rates", "ngram_masking", "use_next_sentence", "dynamic_masking")
_DETERMINING = (
    "do_whole_word_mask",
    "max_seq_length",
    "max_predictions_per_seq",
    "random_seed",
    "dupe_factor",
    "masked_lm_prob",
    "short_seq_prob",
    "do_lower_case",
    "strip_accents",
    "input_format",
    "split_sentences",
    *SHARDED_ONLY_FLAGS,
)
# The names in the work folder, and their temporary ones.
_WORK_NAME = re.compile(r"\d{5}\.(records|json)|\.\d{5}\.(records|json)\.tmp-\d+")
_COPIED_BYTES = 1 << 24
_TEXT_PREFIX = "text-"
_TEXT_FOLDER = re.compile(rf"{_TEXT_PREFIX}[a-z0-9_]{{8}}")  # as tempfile.mkdtemp names it
_OTHER_JOB = "%s: describes other flags, another vocabulary or another text; part %s is made again"
# A smaller corpus has shards, too, for several processes.
_SMALLEST_SHARD_BYTES, _FEWEST_SHARDS = 1 << 20, 16


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """What is made of what, for all worker processes.

    Attributes:
        output_file: the beginning of the names of all files.
        num_shards: the number of record files.
        tokenizer: the tokenizer of the text.
        config: what determines the records beside the text.
        described: all that determines the records, for the manifest.
        work_dir: the local folder of the work folder; None for that of the outputs.
        part: the part of a set of records; None for a whole set.
    """

    output_file: str
    num_shards: int
    tokenizer: FullTokenizer
    config: ShardConfig
    described: dict
    work_dir: str | None = None
    part: Part | None = None

    @property
    def set_name(self) -> str:
        """The beginning of the names of all files of the set, of which the job may be a part."""
        return self.output_file.removesuffix(self.part.output_file("") if self.part else "")

    @property
    def work_folder(self) -> str:
        folder, name = os.path.split(self.output_file)
        if self.work_dir is None:
            return os.path.join(folder, f".{name}.sharded")
        # Outputs of several folders may have the same name.
        digest = hashlib.sha256(files.real_path(self.output_file).encode()).hexdigest()[:12]
        return os.path.join(self.work_dir, f".{name}-{digest}.sharded")

    @property
    def manifest_file(self) -> str:
        return self.output_file + MANIFEST_SUFFIX

    def record_file(self, number: int) -> str:
        """Returns the path of a shard's records, once all shards are complete.

        Args:
            number: the number of the shard, from 0.
        """
        ending = COMPRESSED_SUFFIX if self.config.is_compressed else ""
        return f"{self.output_file}-{number:05}-of-{self.num_shards:05}{ending}"

    def finished_file(self, number: int) -> str:
        """Returns where a finished shard waits for the others.

        Args:
            number: the number of the shard, from 0.
        """
        return os.path.join(self.work_folder, f"{number:05}.records")

    def report_file(self, number: int) -> str:
        """Returns the path of the report of a finished shard, which is written after it.

        Args:
            number: the number of the shard, from 0.
        """
        return os.path.join(self.work_folder, f"{number:05}.json")

    def outputs(self) -> list[str]:
        return [*map(self.record_file, range(self.num_shards)), self.manifest_file]


def shard_job(
    options: PretrainingDataOptions,
    output_file: str,
    num_shards: int,
    tokenizer: FullTokenizer,
    part_description: dict | None = None,
) -> ShardJob:
    """Returns the job of a script.

    Args:
        options: the flags of create_pretraining_data.py, with a `vocab_file`.
        output_file: the beginning of the names of all files. The records are compressed if it ends
            in .gz.
        num_shards: the number of record files.
        tokenizer: the tokenizer of the script, with the vocabulary of `vocab_file`.
        part_description: what the manifest of a part has about the whole set; None for a run that
            makes the whole set.

    Raises:
        InputError: flags of masking contradict each other, or the vocabulary cannot be read.
    """
    assert options.vocab_file is not None  # The tokenizer has been read from it.
    is_compressed = output_file.endswith(COMPRESSED_SUFFIX)
    config = ShardConfig(
        pairs=pair_config(options),
        masks=records_mask_config(options),
        random_seed=options.random_seed,
        is_compressed=is_compressed,
    )
    described = {
        "generator": SHARDED,
        "algorithm": ALGORITHM,
        "flags": {name: getattr(options, name) for name in _DETERMINING}
        | {"num_shards": num_shards, "compression": "gzip" if is_compressed else "none"},
        "vocabulary_sha256": files.sha256(options.vocab_file),
    }
    output_file = output_file.removesuffix(COMPRESSED_SUFFIX)
    part = None
    if options.part is not None:
        part = Part.parse(options.part)
        output_file = part.output_file(output_file)
        described["part"] = part_description
    work_dir = options.work_dir
    if work_dir is None and files.is_remote(output_file):
        work_dir = tempfile.gettempdir()
    return ShardJob(output_file, num_shards, tokenizer, config, described, work_dir, part)


def write_exact_manifests(options: PretrainingDataOptions, vocab: Mapping[str, int]) -> None:
    """Writes beside each record file of the generator `exact` how it was made, since its name does
    not tell.

    Args:
        options: the flags of create_pretraining_data.py. Its output files exist; a pipe or a device
            gets no manifest.
        vocab: the id of each WordPiece.

    Raises:
        InputError: a manifest cannot be written.
    """
    description = {
        "generator": EXACT,
        "flags": {
            name: getattr(options, name) for name in _DETERMINING if name not in SHARDED_ONLY_FLAGS
        },
        "pieces_sha256": vocabulary_digest(vocab),
    }
    for path in options.output_file:
        if not files.is_special(path):
            shard = {"file": os.path.basename(path), "bytes": files.size(path)}
            with writing.replacing(hidden_manifest(path)) as file:
                json.dump(description | {"shards": [shard]}, file, indent=1)
                file.write("\n")


def default_num_shards(sizes: Iterable[tuple[str, int]]) -> int:
    """Returns the number of shards for a corpus: of 32 MiB of text at most, or up to 16 of at least
    1 MiB.

    Args:
        sizes: the path of each file and its size in bytes. Of a gzip file, the decompressed text
            counts, for which it is read.

    Raises:
        InputError: a file cannot be read.
    """
    num_bytes = 0
    for path, size in sizes:
        unpacked = reading.unpacked_size(path)
        num_bytes += size if unpacked is None else unpacked
    return max(
        1,
        math.ceil(num_bytes / SHARD_BYTES),
        min(_FEWEST_SHARDS, num_bytes // _SMALLEST_SHARD_BYTES),
    )


def check_no_others(job: ShardJob) -> None:
    """Checks that the shards of no other run would be read together with those of the job.

    Args:
        job: the job, before its shards are made.

    Raises:
        InputError: there is a shard of another number of shards or parts, or with another ending,
            which the same glob would match.
    """
    names = set(files.matching(f"{glob.escape(job.set_name)}-*-of-*")).difference(job.outputs())
    for path in sorted(names):
        is_sibling = job.part is not None and job.part.is_sibling(path)
        if SHARD_NAME.search(path) and not is_sibling:
            raise InputError(
                f"{path}: is a shard of a run with another number of shards or parts, or another "
                "ending; delete those files, or name another --output_file"
            )


def check_places(job: ShardJob) -> None:
    """Checks that every output can get its name in the end.

    Args:
        job: the job, before its shards are made.

    Raises:
        InputError: a name is too long, or that of something else, such as a link or a folder.
    """
    if files.is_remote(job.output_file):
        return
    for path in job.outputs():
        if os.path.islink(path) or files.is_special(path):
            what = (
                "link" if os.path.islink(path) else "folder" if files.is_folder(path) else "device"
            )
            raise InputError(
                f"{path}: is a {what} in the place of an output; move it away, or name another "
                "--output_file"
            )
    _check_length(job.manifest_file)


def check_exact_names(output_files: Sequence[str]) -> None:
    """Checks the names of the manifests beside the record files of the generator `exact`.

    Args:
        output_files: the record files. Remote files, pipes and devices are not checked.

    Raises:
        InputError: the manifest beside a record file would have too long a name.
    """
    for path in output_files:
        if not (files.is_remote(path) or files.is_special(path)):
            _check_length(hidden_manifest(path))


def _check_length(manifest_file: str):
    """Raises InputError if a manifest, whose name is the longest of all while it is written,
    could not be named.
    """
    with writing.saying_why(manifest_file), contextlib.suppress(FileNotFoundError):
        os.lstat(writing.temporary_name(*os.path.split(manifest_file)))


def write_shards(
    job: ShardJob,
    input_files: Sequence[str],
    num_workers: int,
    read_lines: Callable[[str], Iterable[str]] = reading.read_lines,
) -> dict:
    """Makes all files; they do not depend on the number of processes.

    Args:
        job: what to make. Shards that an earlier run of the same job finished are kept, and a part
            that is complete.
        input_files: the files of the corpus, in order.
        num_workers: the number of processes that make shards; 1 for this process alone.
        read_lines: a function of a file's name that yields its lines; by default those of a text
            file that is not compressed.

    Returns:
        The manifest: how the records were made, counts, shares, and each file.

    Raises:
        InputError: a file cannot be read or written, the corpus has no text, or a worker process
            was killed.
    """
    manifest = _read_complete_manifest(job)
    if manifest is not None:
        logging.info("part %s is complete; delete %s to make it again", job.part, job.manifest_file)
        _clear(job, keep_finished=False)
        return manifest
    _clear(job, keep_finished=True)
    try:
        with _start_workers(job, num_workers) as workers:
            text = _distribute(job, split_files(input_files, num_workers), read_lines, workers)
            if not any(text):
                raise no_text(input_files)
            reports = _make_all(job, text, workers)
        manifest = _build_manifest(job, reports)
        if not manifest["counts"]["documents"]:
            _clear(job, keep_finished=False)
            raise no_text(input_files)
        _warn_of_lone_documents(reports)
        _give_names(job, manifest)
    finally:
        _clear(job, keep_finished=True)
    return manifest


def remove_work_folder(job: ShardJob) -> None:
    """Deletes the empty work folder; with finished shards in it, it stays for the next run.

    Args:
        job: the job whose work folder it is.
    """
    with contextlib.suppress(OSError):
        os.rmdir(job.work_folder)


def _read_complete_manifest(job: ShardJob) -> dict | None:
    """Returns the manifest of an earlier run of a part if it describes the job and all its files
    exist, otherwise None.

    The text is not read: of the input files, the names and the sizes of a part are compared.
    """
    if job.part is None or not files.exists(job.manifest_file):
        return None
    manifest = reading.check_object(reading.read_json(job.manifest_file), job.manifest_file)
    if {key: manifest.get(key) for key in job.described} != json.loads(json.dumps(job.described)):
        logging.warning(_OTHER_JOB, job.manifest_file, job.part)
        return None
    sizes = {
        os.path.join(os.path.dirname(job.output_file), shard["file"]): shard["bytes"]
        for shard in reading.field(manifest, "shards", list, job.manifest_file)
    }
    sizes_now = {path: files.size(path) for path in sizes if files.exists(path)}
    return manifest if sizes_now == sizes else None


def _clear(job: ShardJob, keep_finished: bool):
    """Deletes what runs have made in the work folder; finished shards with their reports may
    stay.
    """
    finished_files = set()
    if keep_finished:
        for number in range(job.num_shards):
            if files.exists(job.report_file(number)):
                finished_files |= {job.report_file(number), job.finished_file(number)}
    for name in files.list_folder(job.work_folder):
        path = os.path.join(job.work_folder, name)
        if _TEXT_FOLDER.fullmatch(name) and files.is_folder(path):
            files.remove_folder(path)
        elif _WORK_NAME.fullmatch(name) and path not in finished_files:
            files.remove(path)


@contextlib.contextmanager
def _start_workers(job: ShardJob, num_workers: int) -> Iterator[WorkerProcesses | None]:
    """Yields processes that call functions of the job and further arguments; None for this process
    alone.
    """
    if num_workers == 1:
        yield None
        return
    with worker_processes(num_workers, _call_in_worker, job) as workers:
        yield workers


def _call_in_worker(job: ShardJob, function: Callable, *arguments: Any) -> tuple[Any, list[tuple]]:
    with errors.collected_warnings() as warnings:
        return function(job, *arguments), warnings


def _results(
    job: ShardJob,
    workers: WorkerProcesses | None,
    function: Callable[..., T],
    calls: Iterable[tuple],
) -> Iterator[T]:
    """Yields the results of a function of the job and of the arguments of each call, as they
    come.
    """
    if workers is None:
        for arguments in calls:
            yield function(job, *arguments)
        return
    futures = [workers.submit(function, *arguments) for arguments in calls]
    for future in concurrent.futures.as_completed(futures):
        result, warnings = future.result()
        for warning in warnings:
            errors.warn(*warning)
        yield result


def _distribute(
    job: ShardJob,
    runs: Sequence[Sequence[str]],
    read_lines: Callable[[str], Iterable[str]],
    workers: WorkerProcesses | None,
) -> list[list[Piece]]:
    """Distributes the documents of runs of files, each in one process, and returns the text of each
    shard.
    """
    with writing.saying_why(job.work_folder):
        # Processes of a killed run may still write to the folder that they have begun.
        text_folder = tempfile.mkdtemp(prefix=_TEXT_PREFIX, dir=job.work_folder)
    calls = []
    for number, input_files in enumerate(runs):
        folder = os.path.join(text_folder, f"{number:03}")
        files.make_folder(folder)
        calls.append((folder, input_files, read_lines))
    progress = Progress("parts of the text distributed", len(calls))
    distributed: dict[str, DistributedFiles] = {}
    # A single run stays in this process, which shows its progress.
    if len(calls) == 1:
        workers = None
    for folder, result in _results(job, workers, _distribute_run, calls):
        distributed[folder] = result
        if len(calls) > 1:
            progress(len(distributed))
    ordered = [(folder, distributed[folder]) for folder, *_ in calls]
    pieces, num_documents = assign_pieces(ordered, job.num_shards)
    logging.info("%d documents in %d shards", num_documents, job.num_shards)
    return pieces


def _distribute_run(
    job: ShardJob,
    folder: str,
    input_files: Sequence[str],
    read_lines: Callable[[str], Iterable[str]],
) -> tuple[str, DistributedFiles]:
    progress = Progress("documents distributed")
    return folder, distribute(input_files, folder, job.num_shards, progress, read_lines)


def _make_all(
    job: ShardJob, text: Sequence[Sequence[Piece]], workers: WorkerProcesses | None
) -> list[dict]:
    reports: dict[int, dict] = {}
    progress, start_secs = Progress("shards", job.num_shards), time.monotonic()
    num_records, num_made, num_kept = 0, 0, 0
    for number, report, is_kept in _results(job, workers, _make_or_keep, enumerate(text)):
        reports[number] = report
        num_records += report["records"]
        num_made += 0 if is_kept else report["records"]
        num_kept += is_kept
        speed = num_made / (time.monotonic() - start_secs)
        progress(len(reports), f"{num_records} records, {speed:.0f} a second")
    if num_kept:
        logging.info("kept %d finished shards of an earlier run", num_kept)
    return [reports[number] for number in range(job.num_shards)]


def _make_or_keep(job: ShardJob, number: int, text: Sequence[Piece]) -> tuple[int, dict, bool]:
    """Makes a shard, unless an earlier run has, and deletes its text; returns number, report,
    and if it is kept.
    """
    key = _compute_key(job, text)
    report = _read_finished_report(job, number, key)
    is_kept = report is not None
    if not is_kept:
        stream = job.part.shard_stream(number) if job.part else number
        result = make_shard(stream, text, job.finished_file(number), job.tokenizer, job.config)
        report = {"key": key, **result}
        with writing.replacing(job.report_file(number), removes_left=False) as file:
            json.dump(report, file)
    for piece in text:
        files.remove(piece.path)
    return number, report, is_kept


def _compute_key(job: ShardJob, text: Sequence[Piece]) -> str:
    """Returns a digest of all that determines a shard's records but its number."""
    description = [job.described, text_digest(text) if text else ""]
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _read_finished_report(job: ShardJob, number: int, key: str) -> dict | None:
    """Returns the report of a shard that need not be made, because it is complete under one of
    its two names.
    """
    path = job.report_file(number)
    if not files.exists(path):
        return None
    try:
        report = reading.check_object(reading.read_json(path), path)
    except InputError:  # corrupt
        return None
    for record_file in (job.finished_file(number), job.record_file(number)):
        if report.get("key") == key and files.exists(record_file):
            if files.sha256(record_file) == report.get("sha256"):
                return report
            files.remove(record_file)  # corrupt
    return None


def _build_manifest(job: ShardJob, reports: Sequence[dict]) -> dict:
    """Describes the records: how they were made, counts, shares, and each file. Times and
    processes leave no trace.
    """
    counts = Counter()
    for report in reports:
        counts.update({name: value for name, value in report.items() if isinstance(value, int)})
    counts.pop("bytes")
    shares: dict[str, Callable[[], float]] = {
        "unknown_tokens": lambda: counts["unknown_tokens"] / counts["tokens"],
        "padding": lambda: (
            1 - counts["positions"] / (counts["records"] * job.config.pairs.max_seq_length)
        ),
        "random_next": lambda: counts["random_next"] / counts["records"],
        "truncated": lambda: counts["truncated"] / counts["records"],
        "predictions": lambda: counts["predictions"] / counts["positions"],
        "predictions_masked": lambda: counts["predictions_masked"] / counts["predictions"],
        "predictions_kept": lambda: counts["predictions_kept"] / counts["predictions"],
    }
    return {
        **job.described,
        "pieces_sha256": vocabulary_digest(job.tokenizer.vocab),
        "counts": dict(counts),
        "shares": {
            name: round(share(), 6)
            for name, share in shares.items()
            if counts["records"] and (counts["predictions"] or not name.startswith("predictions_"))
        },
        "shards": [
            {
                "file": os.path.basename(job.record_file(number)),
                **{name: report[name] for name in ("documents", "records", "bytes", "sha256")},
            }
            for number, report in enumerate(reports)
        ],
    }


def _warn_of_lone_documents(reports: Sequence[dict]):
    num_lone = sum(report["documents"] == 1 for report in reports)
    num_empty = sum(report["documents"] == 0 for report in reports)
    if num_lone:
        logging.warning(
            "%d of %d shards have one document, so random next sentences come from that document "
            "too; give a smaller --num_shards, or put blank lines between documents",
            num_lone,
            len(reports),
        )
    if num_empty:
        logging.warning(
            "%d of %d shards are empty; give a smaller --num_shards", num_empty, len(reports)
        )


def _give_names(job: ShardJob, manifest: dict):
    """Gives all files their names; the manifest, which says that they are complete, comes last."""
    files.make_folder(os.path.dirname(job.output_file) or ".")
    if files.exists(job.manifest_file):
        files.remove(job.manifest_file)
    for_each(functools.partial(_give_name, job), range(job.num_shards))
    with writing.replacing(job.manifest_file) as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")
    for number in range(job.num_shards):
        if files.exists(job.finished_file(number)):
            files.remove(job.finished_file(number))
        files.remove(job.report_file(number))


def _give_name(job: ShardJob, number: int):
    """Moves a finished shard to its place, or copies it there from another file system."""
    finished, record_file = job.finished_file(number), job.record_file(number)
    if not files.exists(finished):  # An earlier run may have been killed here.
        return
    if job.work_dir is None:
        files.rename(finished, record_file)
        return
    with files.open_file(finished, "rb") as source, writing.replacing(record_file, "wb") as target:
        shutil.copyfileobj(source, target, _COPIED_BYTES)


def log_manifest(manifest: dict, job: ShardJob) -> None:
    """Logs the counts and the files of a run, and warns if too many tokens are [UNK].

    Args:
        manifest: the manifest, as `write_shards` returns it.
        job: the job of the run.
    """
    counts, shares = manifest["counts"], manifest["shares"]
    logging.info(
        "%d documents, %d sentences, %d tokens",
        counts["documents"],
        counts["sentences"],
        counts["tokens"],
    )
    logging.info(", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    logging.info(
        "*** Wrote %d files %s-?????-of-?????, and %s ***",
        job.num_shards,
        job.output_file,
        job.manifest_file,
    )
    logging.info("Wrote %d total instances", counts["records"])
    warn_about_unknown(shares.get("unknown_tokens", 0.0))
