"""The transcription that the benchmark compares with makes the records of the generator `exact`."""

import subprocess
import sys

import numpy as np
import pytest

from examples.quickstart_corpus import documents, help_texts
from official_bert.data.records.framing import read_examples
from tests.shared import ROOT, recording

ODD_LINES = (
    "Ünïcode, naïve Straße “quoted” — 北京 kana かな a\u200bb\n\nx\u0085y \ufffd\n" + "z" * 201 + " ends.\n\n"
)


@pytest.mark.parametrize("max_seq_length", [64, 12])
def test_its_records_are_those_of_exact(tmp_path, max_seq_length):
    text = "\n".join("\n".join(document) + "\n" for document in documents(help_texts())[:40])
    (tmp_path / "text.txt").write_text(ODD_LINES + text, encoding="utf-8")
    flags = [f"--input_file={tmp_path}/text.txt", f"--vocab_file={recording('uncased_vocab.txt')}"]
    flags += [f"--max_seq_length={max_seq_length}", "--dupe_factor=2"]
    found = {}
    for script in ("benchmarks/plain_generator.py", "create_pretraining_data.py"):
        command = [sys.executable, str(ROOT / script), f"--output_file={tmp_path}/out", *flags]
        subprocess.run(command, check=True, capture_output=True)
        found[script] = [example for _, example in read_examples(f"{tmp_path}/out")]
    plain, exact = found.values()
    assert len(plain) == len(exact) > 400
    for row, other in zip(plain, exact, strict=True):
        assert row.keys() == other.keys()
        for name, values in row.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)
