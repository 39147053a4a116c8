"""Reads tables of users in any form: TSV, CSV (RFC 4180), JSON lines and Parquet, the first three
also in gzip.

In: a name, or several with commas and globs. Out: rows, of which the first has the names of the
columns. A field of TSV and CSV is a text; one of JSON lines and Parquet is any JSON value. The one
module that imports pyarrow, when it reads.
"""

import datetime
import decimal
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from official_bert.data import tables
from official_bert.data.column_roles import Role, decide_columns
from official_bert.data.tables import ConllFile, Row, Sentence, numbered_lines, read_csv, read_tsv
from official_bert.io import files, reading
from official_bert.io.errors import InputError, brief
from official_bert.options.fine_tuning import DATA_FORMATS

TSV, CSV, JSON_LINES, PARQUET = DATA_FORMATS
_ENDINGS = {TSV: (".tsv",), CSV: (".csv",), JSON_LINES: (".jsonl", ".json"), PARQUET: (".parquet",)}
# What tasks with a format of their own read, too.
OTHER_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
_TOKENS = Role("tokens", ("tokens",), is_required=True)
_TAGS = Role("tags", ("ner_tags", "tags"))
_is_word = re.compile(r"[^ \t\r\n]+").fullmatch


def choose_format(path: str, data_format: str | None = None) -> str:
    """Returns the format of a file: the given one, or that of its ending."""
    plain_path = path.lower().removesuffix(".gz")
    for name, endings in _ENDINGS.items():
        if data_format == name or (data_format is None and plain_path.endswith(endings)):
            return name
    endings = ", ".join(itertools.chain(*_ENDINGS.values()))
    raise InputError(
        f"{path}: its name ends in none of {endings}; give --data_format={'|'.join(DATA_FORMATS)}"
    )


def expand_paths(flag_value: str, flag: str) -> list[str]:
    """Returns the files that the value of a flag names; the name of one may have commas or
    brackets, too.
    """
    is_one = files.exists(flag_value) or not re.search(r"[,*?[]", flag_value)
    return [flag_value] if is_one else files.expand(flag_value.split(","), flag)


def find_table(folder: str, stem: str, data_format: str | None = None) -> str:
    """Returns the file of a set in a folder, in a format or in any; the TSV file if there is none.

    Names match in any case.
    """
    formats = _ENDINGS if data_format is None else {data_format: _ENDINGS[data_format]}
    names = [f"{stem}{ending}" for endings in formats.values() for ending in endings]
    names += [f"{name}.gz" for name in names if not name.endswith(_ENDINGS[PARQUET])]
    paths = files.find_ignoring_case(folder, names)
    if len(paths) > 1:
        several = " and ".join(map(os.path.basename, paths))
        raise InputError(f"{folder}: has {several}; name the one to read with --{stem}_file")
    return paths[0] if paths else os.path.join(folder, names[0])


def read_rows(path: str, data_format: str | None = None, is_quoted: bool = False) -> Iterator[Row]:
    """Yields the names of the columns and the rows; of a TSV or CSV file without names, the rows.

    With `is_quoted`, fields of TSV may be quoted as in CSV.
    """
    name = choose_format(path, data_format)
    return (
        read_csv(path, "\t", decompresses=True)
        if is_quoted and name == TSV
        else _READERS[name](path)
    )


def is_table(path: str) -> bool:
    """Tells by its ending whether a file is a table of JSON lines or Parquet, for tasks with a
    format of their own.
    """
    return path.lower().endswith(OTHER_ENDINGS)


def has_table_ending(path: str) -> bool:
    """Returns whether the name of a file is that of a table of any format."""
    return path.lower().removesuffix(".gz").endswith(tuple(itertools.chain(*_ENDINGS.values())))


def read_records(
    flag_value: str,
    flag: str,
    data_format: str | None = None,
    has_header: bool = True,
    is_quoted: bool = False,
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields the rows of tables and their fields by column; without a header the columns are 0,
    1 and so on.
    """
    for path in expand_paths(flag_value, flag):
        names: Sequence[str] = ()
        for row in read_rows(path, data_format, is_quoted):
            is_header = not names and (has_header or not row.line)
            names = names or (
                row.fields if is_header else [str(number) for number in range(len(row.fields))]
            )
            if len(set(names)) < len(names):
                raise row.error("names a column twice; name each once")
            if len(row.fields) != len(names):
                raise row.error(
                    f"has {len(row.fields)} columns, the first one {len(names)}; complete or "
                    "correct it"
                )
            if not is_header:
                refuse_second_header(row, names)
                yield row, dict(zip(names, row.fields, strict=True))


def refuse_second_header(row: Row, names: Sequence[str]) -> None:
    """Raises InputError for a row that has the names of the columns, as of files put together."""
    if len(names) > 1 and list(row.fields) == list(names):
        raise row.error(
            "has the names of the columns again, as where another file begins; delete it"
        )


def parse_text(row: Row, value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise row.error(f"{name} is {'missing' if value is None else 'no text'}; give it a text")
    if half := reading.half_pair_in(value):
        raise row.error(f"{name} has {half}; leave it out")
    return value


def parse_label(row: Row, value: Any) -> str:
    """Returns a label or a score as text without blanks around it; "" if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value != value:  # also the NaN that stands for none
        return ""
    if isinstance(value, list):
        raise row.error("the label is a list; give the row one label")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (decimal.Decimal, datetime.date, datetime.time)):  # of Parquet
        return str(value)
    return parse_text(row, value, "the label").strip()


def read_tagged(flag_value: str, flag: str, labelled: bool = True) -> ConllFile:
    """Reads sentences as `read_conll` does, from the columns `tokens` and `ner_tags`, or `tags`,
    of their tags.
    """
    sentences, written, document, has_documents = [], [], 0, False
    path = ""
    tokens_name: str | None = None
    tags_name: str | None = None
    roles = (_TOKENS, _TAGS._replace(is_required=labelled))
    for row, record in read_records(flag_value, flag):
        if path != row.path:
            path, names = row.path, list(record)
            decided = decide_columns(path, names, roles)
            tokens_name = decided.column_name("tokens")
            tags_name = decided.column_name("tags")
        assert tokens_name is not None, "the role is a required one"
        words = _texts(row, record, tokens_name)
        columns = [words]
        tags = []
        has_tags = False
        if tags_name is not None and (labelled or record.get(tags_name)):
            has_tags = True
            tags = _texts(row, record, tags_name)
            columns.append(tags)
        if wrong := [word for word in words if not _is_word(word)]:
            raise row.error(f"has the token {wrong[0]!r}; give words without blanks")
        if wrong := [tag for tag in tags if not tables.is_tag(tag)]:
            raise row.error(f"has the tag {wrong[0]!r}; {tables.TAG_FORMS}")
        if wrong := [tag for tag in tags if not _is_word(tag)]:
            raise row.error(
                f"has the tag {wrong[0]!r}; give types without blanks, which separate the columns "
                "of CoNLL"
            )
        if len(columns[-1]) != len(words):
            raise row.error(
                f"has {len(words)} tokens and {len(tags)} {tags_name}; give each token one tag"
            )
        if words[:1] == [tables.DOCUMENT_START]:
            document, has_documents = document + 1, True
        elif words:
            written += [tags] if has_tags else []
            word_columns = list(map(list, zip(*columns, strict=True)))
            read = tables.to_iob2(tags) if labelled else None
            sentences.append(Sentence(row.line, document, word_columns, read, row.where))
    scheme = tables.logged_scheme(flag_value, written) if written else tables.IOB2
    return ConllFile(flag_value, tables.not_empty(sentences, flag_value), scheme, has_documents)


def _texts(row: Row, record: dict[str, Any], name: str) -> list[str]:
    values = reading.field(record, name, list, row.where)
    return [parse_text(row, value, f"an element of {name}") for value in values]


def _read_json_lines(path: str) -> Iterator[Row]:
    """Yields the names of all fields, in the order of their first line, and the objects."""
    objects, num_blank = [], 0
    for line, text in numbered_lines(path, decompresses=True):
        if not text.strip():
            num_blank += 1
            continue
        if not objects and text.lstrip().startswith("["):
            raise InputError(
                f"{path}: line {line}: begins a JSON array; write its objects without it, one a "
                "line"
            )
        try:
            value = reading.parse_json(
                text, has_lines=False, object_pairs_hook=reading.distinct_fields
            )
        except InputError as error:
            raise InputError(
                f"{path}: line {line}: {error}; give one JSON object a line"
            ) from error
        objects.append((line, reading.check_object(value, f"{path}: line {line}")))
    tables.log_blank(path, num_blank)
    names = list(dict.fromkeys(name for _, fields in objects for name in fields))
    if objects:
        yield Row(path, 0, names)
    for line, fields in objects:
        yield Row(path, line, [fields.get(name) for name in names])


def _read_parquet(path: str) -> Iterator[Row]:
    """Yields the names of the columns and the rows; numbers of labels become the names that
    Hugging Face records.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow, which cannot be imported ({error}); pip install "
            "'official-bert[data]'"
        ) from None
    with files.open_file(path, "rb") as file:
        data = file.read()
    try:
        table = parquet.ParquetFile(pyarrow.BufferReader(data)).read()
        columns = [column.to_pylist() for column in table.columns]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as Parquet ({brief(error)}); write it anew"
        ) from error
    labels = _recorded_labels((table.schema.metadata or {}).get(b"huggingface"))
    yield Row(path, 0, table.column_names, "row")
    for number, fields in enumerate(zip(*columns, strict=True), start=1):
        row = Row(path, number, list(fields), "row")
        for column, name in enumerate(table.column_names):
            if name in labels:
                row.fields[column] = _label_name(row, row.fields[column], labels[name])
        yield row


def _recorded_labels(metadata: bytes | None) -> dict[str, list[str]]:
    """Returns the names of the labels by column, from what Hugging Face's library writes into a
    Parquet file.
    """
    try:
        features = dict(json.loads(metadata or "{}")["info"]["features"])
    except (ValueError, LookupError, TypeError):  # another program's
        return {}
    labels = {}
    for name, feature in features.items():
        feature = feature.get("feature", feature) if isinstance(feature, dict) else None
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, list) and names and all(isinstance(one, str) for one in names):
            labels[name] = names
    return labels


def _label_name(row: Row, value: Any, names: Sequence[str]) -> Any:
    """Returns the name of a label's number, None for -1, which stands for unknown, and other
    values as they are.
    """
    if isinstance(value, list):
        return [_label_name(row, one, names) for one in value]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value == -1:
        return None
    if not 0 <= value < len(names):
        raise row.error(
            f"has the label {value}, but the file names the labels 0 to {len(names) - 1}; write it "
            "anew"
        )
    return names[value]


_READERS = {
    TSV: lambda path: read_tsv(path, decompresses=True),
    CSV: lambda path: read_csv(path, decompresses=True, keeps_returns=True),
    JSON_LINES: _read_json_lines,
    PARQUET: _read_parquet,
}
