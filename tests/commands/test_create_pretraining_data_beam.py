"""Apache Beam with two processes makes the files of the local generator, byte for byte."""

import gzip
import pydoc_data.topics
import subprocess
import sys

import pytest

from official_bert.io.errors import InputError
from tests import toy
from tests.scripts import run_here
from tests.shared import ROOT

PYTHON = ROOT / ".venv-beam" / "bin" / "python"
TWO_PROCESSES = ("--", "--runner=DirectRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")


def corpus(folder) -> list[str]:
    """Four files: one compressed, one that goes on with the document before, and one without text; and the flags."""
    texts = ["\n".join(text.split(". ")) for text in list(pydoc_data.topics.topics.values())[:24]]
    (folder / "1.txt").write_text("\n\n".join(texts[:8]) + "\n")
    (folder / "2.txt").write_text("which goes on\nin another file\n\n" + "\n\n".join(texts[8:16]) + "\n")
    (folder / "3.txt").write_text("\n\n")
    (folder / "4.txt").write_bytes(gzip.compress("\n\n".join(texts[16:]).encode()))
    return [
        f"--input_file={folder}/?.txt", f"--vocab_file={toy.write_vocabulary(folder)}", "--max_seq_length=32",
        "--max_predictions_per_seq=4", "--dupe_factor=2", "--num_shards=3",
    ]  # fmt: skip


def run_beam(*arguments: str, status: int = 0) -> subprocess.CompletedProcess:
    command = [str(PYTHON), str(ROOT / "create_pretraining_data_beam.py"), *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == status, ran.stderr[-3000:]
    return ran


@pytest.mark.needs_extra("apache_beam")
def test_beam_makes_the_files_of_the_local_generator(tmp_path):
    flags = corpus(tmp_path)
    made = {}
    for name in ("local", "beam"):
        folder = tmp_path / name
        folder.mkdir()
        output = f"--output_file={folder}/records.gz"
        if name == "beam":
            run_beam(*flags, output, *TWO_PROCESSES)
        else:
            run_here("create_pretraining_data.py", "--generator=sharded", *flags, output)
        made[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(made["beam"]) == [*(f"records-{shard:05}-of-00003.gz" for shard in range(3)), "records.manifest.json"]
    assert made["beam"] == made["local"]


@pytest.mark.needs_extra("apache_beam")
def test_bad_input_ends_in_one_sentence_and_leaves_nothing(tmp_path):
    flags = corpus(tmp_path)
    output = tmp_path / "made"
    output.mkdir()
    (tmp_path / "2.txt").write_bytes(bytes(range(1, 9)) * 5000)
    refused = run_beam(*flags, f"--output_file={output}/records", *TWO_PROCESSES, status=1)
    assert refused.stderr.splitlines()[-1].endswith(
        f"{tmp_path}/2.txt: is binary, or text in another encoding than UTF-8; save it as UTF-8 text"
    )
    for flag in (f"--input_file={tmp_path}/3.txt", f"--input_file={tmp_path}/5.txt"):
        refused = run_beam(*flags, flag, f"--output_file={output}/records", "--", "--runner=DirectRunner", status=1)
        assert "--input_file: no " in refused.stderr.splitlines()[-1]
    (output / "records-00000-of-00007").write_text("")
    refused = run_beam(*flags, f"--output_file={output}/records", *TWO_PROCESSES, status=1)
    assert "is a shard of a run with another number of shards" in refused.stderr.splitlines()[-1]
    assert [path.name for path in output.iterdir()] == ["records-00000-of-00007"]


def test_without_beam_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "official_bert.commands.create_pretraining_data_beam", raising=False)
    with pytest.raises(InputError, match="apache_beam: is not installed; make a virtual environment with"):
        run_here("create_pretraining_data_beam.py", *corpus(tmp_path), f"--output_file={tmp_path}/records")
