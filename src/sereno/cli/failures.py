"""What went wrong, for people: one or two plain lines, and an exit code that a script can rely on.

0 ok · 1 unexpected · 2 usage · 3 bad configuration · 4 database unreachable · 5 schema missing or out of date
6 unhealthy · 7 nothing matched · 8 refused · 130 interrupted
"""

import sys

from sereno.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    InvalidAddress,
    InvalidArguments,
    InvalidSchedule,
    JobNotFound,
    Refused,
    RejectedCallback,
    SchemaError,
    SerenoError,
)

UNEXPECTED = 1
BEHIND = 5
UNHEALTHY = 6
NOTHING_MATCHED = 7

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (InvalidArguments, 2),
    (InvalidSchedule, 2),
    (InvalidAddress, 2),
    (RejectedCallback, 2),
    (ConfigurationError, 3),
    (DatabaseUnavailable, 4),
    (SchemaError, BEHIND),
    (JobNotFound, NOTHING_MATCHED),
    (Refused, 8),
    (DuplicateJob, 8),
)

# SQLSTATE of a table, function, column or schema that is not there.
_MISSING = frozenset({"42P01", "42883", "42703", "3F000"})
_TIMED_OUT = "57014"
_NOT_GRANTED = "42501"


def exit_code(error: BaseException) -> int:
    """The code for an error that reached the front door."""
    if getattr(error, "sqlstate", None) in _MISSING:
        return BEHIND
    if _is_connection_error(error):
        return 4
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)


def explained(error: BaseException) -> str:
    """What happened, to what, and what to do."""
    if isinstance(error, SerenoError):
        return str(error)
    first_line = (str(error).strip().splitlines() or [""])[0]
    state = getattr(error, "sqlstate", None)
    if state in _MISSING:
        return f"the database has no schema of sereno, or an older one ({first_line}): run `sereno migrate`"
    if state == _NOT_GRANTED:
        return f"the login may not do this ({first_line}): connect as one that may, see `sereno migrate --roles print`"
    if state == _TIMED_OUT:
        return "the database took too long to answer: ask for less, such as one state, or --finished-after 1h"
    if _is_connection_error(error):
        return f"the connection to PostgreSQL broke: {first_line}"
    return f"{type(error).__name__}: {first_line}\nWith -v it shows where."


def _is_connection_error(error: BaseException) -> bool:
    # Whoever has met one has imported psycopg; nobody else should have to.
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(error, psycopg.OperationalError) and error.sqlstate != _TIMED_OUT
