"""The SQL files of this program, with the schema of sereno filled in."""

from functools import lru_cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from reconciliation.job_types import app

Connection = psycopg.AsyncConnection[Any]


def statement(name: str) -> Composed:
    """Return the statement of a file; `{sereno}` is the schema of sereno."""
    return SQL(_text(name)).format(sereno=Identifier(app.settings.schema))


@lru_cache
def _text(name: str) -> LiteralString:
    return files("reconciliation").joinpath(f"{name}.sql").read_text()


async def prepare(connection: Connection) -> None:
    """Create the tables and views that do not exist yet."""
    async with connection.transaction():
        await connection.execute(statement("schema"))
        await connection.execute(statement("views"))
