"""Errors of the command line: one or two lines of text, and an exit code that scripts can rely on.

0 ok · 1 unexpected · 2 usage · 3 bad configuration · 4 database unreachable · 5 schema missing or out of date
6 unhealthy · 7 nothing matched · 8 refused · 130 interrupted
"""

import sys

from sereno.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    GroupNotFound,
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
    (GroupNotFound, NOTHING_MATCHED),
    (Refused, 8),
    (DuplicateJob, 8),
)

# SQLSTATEs of a missing table, function, column or schema, as in `database.statement_errors`, which imports the driver.
_MISSING = frozenset({"42P01", "42883", "42703", "3F000"})
_TIMED_OUT = "57014"
_NOT_GRANTED = "42501"


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error that no command handled."""
    if getattr(error, "sqlstate", None) in _MISSING:
        return BEHIND
    if _is_connection_error(error):
        return 4
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)


def explained(error: BaseException) -> str:
    """Return the text for an error: what happened, to what, and what to do."""
    if isinstance(error, JobNotFound):
        return f"{error}: `sereno job list` shows the newest, and `sereno why ID` what may have become of it"
    if isinstance(error, GroupNotFound):
        return f"{error}: `sereno group list` shows the newest"
    if isinstance(error, SerenoError):
        return str(error)
    first_line = (str(error).strip().splitlines() or [""])[0]
    state = getattr(error, "sqlstate", None)
    if state in _MISSING:
        return f"the schema of sereno is missing or out of date ({first_line}): run `sereno migrate`"
    if state == _NOT_GRANTED:
        return f"permission denied ({first_line}): connect with a role that has it; see `sereno migrate --roles print`"
    if state == _TIMED_OUT:
        return "the query timed out: narrow it, for example with one --state or --finished-after 1h"
    if _is_connection_error(error):
        return f"the connection to PostgreSQL failed: {first_line}"
    return f"{type(error).__name__}: {first_line}\nRun it again with -v to see the traceback."


def _is_connection_error(error: BaseException) -> bool:
    # An error of psycopg can only exist once psycopg was imported; importing it here would slow down --help.
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(error, psycopg.OperationalError) and error.sqlstate != _TIMED_OUT
