"""Messages of functions: arguments in place of flags."""

import pytest
from absl import logging

from official_bert.io.errors import Diverged, InputError, naming_arguments

NAMES = ["model", "vocab_file", "label_type", "learning_rate", "has_header"]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "--vocab_file: must be given, or --model with the folder",
            "vocab_file: must be given, or model= with the folder",
        ),
        ("or add --label_type=multi", "or add label_type='multi'"),
        ("--model=/a/b.c: no such folder", "model='/a/b.c': no such folder"),
        ("--learning_rate=0.001 (0.2 before)", "learning_rate=0.001 (0.2 before)"),
        ("give --has_header=false; or not", "give has_header=False; or not"),
        ("name it, --label_type=...; then", "name it, label_type=...; then"),
        ("give --do_train, or --output_dir", "give --do_train, or folder"),
        ("check --column=a", "check the text"),
        ("check --column=ab", "check --column=ab"),
    ],
)
def test_flags_become_arguments(sentence, expected):
    others = {"--output_dir": "folder", "--column=a": "the text"}
    with pytest.raises(InputError) as raised, naming_arguments(NAMES, others):
        raise InputError(sentence)
    assert str(raised.value) == expected


def test_the_type_and_the_cause_of_an_error_stay():
    cause = OSError("no")
    with (
        pytest.raises(Diverged, match=r"^lower learning_rate=$") as raised,
        naming_arguments(NAMES, {}),
    ):
        raise Diverged("lower --learning_rate") from cause
    assert raised.value.__cause__ is cause


def test_flags_become_arguments_in_warnings(caplog):
    caplog.set_level("INFO", logger="absl")
    with naming_arguments(NAMES, {"--output_dir": "folder"}):
        logging.warning("raise --learning_rate above %g, or use another --output_dir", 1e-5)
        logging.info("the command is --learning_rate=%g", 1e-5)
    logging.warning("raise --learning_rate")
    assert caplog.messages == [
        "raise learning_rate= above 1e-05, or use another folder",
        "the command is --learning_rate=1e-05",
        "raise --learning_rate",
    ]
