"""Downloads a file over HTTP, beginning where an interrupted download has ended.

In: a URL and the local path of a file, which may hold the beginning. Out: the whole file, with the length that the
server has told. Beside a beginning lies a note of the version that it is of: a file that has changed begins anew.
"""

import http.client
import os
import re
import urllib.error
import urllib.request

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress

_PART_BYTES = 1 << 20
_TIMEOUT_SECS = 60  # without a byte
_MB = 1e6
_NOTE = ".version"  # two lines: an ETag or a time of the server, and the length
_is_range = re.compile(r"bytes (\d+)-\d+/(\d+)").fullmatch


def download(url: str, path: str, otherwise: str):
    """Downloads a file; an interrupted transfer is taken up again as long as more arrives each time.

    `otherwise` ends the sentence of an error: what else helps.

    Raises:
        InputError: the server refuses, or nothing more arrives. What has arrived stays for the next call.
    """
    while True:
        before, remedy = _length(path), None
        try:
            why = _go_on(url, path, before)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and before:
                if error.headers.get("Content-Range") == f"bytes */{before}":
                    _remove(f"{path}{_NOTE}")
                    return  # all was there
                _remove(path)  # it is longer, so no beginning of this file
                continue
            answer = f"{error.code} ({error.reason})"
            raise InputError(f"{url}: the server answers {answer}; check the address, {otherwise}") from None
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", error))
            remedy = isinstance(error, OSError) and writing.remedy_of(error)
        if not why:
            _remove(f"{path}{_NOTE}")
            return
        if (kept := _length(path)) <= before:
            more = f" (it goes on behind {kept:,} bytes)" if kept else ""
            remedy = remedy or "check the network"
            raise InputError(f"{url}: cannot be downloaded ({why}); {remedy} and start again{more}, {otherwise}")


def _length(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _remove(path: str):
    if os.path.exists(path):
        os.remove(path)


def _go_on(url: str, path: str, done: int) -> str:
    """Appends what a file lacks, or begins anew; returns why it is not whole, or "".

    A server that knows no ranges, or has another version by now, sends all again.
    """
    note, version, size = f"{path}{_NOTE}", "", ""
    if done and os.path.exists(note):
        version, size = (*reading.read_lines(note), "", "")[:2]
    headers = {"Range": f"bytes={done}-"} if done else {}
    headers |= {"If-Range": version} if version else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECS) as response:
        told, given = response.headers, response.headers["Content-Length"]
        total = given and int(given)
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            part = _is_range(told["Content-Range"] or "")
            if not part or int(part[1]) != done or size not in ("", part[2]):
                _remove(path)
                return _go_on(url, path, 0) if done else "the server sends a part that was not asked for"
            total = int(part[2])
        else:
            done = 0
        progress = Progress(f"MB of {url}", total and round(total / _MB))
        with open(path, "ab" if done else "wb") as file:
            if not done:  # of a version only what was written after its note
                etag = told["ETag"] or "W/"  # a weak one is not for this
                version = told["Last-Modified"] or "" if etag.startswith("W/") else etag
                with files.open_file(note, "w") as about:
                    about.write(f"{version}\n{'' if total is None else total}\n")
            while part := response.read(_PART_BYTES):
                file.write(part)
                done += len(part)
                progress(round(done / _MB))
    return "" if total in (None, done) else f"{done:,} of {total:,} bytes arrived"
