"""Procedures and functions of SQL Server: with mssql-python, in a thread, on a connection of the call's own."""

import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from sereno.errors import DatabaseUnavailable
from sereno.procedures.call_sql import sqlserver_call
from sereno.procedures.procedure import Dialect, Parameter, ProcedureName, ProcedureSignature
from sereno.procedures.result import MOST_ROWS, ProcedureNotices, ProcedureResult, plain_row
from sereno.procedures.targets.contract import CONNECT_SECONDS, GIVE_UP_AFTER, Timeouts, UnsafeLogin
from sereno.procedures.targets.threads import driver, in_thread, watched
from sereno.procedures.values import KNOWN, converted, word_of

T = TypeVar("T")

# Binary comparison, whatever the collation of the database.
ROUTINES = """
select o.object_id, rtrim(o.type), m.execute_as_principal_id, user_name(nullif(m.execute_as_principal_id, -2)),
       has_perms_by_name(quotename(s.name) + '.' + quotename(o.name), 'OBJECT',
                         case when o.type in ('IF', 'TF') then 'SELECT' else 'EXECUTE' end)
from sys.objects o
join sys.schemas s on s.schema_id = o.schema_id
left join sys.sql_modules m on m.object_id = o.object_id
where s.name = ? collate Latin1_General_BIN2 and o.name = ? collate Latin1_General_BIN2
  and o.type in ('P', 'FN', 'IF', 'TF')
"""
PARAMETERS = """
select p.name, t.name, p.max_length, p.precision, p.scale, p.is_output, t.is_user_defined, t.is_table_type
from sys.parameters p join sys.types t on t.user_type_id = p.user_type_id
where p.object_id = ?
order by p.parameter_id
"""
LOGIN = "select suser_sname(), is_srvrolemember('sysadmin'), is_member('db_owner'), is_member('db_securityadmin')"
# Timeout in seconds of a query of the catalogue.
READ_TIMEOUT = 30.0
_WITH_LENGTH = frozenset({"char", "varchar", "nchar", "nvarchar", "binary", "varbinary"})
_IN_TWO_BYTES = frozenset({"nchar", "nvarchar"})
# The prefix of a server's message in the driver: "[Microsoft][…][SQL Server]message".
_FROM = re.compile(r"^(?:\[[^\]]*\])+")


class SqlServerTarget:
    """A SQL Server by its connection string; `where` is shown in messages and has no password."""

    dialect: Dialect = "sqlserver"

    def __init__(self, connection_string: str, where: str) -> None:
        self._connection_string = connection_string
        self._where = where

    @asynccontextmanager
    async def open(self) -> AsyncIterator["SqlServerSession"]:
        mssql = driver("mssql_python", "sqlserver")

        def connect() -> Any:
            return mssql.connect(self._connection_string, autocommit=True, timeout=CONNECT_SECONDS)

        try:
            connection = await in_thread(connect)
        except mssql.Error as error:
            raise DatabaseUnavailable(f"cannot connect to SQL Server at {self._where}: {error}") from None
        try:
            yield SqlServerSession(connection, mssql.Error)
        finally:
            with suppress(mssql.Error):
                await in_thread(connection.close)


class SqlServerSession:
    """One connection, for one call."""

    def __init__(self, connection: Any, *errors: type[Exception]) -> None:
        """`errors`: the driver's error classes."""
        self._connection = connection
        self._errors: tuple[type[Exception], ...] = (*errors, TimeoutError)

    async def check_login(self) -> None:
        ((user, *powers),) = await self._query(lambda: self._rows(LOGIN))
        named = [role for role, has in zip(("sysadmin", "db_owner", "db_securityadmin"), powers, strict=True) if has]
        if named:
            raise UnsafeLogin(
                f"the login {user!r} is a member of {named[0]}, and every procedure it calls has its privileges: "
                "create a login for procedures only (grant execute on … to …) and use it in SERENO_PROCEDURE_TARGETS"
            )

    async def resolve(self, name: ProcedureName) -> list[ProcedureSignature]:
        def query() -> list[ProcedureSignature]:
            return [
                signature_of(name, routine, self._rows(PARAMETERS, [routine[0]]))
                for routine in self._rows(ROUTINES, name)
            ]

        return await self._query(query)

    async def may_execute(self, name: ProcedureName) -> bool:
        return any(routine[4] for routine in await self._query(lambda: self._rows(ROUTINES, name)))

    async def convert(self, signature: ProcedureSignature, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return converted(signature, params, unsigned_bytes=True)

    async def call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], timeouts: Timeouts, notices: ProcedureNotices
    ) -> ProcedureResult:
        def run() -> ProcedureResult:
            self._connection.timeout = max(1, math.ceil(timeouts.statement))
            self._rows(f"set lock_timeout {max(1, round(timeouts.lock * 1000))}")
            return self._call(signature, values, notices)

        return await self._run(run, timeouts.statement + GIVE_UP_AFTER)

    def _call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], notices: ProcedureNotices
    ) -> ProcedureResult:
        call = sqlserver_call(signature, values)
        rows: list[Any] = []
        count = changed = 0
        cursor = self._connection.cursor()
        cursor.execute(call.text, list(call.values))
        while True:
            for _, message in cursor.messages:
                notices.add("NOTICE", _FROM.sub("", str(message)))
            if cursor.description is None:
                changed += max(0, cursor.rowcount)
            else:
                names = [column[0] for column in cursor.description]
                for line in cursor:
                    count += 1
                    if len(rows) < MOST_ROWS:
                        rows.append(plain_row(names, line))
            if not cursor.nextset():
                cursor.close()
                return ProcedureResult(rows, count or changed, notices.collected, notices.omitted)

    def _rows(self, text: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(text, list(values))
            return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    async def _query(self, function: Callable[[], T]) -> T:
        try:
            return await self._run(function, READ_TIMEOUT)
        except self._errors as error:
            raise DatabaseUnavailable(f"cannot read the catalogue of SQL Server: {error}") from error

    async def _run(self, function: Callable[[], T], timeout: float) -> T:
        # The driver cannot cancel a statement: only the server's timeout ends it.
        return await watched(function, lambda: None, timeout)


def signature_of(
    name: ProcedureName, routine: tuple[Any, ...], parameters: list[tuple[Any, ...]]
) -> ProcedureSignature:
    """Build it from rows of `ROUTINES` and `PARAMETERS`. The catalogue has no defaults: each parameter is required."""
    _, kind, executes_as, principal, *_ = routine
    is_function = kind != "P"
    returned = [each for each in parameters if not each[0]]
    found = tuple(
        Parameter(str(each[0]).removeprefix("@"), type_of(each), "inout" if each[5] else "in")
        for each in parameters
        if each[0]
    )
    table = next((type_of(each) for each in parameters if each[7]), None)
    unsupported = table or next((each.type for each in found if word_of(each.type) not in KNOWN), None)
    own_type = next((type_of(each) for each in parameters if each[6]), None)
    unknown = unsupported or own_type
    definer = None if executes_as is None else principal or "its owner"
    return ProcedureSignature(
        "function" if is_function else "procedure",
        name.schema,
        name.name,
        found,
        "table" if kind in ("IF", "TF") else type_of(returned[0]) if returned else None,
        kind in ("IF", "TF"),
        definer,
        f"JSON has no equivalent of the type {unknown}" if unknown else None,
    )


def type_of(line: tuple[Any, ...]) -> str:
    """Return the type as in a declaration: `nvarchar(50)`, `decimal(10,2)`, `datetime2(3)`."""
    _, name, length, precision, scale, *_ = line
    if name in _WITH_LENGTH:
        characters = length // 2 if name in _IN_TWO_BYTES else length
        return f"{name}({'max' if length < 0 else characters})"
    if name in ("decimal", "numeric"):
        return f"{name}({precision},{scale})"
    if name in ("datetime2", "datetimeoffset", "time"):
        return f"{name}({scale})"
    return str(name)
