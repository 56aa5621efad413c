"""Helpers of the notification commands: the application, paging, pages of one record, and not-found errors."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.output import chosen_form
from sereno.errors import ConfigurationError, InvalidAddress, InvalidArguments

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.context import CommandContext
    from sereno.database.statement import Operation

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

LABEL = 13


class NotFound(click.ClickException):
    """No record has this id or key."""

    exit_code = NOTHING_MATCHED


class OrderedGroup(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


def page_options(function: F) -> F:
    """Add `-n` and `--before`, which select one page of a list."""
    for option in (
        click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches."),
        click.option(
            "--before", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Only older ones: the next page."
        ),
        click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000)),
    ):
        function = option(function)
    return function


def end_of_page(form: str, items: list[Any], limit: int, fail_empty: bool) -> int:
    """Print how to get the next page; return the exit code."""
    if len(items) >= limit and chosen_form(form) == "table":
        click.echo(f"There may be more: add --before {items[-1].id}", err=True)
    return NOTHING_MATCHED if fail_empty and not items else 0


def run_query(context: "CommandContext", operation: "Operation[T]") -> T:
    """Run the operation; exit with 7 when its subject does not exist."""
    # Connect first: a missing database is a ConfigurationError too, with its own exit code.
    context.connection()
    try:
        return context.run(operation)
    except ConfigurationError as error:
        raise NotFound(str(error)) from None


@contextlib.contextmanager
def application(context: "CommandContext") -> "Iterator[Sereno]":
    """Yield the application, connected to the database of the command line."""
    app = context.app
    app.override(database_url=context.settings.database_url, schema=context.settings.schema)
    try:
        yield app
    finally:
        app.close()


@contextlib.contextmanager
def any_application(context: "CommandContext") -> "Iterator[Sereno]":
    """Yield the application, or one without tasks and events when none is named."""
    if context.settings.app:
        with application(context) as named:
            yield named
        return
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    with contextlib.closing(Sereno(context.settings.database_url, schema=context.settings.schema)) as bare:
        yield bare


@contextlib.contextmanager
def checked_addresses() -> Iterator[None]:
    """Report an invalid address as an invalid argument."""
    try:
        yield
    except InvalidAddress as error:
        raise InvalidArguments(str(error)) from None


def shown(text: str | None) -> str:
    """Return user input on one line without control characters."""
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    return visible(text or "")


def stored_json(value: Any) -> str | None:
    """Return stored JSON as text; None for null."""
    text = bytes(value).decode()
    return None if text == "null" else text


def show_lines(lines: Iterable[tuple[str, Any]]) -> None:
    """Print labels and values; empty values are left out."""
    for label, value in lines:
        if value not in (None, "", []):
            click.echo(f"{label:<{LABEL}}{shown(str(value))}")
