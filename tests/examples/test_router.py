"""The routers in C, Go and Java answer lines of text as a call of the export does."""

import os
import pathlib
import random
import subprocess
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.examples import router_programs
from tests.examples.router_programs import write_names
from tests.serving import exported
from tests.serving.answers import signatures_of

TEXTS = [
    "The cat sat on the mat.",
    "",
    "A train left the station at noon.",
    "Zürich 東京 \t!",
]
# Bytes that are no UTF-8, between and within words: another encoding, characters that are cut off, a
# longer form of a slash, half of a pair, a number beyond the planes, and bytes that never occur.
BROKEN_TEXTS = [
    "the café sat".encode("latin-1"),
    b"the cat \xf0\x9f\x98 sat on \xe6\x9d the mat \xe2",
    b"the\xc0\xafcat \xed\xa0\x80 sat \xf4\x90\x80\x80 on \xff\xfe the \x80 mat",
]
# The bytes at the limits of UTF-8's rules, in random order.
_LIMITS = bytes.fromhex(
    "20 61 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff"
)
_draws = random.Random(1)
BROKEN_TEXTS += [bytes(_draws.choices(_LIMITS, k=15)) for _ in range(40)]


class Router(NamedTuple):
    """The command of a program, without its argument, and the folder of its model."""

    command: list
    version: pathlib.Path

    def run(self, *arguments, text: bytes) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*self.command, *arguments],
            input=text,
            capture_output=True,
            env=os.environ | router_programs.VARIABLES,
            check=False,
            timeout=300,
        )


needs_cc = pytest.mark.needs_program("cc")
# Several hundred megabytes of compilers are not for each run of the tests.
needs_go = (needs_cc, pytest.mark.needs_extra("go"), pytest.mark.long)
needs_java = (needs_cc, pytest.mark.needs_extra("java"), pytest.mark.long)
needs_header = (
    needs_cc,
    pytest.mark.needs_extra("onnx", "onnxruntime", "onnxruntime_c_api.h"),
    pytest.mark.long,
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(router_programs.build_c, id="C", marks=needs_cc),
        pytest.param(router_programs.build_go, id="Go", marks=needs_go),
        pytest.param(router_programs.build_java, id="Java", marks=needs_java),
        pytest.param(router_programs.build_onnx, id="C with onnxruntime", marks=needs_header),
    ],
)
def router(request, tmp_path_factory) -> Router:
    export_format = "onnx" if request.param is router_programs.build_onnx else "saved_model"
    version = exported.shared_export(
        tmp_path_factory, "mrpc", export_text=True, export_format=export_format
    ).path
    command = request.param(version, tmp_path_factory.mktemp("router"))
    return Router(command, version)


def test_each_line_gets_the_answer_of_the_export(router, tmp_path_factory):
    texts = [*(text.encode() for text in TEXTS), *BROKEN_TEXTS]
    # The last line has no end.
    finished = router.run(router.version, text=b"\n".join(texts))
    assert finished.returncode == 0, finished.stderr
    lines = [line.split("\t") for line in finished.stdout.decode().splitlines()]
    # The export in ONNX has the same weights.
    version = exported.shared_export(
        tmp_path_factory, "mrpc", export_text=True, export_format="saved_model"
    ).path
    serve = signatures_of(version)["serving_text"]
    inputs = {"text_a": tf.constant(texts)}
    if "text_b" in serve.structured_input_signature[1]:
        inputs["text_b"] = tf.constant([""] * len(texts))
    expected = serve(**inputs)
    assert [label for label, _ in lines] == [one.decode() for one in expected["label"].numpy()]
    np.testing.assert_allclose(
        [float(probability) for _, probability in lines],
        expected["probabilities"].numpy().max(axis=1),
        atol=2e-6,
    )


def test_errors_are_one_line_and_status_1(router, tmp_path):
    finished = router.run(tmp_path, text=b"")
    assert finished.returncode == 1
    *_, message = finished.stderr.decode().splitlines()
    assert message.startswith("router: ")
    assert str(tmp_path) in message
    finished = router.run(text=b"")
    assert finished.returncode == 1
    *_, message = finished.stderr.decode().splitlines()
    assert message == "usage: router FOLDER_OF_A_VERSION < texts"


def test_an_export_of_another_kind_is_named(tmp_path_factory):
    version = exported.shared_export(tmp_path_factory, "mrpc").path
    finished = write_names(version)
    assert finished.returncode == 1
    assert "is no export of a classifier with one label that reads raw text" in finished.stderr


def test_a_folder_without_a_model_is_named(tmp_path):
    finished = write_names(tmp_path)
    assert finished.returncode == 1
    assert f"{tmp_path}/saved_model.pb: No such file or directory" in finished.stderr
