"""The options of the scripts that make and inspect data: vocabularies and records."""

import dataclasses
import re

from official_bert.options.fields import (
    LENGTH,
    MAX_LENGTH,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    PROCESSES,
    SEED,
    SIZE,
    between,
    option,
)
from official_bert.options.shared import (
    CorpusOptions,
    MaskingOptions,
    ModelOptions,
    TokenizerOptions,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions(CorpusOptions):
    """The flags of build_vocab."""

    input_file: list[str] = option(
        help="The raw text to learn from: files or glob patterns, separated by commas."
    )
    output_file: str = option(help="The vocabulary file to write, with one piece a line.")
    vocab_size: int = option(
        30522,
        check=SIZE,
        help="The number of lines of the vocabulary. If the text has fewer pieces, [unusedN] fill "
        "the rest.",
    )
    do_lower_case: bool = option(
        True,
        help="Lower-case the text before learning. create_pretraining_data.py needs the same "
        "value.",
    )
    strip_accents: bool | None = option(
        None,
        help="Remove accents from the text, which also splits the syllables of Korean. Without "
        "this flag the script removes accents when it lower-cases. create_pretraining_data.py "
        "needs the same value.",
    )
    character_coverage: float = option(
        0.9999,
        check=PROBABILITY,
        help="The proportion of the text's characters that the vocabulary covers, the most "
        "frequent first. A word with another character becomes [UNK]. 1 covers every character.",
    )


EXACT, SHARDED = "exact", "sharded"
MAX_SHARDS = 99_999  # five digits in the names
MAX_PARTS = 99_999  # the same
PART = r"0*([1-9]\d{0,4})/0*([1-9]\d{0,4})"  # the number of a part and that of all parts
MIN_SEQ_LENGTH = 5  # [CLS], [SEP], [SEP] and a token on each side


def _is_part(text: str) -> bool:
    match = re.fullmatch(PART, text)
    return match is not None and int(match[1]) <= int(match[2])


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions(MaskingOptions, CorpusOptions, TokenizerOptions):
    """The flags of create_pretraining_data.py."""

    input_file: list[str] = option(
        help="The raw text: files or glob patterns, separated by commas. The text has one sentence "
        "a line and a blank line between documents. --input_format and --split_sentences are for "
        "other text."
    )
    vocab_file: str | None = option(
        None,
        basic=True,
        help="The WordPiece vocabulary of the model, a file with one piece a line. You need it "
        "unless you pass --model.",
    )
    split_sentences: bool = option(
        False,
        basic=True,
        help="Split each line into sentences by simple rules, so that a line may be a paragraph.",
    )
    output_file: list[str] = option(
        help="The TFRecord files to write, separated by commas. The instances are written to the "
        "files in turn. With --generator=sharded it is the beginning of the names of all files, "
        "such as NAME-00000-of-00064. Files whose name ends in .gz are compressed with gzip, such "
        "as NAME-00000-of-00064.gz."
    )
    max_seq_length: int = option(
        128,
        basic=True,
        check=between(MIN_SEQ_LENGTH, MAX_LENGTH, ", three special tokens and one on each side"),
        help="The length of a sequence in tokens, special ones included. Shorter sequences are "
        "padded to it.",
    )
    max_predictions_per_seq: int = option(
        20,
        basic=True,
        check=LENGTH,
        help="The maximum number of masked tokens of a sequence.",
    )
    random_seed: int = option(
        12345,
        check=SEED,
        help="The seed of all random draws. The same seed, text and flags give the same records.",
    )
    dupe_factor: int = option(
        10,
        basic=True,
        check=POSITIVE,
        help="The number of passes over the text. Every pass draws new pairs and new masks.",
    )
    short_seq_prob: float = option(
        0.1,
        check=PROBABILITY,
        help="The probability that the sequences of a document have a random, shorter length in a "
        "pass.",
    )
    use_next_sentence: bool = option(
        True,
        help="Make pairs of segments for next-sentence prediction. --nouse_next_sentence, with "
        "--generator=sharded, makes single segments of up to --max_seq_length tokens; "
        "next_sentence_labels is then always 0.",
    )
    dynamic_masking: bool = option(
        False,
        help="With --generator=sharded, write records without masks. run_pretraining.py "
        "--dynamic_masking then draws new masks in each pass.",
    )
    num_shards: int | None = option(
        None,
        check=between(1, MAX_SHARDS),
        help="With --generator=sharded, the number of files. The records depend on it. By default "
        "a file has 32 MiB of text, or less if there would be fewer than 16 files, but at least 1 "
        "MiB.",
    )
    part: str | None = option(
        None,
        check=(
            _is_part,
            "must be the number of a part, from 1, and that of all parts, such as 3/256",
        ),
        help="With --generator=sharded, make one part of the records, such as 3/256: of every "
        "256th input file, from the third on. Several machines make the parts, each with the same "
        "other flags, and pre-training reads them all. --num_shards is the number of files of each "
        "part.",
    )
    work_dir: str | None = option(
        None,
        help="With --generator=sharded, a local folder for unfinished files, such as one of a fast "
        "disk. By default they are beside --output_file, or in the temporary folder of this "
        "machine if --output_file is remote.",
    )
    generator: str = option(
        EXACT,
        basic=True,
        choices=(EXACT, SHARDED),
        help="exact makes the original's records in the original's order, and keeps the whole text "
        "in memory. sharded makes other records with the same distribution, several times faster "
        "and with several processes, and its memory does not grow with the text.",
    )
    num_workers: int = option(
        1,
        basic=True,
        check=PROCESSES,
        help="The number of processes that tokenize the text, and with --generator=sharded also "
        "make the records. The records do not depend on it. --generator=sharded keeps the files "
        "that a killed run has finished.",
    )

    @property
    def resume_hint(self) -> str:
        """The hint for a user who interrupted the run."""
        is_kept = self.generator == SHARDED
        return "the same command keeps the shards that are finished" if is_kept else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectionOptions(ModelOptions):
    """The flags of inspect_pretraining_data."""

    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by "
        "commas."
    )
    vocab_file: str | None = option(
        None,
        help="The vocabulary of the records. You need it unless you pass --model.",
    )
    num_records: int = option(
        5, check=NOT_NEGATIVE, help="The number of records that the script prints as text."
    )
