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
    required_flags = flag_list(
        input_file=toy.write_text(folder),
        output_file=folder / "made",
        vocab_file=toy.write_vocabulary(folder),
        max_seq_length=SEQ,
        max_predictions_per_seq=PREDICTIONS,
        generator=generator,
        dupe_factor=1,
    )
    run_here("create_pretraining_data.py", *flags, *required_flags)
    manifest_name = ".made.manifest.json" if generator == "exact" else "made.manifest.json"
    manifest_file = folder / manifest_name
    paths = [str(path) for path in sorted(folder.glob("made*")) if path != manifest_file]
    return paths, manifest_file


def write_swapped_vocabulary(folder):
    """Writes a vocabulary in which two words change places; returns its path."""
    swapped_words = {"cat": "train", "train": "cat"}
    pieces = [swapped_words.get(piece, piece) for piece in toy.VOCABULARY]
    other_folder = folder / "other"
    other_folder.mkdir()
    return toy.write_vocabulary(other_folder, pieces)


@pytest.mark.parametrize("generator", ["exact", "sharded"])
def test_another_vocabulary_than_that_of_the_records_is_refused(tmp_path, generator):
    records, manifest_file = make_records(tmp_path, generator)
    vocab_file = str(tmp_path / "vocab.txt")
    other_file = write_swapped_vocabulary(tmp_path)
    windows_file = tmp_path / "windows.txt"
    content = (tmp_path / "vocab.txt").read_bytes()
    windows_file.write_bytes(content.replace(b"\n", b"\r\n"))

    def check(path):
        check_records_vocabulary(records, str(path), load_vocab(str(path)))

    check(vocab_file)
    check(windows_file)
    message = r"made.manifest.json: .*/made\S* was made with another vocabulary than .*/other/"
    with pytest.raises(InputError, match=message):
        check(other_file)

    # Manifests of earlier versions have a digest of the file, or none.
    manifest = json.loads(manifest_file.read_text())
    del manifest["pieces_sha256"]
    manifest_with_digest = manifest | {"vocabulary_sha256": files.sha256(vocab_file)}
    manifest_file.write_text(json.dumps(manifest_with_digest))
    check(vocab_file)
    with pytest.raises(InputError, match="another vocabulary"):
        check(other_file)
    manifest.pop("vocabulary_sha256", None)
    manifest_file.write_text(json.dumps(manifest))
    check(other_file)


def test_the_key_of_records_is_of_their_content_so_far_as_it_is_cheap(tmp_path):
    records, manifest_file = make_records(tmp_path, "sharded", "--num_shards=2")

    def compute_key():
        return reading_key(record_contents(records), FEATURES, 8)

    contents = record_contents(records)
    assert contents == [(path, os.path.getsize(path), files.sha256(path)) for path in records]
    key = compute_key()
    assert compute_key() == key

    # Another seed makes other records of the same size: their manifest has another digest.
    _, _, second_digest = contents[1]
    text = manifest_file.read_text()
    manifest_file.write_text(text.replace(second_digest, "0" * 64))
    key_for_other_digest = compute_key()

    manifest_file.unlink()
    digests = [digest for _, _, digest in record_contents(records)]
    assert digests == [None, None]
    key_without_manifest = compute_key()

    with open(records[0], "ab") as file:
        file.write(b"more")
    key_for_other_size = compute_key()
    keys = {key, key_for_other_digest, key_without_manifest, key_for_other_size}
    assert len(keys) == 4
