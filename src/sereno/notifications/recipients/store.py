"""Stores recipients, their addresses and preferences, and their inbox."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.unsubscribe import Unsubscribe

# The aspects of a preference.
ASPECTS = ("wanted", "condition", "quiet")

_sql = queries("notifications/recipients/store")


class InboxRow(msgspec.Struct, kw_only=True):
    """One message in an inbox."""

    id: int
    event: str
    title: str
    body: str
    data: Any
    created_at: datetime
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None


_inbox = msgspec.json.Decoder(list[InboxRow])


def upsert(
    key: str,
    *,
    tenant: str | None,
    locale: str | None,
    zone: str | None,
    data: Mapping[str, Any] | None,
    addresses: Sequence[Mapping[str, Any]] = (),
) -> Operation[int]:
    """Create or update the recipient and its addresses; omitted fields do not change. Return the id."""
    rows = yield Statement(
        _sql["upsert"],
        {
            "tenant": tenant or "",
            "key": key,
            "locale": locale,
            "zone": zone,
            "data": None if data is None else encoder.encode(data).decode(),
        },
    )
    recipient = int(rows[0][0])
    if addresses:
        yield Statement(
            _sql["add_addresses"], {"recipient": recipient, "addresses": encoder.encode(addresses).decode()}
        )
    return recipient


def change_address(
    key: str, channel: str, addresses: Sequence[str], *, tenant: str | None, state: str, reason: str | None
) -> Operation[bool]:
    """`addresses`: the spellings in which the address may be stored."""
    rows = yield Statement(
        _sql["change_address"],
        {
            "tenant": tenant or "",
            "key": key,
            "channel": channel,
            "addresses": list(addresses),
            "state": state,
            "reason": reason,
        },
    )
    return bool(rows)


def unsubscribe(about: Unsubscribe, reason: str) -> Operation[bool]:
    """Apply an unsubscribe link; False if the recipient or the address no longer exists."""
    who = {"tenant": about.tenant or "", "key": about.recipient, "channel": about.channel}
    if about.category is None:
        rows = yield Statement(_sql["unsubscribe_address"], {**who, "address": about.address, "reason": reason})
    else:
        rows = yield Statement(_sql["unsubscribe_category"], {**who, "category": about.category, "event": about.event})
    return bool(rows[0][0])


def delete(key: str, *, tenant: str | None) -> Operation[bool]:
    rows = yield Statement(_sql["delete"], {"tenant": tenant or "", "key": key})
    return bool(rows)


def prefer(
    wish: Preference, changes: Collection[str], *, compiled: str | None, quiet: Sequence[Mapping[str, Any]] | None
) -> Operation[bool]:
    """Store a preference for exactly this scope; False if there is no such recipient.

    `changes`: the aspects to change. `compiled`, `quiet`: in the format of the database.
    """
    rows = yield Statement(
        _sql["prefer"],
        {
            "recipient": wish.recipient,
            "tenant": wish.tenant or "",
            "category": wish.category,
            "event": wish.event,
            "channel": wish.channel,
            "wanted": wish.wanted,
            "filter": None if wish.condition is None else encoder.encode(wish.condition).decode(),
            "condition": compiled,
            "quiet": None if quiet is None else encoder.encode(quiet).decode(),
            "changes": list(changes),
        },
    )
    if rows and any(getattr(wish, aspect) is None for aspect in changes or ASPECTS):
        yield Statement(_sql["forget_preference"], {"id": rows[0][0]})
    return bool(rows)


def inbox(key: str, *, tenant: str | None, before: int | None, most: int, archived: bool) -> Operation[list[InboxRow]]:
    found, _ = yield from inbox_page(key, tenant=tenant, before=before, most=most, archived=archived)
    return found


def inbox_page(
    key: str,
    *,
    tenant: str | None,
    before: int | None,
    most: int,
    archived: bool,
    skip: int = 0,
    most_bytes: int | None = None,
) -> Operation[tuple[list[InboxRow], bool]]:
    """Return a page, and whether there are more. The page ends with the message that exceeds `most_bytes`."""
    given = {"tenant": tenant or "", "key": key, "before": before, "most": most, "archived": archived}
    ((raw, has_more),) = yield Statement(_sql["inbox"], {**given, "skip": skip, "bytes": most_bytes})
    return _inbox.decode(raw), has_more


def unread(key: str, *, tenant: str | None) -> Operation[int]:
    rows = yield Statement(_sql["unread"], {"tenant": tenant or "", "key": key})
    return int(rows[0][0])


def mark(
    key: str, what: Literal["seen", "read", "archived"], ids: Sequence[int] | None, *, tenant: str | None
) -> Operation[int]:
    rows = yield Statement(
        _sql["mark"], {"tenant": tenant or "", "key": key, "what": what, "ids": None if ids is None else list(ids)}
    )
    return int(rows[0][0])
