"""The command run_embeddings: trains and evaluates embedding models, or evaluates other vectors.

The other vectors are those of an export or of another system.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from official_bert.data.text_examples import DOCUMENT, QUERY, TextRows, all_texts
from official_bert.data.text_tables import read_examples
from official_bert.extensions.embeddings import evaluation
from official_bert.extensions.embeddings.options import EmbeddingOptions
from official_bert.fine_tuning.run import fine_tune
from official_bert.io import files
from official_bert.io.arrays import read_npy
from official_bert.io.errors import InputError
from official_bert.options.fields import format_flag, without_flag
from official_bert.options.table_columns import TextTables
from official_bert.serving.predictor import Predictor
from official_bert.training.reporting import write_eval_results

# The flags that --vectors allows.
_FLAGS_WITH_VECTORS = {
    "vectors",
    "do_eval",
    "dev_file",
    "eval_task",
    "output_dir",
    "query_prompt",
    "document_prompt",
    *(field.name for field in dataclasses.fields(TextTables)),
}


def run(options: EmbeddingOptions) -> None:
    """Train, evaluate and predict, or evaluate the vectors of another system.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a flag, a file or the model cannot be used.
    """
    if options.vectors is None:
        fine_tune(options)
        return
    if options.do_train or options.do_predict or not options.do_eval or not options.dev_file:
        raise InputError(
            "--vectors: goes with --do_eval and --dev_file only; leave out what trains and predicts"
        )
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        is_typed = value not in (None, without_flag(field))
        if is_typed and field.name not in _FLAGS_WITH_VECTORS:
            raise InputError(
                f"{format_flag(field.name, value)}: has no effect with --vectors, which are "
                "evaluated as they are; leave one of the two out"
            )
    examples = read_examples(options.dev_file, "dev_file", vars(options))
    is_npy = options.vectors.lower().endswith(".npy")
    rows = all_texts(examples, has_roles=not is_npy)
    kind = options.eval_task or evaluation.choose_kind(examples)
    compute_metrics = evaluation.prepare(examples, rows, kind)
    read = _read_vectors if is_npy else _compute_vectors
    results = compute_metrics(read(options, rows))
    files.make_folder(options.output_dir)
    write_eval_results(options.output_dir, results, 0, "")


def _compute_vectors(options: EmbeddingOptions, rows: TextRows) -> np.ndarray:
    """Returns the vectors of texts by the export or the model of --vectors, float32[texts, D]."""
    assert options.vectors is not None
    predictor = Predictor(options.vectors)
    prompts = {QUERY: options.query_prompt, DOCUMENT: options.document_prompt}
    roles = np.array(rows.roles)
    texts = np.array(rows.texts, object)
    blocks = {}
    for role, prompt in prompts.items():
        role_texts = texts[roles == role].tolist()
        if role_texts:
            blocks[role] = predictor.encode(role_texts, role=role, prompt=prompt)
    width = next(iter(blocks.values())).shape[1]
    vectors = np.empty((len(texts), width), np.float32)
    for role, block in blocks.items():
        vectors[roles == role] = block
    return vectors


def _read_vectors(options: EmbeddingOptions, rows: TextRows) -> np.ndarray:
    """Returns the vectors in the .npy file of --vectors, float32[texts, D]."""
    source = options.vectors
    assert source is not None
    for flag in ("query_prompt", "document_prompt"):
        if getattr(options, flag) is not None:
            raise InputError(
                f"{format_flag(flag, getattr(options, flag))}: has no effect on the vectors of "
                f"{source}; leave it out"
            )
    num_texts = len(rows.texts)
    vectors = read_npy(source)
    content = f"{vectors.dtype}{list(vectors.shape)}"
    is_float = vectors.dtype.kind == "f"
    if is_float:
        with np.errstate(over="ignore"):
            vectors = vectors.astype(np.float32)
    is_table = vectors.ndim == 2 and len(vectors) == num_texts and vectors.size
    if not is_table or not is_float or not np.isfinite(vectors).all():
        raise InputError(
            f"{source}: holds {content}; the evaluation needs a row of finite floats for each of "
            f"the {num_texts} different texts, in their order"
        )
    return vectors
