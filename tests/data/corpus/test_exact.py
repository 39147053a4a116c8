"""The expected numbers are the original's output on the toy corpus."""

import hashlib
import random

import numpy as np
import pytest

from official_bert.data.corpus.documents import read_documents
from official_bert.data.corpus.exact import create_instances
from official_bert.data.corpus.instances import InstanceSettings, InstanceVocabulary
from official_bert.data.records.examples import encode_examples
from official_bert.tokenization import FullTokenizer
from tests import toy


@pytest.mark.parametrize(
    ("whole_word", "num_files", "num_instances", "next_random", "sha256"),
    [
        (
            False,
            2,
            10,
            0.3797177640003675,
            "941a5a06c8c2334e83cc1a63f6f55726762ea7f8e965d2fbe76f7371bb89101c",
        ),
        (
            True,
            1,
            12,
            0.07321264434084418,
            "f005c0ce609b1eb07756a6bc27c93115ca639fc20920f16f085716abb890c2e4",
        ),
    ],
)
def test_the_originals_records(tmp_path, whole_word, num_files, num_instances, next_random, sha256):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path))
    documents = read_documents([toy.write_text(tmp_path)], tokenizer)
    settings = InstanceSettings(
        max_seq_length=24,
        dupe_factor=2,
        short_seq_prob=0.1,
        masked_lm_prob=0.15,
        max_predictions_per_seq=4,
        do_whole_word_mask=whole_word,
    )
    rng, visited = random.Random(12345), []
    instances, order = create_instances(
        documents, InstanceVocabulary.of(tokenizer.vocab), settings, rng, visited.append
    )
    assert len(instances) == num_instances
    assert sorted(order) == list(range(num_instances))
    assert rng.random() == next_random
    assert visited == [1, 2, 3, 4, 5, 6]
    records = encode_examples(
        instances.features(np.concatenate([order[k::num_files] for k in range(num_files)]))
    )
    assert hashlib.sha256(b"".join(records)).hexdigest() == sha256
