"""The records of a shard: as those of the generator `exact` in distribution, and what they are
of odd texts.
"""

import collections
import dataclasses
import random

import numpy as np
import pytest
from scipy import stats

from examples import quickstart_corpus
from official_bert.data.pretraining import exact, one_shard
from official_bert.data.pretraining.documents import Piece, read_documents
from official_bert.data.pretraining.one_shard import ShardConfig, make_shard, shard_batches
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import read_examples
from official_bert.features import Feature, pretraining_features
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import in_test_long, recording

CLS = 101
SEP = 102
MASK = 103


def make_config(is_compressed=False, **changes) -> ShardConfig:
    """A config with changes of its pairs and masks."""
    pairs = PairConfig(
        max_seq_length=64,
        short_seq_prob=0.1,
        dupe_factor=4,
    )
    masks = MaskConfig(
        masked_lm_prob=0.15,
        max_predictions_per_seq=10,
    )
    pair_changes = {}
    mask_changes = {}
    for name, value in changes.items():
        if name in vars(pairs):
            pair_changes[name] = value
        else:
            mask_changes[name] = value
    return ShardConfig(
        pairs=dataclasses.replace(pairs, **pair_changes),
        masks=dataclasses.replace(masks, **mask_changes),
        random_seed=12345,
        is_compressed=is_compressed,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The help texts of Python, with the vocabulary that reads them."""
    documents = quickstart_corpus.documents(quickstart_corpus.help_texts())
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    document_texts = ["\n".join(document) + "\n" for document in documents]
    path.write_text("\n".join(document_texts), encoding="utf-8")
    tokenizer = FullTokenizer(str(recording("uncased_vocab.txt")))
    vocabulary = InstanceVocabulary.from_vocab(tokenizer.vocab)
    return read_documents([str(path)], tokenizer), vocabulary


def concatenate_batches(batches) -> dict[str, np.ndarray]:
    """Joins the batches of each feature."""
    parts = list(batches)
    features = {}
    for name in parts[0]:
        features[name] = np.concatenate([part[name] for part in parts])
    return features


def shard_records(documents, vocabulary, config, shard: int = 0) -> dict[str, np.ndarray]:
    batches = shard_batches(shard, documents, vocabulary, config)
    return concatenate_batches(features for features, _ in batches)


def exact_records(documents, vocabulary, config) -> dict[str, np.ndarray]:
    instances, order = exact.create_instances(
        documents,
        vocabulary,
        config.pairs,
        config.masks,
        random.Random(1),
    )
    return concatenate_batches(instances.batches(order))


def count_figures(records, max_seq_length) -> dict[str, tuple[int, int]]:
    """What is compared, as (number, number of all): shares of records, tokens and predictions."""
    lengths = records["input_mask"].sum(axis=1)
    positions = records["masked_lm_positions"]
    is_prediction = records["masked_lm_weights"] > 0
    tokens = np.take_along_axis(records["input_ids"], positions, axis=1)
    is_mask = tokens == MASK
    is_same = tokens == records["masked_lm_ids"]
    middles = lengths[:, None] // 2
    is_in_first_half = positions < middles

    num_records = len(lengths)
    num_predictions = int(is_prediction.sum())

    def count_in_records(is_counted) -> tuple[int, int]:
        return int(is_counted.sum()), num_records

    def count_in_predictions(is_counted) -> tuple[int, int]:
        return int(is_counted[is_prediction].sum()), num_predictions

    return {
        "random next": count_in_records(records["next_sentence_labels"]),
        "full length": count_in_records(lengths == max_seq_length),
        "predictions": (num_predictions, int(lengths.sum())),
        "[MASK]": count_in_predictions(is_mask),
        "kept": count_in_predictions(is_same),
        "first half masked": count_in_predictions(is_in_first_half),
    }


def segment_lengths(records) -> dict[str, np.ndarray]:
    lengths = records["input_mask"].sum(axis=1)
    b_lengths = records["segment_ids"].sum(axis=1)
    return {
        "A": lengths - b_lengths,
        "B": b_lengths,
        "both": lengths,
    }


@pytest.mark.parametrize(
    ("dupe_factor", "max_seq_length", "whole_words"),
    [
        (4, 64, False),
        *in_test_long(
            (60, 64, False),
            (60, 64, True),
            (100, 128, True),
        ),
    ],
)
def test_the_distribution_is_that_of_exact(corpus, dupe_factor, max_seq_length, whole_words):
    documents, vocabulary = corpus
    config = make_config(
        dupe_factor=dupe_factor,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_seq_length // 6,
        do_whole_word_mask=whole_words,
    )
    records = shard_records(documents, vocabulary, config)
    expected_records = exact_records(documents, vocabulary, config)
    num_records = len(records["input_ids"])
    num_expected = len(expected_records["input_ids"])
    if dupe_factor > 4:
        assert num_records >= 50_000
        assert num_expected >= 50_000

    figures = count_figures(records, max_seq_length)
    expected_figures = count_figures(expected_records, max_seq_length)
    assert figures.keys() == expected_figures.keys()
    for name, (count, total) in figures.items():
        expected_count, expected_total = expected_figures[name]
        share = (count + expected_count) / (total + expected_total)
        variance = share * (1 - share)
        inverse_totals = 1 / total + 1 / expected_total
        error = np.sqrt(variance * inverse_totals)
        difference = count / total - expected_count / expected_total
        assert abs(difference) < 4 * error, name

    # Records of a document vary between passes by about one in ten.
    num_scans = dupe_factor * len(documents)
    records_per_scan = num_records / num_scans
    error = np.sqrt(2 * num_scans * records_per_scan)
    assert abs(num_records - num_expected) < 4 * error

    expected_lengths = segment_lengths(expected_records)
    for name, lengths in segment_lengths(records).items():
        comparison = stats.ks_2samp(lengths, expected_lengths[name])
        assert comparison.pvalue > 1e-3, name


def prediction_values(record) -> tuple[np.ndarray, np.ndarray]:
    """The positions and the labels of a record's predictions, without the padding."""
    num_predictions = int(record["masked_lm_weights"].sum())
    positions = record["masked_lm_positions"][:num_predictions]
    labels = record["masked_lm_ids"][:num_predictions]
    return positions, labels


def unmasked_tokens(record) -> np.ndarray:
    """The tokens of a record with the labels of its predictions in their places."""
    positions, labels = prediction_values(record)
    tokens = record["input_ids"].copy()
    tokens[positions] = labels
    return tokens


def token_bytes(ids: np.ndarray) -> bytes:
    return ids.astype(np.uint16).tobytes()


def check_record(record: dict[str, np.ndarray], text: bytes):
    """Checks one record of at most 64 tokens and 10 predictions of a text of `token_bytes`."""
    mask = record["input_mask"]
    segment_ids = record["segment_ids"]
    length = int(mask.sum())
    b_length = int(segment_ids.sum())
    b_first = length - b_length
    padding = [0] * (64 - length)
    tokens_of_a = [0] * b_first
    tokens_of_b = [1] * b_length
    assert mask.tolist() == [1] * length + padding
    assert segment_ids.tolist() == [*tokens_of_a, *tokens_of_b, *padding]

    positions, _ = prediction_values(record)
    num_predictions = len(positions)
    special_positions = [0, b_first - 1, length - 1]
    wanted_predictions = max(1, round(length * 0.15))
    assert num_predictions == min(10, wanted_predictions)
    assert sorted(set(positions.tolist())) == positions.tolist()
    assert not record["masked_lm_positions"][num_predictions:].any()
    assert not record["masked_lm_ids"][num_predictions:].any()
    assert not np.isin(special_positions, positions).any()

    tokens = unmasked_tokens(record)
    assert tokens[special_positions].tolist() == [CLS, SEP, SEP]
    assert not tokens[length:].any()
    a_tokens = tokens[1 : b_first - 1]
    b_tokens = tokens[b_first : length - 1]
    assert len(a_tokens)
    assert len(b_tokens)
    assert token_bytes(a_tokens) in text
    assert token_bytes(b_tokens) in text
    both = np.concatenate([a_tokens, b_tokens])
    follows = token_bytes(both) in text
    is_random = record["next_sentence_labels"][0] == 1
    assert follows or length == 64 or is_random


def test_a_record_is_two_spans_of_the_text_with_a_few_tokens_replaced(corpus):
    documents, vocabulary = corpus
    config = make_config(dupe_factor=1)
    records = shard_records(documents, vocabulary, config)
    text = token_bytes(documents.ids)
    every_seventh = range(0, len(records["input_ids"]), 7)
    for row in every_seventh:
        record = {name: values[row] for name, values in records.items()}
        check_record(record, text)


def test_passes_and_shards_have_separate_draws_and_passes_are_mixed(corpus):
    documents, vocabulary = corpus
    config = make_config()
    ids = shard_records(documents, vocabulary, config, shard=0)["input_ids"]
    other_ids = shard_records(documents, vocabulary, config, shard=1)["input_ids"]
    counts = collections.Counter(row.tobytes() for row in ids)
    other_rows = {row.tobytes() for row in other_ids}
    shared_rows = counts.keys() & other_rows
    # A very short record may come twice.
    assert max(counts.values()) <= 2
    assert len(counts) > 0.99 * len(ids)
    assert len(shared_rows) < 0.01 * len(counts)

    # Neighbours in the file are seldom neighbours in the text: the tokens after their [CLS] are
    # equal as rarely as by chance.
    first_tokens = ids[:, 1]
    token_shares = np.bincount(first_tokens) / len(first_tokens)
    chance = float((token_shares**2).sum())
    standard_error = np.sqrt(chance / len(first_tokens))
    is_equal = first_tokens[1:] == first_tokens[:-1]
    equal_share = is_equal.mean()
    assert abs(equal_share - chance) < 4 * standard_error


def test_single_segments_hold_the_whole_text_without_next_sentences(corpus):
    documents, vocabulary = corpus
    config = make_config(
        dupe_factor=2,
        short_seq_prob=0.0,
        use_next_sentence=False,
        masked_lm_prob=0.0,
    )
    batches = []
    num_truncated = 0
    for features, counts in shard_batches(0, documents, vocabulary, config):
        batches.append(features)
        num_truncated += counts["truncated"]
    records = concatenate_batches(batches)
    ids = records["input_ids"]
    lengths = records["input_mask"].sum(axis=1)
    num_records = len(lengths)
    last_tokens = ids[np.arange(num_records), lengths - 1]
    num_predictions = records["masked_lm_weights"].sum(axis=1)
    assert not records["segment_ids"].any()
    assert not records["next_sentence_labels"].any()
    assert (ids == SEP).sum() == num_records
    assert (last_tokens == SEP).all()
    assert (ids[:, 0] == CLS).all()
    assert (num_predictions == 1).all()

    is_full = lengths == 64
    assert 0 < num_truncated <= is_full.sum()
    num_special_tokens = 2 * num_records
    num_tokens = lengths.sum() - num_special_tokens
    assert num_tokens <= 2 * len(documents.ids)


def test_spans_and_replacement_rates_are_those_of_the_flags(corpus):
    """Spans of 1 to 4 words have (1 + 1 + 1 + 1) / (1 + 1/2 + 1/3 + 1/4) = 1.92 words on
    average.
    """
    documents, vocabulary = corpus
    mean_run_lengths = {}
    for max_span_words in (1, 4):
        config = make_config(
            do_whole_word_mask=True,
            ngram_masking=max_span_words,
            mask_token_rate=0.0,
            random_token_rate=1.0,
        )
        records = shard_records(documents, vocabulary, config)
        positions = records["masked_lm_positions"]
        is_prediction = records["masked_lm_weights"] > 0
        follows = np.diff(positions, axis=1) == 1
        continues_run = follows & is_prediction[:, 1:]
        num_predictions = is_prediction.sum()
        num_runs = num_predictions - continues_run.sum()
        mean_run_lengths[max_span_words] = num_predictions / num_runs

        tokens = np.take_along_axis(records["input_ids"], positions, axis=1)
        is_mask = records["input_ids"] == MASK
        is_same = tokens == records["masked_lm_ids"]
        assert is_mask.mean() < 1e-4
        assert is_same[is_prediction].mean() < 0.01
    ratio = mean_run_lengths[4] / mean_run_lengths[1]
    assert 1.4 < ratio < 1.92


def test_a_feature_that_the_generator_does_not_make_is_an_error(corpus, monkeypatch):
    def with_another(*lengths):
        return (*pretraining_features(*lengths), Feature("topics", 1, "int32"))

    monkeypatch.setattr(one_shard, "pretraining_features", with_another)
    with pytest.raises(KeyError, match="topics"):
        next(shard_batches(0, *corpus, make_config()))


def make_text_shard(tmp_path, tokenizer, text: str, **changes):
    """Makes a shard of a text; returns its report and its records."""
    text_file = tmp_path / "text"
    text_file.write_text(text)
    output_file = str(tmp_path / "out")
    report = make_shard(
        3,
        [Piece(str(text_file))],
        output_file,
        tokenizer,
        make_config(**changes),
    )
    records = [example for _, example in read_examples(output_file)]
    return report, records


def test_a_single_document_is_paired_with_itself(tmp_path, tokenizer):
    report, records = make_text_shard(tmp_path, tokenizer, "The cat sat on the mat.\n")
    sentence = tokenizer.encode("the cat sat on the mat.")
    expected = [2, *sentence, 3, *sentence, 3]
    # One record in each pass.
    assert len(records) == 4
    assert report["records"] == 4
    for record in records:
        tokens = unmasked_tokens(record)
        assert record["next_sentence_labels"].tolist() == [1]
        assert tokens[:17].tolist() == expected


def test_gzip_holds_the_same_records(tmp_path, tokenizer):
    plain_report, plain_records = make_text_shard(tmp_path, tokenizer, toy.TEXT)
    report, records = make_text_shard(
        tmp_path,
        tokenizer,
        toy.TEXT,
        is_compressed=True,
    )
    header = (tmp_path / "out").read_bytes()[:8]
    assert header == b"\x1f\x8b\x08\0\0\0\0\0", (
        "neither a name nor a time, so that equal records give equal bytes"
    )
    assert report["bytes"] < plain_report["bytes"]
    assert report["sha256"] != plain_report["sha256"]
    for record, expected in zip(records, plain_records, strict=True):
        np.testing.assert_equal(record, expected)


def test_the_report_counts_what_is_in_the_file(tmp_path, tokenizer):
    document_without_tokens = "\n\x01\n\n"
    unknown_document = "\nunknown words stand here .\n\n\n"
    text = document_without_tokens + toy.TEXT + unknown_document
    report, records = make_text_shard(tmp_path, tokenizer, text, max_seq_length=24)
    assert report["documents"] == 4
    assert report["sentences"] == 9
    assert report["tokens"] == 65
    assert report["unknown_tokens"] == 3
    output = (tmp_path / "out").read_bytes()
    assert report["bytes"] == len(output)

    counts = collections.Counter()
    for record in records:
        positions, labels = prediction_values(record)
        tokens = record["input_ids"][positions]
        is_mask = tokens == 4
        is_same = (tokens == labels) & ~is_mask
        counts["random_next"] += int(record["next_sentence_labels"][0])
        counts["positions"] += int(record["input_mask"].sum())
        counts["predictions"] += int(record["masked_lm_weights"].sum())
        counts["predictions_masked"] += int(is_mask.sum())
        counts["predictions_kept"] += int(is_same.sum())
    assert len(counts) == 5
    for name, count in counts.items():
        assert report[name] == count, name
