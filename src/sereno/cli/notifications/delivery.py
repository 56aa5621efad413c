"""`sereno delivery …`: list and requeue deliveries."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.jobs.operation import background_option, check_rate, counted_in_time, rate_option, tell_begun
from sereno.cli.notifications.page import (
    OrderedGroup,
    application,
    end_of_page,
    page_options,
    run_query,
    show_lines,
    shown,
    stored_json,
)
from sereno.cli.options import MomentType, bulk_options, context_options, output_option, searched
from sereno.cli.output import Column, chosen_form, counted, short_time, show_json, show_list
from sereno.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sereno.cli.context import CommandContext
    from sereno.jobs.filters import DeliveryFilter
    from sereno.notifications.operations import DeliveryDetail
    from sereno.notifications.rows import DeliveryLine

# Repeated from sereno.notifications.deliveries.delivery, which is slow to import: --help needs none of it.
STATES = (
    *("pending", "sending", "sent", "delivered", "read", "bounced"),
    *("skipped", "failed", "invalid", "expired", "dead", "unknown"),
)
# Deliveries that one transaction requeues.
BATCH = 1000
# Entries that a dry run lists for each count.
MOST_COUNTS = 8


def _what_happened(line: Any) -> str:
    error = ": ".join(part for part in (line.error_code, line.error_message) if part)
    return shown("; ".join(part for part in (line.reason, error) if part))


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("event", lambda line: shown(line.event or "gone"), "name"),
    Column("event id", lambda line: str(line.event_id), "number", 4),
    Column("recipient", lambda line: shown(line.recipient or "gone"), "name"),
    Column("channel", lambda line: shown(line.channel), "name"),
    Column("tenant", lambda line: shown(line.tenant), "name", 1),
    Column("tries", lambda line: line.attempts, "number", 3),
    Column("due", lambda line: line.due_at if line.state == "pending" else None, gives_way=2),
    Column("sent", lambda line: line.sent_at, gives_way=2),
    Column("what happened", _what_happened, "wide"),
)
RECEIPT_COLUMNS = (
    Column("receipt", lambda line: shown(line.receipt_id), "wide"),
    Column("outcome", lambda line: line.outcome),
    Column("code", lambda line: shown(line.code)),
    Column("at", lambda line: line.at),
)


def which_options(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options that select deliveries."""
    for option in (
        click.option("--since", type=MomentType(), help='A date, or an age such as "2h".'),
        click.option("--tenant"),
        click.option("--subject", help="Subject of the event."),
        click.option("--type", "kind", metavar="NAME", help="Type of the event."),
        click.option("--event", type=int, metavar="ID", help="Id of the event."),
        click.option("--recipient", metavar="KEY", help="Key of the recipient; with --tenant, of that tenant."),
        click.option("-c", "--channel"),
        click.option("-s", "--state", "states", multiple=True, type=click.Choice(STATES), help="Repeatable."),
    ):
        function = option(function)
    return function


@click.group(cls=OrderedGroup)
def delivery() -> None:
    """List and requeue deliveries."""


@delivery.command(
    "list", epilog="Example: sereno delivery list 'state:failed channel:email event:tender.* created:2d..'"
)
@click.argument("search", required=False)
@which_options
@page_options
@output_option
@context_options
def list_deliveries(
    context: "CommandContext", limit: int, before: int | None, fail_empty: bool, form: str, **which: Any
) -> int:
    """List deliveries, newest first.

    Those that failed (bounced, failed, invalid, expired, dead, unknown) and those of a subject, event or recipient are
    found however old they are. Other filters, and SEARCH, cover the newest 100,000.
    """
    from sereno.notifications.operations import list_deliveries as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = run_query(context, operation(_filter(**which), limit=limit, before=before))
    show_list(form, found, COLUMNS, empty="No delivery matches.")
    return end_of_page(form, found, limit, fail_empty)


@delivery.command(epilog="Example: sereno delivery show 4711")
@click.argument("number", type=int, metavar="DELIVERY")
@click.option("--reveal", is_flag=True, help="Show the whole address.")
@output_option
@context_options
def show(context: "CommandContext", number: int, reveal: bool, form: str) -> None:
    """Show a delivery: its event, address, outcome and receipts."""
    from sereno.archive.lookup import or_archived  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.operations import masked, show_delivery  # noqa: PLC0415 - see above

    detail = run_query(context, or_archived("delivery", number, show_delivery(number)))
    if reveal:
        from sereno.notifications.reveal import reveal_delivery  # noqa: PLC0415 - see above

        context.run(reveal_delivery(detail))
    if detail.delivery.address is not None and not reveal:
        detail.delivery.address = masked(detail.delivery.address)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
    else:
        _show_page(detail, form)


def _show_page(detail: "DeliveryDetail", form: str) -> None:
    row = detail.delivery
    about = f" ({row.subject})" if row.subject else ""
    address_reason = f": {row.address_reason}" if row.address_reason else ""
    is_good = row.address_state in (None, "active")
    show_lines(
        (
            ("delivery", row.id),
            ("state", row.state),
            ("reason", row.reason),
            ("event", f"{row.event_id}  {row.event or 'gone'}{about}"),
            ("payload", stored_json(row.payload)),
            ("recipient", row.recipient or f"gone (was number {row.recipient_id})"),
            ("tenant", row.tenant),
            ("channel", row.channel + (f", account {row.account}" if row.account else "")),
            ("address", row.address or ("gone" if row.address_id else None)),
            ("", None if is_good else f"this address is {row.address_state}{address_reason}"),
            ("tries", f"{row.attempts}" + (f", {row.unknowns} of them without a response" if row.unknowns else "")),
            ("job", row.job_id),
            ("provider id", row.provider_id),
            ("error", ": ".join(part for part in (row.error_code, row.error_message) if part)),
            *(
                (label, short_time(at))
                for label, at in (
                    ("created", row.created_at),
                    ("due", row.due_at),
                    ("expires", row.expires_at),
                    ("sent", row.sent_at),
                    ("receipt", row.receipt_at),
                    ("changed", row.changed_at),
                )
                if at is not None
            ),
        )
    )
    if detail.receipts:
        click.echo()
        show_list(form, detail.receipts, RECEIPT_COLUMNS, empty="")


@delivery.command(epilog="Example: sereno delivery requeue --state failed --channel email --dry-run")
@click.argument("ids", nargs=-1, type=int, metavar="[DELIVERY]...")
@click.option("--search", metavar="TEXT", help="A search as in delivery list, such as 'error:timeout created:2d..'.")
@which_options
@rate_option
@background_option
@bulk_options
@output_option
@context_options
def requeue(
    context: "CommandContext",
    ids: tuple[int, ...],
    rate: float | None,
    background: bool,
    dry_run: bool,
    yes: bool,
    fail_empty: bool,
    form: str,
    **which: Any,
) -> int:
    """Requeue deliveries that did not arrive, with all their attempts again. Needs -a, or --background."""
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - slow to import; --help needs none

    wanted = _filter(**which)
    if bool(ids) != wanted.is_empty:
        raise click.UsageError("Pass either ids, or a filter such as --state failed.")
    if background and not dry_run:
        return _begin(context, wanted, ids, rate=rate, yes=yes, form=form, fail_empty=fail_empty)
    if not background:
        check_rate(rate)
    found = [] if ids else run_query(context, notifications.requeueable(wanted))
    if dry_run and ids:
        found = [line for number in ids for line in [run_query(context, notifications.show_delivery(number)).delivery]]
        found = [line for line in found if line.state in notifications.REQUEUEABLE]
    if dry_run:
        return _report_tally(found, fail_empty=fail_empty, form=form)
    if found and not yes:
        raise Refused(f"this would requeue {_how_many(found)}: check with --dry-run, confirm with --yes")
    chosen = list(ids) or [line.id for line in found]
    done = _requeue(context, [number for number in chosen if 0 < number <= notifications.LARGEST_ID])
    return _report_requeued(chosen, done, is_named=bool(ids), fail_empty=fail_empty, form=form)


def _begin(
    context: "CommandContext",
    wanted: "DeliveryFilter",
    ids: tuple[int, ...],
    *,
    rate: float | None,
    yes: bool,
    form: str,
    fail_empty: bool,
) -> int:
    """Start a background operation on deliveries."""
    from sereno.bulk import operations as bulk  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications import operations as notifications  # noqa: PLC0415 - slow to import; --help needs none

    named = [number for number in ids if 0 < number <= notifications.LARGEST_ID] if ids else None
    if named is None and not yes:
        raise Refused("this would requeue every delivery that matches: check with --dry-run, confirm with --yes")
    run_query(context, notifications.check_filter(wanted))
    total = counted_in_time(context, bulk.count_requeue(wanted, named))
    made = context.run(bulk.begin_requeue(wanted, ids=named, rate=rate, yes=yes, total=total))
    return tell_begun(made, form=form, fail_empty=fail_empty)


def _requeue(context: "CommandContext", chosen: "Sequence[int]") -> list[int]:
    """Requeue in batches; each transaction also writes the audit record."""
    from sereno.notifications.operations import record_audit  # noqa: PLC0415 - slow to import; --help needs none

    done: list[int] = []
    with application(context) as app:
        for start in range(0, len(chosen), BATCH):
            with context.connection().transaction():
                back = app.notifications.requeue(chosen[start : start + BATCH], conn=context.connection())
                if back:
                    subject = f"delivery {back[0]}" if len(back) == 1 else f"{len(back)} deliveries"
                    context.run(record_audit("delivery.requeue", subject, {"count": len(back), "ids": back}))
            done += back
    return done


def _how_many(found: "Sequence[DeliveryLine]") -> str:
    from sereno.notifications.operations import MOST_REQUEUED  # noqa: PLC0415 - slow to import; --help needs none

    first = "the newest " if len(found) >= MOST_REQUEUED else ""
    return first + _deliveries(len(found))


def _deliveries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def _report_tally(found: "Sequence[DeliveryLine]", *, fail_empty: bool, form: str) -> int:
    from sereno.notifications.operations import tally  # noqa: PLC0415 - slow to import; --help needs none

    counts = tally(found)
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"total": len(found)} | {f"by_{name}": each for name, each in counts.items()})
    elif not found:
        click.echo("No delivery matches: there is nothing to requeue.")
    else:
        click.echo(f"Would requeue {_how_many(found)}.")
        for name, each in counts.items():
            parts = ", ".join(f"{shown(key)} {count:,}" for key, count in list(each.items())[:MOST_COUNTS])
            click.echo(f"  by {name}: {parts}")
    return NOTHING_MATCHED if fail_empty and not found else 0


def _report_requeued(
    chosen: "Sequence[int]", done: "Sequence[int]", *, is_named: bool, fail_empty: bool, form: str
) -> int:
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"done": done}, indent=2 if form == "json" else 0)
    else:
        click.echo(f"Requeued: {_deliveries(len(done))}." if done else "No delivery matched: nothing was changed.")
    left = sorted(set(chosen) - set(done))
    if left and is_named:
        names = ", ".join(map(str, left))
        click.echo(f"Unknown, pending, or already delivered: {names} (see `sereno delivery show`).", err=True)
    elif left:
        click.echo(f"{counted(len(left), 'other')} changed state in the meantime.", err=True)
    return NOTHING_MATCHED if not done and (fail_empty or is_named) else 0


def _filter(
    states: tuple[str, ...],
    channel: str | None,
    recipient: str | None,
    event: int | None,
    tenant: str | None,
    since: datetime | None,
    kind: str | None,
    subject: str | None,
    search: str | None,
) -> "DeliveryFilter":
    from sereno.jobs.filters import DeliveryFilter  # noqa: PLC0415 - see above
    from sereno.notifications.search_fields import DELIVERY_FIELDS  # noqa: PLC0415 - slow to import; --help needs none

    found = searched(search, DELIVERY_FIELDS)
    return DeliveryFilter(states or None, channel, recipient, event, tenant, since, kind, subject, found)
