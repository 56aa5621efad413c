"""Stores events and creates their deliveries."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.channels.contract import EscalationStep
from sereno.database.statement import Operation, Statement, queries
from sereno.notifications import broadcasts
from sereno.notifications.deliveries.stats import DeliveryChange
from sereno.notifications.jobs import QUEUE

_sql = queries("notifications/events")
_waiting = msgspec.json.Decoder(list[tuple[str, str, int, float]])
_skipped = msgspec.json.Decoder(list[tuple[str, str | None, int]])
_changes = msgspec.json.Decoder(list[DeliveryChange])


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to store. `audience`: keys of recipients. `topic`: for its subscribers. Neither: for all who want it."""

    type: str
    payload: bytes
    channels: Sequence[str]
    tenant: str | None = None
    subject: str | None = None
    key: str | None = None
    category: str | None = None
    audience: Sequence[str] | None = None
    topic: str | None = None
    critical: bool = False
    opt_in: bool = False
    due_at: datetime | None = None
    ttl: float | None = None
    note: str | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    throttle: tuple[int, float] | None = None
    digest: tuple[str, float] | None = None
    trace: str | None = None
    # Deliveries in a second.
    rate: float | None = None
    variants: bytes | None = None


class EventStatus(msgspec.Struct, frozen=True):
    """The status of an event. `state`: pending, sent, overdue (due, but no delivery was sent yet) or cancelled."""

    id: int
    due_at: datetime
    is_due: bool
    matched_at: datetime | None
    deliveries: dict[str, int]
    cancelled_at: datetime | None = None

    @property
    def state(self) -> Literal["pending", "sent", "overdue", "cancelled"]:
        if self.deliveries.keys() & {"sent", "delivered", "read"}:
            return "sent"
        if self.cancelled_at is not None:
            return "cancelled"
        return "overdue" if self.is_due else "pending"


class EscalatedDelivery(NamedTuple):
    """The result of one escalation step.

    `waiting`: recipients for whom it is too early to decide. `ripe`: recipients who get the next channel.
    `created`: new deliveries by account. `last_recipient`: of this page; None at the end. `changes`: for the
    statistics.
    """

    waiting: int
    ripe: int
    last_recipient: int | None
    created: list[tuple[str, int]]
    changes: list[DeliveryChange]


class FanOutStep(NamedTuple):
    """The result of one fan-out step.

    `waiting`: channel, account, number of deliveries and seconds until they are due. `created`: new deliveries,
    including skipped ones. `more`: recipients are left. `changes`: for the statistics. `ahead`: seconds until the next
    delivery is due, of an event with a rate.
    """

    waiting: list[tuple[str, str, int, float]]
    created: int
    more: bool
    changes: list[DeliveryChange]
    ahead: float = 0.0


def notify(event: NewEvent) -> Operation[tuple[int, bool]]:
    """Store the event. Return its id and whether it is new."""
    values: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__}
    values |= {
        "tenant": event.tenant or "",
        "payload": event.payload.decode(),
        "channels": list(event.channels),
        "audience": None if event.audience is None else list(event.audience),
        "steps": msgspec.json.encode(event.steps).decode() if event.steps else None,
        "throttle_most": event.throttle[0] if event.throttle else None,
        "throttle_seconds": event.throttle[1] if event.throttle else None,
        "digest": event.digest[0] if event.digest else None,
        "digest_seconds": event.digest[1] if event.digest else None,
        "variants": event.variants.decode() if event.variants else None,
    }
    del values["throttle"]
    rows = yield Statement(_sql["notify"], values)
    if not rows:
        # Another transaction has just committed the same event; this statement's snapshot is older.
        rows = yield Statement(_sql["notify"], values)
    return rows[0][0], rows[0][1]


def name_recipients(event: int) -> Operation[None]:
    """Create the recipients that the event names and that do not exist yet."""
    yield Statement(_sql["name_recipients"], {"event": event})


def fan_out(
    event: int, size: int, batches: Mapping[str, int] | None = None, queue: str = QUEUE
) -> Operation[FanOutStep]:
    """Create deliveries for the next `size` recipients. `batches`: deliveries per call of each channel."""
    begun = yield Statement(_sql["begin_fan_out"], {"event": event})
    rate, ahead = begun[0][0] if begun else None, 0.0
    if rate is not None:
        size = broadcasts.step_size(rate, size)
        batches = {name: broadcasts.batch_size(rate, most) for name, most in (batches or {}).items()}
    sizes = msgspec.json.encode(batches or {}).decode()
    rows = yield Statement(_sql["fan_out"], {"event": event, "size": size, "queue": queue, "sizes": sizes})
    waiting, created, more, kind, tenant, skipped, made = rows[0]
    if made is not None:
        waiting, ahead = yield from broadcasts.pace(event, made)
    found = _waiting.decode(waiting)
    changes = [DeliveryChange(channel, kind, tenant, "pending", None, count) for channel, _, count, _ in found]
    changes += [
        DeliveryChange(channel, kind, tenant, "skipped", why, count) for channel, why, count in _skipped.decode(skipped)
    ]
    return FanOutStep(found, created, bool(more), changes, ahead)


# Delivery states that count as reached, by the `unless` of an escalation step.
REACHED = {
    "sent": ["sent", "delivered", "read"],
    "delivered": ["delivered", "read"],
    "read": ["read"],
}


def steps(event: int) -> Operation[list[EscalationStep]]:
    """Return the escalation steps of an event."""
    rows = yield Statement(_sql["steps"], {"event": event})
    return msgspec.json.decode(rows[0][0], type=list[EscalationStep]) if rows else []


def without_job(queue: str = QUEUE) -> Operation[list[tuple[int, str | None, str | None]]]:
    """Return (id, tenant, trace) of due events of a queue that have no fan-out job."""
    rows = yield Statement(_sql["without_job"], {"queue": queue})
    return msgspec.json.decode(rows[0][0], type=list[tuple[int, str | None, str | None]])


def escalate(
    event: int, step: EscalationStep, last_recipient: int, size: int, queue: str = QUEUE
) -> Operation[EscalatedDelivery]:
    """Create deliveries on the second channel for those of the next `size` recipients that the first did not reach."""
    rows = yield Statement(
        _sql["escalate"],
        {
            "event": event,
            "first": step.first,
            "second": step.second,
            "after": step.after,
            "reached": REACHED[step.unless],
            "last_recipient": last_recipient,
            "size": size,
            "queue": queue,
        },
    )
    waiting, ripe, last, created, changes = rows[0]
    by_account = msgspec.json.decode(created, type=list[tuple[str, int]])
    return EscalatedDelivery(waiting, ripe, last, by_account, _changes.decode(changes))


def status(kind: str, subject: str | None, key: str | None, tenant: str | None) -> Operation[EventStatus | None]:
    """Return the status of an event, or None if it does not exist."""
    rows = yield Statement(_sql["status"], {"type": kind, "subject": subject, "key": key, "tenant": tenant or ""})
    if not rows:
        return None
    number, due_at, is_due, matched_at, cancelled_at, states = rows[0]
    found = msgspec.json.decode(states, type=dict[str, int])
    return EventStatus(number, due_at, is_due, matched_at, found, cancelled_at)
