"""`sereno channel …`: list, pause and resume channels."""

from typing import TYPE_CHECKING

import click

from sereno.cli.notifications.page import OrderedGroup, application, shown
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, short_time, show_list
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.operations import ChannelState


def _paused(line: "ChannelState") -> str:
    return "; ".join(
        f"since {short_time(pause.since)}{f' for {pause.account}' if pause.account else ''}: {pause.reason}"
        for pause in line.pauses
    )


COLUMNS = (
    Column("channel", lambda line: shown(line.channel), "name"),
    Column("pending", lambda line: line.pending, "number"),
    Column("sent lately", lambda line: line.sent, "number"),
    Column("failed lately", lambda line: line.failed, "number"),
    Column("unknown lately", lambda line: line.unknown, "number"),
    Column("paused", lambda line: shown(_paused(line)), "wide"),
)


@click.group(cls=OrderedGroup)
def channel() -> None:
    """List, pause and resume channels."""


@channel.command("list", epilog="Example: sereno channel list -a shop:app")
@output_option
@context_options
def list_channels(context: "CommandContext", form: str) -> None:
    """List channels that the application declares, that have addresses, or that were used lately.

    Lately means among the newest 100,000 deliveries.
    """
    from sereno.notifications.operations import list_channels as operation  # noqa: PLC0415 - slow to import; --help needs none

    known = list(context.app.channels.known) if context.settings.app else []
    found = context.run(operation(known))
    show_list(form, found, COLUMNS, empty="No channels. Name them in app.event(…, channels=[…]).")
    if chosen_form(form) == "table" and known:
        undeclared = [shown(line.channel) for line in found if not line.is_known]
        if undeclared:
            click.echo(f"Not declared by this application: {', '.join(undeclared)}.", err=True)


@channel.command(epilog='Example: sereno channel pause sms --reason "the provider is down"')
@click.argument("name", metavar="CHANNEL")
@click.option("--reason", required=True, help="Reason, shown with the pause.")
@click.option("--account", metavar="TENANT", help="Pause only deliveries that use the credentials of this tenant.")
@context_options
def pause(context: "CommandContext", name: str, reason: str, account: str | None) -> None:
    """Pause a channel. Deliveries wait and use up no attempts."""
    from sereno.notifications.operations import pause_channel  # noqa: PLC0415 - slow to import; --help needs none

    changed = context.run(pause_channel(name, reason, account=account))
    click.echo(f"The channel {name!r}{_of(account)} {'is paused' if changed else 'was paused already'}.", err=True)


@channel.command(epilog="Example: sereno channel resume email -a shop:app")
@click.argument("name", metavar="CHANNEL")
@click.option("--account", metavar="TENANT", help="Resume only this account.  [default: all paused accounts]")
@context_options
def resume(context: "CommandContext", name: str, account: str | None) -> None:
    """Resume a channel and send the waiting deliveries. Needs your application (-a)."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.notifications.operations import record_audit  # noqa: PLC0415 - see above

    for text in (name, account or ""):
        if "\x00" in text:
            raise InvalidArguments("a name must not contain a NUL byte")
    accounts = asyncio.run(_resume(context, name, account))
    if accounts:
        context.run(record_audit("channel.resume", f"channel {name}", {"accounts": accounts}))
    click.echo(f"The channel {name!r}{_of(account)} {'is resumed' if accounts else 'was not paused'}.", err=True)


async def _resume(context: "CommandContext", name: str, account: str | None) -> list[str]:
    with application(context) as app:
        try:
            return await app.notifications.aresume(name, account)
        finally:
            await app.aclose()


def _of(account: str | None) -> str:
    return f", account {account!r}," if account else ""
