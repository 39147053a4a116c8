"""Sparse embeddings of texts from a masked LM, for inverted indexes and search by dot products.

Input: the folder of a model, plain or of sentence-transformers' SparseEncoder, or an export.
Output: a matrix of SciPy, float32[texts, vocabulary].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from official_bert import model_hub
from official_bert.checkpoints import open_checkpoint
from official_bert.extensions.sparse import vectors, vocabulary_max
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.extensions.sparse.options import MODEL, SPARSE
from official_bert.extensions.sparse.sparse_folder import HEAD_WEIGHT, SparseModules
from official_bert.extensions.sparse.task import INDICES, WEIGHTS, list_terms
from official_bert.io import progress
from official_bert.io.errors import InputError
from official_bert.serving.encoding import (
    check_positive,
    choose_max_seq_length,
    compile_signatures,
    like_length_batches,
    list_hits,
    run_export,
)
from official_bert.serving.exported_model import (
    DEFAULT,
    OpenedExport,
    check_trained,
    is_export,
    set_threads,
)
from official_bert.tasks.retrieval_task import QUERY_SIGNATURE
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_call import list_texts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class SparseEncoder:
    """Describes texts by weighted words of the vocabulary (SPLADE, Formal et al., 2021).

    Attributes:
        model: the model, or an opened export.
        tokenizer: the tokenizer of the model.
        max_seq_length: the number of tokens to which texts are truncated.
        vocab_size: the number of words, the width of the matrices.

    Example:
        ```python
        from official_bert import SparseEncoder

        encoder = SparseEncoder("quickstart_output/full/bert")
        corpus = encoder.encode(["A train left.", "It rained."])
        corpus.shape  # (2, vocab_size), a matrix of SciPy
        encoder.decode(corpus, k=3)[0]  # [("train", 1.2), ...]
        encoder.search("When did the train leave?", ["A train left.", "It rained."], k=1)
        # [{"text": "A train left.", "row": 0, "score": ...}]
        ```
    """

    def __init__(
        self,
        folder: str,
        max_terms: int | None = None,
        max_seq_length: int | None = None,
        num_threads: int | None = None,
        runtime: str = "auto",
    ):
        """Loads the model and its vocabulary; what an argument leaves open, the folder says.

        Args:
            folder: the --output_dir of run_sparse_embeddings; or an export of its model as tensors;
                or a folder of sentence-transformers' SparseEncoder; or a masked LM.
            max_terms: the number of words of a text that are kept, those with the largest weights;
                all words with a weight if nothing says it.
            max_seq_length: the tokens to which texts are truncated; the longest sequence of the
                model if nothing says it.
            num_threads: the threads to compute with; by default those of all processors.
            runtime: the runtime of an export, a value of --runtime of official-bert predict, such
                as "openvino_bfloat16"; by default the fastest installed one. A trained model
                accepts only "auto" and "tensorflow".

        Raises:
            InputError: the folder has no model that can be used, or an argument does not fit it.
        """
        self._folder = folder = model_hub.local_path(folder)
        if max_terms is not None:
            check_positive("max_terms", max_terms)
        set_threads(num_threads)
        if is_export(folder):
            opened = OpenedExport(folder, num_threads, settings={"runtime": runtime})
            longest, recorded_length = self._use_export(opened)
        else:
            longest, recorded_length = self._load(folder)
            check_trained(folder, {"runtime": runtime})
        self.max_terms = self.max_terms if max_terms is None else max_terms
        self.max_seq_length = choose_max_seq_length(max_seq_length, recorded_length, longest)
        self._words = {number: word for word, number in self.tokenizer.vocab.items()}

    def _use_export(self, opened: OpenedExport) -> tuple[int, int]:
        """Uses an export; returns its length, twice, as `_load` does."""
        self.model = opened
        settings = opened.record.settings
        if opened.record.family != SPARSE or settings["export_text"]:
            raise InputError(
                f"{self._folder}: is no export of tensors of a sparse model; open it with Predictor"
            )
        self.tokenizer = opened.tokenizer
        self.max_terms = settings.get("max_terms")
        self._query_encoder = settings.get("query_encoder", MODEL)
        self.vocab_size = len(self.tokenizer.vocab)
        self._run = run_export(opened)
        return settings["max_seq_length"], settings["max_seq_length"]

    def _load(self, folder: str) -> tuple[int, int | None]:
        """Loads a model; returns its longest sequence, and the length that the folder says."""
        modules = SparseModules.load(folder)
        checkpoint = open_checkpoint(modules.encoder)
        if HEAD_WEIGHT not in checkpoint.shapes:
            raise InputError(
                f"{checkpoint.path}: has no {HEAD_WEIGHT}, the head of a masked LM, which sparse "
                "embeddings need; give the folder of a masked LM"
            )
        model = BertSparseEncoder.from_pretrained(
            checkpoint,
            query_encoder=modules.query_encoder,
            activation=modules.term_activation,
        )
        model.pools_by_text = vocabulary_max.is_available()
        config = model.config
        if modules.query_weights is not None:
            lookup = model.query_lookup.weights_by_word
            if modules.query_weights.shape != tuple(lookup.shape):
                raise InputError(
                    f"{folder}: has {len(modules.query_weights)} weights of queries, but the model "
                    f"was made for vocab_size {config.vocab_size}; fetch the folder again"
                )
            lookup.assign(modules.query_weights)
        self.model = model
        self.tokenizer = FullTokenizer.from_pretrained(modules.encoder)
        self.max_terms = modules.max_terms
        self._query_encoder = modules.query_encoder
        self.vocab_size = config.vocab_size
        self._run = compile_signatures(
            {
                DEFAULT: _make_terms_function(model),
                QUERY_SIGNATURE: _make_terms_function(model.encode_queries),
            }
        )
        return config.max_position_embeddings, modules.max_seq_length

    def __repr__(self) -> str:
        return (
            f"SparseEncoder(folder={self._folder!r}, vocab_size={self.vocab_size}, "
            f"max_seq_length={self.max_seq_length}, query_encoder={self._query_encoder!r})"
        )

    def encode(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> csr_matrix:
        """Returns the weights of the words of documents in their order, as `encode_document` does.

        Args:
            texts: the documents; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no weight.
            show_progress_bar: whether the progress is shown; by default only where the log has it.

        Returns:
            A matrix of SciPy, float32[n, vocab_size].
        """
        return self._encode(DEFAULT, texts, batch_size, show_progress_bar)

    encode_document = encode

    def encode_query(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> csr_matrix:
        """Returns the weights of the words of queries in their order.

        Args:
            texts: the queries; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no weight.
            show_progress_bar: whether the progress is shown; by default only where the log has it.

        Returns:
            A matrix of SciPy, float32[n, vocab_size].
        """
        is_lookup = self._query_encoder != MODEL
        signature = QUERY_SIGNATURE if is_lookup else DEFAULT
        return self._encode(signature, texts, batch_size, show_progress_bar)

    encode_queries = encode_query  # an earlier name

    def _encode(
        self,
        signature: str,
        texts: str | Iterable[str],
        batch_size: int,
        show_progress_bar: bool | None,
    ) -> csr_matrix:
        """Returns a signature's output for all texts in their order, float32[n, vocab_size]."""
        scipy_sparse = vectors.import_scipy()
        texts = list_texts("texts", texts)
        order: list[int] = []
        blocks = [scipy_sparse.csr_matrix((0, self.vocab_size), dtype=np.float32)]
        with progress.shown_in_python(show_progress_bar):
            for rows in like_length_batches(texts, batch_size):
                order += rows
                batch = [texts[row] for row in rows]
                blocks.append(self._encode_batch(signature, batch))
        return scipy_sparse.vstack(blocks, format="csr")[np.argsort(order)]

    def _encode_batch(self, signature: str, texts: list[str]) -> csr_matrix:
        """Returns the output for the texts of a batch, float32[b, vocab_size]."""
        outputs = self._run(signature, self.tokenizer(texts, max_seq_length=self.max_seq_length))
        # The words with the largest weights come first.
        indices = np.asarray(outputs[INDICES])[:, : self.max_terms]
        weights = np.asarray(outputs[WEIGHTS])[:, : self.max_terms]
        return vectors.build_matrix(indices, weights, self.vocab_size)

    def decode(self, embeddings: csr_matrix, k: int | None = None) -> list[list[tuple[str, float]]]:
        """Returns the words of texts with their weights, the largest weight first.

        Args:
            embeddings: the result of `encode`.
            k: the number of words of a text; None for all.
        """
        results = []
        for row in embeddings:
            order = np.argsort(-np.abs(row.data), kind="stable")[:k]
            words = [self._words.get(index, str(index)) for index in row.indices[order].tolist()]
            results.append(list(zip(words, row.data[order].tolist(), strict=True)))
        return results

    def to_lists(self, embeddings: csr_matrix) -> list[tuple[list[int], list[float]]]:
        """Returns the words of texts and their weights as lists, as search engines read them.

        Args:
            embeddings: the result of `encode`.

        Returns:
            For each text the indices of its words in the vocabulary, and their weights.
        """
        return [(row.indices.tolist(), row.data.tolist()) for row in embeddings]

    def search(
        self,
        queries: str | Sequence[str],
        corpus: Sequence[str] | csr_matrix,
        k: int = 10,
    ) -> list:
        """Returns the documents of a corpus with the largest dot products, best first.

        Args:
            queries: the query, or several.
            corpus: the documents, which each call encodes again; or their matrix, the result of
                `encode`.
            k: the number of documents in a result.

        Returns:
            A list of dicts with `row`, the place in the corpus from 0, `score`, and `text` if the
            corpus is texts. For a list of queries it is a list of these lists.

        Raises:
            InputError: `k` is no positive number, or the matrix has another width.
        """
        check_positive("k", k)
        texts = None if hasattr(corpus, "indptr") else list_texts("corpus", corpus)
        matrix: Any = corpus if texts is None else self.encode(texts)
        if matrix.shape[1] != self.vocab_size:
            raise InputError(
                f"corpus: its matrix has {matrix.shape[1]} columns, but the vocabulary "
                f"{self.vocab_size} words; encode it with this model"
            )
        all_scores, all_rows = vectors.search(self.encode_query(queries), matrix.tocsr(), k)
        rankings = []
        for rows, scores in zip(all_rows.tolist(), all_scores.tolist(), strict=True):
            rankings.append(zip(rows, scores, strict=True))
        results = list_hits(rankings, texts)
        return results[0] if isinstance(queries, str) else results


def _make_terms_function(encode: Callable[[dict], tf.Tensor]) -> Callable[[dict], dict]:
    """Returns a function from the features of texts to their words and weights."""

    def list_all_terms(batch: dict) -> dict:
        return list_terms(encode(batch), None)

    return list_all_terms
