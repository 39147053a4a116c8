"""Reads tables of users: TSV, CSV (RFC 4180), JSON lines and Parquet, the first three also in gzip.

In: a name, or several with commas and globs. Out: rows, of which the first has the names of the
columns. A field of TSV and CSV is a text; one of JSON lines and Parquet is any JSON value. This is
the only module that imports pyarrow, when it reads a Parquet file.
"""

import datetime
import decimal
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from official_bert.data import tables
from official_bert.data.column_roles import Role, decide_columns
from official_bert.data.tables import ConllFile, Row, Sentence, numbered_lines, read_csv, read_tsv
from official_bert.data.tag_schemes import IOB2, convert_chunks, convert_schemes, logged_scheme
from official_bert.io import files, reading
from official_bert.io.errors import InputError, brief
from official_bert.options.fine_tuning import DATA_FORMATS

TSV, CSV, JSON_LINES, PARQUET = DATA_FORMATS
_ENDINGS = {
    TSV: (".tsv",),
    CSV: (".csv",),
    JSON_LINES: (".jsonl", ".json"),
    PARQUET: (".parquet",),
}
_ALL_ENDINGS = tuple(itertools.chain.from_iterable(_ENDINGS.values()))
# Tasks with another format than tables read these, too.
OTHER_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
_TOKENS = Role("tokens", ("tokens",), is_required=True)
_TAGS = Role("tags", ("ner_tags", "tags"))
_is_word = re.compile(r"[^ \t\r\n]+").fullmatch


def choose_format(path: str, data_format: str | None = None) -> str:
    """Returns the format of a file.

    Args:
        path: the file; its ending may be followed by .gz.
        data_format: the format; by default that of the ending.

    Raises:
        InputError: the ending is that of no format.
    """
    plain_path = path.lower().removesuffix(".gz")
    for name, endings in _ENDINGS.items():
        has_ending = data_format is None and plain_path.endswith(endings)
        if has_ending or data_format == name:
            return name
    raise InputError(
        f"{path}: its name ends in none of {', '.join(_ALL_ENDINGS)}; give "
        f"--data_format={'|'.join(DATA_FORMATS)}"
    )


def expand_paths(flag_value: str, flag: str) -> list[str]:
    """Returns the files that the value of a flag names.

    A value that is the name of a file names this file, also if it has commas or brackets.

    Args:
        flag_value: the value of the flag: paths and globs with commas between them.
        flag: its name, for errors.

    Raises:
        InputError: a name is empty, or no file matches it.
    """
    if files.exists(flag_value) or not re.search(r"[,*?[]", flag_value):
        return [flag_value]
    return files.expand(flag_value.split(","), flag)


def find_table(
    folder: str,
    stem: str,
    data_format: str | None = None,
) -> str:
    """Returns the file of a set in a folder.

    Args:
        folder: the folder.
        stem: the name without its ending, such as train; names match in any case.
        data_format: the format of the file; by default any.

    Returns:
        The file, or the name of the TSV file if there is none.

    Raises:
        InputError: there are several such files.
    """
    endings = _ALL_ENDINGS if data_format is None else _ENDINGS[data_format]
    names = [f"{stem}{ending}" for ending in endings]
    names += [f"{name}.gz" for name in names if not name.endswith(_ENDINGS[PARQUET])]
    paths = files.find_ignoring_case(folder, names)
    if len(paths) > 1:
        matches = " and ".join(map(os.path.basename, paths))
        raise InputError(f"{folder}: has {matches}; name the one to read with --{stem}_file")
    return paths[0] if paths else os.path.join(folder, names[0])


def read_rows(
    path: str,
    data_format: str | None = None,
    is_quoted: bool = False,
) -> Iterator[Row]:
    """Yields the names of the columns and the rows; of a TSV or CSV file without names, the rows.

    Args:
        path: the file.
        data_format: the format; by default that of the ending.
        is_quoted: whether fields of TSV may be quoted as in CSV.

    Raises:
        InputError: the ending is that of no format, or the file cannot be read in its format.
    """
    name = choose_format(path, data_format)
    if is_quoted and name == TSV:
        return read_csv(path, "\t", decompresses=True, keeps_returns=True)
    return _READERS[name](path)


def is_table(path: str) -> bool:
    """Returns whether the name of a file is that of a table of JSON lines or Parquet.

    It is for tasks that have another format than TSV and CSV.

    Args:
        path: the file.
    """
    return path.lower().endswith(OTHER_ENDINGS)


def has_table_ending(path: str) -> bool:
    """Returns whether the name of a file is that of a table of any format.

    Args:
        path: the file.
    """
    return path.lower().removesuffix(".gz").endswith(_ALL_ENDINGS)


def read_records(
    flag_value: str,
    flag: str,
    data_format: str | None = None,
    has_header: bool = True,
    is_quoted: bool = False,
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields the rows of tables, and their fields by the name of the column.

    Args:
        flag_value: the value of the flag: paths with commas between them, or a glob.
        flag: its name, for messages.
        data_format: the format of all files; by default that of each ending.
        has_header: whether the first row of TSV and CSV has the names of the columns; otherwise
            their names are 0, 1 and so on.
        is_quoted: whether fields of TSV may be quoted as in CSV.

    Raises:
        InputError: a row has other columns than the first one, or a column is named twice.
    """
    for path in expand_paths(flag_value, flag):
        names: Sequence[str] = ()
        for row in read_rows(path, data_format, is_quoted):
            # The names in a file that is not made of lines come without a line.
            is_header = not names and (has_header or not row.line)
            width = len(row.fields)
            if not names:
                names = row.fields if is_header else [str(number) for number in range(width)]
            if len(set(names)) < len(names):
                raise row.error("names a column twice; name each once")
            if width != len(names):
                raise row.error(
                    f"has {width} columns, the first one {len(names)}; complete or correct it"
                )
            if not is_header:
                refuse_second_header(row, names)
                yield row, dict(zip(names, row.fields, strict=True))


def refuse_second_header(row: Row, names: Sequence[str]) -> None:
    """Refuses a row that repeats the names of the columns, as in joined files.

    Args:
        row: the row.
        names: the names of the columns.

    Raises:
        InputError: the row repeats the names, and there are several.
    """
    is_repeated = list(row.fields) == list(names)
    if is_repeated and len(names) > 1:
        raise row.error(
            "has the names of the columns again, as where another file begins; delete it"
        )


def parse_text(row: Row, value: Any, name: str) -> str:
    """Returns a field that has to be a text.

    Args:
        row: the row with the field, for errors.
        value: the value of the field.
        name: the name of the field, for errors.

    Raises:
        InputError: the field is not a text, or has half of a surrogate pair. The message has the
            name of the field.
    """
    if not isinstance(value, str):
        state = "missing" if value is None else "not a text"
        raise row.error(f"{name} is {state}; give it a text")
    if half := reading.half_pair_in(value):
        raise row.error(f"{name} has {half}; leave it out")
    return value


def parse_label(row: Row, value: Any) -> str:
    """Returns a label or a score as text without surrounding blanks; "" if there is none.

    Args:
        row: the row with the label, for errors.
        value: the value of its field.

    Raises:
        InputError: the value is neither a text nor a number, a truth value, a date or a time, or it
            is a text with half of a surrogate pair.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value != value:  # NaN, too, means that there is none.
        return ""
    if isinstance(value, list):
        raise row.error("the label is a list; give the row one label")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (decimal.Decimal, datetime.date, datetime.time)):
        # Parquet has these types.
        return str(value)
    return parse_text(row, value, "the label").strip()


def read_tagged(flag_value: str, flag: str, labelled: bool = True) -> ConllFile:
    """Reads tagged sentences from the columns `tokens` and `ner_tags` or `tags`, as `read_conll`.

    Args:
        flag_value: the value of the flag: paths with commas between them, or a glob.
        flag: its name, for messages.
        labelled: whether the tags are needed and read.

    Raises:
        InputError: a token or a tag has another form, or there is no sentence.
    """
    sentences = []
    rows = []
    document = 0
    has_documents = False
    path = ""
    tokens_name: str | None = None
    tags_name: str | None = None
    roles = (_TOKENS, _TAGS._replace(is_required=labelled))
    for row, record in read_records(flag_value, flag):
        if path != row.path:
            path = row.path
            columns = decide_columns(path, list(record), roles)
            tokens_name = columns.column_name("tokens")
            tags_name = columns.column_name("tags")
        assert tokens_name is not None, "the role is a required one"
        words = _texts(row, record, tokens_name)
        _refuse_wrong(row, "token", words, _is_word, "give words without blanks")
        tags: list[str] | None = None
        if tags_name is not None and (labelled or record.get(tags_name)):
            tags = _texts(row, record, tags_name)
            _check_number(row, len(words), tags, tags_name)
        if words[:1] == [tables.DOCUMENT_START]:
            document += 1
            has_documents = True
        elif words:
            word_columns = [[word] for word in words]
            rows.append((row, tags, tags_name or ""))
            sentence = Sentence(row.line, document, word_columns, None, row.where)
            sentences.append(sentence)
    scheme = IOB2
    written_tags = [tags for _, tags, _ in rows if tags is not None]
    if written_tags:
        all_tags = convert_schemes(flag_value, written_tags)
        remaining = iter(all_tags)
        for number, (row, tags, name) in enumerate(rows):
            if tags is not None:
                sentence = sentences[number]
                sentences[number] = _add_tags(sentence, row, name, next(remaining), labelled)
        scheme = logged_scheme(flag_value, all_tags)
    tables.not_empty(sentences, flag_value)
    return ConllFile(flag_value, sentences, scheme, has_documents)


def _add_tags(
    sentence: Sentence, row: Row, tags_name: str, tags: Sequence[str], labelled: bool
) -> Sentence:
    """Returns a sentence with its tags, which are checked."""
    _check_tags(row, tags)
    columns = [[*word, tag] for word, tag in zip(sentence.columns, tags, strict=True)]
    return sentence._replace(columns=columns, tags=convert_chunks(tags, IOB2) if labelled else None)


def _check_tags(row: Row, tags: Sequence[str]):
    """Raises InputError for tags of another form."""
    _refuse_wrong(row, "tag", tags, tables.is_tag, tables.TAG_FORMS)
    remedy = "give types without blanks, which separate the columns of CoNLL"
    _refuse_wrong(row, "tag", tags, _is_word, remedy)


def _check_number(row: Row, num_words: int, tags: Sequence[str], tags_name: str):
    """Raises InputError for another number of tags than words."""
    if len(tags) != num_words:
        raise row.error(
            f"has {num_words} tokens and {len(tags)} {tags_name}; give each token one tag"
        )


def _refuse_wrong(
    row: Row,
    noun: str,
    values: Sequence[str],
    is_right: Callable[[str], object],
    remedy: str,
):
    """Raises InputError for the first value that is not right."""
    for value in values:
        if not is_right(value):
            raise row.error(f"has the {noun} {value!r}; {remedy}")


def _texts(row: Row, record: dict[str, Any], name: str) -> list[str]:
    values = reading.field(record, name, list, row.where)
    return [parse_text(row, value, f"an element of {name}") for value in values]


def _read_json_lines(path: str) -> Iterator[Row]:
    """Yields the names of all fields, in the order of their first line, and the objects."""
    objects = []
    num_blank = 0
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
                text,
                has_lines=False,
                object_pairs_hook=reading.distinct_fields,
            )
        except InputError as error:
            raise InputError(
                f"{path}: line {line}: {error}; give one JSON object a line"
            ) from error
        fields = reading.check_object(value, f"{path}: line {line}")
        objects.append((line, fields))
    tables.log_blank(path, num_blank)
    distinct_names: dict[str, None] = {}
    for _, fields in objects:
        distinct_names.update(dict.fromkeys(fields))
    names = list(distinct_names)
    if objects:
        yield Row(path, 0, names)
    for line, fields in objects:
        values = [fields.get(name) for name in names]
        yield Row(path, line, values)


def _read_parquet(path: str) -> Iterator[Row]:
    """Yields the names of the columns, and the rows.

    Numbers of labels become the names that Hugging Face records in the file.
    """
    pyarrow, parquet = load_parquet(path)
    with files.open_file(path, "rb") as file:
        data = file.read()
    try:
        table = parquet.ParquetFile(pyarrow.BufferReader(data)).read()
        columns = [column.to_pylist() for column in table.columns]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as Parquet ({brief(error)}); write it again"
        ) from error
    metadata = table.schema.metadata or {}
    labels = _recorded_labels(metadata.get(b"huggingface"))
    yield Row(path, 0, table.column_names, "row")
    rows = zip(*columns, strict=True)
    for number, values in enumerate(rows, start=1):
        fields = list(values)
        row = Row(path, number, fields, "row")
        for column, name in enumerate(table.column_names):
            if name in labels:
                fields[column] = _label_name(row, fields[column], labels[name])
        yield row


def load_parquet(path: str) -> tuple[ModuleType, ModuleType]:
    """Imports pyarrow and pyarrow.parquet.

    Args:
        path: the file that needs them, for the error.

    Raises:
        InputError: they cannot be imported.
    """
    try:
        # The package is optional, so a type checker may not see it.
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow, which cannot be imported ({error}); pip install "
            "'official-bert[data]'"
        ) from None
    return pyarrow, parquet


def _recorded_labels(
    metadata: bytes | None,
) -> dict[str, list[str]]:
    """Returns the names of the labels by column.

    `metadata` is the JSON that Hugging Face's library writes into a Parquet file.
    """
    try:
        description = json.loads(metadata or "{}")
        features = dict(description["info"]["features"])
    except (ValueError, LookupError, TypeError):  # Another program has written it.
        return {}
    labels = {}
    for name, feature in features.items():
        # The feature of a list has that of its elements.
        if isinstance(feature, dict):
            feature = feature.get("feature", feature)
        names = feature.get("names") if isinstance(feature, dict) else None
        if not isinstance(names, list) or not names:
            continue
        if all(isinstance(label, str) for label in names):
            labels[name] = names
    return labels


def _label_name(row: Row, value: Any, names: Sequence[str]) -> Any:
    """Returns the name of a label's number, or None for -1, which means unknown.

    Other values are returned as they are.
    """
    if isinstance(value, list):
        return [_label_name(row, element, names) for element in value]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value == -1:
        return None
    if not 0 <= value < len(names):
        raise row.error(
            f"has the label {value}, but the file names the labels 0 to {len(names) - 1}; write it "
            "again"
        )
    return names[value]


_READERS = {
    TSV: lambda path: read_tsv(path, decompresses=True),
    CSV: lambda path: read_csv(path, decompresses=True, keeps_returns=True),
    JSON_LINES: _read_json_lines,
    PARQUET: _read_parquet,
}
