"""Sparse embeddings of texts from a masked LM, for inverted indexes and search by dot products.

Input: the folder of a model, plain or of sentence-transformers' SparseEncoder, or an export.
Output: a matrix of SciPy, float32[texts, vocabulary].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from official_bert import model_hub
from official_bert.checkpoints import open_checkpoint
from official_bert.extensions.sparse import vectors, vocabulary_max
from official_bert.extensions.sparse.model import BertSparseEncoder
from official_bert.extensions.sparse.options import MODEL, SPARSE
from official_bert.extensions.sparse.sparse_folder import HEAD_WEIGHT, SparseModules
from official_bert.extensions.sparse.task import INDICES, QUERY_SIGNATURE, WEIGHTS, list_terms
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.io.reading import has_type
from official_bert.serving.exported_model import DEFAULT, OpenedExport, is_export, set_threads
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

        Raises:
            InputError: the folder has no model that can be used, or an argument does not fit it.
        """
        self._folder = folder = model_hub.local_path(folder)
        for name, value in (("max_terms", max_terms), ("max_seq_length", max_seq_length)):
            if value is not None and (not has_type(value, int) or value < 1):
                raise InputError(f"{name}={value!r}: must be a positive whole number")
        set_threads(num_threads)
        if is_export(folder):
            longest, recorded_length = self._open_export(folder, num_threads)
        else:
            longest, recorded_length = self._load(folder)
        self.max_terms = self.max_terms if max_terms is None else max_terms
        self.max_seq_length = min(recorded_length or longest, longest)
        if max_seq_length is not None:
            self.max_seq_length = max_seq_length
        if self.max_seq_length > longest:
            raise InputError(
                f"max_seq_length={max_seq_length}: the model was made for sequences up to "
                f"{longest} tokens"
            )
        self._words = {number: word for word, number in self.tokenizer.vocab.items()}

    def _open_export(self, folder: str, num_threads: int | None) -> tuple[int, int]:
        """Opens an export; returns its length, twice, as `_load` does."""
        self.model = self._opened = opened = OpenedExport(folder, num_threads)
        settings = opened.record.settings
        if opened.record.family != SPARSE or settings["export_text"]:
            raise InputError(
                f"{folder}: is no export of tensors of a sparse model; open it with Predictor"
            )
        self.tokenizer = opened.tokenizer
        self.max_terms = settings.get("max_terms")
        self._query_encoder = settings.get("query_encoder", MODEL)
        self.vocab_size = len(self.tokenizer.vocab)
        self._run = self._run_export
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
        # One trace for all shapes.
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ENCODER_INPUTS}
        self._functions = {}
        encoders: dict[str, Any] = {DEFAULT: model, QUERY_SIGNATURE: model.encode_queries}
        for name, encode in encoders.items():
            self._functions[name] = tf.function(
                _make_terms_function(encode), input_signature=[signature], autograph=False
            )
        self._run = self._run_model
        return config.max_position_embeddings, modules.max_seq_length

    def _run_model(self, name: str, batch: dict) -> Mapping[str, Any]:
        return self._functions[name](batch)

    def _run_export(self, name: str, batch: dict) -> Mapping[str, Any]:
        if name == QUERY_SIGNATURE:
            # The form of the further signatures of an export, which read positions.
            no_positions = np.zeros((len(batch["input_ids"]), 1), np.int32)
            batch = batch | {MASKED_LM_POSITIONS: no_positions}
        return self._opened(name, batch)

    def __repr__(self) -> str:
        return (
            f"SparseEncoder(folder={self._folder!r}, vocab_size={self.vocab_size}, "
            f"max_seq_length={self.max_seq_length}, query_encoder={self._query_encoder!r})"
        )

    def encode(self, texts: str | Iterable[str], batch_size: int = 32) -> csr_matrix:
        """Returns the weights of the words of documents in their order.

        Args:
            texts: the documents; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no weight.

        Returns:
            A matrix of SciPy, float32[n, vocab_size].
        """
        return self._encode(DEFAULT, texts, batch_size)

    def encode_queries(self, texts: str | Iterable[str], batch_size: int = 32) -> csr_matrix:
        """Returns the weights of the words of queries in their order.

        Args:
            texts: the queries; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no weight.

        Returns:
            A matrix of SciPy, float32[n, vocab_size].
        """
        is_lookup = self._query_encoder != MODEL
        return self._encode(QUERY_SIGNATURE if is_lookup else DEFAULT, texts, batch_size)

    def _encode(self, signature: str, texts: str | Iterable[str], batch_size: int) -> csr_matrix:
        if not has_type(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size={batch_size!r}: must be a positive whole number")
        scipy_sparse = vectors.import_scipy()
        texts = list_texts("texts", texts)
        # Characters tell enough about tokens.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        blocks = [scipy_sparse.csr_matrix((0, self.vocab_size), dtype=np.float32)]
        for start in counted(range(0, len(order), batch_size), "batches of texts"):
            batch = [texts[row] for row in order[start : start + batch_size]]
            outputs = self._run(
                signature, self.tokenizer(batch, max_seq_length=self.max_seq_length)
            )
            # The words with the largest weights come first.
            indices = np.asarray(outputs[INDICES])
            weights = np.asarray(outputs[WEIGHTS])
            block = vectors.build_matrix(
                indices[:, : self.max_terms],
                weights[:, : self.max_terms],
                self.vocab_size,
            )
            blocks.append(block)
        return scipy_sparse.vstack(blocks, format="csr")[np.argsort(order)]

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
        if not has_type(k, int) or k < 1:
            raise InputError(f"k={k!r}: must be a positive whole number")
        has_matrix = hasattr(corpus, "indptr")
        texts = [] if has_matrix else list_texts("corpus", corpus)
        matrix: Any = corpus if has_matrix else self.encode(texts)
        if matrix.shape[1] != self.vocab_size:
            raise InputError(
                f"corpus: its matrix has {matrix.shape[1]} columns, but the vocabulary "
                f"{self.vocab_size} words; encode it with this model"
            )
        all_scores, all_rows = vectors.search(self.encode_queries(queries), matrix.tocsr(), k)
        results = []
        for scores, rows in zip(all_scores.tolist(), all_rows.tolist(), strict=True):
            hits = []
            for row, score in zip(rows, scores, strict=True):
                hit = {"row": row, "score": score}
                if not has_matrix:
                    hit = {"text": texts[row]} | hit
                hits.append(hit)
            results.append(hits)
        return results[0] if isinstance(queries, str) else results


def _make_terms_function(encode: Callable[[dict], tf.Tensor]) -> Callable[[dict], dict]:
    """Returns a function from the features of texts to their words and weights."""

    def list_all_terms(batch: dict) -> dict:
        return list_terms(encode(batch), None)

    return list_all_terms
