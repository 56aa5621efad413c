"""Procedures and functions of MySQL and MariaDB: with PyMySQL, in a thread, on a connection of the call's own."""

import logging
import math
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from sereno.errors import DatabaseUnavailable
from sereno.procedures.call_sql import mysql_call
from sereno.procedures.procedure import Dialect, Parameter, ProcedureName, ProcedureSignature
from sereno.procedures.result import MOST_ROWS, ProcedureNotices, ProcedureResult, plain_row
from sereno.procedures.targets.contract import CONNECT_SECONDS, Timeouts, UnsafeLogin
from sereno.procedures.targets.threads import driver, in_thread, watched
from sereno.procedures.values import KNOWN, converted, word_of
from sereno.telemetry.log_events import emit

T = TypeVar("T")

ROUTINES = (
    "select routine_type, dtd_identifier, security_type, definer from information_schema.routines "
    "where routine_schema = %s and routine_name = %s and binary routine_name = binary %s"
)
PARAMETERS = (
    "select routine_type, parameter_mode, parameter_name, dtd_identifier from information_schema.parameters "
    "where specific_schema = %s and specific_name = %s and ordinal_position > 0 order by routine_type, ordinal_position"
)
# Global privileges that a login for procedures may have.
HARMLESS = frozenset({"USAGE", "EXECUTE", "SHOW DATABASES", "SHOW VIEW", "CONNECTION ADMIN", "CONNECTION_ADMIN"})
_EVERYWHERE = re.compile(r"GRANT (.+?) ON \*\.\* TO ")
# Timeout in seconds of a query of the catalogue.
READ_TIMEOUT = 30.0
# The server ends a statement itself where it can; the client's timeout comes this many seconds later.
BEHIND = 1.0


class MySQLTarget:
    """A MySQL or MariaDB. `given`: connection parameters of its driver."""

    dialect: Dialect = "mysql"

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["MySQLSession"]:
        mysql = driver("pymysql", "mysql")

        def connect() -> Any:
            return mysql.connect(**self._given, connect_timeout=CONNECT_SECONDS, autocommit=True, charset="utf8mb4")

        try:
            connection = await in_thread(connect)
        except mysql.err.Error as error:
            where = self._given.get("unix_socket") or f"{self._given['host']}:{self._given['port']}"
            raise DatabaseUnavailable(f"cannot connect to MySQL at {where}: {_message(error)}") from None
        session = MySQLSession(mysql, connection, connect)
        try:
            yield session
        finally:
            session.close()


class MySQLSession:
    """One connection, for one call."""

    def __init__(self, mysql: Any, connection: Any, connect: Callable[[], Any]) -> None:
        self._mysql = mysql
        self._connection = connection
        self._connect = connect

    async def check_login(self) -> None:
        lines = await self._query(lambda: self._rows("show grants"))
        powers = {
            each.strip()
            for (line,) in lines
            for found in [_EVERYWHERE.match(line)]
            if found
            for each in found[1].split(",")
        }
        if powers - HARMLESS:
            raise UnsafeLogin(
                f"the login has the global privilege {min(powers - HARMLESS)}, and so has every procedure it calls: "
                "create a user for procedures only (grant execute on procedure … to …) and use it in "
                "SERENO_PROCEDURE_TARGETS"
            )

    async def resolve(self, name: ProcedureName) -> list[ProcedureSignature]:
        def query() -> list[ProcedureSignature]:
            routines = self._rows(ROUTINES, (name.schema, name.name, name.name))
            parameters = self._rows(PARAMETERS, name)
            return [_signature(name, routine, parameters) for routine in routines]

        return await self._query(query)

    async def may_execute(self, name: ProcedureName) -> bool:
        """Return whether the catalogue shows it: MySQL hides what a login may not call."""
        return bool(await self.resolve(name))

    async def convert(self, signature: ProcedureSignature, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return converted(signature, params)

    async def call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], timeouts: Timeouts, notices: ProcedureNotices
    ) -> ProcedureResult:
        def run() -> ProcedureResult:
            self._set_timeouts(timeouts)
            return self._call(signature, values, notices)

        try:
            return await self._run(run, timeouts.statement + BEHIND)
        except TimeoutError:
            raise TimeoutError(f"{signature.full_name} ran longer than {timeouts.statement:g} s") from None

    def _set_timeouts(self, timeouts: Timeouts) -> None:
        seconds = max(1, math.ceil(timeouts.lock))
        self._rows(f"set session innodb_lock_wait_timeout = {seconds}, session lock_wait_timeout = {seconds}")
        if "mariadb" in str(self._connection.get_server_info()).lower():
            self._rows(f"set session max_statement_time = {timeouts.statement:f}")

    def _call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], notices: ProcedureNotices
    ) -> ProcedureResult:
        call = mysql_call(signature, values)
        if call.before is not None:
            self._rows(*call.before)
        rows, count = self._read(call.text, call.values)
        # Read before any other statement replaces them.
        for level, _, message in self._rows("show warnings"):
            notices.add(str(level), str(message))
        if call.after is not None:
            (line,) = self._rows(call.after)
            rows, count = [plain_row(call.outputs, line), *rows], count + 1 if rows else 1
        return ProcedureResult(rows[:MOST_ROWS], count, notices.collected, notices.omitted)

    def _read(self, text: str, values: Iterable[Any]) -> tuple[list[Any], int]:
        """Return the first rows of all result sets and the number of all rows, or else of those changed last."""
        rows: list[Any] = []
        count = changed = 0
        with self._connection.cursor(self._mysql.cursors.SSCursor) as cursor:
            cursor.execute(text, tuple(values))
            while True:
                if cursor.description is None:
                    changed = max(0, cursor.rowcount)
                else:
                    names = [column[0] for column in cursor.description]
                    for line in cursor:
                        count += 1
                        if len(rows) < MOST_ROWS:
                            rows.append(plain_row(names, line))
                if not cursor.nextset():
                    return rows, count or changed

    def _rows(self, text: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, tuple(values))
            return list(cursor.fetchall())

    async def _query(self, function: Callable[[], T]) -> T:
        try:
            return await self._run(function, READ_TIMEOUT)
        except (self._mysql.err.Error, TimeoutError) as error:
            raise DatabaseUnavailable(f"cannot read the catalogue of MySQL: {_message(error)}") from error

    async def _run(self, function: Callable[[], T], timeout: float) -> T:
        return await watched(function, self._stop, timeout)

    def _stop(self) -> None:
        """Kill the statement from another connection of the same login: its own connection is busy."""
        try:
            other = self._connect()
            try:
                with other.cursor() as cursor:
                    cursor.execute("kill %s", (self._connection.thread_id(),))
            finally:
                other.close()
        except self._mysql.err.Error as error:
            emit(
                logging.WARNING,
                "procedure.runs_on",
                f"a procedure could not be stopped and still runs in its database: {_message(error)}. To stop what "
                "runs with the privileges of another user, the login needs CONNECTION ADMIN",
            )

    def close(self) -> None:
        """Close the connection; a thread that waits on it wakes up."""
        with suppress(OSError, AttributeError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001 - the driver's close would block
        with suppress(OSError, self._mysql.err.Error):
            self._connection.close()


def _signature(name: ProcedureName, routine: tuple[Any, ...], parameters: list[tuple[Any, ...]]) -> ProcedureSignature:
    kind, returns, security, definer = (_text(each) for each in routine)
    found = tuple(
        Parameter(_text(each[2]) or "", written, (_text(each[1]) or "in").lower(), False, _shape(written))  # type: ignore[arg-type]  # in, out or inout
        for each in parameters
        if _text(each[0]) == kind
        for written in [_text(each[3]) or ""]
    )
    unsupported = [each.type for each in found if word_of(each.type) not in KNOWN]
    return ProcedureSignature(
        "function" if kind == "FUNCTION" else "procedure",
        name.schema,
        name.name,
        found,
        returns if kind == "FUNCTION" else None,
        definer=definer if security == "DEFINER" else None,
        unfit=f"JSON has no equivalent of the type {unsupported[0]}" if unsupported else None,
    )


def _shape(written: str) -> Any:
    """Return the shape; the JSON of MariaDB is an alias of longtext."""
    return "json" if word_of(written) in ("json", "longtext") else "value"


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _message(error: BaseException) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__
