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

NAME = "cased_L-12_H-768_A-12"
PATH = "2018_10_18/cased_L-12_H-768_A-12"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LIMIT_SECS = 60
CONTENT = {name: name.encode() * 1000 for name in model_hub._MEMBERS}
CONTENT["vocab.txt"] = b"[UNK]\nThe\nthe\n"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the files of `server.folder`, and notes in `server.starts` at which byte the
    requests begin.

    `server.cuts` are the bytes after which the next answers break off, `server.digests` what the
    Hub announces by name, `server.length` a Content-Length in place of the true one.
    """

    timeout = LIMIT_SECS

    def do_GET(self):
        requested_range = self.headers.get("Range", "bytes=0-")
        start = int(re.fullmatch(r"bytes=(\d+)-", requested_range)[1])
        self.server.starts.append(start)
        content = self._listing()
        if not content:
            content = self._file()
        status, headers, body = self._answer(content, start)
        _, _, name = self.path.rpartition("/")
        digest = self.server.digests.get(name)
        if digest:
            headers["X-Linked-ETag"] = f'"{digest}"'
            headers["X-Linked-Size"] = len(body)
        headers["Content-Length"] = self.server.length or len(body)
        self._send(status, headers, body)

    do_HEAD = do_GET

    def _answer(self, content: bytes | None, start: int) -> tuple[int, dict, bytes]:
        """The status, headers and body of the answer to a request from a byte on."""
        if content is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        size = len(content)
        if start >= size > 0:
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        checksum = zlib.crc32(content)
        headers = {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{checksum}"',
        }
        if start and self.server.knows_ranges:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
            return 206, headers, content[start:]
        return 200, headers, content

    def _send(self, status: int, headers: dict, body: bytes):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.server.cuts:
            cut = self.server.cuts.pop(0)
            body = body[:cut]
        self.wfile.write(body)

    def _listing(self) -> bytes | None:
        """The Hub's answer about a repository: its commit, or its files."""
        request = re.fullmatch(
            rf"/api/models/(\w+/\w+)/(revision/(main|v2)|tree/{COMMIT})(\?.*)?", self.path
        )
        if not request:
            return None
        repository, revision = request.group(1, 3)
        folder = self.server.folder / repository
        if not folder.is_dir():
            return None
        contents = read_files(folder)
        if revision:
            siblings = [{"rfilename": name} for name in contents]
            answer = {"id": repository, "sha": COMMIT, "siblings": siblings}
        else:
            answer = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": "0" * 40,
                }
                for name, content in contents.items()
            ]
        return json.dumps(answer).encode()

    def _file(self) -> bytes | None:
        name = self.path.lstrip("/").replace(f"resolve/{COMMIT}/", "")
        path = self.server.folder / name
        return path.read_bytes() if path.is_file() else None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the archives, with an empty cache."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(model_hub.CACHE, str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.folder = tmp_path / "served"
        server.starts = []
        server.cuts = []
        server.knows_ranges = True
        server.digests = {}
        server.length = None
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
    content = archive.read_bytes()
    content = content.replace(damage, damage.lower())
    archive.write_bytes(content)
    return content


def read_files(folder: pathlib.Path) -> dict[str, bytes]:
    """The files below a folder by their paths in it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def list_cache(tmp_path) -> set[str]:
    """The names in the cache's folder of the archives of 2018."""
    folder = tmp_path / "cache" / "2018_10_18"
    return {path.name for path in folder.glob("*")}


def read_cached_vocabulary() -> bytes:
    """The vocabulary of the model, which is downloaded if the cache lacks it."""
    folder = pathlib.Path(model_hub.local_path(NAME))
    return (folder / "vocab.txt").read_bytes()


def test_a_length_that_is_no_number_is_none(server, tmp_path):
    serve(server)
    server.length = "abc"
    assert model_hub.local_path(NAME) == str(tmp_path / "cache" / PATH)


@pytest.mark.parametrize(
    ("folder", "leftover", "num_requests"),
    [
        pytest.param(f"{NAME}/", None, 1, id="empty cache"),
        pytest.param("", b"", 1, id="whole file in the cache"),
        pytest.param("", b"more", 2, id="longer file in the cache"),
    ],
)
def test_an_archive_is_fetched_once(server, tmp_path, folder, leftover, num_requests):
    """A killed run may have left the whole file, or `leftover` is behind it and it is no beginning
    of the file.
    """
    archive = serve(server, {"other.py": b"x", **CONTENT}, folder)
    model_folder = tmp_path / "cache" / PATH
    if leftover is not None:
        cache = model_folder.parent
        cache.mkdir(parents=True)
        (cache / f"{NAME}.zip").write_bytes(archive + leftover)
    assert model_hub.local_path(NAME) == str(model_folder)
    files = read_files(model_folder)
    files.pop("tokenizer_config.json")
    assert files == CONTENT
    assert list_cache(tmp_path) == {NAME, f"{NAME}.zip.sha256"}
    server.shutdown()
    assert model_hub.local_path(PATH) == str(model_folder)
    tokenizer = FullTokenizer.from_pretrained(NAME)
    assert tokenizer.tokenize("The") == ["The"]
    assert len(server.starts) == num_requests


def test_a_checkpoint_is_loaded_by_its_name(server, tmp_path):
    from official_bert.checkpoints import open_checkpoint

    model_folder = toy.make_bert_base_dir(tmp_path / "model")
    name = "uncased_L-2_H-128_A-2"
    serve(server, read_files(model_folder), folder="", path=f"2020_02_20/{name}")
    downloaded = open_checkpoint(name)
    original = open_checkpoint(str(model_folder))
    assert downloaded.shapes == original.shapes
    for weight in original.shapes:
        assert np.array_equal(downloaded.read(weight), original.read(weight))
    tokenizer = FullTokenizer.from_pretrained(name)
    assert tokenizer.tokenize("The CAT") == ["the", "cat"]


@pytest.mark.parametrize(
    ("knows_ranges", "cuts", "later_cuts", "starts"),
    [
        pytest.param(
            True,
            [1000, 0],
            [500],
            [0, 1000, 1000, 1500],
            id="server with ranges",
        ),
        pytest.param(
            False,
            [1000, 1000],
            [],
            [0, 1000, 1000],
            id="server without ranges",
        ),
    ],
)
def test_an_interrupted_download_goes_on(server, tmp_path, knows_ranges, cuts, later_cuts, starts):
    size = len(serve(server))
    server.cuts = cuts
    server.knows_ranges = knows_ranges
    message = rf"\(1,000 of {size:,} bytes arrived\); .*it continues after 1,000 bytes"
    with pytest.raises(InputError, match=message):
        model_hub.local_path(NAME)
    assert list_cache(tmp_path) == {f"{NAME}.zip"}
    server.cuts = later_cuts
    assert read_cached_vocabulary() == CONTENT["vocab.txt"]
    assert server.starts == starts
    assert list_cache(tmp_path) == {NAME, f"{NAME}.zip.sha256"}


def test_two_parts_of_different_files_are_refused(server, tmp_path):
    serve(server)
    server.cuts = [1000, 0]
    with pytest.raises(InputError, match="it continues after 1,000 bytes"):
        model_hub.local_path(NAME)
    other_content = {name: content.swapcase() for name, content in CONTENT.items()}
    serve(server, other_content)
    with pytest.raises(InputError, match=r"is no archive of a model .*start again to download it"):
        model_hub.local_path(NAME)
    assert list_cache(tmp_path) == set()
    assert read_cached_vocabulary() == other_content["vocab.txt"]


def test_an_archive_of_an_unknown_method_is_deleted(server, tmp_path):
    content = bytearray(serve(server))
    unknown_method = (99).to_bytes(2, "little")
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = content.find(signature) + offset
        content[start : start + 2] = unknown_method
    (server.folder / f"{PATH}.zip").write_bytes(content)
    message = rf"{PATH}\.zip: is no archive of a model \(.*; start again to download it"
    with pytest.raises(InputError, match=message):
        model_hub.local_path(NAME)
    assert list_cache(tmp_path) == set()


def test_an_archive_that_has_changed_is_refused(server, tmp_path):
    serve(server)
    shutil.rmtree(model_hub.local_path(NAME))
    serve(server, CONTENT | {"vocab.txt": b"other\n"})
    message = r"its SHA-256 is \w{64}, and was \w{64} at the first download"
    with pytest.raises(InputError, match=message):
        model_hub.local_path(NAME)
    assert list_cache(tmp_path) == {f"{NAME}.zip.sha256"}
    serve(server)
    assert os.path.isdir(model_hub.local_path(NAME))


@pytest.mark.parametrize(
    ("members", "folder", "damage", "message"),
    [
        pytest.param(
            CONTENT,
            "../",
            b"",
            r"it has a member '\.\./bert_config.json'",
            id="relative path outside",
        ),
        pytest.param(
            CONTENT,
            "/etc/",
            b"",
            "it has a member '/etc/bert_config.json'",
            id="absolute path outside",
        ),
        pytest.param(
            {"x/../../evil.sh": b"x"},
            "",
            b"",
            "it has a member",
            id="path that leaves its folder",
        ),
        pytest.param(
            {"vocab.txt": b"a\n"},
            "",
            b"",
            "it lacks bert_config.json, bert_model.ckpt",
            id="no checkpoint",
        ),
        pytest.param(
            CONTENT | {"old/vocab.txt": b"a\n"},
            "",
            b"",
            "it has two vocab.txt: old/vocab.txt and vocab.txt",
            id="two vocabularies",
        ),
        pytest.param(
            CONTENT,
            "",
            b"[UNK]",
            "CRC",
            id="damaged member",
        ),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused(
    server, tmp_path, members, folder, damage, message
):
    serve(server, members, folder, damage=damage)
    with pytest.raises(InputError, match=rf"{PATH}\.zip: is no archive of a model \(.*{message}"):
        model_hub.local_path(NAME)
    assert list_cache(tmp_path) == set()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (None, r": the server answers 404"),
        ("http://127.0.0.1:1", r": cannot be downloaded \(.*refused"),
    ],
)
def test_an_archive_that_cannot_be_had(server, monkeypatch, address, reason):
    if address:
        monkeypatch.setenv(model_hub.ARCHIVES, address)
    hint = f"or set {model_hub.ARCHIVES} to the address of a mirror"
    with pytest.raises(InputError, match=rf"{PATH}\.zip{reason}.* {hint}"):
        model_hub.local_path(NAME)


def test_another_process_is_waited_for(server, tmp_path, monkeypatch):
    waits = threading.Event()
    folder = tmp_path / "cache" / PATH
    monkeypatch.setattr(folder_lock.logging, "info", lambda *_: waits.set())
    with ThreadPoolExecutor(1) as pool:
        with folder_lock.locked(str(folder.parent)):
            download = pool.submit(model_hub.local_path, NAME)
            assert waits.wait(LIMIT_SECS)
            folder.mkdir()  # as the other process does when it is done
        assert download.result(LIMIT_SECS) == str(folder)
    assert server.starts == []


def test_the_released_models():
    """7 of 2018, 2 with whole words masked, and 24 small ones, of which one has the name of a
    first one.
    """
    counts = [len(names) for names in model_hub.RELEASES.values()]
    assert counts == [24, 2, 1, 2, 4]
    all_names = set().union(*model_hub.RELEASES.values())
    assert len(all_names) == 32
    assert model_hub._PATHS["uncased_L-12_H-768_A-12"] == "2018_10_18/uncased_L-12_H-768_A-12"


ABSENT_PATHS = [
    "nowhere",
    "model/absent",
    "../a/b",
    "/a/b",
    "a/b/c",
    "x/bert_model.ckpt",
    "c",
]
MODEL_NAMES = [
    NAME,
    "google-bert/bert-base-cased",
    "bert-base-cased",
]


def test_a_path_stays_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "c.index").mkdir()
    for path in ABSENT_PATHS:
        assert model_hub.local_path(path) == path
    for name in MODEL_NAMES:
        folder = pathlib.Path(name)
        folder.mkdir(parents=True)
        assert model_hub.local_path(folder) == name


PRINT_PATHS = """
import sys
from official_bert import model_hub
for name in sys.argv[1:]:
    try:
        print(model_hub.local_path(name))
    except ValueError as error:
        print(error)
"""


def run_local_path(server, tmp_path, *names, offline="0") -> list[str]:
    """What local_path returns or says for names, in a process that sees the server as the Hub."""
    settings = {
        "HF_ENDPOINT": os.environ[model_hub.ARCHIVES],
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": offline,
    }
    finished = subprocess.run(
        [sys.executable, "-c", PRINT_PATHS, *names],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def serve_repository(server, name, *files):
    """Puts a repository of the Hub on the server; each file contains its name."""
    folder = server.folder / "toys" / name
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)


@pytest.mark.needs_extra("huggingface_hub")
def test_a_model_of_the_hub_is_fetched_without_pickles_and_found_again_offline(server, tmp_path):
    needed_files = (
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer_config.json",
        "1_Pooling/config.json",
    )
    serve_repository(
        server,
        "bert",
        *needed_files,
        "pytorch_model.bin",
        "tf_model.h5",
        "onnx/model.onnx",
        "README.md",
        "code.py",
    )
    (first, again) = run_local_path(server, tmp_path, "toys/bert", "toys/bert@v2")
    assert first == again
    files = read_files(pathlib.Path(first))
    assert files == {name: name.encode() for name in needed_files}
    server.shutdown()
    server.server_close()
    assert run_local_path(server, tmp_path, "toys/bert@main") == [first]  # nothing answers
    assert run_local_path(server, tmp_path, "toys/bert", offline="1") == [first]


@pytest.mark.needs_extra("huggingface_hub")
def test_a_file_with_another_digest_than_the_hub_announces_is_refused(server, tmp_path):
    serve_repository(server, "bert", "config.json", "model.safetensors")
    weights = server.folder / "toys" / "bert" / "model.safetensors"
    content = weights.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    server.digests[weights.name] = digest
    weights.write_bytes(content.swapcase())
    (message,) = run_local_path(server, tmp_path, "toys/bert")
    assert re.match(
        f"toys/bert: a file has arrived with the SHA-256 .*, and the Hub announces {digest}; start",
        message,
    )
    weights.write_bytes(content)
    (folder,) = run_local_path(server, tmp_path, "toys/bert")
    downloaded = pathlib.Path(folder) / weights.name
    assert downloaded.read_bytes() == content


def test_only_digests_of_the_hub_are_compared(tmp_path):
    """The cache names small files by another digest."""
    digest = hashlib.sha256(b"right").hexdigest()
    large_file = tmp_path / digest
    large_file.write_bytes(b"right")
    model_hub.check_digests("a/b", [str(large_file)])
    small_file = tmp_path / ("0" * 40)
    small_file.write_bytes(b"small")
    model_hub.check_digests("a/b", [str(small_file)])
    large_file.write_bytes(b"wrong")
    message = f"^a/b: a file has arrived .*, and the Hub announces {digest}"
    with pytest.raises(InputError, match=message):
        model_hub.check_digests("a/b", [str(large_file)])
    assert not large_file.exists()


@pytest.mark.parametrize(
    "error",
    [
        KeyError("id"),
        TypeError("string indices must be integers"),
        AttributeError("x"),
    ],
)
def test_the_answer_of_another_server_is_named_so(error):
    explanation = model_hub.explain("a/b", error)
    assert explanation == (
        "the answer is not that of a Hugging Face Hub; check HF_ENDPOINT, or the network"
    )


@pytest.mark.needs_extra("huggingface_hub")
def test_what_the_hub_lacks_is_one_sentence(server, tmp_path):
    serve_repository(server, "pickle", "pytorch_model.bin", "config.json")
    sentences = {
        "toys/absent": "no such model, .*check the name",
        "google-bert/bert-bse-uncased": "did you mean google-bert/bert-base-uncased",
        "toys/pickle": "no model.safetensors of it",
        "toys/a--b": "no such model",
    }
    messages = run_local_path(server, tmp_path, *sentences)
    for message, (name, sentence) in zip(messages, sentences.items(), strict=True):
        assert re.match(f"{name}: .*{sentence}", message)


@pytest.mark.needs_extra("huggingface_hub")
def test_without_a_network_the_hub_is_named(server, tmp_path):
    (message,) = run_local_path(server, tmp_path, "toys/other", offline="1")
    sentence = "toys/other: no such folder, and the Hugging Face Hub cannot be reached"
    assert re.match(sentence, message)
