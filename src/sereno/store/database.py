"""The application's own connections: small pools, opened when first used; nothing connects at import."""

import asyncio
import select
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from sereno.settings import Settings
from sereno.store.connect import parameters, unavailable
from sereno.store.statement import Operation, arun, run

T = TypeVar("T")

# How long an enqueue waits for a connection before it says that the database does not answer.
PATIENCE = 15.0


class Database:
    """One database as one application sees it: an address, a schema, and connections when they are needed."""

    def __init__(self, settings: Settings, url: Callable[[], str]) -> None:
        self.settings = settings
        self._find_url = url
        self._url: str | None = None
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._loop_pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._opening = threading.Lock()

    @property
    def url(self) -> str:
        """The address; asking for it starts the embedded PostgreSQL where that is the one."""
        if self._url is None:
            self._url = self._find_url()
        return self._url

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A sync connection in autocommit mode, given back afterwards."""
        opened: psycopg.Connection[Any] | None = None
        try:
            pool = self._sync_pool()
            opened = pool.getconn()
            try:
                yield opened
            finally:
                # Autocommit: nothing to commit, so the pool's own context, which tries to, is not needed.
                pool.putconn(opened)
        except psycopg.OperationalError as error:
            if _is_statements_fault(error, opened):
                raise
            raise unavailable(self.url, error) from error

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """An async connection in autocommit mode, given back afterwards."""
        opened: psycopg.AsyncConnection[Any] | None = None
        try:
            pool = await self._async_pool()
            async with pool.connection() as opened:
                yield opened
        except psycopg.OperationalError as error:
            if _is_statements_fault(error, opened):
                raise
            raise unavailable(self.url, error) from error

    def run(self, operation: Operation[T]) -> T:
        """One operation, all of it or nothing."""
        with self.connection() as connection, connection.transaction():
            return run(connection, operation, self.settings.schema)

    async def arun(self, operation: Operation[T]) -> T:
        """One operation, all of it or nothing."""
        async with self.aconnection() as connection, connection.transaction():
            return await arun(connection, operation, self.settings.schema)

    def run_one(self, operation: Operation[T]) -> T:
        """An operation of a single statement, which is a transaction by itself: two round trips fewer."""
        with self.connection() as connection:
            return run(connection, operation, self.settings.schema)

    async def arun_one(self, operation: Operation[T]) -> T:
        """An operation of a single statement, which is a transaction by itself: two round trips fewer."""
        async with self.aconnection() as connection:
            return await arun(connection, operation, self.settings.schema)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        self._abandon_closed_loops()

    async def aclose(self) -> None:
        mine = self._loop_pools.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.pool.close()
        self.close()

    def _sync_pool(self) -> ConnectionPool[psycopg.Connection[Any]]:
        if self._pool is None:
            with self._opening:
                if self._pool is None:
                    self._pool = ConnectionPool(
                        self.url,
                        min_size=1,
                        max_size=self.settings.pool_size,
                        timeout=PATIENCE,
                        kwargs=parameters(self.settings, "client"),
                        check=_check,
                        name="sereno",
                        open=True,
                    )
        return self._pool

    async def _async_pool(self) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
        loop = asyncio.get_running_loop()
        mine = self._loop_pools.get(loop)
        if mine is None:
            self._abandon_closed_loops()
            mine = self._loop_pools[loop] = LoopPool(self.url, self.settings)
            await mine.pool.open()
        return mine.pool

    def _abandon_closed_loops(self) -> None:
        """Each `asyncio.run` is a loop of its own, and few of them say goodbye."""
        for loop in [loop for loop in list(self._loop_pools) if loop.is_closed()]:
            ended = self._loop_pools.pop(loop, None)
            if ended is not None:
                ended.abandon()


class LoopPool:
    """The async connections of one event loop: a pool belongs to the loop that opened it."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._opened: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        self.pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=settings.pool_size,
            timeout=PATIENCE,
            kwargs=parameters(settings, "client"),
            configure=self._remember,
            check=_acheck,
            name="sereno",
            open=False,
        )

    async def _remember(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._opened.add(connection)

    def abandon(self) -> None:
        """Its loop is gone, so nothing can be awaited any more; the server is told all the same."""
        for connection in list(self._opened):
            connection.pgconn.finish()


def _is_statements_fault(
    error: psycopg.OperationalError, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | None
) -> bool:
    """A deadlock or a lock timeout inside a healthy connection: PostgreSQL did answer, and that answer is the news."""
    return error.sqlstate is not None and connection is not None and not connection.closed


def _has_news(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """The server said something that nobody asked for: goodbye, most likely. Costs no round trip."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _check(connection: psycopg.Connection[Any]) -> None:
    """After a restart of PostgreSQL, a pool full of dead connections must not fail one enqueue each."""
    if _has_news(connection):
        ConnectionPool.check_connection(connection)


async def _acheck(connection: psycopg.AsyncConnection[Any]) -> None:
    if _has_news(connection):
        await AsyncConnectionPool.check_connection(connection)
