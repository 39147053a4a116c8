"""Calls that may block: their results, their errors, the messages and the limit."""

import threading
import time

import pytest

from official_bert.io import waiting


def test_the_result_and_the_error_of_a_call_are_its_own():
    assert waiting.result_of(lambda: 3, "three", limit_secs=10) == 3
    with pytest.raises(KeyError, match="lost"):
        waiting.result_of(lambda: {}["lost"], "nothing", limit_secs=10)


def test_messages_say_what_is_waited_for_until_the_limit(monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_FIRST_MESSAGE_SECS", 0.01)
    monkeypatch.setattr(waiting, "_NEXT_MESSAGE_SECS", 0.01)
    caplog.set_level("INFO", logger="absl")
    never = threading.Event()
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        waiting.result_of(never.wait, "the moon", limit_secs=0.1)
    assert time.monotonic() - start_secs >= 0.09
    assert "waiting for the moon, for 0 s more at most" in caplog.text
    never.set()
