"""`sereno limit …`: look at limits, and change them while everything runs."""

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
    """No limit has this name."""

    exit_code = 7


class LimitGroup(click.Group):
    """Commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


@click.group(cls=LimitGroup)
def limit() -> None:
    """Look at limits, and change them while everything runs."""


@limit.command("list", epilog='Example: sereno limit list "mail.*"')
@click.argument("pattern", required=False)
@output_option
@context_options
def list_limits(context: "CommandContext", pattern: str | None, form: str) -> None:
    """What each limit says, how much of it is in use, who changed it. A pattern has * for anything."""
    from sereno.cli.jobs.limit_page import PLAIN, table_columns  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import list_limits as operation  # noqa: PLC0415 - see above
    from sereno.jobs.limits.store import BOUND  # noqa: PLC0415 - see above

    found = context.run(operation(pattern))
    empty = "No limit matches." if pattern else "There are no limits: a worker writes those of its code when it starts."
    columns = table_columns(found) if chosen_form(form) == "table" else PLAIN
    show_list(form, found, columns, empty=empty)
    changed = ", ".join(row.name for row in found if row.overridden)
    if changed and chosen_form(form) == "table" and not any(column.name == "changed by" for column in columns):
        click.echo(f"Changed by hand: {changed}; `sereno limit show NAME` says by whom.", err=True)
    if len(found) >= BOUND:
        click.echo(f"These are the first {BOUND:,}: name a pattern to see others.", err=True)


@limit.command(epilog="Example: sereno limit show ifood --key r42")
@click.argument("name")
@click.option("--key", help="Only this key.")
@click.option("-n", "--keys", default=20, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def show(context: "CommandContext", name: str, key: str | None, keys: int, form: str) -> None:
    """One limit, with its keys. Closed ones come first, then those that jobs wait for, then those in use."""
    from sereno.cli.jobs.limit_page import detail_object, show_page  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import show as operation  # noqa: PLC0415 - see above

    detail = _run(context, operation(name, key=key, keys=keys))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail_object(detail), indent=2 if form == "json" else 0)
    else:
        show_page(detail, form)


@limit.command("set", epilog='Example: sereno limit set ifood --rate 50 --per 1m --note "they asked for it"')
@click.argument("name", required=False)
@click.option("--slots", type=int, metavar="N", help="So many at once; 0 stops them.")
@click.option("--rate", type=float, metavar="N", help="So many starts in the time of --per.")
@click.option("--per", metavar="DURATION", help='Such as "1m".  [default: 1s]')
@click.option("--burst", type=float, metavar="N", help="So many together.  [default: what comes in 0.1 s, at least 1]")
@click.option("--queue", metavar="QUEUE", help="The limit of a whole queue; made if there is none.")
@click.option("--note", help="Why; shown wherever somebody wonders.")
@context_options
def set_numbers(context: "CommandContext", name: str | None, **numbers: Any) -> None:
    """Other numbers for a limit. They hold at once and everywhere, until "reset"; what runs goes on."""
    from sereno.cli.jobs.limit_page import changed_sentence  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import change as operation  # noqa: PLC0415 - see above

    if name is None and numbers["queue"] is None:
        raise click.UsageError("Which limit? Give its NAME, or --queue QUEUE for a whole queue.")
    if (numbers["slots"] is None) == (numbers["rate"] is None):
        raise click.UsageError("How many? Give --slots N, or --rate N with --per.")
    click.echo(changed_sentence(_run(context, operation(name, **numbers))), err=True)


@limit.command(epilog="Example: sereno limit reset ifood")
@click.argument("name")
@context_options
def reset(context: "CommandContext", name: str) -> None:
    """What the code says holds again. A limit that no code declares is taken away."""
    from sereno.jobs.limits.operations import in_words  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.operations import reset as operation  # noqa: PLC0415 - see above

    row = _run(context, operation(name))
    said = "gone; no code declares it" if row is None else f"{in_words(row.numbers)}, as the code says"
    click.echo(f"{name}: {said}.", err=True)


@limit.command(epilog="Example: sereno limit close ifood --key r42 --for 30s")
@click.argument("name")
@click.option("--key", help="Only this key; one that counts keys apart needs it.")
@click.option("--for", "length", required=True, metavar="DURATION", help='Such as "30s".')
@context_options
def close(context: "CommandContext", name: str, key: str | None, length: str) -> None:
    """Start nothing under it for a while. What runs goes on; what was closed for longer stays so."""
    from sereno.cli.output import short_time  # noqa: PLC0415 - see above
    from sereno.jobs.limits.operations import close as operation  # noqa: PLC0415 - slow to import; --help needs none

    until = _run(context, operation(name, length, key=key))
    click.echo(f"{name}{_of(key)} is closed until {short_time(until)}.", err=True)


@limit.command("open", epilog="Example: sereno limit open ifood --key r42")
@click.argument("name")
@click.option("--key", help="Only this key.  [default: all that are closed]")
@context_options
def reopen(context: "CommandContext", name: str, key: str | None) -> None:
    """Start again what was closed."""
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
    """Give a fair key more turns than others, or fewer. 1 is as everybody else."""
    from sereno.jobs.limits.weights import weigh as operation  # noqa: PLC0415 - slow to import; --help needs none

    _run(context, operation(key, weight))
    said = "is as everybody else" if weight == 1 else f"gets {weight:g} turns for one of the others"
    click.echo(f"The key {key!r} {said}.", err=True)


@limit.command(epilog="Example: sereno limit weights -o json")
@output_option
@context_options
def weights(context: "CommandContext", form: str) -> None:
    """Fair keys that do not weigh 1. The heaviest come first."""
    from sereno.cli.jobs.limit_page import WEIGHT_COLUMNS  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.limits.weights import list_weights  # noqa: PLC0415 - see above

    show_list(form, context.run(list_weights()), WEIGHT_COLUMNS, empty="Every fair key weighs 1.")


def _run(context: "CommandContext", operation: "Operation[T]") -> T:
    """The command ends with 7 when there is no limit of this name."""
    # A database that is not there is another kind of wrong.
    context.connection()
    try:
        return context.run(operation)
    except ConfigurationError as error:
        raise NoLimit(str(error)) from None


def _of(key: str | None) -> str:
    return f", key {key!r}," if key else ""
