"""A statement that was sent, and whose reply can be waited for a little at a time."""

import select
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.waiting import Ready, Wait

from sereno.database.statement import Row


class PendingStatement:
    """A statement on a connection that does nothing else meanwhile.

    psycopg runs statements as generators, which yield when they would block. `Cursor.execute` runs one to its end.
    """

    def __init__(self, cursor: psycopg.Cursor[Any], text: str, params: Any) -> None:
        self._cursor = cursor
        self._poll = select.poll()
        self._steps: Generator[Wait, Ready, None] = cursor._execute_gen(text.encode(), params)
        self._error: psycopg.Error | None = None
        self.is_done = False
        self._send(None)

    def wait(self, seconds: float | None) -> bool:
        """Wait for the reply; return whether it is there."""
        while not self.is_done:
            events = self._poll.poll(None if seconds is None else seconds * 1000)
            if not events:
                return False
            self._send(Ready.R if events[0][1] & ~select.POLLOUT else Ready.W)
        return True

    def rows(self) -> list[Row]:
        """Return the rows of the reply, or raise its error."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._cursor.fetchall() if self._cursor.description else []

    def _send(self, ready: Ready | None) -> None:
        try:
            wanted = next(self._steps) if ready is None else self._steps.send(ready)
        except StopIteration:
            self.is_done = True
        except psycopg.Error as error:
            self.is_done, self._error = True, error
        else:
            mask = (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
            self._poll.register(self._cursor.connection.fileno(), mask)
