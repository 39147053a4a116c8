import itertools

import numpy as np
import pytest

from official_bert.data.corpus.documents import id_type, read_documents
from official_bert.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy


@pytest.fixture
def tokenizer(tmp_path):
    return FullTokenizer(toy.write_vocabulary(tmp_path))


def as_tokens(documents, tokenizer):
    """Converts documents to lists of segments, each a string."""
    return [
        [
            " ".join(tokenizer.inv_vocab[i] for i in documents.ids[begin:end].tolist())
            for begin, end in itertools.pairwise(bounds)
        ]
        for bounds in (list(documents.bounds_of(d)) for d in range(len(documents)))
    ]


def test_reads_segments_and_documents(tmp_path, tokenizer):
    documents = read_documents([toy.write_text(tmp_path)], tokenizer)
    assert as_tokens(documents, tokenizer) == [
        [
            "the cat sat on the mat .",
            "it was a sun ##ny day in the park .",
            "child ##ren were play ##ing foot ##ball .",
        ],
        [
            "a train left the station at noon .",
            "no ##body was on board .",
            "the driver wave ##d his hand .",
            "rain start ##ed fall ##ing soon after .",
        ],
        ["one single line document here ."],
    ]
    assert documents.ids.dtype == np.uint8  # 50 pieces


def test_what_ends_a_document(tmp_path, tokenizer):
    first = toy.write_text(
        tmp_path, "\n \t\nthe cat\r\n\u00ad\nsat", name="a"
    )  # U+00AD alone: no tokens, no end
    second = toy.write_text(tmp_path, "\non the\n\u3000\nmat\n\n\n", name="b")
    third = toy.write_text(tmp_path, "it was", name="c")
    assert as_tokens(read_documents([first, second, third], tokenizer), tokenizer) == [
        ["the cat", "sat"],
        ["on the"],
        ["mat"],
        ["it was"],
    ]
    # The end of a file ends no document.
    assert as_tokens(read_documents([first, third], tokenizer), tokenizer) == [["the cat", "sat", "it was"]]


def test_worker_processes_read_the_same(tmp_path, tokenizer):
    path = toy.write_text(tmp_path, toy.TEXT * 3000)  # 0.8 MB: several blocks
    progress = []
    alone = read_documents([path], tokenizer)
    together = read_documents([path], tokenizer, num_workers=2, on_progress=progress.append)
    assert len(alone) == 3 * 3000 - 2999  # a copy's last document runs into the next one's first
    for name in ("ids", "segment_starts", "document_starts"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    assert len(progress) > 2
    assert progress[-1] == len(alone.ids)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(49, np.uint8), (255, np.uint8), (256, np.uint16), (65535, np.uint16), (65536, np.uint32)],
)
def test_ids_take_the_smallest_type(largest, dtype):
    assert id_type({"a": 3, "b": largest}) == dtype


def test_text_without_a_document_is_refused(tmp_path, tokenizer):
    path = toy.write_text(tmp_path, "\n \n\u00ad\n")
    with pytest.raises(InputError, match=r"no text in .*text\.txt; give files with one sentence a line"):
        read_documents([path], tokenizer)


def test_a_missing_file_is_named(tmp_path, tokenizer):
    with pytest.raises(InputError, match=r"absent\.txt: no such file"):
        read_documents([str(tmp_path / "absent.txt")], tokenizer)
