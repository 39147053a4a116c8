"""The job of the generator `sharded`, made of the flags: what the local script and the one for Apache Beam share.

In: options. Out: the job, which says what is made of what, and is the same for both.
"""

import dataclasses
import hashlib
from collections.abc import Callable

from absl import logging

from official_bert import files
from official_bert.data.corpus.bulk_masks import MaskingSettings
from official_bert.data.corpus.instances import InstanceSettings
from official_bert.data.corpus.shard_files import ShardJob
from official_bert.data.corpus.sharded import ALGORITHM, ShardSettings
from official_bert.data.corpus.text_formats import LineReader, line_reader
from official_bert.errors import InputError
from official_bert.options.masking import MaskingOptions
from official_bert.options.pretraining_data import SHARDED, RecordsOptions
from official_bert.tokenization import FullTokenizer

MASKING = tuple(field.name for field in dataclasses.fields(MaskingSettings))
# The flags that determine the records of the generator `sharded`, beside the text and the vocabulary.
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
    "compression",
    "input_format",
    "split_sentences",
    *MASKING,
)


def shard_job(
    options: RecordsOptions, output_file: str, num_shards: int, tokenizer: FullTokenizer
) -> ShardJob:
    """Returns the job.

    Args:
        options: the options of the script.
        output_file: the beginning of the names of all files.
        num_shards: the number of record files.
        tokenizer: encodes the text.

    Raises:
        InputError: flags contradict each other.
    """
    flags = {name: getattr(options, name) for name in _DETERMINING}
    return ShardJob(
        output_file,
        num_shards,
        tokenizer,
        ShardSettings(
            instances=instance_settings(options),
            masking=_settings_of_records(options),
            random_seed=options.random_seed,
            compression=options.compression,
        ),
        {
            "generator": SHARDED,
            "algorithm": ALGORITHM,
            "flags": flags | {"num_shards": num_shards},
            "vocabulary_sha256": _vocabulary_hash(options.vocab_file),
        },
    )


def instance_settings(options: RecordsOptions) -> InstanceSettings:
    """Returns the settings that both generators share."""
    return InstanceSettings(
        max_seq_length=options.max_seq_length,
        dupe_factor=options.dupe_factor,
        short_seq_prob=options.short_seq_prob,
        masked_lm_prob=options.masked_lm_prob,
        max_predictions_per_seq=options.max_predictions_per_seq,
        do_whole_word_mask=options.do_whole_word_mask,
    )


def reader_of(options: RecordsOptions, open_file: Callable = files.open_file) -> LineReader:
    """Returns the reader of the corpus."""
    return line_reader(options.input_format, options.split_sentences, options.strict, open_file)


def log_manifest(manifest: dict, job: ShardJob):
    """Logs what was made."""
    counts, shares = manifest["counts"], manifest["shares"]
    logging.info(
        "%d documents, %d sentences, %d tokens", counts["documents"], counts["sentences"], counts["tokens"]
    )
    logging.info(", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    logging.info(
        "*** Wrote %d files %s-?????-of-?????, and %s ***", job.num_shards, job.output_file, job.manifest_file
    )
    logging.info("Wrote %d total instances", counts["records"])


def masking_settings(options: MaskingOptions) -> MaskingSettings:
    """Returns the settings of the masks.

    Raises:
        InputError: they contradict each other.
    """
    if options.mask_token_rate + options.random_token_rate > 1 + 1e-9:
        raise InputError(
            f"--mask_token_rate={options.mask_token_rate} and "
            f"--random_token_rate={options.random_token_rate}: their sum "
            "is above 1; lower one of them"
        )
    if options.ngram_masking > 1 and not options.do_whole_word_mask:
        raise InputError(
            f"--ngram_masking={options.ngram_masking}: masks spans of whole words; add --do_whole_word_mask"
        )
    rates = ("mask_token_rate", "random_token_rate", "ngram_masking")
    return MaskingSettings(**{name: getattr(options, name) for name in rates})


def _settings_of_records(options: RecordsOptions) -> MaskingSettings:
    """Returns the settings of the masks of records, which may have none."""
    if not options.mask_tokens:
        for field in dataclasses.fields(MaskingOptions):
            if getattr(options, field.name) != field.default:
                raise InputError(
                    f"--{field.name}: records of --nomask_tokens have no masks; give the flag to run_pretraining.py"
                )
    settings = masking_settings(options)
    return dataclasses.replace(
        settings, use_next_sentence=options.use_next_sentence, mask_tokens=options.mask_tokens
    )


def _vocabulary_hash(path: str) -> str:
    with files.open_file(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
