"""Parts of a set of records, each made by a run of its own, and the check that a set is complete.

In: the text `3/256` of a flag, or record files with their manifests. Out: the names of a part's
files and its input files, or one sentence about what a set lacks.

    records/train-part-00003-of-00256-00000-of-00012    shard 0 of part 3
    records/train-part-00003-of-00256.manifest.json     the manifest of part 3
"""

import collections
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.options.data_tools import PART, SHARDED, PretrainingDataOptions
from official_bert.options.fields import flag_fields

_PART_SHARD = re.compile(
    r"(?P<set>.+)-part-(?P<number>\d{5})-of-(?P<total>\d{5})"
    r"-(?P<shard>\d{5})-of-(?P<num_shards>\d{5})(\.gz)?"
)
# What all parts of a set have in common in their manifests, beside the flags.
_COMMON = ("algorithm", "vocabulary_sha256")
_FLAGS_BY_PART = ("num_shards", "compression")


class Part(NamedTuple):
    """A part of a set of records.

    Attributes:
        number: the number of the part, from 1.
        total: the number of parts of the set.
    """

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Returns the part that a flag names.

        Args:
            text: the value of --part, such as "3/256", which the flag's check accepts.
        """
        match = re.fullmatch(PART, text)
        assert match is not None
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def output_file(self, set_name: str) -> str:
        """Returns the beginning of the names of the part's files.

        Args:
            set_name: the beginning of the names of all files of the set.
        """
        return f"{set_name}-part-{self.number:05}-of-{self.total:05}"

    def is_sibling(self, path: str) -> bool:
        """Returns whether a file is a shard of another part of a set with as many parts.

        Args:
            path: the file.
        """
        match = _PART_SHARD.fullmatch(path)
        if match is None:
            return False
        return int(match["total"]) == self.total and int(match["number"]) != self.number

    def shard_stream(self, shard: int) -> int:
        """Returns the number of a shard among those of all parts, which is a part of its seed.

        No two shards of a set have the same number, however many shards each part has.

        Args:
            shard: the number of the shard in its part, from 0.
        """
        return shard * self.total + self.number - 1

    def select_files(self, input_files: Sequence[str]) -> list[str]:
        """Returns the input files of the part: every n-th of the sorted files.

        Args:
            input_files: the files of the whole set.

        Raises:
            InputError: there are fewer files than parts.
        """
        if len(input_files) < self.total:
            raise InputError(
                f"--part={self}: --input_file names fewer files ({len(input_files)}) than there "
                f"are parts ({self.total}); split the files, or lower the number of parts to "
                f"{len(input_files)}"
            )
        return sorted(input_files)[self.number - 1 :: self.total]

    def describe(self, input_files: Sequence[str], num_shards: int | None) -> dict[str, Any]:
        """Returns what the manifest of the part has about its set and its input files.

        Args:
            input_files: the files of the whole set.
            num_shards: the value of --num_shards; None if the size of the text chooses it.

        Raises:
            InputError: there are fewer files than parts, or a file cannot be read.
        """
        sizes = [files.size(path) for path in self.select_files(input_files)]
        return {
            "number": self.number,
            "total": self.total,
            "num_shards": num_shards,
            "names_sha256": digest_names(input_files),
            "sizes_sha256": hashlib.sha256(json.dumps(sizes).encode()).hexdigest(),
        }


def digest_names(input_files: Iterable[str]) -> str:
    """Returns a digest of the names of the input files, which is the same on all machines.

    Args:
        input_files: the files of the whole set. The folder that all of them share does not count,
            because machines may have it in different places.
    """
    parts = [path.split("/") for path in sorted(input_files)]
    num_shared = 0
    while all(len(names) > num_shared + 1 for names in parts) and (
        len({names[num_shared] for names in parts}) == 1
    ):
        num_shared += 1
    names = "\n".join("/".join(names[num_shared:]) for names in parts)
    return hashlib.sha256(names.encode()).hexdigest()


def check_complete(matches: Collection[str], records: Iterable[str], flag: str) -> None:
    """Checks that globs match all parts of each set of parts, and that the parts fit together.

    Args:
        matches: the record files that globs match. Sets of which only names are given are not
            checked.
        records: all record files.
        flag: the name of the flag with the globs, for errors.

    Raises:
        InputError: a part or a shard is missing, or parts differ in their flags, their vocabulary
            or their list of input files.
    """
    checked_sets = {match["set"] for match in map(_PART_SHARD.fullmatch, matches) if match}
    if not checked_sets:
        return
    # The shards of each part, by set and number of parts.
    sets = collections.defaultdict(lambda: collections.defaultdict(dict))
    for path in records:
        match = _PART_SHARD.fullmatch(path)
        if match is None or match["set"] not in checked_sets:
            continue
        number, total, shard, num_shards = map(int, match.groups()[1:5])
        shards = sets[match["set"], total][number]
        shards.setdefault(num_shards, set()).add(shard)
    for (set_name, total), shards_by_part in sets.items():
        _check_set(set_name, total, shards_by_part, flag)


def _check_set(
    set_name: str,
    total: int,
    shards_by_part: Mapping[int, Mapping[int, set[int]]],
    flag: str,
):
    manifests = {}
    for number in sorted(shards_by_part):
        part = Part(number, total)
        manifests[number] = _read_manifest(part, set_name)
    first = next(filter(None, manifests.values()), {})
    for number in range(1, total + 1):
        part = Part(number, total)
        output_file = part.output_file(set_name)
        if number not in shards_by_part:
            if files.matching(f"{output_file}-*"):
                raise InputError(
                    f"--{flag}: the glob does not match part {number} of {total} of {set_name}; "
                    f"give '{set_name}-part-*', or list the files without a glob"
                )
            raise _missing_part(part, set_name, first, flag)
        for num_shards, shards in shards_by_part[number].items():
            absent = sorted(set(range(num_shards)) - shards)
            if absent:
                raise InputError(
                    f"--{flag}: {output_file}-{absent[0]:05}-of-{num_shards:05} is "
                    "missing; copy it, or make the part from the same text and vocabulary: "
                    f"{_command(part, set_name, first)}"
                )
        _check_alike(part, set_name, manifests[number], first)


def _missing_part(part: Part, set_name: str, manifest: dict, flag: str) -> InputError:
    return InputError(
        f"--{flag}: part {part.number} of {part.total} of {set_name} is missing; copy all parts "
        "into one folder, or make it from the same text and vocabulary: "
        f"{_command(part, set_name, manifest)}"
    )


def _command(part: Part, set_name: str, manifest: dict) -> str:
    """Returns the command that makes a part, with the flags of another one's manifest.

    The manifest has no paths of the text and the vocabulary, because they may differ between
    machines. The user fills them in.
    """
    flags = {
        "generator": SHARDED,
        "part": part,
        "output_file": set_name,
    }
    recorded_flags = manifest.get("flags", {})
    if recorded_flags.get("compression") == "gzip":
        flags["output_file"] += ".gz"
    for field in flag_fields(PretrainingDataOptions):
        value = recorded_flags.get(field.name, field.default)
        if field.name not in _FLAGS_BY_PART and value != field.default:
            flags[field.name] = value
    num_shards = manifest.get("part", {}).get("num_shards")
    if num_shards is not None:
        flags["num_shards"] = num_shards
    words = [f"--{name}={value}" for name, value in flags.items()]
    return " ".join(
        ["create_pretraining_data.py", *words, "--input_file=... --vocab_file=..."],
    )


def _manifest_file(part: Part, set_name: str) -> str:
    return f"{part.output_file(set_name)}.manifest.json"


def _read_manifest(part: Part, set_name: str) -> dict:
    path = _manifest_file(part, set_name)
    if not files.exists(path):
        return {}
    return reading.check_object(reading.read_json(path), path)


def _check_alike(
    part: Part,
    set_name: str,
    manifest: dict,
    first: dict,
):
    """Checks that a part was made like the first one."""
    if not manifest:
        return
    path = _manifest_file(part, set_name)
    flags = manifest.get("flags", {})
    first_flags = first.get("flags", {})
    for name in sorted(flags.keys() | first_flags.keys()):
        value = flags.get(name)
        first_value = first_flags.get(name)
        if name not in _FLAGS_BY_PART and value != first_value:
            raise InputError(
                f"{path}: has --{name}={value}, and another part --{name}={first_value}; make all "
                "parts with the same flags"
            )
    for name in _COMMON:
        if manifest.get(name) != first.get(name):
            raise InputError(
                f"{path}: has another {name} than another part; make all parts with the same "
                "vocabulary and version"
            )
    names = manifest.get("part", {}).get("names_sha256")
    first_names = first.get("part", {}).get("names_sha256")
    if names != first_names:
        raise InputError(
            f"{path}: its run saw other names of input files than that of another part; make all "
            "parts with the same --input_file"
        )
