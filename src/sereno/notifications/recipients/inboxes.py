"""State of many inboxes in one query, for connected clients."""

from collections.abc import Sequence
from dataclasses import dataclass

from sereno.database.statement import Operation, Statement, queries

# Upper bound of the unread count: enough for a badge, and cheap enough to count for all clients every second.
MOST_UNREAD = 100

_sql = queries("notifications/recipients/inboxes")


@dataclass(frozen=True, slots=True)
class InboxState:
    """`unread`: counted up to 100. `newest`: the id of the newest message that is not archived."""

    unread: int
    newest: int | None


def standings(owners: Sequence[tuple[str | None, str]]) -> Operation[list[InboxState]]:
    """Return the state of each inbox, named by tenant and key, in that order; empty for an unknown recipient."""
    values = {
        "tenants": [tenant or "" for tenant, _ in owners],
        "keys": [key for _, key in owners],
        "most": MOST_UNREAD,
    }
    rows = yield Statement(_sql["standings"], values)
    return [InboxState(int(unread), newest) for newest, unread in rows]


def exists(key: str, *, tenant: str | None) -> Operation[bool]:
    """Return whether the recipient exists."""
    return bool((yield Statement(_sql["exists"], {"tenant": tenant or "", "key": key}))[0][0])
