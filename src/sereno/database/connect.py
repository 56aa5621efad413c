"""Opens sereno's own connections, and `ServiceConnection`, a connection that is reopened after failures."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel, pq

from sereno.database.replication_wait import UNREPLICATED, check_replicated
from sereno.database.servers import Server, servers_of
from sereno.database.statement import Operation, arun
from sereno.database.timelines import UNTOLD, ServerTimeline
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


@dataclass(frozen=True)
class ConnectOptions:
    """How to open a connection: keyword arguments of the driver, the first statements, and the isolation level."""

    arguments: Mapping[str, Any]
    statements: str = ""
    isolation: IsolationLevel | None = None

    def to(self, server: Server) -> dict[str, Any]:
        """Return the arguments for one server; what the address says counts more than the defaults."""
        return {**CONNECT_PARAMETERS, **server.parameters, **self.arguments}


def connect_options(settings: Settings, role: str, more: str = "") -> ConnectOptions:
    """Return the options of sereno's own connections; `role` is shown in pg_stat_activity, `more`: SET statements."""
    arguments = {"application_name": f"sereno {role}"}
    if settings.transaction_pooler:
        # The next statement may use another server connection, so nothing may be prepared or set.
        return ConnectOptions(arguments | {"prepare_threshold": None}, "", IsolationLevel.READ_COMMITTED)
    return ConnectOptions(arguments, f"{session_settings(settings)}{more}")


def session_settings(settings: Settings) -> str:
    """Return the SET statements for a new connection."""
    always = f"{READ_COMMITTED}; {JIT_OFF}"
    return always if settings.notify else f"{always}; set {settings.schema}.notify = off"


def open_sync(url: str, settings: Settings, role: str) -> psycopg.Connection[Any]:
    """Open a sync connection, to the primary among the servers of the address."""
    servers = servers_of(url)
    if servers.needs_survey:
        servers.survey()
    options, failures = connect_options(settings, role), ConnectFailures()
    for server in servers.order:
        try:
            connection = _open_one(server, options)
        except psycopg.OperationalError as error:
            servers.skipped(server)
            failures.add(server, error)
        else:
            servers.connected(server, connection)
            return connection
    raise failures.error()


async def open_async(url: str, settings: Settings, role: str, more: str = "") -> psycopg.AsyncConnection[Any]:
    """Open an async connection, to the primary among the servers of the address; `more`: additional SET statements."""
    return await aconnect(url, connect_options(settings, role, more))


async def aconnect(url: str, options: ConnectOptions) -> psycopg.AsyncConnection[Any]:
    """Open an async connection with these options, to the primary among the servers of the address."""
    servers = servers_of(url)
    if servers.needs_survey:
        await asyncio.to_thread(servers.survey)
    failures = ConnectFailures()
    for server in servers.order:
        try:
            connection = await _aopen_one(server, options)
        except psycopg.OperationalError as error:
            servers.skipped(server)
            failures.add(server, error)
        except asyncio.CancelledError:
            # The caller waits no longer. Its next try begins with another server.
            servers.skipped(server)
            raise
        else:
            servers.connected(server, connection)
            return connection
    raise failures.error()


def _open_one(server: Server, options: ConnectOptions) -> psycopg.Connection[Any]:
    connection = psycopg.connect(**options.to(server))
    try:
        connection.isolation_level = options.isolation
        try:
            cursor = connection.execute(server.with_timeline(options.statements).encode())
            while cursor.nextset():
                pass
            server.check(connection, cursor.fetchone() if cursor.description else None)
        except UNTOLD:
            server.tells_timeline = False
            connection.execute(options.statements.encode())
    except BaseException:
        connection.close()
        raise
    return connection


async def _aopen_one(server: Server, options: ConnectOptions) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(**options.to(server))
    try:
        await connection.set_isolation_level(options.isolation)
        try:
            cursor = await connection.execute(server.with_timeline(options.statements).encode())
            while cursor.nextset():
                pass
            server.check(connection, await cursor.fetchone() if cursor.description else None)
        except UNTOLD:
            server.tells_timeline = False
            await connection.execute(options.statements.encode())
    except BaseException:
        await connection.close()
        raise
    return connection


class ConnectFailures:
    """Why the servers of an address could not be used."""

    def __init__(self) -> None:
        self._found: list[tuple[Server, psycopg.OperationalError]] = []

    def add(self, server: Server, error: psycopg.OperationalError) -> None:
        self._found.append((server, error))

    def error(self) -> psycopg.OperationalError:
        """Return one error for all servers."""
        if len(self._found) == 1:
            return self._found[0][1]
        texts = [f"{server}: {_first_line(error)}" for server, error in self._found]
        return psycopg.OperationalError("no server is a primary that can be used: " + "; ".join(texts))


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
    first_line = _first_line(error)
    if any(words in first_line for words in TOO_MANY):
        return ConnectionsInUse(f"PostgreSQL at {where} has no connection left: {first_line}")
    return DatabaseUnavailable(
        f"no connection to PostgreSQL at {where}: {first_line}; start the server, or check the URL "
        "(that of sereno is SERENO_DATABASE_URL)"
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def failed(url: str, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | None) -> None:
    """Note that a connection broke or got no reply: the other servers of the address are tried before its own."""
    if connection is not None:
        servers_of(url).failed(connection)


def is_read_only_server(
    error: BaseException | None, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> bool:
    """Return whether a write failed because the server is a standby or read-only, not because its transaction is."""
    if not isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or connection.closed:
        return False
    status = connection.info.parameter_status
    return "on" in (status("in_hot_standby"), status("default_transaction_read_only"))


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
        self._check: Callable[[], Operation[bool]] | None = None
        self.timeline: ServerTimeline | None = None

    def confirm(self, check: Callable[[], Operation[bool]], registered: "ServiceConnection") -> None:
        """After a promotion, run this check before anything else; if it returns False, the connection is not used.

        `registered`: the connection on which that was written which the check looks for.
        """
        self._check = check
        self.timeline = registered.timeline

    async def run(self, operation: Operation[T], timeout: float = CALL_TIMEOUT, *, atomic: bool = False) -> T:
        """Run one operation; raise DatabaseUnavailable when the connection or the server fails.

        `timeout`: timeout in seconds. `atomic`: run all statements of the operation in one transaction.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(timeout):
                    connection = self._connection or await self._open()
                    result = await self._run(connection, operation, atomic=atomic)
                    if UNREPLICATED:
                        check_replicated(connection)
                    return result
            except TOO_LARGE:
                # The server is healthy: the error is in the statement.
                raise
            except BROKEN as error:
                failed(self._url, self._connection)
                await self._drop()
                raise unavailable(self._url, error) from error
            except BaseException:
                # The call was interrupted during a statement: its reply is pending, so the connection is closed.
                if self._is_busy():
                    await self._drop()
                raise

    async def _run(self, connection: psycopg.AsyncConnection[Any], operation: Operation[T], *, atomic: bool) -> T:
        pooled = self._settings.transaction_pooler
        if not pooled and not atomic:
            return await arun(connection, operation, self._settings.schema)
        async with connection.transaction():
            if pooled:
                await connection.execute(self._set_up.replace("set ", "set local ").encode())
            return await arun(connection, operation, self._settings.schema)

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        connection = await open_async(self._url, self._settings, self._role, f"; {self._set_up}")
        try:
            await self._confirm(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    async def _confirm(self, connection: psycopg.AsyncConnection[Any]) -> None:
        before, timeline = self.timeline, servers_of(self._url).timelines.of(connection)
        is_promoted = before is not None and timeline is not None and timeline != before
        if self._check is not None and is_promoted:
            found = await arun(connection, self._check(), self._settings.schema)
            if not found:
                raise psycopg.OperationalError("the promoted standby does not have the session of this worker")
        self.timeline = timeline

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
