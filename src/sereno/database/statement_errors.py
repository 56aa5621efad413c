"""Errors of sereno's own statements that a user can remedy: a missing schema, a missing privilege.

They are errors of psycopg too, so that code that handles those handles these. On a caller's connection, the libraries
around the driver wrap its errors; the SQLSTATE is inside.
"""

from typing import NoReturn

import psycopg

from sereno.errors import PermissionDenied, SchemaError

# Of a missing table, function, column or schema.
MISSING = frozenset({"42P01", "42883", "42703", "3F000"})
NOT_GRANTED = "42501"


class MissingSchemaError(SchemaError, psycopg.ProgrammingError):
    """The database has no schema of sereno, or an older one."""


class MissingPrivilegeError(PermissionDenied, psycopg.errors.InsufficientPrivilege):
    """The role of the connection may not do this."""


def explain(error: Exception, schema: str) -> NoReturn:
    """Raise the error of one of sereno's statements, as one that says what to do if there is something."""
    state = sqlstate_of(error)
    if state in MISSING:
        missing = MissingSchemaError(missing_text(first_line(error), schema))
        missing.sqlstate = state
        raise missing from error
    if state == NOT_GRANTED:
        raise MissingPrivilegeError(not_granted_text(first_line(error))) from error
    raise error


def missing_text(reason: str, schema: str = "sereno") -> str:
    return f"the schema {schema!r} is missing or out of date in this database ({reason}): run `sereno migrate`"


def not_granted_text(reason: str) -> str:
    return f"permission denied ({reason}): connect with a role that has it; see `sereno migrate --roles print`"


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of psycopg, asyncpg, SQLAlchemy (`orig`) or Django (`__cause__`)."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        # psycopg2, which SQLAlchemy and Django may use, calls it pgcode.
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def first_line(error: BaseException) -> str:
    return (str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__])[0]
