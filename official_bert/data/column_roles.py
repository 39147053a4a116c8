"""Decides which column of a table has which role: one function for all tasks and all formats.

In: the names of the columns, the roles of a task with the usual names of their columns, and the
    columns that flags assign, such as --label_column=kind.
Out: the columns of each role, by number. Names match without regard to case and to blanks around
    them.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.io.errors import InputError

# Columns that only name the rows.
_ROW_NAMES = {"", "id", "idx", "index", "guid", "uid", "unnamed: 0"}
_is_row_id = re.compile(r"(.*[ _-])?(id|idx|index|guid|uid|key)").fullmatch
_MOST_LOGGED = 12  # ignored columns in the log
_match_delimiter = re.compile("[\t;,|]").search
_match_numbered = re.compile(r"(.+)_[0-9]+").fullmatch

# Role -> column, or a list of columns, from flags.
Assigned = Mapping[str, str | Sequence[str]]


class Role(NamedTuple):
    """A role of columns.

    Attributes:
        name: the name of the role, for messages.
        usual_names: the names, in lower case, of a column that has the role where no flag assigns
            one.
        is_required: whether a table without such a column is refused.
        is_list: whether several columns may have the role; then `<usual name>_<number>` is a usual
            name, too.
        position: the number of the column in a file that does not name its columns; None for no
            column.
        can_be_guessed: whether the only column that is left has the role.
        is_read: whether the task reads the columns; others are only known, so that no other role
            gets them.
        flag: the flag that assigns columns, such as label_column; None for tasks without one.
    """

    name: str
    usual_names: tuple[str, ...] = ()
    is_required: bool = False
    is_list: bool = False
    position: int | None = None
    can_be_guessed: bool = False
    is_read: bool = True
    flag: str | None = None

    def format_flag(self, column: object = "...") -> str:
        """Returns the flag that assigns a column to the role, as a user types it.

        Args:
            column: the name or the number of the column; "" for no column, and by default dots.
        """
        return f"--{self.flag}={column}"


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        path: the table, for messages.
        names: the names of all columns.
        role_columns: the numbers of the columns of each role.
        guessed: the names of the roles whose column was guessed.
    """

    path: str
    names: Sequence[str]
    role_columns: Mapping[str, Sequence[int]]
    guessed: frozenset[str] = frozenset()

    def number(self, role: str) -> int | None:
        """Returns the number of a role's only column; None if it has none.

        Args:
            role: the name of the role.
        """
        numbers = self.role_columns[role]
        return numbers[0] if numbers else None

    def column_name(self, role: str) -> str | None:
        """Returns the name of a role's only column; None if it has none.

        Args:
            role: the name of the role.
        """
        number = self.number(role)
        if number is None:
            return None
        return self.name(number)

    def find_row_names(self) -> int | None:
        """Returns the number of the first column without a role that names the rows, such as
        `ticket id`; None if there is none.
        """
        used_numbers = set(itertools.chain.from_iterable(self.role_columns.values()))
        for number, name in enumerate(self.names):
            if number not in used_numbers and _is_row_id(fold_name(name)):
                return number
        return None

    def refuse_guesses(self, training_columns: Mapping[str, str], remedy: str) -> None:
        """Refuses guessed columns in place of those that a model was trained on.

        The only column besides that of the names of rows needs no name.

        Args:
            training_columns: the columns of the training by role.
            remedy: the end of the message.

        Raises:
            InputError: a column was guessed, and that of the training is missing.
        """
        num_candidates = len(self.names) - (self.find_row_names() is not None)
        for role in sorted(self.guessed):
            if role in training_columns and num_candidates > 1:
                raise InputError(
                    f"{self.path}: has no column {training_columns[role]}, on which the model was "
                    f"trained, only {', '.join(self.names)}; {remedy}"
                )

    def name(self, number: int) -> str:
        """Returns the name of a column, or its number where the file does not name it.

        Args:
            number: the number of the column, from 0.
        """
        return _name_column(self.names, number)


def _name_column(names: Sequence[str], number: int) -> str:
    is_named = 0 <= number < len(names)
    return names[number] if is_named else str(number)


def decide_columns(
    path: str,
    names: Sequence[str],
    roles: Sequence[Role],
    assigned: Assigned | None = None,
    width: int | None = None,
) -> Columns:
    """Decides the columns of each role, and logs them in one line.

    Args:
        path: the table, for messages.
        names: the names of its columns; empty for a file that does not name them.
        roles: the roles of the task, the most important first.
        assigned: role -> column, from flags: a name or a number, negative from the end; "" for no
            column. For a role with several columns it is a list of them.
        width: the number of columns; by default that of the names.

    Raises:
        InputError: a column is missing, has two roles, or could be one of several.
    """
    width = len(names) if width is None else width
    role_columns, assignments = _apply_flags(
        path,
        names,
        roles,
        assigned or {},
        width,
    )
    for role in roles:
        if role.name in role_columns:
            continue
        if names:
            numbers = _list_usual(path, names, role, assignments)
        else:
            numbers = _list_positions(role, width)
        role_columns[role.name] = numbers
    _check_apart(path, names, roles, role_columns)
    guessed = _guess(path, names, roles, role_columns, assignments)
    columns = Columns(path, names, role_columns, frozenset(guessed))
    _log(columns, roles)
    return columns


def _apply_flags(
    path: str,
    names: Sequence[str],
    roles: Sequence[Role],
    assigned: Assigned,
    width: int,
) -> tuple[dict[str, list[int]], dict[int, str]]:
    """Returns the columns of the roles that flags assign, and the flag of each assigned column."""
    role_columns: dict[str, list[int]] = {}
    assignments: dict[int, str] = {}
    for role in roles:
        if role.name not in assigned:
            continue
        value = assigned[role.name]
        if not value and role.is_required:
            raise InputError(f"{role.format_flag('')}: is empty; name the column")
        numbers = []
        for column in _list_columns(value):
            flag = role.format_flag(column)
            number = _find(path, names, column, flag, width)
            if number in assignments:
                raise InputError(
                    f"{flag}: is the column of {assignments[number]}, too; give each a column of "
                    "its own"
                )
            numbers.append(number)
            assignments[number] = flag
        role_columns[role.name] = numbers
    return role_columns, assignments


def _list_columns(value: str | Sequence[str]) -> Sequence[str]:
    """Returns the columns that a flag assigns: none for "", one for a text, or a list of them."""
    if isinstance(value, str):
        return [value] if value else []
    return value


def fold_name(name: str) -> str:
    """Returns the form in which names are compared: without case and surrounding blanks.

    Args:
        name: the name of a column.
    """
    return name.strip().casefold()


def _find(
    path: str,
    names: Sequence[str],
    column: str,
    where: str,
    width: int,
) -> int:
    """Returns the number of a column that a flag names.

    The number is out of range if the first row has no such column.
    """
    exact_matches = [name == column for name in names]
    folded_matches = [fold_name(name) == fold_name(column) for name in names]
    for matches in (exact_matches, folded_matches):
        if sum(matches) > 1:
            raise InputError(
                f"{where}: {path} has several columns of this name; give its number from 0"
            )
        if any(matches):
            return matches.index(True)
    try:
        number = int(column)
    except ValueError:
        remedy = "names no columns; give its number from 0"
        if names:
            remedy = f"has no such column, only {', '.join(names)}"
        raise InputError(f"{where}: {path} {remedy}") from None
    return _from_start(number, width)


def _from_start(number: int, width: int) -> int:
    """Returns the number of a column from the start; a negative one counts from the end.

    The end is that of the first row, because a row that lacks a column has another last column.
    """
    is_from_end = -width <= number < 0
    return number + width if is_from_end else number


def _list_usual(
    path: str,
    names: Sequence[str],
    role: Role,
    assignments: Mapping[int, str],
) -> list[int]:
    """Returns the columns of usual names, without those that a flag assigns to another role."""
    folded = [fold_name(name) for name in names]
    matches = [number for number, name in enumerate(folded) if _is_usual(name, role)]
    free = [number for number in matches if number not in assignments]
    if len(free) > 1 and not role.is_list:
        several = " and ".join(names[number] for number in free)
        remedy = "rename all but one"
        if role.flag:
            remedy = f"name the right one, {role.format_flag()}, or its number from 0"
        raise InputError(f"{path}: each of the columns {several} could be {role.name}; {remedy}")
    if matches and not free and role.is_required:
        other_flag = assignments[matches[0]]
        raise InputError(
            f"{other_flag}: is the column that {role.name} is read from; name that of "
            f"{role.name}, too, {role.format_flag()}"
        )
    return free


def _is_usual(name: str, role: Role) -> bool:
    """Returns whether a folded name is a usual one of a role."""
    if name in role.usual_names:
        return True
    if not role.is_list:
        return False
    match = _match_numbered(name)
    return match is not None and match[1] in role.usual_names


def _list_positions(role: Role, width: int) -> list[int]:
    """Returns the column of a role in a file that does not name its columns."""
    if role.position is None:
        return []
    return [_from_start(role.position, width)]


def _check_apart(
    path: str,
    names: Sequence[str],
    roles: Sequence[Role],
    role_columns: Mapping[str, list[int]],
):
    """Raises InputError if two roles have one column.

    A file without names may have only one column, for example.
    """
    column_roles: dict[int, Role] = {}
    for role in roles:
        for number in role_columns[role.name]:
            other = column_roles.setdefault(number, role)
            if other is role:
                continue
            name = _name_column(names, number)
            remedy = f"name both, {other.format_flag()} {role.format_flag()}"
            raise InputError(
                f"{path}: {other.name} and {role.name} are one column, {name}; {remedy}"
            )


def _guess(
    path: str,
    names: Sequence[str],
    roles: Sequence[Role],
    role_columns: dict[str, list[int]],
    assignments: Mapping[int, str],
) -> list[str]:
    """Adds the columns of required roles that have no usual name, and returns these roles.

    The only free column has the role. In a table of two columns the first one is that of the first
    role. Columns that only name the rows are not counted.
    """
    required = [role for role in roles if role.is_required]
    missing = [role for role in required if not role_columns[role.name]]
    if not missing:
        return []
    _refuse_other_delimiter(path, names, missing[0])
    free_numbers = _list_free(names, role_columns, assignments)
    num_free = len(free_numbers)
    is_only_column = num_free == len(missing) == 1
    is_small_table = len(names) <= 2 and num_free >= len(missing)
    can_be_guessed = all(role.can_be_guessed for role in missing)
    if can_be_guessed and (is_only_column or is_small_table):
        for role, number in zip(missing, free_numbers, strict=False):
            role_columns[role.name] = [number]
        return [role.name for role in missing]
    role = missing[0]
    all_names = ", ".join(names)
    what = "no names of columns"
    if names:
        what = f"{len(names)} columns, {all_names}"
    if not role.flag:
        usual_names = " or ".join(role.usual_names)
        raise InputError(f"{path}: has {what}, and none called {usual_names}; name it so")
    if role.can_be_guessed:
        raise InputError(f"{path}: has {what}; name that of {role.name}, {role.format_flag()}")
    raise InputError(
        f"{path}: none of its columns {all_names} has a usual name; name them, as in "
        f"{role.format_flag('question')}"
    )


def _list_free(
    names: Sequence[str],
    role_columns: Mapping[str, Sequence[int]],
    assignments: Mapping[int, str],
) -> list[int]:
    """Returns the columns without a role, except those that only name the rows."""
    used_numbers = set(assignments).union(*role_columns.values())
    free_numbers = []
    for number, name in enumerate(names):
        is_row_name = fold_name(name) in _ROW_NAMES
        if number not in used_numbers and not is_row_name:
            free_numbers.append(number)
    return free_numbers


def _refuse_other_delimiter(path: str, names: Sequence[str], role: Role):
    """Raises InputError for a table of one column whose name has a delimiter.

    The delimiter may be that of another format.
    """
    if len(names) != 1:
        return
    delimiter = _match_delimiter(names[0])
    if delimiter is None:
        return
    remedy = ""
    if role.flag:
        remedy = f", or name the column, {role.format_flag(0)}"
    raise InputError(
        f"{path}: has one column, {names[0]!r}, "
        f"which may be several with {delimiter[0]!r} "
        "between them; write commas into a .csv and tabs into a .tsv, give "
        f"--data_format{remedy}"
    )


def _log(columns: Columns, roles: Sequence[Role]):
    assignments = []
    numbers_read = set()
    for role in roles:
        numbers = columns.role_columns[role.name]
        if role.is_read and numbers:
            role_names = [columns.name(number) for number in numbers]
            assignments.append(f"{role.name}={'+'.join(role_names)}")
            numbers_read.update(numbers)
    ignored = []
    for number, name in enumerate(columns.names):
        if number not in numbers_read:
            ignored.append(name)
    ending = ""
    if ignored:
        ending = f"; ignoring {', '.join(ignored[:_MOST_LOGGED])}"
    num_others = len(ignored) - _MOST_LOGGED
    if num_others > 0:
        ending += f" and {num_others} more"
    logging.info(
        "%s: Reading %s%s",
        columns.path,
        ", ".join(assignments),
        ending,
    )
