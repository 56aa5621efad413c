"""Runs operations on the caller's connection, inside the caller's transaction.

asyncpg, SQLAlchemy and Django are recognised by the modules of their classes, so that none of them is imported or a
dependency. Nothing is committed, rolled back or closed here; the caller does that.
"""

import re
from typing import Any, TypeVar

import psycopg

from sereno.database.driver import adrive, drive
from sereno.database.statement import Operation, Row, Statement, arun, queries, run
from sereno.database.statement_errors import explain
from sereno.errors import ConfigurationError

T = TypeVar("T")

_sql = queries("jobs/transitions")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_KNOWN = "psycopg, SQLAlchemy (Connection, Session) or Django's connection"
_KNOWN_ASYNC = "psycopg's AsyncConnection, asyncpg or SQLAlchemy (AsyncConnection, AsyncSession)"


def run_on_caller(connection: Any, operation: Operation[T], schema: str, *, notify: bool = True) -> T:
    """Run an operation on the caller's sync connection. `notify`: the setting of that name."""
    operation = operation if notify else _silently(operation)
    try:
        return _run(connection, operation, schema)
    except Exception as error:  # noqa: BLE001 - errors of four libraries
        explain(error, schema)


def _run(connection: Any, operation: Operation[T], schema: str) -> T:
    if isinstance(connection, psycopg.Connection):
        return run(connection, operation, schema)
    match _kind(connection):
        case "sqlalchemy":
            execute = _on_sqlalchemy
        case "django":
            execute = _on_django
        case _:
            raise _refusal(connection, "enqueue", _KNOWN, "aenqueue", _KNOWN_ASYNC)
    return drive(operation, lambda statement: execute(connection, statement, schema))


async def arun_on_caller(connection: Any, operation: Operation[T], schema: str, *, notify: bool = True) -> T:
    """Run an operation on the caller's async connection. `notify`: the setting of that name."""
    operation = operation if notify else _silently(operation)
    try:
        return await _arun(connection, operation, schema)
    except Exception as error:  # noqa: BLE001 - errors of three libraries
        explain(error, schema)


async def _arun(connection: Any, operation: Operation[T], schema: str) -> T:
    if isinstance(connection, psycopg.AsyncConnection):
        return await arun(connection, operation, schema)
    match _kind(connection):
        case "sqlalchemy.ext.asyncio":
            execute = _on_sqlalchemy_async
        case "asyncpg":
            execute = _on_asyncpg
        case _:
            raise _refusal(connection, "aenqueue", _KNOWN_ASYNC, "enqueue", _KNOWN)
    return await adrive(operation, lambda statement: execute(connection, statement, schema))


def _silently(operation: Operation[T]) -> Operation[T]:
    """Disable NOTIFY for the rest of the transaction: a transaction with a NOTIFY cannot use two-phase commit."""
    yield Statement(_sql["silence"])
    return (yield from operation)


def _kind(connection: Any) -> str:
    """Return the library of a PostgreSQL connection, else an empty text: engines and pools have no transaction."""
    modules = [kind.__module__ for kind in type(connection).__mro__]
    roots = {module.partition(".")[0] for module in modules}
    if "sqlalchemy" in roots and hasattr(connection, "execute") and _dialect(connection) == "postgresql":
        is_async = any(module.startswith("sqlalchemy.ext.asyncio") for module in modules)
        return "sqlalchemy.ext.asyncio" if is_async else "sqlalchemy"
    if "asyncpg" in roots and hasattr(connection, "is_in_transaction"):
        return "asyncpg"
    if "django" in roots and getattr(connection, "vendor", None) == "postgresql":
        return "django"
    return ""


def _dialect(connection: Any) -> str:
    owner = connection if hasattr(connection, "dialect") else connection.get_bind()
    return str(owner.dialect.name)


def _refusal(connection: Any, verb: str, known: str, other_verb: str, other: str) -> ConfigurationError:
    kind = type(connection)
    return ConfigurationError(
        f"{verb}() cannot use a {kind.__module__}.{kind.__qualname__}: it takes {known}; {other_verb}() takes {other}"
    )


def _sqlalchemy_text(statement: Statement, schema: str) -> Any:
    from sqlalchemy import text  # noqa: PLC0415 - installed by the caller, not our dependency

    # In parentheses, because SQLAlchemy does not recognise a parameter in ":jobs::text".
    return text(_PLACEHOLDER.sub(r"(:\1)", statement.text(schema)))


def _on_sqlalchemy(connection: Any, statement: Statement, schema: str) -> list[Row]:
    result = connection.execute(_sqlalchemy_text(statement, schema), dict(statement.params))
    return [tuple(row) for row in result] if result.returns_rows else []


async def _on_sqlalchemy_async(connection: Any, statement: Statement, schema: str) -> list[Row]:
    result = await connection.execute(_sqlalchemy_text(statement, schema), dict(statement.params))
    return [tuple(row) for row in result] if result.returns_rows else []


def _on_django(connection: Any, statement: Statement, schema: str) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement.text(schema), dict(statement.params))
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


async def _on_asyncpg(connection: Any, statement: Statement, schema: str) -> list[Row]:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    sql = _PLACEHOLDER.sub(number, statement.text(schema))
    return [tuple(row) for row in await connection.fetch(sql, *(statement.params[name] for name in names))]
