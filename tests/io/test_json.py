import pytest

from official_bert.io.errors import InputError
from official_bert.io.reading import field

QUESTION = {"id": "q1", "answers": [], "context": {}, "start": 3, "is_impossible": False, "title": None}


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("id", str, "q1"),
        ("answers", list, []),
        ("context", dict, {}),
        ("start", int, 3),
        ("is_impossible", bool, False),
    ],
)
def test_a_field_of_its_type_is_returned(name, kind, value):
    assert field(QUESTION, name, kind, "a.json") == value


@pytest.mark.parametrize(
    ("holder", "name", "kind", "message"),
    [
        (QUESTION, "qas", list, 'a.json: question 2: "qas" is missing; give it a list'),
        (QUESTION, "title", str, 'a.json: question 2: "title" is not a text; give it a text'),
        (QUESTION, "id", int, 'a.json: question 2: "id" is not a whole number; give it a whole number'),
        (QUESTION, "start", bool, 'a.json: question 2: "start" is not true or false; give it true or false'),
        (QUESTION, "answers", dict, 'a.json: question 2: "answers" is not an object; give it an object'),
        (["id"], "id", str, 'a.json: question 2: is no object; it should be one with the field "id"'),
        ("id", "id", str, 'a.json: question 2: is no object; it should be one with the field "id"'),
    ],
)
def test_an_error_names_the_object_the_field_and_the_type(holder, name, kind, message):
    with pytest.raises(InputError) as refused:
        field(holder, name, kind, "a.json: question 2")
    assert str(refused.value) == message
