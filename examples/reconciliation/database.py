"""The SQL files of this program, and its connections."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

import psycopg

from reconciliation.job_types import app

Connection = psycopg.AsyncConnection[Any]


def statement(name: str) -> bytes:
    """Return the statement of a file. Files name sereno's schema by its default; `SERENO_SCHEMA` may differ."""
    return in_schema(_text(name))


@lru_cache
def _text(name: str) -> str:
    return files("reconciliation").joinpath(f"{name}.sql").read_text()


def in_schema(text: str) -> bytes:
    """Return SQL with the name of sereno's schema."""
    return re.sub(r"\bsereno\.", f"{app.settings.schema}.", text).encode()


async def prepare(connection: Connection) -> None:
    """Create the tables and views that do not exist yet."""
    async with connection.transaction():
        await connection.execute(statement("schema"))
        await connection.execute(statement("views"))
