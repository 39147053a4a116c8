"""The modes of predict for embedding models: --index and --search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from official_bert import catalog
from official_bert.commands.predict_mode import FileMode, PredictMode, Window, input_name
from official_bert.extensions.retrieval.comparisons import encode_documents, index_of, search
from official_bert.extensions.retrieval.index import write_index
from official_bert.extensions.retrieval.options import SearchOptions
from official_bert.extensions.retrieval.small_vectors import FLOAT32, BlockEncoder
from official_bert.extensions.retrieval.vector_file import write_vectors
from official_bert.io.errors import InputError
from official_bert.options.serving import TOP_K, PredictOptions
from official_bert.serving.predictor import Predictor


def choose_mode(options: PredictOptions) -> PredictMode | None:
    """Return the mode of predict that the flags of this extension choose.

    Args:
        options: the flags of predict.

    Returns:
        The mode of --index or --search; None without these flags.

    Raises:
        InputError: both flags are there, or another flag does not go with one of them.
    """
    flags = catalog.options_part(options, SearchOptions)
    if flags.index and flags.search:
        raise InputError("--search: does not go with --index; make the index first, then search it")
    if flags.vectors_file and (flags.index or flags.search):
        raise InputError(
            "--vectors_file: writes vectors alone, and does not go with --index and --search; "
            "leave one of them out"
        )
    if flags.vectors_file:
        return VectorsMode(options, flags, flags.vectors_file)
    if flags.index:
        return IndexMode(options, flags, flags.index)
    if flags.search:
        return SearchMode(options, flags, flags.search)
    return None


class _VectorMode(FileMode):
    """Reads all lines, and writes their vectors into one file."""

    def __init__(self, options: PredictOptions, flags: SearchOptions, path: str):
        super().__init__(options, path)
        self._prompt = flags.document_prompt

    def start(self, predictor: Predictor) -> None:
        """Use a model; reject one without vectors."""
        super().start(predictor)
        encode_documents(predictor, [], self._prompt)


class VectorsMode(_VectorMode):
    """Writes the vectors of all lines into the file of --vectors_file."""

    flag = "--vectors_file"

    def consume(self, windows: Iterable[Window]) -> None:
        """Encode all texts, a few batches at a time; a blank line has a vector, too."""
        texts = (text for requests, _ in windows for (text,) in requests)
        name = input_name(self.options)
        num_rows = write_vectors(self.predictor, texts, self._path, name, self._prompt)
        logging.info("Wrote %s, with the vectors of %d texts", self._path, num_rows)


class IndexMode(_VectorMode):
    """Writes the texts and their vectors into the file of --index."""

    flag = "--index"

    def __init__(self, options: PredictOptions, flags: SearchOptions, path: str):
        super().__init__(options, flags, path)
        self._vector_type = flags.vector_type or FLOAT32
        self._width = flags.width

    def consume(self, windows: Iterable[Window]) -> None:
        """Encode all texts and write the index; blank lines are skipped."""
        texts: list[str] = []
        encoded = BlockEncoder(self._vector_type, self._width)
        num_lines = 0
        has_ids = False
        for requests, extra_fields in windows:
            num_lines += len(requests)
            has_ids = has_ids or any("id" in fields for fields in extra_fields)
            window_texts = [text for (text,) in requests if text.strip()]
            if window_texts:
                encoded.add(encode_documents(self.predictor, window_texts, self._prompt))
                texts += window_texts
        name = input_name(self.options)
        if not texts:
            raise InputError(f"{name}: has no line to embed; give one text a line")
        num_blank = num_lines - len(texts)
        if num_blank:
            logging.warning("%s: skipped %d blank lines; rows count the texts", name, num_blank)
        if has_ids:
            logging.warning("%s: an index keeps no ids; rows count its texts from 0", name)
        blocks = encoded.finish()
        write_index(self._path, texts, blocks, self._prompt, encoded.ranges)
        logging.info("Wrote %s, with the vectors of %d texts", self._path, len(texts))


class SearchMode(PredictMode):
    """Answers each line with the nearest texts of an index, which is read once."""

    flag = "--search"

    def __init__(self, options: PredictOptions, flags: SearchOptions, path: str):
        super().__init__(options)
        self._path = path
        self._top_k = flags.top_k or TOP_K
        self._prompt = flags.query_prompt

    @property
    def files_read(self) -> Mapping[str, list[str]]:
        """The index, which no output may overwrite."""
        return {"search": [self._path]}

    def start(self, predictor: Predictor) -> None:
        """Use a model, and read the index; reject that of another model."""
        super().start(predictor)
        self._index = index_of(predictor, self._path)

    def answers(self, requests: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Yield for each text its nearest texts as `hits`."""
        texts = [text for (text,) in requests]
        results = search(self.predictor, texts, self._index, self._top_k, self._prompt)
        return ({"hits": hits} for hits in results)
