"""Files of the systems that TensorFlow cannot open, such as s3://, by fsspec if it is installed.

`files` uses it: the class has the functions of tf.io.gfile that `files` needs, under their names.
Each system needs a package of its own beside fsspec, such as s3fs or gcsfs.
"""

import functools
import importlib.util
from typing import IO, Any, NamedTuple

from official_bert.io.errors import InputError


class _Stat(NamedTuple):
    length: int


@functools.cache
def is_installed() -> bool:
    """Returns whether fsspec can be imported."""
    return importlib.util.find_spec("fsspec") is not None


@functools.cache
def file_system(scheme: str) -> "_FsspecFiles":
    """Returns the functions for the paths of a scheme.

    Args:
        scheme: the beginning of the paths before "://".

    Raises:
        InputError: fsspec does not know the scheme, or lacks a package for it.
    """
    return _FsspecFiles(scheme)


class _FsspecFiles:
    """The functions of tf.io.gfile for the paths of one scheme."""

    def __init__(self, scheme: str):
        try:
            import fsspec  # pyright: ignore[reportMissingImports]

            self._system = fsspec.filesystem(scheme)
        except (ValueError, ImportError) as error:
            raise InputError(
                f"{scheme}://: fsspec cannot open such paths ({error}); install its package for "
                "them, or name another path"
            ) from None

    def GFile(self, path: str, mode: str) -> IO[Any]:
        if "b" in mode:
            return self._system.open(path, mode)
        return self._system.open(path, mode, encoding="utf-8", newline="\n")

    def exists(self, path: str) -> bool:
        return self._system.exists(path)

    def isdir(self, path: str) -> bool:
        return self._system.isdir(path)

    def stat(self, path: str) -> _Stat:
        return _Stat(self._system.info(path)["size"])

    def makedirs(self, path: str) -> None:
        self._system.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        """Renames a file; one with the new name is replaced, as `overwrite` always demands."""
        self._system.mv(source, target)

    def remove(self, path: str) -> None:
        self._system.rm_file(path)

    def rmtree(self, path: str) -> None:
        self._system.rm(path, recursive=True)

    def listdir(self, path: str) -> list[str]:
        return [name.rstrip("/").rpartition("/")[2] for name in self._system.ls(path, detail=False)]

    def glob(self, pattern: str) -> list[str]:
        """Returns the matches in the form of the pattern, with its scheme."""
        stripped = self._system._strip_protocol(pattern)
        beginning = pattern.removesuffix(stripped)
        return [beginning + name for name in self._system.glob(pattern)]
