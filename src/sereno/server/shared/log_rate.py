"""A rate of log lines that any client can cause, so that they do not fill the disk."""

import time
from collections.abc import Callable

# Seconds between two log lines of one kind; those in between are counted.
LOG_SECONDS = 10.0


class LogRate:
    """Allows one line of a kind per `LOG_SECONDS`, and counts the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def count(self, kind: str) -> int | None:
        """Return how many lines were left out since the last one; None when this one is left out, too."""
        now = self._clock()
        until, left_out = self._kinds.get(kind, (0.0, 0))
        if now < until:
            self._kinds[kind] = (until, left_out + 1)
            return None
        self._kinds[kind] = (now + LOG_SECONDS, 0)
        return left_out
