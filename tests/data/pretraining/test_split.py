import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_bert.data.pretraining import documents
from official_bert.data.pretraining.documents import distribute, documents_of, first_numbers, look_through
from official_bert.io.errors import InputError


@pytest.fixture
def corpus(tmp_path):
    """Two files with five documents, one of which goes on across the end of the first file."""
    (tmp_path / "a").write_text("\n \none\n  One. \n\n\u3000\ntwo\n\n\nthree\n", encoding="utf-8")
    (tmp_path / "b").write_text("Three.\n\nfour\n\nfive\nFive.\n", encoding="utf-8")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.mark.parametrize("held", [1, 8, 1 << 24])
def test_document_k_goes_into_file_k_mod_n(corpus, tmp_path, monkeypatch, held):
    monkeypatch.setattr(documents, "_CHARACTERS_HELD", held)
    paths = [str(tmp_path / f"{number}.txt") for number in range(2)]
    assert distribute(corpus, paths) == 5
    texts = [(tmp_path / f"{number}.txt").read_text() for number in range(2)]
    assert texts == ["\none\nOne.\n\nthree\nThree.\n\nfive\nFive.\n", "\ntwo\n\nfour\n"]


def test_files_without_documents_are_not_written(corpus, tmp_path):
    paths = [str(tmp_path / f"{number}.txt") for number in range(9)]
    assert distribute(corpus, paths) == 5
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == [f"{number}.txt" for number in range(5)]
    (tmp_path / "blank").write_text("\n\n")
    assert distribute([str(tmp_path / "blank")], [str(tmp_path / "none.txt")]) == 0


def test_a_folder_that_vanishes_is_said(corpus, tmp_path):
    with pytest.raises(InputError, match=r"absent/0\.txt: cannot be written"):
        distribute(corpus, [str(tmp_path / "absent" / "0.txt")])


@given(st.lists(st.lists(st.sampled_from(["a sentence", "another", "", "  "]), max_size=6), min_size=1, max_size=5))
def test_files_that_are_read_apart_have_the_documents_of_the_corpus(parts):
    """The numbers of documents, and their lines, are those of the corpus as one file."""
    expected = list(documents_of(line for lines in parts for line in lines))
    numbers = first_numbers([look_through(lines) for lines in parts])
    found = {}
    for first, lines in zip(numbers, parts, strict=True):
        for number, document in enumerate(documents_of(lines), start=first):
            found.setdefault(number, []).extend(document)
    assert [found[number] for number in sorted(found)] == expected
    assert sorted(found) == list(range(len(expected)))
