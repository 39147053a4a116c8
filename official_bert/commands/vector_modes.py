"""The modes of predict.py for models of vectors: --index and --search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from official_bert.commands.predict_mode import STANDARD, PredictMode, Window, input_name
from official_bert.io.errors import InputError
from official_bert.options.serving import STOP, TOP_K, PredictOptions
from official_bert.serving.predictor import Predictor
from official_bert.tasks.embedding import vector_search


def vector_mode(options: PredictOptions) -> PredictMode | None:
    """Returns the mode of --index or --search; None without these flags."""
    if options.index and options.search:
        raise InputError("--search: does not go with --index; make the index first, then search it")
    if options.index:
        return IndexMode(options)
    return SearchMode(options) if options.search else None


class IndexMode(PredictMode):
    """Writes the texts and their vectors into the file of --index."""

    flag = "--index"
    writes_answers = False

    def __init__(self, options: PredictOptions):
        super().__init__(options)
        if options.output_file != STANDARD:
            raise InputError(
                "--output_file: does not go with --index, the one file that is written; leave it "
                "out"
            )
        if options.on_error != STOP:
            raise InputError(
                "--on_error=report: does not go with --index, which has no place for errors; "
                "leave it out"
            )

    @property
    def output_file(self) -> str:
        return self.options.index

    def start(self, predictor: Predictor):
        super().start(predictor)
        predictor.encode([])  # refuses a model without vectors

    def consume(self, windows: Iterable[Window]):
        texts, blocks = [], []
        num_lines, has_ids = 0, False
        for requests, extra_fields in windows:
            window_texts = [text for (text,) in requests if text.strip()]
            num_lines += len(requests)
            has_ids = has_ids or any("id" in fields for fields in extra_fields)
            if window_texts:
                blocks.append(self.predictor.encode(window_texts))
                texts += window_texts
        name = input_name(self.options)
        if not texts:
            raise InputError(f"{name}: has no line to embed; give one text a line")
        if num_blank := num_lines - len(texts):
            logging.warning("%s: skipped %d blank lines; rows count the texts", name, num_blank)
        if has_ids:
            logging.warning("%s: an index keeps no ids; rows count its texts from 0", name)
        vector_search.write_index(self.options.index, texts, blocks)
        logging.info("Wrote %s, with the vectors of %d texts", self.options.index, len(texts))


class SearchMode(PredictMode):
    """Answers each line with the nearest texts of an index, which is read once."""

    flag = "--search"

    @property
    def files_read(self) -> Mapping[str, list[str]]:
        return {"search": [self.options.search]}

    def start(self, predictor: Predictor):
        super().start(predictor)
        self._index = predictor.index_of(self.options.search)

    def answers(self, requests: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        texts = [text for (text,) in requests]
        results = self.predictor.search(texts, self._index, self.options.top_k or TOP_K)
        return ({"hits": hits} for hits in results)
