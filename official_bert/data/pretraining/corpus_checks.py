"""Warnings of a corpus whose form defeats what the records are made for, though every line of it
can be read.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from official_bert.io import errors, files
from official_bert.tokenization import FullTokenizer

_FEWEST_RECORDS, _FEWEST_TOKENS = 100, 200  # fewer say nothing about the corpus
_USUAL_SHARES = 0.4, 0.6  # of random next sentences, which are half of all pairs that have a choice
_MIN_CONTINUED_SHARE = 0.005  # English text has a twentieth to a fifth of such tokens
_LINES_READ = 1000


def check_next_sentences(
    num_random: int, num_records: int, num_documents: int, num_sentences: int
) -> None:
    """Warns if the label of the next sentence is nearly always the same, so that a model learns
    nothing from it.

    Args:
        num_random: the number of records whose second segment was drawn at random.
        num_records: the number of all records; of fewer than 100 there is no warning.
        num_documents: the number of documents of the corpus.
        num_sentences: the number of sentences of the corpus; with the number of documents, it
            decides which remedy the warning names.
    """
    if num_records < _FEWEST_RECORDS:
        return
    share, (lowest, highest) = num_random / num_records, _USUAL_SHARES
    if lowest <= share <= highest:
        return
    if num_sentences < 2 * num_documents:
        remedy = (
            "most documents are one sentence: put blank lines between documents, not between their "
            "sentences"
        )
    else:
        remedy = (
            "documents with more and shorter sentences, or a larger --max_seq_length, bring it "
            "nearer to half"
        )
    errors.warn(
        "%.1f %% of the next sentences are random, where half of them should be; %s",
        100 * share,
        remedy,
    )


def check_whole_words(ids: np.ndarray, tokenizer: FullTokenizer) -> None:
    """Warns if --do_whole_word_mask changes next to nothing, because hardly a word has several
    pieces.

    Args:
        ids: int[tokens], the ids of the text; of fewer than 200 there is no warning.
        tokenizer: the tokenizer of these ids.
    """
    continues = np.zeros(max(tokenizer.inv_vocab) + 1, bool)
    continues[[index for piece, index in tokenizer.vocab.items() if piece.startswith("##")]] = True
    num_continued = int(continues[ids].sum())
    if len(ids) >= _FEWEST_TOKENS and num_continued < _MIN_CONTINUED_SHARE * len(ids):
        errors.warn(
            "--do_whole_word_mask has next to no effect: %d of %d tokens continue a word, with ##; "
            "every Chinese character is a word of its own",
            num_continued,
            len(ids),
        )


def first_ids(
    input_files: Sequence[str], tokenizer: FullTokenizer, read_lines: Callable[[str], Iterable[str]]
) -> np.ndarray:
    """Returns the ids of the first thousand lines; none if they could not be read a second time.

    Args:
        input_files: the files of the corpus, in order. A pipe or a device cannot be read again.
        tokenizer: the tokenizer that encodes the lines.
        read_lines: a function of a file's name that yields its lines.

    Returns:
        int[tokens], the ids of all lines in order.

    Raises:
        InputError: a file cannot be read.
    """
    if any(map(files.is_special, input_files)):
        return np.zeros(0, np.int64)
    lines = itertools.chain.from_iterable(map(read_lines, input_files))
    ids, _ = tokenizer.encode_lines(list(itertools.islice(lines, _LINES_READ)))
    return ids
