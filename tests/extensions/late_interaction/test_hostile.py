"""Hostile runs of late interaction: what is refused in one sentence, and leaves no file."""

import numpy as np
import pytest

from official_bert import InputError, MultiVectorEncoder
from official_bert.extensions.late_interaction.token_vectors import TokenVectors
from tests.extensions import ranking_rows
from tests.extensions.late_interaction.trained import TEXTS, write_model
from tests.extensions.ranking_rows import evaluate, train
from tests.hostile.commands import vectors
from tests.hostile.rows import check, row, table
from tests.scripts import end_of, run_here

SCRIPT = "run_late_interaction"


def evaluated(at, *flags: str, rows: str = ranking_rows.PAIRS):
    return evaluate(at, SCRIPT, write_model(at / "model"), *flags, rows=rows)


def export(at, *flags: str):
    model = write_model(at / "model")
    return ["export_saved_model", f"--model={model}", f"--export_dir={at}/export", *flags]


def predict(at, *flags: str):
    model = write_model(at / "model")
    return ["predict", f"--model={model}", f"--input_file={at}/corpus.txt", *flags]


MODELS = ("model/*",)
FLAGS = [
    *ranking_rows.list_rows(SCRIPT),
    *(
        row(flags, lambda at, flags=flags: train(at, SCRIPT, *flags.split()), *sentence)
        for flags, *sentence in (
            ("--token_width=0", "--token_width=0: must be at least 1"),
            ("--query_length=-1", "--query_length=-1: must be 0, or at least 3"),
            ("--query_length=2", "--query_length=2: must be 0, or at least 3"),
            (
                "--query_length=1000",
                "--query_length=1000: the model was made for sequences up to 512 tokens; give a",
            ),
        )
    ),
    row(
        "evaluation of a plain encoder",
        lambda at: evaluate(at, SCRIPT, str(at)),
        "lacks token_projection/kernel, which would stay random; give a checkpoint that",
    ),
    *(
        row(
            f"evaluation with {flag}",
            lambda at, flag=flag: evaluated(at, flag),
            f"{flag}: ",
            sentence,
        )
        for flag, sentence in (
            ("--token_width=4", "task.json says 8, with which the model was trained"),
            ("--query_length=9", "task.json says 8, with which the model was trained"),
            ("--max_seq_length=16", "task.json says 9, with which the model was trained"),
        )
    ),
    row(
        "evaluation on one pair",
        lambda at: evaluated(at, rows="query\tdocument\na\tb\n"),
        "pairs.tsv: line 2: no query has a document to find among others",
    ),
    *(
        row(f"export with {flags}", lambda at, flags=flags: export(at, flags), *sentence)
        for flags, *sentence in (
            ("--token_width=4", "says 8, with which the model was trained"),
            ("--query_length=600", "says 8, with which the model was trained"),
            ("--max_terms=10", "--max_terms=10: the task of this model does not read it"),
        )
    ),
    *(
        row(
            f"prediction with {flag}",
            lambda at, flag=flag: predict(at, f"{flag}={at}/a"),
            "a model of late_interaction gives no vectors of texts; give --token_index",
        )
        for flag in ("--index", "--vectors_file")
    ),
]


@table(FLAGS)
def test_one_sentence_ends_a_wrong_run(row, folder):
    check(row._replace(leaves=MODELS), folder)


def test_a_run_with_other_flags_does_not_resume(folder):
    command = train(folder, SCRIPT, "--token_width=4", "--query_length=8")
    run_here(*command)
    saved = (folder / "out/checkpoint").read_text()
    for flag in ("--token_width=8", "--query_length=9", "--attend_to_expansion"):
        ended = end_of(*command, flag)
        assert ended.status == 1
        assert flag in ended.sentence
        assert "\n" not in ended.sentence
    assert (folder / "out/checkpoint").read_text() == saved


def test_the_vectors_of_tokens_are_no_index_of_texts(folder):
    encoder = MultiVectorEncoder(write_model(folder / "model"))
    encoder.encode(TEXTS).save(str(folder / "tokens.npz"))
    ended = end_of(*vectors(folder, f"--search={folder}/tokens.npz"))
    assert ended.status == 1
    assert "tokens.npz: lacks the array texts; make it anew with" in ended.sentence


def test_vectors_of_another_model_or_file_are_refused(tmp_path):
    encoder = MultiVectorEncoder(write_model(tmp_path / "model"))
    corpus = encoder.encode(TEXTS)
    narrow = TokenVectors(corpus.values[:, :3], corpus.starts)
    with pytest.raises(InputError, match="its vectors have 3 components"):
        encoder.search(TEXTS[0], narrow)
    path = str(tmp_path / "index.npz")
    np.savez(path, vectors=np.zeros((2, 8), np.float32), texts=np.array(["a", "b"]))
    with pytest.raises(InputError, match=r"index\.npz: is no file of TokenVectors\.save"):
        TokenVectors.load(path)
    starts = corpus.starts.copy()
    starts[1] = starts[-1] + 1
    for values, wrong_starts, scales in (
        (corpus.values, starts, None),
        (corpus.values, corpus.starts, np.ones(3, np.float32)),
        (corpus.values.astype(str), corpus.starts, None),
    ):
        arrays = {"values": values, "starts": wrong_starts}
        np.savez(path, **arrays, **({} if scales is None else {"scales": scales}))
        with pytest.raises(InputError, match="its vectors and texts do not fit; write it again"):
            TokenVectors.load(path)
