"""Hostile runs of sparse models: what is refused in one sentence, and leaves no file."""

import numpy as np
import pytest

from official_bert import InputError, SparseEncoder
from tests.extensions import ranking_rows
from tests.extensions.ranking_rows import evaluate, train
from tests.extensions.sparse.trained import TEXTS, write_model
from tests.hostile.rows import check, row, table
from tests.scripts import end_of, run_here

SCRIPT = "run_sparse_embeddings"


def evaluated(at, query_encoder: str, *flags: str, rows: str = ranking_rows.PAIRS):
    return evaluate(at, SCRIPT, write_model(at / "model", query_encoder), *flags, rows=rows)


def export(at, *flags: str):
    model = write_model(at / "model", "lookup")
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
            ("--query_flops=-1", "--query_flops=-1.0: must not be negative"),
            ("--document_flops=nan", "--document_flops=nan: must be a finite number"),
            ("--flops_warmup=2", "--flops_warmup=2.0: must be between 0 and 1"),
            ("--query_encoder=bm25", "--query_encoder=bm25", "model|idf|lookup"),
            ("--term_activation=gelu", "--term_activation=gelu", "relu|log1p_relu"),
            ("--max_terms=0", "--max_terms=0: must be at least 1"),
            (
                "--query_encoder=idf --query_flops=1",
                "--query_flops=1.0: has no effect with --query_encoder=idf",
            ),
        )
    ),
    *(
        row(
            f"evaluation with {flag}",
            lambda at, flag=flag: evaluated(at, "lookup", flag),
            f"{flag}: ",
            sentence,
        )
        for flag, sentence in (
            ("--query_encoder=idf", "task.json says lookup, with which the model was trained"),
            ("--term_activation=log1p_relu", "was trained with relu; leave the flag out"),
            ("--max_seq_length=16", "task.json says 12, with which the model was trained"),
        )
    ),
    row(
        "evaluation on one pair",
        lambda at: evaluated(at, "model", rows="query\tdocument\na\tb\n"),
        "pairs.tsv: line 2: no query has a document to find among others",
    ),
    *(
        row(f"export with {flags}", lambda at, flags=flags: export(at, flags), sentence)
        for flags, sentence in (
            ("--query_encoder=idf", "says lookup, with which the model was trained"),
            ("--max_terms=0", "--max_terms=0: must be at least 1"),
            ("--max_seq_length=600", "says 12, with which the model was trained"),
            ("--token_width=4", "--token_width=4: the task of this model does not read it"),
        )
    ),
    *(
        row(
            f"prediction with {flag}",
            lambda at, flag=flag: predict(at, f"{flag}={at}/a"),
            "a model of sparse_embedding gives no vectors of texts; use SparseEncoder",
        )
        for flag in ("--index", "--vectors_file")
    ),
]


@table(FLAGS)
def test_one_sentence_ends_a_wrong_run(row, folder):
    check(row._replace(leaves=MODELS), folder)


@pytest.mark.parametrize("query_encoder", ["model", "idf"])
def test_a_run_with_other_flags_does_not_resume(folder, query_encoder):
    command = train(folder, SCRIPT, f"--query_encoder={query_encoder}")
    run_here(*command)
    saved = (folder / "out/checkpoint").read_text()
    for flag in ("--query_encoder=lookup", "--term_activation=log1p_relu", "--loss=margin_mse"):
        ended = end_of(*command, flag)
        assert ended.status == 1
        assert f"{flag.partition('=')[0]}=" in ended.sentence
        assert "\n" not in ended.sentence
    assert (folder / "out/checkpoint").read_text() == saved


def test_the_folder_of_another_model_is_refused(folder):
    (folder / "model").mkdir()
    for name in ("vocab.txt", "bert_config.json"):
        (folder / "model" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match="no checkpoint there"):
        SparseEncoder(str(folder / "model"))
    encoder = SparseEncoder(write_model(folder / "trained"))
    with pytest.raises(InputError, match="corpus: its matrix has 3 columns"):
        encoder.search(TEXTS[0], encoder.encode(TEXTS)[:, :3])
    with pytest.raises(InputError, match="texts"):
        encoder.encode([3])
    assert encoder.encode([]).shape == (0, encoder.vocab_size)
    assert np.diff(encoder.encode([""]).indptr).shape == (1,)
