"""Makes pre-training records with Apache Beam: the runner of create_pretraining_data_beam.py.

In: text files, also of gs:// and other file systems that Beam knows, and a vocabulary. Out: the record files and the
manifest of create_pretraining_data.py --generator=sharded, byte for byte.
"""

import os
import pathlib

from official_bert.data.model_inputs import check_casing
from official_bert.data.pretraining import shards
from official_bert.data.pretraining.shards import log_manifest, shard_job
from official_bert.data.pretraining.text_formats import reader_of
from official_bert.data.records.record_files import log_files
from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.options.data_tools import BeamDataOptions
from official_bert.tokenization import FullTokenizer


def run(options: BeamDataOptions):
    try:
        from official_bert.data.pretraining import beam
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name}: is not installed; make a virtual environment with requirements-beam.txt "
            "(make install-beam) and run the script with its Python"
        ) from error
    if len(options.output_file) != 1:
        raise InputError(
            f"--output_file={','.join(options.output_file)}: the files are named by the script; give the beginning of "
            "their names"
        )
    options = resolve(options).options
    tokenizer = FullTokenizer(options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents)
    check_casing(tokenizer, options.vocab_file)
    sizes = beam.sizes_of(options.input_file)
    num_shards = options.num_shards or shards.default_num_shards(sizes.items(), beam.open_file)
    job = shard_job(options, options.output_file[0], num_shards, tokenizer)
    shards.check_no_others(job, beam.shards_beside(job.output_file))
    log_files("Reading from input files", list(sizes))
    _show_package_to_workers()
    reader = reader_of(options, beam.open_file)
    log_manifest(beam.write_shards(job, list(sizes), reader, options.pipeline_options), job)


def _show_package_to_workers():
    """Lets the processes of a local runner import this package from where it is."""
    own = str(pathlib.Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if own not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, *paths]))
