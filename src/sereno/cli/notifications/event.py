"""`sereno event …`: list events, and notify recipients of one."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from sereno.cli.notifications.page import (
    OrderedGroup,
    any_application,
    application,
    end_of_page,
    page_options,
    run_query,
    show_lines,
    shown,
    stored_json,
)
from sereno.cli.options import MomentType, context_options, output_option, searched
from sereno.cli.output import Column, chosen_form, short_time, show_json, show_list
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.operations import EventDetail
    from sereno.notifications.rows import EventLine

MOST_NAMED = 10


def _audience(line: "EventLine") -> str:
    if line.topic is not None:
        return f"topic {shown(line.topic)}"
    return "all who want it" if line.named is None else f"{line.named:,} named"


def _progress(line: "EventLine") -> str:
    if line.cancelled_at is not None:
        return "cancelled"
    return "matched" if line.matched_at is not None else "not matched yet"


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("event", lambda line: shown(line.type), "name"),
    Column("tenant", lambda line: shown(line.tenant), "name"),
    Column("subject", lambda line: shown(line.subject), "name"),
    Column("to", _audience, gives_way=1),
    Column("channels", lambda line: line.channels, gives_way=2),
    Column("created", lambda line: line.created_at),
    Column("due", lambda line: line.due_at, gives_way=3),
    Column("audience", _progress),
    Column("note", lambda line: shown(line.note), "wide"),
)
TALLY_COLUMNS = (
    Column("channel", lambda line: shown(line.channel), "name"),
    Column("state", lambda line: line.state, "state"),
    Column("deliveries", lambda line: line.count, "number"),
    Column("reason", lambda line: shown(line.reason), "wide"),
)
VARIANT_COLUMNS = (
    Column("variant", lambda line: line.variant, "name"),
    Column("deliveries", lambda line: line.deliveries, "number"),
    Column("sent", lambda line: line.sent, "number"),
    Column("delivered", lambda line: line.delivered, "number"),
    Column("read", lambda line: line.read, "number"),
    Column("failed", lambda line: line.failed, "number"),
)


@click.group(cls=OrderedGroup)
def event() -> None:
    """List events, notify recipients of one, and cancel one."""


@event.command("list", epilog="Example: sereno event list 'type:tender.* payload.region:RM created:2h..'")
@click.argument("search", required=False)
@click.option("-t", "--type", "kind", metavar="TYPE")
@click.option("--tenant")
@click.option("--since", type=MomentType(), help='A date, or an age such as "2h".')
@page_options
@output_option
@context_options
def list_events(
    context: "CommandContext",
    search: str | None,
    kind: str | None,
    tenant: str | None,
    since: datetime | None,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """List events, newest first. A filter or SEARCH covers the newest 100,000."""
    from sereno.notifications.operations import list_events as operation  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.search_fields import EVENT_FIELDS  # noqa: PLC0415 - see above

    search_params = searched(search, EVENT_FIELDS)
    found = context.run(
        operation(kind=kind, tenant=tenant, since=since, search_params=search_params, limit=limit, before=before)
    )
    show_list(form, found, COLUMNS, empty="No event matches.")
    return end_of_page(form, found, limit, fail_empty)


@event.command(epilog="Example: sereno event show 4711")
@click.argument("number", type=int, metavar="EVENT")
@output_option
@context_options
def show(context: "CommandContext", number: int, form: str) -> None:
    """Show an event: its payload, its audience, and its deliveries by state."""
    from sereno.notifications.operations import show_event  # noqa: PLC0415 - slow to import; --help needs none

    detail = run_query(context, show_event(number))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
    else:
        _show_page(detail, form)


def _show_page(detail: "EventDetail", form: str) -> None:
    row = detail.event
    named = row.audience or []
    more = ", …" if (row.named or 0) > MOST_NAMED else ""
    flags = [word for word, holds in (("critical", row.critical), ("opt-in", row.opt_in)) if holds]
    show_lines(
        (
            ("event", f"{row.id}  {row.type}"),
            ("tenant", row.tenant),
            ("subject", row.subject),
            ("key", row.key),
            ("category", row.category),
            ("flags", ", ".join(flags)),
            ("payload", stored_json(row.payload)),
            ("channels", ", ".join(row.channels)),
            ("to", _audience(row) + (f": {', '.join(named[:MOST_NAMED])}{more}" if named else "")),
            ("note", row.note),
            ("created", short_time(row.created_at)),
            ("due", short_time(row.due_at)),
            ("expires", short_time(row.expires_at) if row.expires_at else None),
            ("rate", f"{row.rate:g}/s" if row.rate else None),
            ("cancelled", short_time(row.cancelled_at) if row.cancelled_at else None),
            ("matched", short_time(row.matched_at) if row.matched_at else "not yet: deliveries are being created"),
            ("deliveries", str(detail.total)),
        )
    )
    if detail.deliveries:
        click.echo()
        show_list(form, detail.deliveries, TALLY_COLUMNS, empty="")
    if detail.variants:
        click.echo()
        show_list(form, detail.variants, VARIANT_COLUMNS, empty="")


@event.command(epilog="Example: sereno event cancel 4711")
@click.argument("number", type=int, metavar="EVENT")
@output_option
@context_options
def cancel(context: "CommandContext", number: int, form: str) -> None:
    """Cancel an event: its unsent deliveries are skipped, and no more are created. What was sent stays sent."""
    from sereno.notifications.event_operations import cancel_and_record  # noqa: PLC0415 - slow to import; --help needs none

    with any_application(context) as app, context.connection().transaction():
        found = run_query(context, cancel_and_record(number, app.events.jobs))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
        return
    word = "Cancelled" if found.changed else "It was cancelled already"
    click.echo(f"{word}: {found.sent:,} of {found.total} deliveries were sent; {found.unsent:,} are skipped.", err=True)


@event.command(
    epilog="""Example: sereno event notify tender.published '{"code": "T1"}' --subject T1 --to user:7 -a shop:app"""
)
@click.argument("kind", metavar="TYPE")
@click.argument("payload", metavar="JSON")
@click.option(
    "--to",
    "recipients",
    multiple=True,
    metavar="KEY",
    help="Recipient, repeatable; or topic:NAME.  [default: all who want it]",
)
@click.option("--subject", help="Subject. An event is sent once per subject and key.")
@click.option("--key", help="Key. An event is sent once per subject and key.")
@click.option("--tenant")
@click.option("--rate", metavar="RATE", help='How many deliveries become due, such as "500/s".  [default: no limit]')
@output_option
@context_options
def notify(
    context: "CommandContext",
    kind: str,
    payload: str,
    recipients: tuple[str, ...],
    subject: str | None,
    key: str | None,
    tenant: str | None,
    rate: str | None,
    form: str,
) -> None:
    """Notify recipients of an event. Needs your application (-a).

    The payload is one JSON object; "-" reads it from stdin.
    """
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - see above

    raw = sys.stdin.buffer.read() if payload == "-" else payload.encode(errors="surrogateescape")
    with application(context) as app:
        definition = app.notifications.definitions.get(kind)
        if definition is None:
            raise ConfigurationError(notifications.unknown_type(kind, app.notifications.definitions))
        connection = context.connection(create=True)
        with connection.transaction():
            newest = context.run(notifications.list_events(limit=1))
            number = app.notifications.event(kind).notify(
                definition.decode(raw),
                to=recipients or None,
                subject=subject,
                key=key,
                tenant=tenant,
                rate=rate,
                conn=connection,
            )
            is_new = not newest or number > newest[0].id
            context.run(
                notifications.record_audit("event.notify", f"event {number}", {"type": kind, "created": is_new})
            )
            made = context.run(notifications.show_event(number)).event
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"id": number, "created": is_new, "event": made}, indent=2 if form == "json" else 0)
        return
    click.echo(number)
    if is_new:
        click.echo(f"Created: to {_audience(made)}, by {', '.join(made.channels)}. A worker sends it.", err=True)
    else:
        click.echo("An event with this subject and key already exists: this is it.", err=True)
    if made.note:
        click.echo(shown(made.note), err=True)
