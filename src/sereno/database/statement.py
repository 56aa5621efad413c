"""Statements, operations and the named queries of SQL files.

An operation is a generator: it yields statements and is sent the rows of each. It opens, commits and closes nothing, so
the same operation runs on a sync connection, on an async one, or on the caller's connection in the middle of the
caller's transaction. `run` and `arun` are the two drivers; nothing else is written twice.

SQL is in `.sql` files next to the modules that use it, under `-- name:` lines. A line `-- use: PACKAGE.NAME` is
replaced by a fragment of that package's `fragments.sql`. The schema is written literally as `sereno.`; for another
schema that token is replaced, and `sereno_archive.` with it. Each query shows its name in pg_stat_activity.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, LiteralString, TypeAlias, TypeVar, cast

import msgspec
import psycopg
from psycopg.rows import tuple_row

from sereno.database.driver import adrive, drive

DEFAULT_SCHEMA = "sereno"

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

_USE = re.compile(r"-- use: (\w+)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One query with its parameters: `%(name)s` in the text, values in the mapping."""

    sql: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def text(self, schema: str) -> LiteralString:
        return in_schema(self.sql, schema)


Operation: TypeAlias = Generator[Statement, list[Row], T]
Plan: TypeAlias = Generator[Operation[Any], Any, T]


@cache
def queries(file: str) -> Mapping[str, str]:
    """Return the named queries of one SQL file, for example `jobs/transitions`, with their fragments filled in."""
    label = f"sereno.{file.replace('/', '.')}"
    return {name: f"/* {label}.{name} */ {_with_fragments(body)}" for name, body in _sections(file, "name").items()}


@cache
def _fragments(package: str) -> Mapping[str, str]:
    return {name: _with_fragments(body) for name, body in _sections(f"{package}/fragments", "fragment").items()}


def _with_fragments(sql: str) -> str:
    return _USE.sub(lambda match: _fragments(match[1])[match[2]], sql)


def _sections(file: str, kind: str) -> dict[str, str]:
    """Return the SQL under each heading without comments, in which psycopg would parse percent signs."""
    text = (resources.files("sereno") / f"{file}.sql").read_text()
    found: dict[str, str] = {}
    for section in re.split(rf"^-- {kind}: ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        lines = (line for line in body.splitlines() if line.strip() and (_is_sql(line) or _USE.search(line)))
        found[name.strip()] = "\n".join(lines).rstrip().rstrip(";")
    return found


def _is_sql(line: str) -> bool:
    return not line.lstrip().startswith("--")


@cache
def in_schema(sql: str, schema: str) -> LiteralString:
    """Return the SQL for a schema. The only place where the text of a query is built, from our own parts."""
    text: Any = sql if schema == DEFAULT_SCHEMA else re.sub(r"\bsereno(_archive)?\.", rf"{schema}\1.", sql)
    return cast(LiteralString, text)


def array(values: Sequence[Any]) -> str:
    """Return an array literal of numbers and booleans; much faster than the driver for a thousand of them."""
    return "{" + msgspec.json.encode(values)[1:-1].decode() + "}"


def nested(arrays: Iterable[str]) -> str:
    """Return an array literal of array literals, as texts because they differ in length."""
    return "{" + ",".join([f'"{each}"' for each in arrays]) + "}"


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Return whether there is a result set; `cursor.description` would build one object per column."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def run(connection: psycopg.Connection[Any], operation: Operation[T], schema: str = DEFAULT_SCHEMA) -> T:
    """Run an operation on a sync connection, with a plain cursor whatever the connection's cursor factory is."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:

        def execute(statement: Statement) -> list[Row]:
            cursor.execute(statement.text(schema), statement.params)
            return cursor.fetchall() if _has_rows(cursor) else []

        return drive(operation, execute)


async def arun(connection: psycopg.AsyncConnection[Any], operation: Operation[T], schema: str = DEFAULT_SCHEMA) -> T:
    """Run an operation on an async connection."""
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:

        async def execute(statement: Statement) -> list[Row]:
            await cursor.execute(statement.text(schema), statement.params)
            return await cursor.fetchall() if _has_rows(cursor) else []

        return await adrive(operation, execute)
