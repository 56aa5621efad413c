"""Operator actions on notifications: events, deliveries, recipients, channels."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications import queries as notification_queries
from sereno.notifications.deliveries import lists
from sereno.notifications.deliveries import store as delivery_store
from sereno.notifications.recipients import inbox_queries
from sereno.notifications.recipients import store as recipient_store
from sereno.notifications.recipients.rows import Mark
from sereno.notifications.rows import (
    AddressRow,
    ChannelPause,
    DeliveryLine,
    DeliveryRow,
    EventLine,
    EventRow,
    PreferenceRow,
    ReceiptRow,
    RecipientLine,
    RecipientRow,
    VariantTally,
)
from sereno.search.sql_terms import SearchParams
from sereno.text import check_text

# States that an operator may requeue: the delivery ended without arriving, or its outcome is unknown.
REQUEUEABLE = ("skipped", "failed", "invalid", "expired", "dead", "unknown", "bounced")
# Most deliveries that one command requeues, and the number of newest deliveries that it searches.
MOST_REQUEUED = 10_000
REQUEUE_WINDOW = 1_000_000
# Names listed in an error message.
NAMED = 8
# Characters of a masked address that are shown at each end.
SHOWN = 4
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TallyLine:
    """The number of deliveries of an event on one channel in one state, for one reason."""

    channel: str
    state: str
    reason: str | None
    count: int


@dataclass(frozen=True, slots=True)
class EventDetail:
    """One event, the tally of its deliveries, and their outcomes by variant of the message."""

    event: EventRow
    total: BoundedCount
    deliveries: list[TallyLine]
    variants: list[VariantTally]


@dataclass(frozen=True, slots=True)
class DeliveryDetail:
    """One delivery and its receipts."""

    delivery: DeliveryRow
    receipts: list[ReceiptRow]


@dataclass(frozen=True, slots=True)
class RecipientDetail:
    """A recipient with addresses and preferences. `unread`: messages in the inbox, counted up to a thousand."""

    recipient: RecipientRow
    addresses: list[AddressRow]
    preferences: list[PreferenceRow]
    unread: int


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel: its pending deliveries, the outcomes of the newest ones, and its pauses."""

    channel: str
    is_known: bool
    pending: BoundedCount
    sent: int
    failed: int
    unknown: int
    pauses: list[ChannelPause]


def masked(address: str) -> str:
    """Return the address masked: its owner recognises it, others cannot use it."""
    ends = min(SHOWN, len(address) // 4)
    return f"{address[:ends]}…{address[-ends:]}" if ends else "…"


def unknown_type(name: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown event type."""
    names = sorted(known)
    if not names:
        return f"there is no event type {name!r:.80}: none is declared here; declare it with app.event(…)"
    near = get_close_matches(name, names, 1)
    hint = f": did you mean {near[0]}?" if near else ";"
    more = ", …" if len(names) > NAMED else ""
    return f"there is no event type {name!r:.80}{hint} there are: {', '.join(names[:NAMED])}{more}"


# Events


def list_events(
    *,
    kind: str | None = None,
    tenant: str | None = None,
    since: datetime | None = None,
    search_params: SearchParams | None = None,
    limit: int = 50,
    before: int | None = None,
) -> Operation[list[EventLine]]:
    """Return events, newest first; `before`: the last id of the previous page. `search_params`: search terms."""
    _check_texts(type=kind, tenant=tenant)
    return (
        yield from notification_queries.events(
            kind=kind, tenant=tenant, since=since, before=before, limit=limit, search_params=search_params
        )
    )


def show_event(number: int) -> Operation[EventDetail]:
    """Return the event with its payload and the tally of its deliveries; ConfigurationError if it does not exist."""
    row = (yield from notification_queries.event(number)) if _is_id(number) else None
    if row is None:
        raise ConfigurationError(f"no event has the id {number}: `sereno event list` shows the newest")
    tally = [TallyLine(*line) for line in (yield from notification_queries.event_tally(number))]
    total = BoundedCount.bounded(sum(line.count for line in tally), notification_queries.TALLY_BOUND)
    variants = yield from notification_queries.event_variants(number)
    return EventDetail(row, total, tally, variants)


# Deliveries


def list_deliveries(
    wanted: DeliveryFilter | None = None, *, limit: int = 50, before: int | None = None
) -> Operation[list[DeliveryLine]]:
    """Return deliveries, newest first; `before`: the last id of the previous page."""
    chosen = wanted or DeliveryFilter()
    yield from check_filter(chosen)
    return (yield from lists.deliveries(chosen, before=before, limit=limit))


def show_delivery(number: int) -> Operation[DeliveryDetail]:
    """Return the delivery with its event, address and receipts; ConfigurationError if it does not exist."""
    row = (yield from notification_queries.delivery(number)) if _is_id(number) else None
    if row is None:
        raise ConfigurationError(f"no delivery has the id {number}: `sereno delivery list` shows the newest")
    return DeliveryDetail(row, (yield from notification_queries.receipts(number)))


def requeueable(wanted: DeliveryFilter) -> Operation[list[DeliveryLine]]:
    """Return the deliveries that `requeue` would send again, newest first, at most MOST_REQUEUED."""
    states = [state for state in REQUEUEABLE if wanted.states is None or state in wanted.states]
    chosen = replace(wanted, states=states)
    yield from check_filter(chosen)
    if not states:
        return []
    return (yield from lists.deliveries(chosen, before=None, limit=MOST_REQUEUED, window=REQUEUE_WINDOW))


def tally(lines: Sequence[DeliveryLine]) -> dict[str, dict[str, int]]:
    """Count the deliveries by channel, by state and by event type."""
    return {
        "channel": dict(Counter(line.channel for line in lines).most_common()),
        "state": dict(Counter(line.state for line in lines).most_common()),
        "event": dict(Counter(line.event or "gone" for line in lines).most_common()),
    }


def check_filter(wanted: DeliveryFilter) -> Operation[None]:
    """Raise ConfigurationError if the event or recipient of the filter does not exist."""
    _check_texts(
        channel=wanted.channel,
        recipient=wanted.recipient,
        tenant=wanted.tenant,
        type=wanted.type,
        subject=wanted.subject,
    )
    if wanted.event is not None and not _is_id(wanted.event):
        raise ConfigurationError(f"no event has the id {wanted.event}: `sereno event list` shows the newest")
    if wanted.recipient is not None:
        yield from find_recipient(wanted.recipient, tenant=wanted.tenant)


# Recipients


def list_recipients(
    pattern: str | None = None,
    *,
    tenant: str | None = None,
    search_params: SearchParams | None = None,
    limit: int = 50,
    before: int | None = None,
) -> Operation[list[RecipientLine]]:
    """Return recipients, newest first; `pattern` such as "user:*". `search_params`: search terms."""
    _check_texts(pattern=pattern, tenant=tenant)
    return (
        yield from notification_queries.recipients(
            pattern=pattern, tenant=tenant, before=before, limit=limit, search_params=search_params
        )
    )


def find_recipient(key: str, *, tenant: str | None = None) -> Operation[RecipientRow]:
    """Return the recipient, or raise ConfigurationError that says how to create it."""
    _check_texts(recipient=key, tenant=tenant)
    row = yield from notification_queries.recipient(key, tenant=tenant)
    if row is None:
        where = f" in the tenant {tenant}" if tenant else " without a tenant (others: --tenant)"
        create = f"sereno recipient set {shlex.quote(key)} --channel email=ADDRESS"
        raise ConfigurationError(f"there is no recipient {key!r:.80}{where}: `{create}` creates one")
    return row


def show_recipient(key: str, *, tenant: str | None = None) -> Operation[RecipientDetail]:
    """Return the recipient with its addresses and preferences."""
    row = yield from find_recipient(key, tenant=tenant)
    addresses = yield from notification_queries.addresses(row.id)
    preferences = yield from notification_queries.preferences(row.id, tenant=tenant)
    unread = yield from inbox_queries.unread(key, tenant=tenant)
    return RecipientDetail(row, addresses, preferences, unread)


def mark_inbox(
    key: str, what: Mark, ids: Sequence[int] | None, *, tenant: str | None, actor: str | None
) -> Operation[int]:
    """Mark these messages, or all. Return the number that changed. `actor`: who marks them; None for the owner."""
    count = yield from recipient_store.mark(key, what, ids, tenant=tenant)
    if actor is not None:
        detail = {"tenant": tenant, "what": what, "count": count}
        yield from record_audit("inbox.mark", f"recipient {key}", detail, actor=actor)
    return count


# Channels


def list_channels(known: Collection[str] = ()) -> Operation[list[ChannelState]]:
    """Return the channels that the code declares and those found in the database."""
    lines = yield from notification_queries.channels(known)
    pauses = yield from notification_queries.pauses()
    return [
        ChannelState(
            line.channel,
            line.is_known,
            BoundedCount.bounded(line.pending, notification_queries.PENDING_BOUND),
            line.sent,
            line.failed,
            line.unknown,
            [pause for pause in pauses if pause.channel == line.channel],
        )
        for line in lines
    ]


def pause_channel(
    channel: str, reason: str, *, account: str | None = None, actor: str | None = None
) -> Operation[bool]:
    """Stop sending on a channel, or on one account, until it is resumed. Return False if it was already paused."""
    _check_texts(channel=channel, reason=reason, account=account)
    changed = yield from delivery_store.pause_channel(channel, account or "", reason)
    if changed:
        yield from record_audit(
            "channel.pause", f"channel {channel}", {"account": account, "reason": reason}, actor=actor
        )
    return changed


# Audit


def record_audit(action: str, subject: str, detail: Mapping[str, Any], *, actor: str | None = None) -> Operation[None]:
    """Record an action in the audit log. The caller masks addresses."""
    check_text("actor", actor)
    yield from audit.audit(actor or default_actor(), action, subject, detail)


def _is_id(number: int) -> bool:
    """Return whether the number is a valid bigint id; PostgreSQL rejects larger ones."""
    return 0 < number <= LARGEST_ID


def _check_texts(**texts: str | None) -> None:
    for name, value in texts.items():
        check_text(name, value)
