"""The progress line of long jobs, by a clock that the test turns."""

import pytest

from official_bert.jobs import progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_ten_seconds_with_the_speed(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    report = progress.Progress("lines")
    for now, done in ((109.0, 9), (110.0, 20), (115.0, 30), (121.0, 42)):
        clock[0] = now
        report(done)
    assert [record.getMessage() for record in caplog.records] == [
        "20 lines, 2.0 a second",
        "42 lines, 2.0 a second",
    ]


def test_the_time_left_where_the_total_is_known(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    report = progress.Progress("documents visited", total=500)
    clock[0] = 120.0
    report(100)
    assert caplog.messages == ["100 of 500 documents visited, 80 s left"]
