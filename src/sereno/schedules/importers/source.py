"""Reads tables of other schedulers as JSON, in read-only transactions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from sereno.errors import ConfigurationError

_MISSING = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedTable,
)


def rows(
    connection: psycopg.Connection[Any], query: LiteralString, table: str, params: Mapping[str, Any] | None = None
) -> list[Any]:
    """Return the only column of each row. ConfigurationError if the table is not in this database."""
    try:
        with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute("set transaction read only")
            return [row[0] for row in cursor.execute(query, params)]
    except _MISSING as error:
        raise ConfigurationError(
            f"{table} is not in the database {connection.info.dbname} as expected: {error.diag.message_primary}; "
            "is this the database of the scheduler that you want to import from?"
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(f"{connection.info.user} may not read {table}: {error.diag.message_primary}") from None


def clock(connection: psycopg.Connection[Any]) -> datetime:
    """Return now, by the clock of that database."""
    found: datetime = rows(connection, "select now()", "now")[0]
    return found
