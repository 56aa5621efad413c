"""Options that several commands share."""

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.duration import per_second, seconds
from sereno.errors import ConfigurationError
from sereno.jobs.lifecycle import STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sereno.jobs.filters import JobFilter
    from sereno.search.sql_terms import SearchParams
    from sereno.search.syntax import SearchField

F = TypeVar("F", bound=Callable[..., Any])

FORMS = ("auto", "table", "json", "jsonl")

# Of the services that serve probes and metrics.
HEALTH_OPTIONS = (
    click.option("--health-port", type=click.IntRange(0, 65535), help="Port for /livez, /readyz and /metrics."),
    click.option("--health-host", help="Address of the health port.  [default: loopback]"),
)


def context_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for application, database and schema. The command receives a CommandContext first."""

    @click.option("-a", "--app", "app_path", metavar="MODULE:ATTR", help="Your application.  [env: SERENO_APP]")
    @click.option(
        "--database-url", metavar="URL", help="PostgreSQL database.  [env: SERENO_DATABASE_URL, DATABASE_URL]"
    )
    @click.option("--schema", metavar="NAME", help="Schema of sereno.  [env: SERENO_SCHEMA; default: sereno]")
    @click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
    @functools.wraps(function)
    def command(app_path: str | None, database_url: str | None, schema: str | None, **options: Any) -> Any:
        from sereno.cli.context import CommandContext  # noqa: PLC0415 - the database driver is slow to import; --help needs none

        with CommandContext(app_path, database_url, schema) as context:
            return function(context, **options)

    return command


def output_option(function: F) -> F:
    """Add `-o`, the output format."""
    option = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMS),
        default="auto",
        help="Output format. auto: a table on a terminal, tab-separated lines in a pipe.",
    )
    return option(function)


def bulk_options(function: F) -> F:
    """Add the options of commands that change many jobs."""
    for option in (
        click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        click.option("-y", "--yes", is_flag=True, help="Confirm a change to everything that the filter matches."),
    ):
        function = option(function)
    return function


def filter_options(function: F) -> F:
    """Add the options that select jobs. The command receives them as one JobFilter, `wanted`."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        return function(*args, wanted=_take_filter(options), **options)

    for option in reversed(
        (
            click.option("-s", "--state", "states", multiple=True, type=click.Choice(STATES), help="Repeatable."),
            click.option("-q", "--queue"),
            click.option("-t", "--task"),
            click.option("--tenant"),
            click.option("--tag"),
            click.option("--error", metavar="TEXT", help="Match part of the reason or of an error."),
            click.option("--unique-key"),
            click.option(
                "--search", "searched", metavar="TEXT", help="A search as in job list, such as 'fingerprint:1f2e'."
            ),
            click.option("--created-after", type=MomentType(), help='A date, or an age such as "2h".'),
            click.option("--created-before", type=MomentType()),
            click.option("--finished-after", type=MomentType()),
            click.option("--finished-before", type=MomentType()),
        )
    ):
        command = option(command)
    return command  # type: ignore[return-value]  # the wrapper takes what click gives and returns what F returns


def searched(text: str | None, fields: "Sequence[SearchField]") -> "SearchParams | None":
    """Return the search parameters of a text for a list with these fields; dates are in the local time zone."""
    from sereno.search.search_filter import search_params  # noqa: PLC0415 - slow to import; --help needs none

    return search_params(text, fields, datetime.now().astimezone())


class MomentType(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    """A date such as 2026-11-15T03:00, or a duration before or after now: 30m, 2h, 7d."""

    name = "when"

    def __init__(self, *, future: bool = False) -> None:
        self._sign = 1 if future else -1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return datetime.now(UTC) + self._sign * timedelta(seconds=seconds(str(value)))
        except ConfigurationError:
            pass
        try:
            return datetime.fromisoformat(str(value)).astimezone()
        except ValueError:
            self.fail(f'{value!r}: expected a duration such as "2h" or a date such as 2026-11-15T03:00', param, ctx)


class RateType(click.ParamType):  # type: ignore[type-arg]  # see above
    """A rate, converted to operations per second: 50, 50/s, 10/m."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return per_second(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def _take_filter(options: dict[str, Any]) -> "JobFilter":
    from sereno.jobs.filters import JobFilter  # noqa: PLC0415 - the store is slow to import; --help needs none

    names = [name for name in JobFilter.__dataclass_fields__ if name in options and name != "ids"]
    given = {name: options.pop(name) for name in names}
    wanted = JobFilter(**given | {"states": given["states"] or None})
    searched = options.pop("searched")
    if searched is None:
        return wanted
    from sereno.jobs.queries.search import jobs_wanted  # noqa: PLC0415 - see above

    return wanted.both(jobs_wanted(searched, datetime.now().astimezone()))
