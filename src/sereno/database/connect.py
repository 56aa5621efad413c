"""Opens sereno's own connections, and `ServiceConnection`, a connection that is reopened after failures."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel, pq

from sereno.database.statement import Operation, arun
from sereno.errors import ConnectionsInUse, DatabaseUnavailable
from sereno.settings import Settings

T = TypeVar("T")

# Each statement of sereno is written for a certain index; with these settings the planner uses it even if statistics
# are old or missing, as after a bulk enqueue into an empty table. Sorts and scans that are needed still happen.
PLANNER = (
    "set jit = off; set enable_sort = off; set enable_bitmapscan = off; set enable_seqscan = off; "
    "set enable_nestloop = off; set enable_mergejoin = off; set plan_cache_mode = force_generic_plan"
)
# A client that is suspended in the middle of a transaction holds its locks for at most this time.
IDLE_IN_TRANSACTION_TIMEOUT = "set idle_in_transaction_session_timeout = '10s'"
# Of all connections, also of commands and callers: compiling a plan takes longer than any statement of ours may take.
JIT_OFF = "set jit = off"
# Claims and settlements must see what others committed while they waited for a lock, whatever isolation level is the
# default of the database. Behind a pooler the driver sends it with each BEGIN: a session setting would affect others.
READ_COMMITTED = "set default_transaction_isolation = 'read committed'"

# Seconds. A call that takes longer has a dead peer or a suspended server: the connection is closed and the call fails.
CALL_TIMEOUT = 15.0

CONNECT_PARAMETERS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "autocommit": True,
}

# Errors of the connection or the server, as opposed to errors of a statement.
# A read-only server is an old primary after a failover: the next connection finds the new one.
BROKEN = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    OSError,
    TimeoutError,
)

# A value, array or index entry exceeds a limit of the server. psycopg classifies these as OperationalError.
TOO_LARGE = (
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
    psycopg.errors.TooManyColumns,
    psycopg.errors.TooManyArguments,
)

# Messages of a server that refuses a connection because too many are open, in all or of one role; libpq does not pass
# on the SQLSTATE of a refused connection.
TOO_MANY = ("too many clients already", "remaining connection slots are reserved", "too many connections for ")


def parameters(settings: Settings, role: str) -> dict[str, Any]:
    """Return the keyword arguments of a connection; `role` is shown in pg_stat_activity."""
    arguments: dict[str, Any] = dict(CONNECT_PARAMETERS) | {"application_name": f"sereno {role}"}
    if settings.transaction_pooler:
        # The next statement may use another server connection, so nothing may be prepared.
        arguments["prepare_threshold"] = None
    return arguments


def session_settings(settings: Settings) -> str:
    """Return the SET statements for a new connection; not used behind a transaction pooler."""
    always = f"{READ_COMMITTED}; {JIT_OFF}"
    return always if settings.notify else f"{always}; set {settings.schema}.notify = off"


def open_sync(url: str, settings: Settings, role: str) -> psycopg.Connection[Any]:
    """Open a sync connection."""
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
    """Open an async connection; `more`: additional SET statements."""
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
    """Open a sync connection, or raise DatabaseUnavailable with the address."""
    try:
        return open_sync(url, settings, role)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        # A ProgrammingError before there is a connection means an invalid address.
        raise unavailable(url, error) from None


def unavailable(url: str, error: BaseException) -> DatabaseUnavailable:
    """Return the error to show to users, without the password."""
    try:
        parts = pq.Conninfo.parse(url.encode())
        found = {
            p.keyword.decode(): p.val.decode() for p in parts if p.val and p.keyword in (b"host", b"port", b"dbname")
        }
        where = " ".join(f"{key}={value}" for key, value in found.items()) or "the default server"
    except psycopg.Error as wrong:
        # Only these messages are safe; others repeat the address, and a password with it.
        text = str(wrong).strip()
        why = f": {text}" if text.startswith(("invalid connection option", "invalid URI query parameter")) else ""
        return DatabaseUnavailable(
            f"the address of the database is not a valid connection string{why}; write postgresql://user@host/database"
        )
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if any(words in first_line for words in TOO_MANY):
        return ConnectionsInUse(f"PostgreSQL at {where} has no connection left: {first_line}")
    return DatabaseUnavailable(f"PostgreSQL at {where} does not answer: {first_line}")


class ServiceConnection:
    """One connection for one loop of a worker: opened when first used, replaced when it breaks.

    Statements run one after another. The caller decides what a failure means; after one, the next
    call opens a new connection.

    `statement_timeout`: seconds after which the server cancels a statement. Without it, a statement whose caller timed
    out keeps running on the server.
    """

    def __init__(self, url: str, settings: Settings, role: str, statement_timeout: float | None = None) -> None:
        self._url = url
        self._settings = settings
        self._role = role
        limit = "" if statement_timeout is None else f"; set statement_timeout = {int(statement_timeout * 1000)}"
        self._set_up = f"{PLANNER}; {IDLE_IN_TRANSACTION_TIMEOUT}{limit}"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    async def run(self, operation: Operation[T], timeout: float = CALL_TIMEOUT, *, atomic: bool = False) -> T:
        """Run one operation; raise DatabaseUnavailable when the connection or the server fails.

        `timeout`: timeout in seconds. `atomic`: run all statements of the operation in one transaction.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(timeout):
                    connection = self._connection or await self._open()
                    pooled = self._settings.transaction_pooler
                    if not pooled and not atomic:
                        return await arun(connection, operation, self._settings.schema)
                    async with connection.transaction():
                        if pooled:
                            await connection.execute(self._set_up.replace("set ", "set local ").encode())
                        return await arun(connection, operation, self._settings.schema)
            except TOO_LARGE:
                # The server is healthy: the error is in the statement.
                raise
            except BROKEN as error:
                await self._drop()
                raise unavailable(self._url, error) from error
            except BaseException:
                # The call was interrupted during a statement: its reply is pending, so the connection is closed.
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
