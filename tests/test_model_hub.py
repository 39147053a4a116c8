"""Models by name, from a server on loopback that speaks the protocols of the archives and of the
Hugging Face Hub.
"""

import hashlib
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
import zlib
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
CONTENT = {name: name.encode() * 1000 for name in model_hub._MEMBERS}
CONTENT["vocab.txt"] = b"[UNK]\nThe\nthe\n"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the files of `server.folder`, and notes in `server.asked` at which byte the
    requests begin.

    `server.cuts` are the bytes after which the next answers break off, `server.digests` what the
    Hub announces by name, `server.length` a Content-Length in place of the true one.
    """

    timeout = LIMIT_SECS

    def do_GET(self):
        start = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
        self.server.asked.append(start)
        content = self._listing() or self._file()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{zlib.crc32(content or b"")}"'}
        if content is None:
            status, headers, content = 404, {"X-Error-Code": "RepoNotFound"}, b""
        elif start >= len(content) > 0:
            status, headers, content = 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        elif start and self.server.knows_ranges:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            status, content = 206, content[start:]
        else:
            status = 200
        if digest := self.server.digests.get(self.path.rpartition("/")[2]):
            headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": len(content)}
        self.send_response(status)
        for name, value in (
            headers | {"Content-Length": self.server.length or len(content)}
        ).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: self.server.cuts.pop(0)] if self.server.cuts else content)

    do_HEAD = do_GET

    def _listing(self) -> bytes | None:
        """The Hub's answer about a repository: its commit, or its files."""
        asked = re.fullmatch(
            rf"/api/models/(\w+/\w+)/(revision/(main|v2)|tree/{COMMIT})(\?.*)?", self.path
        )
        top = self.server.folder / asked[1] if asked else None
        if top is None or not top.is_dir():
            return None
        sizes = {
            str(path.relative_to(top)): path.stat().st_size
            for path in top.rglob("*")
            if path.is_file()
        }
        listed = [
            {"type": "file", "path": name, "size": size, "oid": "0" * 40}
            for name, size in sizes.items()
        ]
        about = {"id": asked[1], "sha": COMMIT, "siblings": [{"rfilename": name} for name in sizes]}
        return json.dumps(about if asked[3] else listed).encode()

    def _file(self) -> bytes | None:
        path = self.server.folder / self.path.lstrip("/").replace(f"resolve/{COMMIT}/", "")
        return path.read_bytes() if path.is_file() else None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the archives, with an empty cache."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(model_hub.CACHE, str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.folder, server.asked, server.cuts = tmp_path / "served", [], []
        server.knows_ranges, server.digests, server.length = True, {}, None
        monkeypatch.setenv(model_hub.ARCHIVES, f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(LIMIT_SECS)


def serve(server, members=CONTENT, folder=f"{NAME}/", path=PATH, damage=b"") -> bytes:
    """Puts an archive on the server; returns its bytes, in which `damage` is lower-cased."""
    archive = server.folder / f"{path}.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(f"{folder}{name}", content)
    archive.write_bytes(archive.read_bytes().replace(damage, damage.lower()))
    return archive.read_bytes()


def cached(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache" / "2018_10_18").glob("*")}


def test_a_length_that_is_no_number_is_none(server, tmp_path):
    serve(server)
    server.length = "abc"
    assert model_hub.local_path(NAME) == str(tmp_path / "cache" / PATH)


@pytest.mark.parametrize(
    ("folder", "left", "num_asked"), [(f"{NAME}/", None, 1), ("", b"", 1), ("", b"more", 2)]
)
def test_an_archive_is_fetched_once(server, tmp_path, folder, left, num_asked):
    """A killed run may have left the whole file, or `left` is behind it and it is no beginning
    of the file.
    """
    content, found = serve(server, {"other.py": b"x", **CONTENT}, folder), tmp_path / "cache" / PATH
    if left is not None:
        found.parent.mkdir(parents=True)
        (found.parent / f"{NAME}.zip").write_bytes(content + left)
    assert model_hub.local_path(NAME) == str(found)
    assert {path.name for path in found.iterdir()} == {*CONTENT, "tokenizer_config.json"}
    assert {name: (found / name).read_bytes() for name in CONTENT} == CONTENT
    assert cached(tmp_path) == {NAME, f"{NAME}.zip.sha256"}
    server.shutdown()
    assert model_hub.local_path(PATH) == str(found)
    assert FullTokenizer.from_pretrained(NAME).tokenize("The") == ["The"]
    assert len(server.asked) == num_asked


def test_a_checkpoint_is_loaded_by_its_name(server, tmp_path):
    from official_bert.checkpoints import open_checkpoint

    made, name = toy.make_bert_base_dir(tmp_path / "made"), "uncased_L-2_H-128_A-2"
    serve(
        server, {file.name: file.read_bytes() for file in made.iterdir()}, "", f"2020_02_20/{name}"
    )
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
    with pytest.raises(
        InputError, match=rf"\(1,000 of {size:,} bytes arrived\); .*it continues after 1,000 bytes"
    ):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == {f"{NAME}.zip"}
    server.cuts = later
    assert (pathlib.Path(model_hub.local_path(NAME)) / "vocab.txt").read_bytes() == CONTENT[
        "vocab.txt"
    ]
    assert server.asked == starts
    assert cached(tmp_path) == {NAME, f"{NAME}.zip.sha256"}


def test_two_parts_of_different_files_are_refused(server, tmp_path):
    serve(server)
    server.cuts = [1000, 0]
    with pytest.raises(InputError, match="it continues after 1,000 bytes"):
        model_hub.local_path(NAME)
    serve(server, {name: content.swapcase() for name, content in CONTENT.items()})
    with pytest.raises(InputError, match=r"is no archive of a model .*start again to download it"):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == set()
    assert (pathlib.Path(model_hub.local_path(NAME)) / "vocab.txt").read_bytes() == CONTENT[
        "vocab.txt"
    ].swapcase()


def test_an_archive_of_an_unknown_method_is_deleted(server, tmp_path):
    content = bytearray(serve(server))
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = content.find(signature)
        content[start + offset : start + offset + 2] = (99).to_bytes(2, "little")
    (server.folder / f"{PATH}.zip").write_bytes(content)
    with pytest.raises(
        InputError,
        match=rf"{PATH}\.zip: is no archive of a model \(.*; start again to download it",
    ):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == set()


def test_an_archive_that_has_changed_is_refused(server, tmp_path):
    serve(server)
    shutil.rmtree(model_hub.local_path(NAME))
    serve(server, CONTENT | {"vocab.txt": b"other\n"})
    with pytest.raises(
        InputError, match=r"its SHA-256 is \w{64}, and was \w{64} at the first download"
    ):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == {f"{NAME}.zip.sha256"}
    serve(server)
    assert os.path.isdir(model_hub.local_path(NAME))


@pytest.mark.parametrize(
    ("members", "folder", "damage", "says"),
    [
        (CONTENT, "../", b"", r"it has a member '\.\./bert_config.json'"),
        (CONTENT, "/etc/", b"", "it has a member '/etc/bert_config.json'"),
        ({"x/../../evil.sh": b"x"}, "", b"", "it has a member"),
        ({"vocab.txt": b"a\n"}, "", b"", "it lacks bert_config.json, bert_model.ckpt"),
        (
            CONTENT | {"old/vocab.txt": b"a\n"},
            "",
            b"",
            "it has two vocab.txt: old/vocab.txt and vocab.txt",
        ),
        (CONTENT, "", b"[UNK]", "CRC"),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused(server, tmp_path, members, folder, damage, says):
    serve(server, members, folder, damage=damage)
    with pytest.raises(InputError, match=rf"{PATH}\.zip: is no archive of a model \(.*{says}"):
        model_hub.local_path(NAME)
    assert cached(tmp_path) == set()


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (None, r": the server answers 404"),
        ("http://127.0.0.1:1", r": cannot be downloaded \(.*refused"),
    ],
)
def test_an_archive_that_cannot_be_had(server, monkeypatch, base, says):
    if base:
        monkeypatch.setenv(model_hub.ARCHIVES, base)
    with pytest.raises(
        InputError,
        match=rf"{PATH}\.zip{says}.* or set {model_hub.ARCHIVES} to the address of a mirror",
    ):
        model_hub.local_path(NAME)


def test_another_process_is_waited_for(server, tmp_path, monkeypatch):
    waits, folder = threading.Event(), tmp_path / "cache" / PATH
    monkeypatch.setattr(folder_lock.logging, "info", lambda *_: waits.set())
    with ThreadPoolExecutor(1) as pool:
        with folder_lock.locked(str(folder.parent)):
            found = pool.submit(model_hub.local_path, NAME)
            assert waits.wait(LIMIT_SECS)
            folder.mkdir()  # as the other process does when it is done
        assert found.result(LIMIT_SECS) == str(folder)
    assert server.asked == []


def test_the_released_models():
    """7 of 2018, 2 with whole words masked, and 24 small ones, of which one has the name of a
    first one.
    """
    assert [len(names) for names in model_hub.RELEASES.values()] == [24, 2, 1, 2, 4]
    assert len({name for names in model_hub.RELEASES.values() for name in names}) == 32
    assert model_hub._PATHS["uncased_L-12_H-768_A-12"] == "2018_10_18/uncased_L-12_H-768_A-12"


def test_a_path_stays_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "c.index").mkdir()
    absent = ["nowhere", "made/absent", "../a/b", "/a/b", "a/b/c", "x/bert_model.ckpt", "c"]
    for path in (NAME, "google-bert/bert-base-cased", "bert-base-cased"):
        (tmp_path / path).mkdir(parents=True)
        absent.append(pathlib.Path(path))
    assert list(map(model_hub.local_path, absent)) == list(map(str, absent))


def in_process(server, tmp_path, *names, offline="0") -> list[str]:
    """What local_path returns or says for names, in a process that sees the server as the Hub."""
    code = "import sys\nfrom official_bert import model_hub\nfor name in sys.argv[1:]:\n    try:\n"
    code += (
        "        print(model_hub.local_path(name))\n    except ValueError as error:\n        "
        "print(error)\n"
    )
    settings = {"HF_ENDPOINT": os.environ[model_hub.ARCHIVES], "HF_HOME": str(tmp_path / "hub")}
    environment = os.environ | settings | {"HF_HUB_OFFLINE": offline}
    command = [sys.executable, "-c", code, *names]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_SECS
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def repository(server, name, *files):
    for path in (server.folder / "toys" / name / file for file in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path.relative_to(server.folder / "toys" / name)))


@pytest.mark.needs_extra("huggingface_hub")
def test_a_model_of_the_hub_is_fetched_without_pickles_and_found_again_offline(server, tmp_path):
    read = (
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer_config.json",
        "1_Pooling/config.json",
    )
    repository(
        server,
        "bert",
        *read,
        "pytorch_model.bin",
        "tf_model.h5",
        "onnx/model.onnx",
        "README.md",
        "code.py",
    )
    (first, again) = in_process(server, tmp_path, "toys/bert", "toys/bert@v2")
    assert first == again
    found = {
        str(path.relative_to(first)): path.read_text()
        for path in pathlib.Path(first).rglob("*")
        if path.is_file()
    }
    assert found == {name: name for name in read}
    server.shutdown()
    server.server_close()
    assert in_process(server, tmp_path, "toys/bert@main") == [first]  # nothing answers
    assert in_process(server, tmp_path, "toys/bert", offline="1") == [first]


@pytest.mark.needs_extra("huggingface_hub")
def test_a_file_with_another_digest_than_the_hub_announces_is_refused(server, tmp_path):
    repository(server, "bert", "config.json", "model.safetensors")
    weights = server.folder / "toys" / "bert" / "model.safetensors"
    server.digests[weights.name] = hashlib.sha256(weights.read_bytes()).hexdigest()
    content = weights.read_bytes()
    weights.write_bytes(content.swapcase())
    (refused,) = in_process(server, tmp_path, "toys/bert")
    digest = server.digests[weights.name]
    assert re.match(
        f"toys/bert: a file has arrived with the SHA-256 .*, and the Hub announces {digest}; start",
        refused,
    )
    weights.write_bytes(content)
    (folder,) = in_process(server, tmp_path, "toys/bert")
    assert (pathlib.Path(folder) / weights.name).read_bytes() == content


def test_only_digests_of_the_hub_are_compared(tmp_path):
    """The cache names small files by another digest."""
    digest = hashlib.sha256(b"right").hexdigest()
    for name, content in ((digest, b"right"), ("0" * 40, b"small")):
        (tmp_path / name).write_bytes(content)
        model_hub._check_digests("a/b", [str(tmp_path / name)])
    (tmp_path / digest).write_bytes(b"wrong")
    with pytest.raises(
        InputError, match=f"^a/b: a file has arrived .*, and the Hub announces {digest}"
    ):
        model_hub._check_digests("a/b", [str(tmp_path / digest)])
    assert not (tmp_path / digest).exists()


@pytest.mark.parametrize(
    "error", [KeyError("id"), TypeError("string indices must be integers"), AttributeError("x")]
)
def test_the_answer_of_another_server_is_named_so(error):
    assert (
        model_hub._explain("a/b", error)
        == "the answer is not that of a Hugging Face Hub; check HF_ENDPOINT, or the network"
    )


@pytest.mark.needs_extra("huggingface_hub")
def test_what_the_hub_lacks_is_one_sentence(server, tmp_path):
    repository(server, "pickle", "pytorch_model.bin", "config.json")
    says = {
        "toys/absent": "no such model, .*check the name",
        "google-bert/bert-bse-uncased": "did you mean google-bert/bert-base-uncased",
        "toys/pickle": "no model.safetensors of it",
        "toys/a--b": "no such model",
    }
    for said, (name, sentence) in zip(
        in_process(server, tmp_path, *says), says.items(), strict=True
    ):
        assert re.match(f"{name}: .*{sentence}", said)
    (said,) = in_process(server, tmp_path, "toys/other", offline="1")
    assert re.match("toys/other: no such folder, and the Hugging Face Hub cannot be reached", said)
