"""How the store talks to PostgreSQL.

A store operation is a generator: it yields statements and is sent the rows of each. It opens, commits and closes
nothing, so the same operation runs on a sync connection, on an async one, or on a connection of the caller's in the
middle of the caller's transaction. `run` and `arun` are the two drivers; nothing else is written twice.

SQL lives in `.sql` files beside the modules that use it, under `-- name:` lines. A line `-- use: PACKAGE.NAME` stands
for a fragment of that package's `fragments.sql`. The schema is written literally as `sereno.`; for another schema
that one token is replaced, and `sereno_archive.` with it. Each query names itself in pg_stat_activity.
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
    """One query with its parameters; `%(name)s` in the text, a mapping beside it."""

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
    """What stands under each heading. Comments stay in the file: psycopg would read a percent sign inside one."""
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
    """The text for a schema. The only place where a query's text is made; its parts are ours."""
    text: Any = sql if schema == DEFAULT_SCHEMA else re.sub(r"\bsereno(_archive)?\.", rf"{schema}\1.", sql)
    return cast(LiteralString, text)


def array(values: Sequence[Any]) -> str:
    """An array literal of numbers and booleans: the driver's own way to write a thousand of them is much slower."""
    return "{" + msgspec.json.encode(values)[1:-1].decode() + "}"


def nested(arrays: Iterable[str]) -> str:
    """An array literal of array literals, each a text of its own, because they differ in length."""
    return "{" + ",".join([f'"{each}"' for each in arrays]) + "}"


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Asking for the description would build one object a column."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def run(connection: psycopg.Connection[Any], operation: Operation[T], schema: str = DEFAULT_SCHEMA) -> T:
    """Drive an operation on a sync connection. Uses a plain cursor, whatever kind the connection's owner prefers."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:

        def execute(statement: Statement) -> list[Row]:
            cursor.execute(statement.text(schema), statement.params)
            return cursor.fetchall() if _has_rows(cursor) else []

        return drive(operation, execute)


async def arun(connection: psycopg.AsyncConnection[Any], operation: Operation[T], schema: str = DEFAULT_SCHEMA) -> T:
    """Drive an operation on an async connection."""
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:

        async def execute(statement: Statement) -> list[Row]:
            await cursor.execute(statement.text(schema), statement.params)
            return await cursor.fetchall() if _has_rows(cursor) else []

        return await adrive(operation, execute)
