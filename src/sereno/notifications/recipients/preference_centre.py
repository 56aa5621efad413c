"""The preference centre: what a recipient sees of their own preferences, and what they can change there.

It writes the same rows as `app.recipients.prefer` and as an unsubscribe link.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from sereno.channels.contract import IN_APP
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications import queries as notification_queries
from sereno.notifications.operations import find_recipient, masked
from sereno.notifications.recipients import store
from sereno.notifications.recipients.address_requests import REQUESTED
from sereno.notifications.recipients.digest_choices import DigestChange, digest_rows
from sereno.notifications.recipients.message_kind import MessageKind
from sereno.notifications.recipients.operations import PreferenceData, prefer
from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.preference_choices import (
    ChoiceChange,
    ChoiceLine,
    lines,
    rows_for,
)
from sereno.notifications.recipients.quiet_hours import MOST_SPANS, QuietHours
from sereno.notifications.recipients.unsubscribe import Unsubscribe
from sereno.notifications.rows import AddressRow, RecipientRow
from sereno.zones import zone as find_zone

# Address states in which messages can be sent to it, now or once it is verified.
REACHABLE = ("active", "unverified")
# Bounds of one change: more than a page has.
MOST_CHANGES, MOST_STOPPED = 2000, 200
LONGEST_ZONE = 100
STOPPED = "by the recipient, in the preference centre"


class OwnAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address as its owner sees it. `address`: masked, because a link to the page may have been forwarded."""

    id: int
    channel: str
    address: str
    state: str


class QuietSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of quiet hours. `days`: on which it starts; None for every day."""

    start: str
    end: str
    days: list[str] | None


class ScopedQuiet(msgspec.Struct, frozen=True, kw_only=True):
    """Quiet hours of a narrower scope than everything, which the application has set."""

    category: str | None
    event: str | None
    channel: str | None
    spans: list[QuietSpan]


class QuietChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Quiet hours for everything. `own`: None if the recipient has set none, then `default` applies."""

    own: list[QuietSpan] | None
    default: list[QuietSpan]
    others: list[ScopedQuiet]


class PreferenceCentre(msgspec.Struct, frozen=True, kw_only=True):
    """All that a recipient can see and change. `zone`: None means UTC. `can_add`: channels they can add to."""

    zone: str | None
    lines: list[ChoiceLine]
    quiet: QuietChoice
    addresses: list[OwnAddress]
    can_add: list[str]


class PreferenceChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the recipient has changed; all else stays. `quiet`: null removes their own hours, so the default applies.

    `stop`: ids of addresses to which nothing is sent any more.
    """

    choices: Annotated[list[ChoiceChange], msgspec.Meta(max_length=MOST_CHANGES)] = []
    digests: Annotated[list[DigestChange], msgspec.Meta(max_length=MOST_CHANGES)] = []
    quiet: Annotated[list[QuietHours], msgspec.Meta(max_length=MOST_SPANS)] | msgspec.UnsetType | None = msgspec.UNSET
    zone: Annotated[str, msgspec.Meta(max_length=LONGEST_ZONE)] | None = None
    stop: Annotated[list[int], msgspec.Meta(max_length=MOST_STOPPED)] = []


def read_centre(
    key: str, kinds: Sequence[MessageKind], *, tenant: str | None, can_add: Sequence[str] = ()
) -> Operation[PreferenceCentre]:
    """Return what the recipient sees; ConfigurationError if there is no such recipient."""
    row = yield from find_recipient(key, tenant=tenant)
    preferences, addresses = yield from _rows(row)
    return PreferenceCentre(
        zone=row.zone,
        lines=lines(preferences, kinds, _channels(kinds, addresses)),
        quiet=_quiet(preferences),
        addresses=[
            OwnAddress(id=each.id, channel=each.channel, address=masked(each.address), state=each.state)
            for each in addresses
        ],
        can_add=list(can_add),
    )


def change_centre(
    key: str,
    changes: PreferenceChanges,
    kinds: Sequence[MessageKind],
    *,
    tenant: str | None,
    can_add: Sequence[str] = (),
) -> Operation[PreferenceCentre]:
    """Apply the changes, all or none; return what the recipient sees then. The caller's transaction commits."""
    # Locked, because the choices are decided from rows that another change could replace meanwhile.
    if not (yield from store.lock(key, tenant=tenant)):
        raise ConfigurationError(f"there is no recipient {key!r:.80}")
    row = yield from find_recipient(key, tenant=tenant)
    preferences, addresses = yield from _rows(row)
    channels = _channels(kinds, addresses)
    for each in rows_for(key, preferences, kinds, channels, changes.choices):
        yield from prefer(key, {**_scope(each), "tenant": tenant, "wanted": each.wanted})
    for each in digest_rows(key, preferences, kinds, channels, changes.digests):
        yield from prefer(key, {**_scope(each), "tenant": tenant, "digest": each.digest})
    if not isinstance(changes.quiet, msgspec.UnsetType):
        yield from prefer(key, {"tenant": tenant, "quiet": changes.quiet})
    if changes.zone is not None:
        find_zone(changes.zone)
        yield from store.upsert(key, tenant=tenant, locale=None, zone=changes.zone, data=None)
    yield from _stop(key, tenant, addresses, changes.stop)
    return (yield from read_centre(key, kinds, tenant=tenant, can_add=can_add))


def audit_detail(changes: PreferenceChanges, tenant: str | None) -> dict[str, Any]:
    """Return what an operator's change for a recipient stores in the audit log."""
    detail: dict[str, Any] = msgspec.to_builtins(changes)
    return {"tenant": tenant, **detail}


def _rows(row: RecipientRow) -> Operation[tuple[list[Preference], list[AddressRow]]]:
    preferences = yield from notification_queries.preferences(row.id, tenant=row.tenant)
    addresses = yield from notification_queries.addresses(row.id)
    # An address that they have requested is theirs once it is confirmed.
    known = [each for each in addresses if each.state != "unverified" or each.reason != REQUESTED]
    return [each.preference(row.key) for each in preferences], known


def _channels(kinds: Sequence[MessageKind], addresses: Sequence[AddressRow]) -> list[str]:
    """Return the channels that reach the recipient; the inbox, which needs no address, is the last."""
    used = {channel for kind in kinds for channel in kind.channels}
    reached = {each.channel for each in addresses if each.state in REACHABLE} & used
    return [*sorted(reached - {IN_APP}), *([IN_APP] if IN_APP in used else [])]


def _scope(row: Preference) -> PreferenceData:
    return {"category": row.category, "event": row.event, "channel": row.channel}


def _quiet(preferences: Sequence[Preference]) -> QuietChoice:
    own: list[QuietSpan] | None = None
    default: list[QuietSpan] = []
    others = []
    for row in preferences:
        if row.quiet is None:
            continue
        spans = [_span(each) for each in row.quiet]
        if (row.category, row.event, row.channel) != (None, None, None):
            if row.recipient is not None:
                others.append(ScopedQuiet(category=row.category, event=row.event, channel=row.channel, spans=spans))
        elif row.recipient is not None:
            own = spans
        else:
            default = spans
    return QuietChoice(own=own, default=default, others=others)


def _span(span: QuietHours) -> QuietSpan:
    return QuietSpan(start=span.start, end=span.end, days=None if span.days is None else list(span.days))


def _stop(key: str, tenant: str | None, addresses: Sequence[AddressRow], ids: Sequence[int]) -> Operation[None]:
    by_id = {each.id: each for each in addresses}
    # In the order of locks.
    for number in sorted(set(ids)):
        address = by_id.get(number)
        if address is None:
            raise InvalidArguments(f"the recipient has no address {number}")
        yield from store.unsubscribe(Unsubscribe(tenant, key, address.channel, number), STOPPED)
