"""The records of a shard: as those of the generator `exact` in distribution, and what they are
of odd texts.
"""

import collections
import dataclasses
import random

import numpy as np
import pytest
from scipy import stats

from examples.quickstart_corpus import documents as documents_of
from examples.quickstart_corpus import help_texts
from official_bert.data.pretraining import exact, one_shard
from official_bert.data.pretraining.documents import read_documents
from official_bert.data.pretraining.one_shard import ShardConfig, make_shard, shard_batches
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import read_examples
from official_bert.features import Feature, pretraining_features
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import in_test_long, recording

CLS, SEP, MASK = 101, 102, 103


def config_of(is_compressed=False, **changes) -> ShardConfig:
    """A config with changes of its pairs and masks."""
    pairs = PairConfig(max_seq_length=64, short_seq_prob=0.1, dupe_factor=4)
    masks = MaskConfig(masked_lm_prob=0.15, max_predictions_per_seq=10)
    of_pairs = {name: changes.pop(name) for name in vars(pairs) if name in changes}
    return ShardConfig(
        pairs=dataclasses.replace(pairs, **of_pairs),
        masks=dataclasses.replace(masks, **changes),
        random_seed=12345,
        is_compressed=is_compressed,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The help texts of Python, with the vocabulary that reads them."""
    found = documents_of(help_texts())
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n".join("\n".join(document) + "\n" for document in found), encoding="utf-8")
    tokenizer = FullTokenizer(str(recording("uncased_vocab.txt")))
    return read_documents([str(path)], tokenizer), InstanceVocabulary.from_vocab(tokenizer.vocab)


def joined(batches) -> dict[str, np.ndarray]:
    parts = list(batches)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def exact_records(documents, vocabulary, config) -> dict[str, np.ndarray]:
    made, order = exact.create_instances(
        documents, vocabulary, config.pairs, config.masks, random.Random(1)
    )
    return joined(made.batches(order))


def figures(records, max_seq_length) -> dict[str, tuple[int, int]]:
    """What is compared, as (number, number of all): shares of records, tokens and predictions."""
    lengths = records["input_mask"].sum(axis=1)
    is_masked = records["masked_lm_weights"] > 0
    at = np.take_along_axis(records["input_ids"], records["masked_lm_positions"], axis=1)
    masks, keeps = is_masked & (at == MASK), is_masked & (at == records["masked_lm_ids"])
    num_masked = int(is_masked.sum())
    return {
        "random next": (int(records["next_sentence_labels"].sum()), len(lengths)),
        "full length": (int((lengths == max_seq_length).sum()), len(lengths)),
        "predictions": (num_masked, int(lengths.sum())),
        "[MASK]": (int(masks.sum()), num_masked),
        "kept": (int(keeps.sum()), num_masked),
        "first half masked": (
            int((is_masked & (records["masked_lm_positions"] < lengths[:, None] // 2)).sum()),
            num_masked,
        ),
    }


@pytest.mark.parametrize(
    ("dupe_factor", "max_seq_length", "whole_words"),
    [(4, 64, False), *in_test_long((60, 64, False), (60, 64, True), (100, 128, True))],
)
def test_the_distribution_is_that_of_exact(corpus, dupe_factor, max_seq_length, whole_words):
    documents, vocabulary = corpus
    config = config_of(
        dupe_factor=dupe_factor,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_seq_length // 6,
        do_whole_word_mask=whole_words,
    )
    found = joined(features for features, _ in shard_batches(0, documents, vocabulary, config))
    expected = exact_records(documents, vocabulary, config)
    if dupe_factor > 4:
        assert min(len(found["input_ids"]), len(expected["input_ids"])) >= 50_000
    pairs = zip(
        figures(found, max_seq_length).items(),
        figures(expected, max_seq_length).values(),
        strict=True,
    )
    for (name, (count, total)), (other_count, other_total) in pairs:
        share = (count + other_count) / (total + other_total)
        error = np.sqrt(share * (1 - share) * (1 / total + 1 / other_total))
        assert abs(count / total - other_count / other_total) < 4 * error, name
    # Records of a document vary between passes by about one in ten.
    records, other_records = len(found["input_ids"]), len(expected["input_ids"])
    per_scan = records / (dupe_factor * len(documents))
    assert abs(records - other_records) < 4 * np.sqrt(2 * dupe_factor * len(documents) * per_scan)
    for length_of in (
        lambda records: (records["input_mask"] - records["segment_ids"]).sum(axis=1),
        lambda records: records["segment_ids"].sum(axis=1),
        lambda records: records["input_mask"].sum(axis=1),
    ):
        assert stats.ks_2samp(length_of(found), length_of(expected)).pvalue > 1e-3


def test_a_record_is_two_spans_of_the_text_with_a_few_tokens_replaced(corpus):
    documents, vocabulary = corpus
    config = config_of(dupe_factor=1)
    records = joined(features for features, _ in shard_batches(0, documents, vocabulary, config))
    text = documents.ids.astype(np.uint16).tobytes()
    for row in range(0, len(records["input_ids"]), 7):
        ids, mask, segments = (
            records[name][row] for name in ("input_ids", "input_mask", "segment_ids")
        )
        length, b_first = int(mask.sum()), int((mask - segments).sum())
        assert mask.tolist() == [1] * length + [0] * (64 - length)
        assert segments.tolist() == [0] * b_first + [1] * (length - b_first) + [0] * (64 - length)
        count = int(records["masked_lm_weights"][row].sum())
        positions = records["masked_lm_positions"][row]
        assert count == min(10, max(1, round(length * 0.15)))
        assert sorted(set(positions[:count].tolist())) == positions[:count].tolist()
        assert not positions[count:].any()
        assert not records["masked_lm_ids"][row, count:].any()
        original = ids.copy()
        original[positions[:count]] = records["masked_lm_ids"][row, :count]
        assert [original[0], original[b_first - 1], original[length - 1]] == [CLS, SEP, SEP]
        assert not original[length:].any()
        assert not {0, b_first - 1, length - 1}.intersection(positions[:count].tolist())
        a, b = original[1 : b_first - 1], original[b_first : length - 1]
        assert len(a)
        assert len(b)
        for segment in (a, b):
            assert segment.astype(np.uint16).tobytes() in text
        follows = np.concatenate([a, b]).astype(np.uint16).tobytes() in text
        assert follows or length == 64 or records["next_sentence_labels"][row, 0] == 1


def test_passes_and_shards_have_their_own_draws_and_passes_are_mixed(corpus):
    documents, vocabulary = corpus
    records, other = (
        joined(features for features, _ in shard_batches(shard, documents, vocabulary, config_of()))
        for shard in (0, 1)
    )
    rows = collections.Counter(row.tobytes() for row in records["input_ids"])
    assert max(rows.values()) <= 2  # a very short record may come twice
    assert len(rows) > 0.99 * len(records["input_ids"])
    assert len(rows.keys() & {row.tobytes() for row in other["input_ids"]}) < 0.01 * len(rows)
    # Neighbours in the file seldom are neighbours in the text: a shared token beside [CLS] is as
    # rare as by chance.
    first = records["input_ids"][:, 1]
    chance = float(((np.bincount(first) / len(first)) ** 2).sum())
    assert abs((first[1:] == first[:-1]).mean() - chance) < 4 * np.sqrt(chance / len(first))


def test_single_segments_hold_the_whole_text_without_next_sentences(corpus):
    documents, vocabulary = corpus
    config = config_of(
        dupe_factor=2, short_seq_prob=0.0, use_next_sentence=False, masked_lm_prob=0.0
    )
    records, counts = zip(*shard_batches(0, documents, vocabulary, config), strict=True)
    records = joined(records)
    lengths = records["input_mask"].sum(axis=1)
    assert not records["segment_ids"].any()
    assert not records["next_sentence_labels"].any()
    rows = np.arange(len(lengths))
    assert (records["input_ids"] == SEP).sum() == len(lengths)
    assert (records["input_ids"][rows, lengths - 1] == SEP).all()
    assert (records["input_ids"][:, 0] == CLS).all()
    assert (records["masked_lm_weights"].sum(axis=1) == 1).all()
    is_full = sum(count["truncated"] for count in counts)
    assert 0 < is_full <= (lengths == 64).sum()
    assert (lengths - 2).sum() <= 2 * len(documents.ids)


def test_spans_and_replacement_rates_are_those_of_the_flags(corpus):
    """Spans of 1 to 4 words have (1 + 1 + 1 + 1) / (1 + 1/2 + 1/3 + 1/4) = 1.92 words on
    average.
    """
    documents, vocabulary = corpus
    lengths = {}
    for longest in (1, 4):
        config = config_of(
            do_whole_word_mask=True,
            ngram_masking=longest,
            mask_token_rate=0.0,
            random_token_rate=1.0,
        )
        records = joined(
            features for features, _ in shard_batches(0, documents, vocabulary, config)
        )
        positions, is_masked = records["masked_lm_positions"], records["masked_lm_weights"] > 0
        neighbours = (np.diff(positions, axis=1) == 1) & is_masked[:, 1:]
        # Of a run of masked tokens.
        lengths[longest] = is_masked.sum() / (is_masked.sum() - neighbours.sum())
        assert (records["input_ids"] == MASK).mean() < 1e-4
        at = np.take_along_axis(records["input_ids"], positions, axis=1)
        assert (at == records["masked_lm_ids"])[is_masked].mean() < 0.01
    assert 1.4 < lengths[4] / lengths[1] < 1.92


def test_a_feature_that_the_generator_does_not_make_is_an_error(corpus, monkeypatch):
    def with_another(*lengths):
        return (*pretraining_features(*lengths), Feature("topics", 1, "int32"))

    monkeypatch.setattr(one_shard, "pretraining_features", with_another)
    with pytest.raises(KeyError, match="topics"):
        next(shard_batches(0, *corpus, config_of()))


def shard_of(tmp_path, tokenizer, text: str, **changes):
    """Makes a shard of a text; returns its report and its records."""
    (tmp_path / "text").write_text(text)
    path = str(tmp_path / "out")
    report = make_shard(3, str(tmp_path / "text"), path, tokenizer, config_of(**changes))
    return report, [example for _, example in read_examples(path)]


def test_one_document_is_its_own_random_one(tmp_path, tokenizer):
    report, records = shard_of(tmp_path, tokenizer, "The cat sat on the mat.\n")
    assert report["records"] == len(records) == 4  # one in each pass
    for record in records:
        assert record["next_sentence_labels"].tolist() == [1]
        ids = record["input_ids"].copy()
        count = int(record["masked_lm_weights"].sum())
        ids[record["masked_lm_positions"][:count]] = record["masked_lm_ids"][:count]
        sentence = tokenizer.encode("the cat sat on the mat.")
        assert ids[:17].tolist() == [2, *sentence, 3, *sentence, 3]


def test_gzip_holds_the_same_records(tmp_path, tokenizer):
    plain, records = shard_of(tmp_path, tokenizer, toy.TEXT)
    packed, others = shard_of(tmp_path, tokenizer, toy.TEXT, is_compressed=True)
    header = (tmp_path / "out").read_bytes()[:8]
    assert header == b"\x1f\x8b\x08\0\0\0\0\0", (
        "neither a name nor a time, so that equal records give equal bytes"
    )
    assert packed["bytes"] < plain["bytes"]
    assert packed["sha256"] != plain["sha256"]
    for one, other in zip(records, others, strict=True):
        np.testing.assert_equal(one, other)


def test_the_report_counts_what_is_in_the_file(tmp_path, tokenizer):
    # One document without tokens.
    text = "\n\x01\n\n" + toy.TEXT + "\nunknown words stand here .\n\n\n"
    report, records = shard_of(tmp_path, tokenizer, text, max_seq_length=24)
    assert (report["documents"], report["sentences"], report["tokens"]) == (4, 9, 65)
    assert report["random_next"] == sum(
        int(record["next_sentence_labels"][0]) for record in records
    )
    assert report["positions"] == sum(int(record["input_mask"].sum()) for record in records)
    assert report["predictions"] == sum(
        int(record["masked_lm_weights"].sum()) for record in records
    )
    masked = kept = 0
    for record in records:
        count = int(record["masked_lm_weights"].sum())
        at = record["input_ids"][record["masked_lm_positions"][:count]]
        masked += int((at == 4).sum())
        kept += int(((at == record["masked_lm_ids"][:count]) & (at != 4)).sum())
    assert (report["predictions_masked"], report["predictions_kept"]) == (masked, kept)
    assert report["unknown_tokens"] == 3
    assert report["bytes"] == (tmp_path / "out").stat().st_size
