"""The generator `exact`: the original's instances in the original's order, about a hundred bytes
each.

Every draw is made in the original's order, so the random generator also ends in the same state. The
functions that draw work on tokens of any kind: on vocabulary ids here, and on strings in `compat`.
"""

import dataclasses
import random
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from official_bert.data.pretraining.documents import Documents
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.features import pretraining_features
from official_bert.io.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS] a [SEP] b [SEP]
_AT_ONCE = 1024  # instances whose features are made together
Token = TypeVar("Token", int, str)


def randbelow(n: int, getrandbits: Callable[[int], int]) -> int:
    """Draws an integer in [0, n) for n >= 1; `randint(a, b)` is `a + randbelow(b - a + 1, ...)`.

    Args:
        n: the number of possible results.
        getrandbits: draws an integer with this number of random bits, as
            `random.Random.getrandbits` does.
    """
    bits = n.bit_length()
    number = getrandbits(bits)
    while number >= n:
        number = getrandbits(bits)
    return number


def shuffle(items: MutableSequence, getrandbits: Callable[[int], int]) -> None:
    """Shuffles `items` in place, with the draws of `random.Random.shuffle`.

    Args:
        items: the items to shuffle.
        getrandbits: draws an integer with this number of random bits, as
            `random.Random.getrandbits` does.
    """
    last = len(items) - 1
    while last > 0:
        bits = (last + 1).bit_length()
        next_last = (1 << (bits - 1)) - 2
        for i in range(last, next_last, -1):  # every i whose i + 1 has this bit length
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            items[i], items[j] = items[j], items[i]
        last = next_last


class SentencePair(NamedTuple):
    """Tokens [a_begin, a_end) of one document and tokens [b_begin, b_end) of document `b_document`.

    `is_random_next` is True where segment B was drawn at random, even if the draw gave the document
    of segment A.
    """

    a_begin: int
    a_end: int
    b_document: int
    b_begin: int
    b_end: int
    is_random_next: bool


def sentence_pairs(
    document: int,
    num_documents: int,
    get_bounds: Callable[[int], Sequence[int]],
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[SentencePair]:
    """Yields the pairs of one pass over a document, in order.

    The caller must mask each pair, which draws from `rng`, before it requests the next pair: the
    original draws in this order.

    Args:
        document: the number of the document.
        num_documents: the number of all documents, from which random second segments come.
        get_bounds: maps a document to int[segments + 1], the token offsets at which its segments
            begin and end.
        max_seq_length: the length of a sequence in tokens, special ones included.
        short_seq_prob: the probability that the pairs are shorter.
        rng: the source of the draws.

    Raises:
        InputError: `max_seq_length` is too small for a pair.
    """
    max_num_tokens = max_seq_length - NUM_SPECIAL_TOKENS
    if max_num_tokens < 2:
        raise InputError(
            f"max_seq_length is {max_seq_length}; it must be at least {NUM_SPECIAL_TOKENS + 2}"
        )
    getrandbits = rng.getrandbits
    target = max_num_tokens
    if rng.random() < short_seq_prob:
        target = 2 + randbelow(max_num_tokens - 1, getrandbits)
    bounds = get_bounds(document)
    num_segments = len(bounds) - 1
    first = 0
    while first < num_segments:
        end = _segments_until(bounds, first, target)
        size = end - first
        middle = first + 1
        if size > 1:
            middle += randbelow(size - 1, getrandbits)
        a_begin = bounds[first]
        a_end = bounds[middle]
        is_random_next = size == 1 or rng.random() < 0.5
        if is_random_next:
            b_document = _another_document(document, num_documents, getrandbits)
            b_bounds = get_bounds(b_document)
            b_first = randbelow(len(b_bounds) - 1, getrandbits)
            b_target = target - (a_end - a_begin)
            b_last = _segments_until(b_bounds, b_first, b_target)
            b_begin = b_bounds[b_first]
            b_end = b_bounds[b_last]
            first = middle  # the segments that A left over start the next pair, as in the original
        else:
            b_document = document
            b_begin = a_end
            b_end = bounds[end]
            first = end
        a_begin, a_end, b_begin, b_end = truncated(
            a_begin, a_end, b_begin, b_end, max_num_tokens, rng.random
        )
        yield SentencePair(a_begin, a_end, b_document, b_begin, b_end, is_random_next)


def truncated(
    a_begin: int,
    a_end: int,
    b_begin: int,
    b_end: int,
    max_num_tokens: int,
    draw: Callable[[], float],
) -> tuple[int, int, int, int]:
    """Cuts two spans to `max_num_tokens` in all.

    The longer span (B on a tie) loses a token at a random end, until the spans are short enough.

    Args:
        a_begin: the offset of the first token of A.
        a_end: the offset behind the last token of A.
        b_begin: the offset of the first token of B.
        b_end: the offset behind the last token of B.
        max_num_tokens: the largest number of tokens of both spans together.
        draw: draws a number in [0, 1); below 0.5 the token is cut off the front.

    Returns:
        The four offsets after the cuts, in the order of the arguments.
    """
    a_length = a_end - a_begin
    b_length = b_end - b_begin
    while a_length + b_length > max_num_tokens:
        from_front = draw() < 0.5
        if a_length > b_length:
            a_begin += from_front
            a_length -= 1
        else:
            b_begin += from_front
            b_length -= 1
    return a_begin, a_begin + a_length, b_begin, b_begin + b_length


def _segments_until(bounds: Sequence[int], first: int, num_tokens: int) -> int:
    """Returns the end of the shortest run of segments from `first` on that has `num_tokens`
    tokens, if there are.
    """
    end = bisect_left(bounds, bounds[first] + num_tokens, first + 1)
    return min(end, len(bounds) - 1)


def _another_document(document: int, num_documents: int, getrandbits: Callable[[int], int]) -> int:
    """Draws a document other than `document`; after ten draws the last one counts, even if it is
    `document`.
    """
    for _ in range(10):
        other = randbelow(num_documents, getrandbits)
        if other != document:
            break
    return other


@dataclasses.dataclass(frozen=True)
class TokenSet(Generic[Token]):
    """The tokens that masking uses, as ids or as strings.

    Attributes:
        mask: [MASK].
        words: the whole vocabulary, special tokens included, from which random words are drawn.
        continues: returns whether a token continues a word, with "##".
    """

    mask: Token
    words: Sequence[Token]
    continues: Callable[[Token], bool]


def draw_masks(
    tokens: Sequence[Token],
    candidates: list[int],
    masks: MaskConfig,
    token_set: TokenSet[Token],
    rng: random.Random,
) -> tuple[list[int], list[Token]]:
    """Draws the masked positions, and the tokens that replace those at them.

    Args:
        tokens: the tokens of a sequence, special ones included.
        candidates: the positions that may be masked, in increasing order; they are shuffled in
            place.
        masks: how many positions are masked, and whether with whole words.
        token_set: the tokens that replace others.
        rng: the source of the draws.

    Returns:
        The positions and the tokens, both in the order of the draws.
    """
    count = num_predictions(
        len(tokens),
        masks.masked_lm_prob,
        masks.max_predictions_per_seq,
    )
    if masks.do_whole_word_mask:
        continues = list(map(token_set.continues, tokens))
        positions = draw_whole_words(candidates, continues, count, rng)
    else:
        positions = draw_positions(candidates, count, rng)
    return positions, replacements(tokens, positions, token_set.mask, token_set.words, rng)


def num_predictions(length: int, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """Returns the number of predictions in a sequence; a half rounds to the even number.

    Args:
        length: the number of tokens of the sequence, special ones included.
        masked_lm_prob: the share of the tokens that are predicted, at least one of them.
        max_predictions_per_seq: the largest number of predictions.
    """
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


def draw_positions(positions: list[int], count: int, rng: random.Random) -> list[int]:
    """Draws some of the positions, all with equal probability.

    Args:
        positions: the positions that may be masked; they are shuffled in place.
        count: the number of positions to draw. Of fewer positions, all are drawn.
        rng: the source of the draws.

    Returns:
        The drawn positions, in the order of the draws.
    """
    shuffle(positions, rng.getrandbits)
    return positions[:count]


def draw_whole_words(
    positions: list[int],
    continues: Sequence[bool],
    count: int,
    rng: random.Random,
) -> list[int]:
    """Draws whole words with at most `count` positions in all; a word that would exceed `count` is
    skipped.

    A token that continues a word, with "##", joins the word before it even across the [SEP] between
    the segments.

    Args:
        positions: the positions that may be masked, in increasing order.
        continues: whether each token of the sequence continues a word, with "##".
        count: the largest number of positions to draw.
        rng: the source of the draws.

    Returns:
        The drawn positions, word by word in the order of the draws.
    """
    words: list[list[int]] = []
    for position in positions:
        if words and continues[position]:
            words[-1].append(position)
        else:
            words.append([position])
    shuffle(words, rng.getrandbits)
    chosen: list[int] = []
    for word in words:
        if len(chosen) >= count:
            break
        if len(chosen) + len(word) <= count:
            chosen += word
    return chosen


def replacements(
    tokens: Sequence[Token],
    positions: list[int],
    mask: Token,
    words: Sequence[Token],
    rng: random.Random,
) -> list[Token]:
    """Draws the input token at each predicted position: 80 % [MASK], 10 % the token itself, 10 % a
    random word.

    The WordPieces of one word draw independently.

    Args:
        tokens: the tokens of the sequence, special ones included.
        positions: the predicted positions, in the order in which they were drawn.
        mask: [MASK].
        words: the whole vocabulary, special tokens included, from which random words are drawn.
        rng: the source of the draws.

    Returns:
        The input tokens, in the order of the positions.
    """
    draw = rng.random
    getrandbits = rng.getrandbits
    num_words = len(words)
    replaced = []
    for position in positions:
        if draw() < 0.8:
            replaced.append(mask)
        elif draw() < 0.5:
            replaced.append(tokens[position])
        else:
            replaced.append(words[randbelow(num_words, getrandbits)])
    return replaced


class Instances:
    """Instances over `documents`, in the order in which they were added."""

    def __init__(
        self,
        documents: Documents,
        vocabulary: InstanceVocabulary,
        max_seq_length: int,
        max_predictions_per_seq: int,
    ):
        self._ids = documents.ids
        self._vocabulary = vocabulary
        self._max_seq_length = max_seq_length
        self._max_predictions_per_seq = max_predictions_per_seq
        self._spans = array("q")  # a_begin, a_end, b_begin, b_end of each instance
        self._is_random_next = array("b")
        self._prediction_starts = array("q", [0])
        self._positions = array(np.min_scalar_type(max_seq_length).char)
        self._replacements = array(documents.ids.dtype.char)

    def __len__(self) -> int:
        return len(self._is_random_next)

    @property
    def num_random_next(self) -> int:
        """The number of instances whose second segment was drawn at random."""
        return sum(self._is_random_next)

    def append(
        self,
        pair: SentencePair,
        positions: list[int],
        replacements: list[int],
    ) -> None:
        """Adds an instance.

        Args:
            pair: the two segments, as offsets in `documents.ids`.
            positions: the masked positions in the sequence, in any order.
            replacements: the input ids at these positions, in the same order.
        """
        self._spans.extend((pair.a_begin, pair.a_end, pair.b_begin, pair.b_end))
        self._is_random_next.append(pair.is_random_next)
        self._positions.extend(positions)
        self._replacements.extend(replacements)
        self._prediction_starts.append(len(self._positions))

    def batches(self, order: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
        """Yields the record features of instances, 1024 instances at a time.

        Args:
            order: int64[n], the indices of the instances, in the order of the records.

        Yields:
            The features of a batch, as `features` returns them.
        """
        for start in range(0, len(order), _AT_ONCE):
            yield self.features(order[start : start + _AT_ONCE])

    def features(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the record features of some instances.

        Args:
            indices: int[batch], the indices of the instances, in the order of `append`.

        Returns:
            int32 or float32[batch, length] by name.
        """
        spans = _view_array(self._spans).reshape(-1, 4)[indices]
        a_begin, a_end, b_begin, b_end = spans.T[:, :, None]  # each [B, 1]
        b_first = a_end - a_begin + 2
        length = b_first + b_end - b_begin + 1

        position = np.arange(self._max_seq_length)  # [S]
        source = np.where(
            position < b_first,
            a_begin + position - 1,
            b_begin + position - b_first,
        )  # [B, S]
        input_ids = self._ids.take(source, mode="clip").astype(np.int32)
        is_sep = (position == b_first - 1) | (position == length - 1)
        input_ids[:, 0] = self._vocabulary.cls_id
        input_ids[is_sep] = self._vocabulary.sep_id
        input_ids[position >= length] = 0

        masked, positions, replacements = self._predictions(indices)
        masked_lm_ids = np.take_along_axis(input_ids, positions, axis=1) * masked
        rows, _ = masked.nonzero()
        input_ids[rows, positions[masked]] = replacements
        columns = (
            input_ids,
            position < length,
            (position >= b_first) & (position < length),
            positions,
            masked_lm_ids,
            masked,
            _view_array(self._is_random_next)[indices, None],
        )
        table = pretraining_features(self._max_seq_length, self._max_predictions_per_seq)
        return {
            feature.name: column.astype(feature.dtype)
            for feature, column in zip(table, columns, strict=True)
        }

    def _predictions(
        self,
        indices: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the masked positions of the chosen instances in increasing order.

        They are bool[batch, max_predictions_per_seq], false for padding; int64 of that shape, the
        positions, 0 for padding; and unsigned[masked positions of all], the input ids at them.
        """
        starts = _view_array(self._prediction_starts)
        begin = starts[indices, None]
        end = starts[indices + 1, None]
        prediction = np.arange(self._max_predictions_per_seq)
        masked = prediction < end - begin
        prediction_indices = np.where(masked, begin + prediction, 0)
        positions = np.full(masked.shape, self._max_seq_length)  # Padding comes last in the order.
        positions[masked] = _view_array(self._positions)[prediction_indices[masked]]
        order = np.argsort(positions, axis=1)
        sorted_indices = np.take_along_axis(prediction_indices, order, axis=1)
        positions = np.take_along_axis(positions, order, axis=1)
        replacements = _view_array(self._replacements)[sorted_indices[masked]]
        return masked, positions * masked, replacements


def _view_array(values: array) -> np.ndarray:
    return np.frombuffer(values, values.typecode)


def create_instances(
    documents: Documents,
    vocabulary: InstanceVocabulary,
    config: PairConfig,
    masks: MaskConfig,
    rng: random.Random,
    on_progress: Callable[[int], None] = lambda documents_done: None,
) -> tuple[Instances, np.ndarray]:
    """Makes `config.dupe_factor` passes over the documents.

    Args:
        documents: the corpus.
        vocabulary: the ids of the special tokens and of the words.
        config: how text becomes pairs.
        masks: how many tokens are masked, and which.
        rng: the source of all draws.
        on_progress: receives the number of documents visited in all passes.

    Returns:
        The instances as they were created, and int64[instances]: their indices in the order of the
        records.
    """
    shuffled = list(range(len(documents)))
    shuffle(shuffled, rng.getrandbits)

    def get_bounds(document: int) -> Sequence[int]:
        return documents.get_bounds(shuffled[document])

    instances = Instances(
        documents, vocabulary, config.max_seq_length, masks.max_predictions_per_seq
    )
    token_set = TokenSet(
        vocabulary.mask_id,
        vocabulary.word_ids,
        vocabulary.continues.__getitem__,
    )
    for visited in range(config.dupe_factor * len(documents)):
        pairs = sentence_pairs(
            visited % len(documents),
            len(documents),
            get_bounds,
            config.max_seq_length,
            config.short_seq_prob,
            rng,
        )
        for pair in pairs:
            a_ids = documents.ids[pair.a_begin : pair.a_end].tolist()
            b_ids = documents.ids[pair.b_begin : pair.b_end].tolist()
            tokens = [vocabulary.cls_id, *a_ids, vocabulary.sep_id, *b_ids, vocabulary.sep_id]
            a_end = len(a_ids) + 1
            candidates = [
                *range(1, a_end),
                *range(a_end + 1, len(tokens) - 1),
            ]
            positions, input_ids = draw_masks(tokens, candidates, masks, token_set, rng)
            instances.append(pair, positions, input_ids)
        on_progress(visited + 1)
    order = array("q", range(len(instances)))
    shuffle(order, rng.getrandbits)
    return instances, np.frombuffer(order, np.int64)
