"""An encoder as the package `mteb` evaluates it: official_bert.MtebEncoder."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from official_bert.io.errors import InputError
from official_bert.metrics.cosines import all_cosines, cosines


class Encoder(Protocol):
    """What has embeddings: a SentenceEncoder, or a Predictor of such a model."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Encodes texts.

        Args:
            texts: the texts.
        """
        ...


class MtebEncoder:
    """An encoder with the methods that `mteb.evaluate` calls; `pip install mteb` first.

    Example:
        ```python
        from official_bert import MtebEncoder, SentenceEncoder

        folder = "quickstart_output/full/bert"
        encoder = MtebEncoder(SentenceEncoder(folder), "my_encoder")
        # import mteb
        # mteb.evaluate(encoder, mteb.get_tasks(tasks=["STSBenchmark"]))
        ```
    """

    def __init__(self, encoder: Encoder, name: str, revision: str | None = None):
        """Wraps an encoder.

        Args:
            encoder: the encoder. If it has `encode_query` and `encode_document`, they encode the
                queries and the documents of a search.
            name: the name of the model in the results; "official_bert/" is put before a name
                without a slash.
            revision: the version of the model in the results.
        """
        self._encoder = encoder
        self._name = name if "/" in name else f"official_bert/{name}"
        self._revision = revision

    def encode(
        self, inputs: Iterable[Mapping[str, list[str]]], prompt_type: str | None = None, **_: Any
    ) -> np.ndarray:
        """Encodes texts, float32[n, width].

        Args:
            inputs: the batches of texts.
            prompt_type: "query" or "document"; None for texts that are neither.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        method = f"encode_{getattr(prompt_type, 'value', prompt_type)}"
        return getattr(self._encoder, method, self._encoder.encode)(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Returns the cosines of all pairs, float32[a, b].

        Args:
            embeddings1: float[a, width].
            embeddings2: float[b, width].
        """
        return all_cosines(np.atleast_2d(embeddings1), np.atleast_2d(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Returns the cosines of the rows of two arrays, float[n].

        Args:
            embeddings1: float[n, width].
            embeddings2: float[n, width].
        """
        return cosines(np.asarray(embeddings1), np.asarray(embeddings2))

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        """The description of the model in the results.

        Raises:
            InputError: mteb is not installed.
        """
        try:
            from mteb.models.model_meta import (  # pyright: ignore[reportMissingImports]
                ModelMeta,
            )
        except ImportError as error:
            raise InputError(
                f"MtebEncoder needs the package mteb, which cannot be imported ({error}); pip "
                "install mteb"
            ) from None
        return ModelMeta.create_empty(
            {
                "name": self._name,
                "revision": self._revision,
                "similarity_fn_name": "cosine",
                "framework": ["TensorFlow"],
            }
        )
