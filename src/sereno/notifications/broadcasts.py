"""Paces the deliveries of an event with a rate, and cancels events."""

from collections.abc import Sequence

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.deliveries.stats import DeliveryChange

_sql = queries("notifications/broadcasts")
_changes = msgspec.json.Decoder(list[DeliveryChange])

# Of an event with a rate: recipients of one step at least, and the seconds for which a step makes deliveries if it can.
FEWEST_PACED, PACED_SECONDS = 500, 10.0
# Seconds by which such a fan-out may be late and still catch up.
TOLERANCE = 5.0
# Batches from which one step removes cancelled deliveries.
BATCHES_PER_STEP = 100


def step_size(rate: float, most: int) -> int:
    """Return the recipients of one step of a fan-out at this rate."""
    return min(most, max(FEWEST_PACED, int(rate * PACED_SECONDS)))


def batch_size(rate: float, most: int) -> int:
    """Return the deliveries of one batch: at most those of a second."""
    return min(most, max(1, int(rate)))


def pace(event: int, batches: Sequence[int]) -> Operation[tuple[str, float]]:
    """Give new batches due times at the rate of their event.

    Return channel, account, number and delay of the deliveries as JSON, and the seconds until the next one is due.
    """
    rows = yield Statement(_sql["pace"], {"event": event, "batches": list(batches), "tolerance": TOLERANCE})
    return rows[0][0], rows[0][1]


def cancel(event: int) -> Operation[tuple[str | None, str] | None]:
    """Cancel an event. Return its tenant and the queue of its jobs; None if it was cancelled already."""
    rows = yield Statement(_sql["cancel"], {"event": event})
    return (rows[0][0] or None, rows[0][1]) if rows else None


def skip_cancelled(event: int, after: int) -> Operation[tuple[int | None, list[DeliveryChange]]]:
    """Skip deliveries of a cancelled event that wait in the batches after this one.

    Return the last of these batches, None at the end, and the changes for the statistics.
    """
    rows = yield Statement(_sql["skip_cancelled"], {"event": event, "after": after, "size": BATCHES_PER_STEP})
    return rows[0][0], _changes.decode(rows[0][1])
