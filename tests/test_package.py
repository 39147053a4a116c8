"""The wheel, which is unpacked into a clean folder and installed by pip, and the targets of the
Makefile.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv

import pytest

import official_bert
from official_bert import catalog
from tests import dockerfiles
from tests.shared import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]

LIGHT_USE = """
import sys
import official_bert
assert official_bert.__file__.startswith(sys.path[0]), official_bert.__file__
assert {"BertConfig", "BertModel", "BertPretrainer", "FullTokenizer", "load_checkpoint"} <= set(dir(official_bert))
config = official_bert.BertConfig.from_size("tiny", vocab_size=6, max_position_embeddings=8)
with open(sys.argv[1], "w") as file:
    file.write("\\n".join(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]))
assert official_bert.FullTokenizer(sys.argv[1]).tokenize("Hello, world") == ["hello", "[UNK]", "world"]
assert issubclass(official_bert.InputError, ValueError)
assert not hasattr(official_bert, "Bert")
print([name for name in ("tensorflow", "keras", "absl.flags") if name in sys.modules])
"""


def requirements() -> set[str]:
    """The packages that every command needs."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return {line.strip() for line in lines if line and not line.startswith("#")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Path of the wheel, built from the files that the image for training is built from."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    dockerfiles.copy_stage("training", source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        work,
        source,
    ]
    finished = subprocess.run(build, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    (built,) = work.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel):
    """Folder that holds what the wheel installs."""
    shutil.unpack_archive(wheel, wheel.parent / "site", "zip")
    return wheel.parent / "site"


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder of the commands of a new virtual environment in which pip has installed the wheel.

    The packages that it needs are those of this environment: nothing is downloaded.
    """
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "other_packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    finished = subprocess.run([*pip, wheel], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return environment / "bin"


def test_every_module_is_in_the_wheel(unpacked):
    sources = {path.relative_to(ROOT) for path in (ROOT / "official_bert").rglob("*.py")}
    assert {
        path.relative_to(unpacked) for path in (unpacked / "official_bert").rglob("*.py")
    } == sources
    assert (unpacked / "official_bert" / "py.typed").exists()


def test_metadata(unpacked):
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines()
    assert {"Name: official-bert", f"Version: {official_bert.__version__}"} <= set(lines)
    assert "License-Expression: Apache-2.0" in lines
    assert "Author: official_bert developers" in lines
    assert "Description-Content-Type: text/markdown" in lines
    assert "# official-bert" in lines, "the page of the package index"
    required = [
        line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist")
    ]
    assert len([line for line in required if "extra ==" not in line]) == len(requirements())
    extras = {
        line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra")
    }
    assert extras == set(PROJECT["project"]["optional-dependencies"])
    assert any(line.startswith("tensorflow<2.22") for line in required)


def test_a_tpu_needs_the_same_packages_with_another_tensorflow():
    for_tpu = set(GROUPS["tpu"])
    for_all = requirements()
    assert [line for line in for_all - for_tpu if not line.startswith("tensorflow")] == []
    (libtpu,) = (line for line in for_tpu if line.startswith("libtpu=="))
    assert for_tpu - for_all == {libtpu, "tensorflow-tpu==2.20.0"}
    assert libtpu in GROUPS["tpu-compile"], (
        "the compiler that tests use is the one of that TensorFlow"
    )


def test_light_use_loads_no_tensorflow(unpacked, tmp_path):
    program = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n{LIGHT_USE}"
    program += (
        "from run_classifier import DataProcessor, __file__\nassert "
        "__file__.startswith(sys.path[0])\n"
    )
    command = [sys.executable, "-I", "-c", program, tmp_path / "vocab.txt"]
    finished = subprocess.run(command, cwd=unpacked.parent, capture_output=True, text=True)
    assert finished.stdout == "[]\n", finished.stderr


def command(installed, folder, *words, status=0) -> subprocess.CompletedProcess:
    """Runs the installed command in a folder, as a user does who has no checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(
        [installed / "official-bert", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == status, finished.stderr
    return finished


def test_the_command_lists_its_subcommands_and_names_itself_in_messages(installed, tmp_path):
    stdout = command(installed, tmp_path).stdout
    names = re.findall(r"^  (\w+)$", stdout, re.MULTILINE)
    assert sorted(names) == sorted(catalog.commands())
    assert "--task_name" in command(installed, tmp_path, "run-classifier", "--help").stdout
    flags = ["--input_file=no", "--vocab_file=no", "--output_file=x"]
    stderr = command(installed, tmp_path, "create-pretraining-data", *flags, status=1).stderr
    assert stderr.splitlines()[-1].startswith(
        "official-bert create-pretraining-data: no: no such file"
    )


def test_commands_work_without_a_checkout(installed, tmp_path):
    """The second one starts processes, which find the main module again by its path."""
    (tmp_path / "text").write_text(
        "the cat sat on the mat\nthe mat was flat\n\nthe dog sat on the cat\nso flat\n"
    )
    command(
        installed,
        tmp_path,
        "build-vocab",
        "--input_file=text",
        "--output_file=vocab.txt",
        "--vocab_size=40",
    )
    vocabulary = (tmp_path / "vocab.txt").read_text().splitlines()
    assert len(vocabulary) == 40
    assert {"[PAD]", "[MASK]", "the", "##t"} <= set(vocabulary)
    flags = ["--input_file=text", "--vocab_file=vocab.txt", "--max_seq_length=32"]
    command(
        installed,
        tmp_path,
        "create_pretraining_data",
        *flags,
        "--output_file=records",
        "--num_workers=2",
    )
    script = [
        sys.executable,
        ROOT / "create_pretraining_data.py",
        *flags,
        "--output_file=of_the_script",
    ]
    subprocess.run(script, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "records").read_bytes() == (tmp_path / "of_the_script").read_bytes() != b""


def make(folder, *targets: str) -> str:
    """Runs make as a user does, also where the tests are run by `make test`, which tells its
    children so.
    """
    shutil.copy(ROOT / "Makefile", folder)
    alone = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    finished = subprocess.run(
        ["make", *targets], cwd=folder, env=alone, capture_output=True, text=True, check=True
    )
    return finished.stdout


@pytest.mark.needs_program("make")
def test_make_alone_prints_every_target(tmp_path):
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    (targets,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    lines = [line.split(maxsplit=2) for line in make(tmp_path).splitlines()]
    assert [line[:2] for line in lines] == [["make", target] for target in targets.split()]
    assert all(len(line) == 3 for line in lines), "a target without an explanation"


@pytest.mark.needs_program("make")
def test_clean_keeps_trained_models(tmp_path):
    for name in (
        ".venv/bin/python",
        "build/lib",
        "x.egg-info/PKG-INFO",
        "quickstart_output/model/checkpoint",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    make(tmp_path, "clean")
    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert kept == {"Makefile", "quickstart_output/model/checkpoint"}
