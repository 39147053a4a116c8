"""The pairs of whole shards: each segment is used, B comes from elsewhere, truncation is that of
the slow function.

The original's algorithm itself is compared with its recordings and an oracle in tests/commands and
tests/compat.
"""

import random

import numpy as np
import pytest

from official_bert.data.pretraining import one_shard, random_streams
from official_bert.data.pretraining.documents import Documents
from official_bert.data.pretraining.exact import sentence_pairs, truncated
from official_bert.data.pretraining.settings import InstanceVocabulary, PairConfig
from official_bert.io.errors import InputError

KEY = random_streams.stream(1)


def documents_of(*lengths: list[int]) -> Documents:
    """Documents whose segments have these lengths; token k of all has the id k."""
    flat = [length for document in lengths for length in document]
    return Documents(
        np.arange(sum(flat)), np.cumsum([0, *flat]), np.cumsum([0, *map(len, lengths)])
    )


def some_documents(number: int = 40) -> Documents:
    rng = np.random.default_rng(0)
    return documents_of(*[rng.integers(1, 20, rng.integers(1, 30)).tolist() for _ in range(number)])


def config_of(num_passes=3, max_num_tokens=29, with_next=True, short=0.1) -> PairConfig:
    return PairConfig(
        max_seq_length=max_num_tokens + (3 if with_next else 2),
        short_seq_prob=short,
        dupe_factor=num_passes,
        use_next_sentence=with_next,
    )


def chunks_of(documents, **changes):
    chunks = list(one_shard.make_chunks(documents, config_of(**changes), KEY))
    return [
        np.concatenate([getattr(part, name) for part in chunks])
        for name in (
            "document",
            "a_first",
            "a_end",
            "b_document",
            "b_first",
            "b_end",
            "is_random_next",
        )
    ]


@pytest.mark.parametrize("with_next", [True, False])
def test_every_segment_is_used_once_in_each_pass_before_truncation(with_next):
    documents = some_documents()
    _, a_first, a_end, _, b_first, b_end, is_random = chunks_of(documents, with_next=with_next)
    used = np.zeros(len(documents.segment_starts) - 1, int)
    for a, b, c, d, drawn in zip(a_first, a_end, b_first, b_end, is_random, strict=True):
        used[a:b] += 1
        if not drawn:
            used[c:d] += 1
    assert (used == 3).all()


def test_the_next_segments_follow_and_the_random_ones_come_from_another_document():
    documents = some_documents()
    document, a_first, a_end, b_document, b_first, b_end, is_random = chunks_of(
        documents, num_passes=50
    )
    assert 0.4 < is_random.mean() < 0.8
    assert (b_document[is_random] != document[is_random]).all()
    assert (b_first[~is_random] == a_end[~is_random]).all()
    starts = documents.document_starts
    for owner, first, end in ((document, a_first, a_end), (b_document, b_first, b_end)):
        assert (starts[owner] <= first).all()
        assert (first < end).all()
        assert (end <= starts[owner + 1]).all()
    counts = np.bincount(b_document[is_random], minlength=len(documents))
    assert (counts > 0).all()


def test_with_two_documents_the_other_one_is_drawn_and_with_one_the_same():
    document, _, _, b_document, _, _, is_random = chunks_of(documents_of([3, 3], [4]))
    assert is_random.any()
    assert (b_document[is_random] == 1 - document[is_random]).all()
    document, *_, b_document, _, _, is_random = (
        chunks_of(documents_of([5, 5, 5]))[i] for i in (0, 3, 4, 5, 6)
    )
    assert (b_document == 0).all()


def test_a_chunk_ends_where_the_target_is_reached():
    # Ten tokens are wanted: 4 + 2 + 4 reach them, whatever becomes of the chunk.
    documents = documents_of([4, 2, 4, 9], [7])
    _, a_first, a_end, *_ = chunks_of(
        documents, num_passes=1, max_num_tokens=10, with_next=False, short=0.0
    )
    assert sorted(zip(a_first.tolist(), a_end.tolist(), strict=True)) == [(0, 3), (3, 4), (4, 5)]


def test_a_short_pass_aims_at_every_shorter_length():
    documents = documents_of([1] * 400)
    a_first, a_end = chunks_of(
        documents, num_passes=400, max_num_tokens=12, with_next=False, short=1.0
    )[1:3]
    sizes = np.bincount((a_end - a_first)[a_first == 0], minlength=13)
    assert sizes[:2].tolist() == [0, 0]
    assert (sizes[2:] > 400 / 11 - 4 * np.sqrt(400 / 11)).all()


def truncated_pairs(documents: Documents, room: int, key: int):
    """Each document's two segments as a pair, truncated to so much room."""
    first = documents.document_starts[:-1]
    number = np.arange(len(documents))
    chunks = one_shard.Chunks(
        number,
        first,
        first + 1,
        number,
        first + 1,
        first + 2,
        number > -1,
        random_streams.stream(key, number),
    )
    return one_shard.truncated(chunks, documents, room)


def test_truncation_is_that_of_the_slow_function_but_for_the_draws():
    rng = random.Random(3)
    for room in (2, 5, 10, 11):
        lengths = [(rng.randint(1, 30), rng.randint(1, 30)) for _ in range(300)]
        documents = documents_of(*[[a, b] for a, b in lengths])
        pairs = truncated_pairs(documents, room, room)
        for row, (a, b) in enumerate(lengths):
            expected = truncated(0, a, 0, b, room, rng.random)
            found_a, found_b = pairs.a_length[row], pairs.b_length[row]
            assert (found_a, found_b) == (expected[1] - expected[0], expected[3] - expected[2])
            assert pairs.is_truncated[row] == (a + b > room)
            begin = documents.segment_starts[2 * row]
            assert begin <= pairs.a_begin[row] <= begin + a - found_a
            assert begin + a <= pairs.b_begin[row] <= begin + a + b - found_b


def test_tokens_are_cut_off_either_end_with_equal_probability():
    documents = documents_of(*[[14, 4]] * 4000)
    pairs = truncated_pairs(documents, 14, 2)  # four of A's tokens go
    cut_off_front = np.bincount(pairs.a_begin - documents.segment_starts[:-1:2], minlength=5)
    expected = 4000 * np.array([1, 4, 6, 4, 1]) / 16
    assert (abs(cut_off_front - expected) < 4 * np.sqrt(expected)).all()


@pytest.mark.parametrize("num_cut", [4, 200])
def test_the_cuts_of_a_and_b_are_independent(num_cut):
    """Each side loses num_cut tokens. More than 64 need several random words of 64 bits."""
    num_pairs, num_kept = 4000, 10
    length = num_kept + num_cut
    documents = documents_of(*[[length, length]] * num_pairs)
    pairs = truncated_pairs(documents, 2 * num_kept, 5)
    assert (pairs.a_length == num_kept).all()
    assert (pairs.b_length == num_kept).all()
    cut_off_a = pairs.a_begin - documents.segment_starts[:-1:2]
    cut_off_b = pairs.b_begin - documents.segment_starts[1::2]
    # The correlation would be 1 if both cuts used the same random bits.
    standard_error = 1 / np.sqrt(num_pairs)
    assert abs(np.corrcoef(cut_off_a, cut_off_b)[0, 1]) < 4 * standard_error


def test_scans_in_blocks_are_the_scans_at_once(monkeypatch):
    documents = some_documents(20)
    whole = one_shard.make_pairs(documents, config_of(), KEY)
    monkeypatch.setattr(one_shard, "_SCANS_AT_ONCE", 7)
    parts = one_shard.make_pairs(documents, config_of(), KEY)
    assert sorted(whole.keys.tolist()) == sorted(parts.keys.tolist())
    assert len(set(whole.keys.tolist())) == len(whole)


@pytest.mark.parametrize("with_next", [True, False])
def test_scans_one_after_the_other_are_the_scans_at_once(monkeypatch, with_next):
    """As the last passes over the longest documents advance, in blocks that end within a
    document.
    """
    documents = documents_of([3, 9, 4] * 400, *[[5, 20, 1]] * 30)
    found = []
    for few, at_once in ((0, 1), (10, 64), (1000, 7)):
        monkeypatch.setattr(one_shard, "_FEW_SCANS", few)
        monkeypatch.setattr(one_shard, "_PAIRS_AT_ONCE", at_once)
        pairs = one_shard.make_pairs(documents, config_of(with_next=with_next), KEY)
        found.append([values[np.argsort(pairs.keys)] for values in vars(pairs).values()])
    for others in found[1:]:
        for values, expected in zip(others, found[0], strict=True):
            np.testing.assert_array_equal(values, expected)


def test_a_length_without_room_for_both_sides_is_refused():
    with pytest.raises(InputError, match="max_seq_length is 4; it must be at least 5"):
        list(sentence_pairs(0, 1, [[0, 3]].__getitem__, 4, 0.1, random.Random(1)))


def test_vocabulary_with_repeated_pieces():
    # Lines a, [CLS], ##b, a, [SEP], [MASK], [UNK]: the repeated WordPiece keeps its position and
    # has its last id.
    vocabulary = InstanceVocabulary.from_vocab(
        {"a": 3, "[CLS]": 1, "##b": 2, "[SEP]": 4, "[MASK]": 5, "[UNK]": 6}
    )
    assert vocabulary.word_ids == [3, 1, 2, 4, 5, 6]
    assert vocabulary.continues == [False, False, True, False, False, False, False]
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (1, 4, 5)
