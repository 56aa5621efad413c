"""Connections of our own: how they are opened, and a line that mends itself."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel, pq

from sereno.database.statement import Operation, arun
from sereno.errors import ConnectionsInUse, DatabaseUnavailable
from sereno.settings import Settings

T = TypeVar("T")

# Our statements name their index by their shape; these keep the planner on it when statistics are old or missing,
# as they are after a bulk enqueue into an empty table. Sorts and scans that are really needed still happen.
PLANNER = (
    "set jit = off; set enable_sort = off; set enable_bitmapscan = off; set enable_seqscan = off; "
    "set enable_nestloop = off; set enable_mergejoin = off; set plan_cache_mode = force_generic_plan"
)
# A client that was stopped in the middle of a transaction holds its locks no longer than this.
NO_STANDSTILL = "set idle_in_transaction_session_timeout = '10s'"
# Claims and settlements count on seeing what others committed while they waited for a lock, whatever the database's
# default is. Behind a pooler the driver says it with each BEGIN: a setting would stay with somebody else's connection.
READ_COMMITTED = "set default_transaction_isolation = 'read committed'"

# A call that takes longer has met a dead peer or a frozen server: the connection is given up, the caller goes on.
CALL_TIMEOUT = 15.0

CONNECT_PARAMETERS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "autocommit": True,
}

# What says "this connection, or this server, is no good", as opposed to "this statement is wrong".
# A server that became read-only is an old primary after a failover: the next connection finds the new one.
BROKEN = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    OSError,
    TimeoutError,
)

# An index entry, an array, a value beyond what the server can hold. The driver counts them as trouble of the server.
TOO_LARGE = (
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
    psycopg.errors.TooManyColumns,
    psycopg.errors.TooManyArguments,
)

# How a server refuses one connection too many, of all clients or of one role; libpq does not pass on the SQLSTATE of a
# refused connection.
TOO_MANY = ("too many clients already", "remaining connection slots are reserved", "too many connections for ")


def parameters(settings: Settings, role: str) -> dict[str, Any]:
    """Keyword arguments of a connection; `role` shows in pg_stat_activity."""
    given: dict[str, Any] = dict(CONNECT_PARAMETERS) | {"application_name": f"sereno {role}"}
    if settings.transaction_pooler:
        # The next statement may meet another server connection: nothing may be remembered there.
        given["prepare_threshold"] = None
    return given


def session_settings(settings: Settings) -> str:
    """What each connection of our own sets when it is opened, unless a pooler shares it."""
    return READ_COMMITTED if settings.notify else f"{READ_COMMITTED}; set {settings.schema}.notify = off"


def open_sync(url: str, settings: Settings, role: str) -> psycopg.Connection[Any]:
    """A sync connection of our own."""
    connection = psycopg.connect(url, **parameters(settings, role))
    try:
        if settings.transaction_pooler:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
        else:
            connection.execute(session_settings(settings).encode())
    except BaseException:
        connection.close()
        raise
    return connection


async def open_async(url: str, settings: Settings, role: str, more: str = "") -> psycopg.AsyncConnection[Any]:
    """An async connection of our own; `more`: settings beside the usual ones."""
    connection = await psycopg.AsyncConnection.connect(url, **parameters(settings, role))
    try:
        if settings.transaction_pooler:
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        else:
            await connection.execute(f"{session_settings(settings)}{more}".encode())
    except BaseException:
        await connection.close()
        raise
    return connection


def connect(url: str, settings: Settings, role: str) -> psycopg.Connection:
    """A sync connection, or DatabaseUnavailable that says where it tried."""
    try:
        return open_sync(url, settings, role)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        # A ProgrammingError before there is a connection is about the address.
        raise unavailable(url, error) from None


def unavailable(url: str, error: BaseException) -> DatabaseUnavailable:
    """The error for people; the password stays out of it."""
    try:
        parts = pq.Conninfo.parse(url.encode())
        found = {
            p.keyword.decode(): p.val.decode() for p in parts if p.val and p.keyword in (b"host", b"port", b"dbname")
        }
        where = " ".join(f"{key}={value}" for key, value in found.items()) or "the default server"
    except psycopg.Error as wrong:
        # Only these name no more than the word that is wrong; others repeat the address, and a password with it.
        said = str(wrong).strip()
        why = f": {said}" if said.startswith(("invalid connection option", "invalid URI query parameter")) else ""
        return DatabaseUnavailable(
            f"the address of the database is not a valid connection string{why}; write postgresql://user@host/database"
        )
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if any(words in first_line for words in TOO_MANY):
        return ConnectionsInUse(f"PostgreSQL at {where} has no connection left: {first_line}")
    return DatabaseUnavailable(f"PostgreSQL at {where} does not answer: {first_line}")


class Line:
    """One connection for one loop of a worker: opened when first used, replaced when it breaks.

    Statements on it come one after the other. Whoever uses it decides what a failure means; the line only makes sure
    that the next call meets a fresh connection.

    `statement_timeout`: seconds after which the server gives up a statement. Without it, one whose caller has lost
    patience goes on there.
    """

    def __init__(self, url: str, settings: Settings, role: str, statement_timeout: float | None = None) -> None:
        self._url = url
        self._settings = settings
        self._role = role
        limit = "" if statement_timeout is None else f"; set statement_timeout = {int(statement_timeout * 1000)}"
        self._set_up = f"{PLANNER}; {NO_STANDSTILL}{limit}"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    async def run(self, operation: Operation[T], patience: float = CALL_TIMEOUT, *, atomic: bool = False) -> T:
        """Drive one operation; DatabaseUnavailable when the connection or the server is no good.

        `atomic`: an operation of several statements, all of it or nothing.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(patience):
                    connection = self._connection or await self._open()
                    pooled = self._settings.transaction_pooler
                    if not pooled and not atomic:
                        return await arun(connection, operation, self._settings.schema)
                    async with connection.transaction():
                        if pooled:
                            await connection.execute(self._set_up.replace("set ", "set local ").encode())
                        return await arun(connection, operation, self._settings.schema)
            except TOO_LARGE:
                # The server is well: it is about what it was asked.
                raise
            except BROKEN as error:
                await self._drop()
                raise unavailable(self._url, error) from error
            except BaseException:
                # Ended in the middle of a statement, its reply is still to come: nobody may use the connection again.
                if self._is_busy():
                    await self._drop()
                raise

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        self._connection = await open_async(self._url, self._settings, self._role, f"; {self._set_up}")
        return self._connection

    def _is_busy(self) -> bool:
        connection = self._connection
        return connection is not None and connection.info.transaction_status != pq.TransactionStatus.IDLE

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        async with self._turn:
            await self._drop()
