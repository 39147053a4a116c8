"""Downloads a file over HTTP, beginning where an interrupted download has ended.

In: a URL and the local path of a file, which may hold the beginning. Out: the whole file, with the
length that the server has told. What is in it is for its reader to check: the file may have changed
on the server between two parts.
"""

import http.client
import os
import urllib.error
import urllib.request

from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress

_PART_BYTES = 1 << 20
_TIMEOUT_SECS = 60  # without a byte
_MB = 1e6


def download(url: str, path: str, otherwise: str) -> None:
    """Downloads a file; an interrupted transfer is taken up again as long as more arrives each
    time.

    `otherwise` ends the sentence of an error: what else helps.

    Raises:
        InputError: the server refuses, or nothing more arrives. What has arrived stays for the next
            call.
    """
    why = "interrupted"
    while why:
        before, remedy = _length(path), "check the network"
        try:
            why = _go_on(url, path, before)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                answer = f"{error.code} ({str(error.reason).splitlines()[0]})"
                raise InputError(
                    f"{url}: the server answers {answer}; check the address, {otherwise}"
                ) from None
            if error.headers.get("Content-Range") == f"bytes */{before}":
                return  # all was there
            os.remove(path)  # it is longer, so no beginning of this file
            continue
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", error))
            remedy = (isinstance(error, OSError) and writing.find_remedy(error)) or remedy
        if why and (kept := _length(path)) <= before:
            more = f" (it goes on behind {kept:,} bytes)" if kept else ""
            raise InputError(
                f"{url}: cannot be downloaded ({why}); {remedy} and start again{more}, {otherwise}"
            )


def _length(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _go_on(url: str, path: str, done: int) -> str:
    """Appends what a file lacks, or all of it if the server knows no ranges; returns why it is
    not whole, or "".
    """
    headers = {"Range": f"bytes={done}-"} if done else {}
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECS
    ) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0
        # The length that http.client has read from the header: None without one, and of one that is
        # no number.
        total = None if response.length is None else done + response.length
        progress = Progress(f"MB of {url}", total and round(total / _MB))
        with open(path, "ab" if done else "wb") as file:
            while part := response.read(_PART_BYTES):
                file.write(part)
                done += len(part)
                progress(round(done / _MB))
    return "" if total in (None, done) else f"{done:,} of {total:,} bytes arrived"
