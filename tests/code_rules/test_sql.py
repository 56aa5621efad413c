"""Rules for all SQL queries."""

import ast
import re
from collections.abc import Iterator

import pytest

from sereno.database.privileges import LOGINS
from sereno.database.statement import queries
from sereno.settings import SCHEMA_LENGTH
from tests.code_rules.sources import SOURCES, nodes, texts
from tests.sql_files import query_files

QUERY_FILES = [name for name in query_files() if not name.endswith("fragments")]
FRAGMENT_FILES = [name for name in query_files() if name.endswith("fragments")]

# Clocks that tests cannot shift.
OTHER_CLOCKS = re.compile(
    r"(?<!sereno\.)\bnow\(\)|\b(current_timestamp|current_date|localtimestamp|\w+_timestamp\(\)|timeofday)\b",
    re.IGNORECASE,
)

# Modules and functions that can execute code from data.
UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve", "yaml"}
UNSAFE_CALLS = {"eval", "exec"}


def _named_queries() -> list[tuple[str, str]]:
    return [(f"{file}.{name}", sql) for file in QUERY_FILES for name, sql in queries(file).items()]


def _text(file: str) -> str:
    return texts()[SOURCES / f"{file}.sql"]


def test_every_fragment_is_used_more_than_once() -> None:
    fragments = [
        f"{file.partition('/')[0]}.{name}"
        for file in FRAGMENT_FILES
        for name in re.findall(r"^-- fragment: (\w+)", _text(file), flags=re.MULTILINE)
    ]
    uses = [
        name for file in query_files() for name in re.findall(r"^\s*-- use: (\S+)", _text(file), flags=re.MULTILINE)
    ]
    assert set(uses) == set(fragments)
    assert [name for name in fragments if uses.count(name) < 2] == []


def test_every_query_has_a_name_and_a_comment(subtests: pytest.Subtests) -> None:
    for file in QUERY_FILES:
        with subtests.test(file=file):
            _check(file)


def _check(file: str) -> None:
    title, *parts = re.split(r"^-- name: ", _text(file), flags=re.MULTILINE)
    assert parts
    assert all(line.startswith("--") or not line for line in title.splitlines()), "a query without a name"
    names = [part.partition("\n")[0].strip() for part in parts]
    assert len(names) == len(set(names)), "two queries of one name"
    uncommented = [name for name, part in zip(names, parts, strict=True) if not re.match(r".*\n-- \S.*\S", part)]
    assert uncommented == [], "no comment above the query"
    several = [
        name for name, part in zip(names, parts, strict=True) if len(re.findall(r";\s*$", part, re.MULTILINE)) != 1
    ]
    assert several == [], "one query per name, ended by a semicolon"


def test_percent_signs_are_only_parameters() -> None:
    assert [name for name, sql in _named_queries() if "%" in re.sub(r"%\(\w+\)s", "", sql)] == []


def test_queries_use_only_the_clock_of_sereno() -> None:
    assert [name for name, sql in _named_queries() if OTHER_CLOCKS.search(sql)] == []


def test_no_query_takes_a_session_level_lock() -> None:
    """Behind PgBouncer, clients share sessions. Locks that end with their transaction are fine."""
    session_level = re.compile(r"\bpg_(try_)?advisory_(lock|unlock)")
    assert [str(path) for path, text in texts().items() if session_level.search(text)] == []


def test_no_data_is_executed_as_code() -> None:
    assert list(_unsafe()) == []


def _unsafe() -> Iterator[str]:
    for path, node in nodes():
        match node:
            case ast.Import(names=names):
                found = {alias.name.partition(".")[0] for alias in names} & UNSAFE_MODULES
            case ast.ImportFrom(module=str(module)):
                found = {module.partition(".")[0]} & UNSAFE_MODULES
            case ast.Call(func=ast.Name(id=name)):
                found = {name} & UNSAFE_CALLS
            case _:
                continue
        yield from (f"{path.relative_to(SOURCES)}:{node.lineno} {name}" for name in found)


def test_channels_and_roles_fit_beside_the_longest_schema() -> None:
    """A longer channel or role name needs a smaller SCHEMA_LENGTH: PostgreSQL truncates names at 63 bytes."""
    channels = {found for text in texts().values() for found in re.findall(r"pg_notify\('sereno(\.\w+)'", text)}
    assert {".ready", ".schedule", ".cancel", ".clock"} <= channels
    suffixes = {*channels, "_archive", "_owner", *(f"_{login}" for login in LOGINS)}
    assert {name for name in suffixes if SCHEMA_LENGTH + len(name) > 63} == set()
