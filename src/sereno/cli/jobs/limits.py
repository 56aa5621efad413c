"""`sereno limit …`: list limits, and change them while workers run."""

from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, counted, show_json, show_list
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.database.statement import Operation

T = TypeVar("T")


class NoLimit(click.ClickException):
    """The named limit does not exist."""

    exit_code = 7


class LimitGroup(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


@click.group(cls=LimitGroup)
def limit() -> None:
    """List limits, and change them while workers run."""


@limit.command("list", epilog='Example: sereno limit list "mail.*"')
@click.argument("pattern", required=False)
@output_option
@context_options
def list_limits(context: "CommandContext", pattern: str | None, form: str) -> None:
    """List limits with their values, use and last change. * in PATTERN matches anything."""
    from sereno.cli.jobs.limit_page import PLAIN, table_columns  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import list_limits as operation  # noqa: PLC0415 - see above
    from sereno.jobs.limits.rows import BOUND  # noqa: PLC0415 - see above

    found = context.run(operation(pattern))
    empty = "No limit matches." if pattern else "No limits. A worker writes the limits of its code when it starts."
    columns = table_columns(found) if chosen_form(form) == "table" else PLAIN
    show_list(form, found, columns, empty=empty)
    changed = ", ".join(row.name for row in found if row.overridden)
    if changed and chosen_form(form) == "table" and not any(column.name == "changed by" for column in columns):
        click.echo(f"Overridden: {changed}; see `sereno limit show NAME`.", err=True)
    if len(found) >= BOUND:
        click.echo(f"These are the first {BOUND:,}: pass a pattern to see others.", err=True)


@limit.command(epilog="Example: sereno limit show ifood --key r42")
@click.argument("name")
@click.option("--key", help="Show only this key.")
@click.option("-n", "--keys", default=20, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def show(context: "CommandContext", name: str, key: str | None, keys: int, form: str) -> None:
    """Show a limit and its keys: closed ones first, then those with waiting jobs, then those in use."""
    from sereno.cli.jobs.limit_page import show_page  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import show as operation  # noqa: PLC0415 - see above

    detail = _run(context, operation(name, key=key, keys=keys))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
    else:
        show_page(detail, form)


@limit.command("set", epilog='Example: sereno limit set ifood --rate 50 --per 1m --note "agreed with the provider"')
@click.argument("name", required=False)
@click.option("--slots", type=int, metavar="N", help="Jobs at once; 0 starts none.")
@click.option("--rate", type=float, metavar="N", help="Job starts in the time of --per.")
@click.option("--per", metavar="DURATION", help='Period of the rate, such as "1m".  [default: 1s]')
@click.option("--burst", type=float, metavar="N", help="Starts at once.  [default: those of 0.1 s, at least 1]")
@click.option("--queue", metavar="QUEUE", help="Limit a whole queue; the limit is created if it does not exist.")
@click.option("--note", help="Reason, shown with the limit.")
@context_options
def set_numbers(context: "CommandContext", name: str | None, **numbers: Any) -> None:
    """Override the numbers of a limit. They hold at once for every worker, until "reset". Running jobs continue."""
    from sereno.cli.jobs.limit_page import changed_sentence  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import change as operation  # noqa: PLC0415 - see above

    if name is None and numbers["queue"] is None:
        raise click.UsageError("Name the limit: NAME, or --queue QUEUE for a whole queue.")
    if (numbers["slots"] is None) == (numbers["rate"] is None):
        raise click.UsageError("Pass either --slots N, or --rate N with --per.")
    click.echo(changed_sentence(_run(context, operation(name, **numbers))), err=True)


@limit.command(epilog="Example: sereno limit reset ifood")
@click.argument("name")
@context_options
def reset(context: "CommandContext", name: str) -> None:
    """Restore the declared numbers of a limit. A limit that no code declares is removed."""
    from sereno.jobs.limits.operations import in_words  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import reset as operation  # noqa: PLC0415 - see above

    row = _run(context, operation(name))
    state = "removed; no code declares it" if row is None else f"{in_words(row.numbers)}, as declared"
    click.echo(f"{name}: {state}.", err=True)


@limit.command(epilog="Example: sereno limit close ifood --key r42 --for 30s")
@click.argument("name")
@click.option("--key", help="Close only this key; required for a limit per key.")
@click.option("--for", "length", required=True, metavar="DURATION", help='How long, such as "30s".')
@context_options
def close(context: "CommandContext", name: str, key: str | None, length: str) -> None:
    """Start no job under a limit for a while. Running jobs continue; a longer closure is not shortened."""
    from sereno.cli.output import short_time  # noqa: PLC0415 - see above
    from sereno.jobs.limits.operations import close as operation  # noqa: PLC0415 - slow to import; --help needs none

    until = _run(context, operation(name, length, key=key))
    click.echo(f"{name}{_of(key)} is closed until {short_time(until)}.", err=True)


@limit.command("open", epilog="Example: sereno limit open ifood --key r42")
@click.argument("name")
@click.option("--key", help="Open only this key.  [default: all closed keys]")
@context_options
def reopen(context: "CommandContext", name: str, key: str | None) -> None:
    """Open a closed limit again."""
    from sereno.jobs.limits.operations import reopen as operation  # noqa: PLC0415 - slow to import; --help needs none

    opened = _run(context, operation(name, key=key))
    if not opened:
        click.echo(f"{name}{_of(key)} was not closed.", err=True)
    else:
        many = f" ({counted(opened, 'key')})" if opened > 1 else ""
        click.echo(f"{name}{_of(key)} is open again{many}.", err=True)


@limit.command(epilog="Example: sereno limit weigh r42 3")
@click.argument("key")
@click.argument("weight", type=float)
@context_options
def weigh(context: "CommandContext", key: str, weight: float) -> None:
    """Set the weight of a fair key: its turns for each turn of a key with weight 1, the default."""
    from sereno.jobs.limits.weights import weigh as operation  # noqa: PLC0415 - slow to import; --help needs none

    _run(context, operation(key, weight))
    state = "has the default weight of 1" if weight == 1 else f"gets {weight:g} turns for each turn of the others"
    click.echo(f"The key {key!r} {state}.", err=True)


@limit.command(epilog="Example: sereno limit weights -o json")
@output_option
@context_options
def weights(context: "CommandContext", form: str) -> None:
    """List fair keys whose weight is not 1, highest weight first."""
    from sereno.cli.jobs.limit_page import WEIGHT_COLUMNS  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.weights import list_weights  # noqa: PLC0415 - see above

    show_list(form, context.run(list_weights()), WEIGHT_COLUMNS, empty="Every fair key has weight 1.")


def _run(context: "CommandContext", operation: "Operation[T]") -> T:
    """Run the operation; exit with 7 when the limit does not exist."""
    # Connect first: a missing database is a ConfigurationError too, with its own exit code.
    context.connection()
    try:
        return context.run(operation)
    except ConfigurationError as error:
        raise NoLimit(str(error)) from None


def _of(key: str | None) -> str:
    return f", key {key!r}," if key else ""
