"""One statement in, its first row out, without the driver's cursor.

`execute` and `fetchone` of the driver take about 60 µs of Python for everything that they can do. The one call that an
application makes most, enqueue of a plain job, needs none of it: its values are text already, and its answer is an id.
"""

import re
import select
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from sereno.database.statement import in_schema

C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class PreparedStatement:
    """A query of ours in the server's own notation, with the names of its values in the order of their numbers."""

    sql: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self.sql)))

    @cache  # noqa: B019 - there are as many of them as queries in the files
    def text(self, schema: str) -> bytes:
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        return _PLACEHOLDER.sub(lambda match: numbers[match[1]], in_schema(self.sql, schema)).encode()


class PooledConnection(Generic[C]):
    """A connection of ours, with what is known of it while it is kept."""

    __slots__ = ("_known", "_poll", "_prepares", "connection")

    def __init__(self, connection: C) -> None:
        self.connection: C = connection
        self._prepares = connection.prepare_threshold is not None
        self._known: dict[bytes, bytes] = {}
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    @property
    def has_news(self) -> bool:
        """The server said something that nobody asked for: goodbye, most likely, as after a restart."""
        return bool(self._poll.poll(0))

    @property
    def is_idle(self) -> bool:
        return bool(self.connection.pgconn.transaction_status == pq.TransactionStatus.IDLE)

    def finish(self) -> None:
        """Tell the server goodbye; needs no loop, so that the connections of one that is gone can be ended too."""
        self.connection.pgconn.finish()

    def first_row(self, text: bytes, values: Sequence[bytes | None]) -> list[bytes | None]:
        """The columns of the first row, as text. Errors are those of the driver."""
        pgconn: pq.abc.PGconn = self.connection.pgconn
        if not self._prepares:
            pgconn.send_query_params(text, values)
        else:
            name = self._known.get(text) or self._prepare(text)
            pgconn.send_query_prepared(name, values)
        result = self._answer()
        return [result.get_value(0, column) for column in range(result.nfields)]

    def _prepare(self, text: bytes) -> bytes:
        name = b"sereno_%d" % len(self._known)
        self.connection.pgconn.send_prepare(name, text)
        self._answer()
        self._known[text] = name
        return name

    def _answer(self) -> pq.abc.PGresult:
        """Wait for it where a signal can still interrupt; the driver's own blocking call would not hear one."""
        pgconn: pq.abc.PGconn = self.connection.pgconn
        while pgconn.flush():
            _until_writable(pgconn.socket)
            pgconn.consume_input()
        while pgconn.is_busy():
            self._poll.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        while pgconn.get_result() is not None:
            pass
        if result is None:
            raise psycopg.OperationalError("the server closed the connection")
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise error_from_result(result)
        return result


def _until_writable(socket: int) -> None:
    """Large arguments do not fit into the socket at once; the server may also speak first, to refuse them."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT)
    poll.poll()
