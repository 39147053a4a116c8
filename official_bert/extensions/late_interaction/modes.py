"""The modes of predict for models of late interaction: --token_index and --token_search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from official_bert import catalog
from official_bert.commands.predict_mode import FileMode, PredictMode, Window, input_name
from official_bert.extensions.late_interaction.multi_vector_encoder import MultiVectorEncoder
from official_bert.extensions.late_interaction.options import (
    LATE_INTERACTION,
    NUM_CANDIDATES,
    TokenSearchOptions,
)
from official_bert.extensions.late_interaction.token_index import (
    FLOAT_BITS,
    TokenBlockEncoder,
    TokenIndex,
)
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.serving import TOP_K, PredictOptions
from official_bert.serving.predictor import Predictor


def choose_mode(options: PredictOptions) -> PredictMode | None:
    """Return the mode of predict that the flags of this extension choose.

    Args:
        options: the flags of predict.

    Returns:
        The mode of --token_index or --token_search; None without these flags.

    Raises:
        InputError: both flags are there, or another flag does not go with one of them.
    """
    flags = catalog.options_part(options, TokenSearchOptions)
    if flags.token_index and flags.token_search:
        raise InputError(
            "--token_search: does not go with --token_index; make the index first, then search it"
        )
    if flags.token_index:
        return TokenIndexMode(options, flags, flags.token_index)
    if flags.token_search:
        return TokenSearchMode(options, flags, flags.token_search)
    return None


def _make_encoder(flag: str, predictor: Predictor) -> MultiVectorEncoder:
    """Makes the encoder of a predictor's model; rejects one of another task."""
    if predictor.task_name != LATE_INTERACTION:
        raise InputError(
            f"{flag}: needs a model of late interaction, and {predictor.path} is one of "
            f"{predictor.task_name}; name one that run_late_interaction has trained"
        )
    return MultiVectorEncoder.from_model(predictor.model)


class TokenIndexMode(FileMode):
    """Writes the texts and the vectors of their tokens into the file of --token_index."""

    flag = "--token_index"

    def __init__(self, options: PredictOptions, flags: TokenSearchOptions, path: str):
        super().__init__(options, path)
        self._bits = flags.token_bits or FLOAT_BITS

    def start(self, predictor: Predictor) -> None:
        """Use a model; reject one of another task."""
        super().start(predictor)
        self._encoder = _make_encoder(self.flag, predictor)

    def consume(self, windows: Iterable[Window]) -> None:
        """Encode all texts, a few batches at a time, and write the index; skip blank lines."""
        texts: list[str] = []
        encoded = TokenBlockEncoder(self._bits)
        for requests, _ in windows:
            window_texts = [text for (text,) in requests if text.strip()]
            if window_texts:
                encoded.add(self._encoder.encode(window_texts, self.options.batch_size))
                texts += window_texts
        if not texts:
            name = input_name(self.options)
            raise InputError(f"{name}: has no line to encode; give one text a line")
        vectors = encoded.finish()
        TokenIndex(texts, vectors).write(self._path)
        logging.info(
            "Wrote %s, with %d vectors of the tokens of %d texts",
            self._path,
            len(vectors.values),
            len(texts),
        )


class TokenSearchMode(PredictMode):
    """Answers each line with the texts of an index that have the largest MaxSim scores."""

    flag = "--token_search"

    def __init__(self, options: PredictOptions, flags: TokenSearchOptions, path: str):
        super().__init__(options)
        if not files.exists(path):
            raise InputError(
                f"--token_search={path}: no such file; write the index with --token_index first, "
                "or correct the path"
            )
        self._path = path
        self._top_k = flags.top_k or TOP_K
        self._num_candidates = flags.num_candidates or NUM_CANDIDATES

    @property
    def files_read(self) -> Mapping[str, list[str]]:
        """The index, which no output may overwrite."""
        return {"token_search": [self._path]}

    def start(self, predictor: Predictor) -> None:
        """Use a model, and read the index; reject one of vectors of another width."""
        super().start(predictor)
        self._encoder = _make_encoder(self.flag, predictor)
        self._index = TokenIndex.read(self._path)
        self._search([])

    def answers(self, requests: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Yield for each text its best texts as `hits`."""
        for hits in self._search([text for (text,) in requests]):
            yield {"hits": [{"text": self._index.texts[hit["row"]], **hit} for hit in hits]}

    def _search(self, queries: Sequence[str]) -> list[list[dict[str, Any]]]:
        return self._encoder.search(
            queries,
            self._index.vectors,
            self._top_k,
            self._num_candidates,
        )
