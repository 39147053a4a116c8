"""What encoders of texts have in common: show_progress_bar, and the same result with and without."""

import logging

import pytest

from official_bert.io import progress


def check_shown_progress(encoder, texts, are_equal, caplog) -> None:
    """Checks that each method of an encoder shows its progress exactly where it should.

    Args:
        encoder: the encoder.
        texts: at least two texts.
        are_equal: returns whether two results are equal.
        caplog: the fixture; its level is INFO during the check.
    """
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, "absl"):
        patch.setattr(progress, "_MIN_SECS_BETWEEN_LINES", 0.0)
        for encode in (encoder.encode, encoder.encode_query, encoder.encode_document):
            results = []
            for is_shown, has_line in ((True, True), (False, False), (None, True)):
                caplog.clear()
                results.append(encode(texts, batch_size=1, show_progress_bar=is_shown))
                assert (f"{len(texts)} of {len(texts)} batches" in caplog.text) == has_line
            assert are_equal(results[0], results[1])
            assert are_equal(results[0], results[2])
