"""Procedures that attack: they cannot leave their login, are not shadowed by other schemas, and leave no state."""

import psycopg
import pytest

from sereno import Sereno
from tests.procedures.conftest import Allow, Login, reason, result, run


async def test_reset_role_does_not_leave_the_login_for_procedures(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login
) -> None:
    connection.execute(
        "create function reporting.escapes() returns text language plpgsql as $$ begin "
        "reset role; reset session authorization; "
        "begin execute 'select count(*) from sereno.jobs'; return 'it read the jobs'; "
        "exception when insufficient_privilege then null; end; "
        "begin execute 'set role postgres'; return 'it became postgres'; "
        "exception when insufficient_privilege then null; end; "
        "return current_user; end $$"
    )
    await allow("reporting.escapes")
    job = reporting.procedure("reporting.escapes").enqueue()
    assert await run(reporting, connection, job.id) == "succeeded", reason(connection, job.id)
    assert result(connection, job.id)["rows"] == [login.name]


@pytest.mark.slow
async def test_objects_in_other_schemas_do_not_shadow_its_own(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login
) -> None:
    """A table or a function of the same name in `public` or `pg_temp`, whatever the login's search path is."""
    connection.execute(
        f"alter role {login.name} set search_path = public, reporting;"
        "create table reporting.rates (rate integer); insert into reporting.rates values (1);"
        "create table public.rates (rate integer); insert into public.rates values (99);"
        "grant select on reporting.rates, public.rates to public;"
        "create function reporting.factor(n integer) returns integer language sql as 'select 1';"
        "create function public.factor(n integer) returns integer language sql as 'select 99';"
        "create function public.lower(x varchar) returns text language sql as $$ select 'trapped' $$;"
        "create function reporting.total(x varchar) returns text language plpgsql as $$ begin "
        "create temp table rates (rate integer); insert into pg_temp.rates values (77); "
        "return (select rate from rates) || ' ' || factor(1) || ' ' || lower(x); end $$"
    )
    await allow("reporting.total")
    job = reporting.procedure("reporting.total").enqueue(x="ABC")
    assert await run(reporting, connection, job.id) == "succeeded", reason(connection, job.id)
    assert result(connection, job.id)["rows"] == ["1 1 abc"]


@pytest.mark.slow
async def test_a_call_leaves_no_state_for_the_next(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login
) -> None:
    connection.execute(
        f"grant temporary on database {connection.info.dbname} to {login.name};"
        "create function reporting.litters() returns text language plpgsql as $$ begin "
        "if to_regclass('pg_temp.litter') is not null then return 'a table'; end if; "
        "if current_setting('shop.litter', true) = 'yes' then return 'a setting'; end if; "
        "create temp table litter (n integer); perform set_config('shop.litter', 'yes', false); "
        "return 'clean'; end $$"
    )
    await allow("reporting.litters")
    task = reporting.procedure("reporting.litters")
    for _ in range(2):
        job = task.enqueue()
        assert await run(reporting, connection, job.id) == "succeeded", reason(connection, job.id)
        assert result(connection, job.id)["rows"] == ["clean"]
