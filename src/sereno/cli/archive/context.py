"""Helpers of the archive commands: the application, names of kinds, and error messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.notifications.page import any_application
from sereno.cli.options import MomentType
from sereno.errors import ConfigurationError, Refused

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.archive.rows import TimeSpan
    from sereno.archive.storage import Storage
    from sereno.cli.context import CommandContext

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1024
# Singular -> name of the kind.
_ONE = {"job": "jobs", "delivery": "deliveries", "event": "events", "log": "logs", "fire": "fires"}


def span_options(function: F) -> F:
    """Add `--from` and `--to`, which select a range of time."""
    for option in (
        click.option("--to", "to_at", type=MomentType(), help="End of the range, exclusive."),
        click.option(
            "--from", "from_at", type=MomentType(), help='Start of the range: a date, or an age such as "30d".'
        ),
    ):
        function = option(function)
    return function


def kind_named(word: str) -> str:
    """Return the kind for its singular: `job` -> `jobs`. The name of a user's table is returned unchanged."""
    return _ONE.get(word, word)


@contextmanager
def archive_of(context: "CommandContext") -> "Iterator[Sereno]":
    """Yield the application; raise ConfigurationError when the archive is off and has no content."""
    from sereno.archive.operations import OFF  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.archive.queries import kind_names  # noqa: PLC0415 - see above

    # Fails here if the database does not exist; otherwise the application would create an embedded one.
    known = context.run(kind_names())
    with any_application(context) as app:
        if not app.archive.is_on and not known:
            raise ConfigurationError(OFF)
        yield app


def place_of(app: "Sereno") -> "Storage":
    """Return the storage of the archive's files."""
    return app.archive.archiver().place


def span_of(from_at: Any, to_at: Any) -> "TimeSpan":
    from sereno.archive.rows import TimeSpan  # noqa: PLC0415 - slow to import; --help needs none

    return TimeSpan(from_at=from_at, to_at=to_at)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors of PostgreSQL, except lost connections, into Refused with their message."""
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.errors import first_line  # noqa: PLC0415 - see above

    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
            raise
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        raise Refused(f"stopped: {first_line(error)}.{hint}") from None


def size(count: int | None) -> str:
    """Return a size with its unit: 12 kB, 3.4 GB."""
    value = float(count or 0)
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    return f"{value:.0f} {unit}" if unit in _UNITS[:2] else f"{value:.1f} {unit}"
