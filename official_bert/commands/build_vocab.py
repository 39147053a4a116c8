"""Learns a vocabulary from raw text: the runner of official-bert build_vocab.

In: text files. Out: a vocabulary file, which gets its name when it is complete.
"""

import collections
import time
from collections.abc import Collection

from absl import logging

from official_bert.data.pretraining.text_formats import LineReader, line_reader
from official_bert.data.pretraining.vocabulary import (
    ascii_characters,
    import_learner,
    learn_vocabulary,
    select_words,
)
from official_bert.io import files, writing
from official_bert.io.progress import Progress
from official_bert.options.data_tools import VocabularyOptions
from official_bert.tokenization import BasicTokenizer

# A piece of several characters has at least this frequency, even if lines are left.
_MIN_FREQUENCY = 2
# The pieces are learnt from the most frequent words. Time and memory grow with their number.
_MAX_WORDS = 500_000
_MAX_LISTED = 50  # characters that a log line names


def run(options: VocabularyOptions) -> None:
    """Counts the words of all files, learns the pieces and writes the vocabulary.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a file cannot be used, or the text has too few characters or pieces.
    """
    start_secs = time.monotonic()
    tokenizer = BasicTokenizer(options.do_lower_case, options.strip_accents)
    writing.keep_apart([options.output_file], {"input_file": options.input_file})
    input_files = files.expand(options.input_file, "input_file")
    # This imports TensorFlow. The learner may be missing, which should not waste the time of
    # counting words.
    import_learner()
    # The output is opened first, so that a path that cannot be written does not waste minutes.
    with writing.replacing(options.output_file) as file:
        counts = _count_words(input_files, tokenizer, line_reader(options.input_format))
        words = select_words(
            counts, options.character_coverage, _MAX_WORDS, ascii_characters(tokenizer)
        )
        logging.info(
            "learning from %d distinct words with %d characters: %.3f %% of all words",
            len(words.counts),
            len(words.characters),
            100 * words.share,
        )
        if words.left_out:
            logging.info(
                "Characters of the text that become [UNK]: %s; a higher --character_coverage keeps "
                "them",
                _list_characters(words.left_out),
            )
        vocabulary = learn_vocabulary(words, options.vocab_size, _MIN_FREQUENCY, tokenizer)
        file.writelines(f"{line}\n" for line in vocabulary.lines)
    if vocabulary.num_cut:
        logging.info(
            "%d rare pieces were left out because the vocabulary is full", vocabulary.num_cut
        )
    logging.info(
        "%s: %d lines, %d of them learnt, in %.0f s",
        options.output_file,
        options.vocab_size,
        vocabulary.num_learnt,
        time.monotonic() - start_secs,
    )


def _list_characters(characters: Collection[str]) -> str:
    """Returns the first characters, and how many others there are."""
    text = " ".join(sorted(characters)[:_MAX_LISTED])
    num_others = len(characters) - _MAX_LISTED
    return f"{text} and {num_others} others" if num_others > 0 else text


def _count_words(
    input_files: list[str], tokenizer: BasicTokenizer, read_lines: LineReader
) -> collections.Counter:
    counts: collections.Counter = collections.Counter()
    progress = Progress("lines read")
    num_lines = 0
    for name in input_files:
        for line in read_lines(name):
            counts.update(tokenizer.tokenize(line))
            num_lines += 1
            progress(num_lines)
        logging.info("%s read: %d words so far, %d distinct", name, counts.total(), len(counts))
    return counts
