"""Runs signatures of a SavedModel with a C program: tests/serving/saved_model_runner.c, built by
the system's compiler.

In: requests, inputs by name. Out: the signature's outputs by name, or the error. The program is
linked with the TensorFlow library inside the pip package and contains no Python.
"""

import os
import pathlib
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np

from tests.session import alone_in, shared_folder

SOURCE = pathlib.Path(__file__).with_name("saved_model_runner.c")
TENSORFLOW = pathlib.Path(find_spec("tensorflow").origin).parent
COMPILE_COMMAND = ("cc", "-O1", "-Wall", "-Werror")
_NUMPY_TYPES = {1: np.float32, 3: np.int32, 9: np.int64}
_STRING = 7
_CODES = {np.dtype(dtype): code for code, dtype in _NUMPY_TYPES.items()}
_CODES[np.dtype(object)] = _STRING

Request = tuple[str, Mapping[str, np.ndarray]]


class RunError(Exception):
    """A request that TensorFlow refused; the text is its message."""


def build(tmp_path_factory) -> pathlib.Path:
    """The program, compiled once in a session, in a test that bears the marker
    `needs_program("cc")`.
    """
    with alone_in(shared_folder(tmp_path_factory) / "program") as folder:
        program = folder / "saved_model_runner"
        if not program.exists():
            compile_program(SOURCE, program)
        return program


def compile_program(source: pathlib.Path, program: pathlib.Path) -> None:
    """Compiles a C program that calls TensorFlow, into a folder of its own."""
    folder = program.parent
    library = make_stub(source, folder)
    command = [
        *COMPILE_COMMAND,
        source,
        f"-I{folder}",
        f"-I{TENSORFLOW / 'include'}",
        f"-L{folder}",
        f"-l:{library.name}",
        f"-Wl,-rpath,{TENSORFLOW}",
        "-o",
        program,
    ]
    subprocess.run(command, check=True)


def make_stub(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Makes a library that has the name of TensorFlow's, and only the functions of a program.

    The linker would read all symbols of the real one for 10 s. The program loads the real one.

    Returns:
        The path of the library, in the folder.
    """
    library = folder / "libtensorflow_cc.so.2"
    names = sorted(set(re.findall(r"\bTF_\w+(?=\()", source.read_text())))
    stub = folder / "stub.c"
    stub.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    command = [
        *COMPILE_COMMAND,
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{library.name}",
        stub,
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    return library


def run(
    program: pathlib.Path, saved_model: pathlib.Path, requests: Sequence[Request]
) -> list[dict[str, np.ndarray] | RunError]:
    """Loads the SavedModel of a version's folder and answers requests one after the other.

    Args:
        program: of `build`.
        saved_model: the folder.
        requests: name of a signature and its inputs; strings are object arrays of bytes.
    """
    signatures = _signatures(saved_model)
    content = b""
    for name, inputs in requests:
        signature = signatures[name]
        content += _int32(len(inputs))
        for key, values in inputs.items():
            content += _text(signature.inputs[key].name)
            content += _tensor(np.asarray(values))
        content += _int32(len(signature.outputs))
        for key in sorted(signature.outputs):
            content += _text(signature.outputs[key].name)
    with tempfile.TemporaryDirectory() as folder:
        request_file = pathlib.Path(folder, "requests")
        response_file = pathlib.Path(folder, "responses")
        request_file.write_bytes(content)
        finished = subprocess.run(
            [program, saved_model, request_file, response_file],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        reader = _Reader(response_file.read_bytes())
    answers = []
    for name, _ in requests:
        code = reader.int32()
        message = reader.text()
        if code:
            answers.append(RunError(message))
        else:
            keys = sorted(signatures[name].outputs)
            answers.append({key: reader.tensor() for key in keys})
    return answers


def _signatures(saved_model: pathlib.Path):
    from tensorflow.core.protobuf import saved_model_pb2

    content = (saved_model / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return graph.signature_def


def _int32(number: int) -> bytes:
    return struct.pack("=i", number)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _int32(len(encoded)) + encoded


def _tensor(values: np.ndarray) -> bytes:
    code = _CODES[values.dtype]
    content = struct.pack(f"=ii{values.ndim}q", code, values.ndim, *values.shape)
    if values.dtype != object:
        return content + values.tobytes()
    for value in values.ravel():
        content += struct.pack("=q", len(value)) + value
    return content


class _Reader:
    def __init__(self, content: bytes):
        self._content = content
        self._place = 0

    def _take(self, size: int) -> bytes:
        start = self._place
        self._place += size
        return self._content[start : self._place]

    def int32(self) -> int:
        return struct.unpack("=i", self._take(4))[0]

    def int64(self) -> int:
        return struct.unpack("=q", self._take(8))[0]

    def text(self) -> str:
        return self._take(self.int32()).decode()

    def tensor(self) -> np.ndarray:
        code = self.int32()
        rank = self.int32()
        shape = tuple(self.int64() for _ in range(rank))
        count = int(np.prod(shape))
        if code == _STRING:
            strings = [self._take(self.int64()) for _ in range(count)]
            return np.array(strings, object).reshape(shape)
        dtype = np.dtype(_NUMPY_TYPES[code])
        content = self._take(count * dtype.itemsize)
        return np.frombuffer(content, dtype).reshape(shape)
