"""What the commands of notifications share: the application behind them, pages of one thing, and what is not there."""

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
    """Nothing has this id, or this key."""

    exit_code = NOTHING_MATCHED


class OrderedGroup(click.Group):
    """Commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


def page_options(function: F) -> F:
    """`-n` and `--before`: one page of a list."""
    for option in (
        click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches."),
        click.option(
            "--before", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Older ones only: the next page."
        ),
        click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000)),
    ):
        function = option(function)
    return function


def end_of_page(form: str, items: list[Any], limit: int, fail_empty: bool) -> int:
    """How to go on; and the code to end with."""
    if len(items) >= limit and chosen_form(form) == "table":
        click.echo(f"There may be more: add --before {items[-1].id}", err=True)
    return NOTHING_MATCHED if fail_empty and not items else 0


def look(context: "CommandContext", operation: "Operation[T]") -> T:
    """The command ends with 7 when what it is about is not there."""
    # A database that is not there is another kind of wrong.
    context.connection()
    try:
        return context.run(operation)
    except ConfigurationError as error:
        raise NotFound(str(error)) from None


@contextlib.contextmanager
def application(context: "CommandContext") -> "Iterator[Sereno]":
    """The application of this command, on the database of this command."""
    app = context.app
    app.override(database_url=context.settings.database_url, schema=context.settings.schema)
    try:
        yield app
    finally:
        app.close()


@contextlib.contextmanager
def any_application(context: "CommandContext") -> "Iterator[Sereno]":
    """The same; where none is named, one that knows nothing but the database."""
    if context.settings.app:
        with application(context) as named:
            yield named
        return
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    with contextlib.closing(Sereno(context.settings.database_url, schema=context.settings.schema)) as bare:
        yield bare


@contextlib.contextmanager
def checked_addresses() -> Iterator[None]:
    """A malformed address is a wrong argument."""
    try:
        yield
    except InvalidAddress as error:
        raise InvalidArguments(str(error)) from None


def shown(text: str | None) -> str:
    """Text that anybody may have written: on one line, and nothing that a terminal would obey."""
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    return visible(text or "")


def stored_json(value: Any) -> str | None:
    """What the database keeps, as it is; None for nothing."""
    text = bytes(value).decode()
    return None if text == "null" else text


def show_lines(lines: Iterable[tuple[str, Any]]) -> None:
    """A page: labels and values; what is empty is left out."""
    for label, value in lines:
        if value not in (None, "", []):
            click.echo(f"{label:<{LABEL}}{shown(str(value))}")
