"""Makes pre-training records of raw text: the runner of create_pretraining_data.py.

In: text files and a vocabulary. Out: TFRecord files, which get their names only when all of them
are complete.
"""

import dataclasses
import os
import random

from absl import logging

from official_bert import catalog
from official_bert.data.model_inputs import FIRST_TEXTS, check_casing, check_unknown
from official_bert.data.pretraining import corpus_checks, shards
from official_bert.data.pretraining.documents import Documents, read_documents
from official_bert.data.pretraining.exact import create_instances
from official_bert.data.pretraining.settings import InstanceVocabulary, mask_config, pair_config
from official_bert.data.pretraining.shards import SHARDED_ONLY_FLAGS, log_manifest, shard_job
from official_bert.data.pretraining.text_formats import ending_documents, line_reader
from official_bert.data.records.framing import open_example_files
from official_bert.data.records.parts import Part
from official_bert.data.records.record_files import log_files, write_features
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked
from official_bert.io.progress import Progress
from official_bert.model_source import resolve
from official_bert.options.data_tools import SHARDED, PretrainingDataOptions
from official_bert.tokenization import FullTokenizer

_SHARDED_ONLY_FLAGS = (*SHARDED_ONLY_FLAGS, "num_shards", "part", "work_dir")


def run(options: PretrainingDataOptions, waits: bool = False) -> random.Random | None:
    """Writes the records.

    Args:
        options: the flags of create_pretraining_data.py.
        waits: whether to wait while another process makes the same shards.

    Returns:
        The random generator behind the last record of --generator=exact; None for other generators.

    Raises:
        InputError: a file or a flag cannot be used.
    """
    for choose_engine in catalog.hooks("data_engine"):
        if engine := choose_engine(options):
            engine(options)
            return None
    source = resolve(options)
    options = source.options
    tokenizer = FullTokenizer(
        source.vocab_file, bool(options.do_lower_case), strip_accents=options.strip_accents
    )
    vocabulary = InstanceVocabulary.from_vocab(tokenizer.vocab)
    check_casing(tokenizer, source.vocab_file)
    if options.generator == SHARDED:
        _run_sharded(options, tokenizer, waits)
        return None
    return _run_exact(options, tokenizer, vocabulary)


def _run_exact(
    options: PretrainingDataOptions, tokenizer: FullTokenizer, vocabulary: InstanceVocabulary
) -> random.Random:
    for field in dataclasses.fields(options):
        if field.name in _SHARDED_ONLY_FLAGS and getattr(options, field.name) != field.default:
            raise InputError(
                f"--{field.name}: --generator=exact makes the original's files and has no such "
                "choice; give --generator=sharded, or leave the flag out"
            )
    _keep_apart(options, options.output_file)
    shards.check_exact_names(options.output_file)
    input_files = files.expand(options.input_file, "input_file")
    # The outputs are opened first, so that a path that cannot be written does not waste hours.
    with open_example_files(options.output_file) as example_files:
        log_files("Reading from input files", input_files)
        read_lines = line_reader(options.input_format, options.split_sentences)
        documents = read_documents(
            input_files, tokenizer, options.num_workers, Progress("tokens read"), read_lines
        )
        _log_corpus(documents)
        num_first_ids = documents.segment_starts[:FIRST_TEXTS][-1]
        check_unknown(tokenizer, documents.ids[:num_first_ids])
        if options.do_whole_word_mask:
            corpus_checks.check_whole_words(documents.ids, tokenizer)
        rng = random.Random(options.random_seed)
        progress = Progress("documents visited", options.dupe_factor * len(documents))
        instances, order = create_instances(
            documents, vocabulary, pair_config(options), mask_config(options), rng, progress
        )
        num_sentences = len(documents.segment_starts) - 1
        corpus_checks.check_next_sentences(
            instances.num_random_next, len(order), len(documents), num_sentences
        )
        log_files("Writing to output files", options.output_file)
        write_features(instances.batches(order), example_files, tokenizer.inv_vocab)
    shards.write_exact_manifests(options, tokenizer.vocab)
    return rng


def _run_sharded(options: PretrainingDataOptions, tokenizer: FullTokenizer, waits: bool):
    output_file = _check_output_file(options)
    input_files = files.expand(options.input_file, "input_file")
    read_lines = line_reader(options.input_format, options.split_sentences)
    part_description = None
    if options.part is not None:
        part = Part.parse(options.part)
        part_description = part.describe(input_files, options.num_shards)
        input_files = part.select_files(input_files)
        read_lines = ending_documents(read_lines)
    num_shards = options.num_shards or shards.default_num_shards(_measure_files(input_files))
    job = shard_job(options, output_file, num_shards, tokenizer, part_description)
    _keep_apart(options, job.outputs())
    shards.check_places(job)
    shards.check_no_others(job)
    log_files("Reading from input files", input_files)
    try:
        with locked(job.work_folder, waits):
            if options.do_whole_word_mask:
                first_ids = corpus_checks.first_ids(input_files, tokenizer, read_lines)
                corpus_checks.check_whole_words(first_ids, tokenizer)
            manifest = shards.write_shards(job, input_files, options.num_workers, read_lines)
    finally:
        shards.remove_work_folder(job)
    log_manifest(manifest, job)
    counts = manifest["counts"]
    if options.use_next_sentence:
        corpus_checks.check_next_sentences(
            counts["random_next"], counts["records"], counts["documents"], counts["sentences"]
        )


def _check_output_file(options: PretrainingDataOptions) -> str:
    """Returns the beginning of the names of the sharded files."""
    if len(options.output_file) != 1:
        raise InputError(
            f"--output_file={','.join(options.output_file)}: --generator=sharded names its files "
            "itself; give the beginning of their names"
        )
    (output_file,) = options.output_file
    folder, name = os.path.split(output_file)
    if not name or (not files.is_remote(output_file) and files.is_folder(output_file)):
        raise InputError(
            f"{output_file}: is a folder; give the beginning of the names of files in it"
        )
    if files.is_special(output_file):
        raise InputError(
            f"--output_file={output_file}: is a device or a pipe; give the beginning of the names "
            "of files"
        )
    if options.work_dir is not None and not os.path.isdir(options.work_dir):
        raise InputError(
            f"--work_dir={options.work_dir}: is no folder of this machine; make it, or name another"
        )
    if not files.is_remote(output_file) and not files.is_folder(folder or "."):
        raise InputError(
            f"{output_file}: cannot be written (No such file or directory); make the folder "
            f"{folder}"
        )
    return output_file


def _measure_files(input_files: list[str]) -> list[tuple[str, int]]:
    """Returns each path with the size of its file in bytes."""
    for path in input_files:
        if files.is_special(path):
            raise InputError(
                f"{path}: has no size to choose the number of shards by; give --num_shards"
            )
    return [(path, files.size(path)) for path in input_files]


def _keep_apart(options: PretrainingDataOptions, outputs: list[str]):
    writing.keep_apart(
        outputs, {"input_file": options.input_file, "vocab_file": [options.vocab_file]}
    )


def _log_corpus(documents: Documents):
    logging.info(
        "%d documents, %d sentences, %d tokens",
        len(documents),
        len(documents.segment_starts) - 1,
        len(documents.ids),
    )
    if len(documents) == 1:
        logging.warning(
            "the text is one document, so random next sentences come from that document too; put a "
            "blank line between documents"
        )
