"""docs/from_sentence_transformers.md: both columns of its tables run and give the same numbers."""

import pathlib
import re

import numpy as np
import pytest

from official_bert import BertClassifier, FullTokenizer
from official_bert.data.prompts import Prompts
from tests import toy
from tests.extensions.embeddings.test_prompts import write_folder
from tests.scripts import flag_list, run_here
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "from_sentence_transformers.md").read_text(encoding="utf-8")
TEXTS = ["The cat sat on the mat.", "A train left.", "It was a sunny day in the park."]
OTHERS = ["a train left the station", "the cat sat", "rain", "it was a sunny day"]
PROMPTS = Prompts({"query": "the cat: ", "document": "his hand "}, None)


def read_rows(heading: str) -> list[tuple[str, str]]:
    """Return the first code of both cells of each line of a table."""
    chapter = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("| `")]
    rows = [
        tuple(re.findall(r"`([^`]+)`", cell)[0] for cell in line.split(" | ")) for line in lines
    ]
    assert len(rows) >= 10
    return rows


def plain(name: str, value):
    """Return the numbers of a result of either library in one form."""
    if name == "model":
        return []
    if name == "tokens":
        if isinstance(value, list):
            return [np.array(one) for one in value]
        return [value.text(row) for row in range(len(TEXTS))]
    if name == "matrix":
        return [value.toarray() if hasattr(value, "toarray") else np.array(value.to_dense())]
    if name == "words":
        # A word as a number, so that another word fails the comparison, too.
        return [
            np.array([[int.from_bytes(word.encode()[:6], "big"), weight] for word, weight in row])
            for row in value
        ]
    if name in ("hits", "ranking"):
        hits = [hit for row in value for hit in row] if name == "hits" else value
        place = "row" if "row" in hits[0] else "corpus_id"
        return [np.array([[hit[place], hit["score"]] for hit in hits])]
    if name == "pairs":
        if isinstance(value[0], dict):
            value = [[pair["score"], pair["row_a"], pair["row_b"]] for pair in value]
        return [np.array(value)]
    return [np.array(value)]


def check_rows(heading: str, theirs: dict, ours: dict):
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], ours)
    for their_code, our_code in read_rows(heading):
        exec(their_code, theirs)
        exec(our_code, ours)
        name = our_code.split(" = ")[0]
        assert their_code.startswith(f"{name} = "), their_code
        their_results, our_results = plain(name, theirs[name]), plain(name, ours[name])
        assert len(their_results) == len(our_results), our_code
        for their_result, our_result in zip(their_results, our_results, strict=True):
            np.testing.assert_allclose(our_result, their_result, atol=1e-5, err_msg=our_code)


@pytest.mark.needs_extra("torch", "sentence_transformers")
def test_embeddings(tmp_path):
    import sentence_transformers as library

    pytest.importorskip("official_bert.extensions.retrieval")
    inputs = {
        "folder": convert(write_folder(tmp_path, PROMPTS), tmp_path / "folder"),
        "texts": TEXTS,
        "text": TEXTS[0],
        "others": OTHERS,
    }
    theirs = {
        "SentenceTransformer": library.SentenceTransformer,
        "semantic_search": library.util.semantic_search,
        "paraphrase_mining": library.util.paraphrase_mining,
    }
    check_rows("Embeddings", inputs | theirs, inputs)


@pytest.mark.needs_extra("torch", "sentence_transformers")
def test_rerankers_and_other_encoders(tmp_path):
    import sentence_transformers as library

    pytest.importorskip("official_bert.extensions.retrieval")
    pytest.importorskip("official_bert.extensions.reranking")
    sparse = pytest.importorskip("tests.extensions.sparse.trained")
    late_interaction = pytest.importorskip("tests.extensions.late_interaction.trained")
    base = toy.make_bert_base_dir(tmp_path, num_hidden_layers=1)
    regression = str(tmp_path / "regression")
    model = BertClassifier.from_pretrained(str(base), num_outputs=1)
    tokenizer = FullTokenizer.from_pretrained(str(base))
    model.save_pretrained(regression, format="huggingface", tokenizer=tokenizer)
    reranker = str(tmp_path / "reranker")
    library.CrossEncoder(regression, device="cpu").save_pretrained(reranker)
    inputs = {
        "reranker": reranker,
        "splade": convert(sparse.write_model(tmp_path / "sparse"), tmp_path / "splade"),
        "colbert": convert(late_interaction.write_model(tmp_path / "late"), tmp_path / "colbert"),
        "texts": TEXTS,
        "text": TEXTS[0],
        "others": OTHERS,
        "pairs": [(TEXTS[0], OTHERS[0]), (TEXTS[1], OTHERS[0])],
    }
    heading = "Rerankers, sparse models, late interaction"
    check_rows(heading, inputs | vars(library), inputs)


def convert(model: str, folder: pathlib.Path) -> str:
    """Write a trained model as a folder of sentence-transformers; return its path."""
    flags = flag_list(model=model, output_dir=folder, output_format="huggingface")
    run_here("convert_checkpoint", *flags)
    return str(folder)
