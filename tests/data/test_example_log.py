"""The line of the first example, and the original's dump of the first ones with --verbosity=1."""

import logging as std_logging

import pytest
from absl import logging

from official_bert.data.model_inputs import log_example


@pytest.fixture
def verbosity(caplog):
    before = logging.get_verbosity()

    def set_to(number):
        caplog.set_level(std_logging.DEBUG, logger="absl")
        logging.set_verbosity(number)

    yield set_to
    logging.set_verbosity(before)


def test_one_line_of_the_first_example_alone(verbosity, caplog):
    verbosity(0)
    for number in range(3):
        log_example([f"token{number}"] * 25, number == 0, lambda: pytest.fail("is not needed"))
    assert caplog.messages == ["First example: " + "token0 " * 20 + "..."]


def test_verbosity_1_gives_the_originals_dump_of_each(verbosity, caplog):
    verbosity(1)
    for number in range(2):
        log_example(["token"], number == 0, lambda number=number: [f"guid: {number}%d", "label: yes"])
    assert caplog.messages == [
        "*** Example ***", "guid: 0%d", "label: yes", "*** Example ***", "guid: 1%d", "label: yes",
    ]  # fmt: skip


def test_warnings_alone_say_nothing_of_examples(verbosity, caplog):
    verbosity(-1)
    log_example(["token"], True, lambda: ["guid"])
    assert caplog.messages == []
