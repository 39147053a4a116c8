"""Sentences of paragraphs that were written for these tests."""

import pydoc_data.topics

import pytest

from official_bert.data.pretraining.text_formats import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        [],
        ["No mark at all"],
        ["One sentence."],
        ["The cat sat.", "The dog ran!", "Did it?", "Yes… It did."][:3],
        ["Is it true?!", "Nobody knows."],
        ['He said "Stop."', "Then he left."],
        ["(It was late.)", "“Why?” she asked.", "¿Por qué?", "¡No!", "Ça va."],
        ["Mr. Smith met Dr. Jones at St. Mary's.", "They talked."],
        ["J. R. Miller wrote it.", "So did I.", "We read it."],
        ["It costs 3.50 euros, i.e. little.", "See fig. 3 on p. 12 for more."],
        ["He came from the U.S. in 1990.", "She stayed."],
        ["They sell fruit, nuts, etc. at the market.", "We sell bread etc.", "You buy."],
        ["Version 2.21 is out.", "7 people use it.", "3.14 is not pi."],
        ["猫坐着。", "狗跑了！", "「为什么？」", "没人知道"],
        ["Es gibt z.B. Brot usw. im Laden.", "Gut."],
    ],
)
def test_sentences_are_found_again_in_their_paragraph(sentences):
    separator = "" if any("。" in sentence for sentence in sentences) else " "
    assert split_sentences(separator.join(sentences)) == sentences


def test_white_space_around_sentences_is_left_out_and_none_inside():
    assert split_sentences("  One  word.\t\tTwo words. ") == ["One  word.", "Two words."]
    assert split_sentences(" \t ") == []


def test_nothing_but_white_space_is_lost_of_real_english():
    count = 0
    for text in pydoc_data.topics.topics.values():
        for paragraph in text.split("\n\n"):
            sentences = split_sentences(paragraph)
            assert "".join("".join(sentences).split()) == "".join(paragraph.split())
            assert all(sentence == sentence.strip() != "" for sentence in sentences)
            count += len(sentences)
    assert count > 4000
