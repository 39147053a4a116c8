"""Explanations and entities as HTML: colours, escaped texts, and what a notebook shows."""

import html.parser
import re

import pytest

from official_bert import Predictor
from official_bert.extensions.explanation.html import Explanation, MarkedEntities
from official_bert.io.errors import InputError
from tests import fine_tuning_runs

TEXT = "<b>a</b>  film\n😀 שלום"


class Reader(html.parser.HTMLParser):
    """The texts of a page, its marks with their styles, and the names of its elements."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.tips: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "mark":
            self.styles.append(dict(attrs)["style"])
            self.tips.append(dict(attrs).get("title", ""))

    def handle_data(self, data):
        self.text += data


def make_explanation(**values) -> Explanation:
    words = []
    for match, attribution in zip(re.finditer(r"\S+", TEXT), (2.0, -1.0, 0.0, 0.5), strict=True):
        words.append(
            {
                "text": "text_a",
                "word": match.group(),
                "start": match.start(),
                "end": match.end(),
                "attribution": attribution,
            }
        )
    parts = {"label": "good & <i>", "score": 0.75, "words": words, "completeness": 0.0, **values}
    return Explanation(parts, {"text_a": TEXT, "text_b": "more"})


def test_a_share_colours_its_word():
    explanation = make_explanation()
    reader = Reader(explanation.html())
    assert reader.text == f"good & <i>: 0.75{TEXT}more"
    assert reader.tags == ["div", "b", "div", "mark", "mark", "mark", "mark", "div"]
    colors = [style.partition(";")[0] for style in reader.styles]
    assert colors == [
        "background: rgba(0, 114, 178, 0.70)",
        "background: rgba(213, 94, 0, 0.35)",
        "background: rgba(0, 114, 178, 0.00)",
        "background: rgba(0, 114, 178, 0.17)",
    ]
    assert reader.tips == ["+2.000", "-1.000", "+0.000", "+0.500"]
    assert explanation["words"][0]["word"] == "<b>a</b>"
    assert explanation._repr_html_() == explanation.html()


@pytest.mark.parametrize(
    "words", [[], [{"text": "text_a", "start": 0, "end": 3, "attribution": 0}]]
)
def test_explanations_without_a_share_have_a_page(words):
    reader = Reader(make_explanation(words=words, label=None).html())
    assert reader.text == f"score: 0.75{TEXT}more"


def test_entities_are_marked_with_their_types():
    text = "Ann <i> in Rome"
    entities = [
        {"entity_group": "PER", "word": "Ann", "start": 0, "end": 3},
        {"entity_group": "<X>", "word": "<i>", "start": 4, "end": 7},
        {"entity_group": "PER", "word": "Rome", "start": 11, "end": 15},
    ]
    marked = MarkedEntities(entities, text)
    reader = Reader(marked.html())
    assert reader.text == "Ann PER <i> <X> in Rome PER"
    assert reader.styles[0] == reader.styles[2] != reader.styles[1]
    assert marked == entities
    assert Reader(MarkedEntities([], text).html()).text == text


def test_a_predictor_marks_entities(tmp_path_factory):
    run = fine_tuning_runs.shared_run(tmp_path_factory, "tagging")
    predictor = Predictor(str(run.output_dir))
    text = "the cat sat on the mat"
    marked = predictor.mark_entities(text)
    assert marked == predictor.tag(text)
    assert Reader(marked.html()).tags.count("mark") == len(marked)
    first, second = predictor.mark_entities([text, "rain"])
    assert (first.text, second.text) == (text, "rain")
    with pytest.raises(InputError):
        predictor.mark_entities(text, "and more")
