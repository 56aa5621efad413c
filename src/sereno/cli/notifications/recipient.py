"""`sereno recipient …`: recipients, their addresses and their preferences."""

import json
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.notifications.page import (
    OrderedGroup,
    any_application,
    checked_addresses,
    end_of_page,
    page_options,
    run_query,
    show_lines,
    shown,
    stored_json,
)
from sereno.cli.options import context_options, output_option, searched
from sereno.cli.output import Column, chosen_form, short_time, show_json, show_list
from sereno.duration import duration_text
from sereno.errors import InvalidArguments, Refused

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.operations import RecipientDetail
    from sereno.notifications.recipients.quiet_hours import QuietHours
    from sereno.notifications.rows import PreferenceRow

COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("recipient", lambda line: shown(line.key), "name"),
    Column("tenant", lambda line: shown(line.tenant), "name"),
    Column("reached by", lambda line: shown(" ".join(line.channels)), "wide"),
    Column("zone", lambda line: shown(line.zone)),
    Column("locale", lambda line: shown(line.locale)),
    Column("changed", lambda line: line.changed_at),
)
ADDRESS_COLUMNS = (
    Column("channel", lambda line: shown(line.channel), "name"),
    Column("address", lambda line: shown(line.address), "name"),
    Column("state", lambda line: line.state, "state"),
    Column("keys", lambda line: "hidden" if line.has_keys else ""),
    Column("reason", lambda line: shown(line.reason), "wide"),
    Column("changed", lambda line: line.changed_at),
)


def _of_what(row: "PreferenceRow") -> str:
    named = (("event", row.event), ("category", row.category), ("channel", row.channel))
    return ", ".join(f"{word} {value}" for word, value in named if value) or "everything"


def _quiet_words(row: "PreferenceRow") -> str:
    if row.quiet is None:
        return ""
    spans = row.preference("default").quiet or ()
    return "; ".join(f"{span.start}-{span.end} {','.join(span.days or ())}".rstrip() for span in spans) or "none"


def _digest_words(row: "PreferenceRow") -> str:
    return "" if row.digest is None else duration_text(row.digest) if row.digest else "at once"


PREFERENCE_COLUMNS = (
    Column("whose", lambda row: "own" if row.is_own else "default"),
    Column("of", lambda row: shown(_of_what(row)), "wide"),
    Column("wanted", lambda row: {True: "on", False: "off", None: ""}[row.wanted]),
    Column("condition", lambda row: "" if row.condition is None else shown(json.dumps(row.condition)), "wide"),
    Column("quiet", _quiet_words, "wide"),
    Column("digest", _digest_words),
    Column("changed", lambda row: row.changed_at),
)
ASPECTS = ("wanted", "condition", "quiet", "digest")
tenant_option = click.option("--tenant", help="Tenant of the recipient.  [default: none]")


@click.group(cls=OrderedGroup)
def recipient() -> None:
    """Manage recipients, their addresses and their preferences."""


@recipient.command("list", epilog='Example: sereno recipient list "user:*" --tenant r42')
@click.argument("pattern", required=False)
@click.option("--search", metavar="TEXT", help="A search such as 'channel:email -locale:lv data.plan:free'.")
@click.option("--tenant", help="Only this tenant.  [default: all]")
@page_options
@output_option
@context_options
def list_recipients(
    context: "CommandContext",
    pattern: str | None,
    search: str | None,
    tenant: str | None,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """List recipients, newest first. * in PATTERN matches anything; it covers the newest 100,000."""
    from sereno.notifications.operations import list_recipients as operation  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.search_fields import RECIPIENT_FIELDS  # noqa: PLC0415 - see above

    search_params = searched(search, RECIPIENT_FIELDS)
    found = context.run(operation(pattern, tenant=tenant, search_params=search_params, limit=limit, before=before))
    show_list(form, found, COLUMNS, empty="No recipient matches.")
    return end_of_page(form, found, limit, fail_empty)


@recipient.command(epilog="Example: sereno recipient show user:7")
@click.argument("key")
@tenant_option
@click.option("--reveal", is_flag=True, help="Show whole addresses.")
@output_option
@context_options
def show(context: "CommandContext", key: str, tenant: str | None, reveal: bool, form: str) -> None:
    """Show a recipient: addresses, preferences, and the defaults that apply."""
    from sereno.notifications.operations import masked, show_recipient  # noqa: PLC0415 - slow to import; --help needs none

    detail = run_query(context, show_recipient(key, tenant=tenant))
    if reveal:
        from sereno.notifications.reveal import reveal_recipient  # noqa: PLC0415 - see above

        context.run(reveal_recipient(detail))
    for address in detail.addresses if not reveal else ():
        address.address = masked(address.address)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
    else:
        _show_page(detail, form)


def _show_page(detail: "RecipientDetail", form: str) -> None:
    row = detail.recipient
    show_lines(
        (
            ("recipient", row.key),
            ("tenant", row.tenant),
            ("zone", row.zone),
            ("locale", row.locale),
            ("data", stored_json(row.data)),
            ("created", short_time(row.created_at)),
            ("changed", short_time(row.changed_at)),
            ("unread", detail.unread),
        )
    )
    click.echo()
    show_list(
        form, detail.addresses, ADDRESS_COLUMNS, empty="No address: notified only in the inbox of the application."
    )
    click.echo()
    show_list(
        form, detail.preferences, PREFERENCE_COLUMNS, empty="No preference: notified of everything that is not opt-in."
    )


@recipient.command(
    "set", epilog="Example: sereno recipient set user:7 --channel email=ana@example.lv --zone Europe/Riga"
)
@click.argument("key")
@click.option("-c", "--channel", "ways", multiple=True, metavar="CHANNEL=ADDRESS", help="Address; repeatable.")
@click.option("--zone", help="Time zone of quiet hours, such as Europe/Riga.")
@click.option("--locale", help="Locale of messages, such as lv.")
@tenant_option
@context_options
def set_recipient(
    context: "CommandContext", key: str, ways: tuple[str, ...], zone: str | None, locale: str | None, tenant: str | None
) -> None:
    """Create a recipient, or change the given fields. Setting an address reactivates it, unless it unsubscribed."""
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - slow to import; --help needs none

    addresses = _addresses(ways)
    connection = context.connection(create=True)
    with any_application(context) as app, checked_addresses(), connection.transaction():
        app.recipients.upsert(key, addresses, zone=zone, locale=locale, tenant=tenant, conn=connection)
        detail = {
            "tenant": tenant,
            "zone": zone,
            "locale": locale,
            "addresses": {
                channel: [notifications.masked(each) for each in texts] for channel, texts in addresses.items()
            },
        }
        context.run(notifications.record_audit("recipient.set", f"recipient {key}", detail))
        found = context.run(notifications.show_recipient(key, tenant=tenant))
        undeclared = [name for name in addresses if name not in app.channels.known] if context.settings.app else []
    reached = sorted({address.channel for address in found.addresses if address.state == "active"})
    click.echo(f"{key} is reached by {shown(', '.join(reached)) or 'the inbox of the application only'}.", err=True)
    for address in found.addresses:
        if address.address in addresses.get(address.channel, ()) and address.state != "active":
            click.echo(
                f"{shown(notifications.masked(address.address))} of {shown(address.channel)} stays {address.state}.",
                err=True,
            )
    if undeclared:
        click.echo(f"Not declared by this application: {', '.join(undeclared)}.", err=True)


@recipient.command(
    epilog="""Example: sereno recipient prefer user:7 --event tender.published --on --quiet 22:00-08:00"""
)
@click.argument("key", required=False)
@click.option("--default", "is_default", is_flag=True, help="Set the default of the tenant instead of a KEY.")
@click.option("--event", metavar="TYPE", help="Type of event.  [default: any]")
@click.option("--category", help="Category of events.  [default: any]")
@click.option("-c", "--channel", help="Channel.  [default: any]")
@click.option("--on/--off", "wanted", default=None, help="Subscribe or unsubscribe.")
@click.option("--condition", metavar="JSON", help="""Notify only if the payload matches, such as '{"region": "RM"}'.""")
@click.option(
    "--quiet", "spans", multiple=True, metavar="SPAN", help='Quiet hours: "22:00-08:00" or "22:00-10:00 fri,sat".'
)
@click.option("--digest", metavar="DURATION", help="Collect messages of events with a digest: 1h; 0 for at once.")
@click.option("--clear", "cleared", multiple=True, type=click.Choice(ASPECTS), help="Clear an aspect; repeatable.")
@tenant_option
@context_options
def prefer(
    context: "CommandContext",
    key: str | None,
    is_default: bool,
    wanted: bool | None,
    condition: str | None,
    spans: tuple[str, ...],
    digest: str | None,
    cleared: tuple[str, ...],
    **names: Any,
) -> None:
    """Set a preference for exactly this event, category and channel. Options that are not given stay unchanged."""
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - see above
    from sereno.notifications.recipients.preference import Preference  # noqa: PLC0415 - slow to import; --help needs none

    if (key is None) != is_default:
        raise click.UsageError("Pass either a KEY, or --default for recipients without a preference of their own.")
    given: dict[str, Any] = {
        "wanted": wanted,
        "condition": None if condition is None else _condition(condition),
        "quiet": [_span(span) for span in spans] or None,
        "digest": digest,
    }
    wish = {aspect: value for aspect, value in given.items() if value is not None}
    if not wish and not cleared:
        raise click.UsageError("Pass at least one of --on, --off, --condition, --quiet, --digest and --clear.")
    if both := sorted({*wish} & {*cleared}):
        raise click.UsageError(f"Set or --clear, not both: {', '.join(both)}.")
    wish |= names | dict.fromkeys(cleared)
    # Raises on an invalid preference, before anything is written.
    Preference(recipient=key, **wish)
    if key is not None:
        run_query(context, notifications.find_recipient(key, tenant=wish["tenant"]))
    connection = context.connection()
    with any_application(context) as app, connection.transaction():
        app.recipients.prefer(key, conn=connection, **wish)
        context.run(notifications.record_audit("recipient.prefer", f"recipient {key}" if key else "the default", wish))
    click.echo(
        f"Saved{f' for {key}' if key else ' as the default'}; it applies to everything that is not sent yet.", err=True
    )


@recipient.command(epilog="Example: sereno recipient unsubscribe user:7 email ana@example.lv")
@click.argument("key")
@click.argument("channel")
@click.argument("address")
@click.option("--reason", help="Reason, stored with the address.")
@tenant_option
@context_options
def unsubscribe(
    context: "CommandContext", key: str, channel: str, address: str, reason: str | None, tenant: str | None
) -> None:
    """Unsubscribe an address. Nothing is sent to it again, whatever the preferences."""
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - slow to import; --help needs none

    detail = run_query(context, notifications.show_recipient(key, tenant=tenant))
    connection = context.connection()
    with any_application(context) as app, connection.transaction():
        is_known = app.recipients.unsubscribe(key, channel, address, tenant=tenant, reason=reason, conn=connection)
        if is_known:
            change = {"tenant": tenant, "channel": channel, "address": notifications.masked(address), "reason": reason}
            context.run(notifications.record_audit("recipient.unsubscribe", f"recipient {key}", change))
    if not is_known:
        known = (
            ", ".join(f"{each.channel} {notifications.masked(each.address)}" for each in detail.addresses[:8]) or "none"
        )
        raise InvalidArguments(f"{key} has no such address for {channel!r:.60}; known addresses: {known}")
    click.echo(f"Unsubscribed {notifications.masked(address)} of {channel}.", err=True)


@recipient.command(epilog="Example: sereno recipient delete user:7 --yes")
@click.argument("key")
@click.option("-y", "--yes", is_flag=True, help="Confirm the deletion.")
@tenant_option
@context_options
def delete(context: "CommandContext", key: str, yes: bool, tenant: str | None) -> None:
    """Delete a recipient with addresses, preferences and inbox. Deliveries stay as history."""
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - slow to import; --help needs none

    detail = run_query(context, notifications.show_recipient(key, tenant=tenant))
    own = sum(row.is_own for row in detail.preferences)
    if not yes:
        raise Refused(
            f"this would delete {key}, with addresses ({len(detail.addresses)}), preferences ({own}) "
            "and inbox: confirm with --yes"
        )
    connection = context.connection()
    with any_application(context) as app, connection.transaction():
        app.recipients.delete(key, tenant=tenant, conn=connection)
        context.run(notifications.record_audit("recipient.delete", f"recipient {key}", {"tenant": tenant}))
    click.echo(f"Deleted: {key}.", err=True)


def _addresses(ways: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for way in ways:
        channel, sign, address = way.partition("=")
        if not sign or not channel.strip() or not address.strip():
            raise InvalidArguments(f"{way!r:.60}: expected CHANNEL=ADDRESS, such as email=ana@example.lv")
        found.setdefault(channel.strip(), []).append(address.strip())
    return found


def _condition(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArguments(f"the condition is not valid JSON: {error}") from None


def _span(text: str) -> "QuietHours":
    from sereno.notifications.recipients.quiet_hours import QuietHours  # noqa: PLC0415 - slow to import; --help needs none

    hours, _, days = text.strip().partition(" ")
    start, sign, end = hours.partition("-")
    if not sign:
        raise InvalidArguments(f'{text!r:.60}: expected quiet hours such as "22:00-08:00" or "22:00-10:00 fri,sat"')
    return QuietHours(start, end, [day for day in days.split(",") if day.strip()] if days.strip() else None)
