"""The manifest beside sharded record files, which is no record file although a glob may match it."""

from collections.abc import Iterable

from official_bert import files
from official_bert.errors import InputError

MANIFEST_SUFFIX = ".manifest.json"


def expand_records(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the record files that a list of names and globs matches, without the manifests that globs match.

    Args:
        patterns: names or globs.
        flag: the flag with the list, for the error message.

    Raises:
        InputError: a pattern matches no file, or there is no pattern.
    """
    named = set(patterns)
    found = files.expand(patterns, flag)
    records = [path for path in found if path in named or not path.endswith(MANIFEST_SUFFIX)]
    if not records:
        raise InputError(
            f"--{flag}: no file of records matches {','.join(named)!r}; check the path or the glob"
        )
    return records
