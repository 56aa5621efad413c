"""Timelines: PostgreSQL counts them, and each promotion of a standby starts the next one.

An old primary that was cut off, or that was started again, still accepts writes: they are lost when it rejoins. So a
process remembers the highest timeline of each cluster. It refuses a primary with a lower one, and closes its
connections to such a server, also those that wait for a reply.
"""

import logging
import os
import socket
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import psycopg

logger = logging.getLogger("sereno")

AnyConnection: TypeAlias = "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"

# The first eight digits of the name of a WAL file are the timeline of a primary; its last checkpoint may be older than
# its promotion. No privilege is needed. The id of a cluster changes with a restored dump and with pg_upgrade, where
# timelines start again. It runs on each new connection: without FROM, it takes a third of the time (0.5 ms).
TIMELINE_QUERY = """
select (pg_catalog.pg_control_system()).system_identifier, pg_catalog.pg_is_in_recovery(),
       case when not pg_catalog.pg_is_in_recovery()
            then pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) end
"""
# The timeline that a standby had at its last checkpoint, or the one that it receives, for members of pg_monitor.
STANDBY_QUERY = """
select greatest((pg_catalog.pg_control_checkpoint()).timeline_id,
                (pg_catalog.pg_control_recovery()).min_recovery_end_timeline,
                (pg_catalog.pg_stat_get_wal_receiver()).received_tli)
"""
# Errors of servers without these functions: some managed ones, and others that only speak the protocol.
UNTOLD = (
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    psycopg.InternalError,
    psycopg.DataError,
)


_all: "weakref.WeakSet[Timelines]" = weakref.WeakSet()


class OldPrimary(psycopg.OperationalError):
    """The server accepts writes, and another server of its cluster was promoted after it."""


class ServerTimeline(NamedTuple):
    """The cluster of a server, whether the server is a standby, and its timeline."""

    cluster: str
    is_standby: bool
    timeline: int


class Timelines:
    """The highest timeline of each cluster that this process has seen at one address, and its connections there.

    For each address apart: a copy of the cluster that was promoted elsewhere has the same id, and is no successor.
    """

    def __init__(self) -> None:
        _all.add(self)
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}
        self._open: weakref.WeakKeyDictionary[AnyConnection, tuple[ServerTimeline, object]] = (
            weakref.WeakKeyDictionary()
        )

    def learn(self, seen: ServerTimeline, where: str) -> None:
        """Remember a timeline. If it is higher than the known one, close the connections to older primaries."""
        with self._lock:
            before = self._highest.get(seen.cluster, 0)
            if seen.timeline <= before:
                return
            self._highest[seen.cluster] = seen.timeline
            old = [
                (connection, peer)
                for connection, (server, peer) in self._open.items()
                if server.cluster == seen.cluster and server.timeline < seen.timeline
            ]
        if not before:
            return
        for connection, peer in old:
            _cut(connection, peer)
        text = (
            f"a standby was promoted: {where} has timeline {seen.timeline}, after {before}; "
            f"connections to the old primary that were closed: {len(old)}"
        )
        # As `telemetry.log_events` does it, which is above this package.
        logger.warning(text, extra={"event": "database.promoted", "sereno_fields": {}})

    def accept(self, connection: AnyConnection, seen: ServerTimeline, where: str) -> None:
        """Register a new connection, or raise OldPrimary."""
        self.learn(seen, where)
        if seen.is_standby:
            return
        with self._lock:
            highest = self._highest.get(seen.cluster, 0)
            if seen.timeline >= highest:
                self._open[connection] = (seen, _peer(connection))
                return
        raise OldPrimary(
            f"it is an old primary: its timeline is {seen.timeline}, and a server with timeline {highest} was promoted "
            "after it; let it rejoin as a standby, or restart this process if it was restored from a backup"
        )

    def of(self, connection: AnyConnection) -> ServerTimeline | None:
        """Return the timeline of a connection to a primary; None if its server did not tell."""
        with self._lock:
            found = self._open.get(connection)
        return None if found is None else found[0]

    def forget(self) -> None:
        """Start again, in a forked process: the connections belong to its parent."""
        self._lock = threading.Lock()
        self._open = weakref.WeakKeyDictionary()


def _forget_all() -> None:
    for each in list(_all):
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


def read_timeline(row: Sequence[Any] | None) -> ServerTimeline | None:
    """Return the row of TIMELINE_QUERY; None for a standby, and if the server did not tell."""
    if row is None or row[0] is None or row[2] is None:
        return None
    return ServerTimeline(str(row[0]), bool(row[1]), int(str(row[2])[:8], 16))


def ask_timeline(connection: psycopg.Connection[Any]) -> ServerTimeline | None:
    """Return the timeline of a primary or a standby; None if it does not tell."""
    row = connection.execute(TIMELINE_QUERY.encode()).fetchone()
    if row is None or row[0] is None or not row[1]:
        return read_timeline(row)
    found = connection.execute(STANDBY_QUERY.encode()).fetchone()
    return None if found is None or found[0] is None else ServerTimeline(str(row[0]), True, int(found[0]))


def _peer(connection: AnyConnection) -> object:
    """Return the address of the server's end of the connection."""
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as copy:
        return copy.getpeername()


def _cut(connection: AnyConnection, peer: object) -> None:
    """Shut down the socket, from any thread: the call that waits on it fails at once."""
    try:
        copy = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except (psycopg.Error, OSError):
        # It was closed meanwhile.
        return
    with copy:
        try:
            # Another thread may have closed it, and its descriptor may have been used again.
            if copy.getpeername() == peer:
                copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
