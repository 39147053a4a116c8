"""Models by name, from a server on loopback that speaks the protocols of the archives and of the Hugging Face Hub."""

import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from official_bert import model_hub
from official_bert.io import folder_lock
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy
from tests.shared import ROOT

NAME, PATH = "cased_L-12_H-768_A-12", "2018_10_18/cased_L-12_H-768_A-12"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LIMIT_SECS = 60
CONTENT = {name: name.encode() * 1000 for name in (*model_hub._MEMBERS, model_hub._GRAPH)} | {
    "vocab.txt": b"[UNK]\nThe\nthe\n"
}


class Server(http.server.ThreadingHTTPServer):
    """Serves the files of a folder.

    Attributes:
        asked: method, path and first byte of each request.
        cuts: the numbers of bytes after which the next answers end; 0 sends nothing.
        knows_ranges: whether a Range is answered, or ignored.
    """

    daemon_threads = True

    def __init__(self, folder: pathlib.Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.asked, self.cuts, self.knows_ranges = folder, [], [], True
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    timeout = LIMIT_SECS

    def do_GET(self):
        start = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
        self.server.asked.append((self.command, self.path, start))
        content = self._listing() or self._file()
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            content, start = b"", 0
        elif start >= len(content) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            content = b""
        elif start and self.server.knows_ranges:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            content = content[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{abs(hash(self.path))}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command != "HEAD":
            cut = self.server.cuts.pop(0) if self.server.cuts else len(content)
            self.wfile.write(content[:cut])

    do_HEAD = do_GET

    def _listing(self) -> bytes | None:
        """The Hub's answer about a repository: its commit, or its files."""
        asked = re.fullmatch(rf"/api/models/(\w+/\w+)/(revision/(main|v2)|tree/{COMMIT})(\?.*)?", self.path)
        if not asked or not (self.server.folder / asked[1]).is_dir():
            return None
        top = self.server.folder / asked[1]
        paths = [path for path in sorted(top.rglob("*")) if path.is_file()]
        names = {str(path.relative_to(top)): path.stat().st_size for path in paths}
        listed = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in names.items()]
        about = {"id": asked[1], "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        return json.dumps(about if asked[3] else listed).encode()

    def _file(self) -> bytes | None:
        path = self.server.folder / self.path.lstrip("/").replace(f"resolve/{COMMIT}/", "")
        return path.read_bytes() if path.is_file() else None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server, with an empty cache."""
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(model_hub.CACHE, str(tmp_path / "cache"))
    with Server(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        monkeypatch.setenv(model_hub.ARCHIVES, server.url)
        yield server
        server.shutdown()
        thread.join(LIMIT_SECS)


def serve(server, members=CONTENT, folder=f"{NAME}/", path=PATH):
    """Puts an archive on the server; returns its bytes."""
    archive = server.folder / f"{path}.zip"
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(f"{folder}{name}", content)
    return archive.read_bytes()


def cached(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache" / "2018_10_18").glob("*")}


@pytest.mark.parametrize("folder", [f"{NAME}/", ""])
def test_an_archive_is_fetched_once(server, tmp_path, folder):
    serve(server, {"other.py": b"x", **CONTENT}, folder)
    found = pathlib.Path(model_hub.local_path(NAME))
    assert found == tmp_path / "cache" / PATH
    assert {path.name: path.read_bytes() for path in found.iterdir() if path.name in CONTENT} == CONTENT
    assert {path.name for path in found.iterdir()} == {*CONTENT, "tokenizer_config.json"}
    assert cached(tmp_path) == {NAME, f"{NAME}.zip.sha256"}
    server.shutdown()
    assert model_hub.local_path(PATH) == str(found)
    assert FullTokenizer.from_pretrained(NAME).tokenize("The") == ["The"]
    assert server.asked == [("GET", f"/{PATH}.zip", 0)]


def test_a_real_checkpoint_is_loaded_by_its_name(server, tmp_path):
    from official_bert.checkpoints import open_checkpoint

    made = toy.make_bert_base_dir(tmp_path / "made")
    name, path = "uncased_L-2_H-128_A-2", "2020_02_20/uncased_L-2_H-128_A-2"
    serve(server, {file.name: file.read_bytes() for file in made.iterdir()}, "", path)
    loaded, own = open_checkpoint(name), open_checkpoint(str(made))
    assert loaded.shapes == own.shapes
    assert all(np.array_equal(loaded.read(weight), own.read(weight)) for weight in own.shapes)
    assert FullTokenizer.from_pretrained(name).tokenize("The CAT") == ["the", "cat"]


@pytest.mark.parametrize(
    ("knows_ranges", "cuts", "later", "starts"),
    [(True, [1000, 0], [500], [0, 1000, 1000, 1500]), (False, [1000, 1000], [], [0, 1000, 1000])],
)
def test_an_interrupted_download_goes_on(server, tmp_path, knows_ranges, cuts, later, starts):
    size = len(serve(server))
    server.cuts, server.knows_ranges = cuts, knows_ranges
    with pytest.raises(InputError, match=rf"\(1,000 of {size:,} bytes arrived\); .*it goes on behind 1,000 bytes"):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == {f"{NAME}.zip"}
    server.cuts = later
    assert (pathlib.Path(model_hub.local_path(NAME)) / "vocab.txt").read_bytes() == CONTENT["vocab.txt"]
    assert [start for _, _, start in server.asked] == starts


@pytest.mark.parametrize(("extra", "asked"), [(b"", 1), (b"more", 2)])
def test_what_a_killed_run_left_is_used_or_made_anew(server, tmp_path, extra, asked):
    content = serve(server)
    part = tmp_path / "cache" / f"{PATH}.zip"
    part.parent.mkdir(parents=True)
    part.write_bytes(content + extra)
    model_hub.local_path(NAME)
    assert len(server.asked) == asked


def test_an_archive_that_has_changed_is_refused(server, tmp_path):
    serve(server)
    shutil.rmtree(model_hub.local_path(NAME))
    serve(server, CONTENT | {"vocab.txt": b"other\n"})
    with pytest.raises(InputError, match=r"its SHA-256 is \w{64}, and was \w{64} at the first download"):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == {f"{NAME}.zip.sha256"}
    serve(server)
    assert os.path.isdir(model_hub.local_path(NAME))


@pytest.mark.parametrize(
    ("members", "folder", "damage", "says"),
    [
        (CONTENT, "../", b"", r"it has a member '\.\./vocab.txt'"),
        (CONTENT, "/etc/", b"", "it has a member '/etc/vocab.txt'"),
        ({"x/../../evil.sh": b"x"}, "", b"", "it has a member"),
        ({"vocab.txt": b"a\n"}, "", b"", "it lacks bert_config.json, bert_model.ckpt"),
        (CONTENT, "", b"jsonbert", "CRC"),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused(server, tmp_path, members, folder, damage, says):
    content = serve(server, members, folder)
    (server.folder / f"{PATH}.zip").write_bytes(content.replace(damage, damage.upper()))
    with pytest.raises(InputError, match=rf"{PATH}\.zip: is no archive of a model \(.*{says}"):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == set()


def test_a_server_without_the_archive_or_none_at_all(server, monkeypatch):
    mirror = f"or set {model_hub.ARCHIVES} to the address of a mirror"
    with pytest.raises(InputError, match=rf"{PATH}\.zip: the server answers 404 .*, {mirror}"):
        model_hub.local_path(NAME)
    monkeypatch.setenv(model_hub.ARCHIVES, "http://127.0.0.1:1")
    with pytest.raises(InputError, match=rf"cannot be downloaded \(.*refused\); check the network .*, {mirror}"):
        model_hub.local_path(NAME)


def test_another_process_is_waited_for(server, tmp_path, monkeypatch):
    waits = threading.Event()
    monkeypatch.setattr(folder_lock.logging, "info", lambda *_: waits.set())
    folder = tmp_path / "cache" / PATH
    with ThreadPoolExecutor(1) as pool:
        with folder_lock.locked(str(folder.parent)):
            found = pool.submit(model_hub.local_path, NAME)
            assert waits.wait(LIMIT_SECS)
            folder.mkdir()  # as the other process does when it is done
        assert found.result(LIMIT_SECS) == str(folder)
    assert server.asked == []


def test_the_released_models():
    """7 of 2018, 2 with whole words masked, and 24 small ones, of which one has the name of a first one."""
    assert [len(names) for names in model_hub.RELEASES.values()] == [24, 2, 1, 2, 4]
    assert len({name for names in model_hub.RELEASES.values() for name in names}) == 32
    assert model_hub._PATHS["uncased_L-12_H-768_A-12"] == "2018_10_18/uncased_L-12_H-768_A-12"
    assert sum(map(model_hub.is_cased, model_hub._PATHS)) == 4


@pytest.mark.parametrize(
    "path", ["nowhere", "made/absent", "../a/b", "/a/b", "a/b/c", "x/bert_model.ckpt", "c.index/d"]
)
def test_a_path_stays_a_path(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "c.index").mkdir()
    assert model_hub.local_path(path) == path


def test_an_existing_path_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (NAME, "google-bert/bert-base-cased", "bert-base-cased"):
        pathlib.Path(name).mkdir(parents=True)
        assert model_hub.local_path(pathlib.Path(name)) == name


def in_process(server, tmp_path, *names, **environment) -> list[str]:
    """What local_path returns or says for names, in a process that sees the server as the Hub."""
    code = "import sys\nfrom official_bert import model_hub\nfor name in sys.argv[1:]:\n    try:\n"
    code += "        print(model_hub.local_path(name))\n    except ValueError as error:\n        print(error)\n"
    settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0", **environment}
    command = [sys.executable, "-c", code, *names]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=LIMIT_SECS
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.needs_extra("huggingface_hub")
def test_a_model_of_the_hub_is_fetched_without_pickles_and_found_again_offline(server, tmp_path):
    read = {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "1_Pooling/config.json"}
    for name in (*read, "pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "README.md", "handler.py"):
        path = server.folder / "toys" / "bert" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (first, again) = in_process(server, tmp_path, "toys/bert", "toys/bert@v2")
    assert first == again
    found = {
        str(path.relative_to(first)): path.read_text() for path in pathlib.Path(first).rglob("*") if path.is_file()
    }
    assert found == {name: name for name in read}
    server.asked.clear()
    server.shutdown()
    server.server_close()
    assert in_process(server, tmp_path, "toys/bert@main") == [first]  # the network is down
    assert in_process(server, tmp_path, "toys/bert", HF_HUB_OFFLINE="1") == [first]
    assert server.asked == []


@pytest.mark.needs_extra("huggingface_hub")
def test_what_the_hub_lacks_is_one_sentence(server, tmp_path):
    path = server.folder / "toys" / "pickle" / "pytorch_model.bin"
    path.parent.mkdir(parents=True)
    path.touch()
    (path.parent / "config.json").touch()
    says = {
        "toys/absent": "no such model, .*check the name",
        "google-bert/bert-bse-uncased": "did you mean google-bert/bert-base-uncased",
        "toys/pickle": "no model.safetensors of it",
        "toys/a--b": "no such model",
    }
    for said, (name, sentence) in zip(in_process(server, tmp_path, *says), says.items(), strict=True):
        assert re.match(f"{name}: .*{sentence}", said)
    (offline,) = in_process(server, tmp_path, "toys/other", HF_HUB_OFFLINE="1")
    assert re.match("toys/other: no such folder, and the Hugging Face Hub cannot be asked", offline)


def test_without_the_extra_the_sentence_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for name in ("no/such", "bert-base-uncased"):
        with pytest.raises(InputError, match=r"no such folder; .*pip install -r requirements-hub\.txt"):
            model_hub.local_path(name)
    with pytest.raises(InputError, match=r"did you mean uncased_L-12_H-768_A-12\?"):
        model_hub.local_path("uncased_L-12_H-768_A12")
