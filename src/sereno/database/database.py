"""The application's own connections: at most `pool_size`, opened when first used, and pooled."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg

from sereno.database.connect import failed, is_read_only_server, open_async, open_sync, unavailable
from sereno.database.fast_path import PooledConnection, PreparedStatement
from sereno.database.pool import ConnectionPool
from sereno.database.replication_wait import UNREPLICATED, check_replicated, unreplicated
from sereno.database.statement import Operation, arun, run
from sereno.database.statement_errors import explain
from sereno.errors import ConnectionsInUse
from sereno.settings import Settings

T = TypeVar("T")

# Seconds that a call waits while all connections are in use.
TIMEOUT = 15.0


class Database:
    """The database of an application: its address, schema and connection pools."""

    def __init__(self, settings: Settings, url: Callable[[], str]) -> None:
        self._find_url = url
        self._url: str | None = None
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool()
        self._loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        # Called by `close`, before the connections are closed.
        self.on_close: list[Callable[[], None]] = []
        # One for each database, made by `jobs.finish_listener`, which this module does not know.
        self.finish_listener: object = None
        # Whether jobs can be at a carrier, where this database does not know them.
        self.has_carriers: Callable[[], bool] = lambda: False
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Replace the settings, before the first use."""
        self.settings = settings
        self._size = settings.pool_size
        self._free = threading.Semaphore(self._size)

    def reserve_connections(self, handlers: int) -> None:
        """Allow one connection per handler of a worker in this loop, in addition to `pool_size`.

        So the first connection of a handler never waits for another handler. The other `pool_size` connections are for
        handlers that request a second one; a second connection is returned before the first, so there is no deadlock.
        """
        wanted = self.settings.pool_size + handlers
        if wanted > self._size:
            self._free.release(wanted - self._size)
            self._size = wanted
        self._of_this_loop().grow(self._size)

    @property
    def url(self) -> str:
        """Return the address; starts the embedded PostgreSQL if that is used."""
        if self._url is None:
            self._url = self._find_url()
        return self._url

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a sync connection in autocommit mode; it returns to the pool afterwards."""
        with _LentConnection(self) as held:
            yield held.connection

    def first_row(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the first row by the fast path; `connection` and a cursor would take as much time as the server."""
        with _LentConnection(self) as held:
            try:
                return held.first_row(statement.text(self.settings.schema), values)
            except psycopg.ProgrammingError as error:
                explain(error, self.settings.schema)

    def lend(self) -> PooledConnection[psycopg.Connection[Any]]:
        """Return a pooled connection or a new one; the caller must `take_back` it."""
        if not self._free.acquire(timeout=TIMEOUT):
            raise self._all_in_use()
        try:
            return self._pool.take() or PooledConnection(open_sync(self.url, self.settings, "client"))
        except BaseException as error:
            self._free.release()
            # Before there is a connection, an error other than an OperationalError means an invalid address.
            if isinstance(error, psycopg.Error):
                raise unavailable(self.url, error) from error
            raise

    def take_back(self, held: PooledConnection[psycopg.Connection[Any]]) -> None:
        self._pool.put(held)
        self._free.release()

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Yield an async connection in autocommit mode; it returns to the pool afterwards."""
        mine = self._of_this_loop()
        try:
            async with asyncio.timeout(TIMEOUT):
                await mine.free.acquire()
        except TimeoutError:
            raise self._all_in_use() from None
        held: PooledConnection[psycopg.AsyncConnection[Any]] | None = None
        try:
            held = mine.pool.take() or PooledConnection(await open_async(self.url, self.settings, "client"))
            yield held.connection
            if UNREPLICATED:
                check_replicated(held.connection)
        except psycopg.Error as error:
            if not _is_broken(error, held):
                raise
            _drop(held, self.url)
            raise unavailable(self.url, error) from error
        finally:
            mine.pool.put(held)
            mine.free.release()

    def run(self, operation: Operation[T]) -> T:
        """Run one operation in a transaction."""
        with self.connection() as connection, connection.transaction(), self.explained():
            return run(connection, operation, self.settings.schema)

    async def arun(self, operation: Operation[T]) -> T:
        """Run one operation in a transaction."""
        async with self.aconnection() as connection, connection.transaction():
            with self.explained():
                return await arun(connection, operation, self.settings.schema)

    def run_one(self, operation: Operation[T]) -> T:
        """Run an operation of a single statement without an explicit transaction: two round trips fewer."""
        with self.connection() as connection, self.explained():
            return run(connection, operation, self.settings.schema)

    async def arun_one(self, operation: Operation[T]) -> T:
        """Run an operation of a single statement without an explicit transaction: two round trips fewer."""
        async with self.aconnection() as connection:
            with self.explained():
                return await arun(connection, operation, self.settings.schema)

    def explained(self) -> "Explained":
        """Return a block whose errors say what to do about a missing schema or privilege; for our own statements."""
        return Explained(self.settings.schema)

    def forget_url(self) -> None:
        """Determine the address again at the next use: it has changed, or its embedded server was stopped."""
        self._url = None

    def close(self) -> None:
        for close in self.on_close:
            close()
        self._pool.clear()
        self._forget_closed_loops()

    async def aclose(self) -> None:
        mine = self._loops.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            mine.pool.clear()
        self.close()

    def _of_this_loop(self) -> "LoopConnections":
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            self._forget_closed_loops()
            mine = self._loops[loop] = LoopConnections(self._size)
        return mine

    def _forget_closed_loops(self) -> None:
        """Close the connections of closed loops: each `asyncio.run` has a loop of its own, and few call `aclose`."""
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            ended = self._loops.pop(loop, None)
            if ended is not None:
                ended.pool.clear()

    def _all_in_use(self) -> ConnectionsInUse:
        return ConnectionsInUse(f"all {self._size} connections were in use for {TIMEOUT:g} s: raise SERENO_POOL_SIZE")


class _LentConnection:
    """A sync connection for one block. A class, because a generator would take longer than everything else here."""

    __slots__ = ("_database", "_held")

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> PooledConnection[psycopg.Connection[Any]]:
        self._held = self._database.lend()
        return self._held

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        held, database = self._held, self._database
        if UNREPLICATED and error is None:
            error = unreplicated(held.connection)
        if not isinstance(error, psycopg.Error) or not _is_broken(error, held):
            database.take_back(held)
            return
        _drop(held, database.url)
        database.take_back(held)
        raise unavailable(database.url, error) from error


class Explained:
    """See `Database.explained`. A class, because a generator would take longer."""

    __slots__ = ("_schema",)

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, psycopg.ProgrammingError):
            explain(error, self._schema)


class LoopConnections:
    """The async connections of one event loop: they belong to the loop that opened them."""

    def __init__(self, size: int) -> None:
        self.pool: ConnectionPool[psycopg.AsyncConnection[Any]] = ConnectionPool()
        self.free = asyncio.Semaphore(size)
        self._size = size

    def grow(self, size: int) -> None:
        for _ in range(size - self._size):
            self.free.release()
        self._size = max(size, self._size)


Held: TypeAlias = "PooledConnection[psycopg.Connection[Any]] | PooledConnection[psycopg.AsyncConnection[Any]] | None"


def _is_broken(error: psycopg.Error, held: Held) -> bool:
    """Return whether the connection or its server failed, and not a statement, such as by a deadlock."""
    if held is not None and is_read_only_server(error, held.connection):
        return True
    if held is None:
        # An invalid address, or no connection to it.
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or held.connection.closed


def _drop(held: Held, url: str) -> None:
    """Close a broken connection; the next one may be to another server."""
    if held is not None:
        failed(url, held.connection)
        held.finish()
