"""The servers of an address: `postgresql://a,b,c/shop`, or `host=a,b,c dbname=shop`.

With several servers, the primary is found among them: at the first connection and after each failure. A server that
failed is tried last, the one that was connected to last is tried first. A thread surveys the servers, so that a
promotion is noticed even while the old primary answers.
"""

import os
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sereno.database.replication_wait import watch
from sereno.database.timelines import (
    TIMELINE_QUERY,
    AnyConnection,
    ServerTimeline,
    Timelines,
    ask_timeline,
    read_timeline,
)

# Seconds to connect to one of several servers: two that drop packets must not delay a heartbeat past its lease.
CONNECT_TIMEOUT = 2
# Seconds between two surveys, less jitter of up to 20 %.
SURVEY_EVERY = 10.0
# The most addresses whose servers are remembered.
MOST_ADDRESSES = 64
_LISTS = ("host", "hostaddr", "port")


class Server:
    """One server of an address."""

    def __init__(self, parameters: Mapping[str, Any], timelines: Timelines) -> None:
        self.parameters = dict(parameters)
        self.timelines = timelines
        # False once it has shown that it does not tell its timeline.
        self.tells_timeline = True

    def __str__(self) -> str:
        host = self.parameters.get("hostaddr") or self.parameters.get("host") or "the default server"
        port = self.parameters.get("port")
        return f"{host}:{port}" if port else str(host)

    def with_timeline(self, sets: str) -> str:
        """Add the query of the timeline to the SET statements of a new connection: one round trip for both."""
        return f"{sets}; {TIMELINE_QUERY}".lstrip("; ") if self.tells_timeline else sets

    def check(self, connection: AnyConnection, row: tuple[Any, ...] | None) -> None:
        """Compare the timeline of a new connection with what is known; raise OldPrimary. Watch its commits."""
        watch(connection)
        seen = read_timeline(row) if self.tells_timeline else None
        if seen is not None:
            self.timelines.accept(connection, seen, str(self))


class ServerList:
    """The servers of one address, in the order in which they are tried."""

    def __init__(self, url: str) -> None:
        given = _with_environment(conninfo_to_dict(url))
        split = _split(given)
        self.is_several = len(split) > 1
        if self.is_several:
            given = {"target_session_attrs": "read-write", "connect_timeout": CONNECT_TIMEOUT} | given
        self._wants_primary = given.get("target_session_attrs") in ("read-write", "primary")
        self.timelines = Timelines()
        self._servers = [Server({**given, **each}, self.timelines) for each in split]
        self._order = list(self._servers)
        self._connections: WeakKeyDictionary[AnyConnection, Server] = WeakKeyDictionary()
        self._surveyed_by = 0
        self._survey: threading.Thread | None = None

    @property
    def order(self) -> list[Server]:
        return list(self._order)

    def conninfo(self, **defaults: Any) -> str:
        """Return an address for other programs: the server that was connected to last is the first one in it."""
        first = self._order[0].parameters
        names = [name for name in _LISTS if first.get(name)]
        lists = {name: ",".join(str(server.parameters.get(name, "")) for server in self._order) for name in names}
        return make_conninfo("", **defaults | first | lists)

    @property
    def needs_survey(self) -> bool:
        """Whether to call `survey` before the first connection of this process."""
        return self.is_several and self._surveyed_by != os.getpid()

    def connected(self, server: Server, connection: AnyConnection) -> None:
        """Try this server first from now on, and keep surveying the others while there are connections."""
        if not self.is_several:
            return
        self._move(server, 0)
        self._connections[connection] = server
        if self._survey is None or not self._survey.is_alive():
            self._survey = threading.Thread(target=self._keep_surveying, name="sereno servers", daemon=True)
            self._survey.start()

    def failed(self, connection: AnyConnection) -> None:
        """Try the server of this connection last: it did not reply, and may be an old primary that was cut off."""
        server = self._connections.get(connection)
        if server is not None:
            self.skipped(server)

    def skipped(self, server: Server) -> None:
        """Try this server last: a connection to it failed, or took longer than its caller waits."""
        self._move(server, len(self._servers))

    def survey(self) -> list[tuple[Server, ServerTimeline | None]]:
        """Ask all servers at once for their timelines; try the primary with the highest one first, or a standby."""
        self._surveyed_by = os.getpid()
        order = self.order
        with ThreadPoolExecutor(len(order), thread_name_prefix="sereno survey") as threads:
            found = list(zip(order, threads.map(ask, order), strict=True))
        wanted = [
            (seen.timeline, server)
            for server, seen in found
            if seen is not None and seen.is_standby is not self._wants_primary
        ]
        if wanted:
            self._move(max(wanted, key=lambda each: each[0])[1], 0)
        return found

    def _keep_surveying(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(SURVEY_EVERY * random.uniform(0.8, 1.0))  # noqa: S311 - jitter
            if not any(not connection.closed for connection in list(self._connections.keys())):
                return
            # Not only the others: after a fail-over, the survey also finds the primary for the next connection.
            self.survey()

    def _move(self, server: Server, place: int) -> None:
        if len(self._servers) == 1:
            return
        order = [each for each in self._order if each is not server]
        order.insert(place, server)
        self._order = order


def ask(server: Server) -> ServerTimeline | None:
    """Return the timeline of a server, primary or standby; None if it does not answer."""
    given = server.parameters | {
        "target_session_attrs": "any",
        "application_name": "sereno survey",
        "tcp_user_timeout": CONNECT_TIMEOUT * 1000,
    }
    with suppress(psycopg.Error, OSError), psycopg.connect(make_conninfo("", **given), autocommit=True) as connection:
        connection.execute(f"set statement_timeout = {CONNECT_TIMEOUT * 1000}".encode())
        seen = ask_timeline(connection)
        if seen is not None:
            server.timelines.learn(seen, str(server))
        return seen
    return None


@lru_cache(MOST_ADDRESSES)
def servers_of(url: str) -> ServerList:
    """Return the servers of an address. Raises psycopg.ProgrammingError if it is not valid."""
    return ServerList(url)


def ports_of(url: str) -> set[int]:
    """Return the ports that an address names; none if it is not valid."""
    try:
        found = [str(server.parameters.get("port", "")) for server in servers_of(url).order]
    except psycopg.ProgrammingError:
        return set()
    return {int(port) for port in found if port.isdecimal()}


def _with_environment(given: dict[str, Any]) -> dict[str, Any]:
    """Add lists of servers in the variables of libpq, which reads all others itself."""
    for name, variable in (("host", "PGHOST"), ("hostaddr", "PGHOSTADDR"), ("port", "PGPORT")):
        if not given.get(name) and "," in os.environ.get(variable, ""):
            given[name] = os.environ[variable]
    if not given.get("target_session_attrs") and os.environ.get("PGTARGETSESSIONATTRS"):
        given["target_session_attrs"] = os.environ["PGTARGETSESSIONATTRS"]
    return given


def _split(given: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the host, address and port of each server."""
    lists = {name: str(given[name]).split(",") for name in _LISTS if given.get(name)}
    number = max((len(values) for name, values in lists.items() if name != "port"), default=1)
    ports = lists.get("port")
    if ports is not None and len(ports) == 1:
        lists["port"] = ports * number
    for name, values in lists.items():
        if len(values) != number:
            raise psycopg.ProgrammingError(
                f"the address names {number} servers, and {len(values)} values of {name}: give one for each"
            )
    return [{name: values[each] for name, values in lists.items()} for each in range(number)]
