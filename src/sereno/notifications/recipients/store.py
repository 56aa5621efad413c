"""Stores recipients, their addresses and preferences, and marks messages in their inbox."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.recipients.preference import ASPECTS, Preference
from sereno.notifications.recipients.rows import Mark
from sereno.notifications.recipients.unsubscribe import Unsubscribe

_sql = queries("notifications/recipients/store")


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


def lock(key: str, *, tenant: str | None) -> Operation[bool]:
    """Lock the recipient until the end of the transaction; False if it does not exist."""
    return bool((yield Statement(_sql["lock"], {"tenant": tenant or "", "key": key})))


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
            "digest": wish.digest,
            "changes": list(changes),
        },
    )
    if rows and any(getattr(wish, aspect) is None for aspect in changes or ASPECTS):
        yield Statement(_sql["forget_preference"], {"id": rows[0][0]})
    return bool(rows)


def mark(key: str, what: Mark, ids: Sequence[int] | None, *, tenant: str | None) -> Operation[int]:
    rows = yield Statement(
        _sql["mark"], {"tenant": tenant or "", "key": key, "what": what, "ids": None if ids is None else list(ids)}
    )
    return int(rows[0][0])
