"""Records by engines: flags, a Ray cluster that loses a machine, and two processes of Beam."""

import contextlib
import importlib
import os
import pathlib
import re
import subprocess
import threading
import time

import pytest

from official_bert import catalog
from official_bert.commands import create_pretraining_data
from official_bert.extensions.distributed_data import engines
from official_bert.io.errors import InputError
from tests.data.pretraining import split_corpus
from tests.scripts import flag_list
from tests.shared import ROOT

NUM_PARTS = 2
DEADLINE_SECS = 120


def make_options(folder: pathlib.Path, text_folder: pathlib.Path, **changes):
    """The flags of create_pretraining_data, with those of the extension."""
    flags = split_corpus.make_flags(text_folder, output_file=[str(folder / "out")], num_shards=2)
    return catalog.options_class("create_pretraining_data")(**flags | changes)


def read_records(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("out-*"))}


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    split_corpus.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def parts(text_folder, tmp_path_factory) -> dict[str, bytes]:
    """The files of the parts, each made by a run without an engine."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(1, NUM_PARTS + 1):
        options = make_options(folder, text_folder, part=f"{number}/{NUM_PARTS}")
        create_pretraining_data.run(options)
    return read_records(folder)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_parts": 2}, "--num_parts: is for an engine; add --engine, or give --part"),
        ({"beam_options": ["--x"]}, "--beam_options: is for an engine"),
        ({"engine": "ray", "beam_options": ["--x"]}, "--beam_options: is for --engine=beam"),
        ({"engine": "ray"}, "--engine=ray: needs --num_parts; give the number of parts"),
        (
            {"engine": "ray", "num_parts": 2, "generator": "exact", "num_shards": None},
            "--engine=ray: makes all parts of --generator=sharded; add it, and leave out --part",
        ),
        ({"engine": "ray", "num_parts": 2, "part": "1/2"}, "and leave out --part"),
        (
            {"engine": "ray", "num_parts": 99},
            "--part=1/99: --input_file names fewer files (13) than there are parts (99)",
        ),
        (
            {"engine": "beam", "num_parts": 2},
            "--engine=beam: needs the package apache_beam; run the command in an environment",
        ),
    ],
)
def test_flags_that_do_not_fit(tmp_path, text_folder, monkeypatch, changes, sentence):
    monkeypatch.setattr(
        engines.importlib.util, "find_spec", lambda name: None if name == "apache_beam" else name
    )
    with pytest.raises(InputError) as error:
        create_pretraining_data.run(make_options(tmp_path, text_folder, **changes))
    assert sentence in str(error.value)
    assert not list(tmp_path.iterdir())


def test_the_parts_do_not_depend_on_the_working_folder(tmp_path, text_folder, monkeypatch):
    monkeypatch.chdir(text_folder)
    options = make_options(
        tmp_path,
        text_folder,
        input_file=["./text-*"],
        output_file=["records/out.gz"],
        engine="ray",
        num_parts=2,
    )
    first, second = engines.split_into_parts(options)
    assert (first.part, second.part) == ("1/2", "2/2")
    assert first.engine is first.num_parts is None
    assert second.input_file == [f"{text_folder}/text-*"]
    assert second.output_file == [f"{text_folder}/records/out.gz"]
    assert engines.manifest_file(second) == (
        f"{text_folder}/records/out-part-00002-of-00002.manifest.json"
    )


def find_makers(folder: pathlib.Path) -> list[int]:
    """The processes that make parts, by their locks."""
    contents = [path.read_text() for path in folder.glob(".out-*.sharded/.lock")]
    matches = [re.match(r"process (\d+)", content) for content in contents]
    return [int(match[1]) for match in matches if match]


def is_running(process: int) -> bool:
    with contextlib.suppress(OSError):
        return " Z " not in pathlib.Path(f"/proc/{process}/stat").read_text()
    return False


def wait_until(is_reached):
    deadline_secs = time.monotonic() + DEADLINE_SECS
    while not is_reached():
        assert time.monotonic() < deadline_secs
        time.sleep(0.05)


def feed(pipe: pathlib.Path, text: bytes):
    """Writes a text into a pipe, once a process reads it."""
    with pipe.open("wb") as file:
        file.write(text)


@pytest.mark.needs_extra("ray")
def test_ray_makes_the_parts_of_a_lost_machine_elsewhere(tmp_path, text_folder, parts):
    """Each of two machines makes a part, whose last file is a pipe that has no text before one of
    the machines is lost.
    """
    ray = importlib.import_module("ray")
    cluster_utils = importlib.import_module("ray.cluster_utils")
    paths = sorted(text_folder.iterdir())
    for path in paths[:-NUM_PARTS]:
        (tmp_path / path.name).symlink_to(path)
    pipes = [tmp_path / path.name for path in paths[-NUM_PARTS:]]
    for pipe in pipes:
        os.mkfifo(pipe)
    memory = {"object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory}
    )
    try:
        second_node = cluster.add_node(num_cpus=1, **memory)
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        options = make_options(tmp_path, tmp_path, engine="ray", num_parts=NUM_PARTS)
        thread = threading.Thread(target=create_pretraining_data.run, args=(options,), daemon=True)
        thread.start()
        wait_until(lambda: len(find_makers(tmp_path)) == NUM_PARTS)
        makers = find_makers(tmp_path)
        cluster.remove_node(second_node, allow_graceful=False)
        wait_until(lambda: sum(map(is_running, makers)) == 1)
        assert not read_records(tmp_path)
        for pipe, path in zip(pipes, paths[-NUM_PARTS:], strict=True):
            threading.Thread(target=feed, args=(pipe, path.read_bytes()), daemon=True).start()
        thread.join(DEADLINE_SECS)
        assert not thread.is_alive()
    finally:
        ray.shutdown()
        cluster.shutdown()
    records = read_records(tmp_path)
    assert records.keys() == parts.keys()
    # The manifests have the sizes of the pipes.
    for name in records:
        if "manifest" not in name:
            assert records[name] == parts[name]


@pytest.mark.needs_extra("ray")
def test_a_ray_cluster_that_does_not_answer_is_named(tmp_path, text_folder, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    options = make_options(tmp_path, text_folder, engine="ray", num_parts=NUM_PARTS)
    with pytest.raises(InputError, match=r"RAY_ADDRESS=auto: no Ray cluster answers there .*start"):
        create_pretraining_data.run(options)


@pytest.mark.needs_extra("apache_beam")
def test_beam_makes_the_parts_in_two_processes(tmp_path, text_folder, parts):
    environment = ROOT / ".venv-beam" / "bin" / "python"
    flags = {
        name: value[0] if isinstance(value, list) else value
        for name, value in split_corpus.make_flags(text_folder, num_shards=2).items()
    }
    flags |= {"output_file": tmp_path / "out", "engine": "beam", "num_parts": NUM_PARTS}
    beam_options = "--direct_num_workers=2,--direct_running_mode=multi_processing"

    def run(**changes) -> subprocess.CompletedProcess:
        return subprocess.run(
            [
                environment,
                ROOT / "create_pretraining_data.py",
                *flag_list(**flags | changes),
                f"--beam_options={beam_options}",
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECS,
            check=False,
        )

    finished = run()
    assert finished.returncode == 0, finished.stderr
    assert f"*** Wrote 2 parts of {tmp_path}/out ***" in finished.stderr
    assert read_records(tmp_path) == parts
    failed = run(input_format="json_lines")
    assert failed.returncode == 1
    assert re.search(
        r"create_pretraining_data.py: \S+/text-0\d: line \d+: no JSON \(.*\); give one JSON object",
        failed.stderr.splitlines()[-1],
    )
