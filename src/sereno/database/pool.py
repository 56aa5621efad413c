"""Connections at rest, the newest on top.

A library's pool does more, and takes 40 µs of each enqueue for it, a fifth of the whole; all that is needed here is a
place to put a connection down, and a look, without a round trip, whether it is still good when it is taken up again.
"""

import weakref
from typing import Generic

from sereno.database.fast_path import C, PooledConnection


class ConnectionPool(Generic[C]):
    """Put down by whoever is done, taken up by whoever comes next, from any thread."""

    def __init__(self) -> None:
        # Appending to a list and popping from it are atomic.
        self._resting: list[PooledConnection[C]] = []
        # An application that was never closed is no leak: its connections end with it.
        weakref.finalize(self, _say_goodbye, self._resting)

    def take(self) -> PooledConnection[C] | None:
        """A connection that is still good, or None."""
        while self._resting:
            try:
                held = self._resting.pop()
            except IndexError:
                return None
            if not held.has_news:
                return held
            held.finish()
        return None

    def put(self, held: PooledConnection[C] | None) -> None:
        """Keep it, unless it is broken or in the middle of something."""
        if held is None:
            return
        if held.is_idle:
            self._resting.append(held)
        else:
            held.finish()

    def clear(self) -> None:
        _say_goodbye(self._resting)


def _say_goodbye(resting: list[PooledConnection[C]]) -> None:
    while resting:
        resting.pop().finish()
