"""Folders of PyLate whose markers "[Q] " and "[D] " are added tokens behind the vocabulary.

The expected vectors are those of the same model whose vocabulary has two other words there.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer, InputError, MultiVectorEncoder
from official_bert.extensions.late_interaction.token_index import TokenIndex
from official_bert.model_dir import TokenizerConfig
from official_bert.tokenization import load_vocab
from tests import toy
from tests.data.retrieval_pairs import write_pairs
from tests.extensions.late_interaction.test_multi_vector_folder import (
    assert_same,
    convert,
    make_pylate_folder,
    vectors_of,
)
from tests.extensions.late_interaction.trained import TEXTS
from tests.scripts import end_of, flag_list, run_here

QUERY_ID = len(toy.VOCABULARY)
IDS = {"[Q] ": QUERY_ID, "[D] ": QUERY_ID + 1}
# The files in which each version of transformers writes the vocabulary and the added tokens.
LAYOUTS = {
    "transformers 5": ("tokenizer.json",),
    "transformers 4": ("vocab.txt", "tokenizer.json", "added_tokens.json", "decoder"),
    "python tokenizer": ("vocab.txt", "added_tokens.json", "decoder"),
    "lines": ("vocab.txt", "marker lines", "tokenizer.json"),
}


def update(path: pathlib.Path, **fields) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | fields))


def list_token(token: str) -> dict:
    rules = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {"content": token, "special": False} | rules


def write_tokenizer(folder: pathlib.Path, layout: str) -> None:
    """Writes the files of a tokenizer with added markers, and deletes the others."""
    names = LAYOUTS[layout]
    pieces = load_vocab(str(folder / "vocab.txt"))
    pieces = {piece: number for piece, number in pieces.items() if number < QUERY_ID}
    lines = [*pieces, *IDS] if "marker lines" in names else [*pieces]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    content = json.loads(TokenizerConfig().to_tokenizer_json(pieces))
    tokens = [{"id": number} | list_token(token) for token, number in IDS.items()]
    content["added_tokens"] += tokens
    (folder / "tokenizer.json").write_text(json.dumps(content))
    for name in ("vocab.txt", "tokenizer.json"):
        if name not in names:
            (folder / name).unlink()
    if "added_tokens.json" in names:
        (folder / "added_tokens.json").write_text(json.dumps(IDS))
    # PyLate pads with [MASK].
    settings = {"pad_token": "[MASK]"}
    if "decoder" in names:
        decoder = {str(number): list_token(token) for token, number in IDS.items()}
        settings["added_tokens_decoder"] = decoder
    update(folder / "tokenizer_config.json", **settings)


def make_folder(
    tmp_path: pathlib.Path, layout: str = "transformers 5", num_padding_rows: int = 0
) -> tuple[str, pathlib.Path]:
    """Returns our folder of a model, and the one that PyLate writes of it."""
    ours, path = make_pylate_folder(tmp_path, num_padding_rows)
    folder = pathlib.Path(path)
    write_tokenizer(folder, layout)
    update(
        folder / "config_sentence_transformers.json",
        query_prefix="[Q] ",
        document_prefix="[D] ",
    )
    return ours, folder


@pytest.mark.parametrize(
    ("layout", "num_padding_rows"),
    [("transformers 5", 0), ("transformers 4", 5), ("python tokenizer", 0), ("lines", 5)],
)
def test_added_markers_are_read_and_converted(tmp_path, layout, num_padding_rows):
    ours, folder = make_folder(tmp_path, layout, num_padding_rows)
    reference = MultiVectorEncoder(ours)
    expected = vectors_of(reference)
    encoder = MultiVectorEncoder(str(folder))
    assert_same(encoder, *expected)
    assert [encoder.tokenizer.vocab[marker] for marker in ("[Q]", "[D]")] == [*IDS.values()]
    text = "[Q] the cat [D]"
    assert encoder.tokenizer.encode(text) == reference.tokenizer.encode(text)
    for output_format in ("tf1", "huggingface"):
        output = pathlib.Path(convert(str(folder), tmp_path / output_format, output_format))
        assert_same(MultiVectorEncoder(str(output)), *expected)
        lines = (output / "vocab.txt").read_text().splitlines()
        assert lines == [*toy.VOCABULARY, "[Q]", "[D]"]
    settings = json.loads((tmp_path / "tf1/task.json").read_text())["settings"]
    assert (settings["query_marker"], settings["document_marker"]) == ("[Q]", "[D]")


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> tuple[str, str]:
    """Our folder of a model, and the converted one of PyLate."""
    folder = tmp_path_factory.mktemp("converted")
    ours, theirs = make_folder(folder, "transformers 4")
    return ours, convert(str(theirs), folder / "tf1", "tf1")


def test_a_training_keeps_added_markers(converted, tmp_path):
    ours, model = converted
    write_pairs(tmp_path / "train.tsv", 4, 1)
    flags = {"model": model, "data_dir": tmp_path, "output_dir": tmp_path / "out"}
    flags |= {"do_train": True, "learning_rate": 1e-9, "train_batch_size": 4}
    flags |= {"max_seq_length": 9, "num_train_epochs": 1}
    run_here("run_late_interaction", *flag_list(**flags))
    trained = MultiVectorEncoder(str(tmp_path / "out"))
    assert_same(trained, *vectors_of(MultiVectorEncoder(ours)))


def test_an_export_of_tensors_has_added_markers(converted, tmp_path):
    ours, model = converted
    run_here("export_saved_model", *flag_list(model=model, export_dir=tmp_path / "export"))
    expected = vectors_of(MultiVectorEncoder(ours))
    assert_same(MultiVectorEncoder(str(tmp_path / "export")), *expected)


def test_an_export_of_text_has_added_markers(converted, tmp_path):
    ours, model = converted
    flags = flag_list(model=model, export_dir=tmp_path / "export", export_text=True)
    run_here("export_saved_model", *flags)
    served = tf.saved_model.load(str(tmp_path / "export/1"))
    documents, queries = vectors_of(MultiVectorEncoder(ours))
    for name, expected in (("serving_text", documents), ("query", queries)):
        outputs = served.signatures[name](text_a=tf.constant(TEXTS))
        vectors = outputs["vectors"].numpy()[outputs["mask"].numpy() > 0]
        np.testing.assert_allclose(vectors, np.concatenate(expected), atol=1e-5)


def test_predict_uses_added_markers(converted, tmp_path):
    ours, model = converted
    lines = tmp_path / "lines.txt"
    texts = [text for text in TEXTS if text]
    lines.write_text("\n".join(texts))
    index = tmp_path / "index.npz"
    flags = flag_list(model=model, input_file=lines, token_index=index)
    run_here("predict", *flags)
    expected = MultiVectorEncoder(ours).encode(texts)
    vectors = TokenIndex.read(str(index)).vectors
    np.testing.assert_allclose(vectors.values, expected.values, atol=1e-5)


@pytest.mark.needs_extra("sentence_transformers")
def test_sentence_transformers_has_the_same_vectors(tmp_path):
    import sentence_transformers

    ours, folder = make_folder(tmp_path, "transformers 4")
    expected = vectors_of(MultiVectorEncoder(ours))
    written = convert(str(folder), tmp_path / "huggingface")
    for path in (str(folder), written):
        model = sentence_transformers.MultiVectorEncoder(path, device="cpu")
        for vectors, token_vectors in zip(
            (model.encode_document(TEXTS), model.encode_query(TEXTS)), expected, strict=True
        ):
            theirs = np.concatenate([np.asarray(one) for one in vectors])
            np.testing.assert_allclose(theirs, np.concatenate(token_vectors), atol=1e-5)
    # Its markers are prompts and special tokens.
    model.save(str(tmp_path / "theirs"))
    assert_same(MultiVectorEncoder(str(tmp_path / "theirs")), *expected)


def add_tokens(**ids: int):
    """Returns the change of added_tokens.json, with a name for the blank behind each token."""
    return "added_tokens.json", {f"[{name}] ": number for name, number in ids.items()}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("config_sentence_transformers.json", {"query_prefix": "[Z] "}),
            "its marker '[Z]' is no word of the vocabulary, and no added token with an id; restore",
        ),
        (
            add_tokens(Q=QUERY_ID, D=QUERY_ID + 2),
            f"added_tokens.json: the id of the added token '[D] ' is {QUERY_ID + 2} there, and "
            f"{QUERY_ID + 1} in another file; delete",
        ),
        (
            add_tokens(Q=QUERY_ID, D=QUERY_ID + 1, E=QUERY_ID + 2),
            "the added token '[E] ' is one token for transformers and would be split or get",
        ),
    ],
)
def test_contradicting_files_are_refused(tmp_path, change, sentence):
    _, folder = make_folder(tmp_path, "transformers 4")
    name, fields = change
    update(folder / name, **fields)
    assert_refused(folder, sentence, tmp_path)


@pytest.mark.parametrize(
    ("number", "sentences"),
    [
        (
            QUERY_ID + 9,
            (f"its vocabulary has {QUERY_ID + 10} pieces, added tokens included, but the", "lines"),
        ),
        (
            5,
            ("vocab.txt: the piece", "has the id 5, which the added token '[D]' has in another"),
        ),
        (1 << 40, ("its marker '[D]' is no word of the vocabulary, and no added",)),
        (-1, ("its marker '[D]' is no word of the vocabulary, and no added",)),
    ],
)
def test_a_marker_needs_an_id_behind_the_vocabulary(tmp_path, number, sentences):
    _, folder = make_folder(tmp_path, "python tokenizer")
    update(folder / "added_tokens.json", **{"[D] ": number})
    update(folder / "tokenizer_config.json", added_tokens_decoder={})
    with pytest.raises(InputError) as refused:
        MultiVectorEncoder(str(folder))
    assert sentences[0] in str(refused.value)
    assert_converted_nothing(folder, sentences[-1], tmp_path)


def assert_refused(folder: pathlib.Path, sentence: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError) as refused:
        MultiVectorEncoder(str(folder))
    assert sentence in str(refused.value)
    assert_converted_nothing(folder, sentence, tmp_path)


def assert_converted_nothing(folder: pathlib.Path, sentence: str, tmp_path: pathlib.Path) -> None:
    output = tmp_path / "output"
    flags = flag_list(model=folder, output_dir=output, output_format="tf1")
    ended = end_of("convert_checkpoint", *flags)
    assert ended.status == 1
    assert sentence in ended.sentence
    assert "\n" not in ended.sentence
    assert not output.exists()


def test_other_models_have_no_markers(tmp_path):
    _, folder = make_folder(tmp_path)
    assert FullTokenizer.from_pretrained(str(folder)).vocab["[Q]"] == QUERY_ID
    update(folder / "config_sentence_transformers.json", model_type="SentenceTransformer")
    with pytest.raises(InputError, match=r"the added token '.Q. ' is one token for transformers"):
        FullTokenizer.from_pretrained(str(folder))
