"""The parts of a set of records: the same bytes however they are made, also in remote folders."""

import pathlib
import shutil

import pytest
import tensorflow as tf

from official_bert.commands import create_pretraining_data
from official_bert.data.pretraining import one_shard, shards
from official_bert.data.pretraining.documents import Piece
from official_bert.data.pretraining.settings import pair_config, records_mask_config
from official_bert.data.records.record_files import expand_records
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.data_tools import PretrainingDataOptions
from official_bert.tokenization import FullTokenizer
from tests.data.pretraining import split_corpus

NUM_PARTS = 3


def make(folder: pathlib.Path, text_folder: pathlib.Path, **changes):
    flags = split_corpus.make_flags(text_folder, output_file=[str(folder / "out")], num_shards=2)
    create_pretraining_data.run(PretrainingDataOptions(**flags | changes))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    split_corpus.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def parts(text_folder, tmp_path_factory) -> dict[str, bytes]:
    """The files of all parts, made by one process each."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(1, NUM_PARTS + 1):
        make(folder, text_folder, part=f"{number}/{NUM_PARTS}")
    return contents(folder)


def test_a_shard_has_its_text_and_its_stream(text_folder, parts, tmp_path):
    """The records of shard 1 of part 2 from its files, every document by hand."""
    documents = []
    for path in sorted(text_folder.iterdir())[1::NUM_PARTS]:
        blocks = path.read_text(encoding="utf-8").replace("\u3000", " ").split("\n")
        documents += split_at_blank_lines(blocks)
    text_file = tmp_path / "text"
    text_file.write_text("".join(f"\n{document}\n" for document in documents[1::2]), "utf-8")
    options = PretrainingDataOptions(**split_corpus.make_flags(text_folder))
    config = one_shard.ShardConfig(
        pairs=pair_config(options),
        masks=records_mask_config(options),
        random_seed=options.random_seed,
        is_compressed=False,
    )
    tokenizer = FullTokenizer(options.vocab_file)
    record_file = tmp_path / "records"
    # Global numbers go round the parts: part 1 has 0, 3, 6, and part 2 has 1, 4, 7.
    one_shard.make_shard(4, [Piece(str(text_file))], str(record_file), tokenizer, config)
    assert record_file.read_bytes() == parts["out-part-00002-of-00003-00001-of-00002"]


def split_at_blank_lines(lines: list[str]) -> list[str]:
    documents = [[]]
    for line in lines:
        if line.strip():
            documents[-1].append(line.strip())
        elif documents[-1]:
            documents.append([])
    return ["\n".join(document) for document in documents if document]


def test_equal_files_of_two_parts_give_other_records(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "ab":
        (texts / f"text-{name}").write_text("One sentence.\nAnother one.\n\nA third one.\n" * 9)
    for part in ("1/2", "2/2"):
        make(tmp_path, texts, part=part, num_shards=1)
    first, second = (
        (tmp_path / f"out-part-0000{number}-of-00002-00000-of-00001").read_bytes()
        for number in (1, 2)
    )
    assert len(first) > 1000
    assert first != second


def test_workers_and_work_folders_change_nothing(text_folder, parts, tmp_path):
    scratch = tmp_path / "scratch"
    folder = tmp_path / "made"
    scratch.mkdir()
    folder.mkdir()
    make(folder, text_folder, part="2/3", num_workers=2)
    make(folder, text_folder, part="3/3", work_dir=str(scratch))
    made = contents(folder)
    assert made == {name: parts[name] for name in parts if "part-00001" not in name}
    assert not list(scratch.iterdir())


def test_a_complete_part_is_kept(text_folder, parts, tmp_path, monkeypatch, caplog):
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
    calls = []
    real_make_shard = shards.make_shard
    monkeypatch.setattr(
        shards, "make_shard", lambda *args: calls.append(args) or real_make_shard(*args)
    )
    make(tmp_path, text_folder, part="1/3")
    assert not calls
    (tmp_path / "out-part-00001-of-00003-00001-of-00002").unlink()
    make(tmp_path, text_folder, part="1/3")
    assert [call[0] for call in calls] == [0, 3]
    assert contents(tmp_path) == parts
    assert "is made again" not in caplog.text
    make(tmp_path, text_folder, part="1/3", dupe_factor=1)
    assert len(calls) == 4, "other flags make other records"
    assert (
        "out-part-00001-of-00003.manifest.json: describes other flags, another vocabulary or "
        "another text; part 1/3 is made again"
    ) in caplog.text


def test_parts_of_other_numbers_are_refused(text_folder, parts, tmp_path):
    (tmp_path / "out-part-00001-of-00003-00000-of-00002").write_bytes(b"")
    make(tmp_path, text_folder, part="2/3")
    for changes in ({"part": "1/4"}, {"part": "1/3", "num_shards": 3}, {"part": None}):
        with pytest.raises(InputError, match="is a shard of a run with another number of shards"):
            make(tmp_path, text_folder, **changes)


class Stop(BaseException):
    """Ends a run in this process, as a signal does."""


@pytest.mark.parametrize(
    "scheme",
    [
        "ram://",
        pytest.param("memory://", marks=pytest.mark.needs_extra("fsspec")),
        pytest.param("local://", marks=pytest.mark.needs_extra("fsspec")),
    ],
)
def test_remote_folders(text_folder, parts, tmp_path, monkeypatch, scheme):
    """TensorFlow's file system, and two of fsspec. A run that ends while it copies leaves no half
    file under a final name, and the next run copies the rest.
    """
    folder = f"{scheme}{tmp_path}/remote"
    files.make_folder(folder)
    for path in text_folder.iterdir():
        with files.open_file(f"{folder}/{path.name}", "wb") as file:
            file.write(path.read_bytes())
    flags = {
        "part": "2/3",
        "input_file": [f"{folder}/text-*"],
        "output_file": [f"{folder}/records/out"],
        "work_dir": str(tmp_path),
    }
    expected = {name: parts[name] for name in parts if "part-00002" in name}
    copy = shutil.copyfileobj
    copied = []

    def stops(source, target, size):
        copied.append(source)
        if len(copied) == 2:
            target.write(source.read(100))
            raise Stop
        copy(source, target, size)

    with monkeypatch.context() as patch:
        patch.setattr(shards.shutil, "copyfileobj", stops)
        patch.setattr(shards, "for_each", lambda function, items: [*map(function, items)])
        with pytest.raises(Stop):
            make(tmp_path, text_folder, **flags)
    names = [name for name in files.list_folder(f"{folder}/records") if name[0] != "."]
    assert names == ["out-part-00002-of-00003-00000-of-00002"]
    with monkeypatch.context() as patch:
        patch.setattr(shards, "make_shard", None)  # All shards are finished.
        make(tmp_path, text_folder, **flags)
    names = files.list_folder(f"{folder}/records")
    contents = {}
    for name in names:
        with files.open_file(f"{folder}/records/{name}", "rb") as file:
            contents[name] = file.read()
    assert contents == expected
    assert not list(tmp_path.glob(".*.sharded"))
    if scheme == "ram://":
        paths = [f"{folder}/records/{name}" for name in expected if "manifest" not in name]
        assert expand_records(paths, "input_file") == paths
        assert sum(1 for _ in tf.data.TFRecordDataset(sorted(paths))) > 50
