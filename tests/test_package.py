"""The wheel: built from the checkout, unpacked into a clean folder, imported from there."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.shared import ROOT

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
print([name for name in ("tensorflow", "keras", "absl.flags") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Folder that holds what the wheel installs."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.txt"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "official_bert", source / "official_bert", ignore=shutil.ignore_patterns("__pycache__")
    )
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
    (wheel,) = work.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "site")
    return work / "site"


def run(unpacked, code: str, *arguments) -> str:
    """Output of a program that sees the unpacked wheel before anything else, and no checkout."""
    program = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n{code}"
    finished = subprocess.run(
        [sys.executable, "-I", "-c", program, *arguments], cwd=unpacked.parent, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_every_module_is_in_the_wheel(unpacked):
    sources = {path.relative_to(ROOT) for path in (ROOT / "official_bert").rglob("*.py")}
    assert {path.relative_to(unpacked) for path in (unpacked / "official_bert").rglob("*.py")} == sources


def test_metadata(unpacked):
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines()
    assert "Name: official-bert" in lines
    assert "License-Expression: Apache-2.0" in lines
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist")]
    wanted = [line.strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    assert len(required) == len([line for line in wanted if line and not line.startswith("#")])
    assert any(line.startswith("tensorflow<2.22") for line in required)


def test_light_use_loads_no_tensorflow(unpacked, tmp_path):
    assert run(unpacked, LIGHT_USE, str(tmp_path / "vocab.txt")) == "[]\n"


def test_a_model_is_built_from_the_wheel(unpacked):
    code = (
        "import official_bert, numpy as np\n"
        "config = official_bert.BertConfig.from_size('tiny', vocab_size=6, max_position_embeddings=8)\n"
        "print(official_bert.BertModel(config)(np.ones((2, 4), 'int32')).sequence_output.shape)\n"
    )
    assert run(unpacked, code) == "(2, 4, 128)\n"


def test_a_name_that_is_not_public_is_an_attribute_error(unpacked):
    code = "import official_bert\ntry:\n    official_bert.Bert\nexcept AttributeError as error:\n    print(error)"
    assert run(unpacked, code) == "module 'official_bert' has no attribute 'Bert'\n"
