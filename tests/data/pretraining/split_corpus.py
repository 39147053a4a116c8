"""A corpus in files that begin and end in the middle of documents, and what the sharded generator
made of it when one process distributed its documents.
"""

import hashlib
import pathlib

from tests.shared import recording

# A digest of all files of a run by its number of shards and its format, as they were when one process
# read all files in turn (commit 49871bfa).
DIGESTS = {
    (1, "text"): "c416396a1b778bbb",
    (7, "text"): "7bcedd3f1dc9518b",
    (31, "text"): "980c89a7fcfb19fe",
    (5, "prose"): "bd1483a341079c6c",
}
# The first line of each file in the recorded text; 67, 93 and 121 are blank lines.
_STARTS = (0, 20, 40, 67, 68, 93, 121, 300, 301, 700, 1100)


def write_files(folder: pathlib.Path) -> str:
    """Writes the files, of which one is empty, one has blank lines alone and one has no blank line
    at all, and returns their glob.
    """
    lines = recording("corpus.txt").read_text(encoding="utf-8").split("\n")
    ends = (*_STARTS[1:], len(lines))
    texts = ["\n".join(lines[i:end]) + "\n" for i, end in zip(_STARTS, ends, strict=True)]
    texts.insert(2, "")
    texts.insert(5, "\n \n\u3000\n")
    texts[-1] = texts[-1].replace("\n", "\r\n")
    for number, text in enumerate(texts):
        (folder / f"text-{number:02}").write_text(text, encoding="utf-8", newline="")
    return str(folder / "text-*")


def make_flags(folder: pathlib.Path, **changes) -> dict:
    """Flags of the sharded generator for the files in a folder."""
    return {
        "generator": "sharded",
        "input_file": [str(folder / "text-*")],
        "output_file": [str(folder / "out")],
        "vocab_file": str(recording("uncased_vocab.txt")),
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "dupe_factor": 2,
    } | changes


def digest(folder: pathlib.Path) -> str:
    """A digest of the names and contents of all outputs; nothing else may be left."""
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith("text-")]
    parts = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
