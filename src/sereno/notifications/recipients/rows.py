"""Row types of inboxes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

Mark = Literal["seen", "read", "archived"]


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


@dataclass(frozen=True, slots=True)
class InboxState:
    """`unread`: counted up to 100. `newest`: the id of the newest message that is not archived."""

    unread: int
    newest: int | None
