"""Runs one statement and returns its first row, without the driver's cursor.

`execute` and `fetchone` of the driver take about 60 µs of Python for their general case. The most frequent call of an
application, enqueueing a plain job, needs none of that: its values are text already, and its result is an id.
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
    """A query with numbered placeholders ($1), and the names of its parameters in that order."""

    sql: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self.sql)))

    @cache  # noqa: B019 - bounded by the number of queries
    def text(self, schema: str) -> bytes:
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        return _PLACEHOLDER.sub(lambda match: numbers[match[1]], in_schema(self.sql, schema)).encode()


class PooledConnection(Generic[C]):
    """A pooled connection with its prepared statements."""

    __slots__ = ("_last", "_poll", "_prepared", "_prepares", "connection")

    def __init__(self, connection: C) -> None:
        self.connection: C = connection
        self._prepares = connection.prepare_threshold is not None
        self._prepared: dict[bytes, bytes] = {}
        # The number of the last prepared statement.
        self._last = 0
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    @property
    def has_unread_data(self) -> bool:
        """Return whether the server sent something unrequested: most likely it closed the connection (a restart)."""
        return bool(self._poll.poll(0))

    @property
    def is_idle(self) -> bool:
        return bool(self.connection.pgconn.transaction_status == pq.TransactionStatus.IDLE)

    def finish(self) -> None:
        """Close the connection. Needs no event loop, so that it also works for async ones whose loop is closed."""
        self.connection.pgconn.finish()

    def first_row(self, text: bytes, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the columns of the first row as text. Raises the errors of the driver."""
        if not self._prepares:
            self.connection.pgconn.send_query_params(text, values)
            result = self._result()
        else:
            try:
                result = self._run_prepared(text, values)
            except psycopg.errors.InvalidSqlStatementName:
                # After a rollback the driver may deallocate all statements of the connection, also these.
                self._prepared.clear()
                result = self._run_prepared(text, values)
        return [result.get_value(0, column) for column in range(result.nfields)]

    def _run_prepared(self, text: bytes, values: Sequence[bytes | None]) -> pq.abc.PGresult:
        name = self._prepared.get(text) or self._prepare(text)
        self.connection.pgconn.send_query_prepared(name, values)
        return self._result()

    def _prepare(self, text: bytes) -> bytes:
        self._last += 1
        name = b"sereno_%d" % self._last
        self.connection.pgconn.send_prepare(name, text)
        self._result()
        self._prepared[text] = name
        return name

    def _result(self) -> pq.abc.PGresult:
        """Wait for the result so that a signal can interrupt; the blocking call of libpq could not be interrupted."""
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
    """Wait until large arguments fit into the socket buffer; the server may also reply first, with an error."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT)
    poll.poll()
