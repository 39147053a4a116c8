"""Vectors of the tokens of texts, for search by late interaction.

Input: the folder of a model, of this project or of sentence-transformers' MultiVectorEncoder, or an
export. Output: `TokenVectors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from official_bert import model_hub
from official_bert.checkpoints import open_checkpoint
from official_bert.extensions.late_interaction import token_vectors
from official_bert.extensions.late_interaction.model import BertMultiVectorEncoder
from official_bert.extensions.late_interaction.multi_vector_folder import (
    KERNEL,
    MultiVectorModules,
)
from official_bert.extensions.late_interaction.options import LATE_INTERACTION, NUM_CANDIDATES
from official_bert.extensions.late_interaction.task import (
    COUNTS,
    VECTORS,
    encode_documents,
    encode_queries,
)
from official_bert.extensions.late_interaction.token_features import TokenRules
from official_bert.extensions.late_interaction.token_vectors import TokenVectors
from official_bert.io import progress
from official_bert.io.errors import InputError
from official_bert.modeling import BertModel
from official_bert.modeling.heads import share_encoder
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
from official_bert.serving.model import BatchedModel
from official_bert.tasks.retrieval_task import QUERY_SIGNATURE
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_call import list_texts


class MultiVectorEncoder:
    """Encodes each token of a text, and searches by MaxSim (ColBERT, Khattab and Zaharia, 2020).

    Attributes:
        model: the model, or an opened export.
        tokenizer: the tokenizer of the model.
        max_seq_length: the number of tokens to which documents are truncated.
        token_width: the number of components of a vector.

    Example:
        ```python
        from official_bert import MultiVectorEncoder

        encoder = MultiVectorEncoder("/tmp/my_colbert")
        corpus = encoder.encode(["A train left.", "It rained."]).quantize()
        encoder.search("When did the train leave?", corpus, k=1)
        # [{"row": 0, "score": ...}]
        ```
    """

    def __init__(
        self,
        folder: str,
        max_seq_length: int | None = None,
        num_threads: int | None = None,
        runtime: str = "auto",
    ):
        """Loads the model and its vocabulary.

        Args:
            folder: the --output_dir of run_late_interaction; or an export of its model as tensors;
                or a folder of sentence-transformers' MultiVectorEncoder.
            max_seq_length: the tokens to which documents are truncated; by default as the folder
                says, or the longest sequence of the model.
            num_threads: the threads to compute with; by default those of all processors.
            runtime: the runtime of an export, a value of --runtime of official-bert predict, such
                as "openvino_bfloat16"; by default the fastest installed one. A trained model
                accepts only "auto" and "tensorflow".

        Raises:
            InputError: the folder has no model that can be used, or an argument does not fit it.
        """
        self._folder = folder = model_hub.local_path(folder)
        set_threads(num_threads)
        self._least_query_length = 0
        if is_export(folder):
            self._use(OpenedExport(folder, num_threads, settings={"runtime": runtime}))
            longest = self.max_seq_length
            self.max_seq_length = choose_max_seq_length(max_seq_length, longest, longest)
        else:
            self._load(folder, max_seq_length)
            check_trained(folder, {"runtime": runtime})

    @classmethod
    def from_model(cls, model: BatchedModel) -> Self:
        """Makes the encoder of a model that is open, such as that of a Predictor.

        Args:
            model: the model, whose signatures read tensors.

        Raises:
            InputError: the model is none of late interaction.
        """
        encoder = cls.__new__(cls)
        encoder._folder = model.path
        encoder._least_query_length = 0
        encoder._use(model)
        return encoder

    def _use(self, model: OpenedExport | BatchedModel):
        """Uses the signatures of a model."""
        settings = model.record.settings
        if model.record.family != LATE_INTERACTION or settings["export_text"]:
            raise InputError(
                f"{self._folder}: is no export of tensors of a model of late interaction; open it "
                "with Predictor"
            )
        self.model = model
        self.tokenizer = model.tokenizer
        self.token_width = settings["token_width"]
        self.max_seq_length = settings["max_seq_length"]
        self._run = run_export(model)

    def _load(self, folder: str, max_seq_length: int | None):
        """Loads a model."""
        modules = MultiVectorModules.load(folder)
        checkpoint = open_checkpoint(modules.encoder)
        if modules.kernel is None and KERNEL not in checkpoint.shapes:
            raise InputError(
                f"{checkpoint.path}: has no {KERNEL}, the projection of late interaction; train it "
                "with official-bert run_late_interaction"
            )
        if modules.kernel is None:
            width = modules.token_width
            model = BertMultiVectorEncoder.from_pretrained(checkpoint, token_width=width)
        else:
            model = _add_projection(BertModel.from_pretrained(checkpoint), modules.kernel, folder)
        self.model = model
        self.tokenizer = FullTokenizer.from_pretrained(modules.encoder)
        num_rows = model.config.vocab_size
        if len(self.tokenizer) > num_rows:
            raise InputError(
                f"{modules.encoder}: its vocabulary has {len(self.tokenizer)} pieces, added tokens "
                f"included, but the model has {num_rows} word embeddings; restore its files"
            )
        self.token_width = modules.token_width
        if modules.kernel is not None:
            # sentence-transformers truncates queries to this length alone.
            self._least_query_length = modules.query_length
        self.max_seq_length = choose_max_seq_length(
            max_seq_length, modules.max_seq_length, model.config.max_position_embeddings
        )
        rules = TokenRules.make(self.tokenizer, modules, self.max_seq_length)

        def run_documents(batch: dict) -> dict:
            vectors, counts = encode_documents(model, rules, batch)
            return {VECTORS: vectors, COUNTS: counts}

        def run_queries(batch: dict) -> dict:
            vectors, counts = encode_queries(model, rules, batch)
            return {VECTORS: vectors, COUNTS: counts}

        self._run = compile_signatures({DEFAULT: run_documents, QUERY_SIGNATURE: run_queries})

    def __repr__(self) -> str:
        return (
            f"MultiVectorEncoder(folder={self._folder!r}, token_width={self.token_width}, "
            f"max_seq_length={self.max_seq_length})"
        )

    def encode(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> TokenVectors:
        """Returns the vectors of the tokens of documents, as `encode_document` does.

        Args:
            texts: the documents; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no vector.
            show_progress_bar: whether the progress is shown; by default only where the log has it.
        """
        return self._encode(DEFAULT, texts, batch_size, show_progress_bar)

    encode_document = encode

    def encode_query(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> TokenVectors:
        """Returns the vectors of the tokens of queries.

        Args:
            texts: the queries; a single text is a list of one.
            batch_size: the number of texts that are encoded at once, which changes no vector.
            show_progress_bar: whether the progress is shown; by default only where the log has it.
        """
        return self._encode(QUERY_SIGNATURE, texts, batch_size, show_progress_bar)

    encode_queries = encode_query  # an earlier name

    def _encode(
        self,
        signature: str,
        texts: str | Iterable[str],
        batch_size: int,
        show_progress_bar: bool | None,
    ) -> TokenVectors:
        """Returns the vectors of a signature for all texts in their order."""
        texts = list_texts("texts", texts)
        length = self.max_seq_length
        if signature == QUERY_SIGNATURE:
            length = max(length, self._least_query_length)
        encoded: list[Any] = [None] * len(texts)
        with progress.shown_in_python(show_progress_bar):
            for rows in like_length_batches(texts, batch_size):
                batch = [texts[row] for row in rows]
                outputs = self._run(signature, self.tokenizer(batch, max_seq_length=length))
                vectors = np.asarray(outputs[VECTORS])
                counts = np.asarray(outputs[COUNTS]) > 0
                for place, row in enumerate(rows):
                    encoded[row] = vectors[place, counts[place]]
        return TokenVectors.pack(encoded, self.token_width)

    def search(
        self,
        queries: str | Sequence[str],
        corpus: Sequence[str] | TokenVectors,
        k: int = 10,
        num_candidates: int = NUM_CANDIDATES,
    ) -> list:
        """Returns the documents of a corpus with the largest MaxSim scores, best first.

        Args:
            queries: the query, or several.
            corpus: the documents, which each call encodes again; or their vectors, the result of
                `encode`, perhaps of `quantize` or of `TokenVectors.load`.
            k: the number of documents in a result.
            num_candidates: the number of documents whose mean vectors are nearest to that of the
                query, which alone are scored.

        Returns:
            A list of dicts with `row`, the place in the corpus from 0, `score`, and `text` if the
            corpus is texts. For a list of queries it is a list of these lists.

        Raises:
            InputError: a number is not positive, or the vectors have another width.
        """
        check_positive("k", k)
        check_positive("num_candidates", num_candidates)
        if isinstance(corpus, TokenVectors):
            texts, documents = None, corpus
        else:
            texts = list_texts("corpus", corpus)
            documents = self.encode(texts)
        if documents.width != self.token_width:
            raise InputError(
                f"corpus: its vectors have {documents.width} components, those of the "
                f"model {self.token_width}; encode it with this model"
            )
        rankings = token_vectors.search(self.encode_query(queries), documents, k, num_candidates)
        results = list_hits(rankings, texts)
        return results[0] if isinstance(queries, str) else results


def _add_projection(encoder: BertModel, kernel: np.ndarray, folder: str) -> BertMultiVectorEncoder:
    """Returns a model of an encoder and a projection, float32[hidden, D], of files of their own."""
    if len(kernel) != encoder.config.hidden_size:
        raise InputError(
            f"{folder}: its projection reads {len(kernel)} components, but the encoder has "
            f"{encoder.config.hidden_size}; fetch the folder again"
        )
    with share_encoder(encoder):
        model = BertMultiVectorEncoder(encoder.config, kernel.shape[1])
    model.token_projection.kernel.assign(kernel)
    return model
