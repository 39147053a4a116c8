"""The manifests beside records: the vocabulary that these were made with, and what tells them
from other records.
"""

import json
import os

import pytest

from official_bert.data.records.pretraining_input import reading_key
from official_bert.data.records.record_files import check_records_vocabulary, record_contents
from official_bert.features import pretraining_features
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.tokenization import load_vocab
from tests import toy
from tests.commands.pretraining_run import PREDICTIONS, SEQ
from tests.scripts import flag_list, run_here

FEATURES = pretraining_features(SEQ, PREDICTIONS)


def make_records(folder, generator, *flags):
    """Makes records of the toy text; returns their paths and the manifest's."""
    vocab_file = toy.write_vocabulary(folder)
    run_here(
        "create_pretraining_data.py", *flags,
        *flag_list(input_file=toy.write_text(folder), output_file=folder / "made", vocab_file=vocab_file,
                   max_seq_length=SEQ, max_predictions_per_seq=PREDICTIONS, generator=generator, dupe_factor=1),
    )  # fmt: skip
    manifest_file = folder / (
        ".made.manifest.json" if generator == "exact" else "made.manifest.json"
    )
    return [
        str(path) for path in sorted(folder.glob("made*")) if path != manifest_file
    ], manifest_file


def swapped(folder):
    """A vocabulary in which two words change places."""
    pieces = list(toy.VOCABULARY)
    first, second = pieces.index("cat"), pieces.index("train")
    pieces[first], pieces[second] = pieces[second], pieces[first]
    (folder / "other").mkdir()
    return toy.write_vocabulary(folder / "other", pieces)


@pytest.mark.parametrize("generator", ["exact", "sharded"])
def test_another_vocabulary_than_that_of_the_records_is_refused(tmp_path, generator):
    records, manifest_file = make_records(tmp_path, generator)
    ours, other = str(tmp_path / "vocab.txt"), swapped(tmp_path)
    windows = tmp_path / "windows.txt"
    windows.write_bytes((tmp_path / "vocab.txt").read_bytes().replace(b"\n", b"\r\n"))

    def check(vocab_file):
        check_records_vocabulary(records, str(vocab_file), load_vocab(str(vocab_file)))

    for same in (ours, windows):
        check(same)
    with pytest.raises(
        InputError,
        match=r"made.manifest.json: .*/made\S* was made with another vocabulary than .*/other/",
    ):
        check(other)

    # Manifests of earlier versions have a digest of the file, or none.
    manifest = json.loads(manifest_file.read_text())
    del manifest["pieces_sha256"]
    manifest_file.write_text(json.dumps(manifest | {"vocabulary_sha256": files.sha256(ours)}))
    check(ours)
    with pytest.raises(InputError, match="another vocabulary"):
        check(other)
    manifest.pop("vocabulary_sha256", None)
    manifest_file.write_text(json.dumps(manifest))
    check(other)


def test_the_key_of_records_is_of_their_content_so_far_as_it_is_cheap(tmp_path):
    records, manifest_file = make_records(tmp_path, "sharded", "--num_shards=2")

    def key():
        return reading_key(record_contents(records), FEATURES, 8)

    contents = record_contents(records)
    assert contents == [(path, os.path.getsize(path), files.sha256(path)) for path in records]
    first = key()
    assert first == key()
    # Other records of the same size, which another seed has made: their manifest says so.
    text = manifest_file.read_text()
    manifest_file.write_text(text.replace(contents[1][2], "0" * 64))
    second = key()
    manifest_file.unlink()
    assert [digest for _, _, digest in record_contents(records)] == [None, None]
    third = key()
    with open(records[0], "ab") as file:
        file.write(b"more")
    assert len({first, second, third, key()}) == 4
