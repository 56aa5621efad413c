"""Event types as rows, so that SQL can create events; and the payload check of events created in SQL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.json_values import stored
from sereno.database.statement import Operation, Statement, queries
from sereno.duration import seconds
from sereno.errors import InvalidArguments
from sereno.notifications.event import EventDefinition
from sereno.notifications.jobs import QUEUE
from sereno.notifications.recipients.message_kind import MessageKind, digest_window
from sereno.telemetry import tracing

_sql = queries("notifications/event_types")

# Most event types that one read returns.
MOST_TYPES = 1000

# Maps channel names to those that are active here, and a note about the others.
Resolve = Callable[[Sequence[str]], tuple[list[str], str | None]]


def declare(definitions: Iterable[EventDefinition], resolve: Resolve, queue: str = QUEUE) -> Operation[None]:
    """Store the event types that the code declares. `queue`: of the jobs that send them."""
    types = [{"name": each.name, "definition": _definition(each, resolve, queue)} for each in definitions]
    if types:
        yield Statement(_sql["declare"], {"types": msgspec.json.encode(types).decode()})


def _definition(event: EventDefinition, resolve: Resolve, queue: str) -> dict[str, Any]:
    channels, note = resolve(event.channels)
    throttle, digest = event.throttle, event.digest
    definition = {
        "channels": channels,
        "note": note,
        "category": event.category,
        "critical": event.critical,
        "opt_in": event.opt_in,
        "ttl": event.ttl,
        "steps": [msgspec.structs.asdict(step) for step in event.steps] or None,
        "throttle": throttle and {"most": throttle.most, "seconds": seconds(throttle.per)},
        "digest": digest and {"key": digest.key, "seconds": seconds(digest.window)},
        "variants": event.variants,
        "queue": None if queue == QUEUE else queue,
        "listed": None if event.listed else False,
    }
    return {name: value for name, value in definition.items() if value is not None}


def unchecked(event: int) -> Operation[tuple[str, bytes] | None]:
    """Return type and payload of an event that was created in SQL and has no deliveries yet; None for other events."""
    rows = yield Statement(_sql["unchecked"], {"event": event})
    return (rows[0][0], rows[0][1].encode()) if rows else None


def refuse(event: int, note: str) -> Operation[None]:
    """Close the event without deliveries."""
    yield Statement(_sql["refuse"], {"event": event, "note": note})


def declared_types() -> Operation[list[str]]:
    """Return the names of the event types that the code of any service has declared."""
    rows = yield Statement(_sql["declared"])
    return [row[0] for row in rows]


def message_kinds() -> Operation[list[MessageKind]]:
    """Return the event types that the code of any service has declared, as recipients know them."""
    rows = yield Statement(_sql["definitions"], {"most": MOST_TYPES})
    return [_kind(name, msgspec.json.decode(definition)) for name, definition in rows]


def kind_of(event: EventDefinition, resolve: Resolve) -> MessageKind:
    """Return a declared event type as its recipients know it."""
    return _kind(event.name, _definition(event, resolve, QUEUE))


def _kind(name: str, definition: Mapping[str, Any]) -> MessageKind:
    return MessageKind(
        name=name,
        channels=definition.get("channels", []),
        category=definition.get("category"),
        critical=definition.get("critical", False),
        opt_in=definition.get("opt_in", False),
        digest=digest_window(
            (definition.get("digest") or {}).get("seconds"),
            definition.get("ttl"),
            [step["after"] for step in definition.get("steps") or ()],
        ),
        listed=definition.get("listed", True),
    )


def notify_declared(
    kind: str,
    payload: Mapping[str, Any],
    *,
    to: Sequence[str] | None,
    subject: str | None,
    key: str | None,
    tenant: str | None,
    at: datetime | None,
    ttl: float | None,
    rate: float | None = None,
    trace: str | None = None,
) -> Operation[int]:
    """Create an event of a type whose code is elsewhere; return its id."""
    raw = stored(payload, lambda why: InvalidArguments(f"event {kind}: {why}"))
    with tracing.sending("notify", kind):
        rows = yield Statement(
            _sql["notify"],
            {
                "type": kind,
                "payload": raw.decode(),
                "to": None if to is None else list(to),
                "subject": subject,
                "key": key,
                "tenant": tenant,
                "at": at,
                "ttl": ttl,
                "rate": rate,
                "trace": trace if trace is not None else tracing.current(),
            },
        )
    return int(rows[0][0])
