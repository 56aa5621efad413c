"""Connections at rest, the newest on top.

A library's pool does more, and takes 40 µs of each enqueue for it, a fifth of the whole; all that is needed here is a
place to put a connection down, and a look, without a round trip, whether it is still good when it is taken up again.
"""

import select
import weakref
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])


class Shelf(Generic[C]):
    """Put down by whoever is done, taken up by whoever comes next, from any thread."""

    def __init__(self) -> None:
        # Appending to a list and popping from it are atomic.
        self._resting: list[C] = []
        # An application that was never closed is no leak: its connections end with it.
        weakref.finalize(self, _say_goodbye, self._resting)

    def take(self) -> C | None:
        """A connection that is still good, or None."""
        while self._resting:
            try:
                connection = self._resting.pop()
            except IndexError:
                return None
            if not _has_news(connection):
                return connection
            connection.pgconn.finish()
        return None

    def put(self, connection: C | None) -> None:
        """Keep it, unless it is broken or in the middle of something."""
        if connection is None:
            return
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._resting.append(connection)
        else:
            connection.pgconn.finish()

    def clear(self) -> None:
        """Tell the server goodbye. Needs no loop, so that the connections of one that is gone can be ended too."""
        _say_goodbye(self._resting)


def _say_goodbye(resting: list[C]) -> None:
    while resting:
        connection = resting.pop()
        connection.pgconn.finish()


def _has_news(connection: C) -> bool:
    """The server said something that nobody asked for: goodbye, most likely, as after a restart."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))
