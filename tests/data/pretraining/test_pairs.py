"""The pairs of whole shards: each segment is used, B comes from elsewhere, truncation is that of
the slow function.

The original's algorithm itself is compared with its recordings and an oracle in tests/commands and
tests/compat.
"""

import dataclasses
import random

import numpy as np
import pytest

from official_bert.data.pretraining import one_shard, random_streams
from official_bert.data.pretraining.documents import Documents
from official_bert.data.pretraining.exact import sentence_pairs, truncated
from official_bert.data.pretraining.settings import InstanceVocabulary, PairConfig
from official_bert.io.errors import InputError

KEY = random_streams.stream(1)


def make_documents(*segment_lengths: list[int]) -> Documents:
    """Documents whose segments have these lengths; token k of all has the id k."""
    flat_lengths = [length for document in segment_lengths for length in document]
    num_segments = [len(document) for document in segment_lengths]
    return Documents(
        np.arange(sum(flat_lengths)),
        np.cumsum([0, *flat_lengths]),
        np.cumsum([0, *num_segments]),
    )


def make_random_documents(number: int = 40) -> Documents:
    rng = np.random.default_rng(0)
    segment_lengths = []
    for _ in range(number):
        num_segments = rng.integers(1, 30)
        lengths = rng.integers(1, 20, num_segments)
        segment_lengths.append(lengths.tolist())
    return make_documents(*segment_lengths)


def make_config(
    num_passes=3,
    max_num_tokens=29,
    with_next=True,
    short_seq_prob=0.1,
) -> PairConfig:
    num_special_tokens = 3 if with_next else 2
    return PairConfig(
        max_seq_length=max_num_tokens + num_special_tokens,
        short_seq_prob=short_seq_prob,
        dupe_factor=num_passes,
        use_next_sentence=with_next,
    )


def make_chunks(documents, **changes) -> one_shard.Chunks:
    """The chunks of all passes, as one."""
    config = make_config(**changes)
    parts = list(one_shard.make_chunks(documents, config, KEY))
    values = {}
    for field in dataclasses.fields(one_shard.Chunks):
        part_values = [getattr(part, field.name) for part in parts]
        values[field.name] = np.concatenate(part_values)
    return one_shard.Chunks(**values)


@pytest.mark.parametrize("with_next", [True, False])
def test_every_segment_is_used_once_in_each_pass_before_truncation(with_next):
    documents = make_random_documents()
    chunks = make_chunks(documents, with_next=with_next)
    num_segments = len(documents.segment_starts) - 1
    num_uses = np.zeros(num_segments, int)
    for first, end in zip(chunks.a_first, chunks.a_end, strict=True):
        num_uses[first:end] += 1
    is_next = ~chunks.is_random_next
    next_first = chunks.b_first[is_next]
    next_end = chunks.b_end[is_next]
    for first, end in zip(next_first, next_end, strict=True):
        num_uses[first:end] += 1
    assert (num_uses == 3).all()


def test_the_next_segments_follow_and_the_random_ones_come_from_another_document():
    documents = make_random_documents()
    chunks = make_chunks(documents, num_passes=50)
    is_random = chunks.is_random_next
    assert 0.4 < is_random.mean() < 0.8
    is_other_document = chunks.b_document != chunks.document
    follows = chunks.b_first == chunks.a_end
    assert is_other_document[is_random].all()
    assert follows[~is_random].all()

    starts = documents.document_starts
    a_segments = (chunks.document, chunks.a_first, chunks.a_end)
    b_segments = (chunks.b_document, chunks.b_first, chunks.b_end)
    for document, first, end in (a_segments, b_segments):
        assert (starts[document] <= first).all()
        assert (first < end).all()
        assert (end <= starts[document + 1]).all()
    counts = np.bincount(
        chunks.b_document[is_random],
        minlength=len(documents),
    )
    assert (counts > 0).all()


def test_with_two_documents_the_other_one_is_drawn_and_with_one_the_same():
    two_documents = make_documents([3, 3], [4])
    chunks = make_chunks(two_documents)
    is_random = chunks.is_random_next
    is_other_document = chunks.b_document == 1 - chunks.document
    assert is_random.any()
    assert is_other_document[is_random].all()

    one_document = make_documents([5, 5, 5])
    chunks = make_chunks(one_document)
    assert (chunks.b_document == 0).all()


def test_a_chunk_ends_where_the_target_is_reached():
    # The target is ten tokens: 4 + 2 + 4 reach it, whatever becomes of the chunk.
    documents = make_documents([4, 2, 4, 9], [7])
    chunks = make_chunks(
        documents,
        num_passes=1,
        max_num_tokens=10,
        with_next=False,
        short_seq_prob=0.0,
    )
    bounds = np.stack([chunks.a_first, chunks.a_end], axis=1)
    assert sorted(bounds.tolist()) == [
        [0, 3],
        [3, 4],
        [4, 5],
    ]


def test_a_short_pass_aims_at_every_shorter_length():
    documents = make_documents([1] * 400)
    chunks = make_chunks(
        documents,
        num_passes=400,
        max_num_tokens=12,
        with_next=False,
        short_seq_prob=1.0,
    )
    sizes = chunks.a_end - chunks.a_first
    is_first_chunk = chunks.a_first == 0
    counts = np.bincount(sizes[is_first_chunk], minlength=13)
    expected = 400 / 11
    standard_error = np.sqrt(expected)
    assert counts[:2].tolist() == [0, 0]
    assert counts[2:].min() > expected - 4 * standard_error


def truncate_pairs(documents: Documents, room: int, key: int):
    """Each document's two segments as a pair, truncated to so much room."""
    first = documents.document_starts[:-1]
    numbers = np.arange(len(documents))
    chunks = one_shard.Chunks(
        document=numbers,
        a_first=first,
        a_end=first + 1,
        b_document=numbers,
        b_first=first + 1,
        b_end=first + 2,
        is_random_next=np.ones(len(documents), bool),
        keys=random_streams.stream(key, numbers),
    )
    return one_shard.truncated(chunks, documents, room)


@pytest.mark.parametrize("room", [2, 5, 10, 11])
def test_truncation_is_that_of_the_slow_function_but_for_the_draws(room):
    rng = random.Random(room)
    pair_lengths = []
    for _ in range(300):
        a_length = rng.randint(1, 30)
        b_length = rng.randint(1, 30)
        pair_lengths.append([a_length, b_length])
    documents = make_documents(*pair_lengths)
    pairs = truncate_pairs(documents, room, room)
    for row, (full_a_length, full_b_length) in enumerate(pair_lengths):
        a_begin = pairs.a_begin[row]
        b_begin = pairs.b_begin[row]
        a_length = pairs.a_length[row]
        b_length = pairs.b_length[row]
        a_first, a_end, b_first, b_end = truncated(
            0,
            full_a_length,
            0,
            full_b_length,
            room,
            rng.random,
        )
        assert a_length == a_end - a_first
        assert b_length == b_end - b_first
        is_too_long = full_a_length + full_b_length > room
        assert pairs.is_truncated[row] == is_too_long

        a_start = documents.segment_starts[2 * row]
        b_start = a_start + full_a_length
        end = b_start + full_b_length
        assert a_start <= a_begin <= b_start - a_length
        assert b_start <= b_begin <= end - b_length


def test_tokens_are_cut_off_either_end_with_equal_probability():
    documents = make_documents(*[[14, 4]] * 4000)
    # The pairs have 18 tokens: four of A's tokens are cut off.
    pairs = truncate_pairs(documents, 14, 2)
    a_starts = documents.segment_starts[:-1:2]
    cut_off_front = pairs.a_begin - a_starts
    counts = np.bincount(cut_off_front, minlength=5)
    shares = np.array([1, 4, 6, 4, 1]) / 16
    expected = 4000 * shares
    standard_errors = np.sqrt(expected)
    assert (abs(counts - expected) < 4 * standard_errors).all()


@pytest.mark.parametrize("num_cut", [4, 200])
def test_the_cuts_of_a_and_b_are_independent(num_cut):
    """Each side loses num_cut tokens. More than 64 need several random words of 64 bits."""
    num_pairs = 4000
    num_kept = 10
    length = num_kept + num_cut
    documents = make_documents(*[[length, length]] * num_pairs)
    pairs = truncate_pairs(documents, 2 * num_kept, 5)
    assert (pairs.a_length == num_kept).all()
    assert (pairs.b_length == num_kept).all()
    cut_off_a = pairs.a_begin - documents.segment_starts[:-1:2]
    cut_off_b = pairs.b_begin - documents.segment_starts[1::2]
    correlation = np.corrcoef(cut_off_a, cut_off_b)[0, 1]
    # The correlation would be 1 if both cuts used the same random bits.
    standard_error = 1 / np.sqrt(num_pairs)
    assert abs(correlation) < 4 * standard_error


def test_scans_in_blocks_are_the_scans_at_once(monkeypatch):
    documents = make_random_documents(20)
    pairs = one_shard.make_pairs(documents, make_config(), KEY)
    monkeypatch.setattr(one_shard, "SCANS_AT_ONCE", 7)
    block_pairs = one_shard.make_pairs(documents, make_config(), KEY)
    keys = pairs.keys.tolist()
    block_keys = block_pairs.keys.tolist()
    assert sorted(block_keys) == sorted(keys)
    assert len(set(keys)) == len(pairs)


@pytest.mark.parametrize("with_next", [True, False])
def test_scans_one_after_the_other_are_the_scans_at_once(monkeypatch, with_next):
    """As the last passes over the longest documents advance, in blocks that end within a
    document.
    """
    long_document = [3, 9, 4] * 400
    short_documents = [[5, 20, 1]] * 30
    documents = make_documents(long_document, *short_documents)
    config = make_config(with_next=with_next)

    def make_sorted_pairs(few_scans: int, pairs_at_once: int) -> list[np.ndarray]:
        monkeypatch.setattr(one_shard, "FEW_SCANS", few_scans)
        monkeypatch.setattr(one_shard, "PAIRS_AT_ONCE", pairs_at_once)
        pairs = one_shard.make_pairs(documents, config, KEY)
        order = np.argsort(pairs.keys)
        return [values[order] for values in vars(pairs).values()]

    expected_pairs = make_sorted_pairs(0, 1)
    for few_scans, pairs_at_once in ((10, 64), (1000, 7)):
        pairs = make_sorted_pairs(few_scans, pairs_at_once)
        for values, expected in zip(pairs, expected_pairs, strict=True):
            np.testing.assert_array_equal(values, expected)


def test_a_length_without_room_for_both_sides_is_refused():
    documents = [[0, 3]]
    pairs = sentence_pairs(
        0,
        1,
        documents.__getitem__,
        4,
        0.1,
        random.Random(1),
    )
    with pytest.raises(InputError, match="max_seq_length is 4; it must be at least 5"):
        list(pairs)


def test_vocabulary_with_repeated_pieces():
    # Lines a, [CLS], ##b, a, [SEP], [MASK], [UNK]: the repeated WordPiece keeps its position and
    # has its last id.
    vocab = {
        "a": 3,
        "[CLS]": 1,
        "##b": 2,
        "[SEP]": 4,
        "[MASK]": 5,
        "[UNK]": 6,
    }
    vocabulary = InstanceVocabulary.from_vocab(vocab)
    assert vocabulary.word_ids == [3, 1, 2, 4, 5, 6]
    assert vocabulary.continues == [False, False, True, False, False, False, False]
    assert vocabulary.cls_id == 1
    assert vocabulary.sep_id == 4
    assert vocabulary.mask_id == 5
