"""Messages of an inbox, and the state of many inboxes in one query, for connected clients."""

from collections.abc import Sequence

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.recipients.rows import InboxRow, InboxState

# Upper bound of the unread count: enough for a badge, and cheap enough to count for all clients every second.
MOST_UNREAD = 100

_sql = queries("notifications/recipients/inbox_queries")
_inbox = msgspec.json.Decoder(list[InboxRow])


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


def inbox_states(owners: Sequence[tuple[str | None, str]]) -> Operation[list[InboxState]]:
    """Return the state of each inbox, named by tenant and key, in that order; empty for an unknown recipient."""
    values = {
        "tenants": [tenant or "" for tenant, _ in owners],
        "keys": [key for _, key in owners],
        "most": MOST_UNREAD,
    }
    rows = yield Statement(_sql["inbox_states"], values)
    return [InboxState(int(unread), newest) for newest, unread in rows]


def exists(key: str, *, tenant: str | None) -> Operation[bool]:
    """Return whether the recipient exists."""
    return bool((yield Statement(_sql["exists"], {"tenant": tenant or "", "key": key}))[0][0])
