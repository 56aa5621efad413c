"""Events as rows, and the walk from an event to its deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sereno.store.statement import Operation, Statement, queries

_sql = queries("events")
_waiting = msgspec.json.Decoder(list[tuple[str, str, int, float]])


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be written. `audience`: keys of recipients, or None for all who want it."""

    type: str
    payload: bytes
    channels: Sequence[str]
    tenant: str | None = None
    subject: str | None = None
    key: str | None = None
    category: str | None = None
    audience: Sequence[str] | None = None
    critical: bool = False
    opt_in: bool = False
    due_at: datetime | None = None
    ttl: float | None = None
    note: str | None = None


class Walked(NamedTuple):
    """What a step of a fan-out made.

    `waiting`: channel, account, how many deliveries, and in how many seconds they are due. `made`: deliveries, also
    those that say why nothing is sent. `more`: there are recipients left.
    """

    waiting: list[tuple[str, str, int, float]]
    made: int
    more: bool


def notify(event: NewEvent) -> Operation[tuple[int, bool]]:
    """Write it; answers its id, and whether it is new."""
    values: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__}
    values |= {
        "tenant": event.tenant or "",
        "payload": event.payload.decode(),
        "channels": list(event.channels),
        "audience": None if event.audience is None else list(event.audience),
    }
    rows = yield Statement(_sql["notify"], values)
    if not rows:
        # Another transaction has just committed the same event; this statement's snapshot is older.
        rows = yield Statement(_sql["notify"], values)
    return rows[0][0], rows[0][1]


def name_recipients(event: int) -> Operation[None]:
    """Those who are named and were never heard of."""
    yield Statement(_sql["name_recipients"], {"event": event})


def fan_out(event: int, size: int) -> Operation[Walked]:
    """Deliveries for the next `size` recipients."""
    rows = yield Statement(_sql["fan_out"], {"event": event, "size": size})
    waiting, made, more = rows[0]
    return Walked(_waiting.decode(waiting), made, bool(more))
