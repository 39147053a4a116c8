import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert.tasks.squad.answers import get_final_text
from official_bert.tokenization import BasicTokenizer
from tests.oracles import plain_squad


@pytest.mark.parametrize(
    ("pred_text", "orig_text", "final_text"),
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943).", "1895"),
        ("cafe", "Café's,", "Café"),
        ("caf", "Café's", "Caf"),
        ("steve", "Steven Smith", "Steve"),
        ("smith steve", "Steve Smith", "Steve Smith"),  # not found
        ("\u1112\u1161\u11ab", "(한)", "(한)"),  # lower-casing takes the syllable apart: three characters for one
        ("", "Steve", "Steve"),
        ("a b", "A  B c", "A  B"),  # spaces between count as they stand
    ],
)
def test_recorded_and_written_out_cuts(pred_text, orig_text, final_text):
    assert get_final_text(pred_text, orig_text, do_lower_case=True) == final_text


def test_casing_and_accents_are_those_of_the_tokenizer():
    assert get_final_text("Steve", "(Steve)", do_lower_case=False) == "Steve"
    assert get_final_text("steve", "(Steve)", do_lower_case=False) == "(Steve)"
    assert get_final_text("한", "(한)", do_lower_case=True, strip_accents=False) == "한"


@pytest.mark.parametrize(
    ("pred_text", "orig_text", "message"),
    [
        ("x", "Steve", "'x' does not occur in the words 'Steve'"),
        ("(", "(한)", "Normalization changed the number of characters"),
        ("", "Steve", "'' begins or ends between two words of"),
    ],
)
def test_what_cannot_be_cut_is_logged_when_asked_for(caplog, pred_text, orig_text, message):
    caplog.set_level("INFO", logger="absl")
    get_final_text(pred_text, orig_text, True)
    assert caplog.text == ""
    get_final_text(pred_text, orig_text, True, verbose_logging=True)
    assert message in caplog.text


@settings(max_examples=300, deadline=None)
@given(st.text("aBé ,.(Σ한\u0301\xa0\u200b", max_size=12), st.data(), st.booleans())
def test_cuts_are_those_of_the_plain_rule(orig_text, data, do_lower_case):
    tokenizer = BasicTokenizer(do_lower_case)
    tok_text = " ".join(tokenizer.tokenize(orig_text))
    first = data.draw(st.integers(0, len(tok_text)))
    pred_text = tok_text[first : data.draw(st.integers(first, len(tok_text)))]
    expected = plain_squad.final_text(pred_text, orig_text, tokenizer)
    assert get_final_text(pred_text, orig_text, do_lower_case) == expected
