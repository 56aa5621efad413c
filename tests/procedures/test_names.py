"""Names are data: only what the catalogue has is found and called, whatever the name contains."""

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from sereno.errors import InvalidArguments, Refused
from sereno.procedures.procedure import ProcedureName, parse_name
from sereno.procedures.result import ProcedureNotices
from sereno.procedures.targets.contract import Timeouts
from sereno.procedures.targets.postgres import PostgresTarget
from tests.facts import one
from tests.procedures.conftest import Login

# As long as PostgreSQL stores them untruncated.
NAMES = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=15)
HOSTILE = (
    'x"; drop table reporting.here; --',
    "x'); drop table reporting.here; --",
    "close_day(); drop table reporting.here; --",
    'a"b""c',
    "100% %s %(x)s %%",
    "{}{0}{name}",
    "close.day",
    "$1",
    "\\",
    "\n",
    "Ünïcödé ☃ 名前",
    "select",
    "\uff23\uff2c\uff2f\uff33\uff25",
)
WAITS = Timeouts(30, 30)


@given(NAMES, NAMES)
@example('"', '""')
@example("a.b", "c.d")
def test_a_name_is_parsed_exactly(schema: str, name: str) -> None:
    wanted = ProcedureName(schema, name)
    assert parse_name(str(wanted)) == wanted


@pytest.mark.slow
@given(st.text(max_size=60))
@example('"a')
@example('a."b')
@example("a.b.c")
@example(".")
@example('""."x"')
@example("a . b")
@example("\udc80.x")
@example("a.b; drop table x")
def test_other_texts_are_refused_with_a_hint(text: str) -> None:
    try:
        found = parse_name(text)
    except InvalidArguments:
        return
    assert "\x00" not in "".join(found)
    assert parse_name(str(found)) == found


def test_invalid_names_are_refused(subtests: pytest.Subtests) -> None:
    for text in ("a\x00b.c", '"a\x00"."b"', "close_day", "", "a.b\n", "x" * 200 + ".y", 'a."\ud800"'):
        with subtests.test(text=ascii(text)), pytest.raises(InvalidArguments):
            parse_name(text)


@pytest.fixture
def here(connection: psycopg.Connection, login: Login) -> Iterator[psycopg.Connection]:
    connection.execute("create table reporting.here (n integer)")
    yield connection
    assert one(connection, "select to_regclass('reporting.here') is not null"), "a hostile name has dropped the table"


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, NAMES, st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20))
@example(HOSTILE[0], HOSTILE[0], HOSTILE[0])
@example(HOSTILE[4], HOSTILE[5], HOSTILE[4])
async def test_only_existing_procedures_are_called(
    here: psycopg.Connection, login: Login, name: str, parameter: str, value: str
) -> None:
    await _is_called(here, login, name, parameter, value)


@pytest.mark.slow
async def test_hostile_names_are_quoted(here: psycopg.Connection, login: Login, subtests: pytest.Subtests) -> None:
    for name in HOSTILE:
        with subtests.test(name=name):
            await _is_called(here, login, name, name, name)


async def _is_called(here: psycopg.Connection, login: Login, name: str, parameter: str, value: str) -> None:
    wanted = ProcedureName("reporting", name)
    target = PostgresTarget(login.url, ["sereno"])
    async with target.open() as session:
        assert await session.resolve(wanted) == []
    here.execute(
        sql.SQL("create function reporting.{}({} text) returns text language sql as 'select $1'").format(
            sql.Identifier(name), sql.Identifier(parameter)
        )
    )
    try:
        async with target.open() as session:
            (found,) = await session.resolve(parse_name(str(wanted)))
            values = await session.convert(found, {parameter: value})
            assert (await session.call(found, values, WAITS, ProcedureNotices())).rows == [value]
    finally:
        here.execute(sql.SQL("drop function reporting.{}").format(sql.Identifier(name)))


@pytest.mark.slow
@given(st.text(max_size=10))
def test_system_schemas_are_refused(name: str) -> None:
    for schema in ("pg_catalog", "PG_CATALOG", "pg_temp_3", "pg_toast", "information_schema"):
        with pytest.raises(Refused):
            ProcedureName(schema, name).check_own("postgresql")
    for schema in ("mysql", "sys", "Performance_Schema"):
        with pytest.raises(Refused):
            ProcedureName(schema, name).check_own("mysql")
    with pytest.raises(Refused):
        ProcedureName("dbo", "sp_configure").check_own("sqlserver")
    with pytest.raises(Refused):
        ProcedureName("mine", name).check_own("postgresql", ["mine"])
