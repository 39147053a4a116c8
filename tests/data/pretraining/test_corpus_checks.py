"""A corpus whose form defeats what the records are made for is warned of, once, with both
generators.
"""

import pytest

from official_bert.commands import create_pretraining_data
from official_bert.options.data_tools import PretrainingDataOptions
from tests import toy

SENTENCES = [
    "the cat sat on the mat .",
    "it was a sunny day .",
    "nobody waved .",
    "the dog sat in the park .",
]
CHINESE = "北京天安門我愛"
GENERATORS = ["exact", "sharded"]
RANDOM_NEXT = "% of the next sentences are random, where half of them should be"


def join_documents(documents: list[list[str]]) -> str:
    """The text of documents: their sentences in lines of their own, and blank lines between."""
    return "\n\n".join("\n".join(sentences) for sentences in documents)


@pytest.fixture
def warnings_of(tmp_path, caplog):
    """A function that makes records of a text and returns the warnings."""

    def warnings_of(text: str, generator: str, **flags) -> list[str]:
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        pieces = "\n".join([*toy.VOCABULARY, *CHINESE])
        (tmp_path / "vocab.txt").write_text(pieces, encoding="utf-8")
        options = PretrainingDataOptions(
            input_file=[str(tmp_path / "text.txt")],
            output_file=[str(tmp_path / "records")],
            vocab_file=str(tmp_path / "vocab.txt"),
            generator=generator,
            max_seq_length=32,
            max_predictions_per_seq=4,
            **flags,
        )
        create_pretraining_data.run(options)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    return warnings_of


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_blank_line_after_each_sentence_is_warned_of(warnings_of, generator):
    (warning,) = warnings_of("\n\n".join(SENTENCES * 10), generator)
    assert warning == (
        f"100.0 {RANDOM_NEXT}; most documents are one sentence: put blank lines between documents, "
        "not between their sentences"
    )


@pytest.mark.parametrize("generator", GENERATORS)
def test_documents_of_few_sentences_leave_too_few_pairs_in_their_order(warnings_of, generator):
    sentence = f"{SENTENCES[0]} " * 3
    documents = join_documents([[sentence] * 2] * 20)
    (warning,) = warnings_of(documents, generator, short_seq_prob=0.0)
    assert f"{RANDOM_NEXT}; documents with more and shorter sentences" in warning


@pytest.mark.parametrize("generator", GENERATORS)
def test_long_documents_are_not_warned_of(warnings_of, generator):
    documents = join_documents([SENTENCES * 20] * 4)
    assert warnings_of(documents, generator, do_whole_word_mask=True) == []


@pytest.mark.parametrize("generator", GENERATORS)
def test_whole_words_of_chinese_characters_are_warned_of(warnings_of, generator):
    documents = join_documents([[CHINESE] * 80] * 4)
    (warning,) = warnings_of(documents, generator, do_whole_word_mask=True)
    assert warning == (
        "--do_whole_word_mask has next to no effect: 0 of 2240 tokens continue a word, with ##; "
        "every Chinese character is a word of its own"
    )


def test_chinese_characters_without_whole_words_are_not_warned_of(warnings_of):
    documents = join_documents([[CHINESE] * 80] * 4)
    assert warnings_of(documents, "exact") == []
