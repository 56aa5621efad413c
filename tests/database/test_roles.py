"""Roles are created, updated by a second run, and take over ownership."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno.database import roles
from sereno.database.migrate import migrate
from sereno.database.privileges import AS_OWNER, LOGINS
from sereno.database.statement import run
from sereno.errors import ConfigurationError
from tests.facts import one
from tests.roles import Roles, as_login, made, own_prefix

EVERYTHING = """
select relname, pg_get_userbyid(relowner), array(select a::text from unnest(relacl) as a order by 1),
       array(select format('%s %s', attname, attacl) from pg_attribute where attrelid = c.oid and attacl is not null)
from pg_class c where relnamespace in ('sereno'::regnamespace, 'sereno_archive'::regnamespace)
union all
select proname, pg_get_userbyid(proowner), array(select a::text from unnest(proacl) as a order by 1),
       array[prosecdef::text, proconfig::text]
from pg_proc where pronamespace = 'sereno'::regnamespace
union all
select nspname, pg_get_userbyid(nspowner), array(select a::text from unnest(nspacl) as a order by 1), '{}'
from pg_namespace
union all
select typname, pg_get_userbyid(typowner), '{}', '{}' from pg_type where typnamespace = 'sereno'::regnamespace
order by 1, 2, 3, 4
"""


@pytest.fixture
def made_roles(connection: psycopg.Connection, database_url: str) -> Iterator[Roles]:
    with made(connection, database_url) as found:
        yield found


def _everything(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(EVERYTHING.encode()).fetchall()


@pytest.mark.slow
def test_a_second_run_changes_nothing_but_revokes_extra_privileges(
    connection: psycopg.Connection, made_roles: Roles
) -> None:
    before = _everything(connection)
    worker, reader = made_roles.name("worker"), made_roles.name("reader")
    connection.execute(f"grant truncate on sereno.audit to {worker}".encode())
    connection.execute(f"grant select (hash) on sereno.tokens to {worker}".encode())
    connection.execute(f"grant select on sereno.accounts to {reader}".encode())
    connection.execute("grant select on sereno.tokens to public")
    connection.execute("grant execute on function sereno.drop_history_partition to public")
    connection.execute("alter function sereno.now() security definer")
    connection.execute("alter function sereno.enqueue security invoker")
    connection.execute("alter table sereno.jobs owner to current_user")
    assert _everything(connection) != before
    assert roles.create(connection, "sereno", made_roles.prefix) == []
    assert _everything(connection) == before


@pytest.mark.slow
def test_new_objects_of_an_upgrade_belong_to_the_owner_and_are_not_granted(
    connection: psycopg.Connection, made_roles: Roles
) -> None:
    connection.execute("create table sereno.new_things (id bigint)")
    connection.execute("create function sereno.new_function() returns integer language sql as 'select 1'")
    roles.create(connection, "sereno", made_roles.prefix)
    owner = "select pg_get_userbyid(relowner) from pg_class where oid = 'sereno.new_things'::regclass"
    assert one(connection, owner) == made_roles.name("owner")
    rights = "select has_table_privilege(%s, 'sereno.new_things', 'select, insert, update, delete')"
    calls = "select has_function_privilege(%s, %s, 'execute')"
    assert not any(one(connection, rights, made_roles.name(login)) for login in LOGINS)
    assert one(connection, calls, made_roles.name("worker"), "sereno.new_function()")
    assert not one(connection, calls, made_roles.name("producer"), "sereno.new_function()")
    # Objects that the owner role creates have no grants.
    connection.execute(f"set role {made_roles.name('owner')}".encode())
    connection.execute("create function sereno.newer_function() returns integer language sql as 'select 1'")
    connection.execute("reset role")
    assert not any(one(connection, calls, made_roles.name(login), "sereno.newer_function()") for login in LOGINS)


@pytest.mark.slow
def test_roles_of_another_schema_and_prefix_reach_only_that_schema(
    connection: psycopg.Connection, database_url: str
) -> None:
    migrate(connection, "elsewhere")
    with own_prefix(connection) as prefix:
        assert roles.prefix_of(connection, "elsewhere") is None
        assert len(roles.create(connection, "elsewhere", prefix)) == len(LOGINS)
        assert roles.prefix_of(connection, "elsewhere") == prefix
        assert roles.prefix_of(connection) is None
        with psycopg.connect(as_login(database_url, f"{prefix}_worker"), autocommit=True) as worker:
            assert run(worker, roles.current_role(), "elsewhere") == roles.CurrentRole(f"{prefix}_worker", False, False)
            assert one(worker, "select elsewhere.make_history_partition('2101-01-01')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema sereno"):
                worker.execute("select sereno.now()")


@pytest.mark.slow
def test_an_owner_with_createrole_needs_no_superuser(connection: psycopg.Connection, empty_database_url: str) -> None:
    """As on a managed server. The next upgrade needs only membership in the owner role."""
    with own_prefix(connection) as prefix, psycopg.connect(empty_database_url, autocommit=True) as admin:
        dba, deployer = f"{prefix}_dba", f"{prefix}_deployer"
        admin.execute(f"create role {dba} login createrole; create role {deployer} login".encode())
        admin.execute(f"grant create on database {admin.info.dbname} to {dba}".encode())
        with psycopg.connect(as_login(empty_database_url, dba), autocommit=True) as own:
            migrate(own)
            assert len(roles.create(own, "sereno", prefix)) == len(LOGINS)
            assert roles.create(own, "sereno", prefix) == []
            own.execute(f"grant {prefix}_owner to {deployer}".encode())
        with psycopg.connect(as_login(empty_database_url, deployer), autocommit=True) as own:
            own.execute("create table sereno.of_an_upgrade (id bigint)")
            assert roles.create(own, "sereno", prefix) == []
        owner = "select pg_get_userbyid(relowner) from pg_class where oid = 'sereno.of_an_upgrade'::regclass"
        assert one(admin, owner) == f"{prefix}_owner"
        with psycopg.connect(as_login(empty_database_url, f"{prefix}_worker"), autocommit=True) as worker:
            assert one(worker, "select sereno.make_history_partition('2101-01-01')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                roles.create(worker, "sereno", prefix)
        for name in (f"{prefix}_owner", *(f"{prefix}_{login}" for login in LOGINS), deployer, dba):
            admin.execute(f"reassign owned by {name} to current_user; drop owned by {name} cascade".encode())
        admin.execute(f"drop role {deployer}; drop role {dba}".encode())


@pytest.mark.slow
def test_the_printed_script_is_complete(connection: psycopg.Connection, database_url: str) -> None:
    """Running the printed script has the same result as `create`."""
    with own_prefix(connection) as prefix:
        connection.execute(roles.script("sereno", prefix).encode())
        before = _everything(connection)
        assert roles.create(connection, "sereno", prefix) == []
        assert _everything(connection) == before
        with psycopg.connect(as_login(database_url, f"{prefix}_producer"), autocommit=True) as producer:
            assert one(producer, "select sereno.enqueue('work')") > 0


def test_the_roles_page_names_every_login_and_every_function_that_runs_as_the_owner() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate" / "roles.md").read_text()
    assert [name for name in AS_OWNER if f"`{name}`" not in page] == []
    assert [login for login in LOGINS if f"`sereno_{login}`" not in page] == []


def test_prefixes_that_would_need_quotes_are_refused(subtests: pytest.Subtests) -> None:
    for prefix in ["", "Shop", "a b", "x;drop", 'a"b', "é", "1st", "x" * 54]:
        with subtests.test(prefix=prefix), pytest.raises(ConfigurationError, match="lower-case letters"):
            roles.script("sereno", prefix)
