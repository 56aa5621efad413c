"""Many inboxes at once: what stands in those that somebody watches."""

from collections.abc import Sequence
from dataclasses import dataclass

from sereno.database.statement import Operation, Statement, queries

# Nobody counts further on a badge, and everybody's are counted every second.
MOST_UNREAD = 100

_sql = queries("notifications/recipients/inboxes")


@dataclass(frozen=True, slots=True)
class InboxState:
    """`unread`: counted up to 100. `newest`: the id of the last message that is not put away."""

    unread: int
    newest: int | None


def standings(owners: Sequence[tuple[str | None, str]]) -> Operation[list[InboxState]]:
    """Of each owner, named by tenant and key, in that order; nothing stands in an inbox that there is not."""
    values = {
        "tenants": [tenant or "" for tenant, _ in owners],
        "keys": [key for _, key in owners],
        "most": MOST_UNREAD,
    }
    rows = yield Statement(_sql["standings"], values)
    return [InboxState(int(unread), newest) for newest, unread in rows]


def exists(key: str, *, tenant: str | None) -> Operation[bool]:
    """Return whether there is a recipient of this name."""
    return bool((yield Statement(_sql["exists"], {"tenant": tenant or "", "key": key}))[0][0])
