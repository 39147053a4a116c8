import importlib
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import create_pretraining_data
import run_classifier
import run_squad
from official_bert.data.records.framing import read_examples
from official_bert.io.errors import InputError
from tests import toy
from tests.oracles.plain_instances import plain_instances
from tests.shared import ROOT

TOY_INSTANCES = """\
[CLS] a train left the [MASK] at noon . [SEP] [MASK] single cat document here . [SEP] | 10 | 1 | 5 station, 10 one, 12 line
[CLS] one single line document here . [SEP] [MASK] on board [MASK] the driver wave ##d his hand . rain [MASK] [MASK] fall [SEP] | 8 | 1 | 8 was, 11 ., 20 start, 21 ##ed
[CLS] the cat sat on the mat . [SEP] no ##body [MASK] on board [MASK] [SEP] | 9 | 1 | 11 was, 14 .
[CLS] child ##ren were play ##ing foot [MASK] [MASK] [SEP] one single line document here [MASK] [SEP] | 10 | 1 | 7 ##ball, 8 ., 15 .
[CLS] rain [MASK] ##ed fall [MASK] soon after . [SEP] one single line document [MASK] . [SEP] | 10 | 1 | 2 start, 5 ##ing, 14 here
[CLS] it was a [MASK] ##ny [MASK] in [MASK] park . [SEP] no ##body was on board . [SEP] | 12 | 1 | 4 sun, 6 day, 8 the
[CLS] one single line document [MASK] . [SEP] a [MASK] ##ny day in the park . [MASK] ##ren were play ##ing document ##ball [SEP] | 8 | 1 | 5 here, 9 sun, 16 child, 21 foot
[CLS] [MASK] train left the station at [MASK] . [SEP] no ##body was [MASK] board . the driver wave ##d [MASK] hand . [SEP] | 10 | 0 | 1 a, 7 noon, 13 on, 20 his
[CLS] the cat sat on the mat . [SEP] [MASK] a [MASK] [MASK] day in the park . child [MASK] were play ##ing [SEP] | 9 | 0 | 9 was, 11 sun, 12 ##ny, 19 ##ren
[CLS] no ##body was [MASK] board . the driver [MASK] ##d his hand . [SEP] rain start [MASK] fall ##ing soon after [MASK] [SEP] | 15 | 0 | 4 on, 9 wave, 17 ##ed, 22 .
"""
TOY_WHOLE_WORD_INSTANCES = """\
[CLS] one [MASK] line document here . [SEP] was on board . the [MASK] wave ##d his [MASK] [MASK] rain start ##ed fall [SEP] | 8 | 1 | 2 single, 13 driver, 17 hand, 18 .
[CLS] the driver wave ##d his [MASK] . [SEP] one single line document [MASK] . [SEP] | 9 | 1 | 6 hand, 13 here
"""


def as_line(instance) -> str:
    predictions = zip(instance.masked_lm_positions, instance.masked_lm_labels, strict=True)
    parts = (
        " ".join(instance.tokens),
        instance.segment_ids.index(1),
        int(instance.is_random_next),
        ", ".join(f"{position} {label}" for position, label in predictions),
    )
    return " | ".join(map(str, parts)) + "\n"


@pytest.fixture
def toy_instances(tmp_path, tokenizer):
    def create(**keywords):
        return create_pretraining_data.create_training_instances(
            [toy.write_text(tmp_path)],
            tokenizer,
            24,
            2,
            0.1,
            0.15,
            4,
            random.Random(12345),
            **keywords,
        )

    return create


def test_the_originals_instances(toy_instances):
    assert "".join(map(as_line, toy_instances())) == TOY_INSTANCES


def test_the_originals_whole_word_instances(toy_instances):
    instances = toy_instances(do_whole_word_mask=True)
    assert len(instances) == 12
    assert "".join(map(as_line, instances[:2])) == TOY_WHOLE_WORD_INSTANCES


# [CLS] never comes from text, but may be given.
words = st.sampled_from(["a", "b", "##c", "d", "##e", "[CLS]", "[UNK]"])
corpora = st.lists(
    st.lists(st.lists(words, min_size=1, max_size=9), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(
    corpora,
    st.integers(5, 40),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_follows_the_rules_on_any_corpus(
    documents, max_seq_length, short_seq_prob, whole_word, seed
):
    expected_rng, rng = random.Random(seed), random.Random(seed)
    vocab_words = ["[MASK]", "a", "##c", "d"]
    expected = plain_instances(
        documents,
        max_seq_length,
        2,
        short_seq_prob,
        5,
        vocab_words,
        expected_rng,
        whole_word,
    )

    shuffled = list(documents)
    rng.shuffle(shuffled)
    instances = [
        instance
        for _ in range(2)
        for index in range(len(shuffled))
        for instance in create_pretraining_data.create_instances_from_document(
            shuffled,
            index,
            max_seq_length,
            short_seq_prob,
            0.15,
            5,
            vocab_words,
            rng,
            do_whole_word_mask=whole_word,
        )
    ]
    rng.shuffle(instances)
    found = [
        (i.tokens, i.segment_ids, i.masked_lm_positions, i.masked_lm_labels, i.is_random_next)
        for i in instances
    ]
    assert found == expected
    assert rng.getstate() == expected_rng.getstate()


def test_truncates_in_place():
    a, b, rng = list("abcd"), list("xyz"), random.Random(4)
    create_pretraining_data.truncate_seq_pair(a, b, 4, rng)
    expected_a, expected_b, plain = list("abcd"), list("xyz"), random.Random(4)
    for longer in (expected_a, expected_b, expected_a):  # 4 > 3, then the tie 3 = 3, then 3 > 2
        longer.pop(0 if plain.random() < 0.5 else -1)
    assert (a, b) == (expected_a, expected_b)


def test_writes_instances(tmp_path, tokenizer, toy_instances):
    instances = toy_instances()
    paths = [str(tmp_path / "a.tfrecord"), str(tmp_path / "b.tfrecord")]
    create_pretraining_data.write_instance_to_example_files(instances, tokenizer, 30, 6, paths)
    files = [[example for _, example in read_examples(path)] for path in paths]
    assert [len(examples) for examples in files] == [5, 5]
    written = files[1][0]  # instance 1
    assert (
        written["input_ids"].tolist()
        == tokenizer.convert_tokens_to_ids(instances[1].tokens) + [0] * 6
    )
    assert written["input_mask"].tolist() == [1] * 24 + [0] * 6
    assert written["segment_ids"].tolist() == [0] * 8 + [1] * 16 + [0] * 6
    assert written["masked_lm_positions"].tolist() == [8, 11, 20, 21, 0, 0]
    assert written["masked_lm_ids"].tolist() == [11, 49, 39, 40, 0, 0]
    np.testing.assert_array_equal(written["masked_lm_weights"], np.float32([1, 1, 1, 1, 0, 0]))
    assert written["next_sentence_labels"].tolist() == [1]


def test_an_instance_that_does_not_fit_is_named(tmp_path, tokenizer, toy_instances):
    path = tmp_path / "a.tfrecord"
    with pytest.raises(InputError, match="instance 0: input_ids has 17 values, more than the 16"):
        create_pretraining_data.write_instance_to_example_files(
            toy_instances(),
            tokenizer,
            16,
            4,
            [str(path)],
        )
    assert not path.exists()


def test_the_small_names_of_the_original():
    instance = create_pretraining_data.TrainingInstance(["[CLS]", "a"], [0, 0], [1], ["the"], False)
    fields = (
        "tokens: [CLS] a\nsegment_ids: 0 0\nis_random_next: False\nmasked_lm_positions: "
        "1\nmasked_lm_labels: the"
    )
    assert str(instance) == repr(instance) == f"{fields}\n\n"
    assert create_pretraining_data.MaskedLmInstance(index=1, label="the") == (1, "the")
    assert create_pretraining_data.create_int_feature([3, 1]).int64_list.value == [3, 1]
    assert create_pretraining_data.create_float_feature([0.5]).float_list.value == [0.5]
    assert run_squad._get_best_indexes([1.0, 3.0, 3.0, 2.0], 3) == [1, 2, 3]
    assert run_squad._compute_softmax([0.0, math.log(3.0)]) == pytest.approx([0.25, 0.75])
    assert run_squad._compute_softmax([]) == []
    first, second = ["a", "b"], ["c", "d", "e"]
    run_classifier._truncate_seq_pair(first, second, 3)
    assert (first, second) == (["a", "b"], ["c"])


@pytest.mark.parametrize(
    "full_name",
    [
        "create_pretraining_data.FLAGS",
        "run_classifier.processors",
        "run_squad._improve_answer_span",
        "run_pretraining.model_fn_builder",
        "extract_features.main",
        "official_bert.optimization.create_optimizer",
    ],
)
def test_a_name_that_is_gone_is_answered_with_the_page_that_has_it(full_name):
    module_name, _, name = full_name.rpartition(".")
    module = importlib.import_module(module_name)
    message = rf"has no attribute '{name}'; .*docs/public_names.md says"
    with pytest.raises(AttributeError, match=message):
        getattr(module, name)
    page = ROOT / "docs" / "public_names.md"
    assert f"`{name}`" in page.read_text()
