"""The application's own connections: small pools, opened when first used; nothing connects at import."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

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
        self._async_pools: dict[int, AsyncConnectionPool[psycopg.AsyncConnection[Any]]] = {}
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
        try:
            with self._sync_pool().connection() as connection:
                yield connection
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise unavailable(self.url, error) from error

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """An async connection in autocommit mode, given back afterwards."""
        try:
            pool = await self._async_pool()
            async with pool.connection() as connection:
                yield connection
        except (PoolTimeout, psycopg.OperationalError) as error:
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

    async def aclose(self) -> None:
        pool = self._async_pools.pop(id(asyncio.get_running_loop()), None)
        if pool is not None:
            await pool.close()
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
                        name="sereno",
                        open=True,
                    )
        return self._pool

    async def _async_pool(self) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
        # A pool belongs to the event loop that opened it.
        key = id(asyncio.get_running_loop())
        pool = self._async_pools.get(key)
        if pool is None:
            pool = self._async_pools[key] = AsyncConnectionPool(
                self.url,
                min_size=0,
                max_size=self.settings.pool_size,
                timeout=PATIENCE,
                kwargs=parameters(self.settings, "client"),
                name="sereno",
                open=False,
            )
            await pool.open()
        return pool
