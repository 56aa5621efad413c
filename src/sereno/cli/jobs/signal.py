"""`sereno signal …`: send signals to waiting jobs, and list those that were sent."""

import json
import sys
from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, show_json, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext

COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("signal", lambda line: line.name, "name"),
    Column("tenant", lambda line: line.tenant, "name"),
    Column("sent", lambda line: line.sent_at),
    Column("value", lambda line: json.dumps(line.value, ensure_ascii=False), "wide"),
)


@click.group()
def signal() -> None:
    """Send signals to jobs that wait for them."""


@signal.command(epilog="""Example: sereno signal send paid:42 '{"amount": 7}' --tenant r42""")
@click.argument("name")
@click.argument("value", default="null", metavar="[JSON]")
@click.option("--tenant", help="Tenant of the jobs that get it.  [default: none]")
@output_option
@context_options
def send(context: "CommandContext", name: str, value: str, tenant: str | None, form: str) -> None:
    """Send a signal to all jobs that wait for NAME, now or later. "-" reads the value from stdin."""
    from sereno.errors import InvalidArguments  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.signal_operations import new_signal  # noqa: PLC0415 - see above

    raw = sys.stdin.read() if value == "-" else value
    try:
        decoded = json.loads(raw)
    except ValueError as error:
        raise InvalidArguments(f"""the value is not JSON ({error}); a text needs quotes: '"{raw:.20}"'""") from None
    with context.connection(create=True).transaction():
        sent = context.run(new_signal(name, decoded, context.settings.arguments_limit, tenant=tenant))
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"id": sent, "name": name, "tenant": tenant}, indent=2 if form == "json" else 0)
        return
    click.echo(sent)
    click.echo("Sent.", err=True)


@signal.command("list", epilog="Example: sereno signal list --name paid:42")
@click.option("--name", help="Only signals with this name.")
@click.option("--tenant", help="Only signals of this tenant.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def list_signals(context: "CommandContext", name: str | None, tenant: str | None, limit: int, form: str) -> None:
    """List stored signals, newest first."""
    from sereno.jobs.signals import list_signals as operation  # noqa: PLC0415 - slow to import; --help needs none

    show_list(form, context.run(operation(name=name, tenant=tenant, limit=limit)), COLUMNS, empty="No signal was sent.")
