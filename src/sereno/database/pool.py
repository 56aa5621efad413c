"""A stack of idle connections, the last used on top.

The pool of the driver does more, and takes 40 µs of each enqueue, a fifth of the total. This one only stores idle
connections, and checks without a round trip whether a connection is still usable.
"""

import weakref
from typing import Generic

from sereno.database.fast_path import C, PooledConnection


class ConnectionPool(Generic[C]):
    """Idle connections, shared by all threads."""

    def __init__(self) -> None:
        # list.append and list.pop are atomic.
        self._idle: list[PooledConnection[C]] = []
        # Closes the connections of an application that was never closed.
        weakref.finalize(self, _close_all, self._idle)

    def take(self) -> PooledConnection[C] | None:
        """Return a usable connection, or None."""
        while self._idle:
            try:
                held = self._idle.pop()
            except IndexError:
                return None
            if not held.has_unread_data:
                return held
            held.finish()
        return None

    def put(self, held: PooledConnection[C] | None) -> None:
        """Return a connection to the pool; close it if it is broken or in a transaction."""
        if held is None:
            return
        if held.is_idle:
            self._idle.append(held)
        else:
            held.finish()

    def clear(self) -> None:
        _close_all(self._idle)


def _close_all(connections: list[PooledConnection[C]]) -> None:
    while connections:
        connections.pop().finish()
