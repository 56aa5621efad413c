"""Counts of deliveries by channel and state: counted where outcomes are recorded, reported by the worker."""

from threading import Lock

# States of deliveries that are counted; `retried`: it is to be sent again.
STATES = frozenset(
    {
        *("sent", "delivered", "read", "bounced", "skipped", "failed"),
        *("invalid", "expired", "dead", "unknown", "retried"),
    }
)


class DeliveryCounts:
    """Counts since the last `take`, by channel and state joined with a tab. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}

    def add(self, channel: str, state: str, count: int) -> None:
        """Count deliveries that reached a state; other words are not counted."""
        if state in STATES:
            key = f"{channel}\t{state}"
            with self._lock:
                self._counts[key] = self._counts.get(key, 0) + count

    def take(self) -> dict[str, int]:
        """Return the counts and reset them."""
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken


# One for the process, because a job that sends has no reference to the worker that runs it.
COUNTED = DeliveryCounts()
