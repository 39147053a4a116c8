"""Downloads a file over HTTP and resumes an interrupted download.

In: a URL and a local path, where a part of the file may already be. Out: the complete file, with
the length that the server reports. The file may have changed on the server between two parts, so
the reader of the file has to check its content.
"""

import http.client
import os
import urllib.error
import urllib.request

from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress

_PART_BYTES = 1 << 20
_TIMEOUT_SECS = 60  # how long the server may send nothing
_MB = 1e6


def download(url: str, path: str, otherwise: str) -> None:
    """Downloads a file, and resumes the transfer as long as more bytes arrive each time.

    Args:
        url: the address of the file.
        path: the local path. The download continues after the bytes that are already there.
        otherwise: the end of the error message: what the user can do instead.

    Raises:
        InputError: the server refuses, or no more bytes arrive. The next call continues after the
            bytes that have arrived.
    """
    interruption = "interrupted"
    while interruption:
        size_before = _file_size(path)
        remedy = "check the network"
        try:
            interruption = _resume(url, path, size_before)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                reason = str(error.reason).splitlines()[0]
                raise InputError(
                    f"{url}: the server answers {error.code} ({reason}); check the address, "
                    f"{otherwise}"
                ) from None
            if error.headers.get("Content-Range") == f"bytes */{size_before}":
                return  # The file is already complete.
            # The local file is longer than the one on the server, so it is not a part of it.
            os.remove(path)
            continue
        except (OSError, http.client.HTTPException) as error:
            interruption = str(getattr(error, "reason", error))
            if isinstance(error, OSError):
                remedy = writing.find_remedy(error) or remedy
        size = _file_size(path)
        if interruption and size <= size_before:
            continuation = f" (it continues after {size:,} bytes)" if size else ""
            raise InputError(
                f"{url}: cannot be downloaded ({interruption}); {remedy} and start again"
                f"{continuation}, {otherwise}"
            )


def _file_size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _resume(url: str, path: str, done: int) -> str:
    """Appends the missing bytes to a file that has `done` bytes, or downloads all of it if the
    server supports no ranges.

    Returns why the file is incomplete, or "".
    """
    headers = {"Range": f"bytes={done}-"} if done else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECS) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0
        # The length is None if the header lacks it, or if it is not a number.
        total = None if response.length is None else done + response.length
        progress = Progress(f"MB of {url}", total and round(total / _MB))
        with open(path, "ab" if done else "wb") as file:
            while part := response.read(_PART_BYTES):
                file.write(part)
                done += len(part)
                progress(round(done / _MB))
    return "" if total in (None, done) else f"{done:,} of {total:,} bytes arrived"
