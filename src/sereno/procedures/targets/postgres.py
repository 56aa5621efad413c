"""Procedures and functions of PostgreSQL: with psycopg, on a connection of the call's own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.errors import Diagnostic
from psycopg.rows import tuple_row

from sereno.database.connect import ConnectOptions, aconnect, unavailable
from sereno.database.statement import arun
from sereno.errors import InvalidArguments
from sereno.procedures import store as procedures
from sereno.procedures.procedure import Dialect, Parameter, ProcedureName, ProcedureSignature
from sereno.procedures.result import MOST_ROWS, ProcedureNotices, ProcedureResult, plain, plain_row
from sereno.procedures.targets.contract import GIVE_UP_AFTER, Timeouts, UnsafeLogin

# Unqualified names resolve to the catalogue only, whatever users have created elsewhere.
CATALOGUE_ONLY = "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)"
# Bytes of JSON of a row; a longer row is counted but not stored.
LONGEST_ROW = 16_384

_FIND = sql.SQL("select {} from pg_catalog.jsonb_to_record(%s::pg_catalog.jsonb) as given({})")
_DATES = "select pg_catalog.set_config('datestyle', 'ISO, YMD', false)"
_RESET_DATES = "reset datestyle"
_SETTINGS = (
    "select pg_catalog.set_config('statement_timeout', %s, false), pg_catalog.set_config('lock_timeout', %s, false), "
    "pg_catalog.set_config('search_path', %s, false)"
)
# Ends the statement of a dead worker or host within seconds, before another worker starts the job again.
_DETECT_DEAD_CLIENT = (
    "select pg_catalog.set_config('client_connection_check_interval', '1s', false), "
    "pg_catalog.set_config('tcp_keepalives_idle', '10', false), "
    "pg_catalog.set_config('tcp_keepalives_interval', '3', false), "
    "pg_catalog.set_config('tcp_keepalives_count', '3', false)"
)
# All rows are counted, because only that runs the function to its end; the first of them are returned.
_FUNCTION = sql.SQL(
    "with result as materialized (select {row} as one from {name}({arguments}) as sereno_row) "
    "select (select pg_catalog.count(*) from result), "
    "array(select case when pg_catalog.octet_length(one::pg_catalog.text) <= {longest} then one::pg_catalog.text end "
    "from result limit {most})"
)
_PROCEDURE = sql.SQL("call {name}({arguments})")


class PostgresTarget:
    """A PostgreSQL. `schemas`: sereno's own, which its login must not use. `trusted`: any login is accepted."""

    dialect: Dialect = "postgresql"

    def __init__(self, url: str, schemas: Sequence[str], *, trusted: bool = False) -> None:
        self._url = url
        self._schemas = list(schemas)
        self._trusted = trusted

    @asynccontextmanager
    async def open(self) -> AsyncIterator["PostgresSession"]:
        given = {"application_name": "sereno procedure", "prepare_threshold": None}
        try:
            connection = await aconnect(self._url, ConnectOptions(given, CATALOGUE_ONLY))
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            raise unavailable(self._url, error) from None
        try:
            yield PostgresSession(connection, self._schemas, trusted=self._trusted)
        finally:
            await connection.close()


class PostgresSession:
    """One connection, for one call."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], schemas: Sequence[str], *, trusted: bool = False
    ) -> None:
        self._connection = connection
        self._schemas = list(schemas)
        self._trusted = trusted

    async def check_login(self) -> None:
        if self._trusted:
            return
        user, superuser, power, table = await arun(self._connection, procedures.login(self._schemas))
        can = None
        if superuser is not None:
            can = "is a superuser" if superuser == user else f"can become the superuser {superuser!r}"
        elif table is not None:
            can = f"can access the table {table} of sereno"
        elif power is not None:
            can = f"can act as {power!r}, which may do more than call procedures"
        if can is not None:
            raise UnsafeLogin(
                f"the login {user!r} {can}, and so could every procedure it calls: create a role for procedures only "
                "(create role reports login; grant execute on …) and use it in SERENO_PROCEDURE_URL"
            )

    async def resolve(self, name: ProcedureName) -> list[ProcedureSignature]:
        return await arun(self._connection, procedures.resolve(name))

    async def may_execute(self, name: ProcedureName) -> bool:
        return await arun(self._connection, procedures.may_execute(name))

    async def convert(self, signature: ProcedureSignature, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert in the database, with a statement that does nothing else: JSON becomes text of each type."""
        wanted = [each for each in signature.inputs if each.name in params]
        if not wanted:
            return {}
        named = [sql.Identifier(f"p{place}") for place in range(len(wanted))]
        query = _FIND.format(
            sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(each) for each in named),
            sql.SQL(", ").join(
                sql.SQL("{} {}").format(each, _type(parameter)) for each, parameter in zip(named, wanted, strict=True)
            ),
        )
        given = {f"p{place}": params[each.name] for place, each in enumerate(wanted)}
        try:
            await self._connection.execute(_DATES)
            row = await (await self._cursor().execute(query, [msgspec.json.encode(given).decode()])).fetchone()
            await self._connection.execute(_RESET_DATES)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            text = error.diag.message_primary or type(error).__name__
            raise InvalidArguments(f"{signature.full_name}: a parameter does not fit: {text}") from error
        assert row is not None
        return {each.name: value for each, value in zip(wanted, row, strict=True)}

    async def call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], timeouts: Timeouts, notices: ProcedureNotices
    ) -> ProcedureResult:
        self._connection.add_notice_handler(lambda diagnostic: _collect(notices, diagnostic))
        # Its own schema, then temporary tables: no object of another schema with the same name comes first.
        path = f"{_quoted(signature.schema)}, pg_temp"
        waits = [f"{max(1, round(each * 1000))}ms" for each in timeouts]
        # Not supported by servers before 14, and on some systems other than Linux.
        with suppress(psycopg.DataError, psycopg.ProgrammingError):
            await self._connection.execute(_DETECT_DEAD_CLIENT)
        await self._connection.execute(_SETTINGS, [*waits, path])
        run = self._run_function if signature.kind == "function" else self._run_procedure
        async with asyncio.timeout(timeouts.statement + GIVE_UP_AFTER):
            return await run(signature, values, notices)

    async def _run_function(
        self, signature: ProcedureSignature, values: Mapping[str, Any], notices: ProcedureNotices
    ) -> ProcedureResult:
        is_void = signature.returns == "void" and not signature.returns_set
        row = "null::pg_catalog.jsonb" if is_void else "coalesce(pg_catalog.to_jsonb(sereno_row), 'null')"
        query = _FUNCTION.format(
            row=sql.SQL(row),
            name=_name(signature),
            arguments=_arguments(signature.inputs, values),
            longest=sql.Literal(LONGEST_ROW),
            most=sql.Literal(MOST_ROWS),
        )
        found = await (await self._cursor().execute(query, _given(signature.inputs, values))).fetchone()
        assert found is not None
        count, rows = found
        if is_void:
            return ProcedureResult([], None, notices.collected, notices.omitted)
        read = [plain(msgspec.json.decode(each)) if each is not None else "(too long to be stored)" for each in rows]
        return ProcedureResult(read, count, notices.collected, notices.omitted)

    async def _run_procedure(
        self, signature: ProcedureSignature, values: Mapping[str, Any], notices: ProcedureNotices
    ) -> ProcedureResult:
        """Run outside a transaction, so that the procedure can commit."""
        passed = [each for each in signature.parameters if each.mode == "out" or each.name in values]
        query = _PROCEDURE.format(name=_name(signature), arguments=_arguments(passed, values))
        cursor = await self._cursor().execute(query, _given(passed, values))
        if cursor.description is None:
            return ProcedureResult([], None, notices.collected, notices.omitted)
        names = [column.name for column in cursor.description]
        rows = [plain_row(names, row) for row in await cursor.fetchmany(MOST_ROWS)]
        return ProcedureResult(rows, max(cursor.rowcount, len(rows)), notices.collected, notices.omitted)

    def _cursor(self) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        return psycopg.AsyncCursor(self._connection, row_factory=tuple_row)


def _name(signature: ProcedureSignature) -> sql.Composable:
    return sql.Identifier(_doubled(signature.schema), _doubled(signature.name))


def _type(parameter: Parameter) -> sql.Composable:
    # Quoted by the catalogue; never user input.
    return sql.SQL(_doubled(parameter.type))


def _arguments(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> sql.Composable:
    """Return the arguments by name, each cast to exactly the type of the signature."""
    parts: list[sql.Composable] = []
    for each in parameters:
        if each.name not in values and each.mode != "out":
            continue
        variadic = sql.SQL("variadic " if each.mode == "variadic" else "")
        value = sql.SQL("%s" if each.name in values and each.mode != "out" else "null")
        name = sql.Identifier(_doubled(each.name))
        parts.append(sql.SQL("{}{} => {}::{}").format(variadic, name, value, _type(each)))
    return sql.SQL(", ").join(parts)


def _given(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> list[Any]:
    return [values[each.name] for each in parameters if each.name in values and each.mode != "out"]


def _doubled(text: str) -> str:
    """Double percent signs: the driver reads one as the start of a parameter, even inside quotes."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _collect(notices: ProcedureNotices, diagnostic: Diagnostic) -> None:
    severity = diagnostic.severity_nonlocalized or diagnostic.severity or "NOTICE"
    notices.add(severity, diagnostic.message_primary or "")
