"""official-bert inspect_pretraining_data: what it prints and draws, and what is refused."""

import pytest

from tests import toy
from tests.scripts import end_of, flag_list, run_here

SCRIPT = "inspect_pretraining_data"


@pytest.fixture
def flags(tmp_path):
    """Compressed records with their manifest, and the flags that show them."""
    vocab_file = toy.write_vocabulary(tmp_path)
    settings = {
        "generator": "sharded",
        "num_shards": 2,
        "max_seq_length": 24,
        "max_predictions_per_seq": 4,
    }
    files = {
        "input_file": toy.write_text(tmp_path),
        "output_file": tmp_path / "toy.gz",
        "vocab_file": vocab_file,
    }
    run_here("create_pretraining_data.py", *flag_list(**settings, **files))
    return [f"--input_file={tmp_path}/toy*", f"--vocab_file={vocab_file}"]


def test_the_script_prints_records_and_statistics(flags, tmp_path, capsys):
    run_here(SCRIPT, *flags, "--num_records=2")
    shown = capsys.readouterr().out
    assert shown.count("A: [CLS] ") == shown.count("\nB: ") == 2
    assert f"{tmp_path}/toy-00000-of-00002.gz: record 1 (from 0)\nA: [CLS] " in shown
    assert "{[MASK]|" in shown
    assert "of 24\n" in shown
    records = int(shown.partition("\nrecords")[2].split()[0])
    assert records > 3


def test_bad_input_ends_in_one_sentence(flags, tmp_path):
    (tmp_path / "toy.manifest.json").unlink()  # which knows the vocabulary
    (tmp_path / "empty").touch()
    (tmp_path / "few.txt").write_text("[PAD]\n[UNK]\n[MASK]\n")
    (tmp_path / "bare.txt").write_text("[PAD]\n[UNK]\n")
    for given, sentence in (
        ([f"--input_file={tmp_path}/empty", flags[1]], "empty: no record in any file"),
        (
            [flags[0], f"--vocab_file={tmp_path}/few.txt"],
            "toy-00000-of-00002.gz: record 0 (from 0): input_ids has a",
        ),
        (
            [flags[0], f"--vocab_file={tmp_path}/bare.txt"],
            "--vocab_file: the vocabulary lacks [MASK]",
        ),
    ):
        ended = end_of(SCRIPT, *given)
        assert ended.status == 1
        assert sentence in ended.sentence
