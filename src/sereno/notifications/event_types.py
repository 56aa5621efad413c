"""Event types as rows, so that SQL can create events; and the payload check of events created in SQL."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.duration import seconds
from sereno.notifications.event import EventDefinition
from sereno.notifications.jobs import QUEUE

_sql = queries("notifications/event_types")

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
        "queue": None if queue == QUEUE else queue,
    }
    return {name: value for name, value in definition.items() if value is not None}


def unchecked(event: int) -> Operation[tuple[str, bytes] | None]:
    """Return type and payload of an event that was created in SQL and has no deliveries yet; None for other events."""
    rows = yield Statement(_sql["unchecked"], {"event": event})
    return (rows[0][0], rows[0][1].encode()) if rows else None


def refuse(event: int, note: str) -> Operation[None]:
    """Close the event without deliveries."""
    yield Statement(_sql["refuse"], {"event": event, "note": note})
