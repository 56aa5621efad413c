"""The privileges of each role are exactly those in `database/privileges.py`, and they are sufficient."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sereno.database.privileges import AS_OWNER, LOGINS, REACHES, SEQUENCES, privileges, tables
from sereno.database.statement import queries
from tests.database.plans import GENERIC_PLAN_SINCE, PLACEHOLDER, numbered
from tests.database.test_queries import FILES, HAS_A_PLAN
from tests.facts import one
from tests.roles import Roles, made

ALL = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
# Daily partitions are created at run time; their parents have a line.
TABLES = """
select relname from pg_class where relnamespace = 'sereno'::regnamespace and relkind in ('r', 'p', 'v', 'm')
and relname !~ '_[0-9]{8}$' order by relname
"""
# Only tests change the clock, in a database of their own.
FOR_THE_OWNER = {"testing/test_support.travel"}


@pytest.fixture(scope="module")
def made_roles(shared_database_url: str) -> Iterator[Roles]:
    """One database for all of these tests, because they only read."""
    with psycopg.connect(shared_database_url, autocommit=True) as opened, made(opened, shared_database_url) as found:
        yield found


@pytest.fixture
def connection(made_roles: Roles) -> Iterator[psycopg.Connection]:
    with psycopg.connect(made_roles.database_url, autocommit=True) as opened:
        yield opened


def _rights(connection: psycopg.Connection, prefix: str) -> dict[str, dict[str, set[str]]]:
    """Return the privileges on each table from PostgreSQL; with columns for column privileges."""
    found: dict[str, dict[str, set[str]]] = {}
    query = """
        select login, relname, privilege, has_table_privilege(role, c.oid, privilege),
               (select string_agg(attname, ',' order by attnum) from pg_attribute
                where attrelid = c.oid and attnum > 0 and not attisdropped
                  and privilege in ('select', 'insert', 'update', 'references')
                  and has_column_privilege(role, c.oid, attnum, privilege))
        from unnest(%s::text[]) as login cross join lateral (select %s || '_' || login as role) as r
        cross join pg_class c cross join unnest(%s::text[]) as privilege
        where relnamespace = 'sereno'::regnamespace and relkind in ('r', 'p', 'v', 'm') and relname !~ '_[0-9]{8}$'
    """
    for login, table, privilege, whole, columns in connection.execute(query, [list(LOGINS), prefix, list(ALL)]):
        rights = found.setdefault(table, {name: set() for name in LOGINS})
        if whole:
            rights[login].add(privilege)
        elif columns:
            rights[login].add(f"{privilege} ({columns})")
    return found


def test_every_table_has_a_line_of_privileges(connection: psycopg.Connection) -> None:
    existing = {row[0] for row in connection.execute(TABLES)}
    missing, gone = sorted(existing - tables().keys()), sorted(tables().keys() - existing)
    assert missing == [], f"add {missing} to database/privileges.py, with the least privileges that its queries need"
    assert gone == [], f"remove {gone} from database/privileges.py: these tables no longer exist"


def test_each_role_has_exactly_the_privileges_of_its_line(connection: psycopg.Connection, made_roles: Roles) -> None:
    found = _rights(connection, made_roles.prefix)
    for table, line in tables().items():
        wanted: dict[str, set[str]] = {login: set() for login in LOGINS}
        wanted |= {reach: {_in_order(connection, table, word) for word in privileges(line[reach])} for reach in REACHES}
        assert found[table] == wanted, table


def _in_order(connection: psycopg.Connection, table: str, word: str) -> str:
    """Return the columns in the order of the table."""
    privilege, _, columns = word.partition(" (")
    if not columns:
        return word
    order = (
        "select array_agg(attname::text order by attnum) from pg_attribute where attrelid = %s::regclass and attnum > 0"
    )
    names = columns.rstrip(")").split(",")
    known = one(connection, order, f"sereno.{table}")
    assert set(names) <= set(known), f"{table} does not have all of {names}"
    return f"{privilege} ({','.join(sorted(names, key=known.index))})"


def test_no_role_can_change_the_audit_log(made_roles: Roles, connection: psycopg.Connection) -> None:
    audit = _rights(connection, made_roles.prefix)["audit"]
    assert all(not rights & {"update", "delete", "truncate"} for rights in audit.values())


def test_a_procedure_role_cannot_use_the_schema_and_a_producer_can(
    made_roles: Roles, connection: psycopg.Connection
) -> None:
    query = "select has_schema_privilege(%s, 'sereno', 'usage'), has_schema_privilege(%s, 'sereno', 'create')"

    def may(login: str) -> Any:
        return connection.execute(query, [made_roles.name(login)] * 2).fetchone()

    assert {login: may(login) for login in LOGINS} == {
        **dict.fromkeys((*REACHES, "producer"), (True, False)),
        "procedure": (False, False),
    }


def test_functions_that_run_as_the_owner_are_listed_and_restricted(
    made_roles: Roles, connection: psycopg.Connection
) -> None:
    rows = connection.execute(
        "select proname, prosecdef, pg_get_userbyid(proowner), proconfig @> array['search_path=pg_catalog, pg_temp'], "
        "array(select grantee::regrole::text from aclexplode(proacl) where grantee <> proowner order by 1) "
        "from pg_proc where pronamespace = 'sereno'::regnamespace"
    ).fetchall()
    assert {row[2] for row in rows} == {made_roles.name("owner")}
    for name, as_owner, _, has_fixed_path, callers in rows:
        assert as_owner == (name in AS_OWNER), name
        assert has_fixed_path or not as_owner, f"{name} can be tricked by the search_path of its caller"
        assert callers == sorted(made_roles.name(login) for login in AS_OWNER.get(name, REACHES)), name


def test_sequences_are_usable_only_by_roles_that_need_them(made_roles: Roles, connection: psycopg.Connection) -> None:
    rows = connection.execute(
        "select relname, array(select login from unnest(%s::text[]) as login "
        "where has_sequence_privilege(%s || '_' || login, c.oid, 'usage, select, update')) "
        "from pg_class c where relnamespace = 'sereno'::regnamespace and relkind = 'S'",
        [list(LOGINS), made_roles.prefix],
    )
    assert {name: logins for name, logins in rows if logins} == {
        name: list(logins) for name, logins in SEQUENCES.items()
    }


@pytest.mark.slow
def test_every_query_is_allowed_to_a_worker_or_a_server(connection: psycopg.Connection, made_roles: Roles) -> None:
    """If this fails, the error of PostgreSQL names the privilege to add in database/privileges.py."""
    denied = {}
    for file in FILES:
        for name, sql in queries(file).items():
            if HAS_A_PLAN.match(sql) is None or f"{file}.{name}" in FOR_THE_OWNER:
                continue
            # Most queries are allowed to the worker, and then the second plan is not needed.
            worker = _denied(connection, made_roles.name("worker"), sql)
            server = worker and _denied(connection, made_roles.name("server"), sql)
            if server is not None:
                denied[f"{file}.{name}"] = [worker, server]
    assert denied == {}


def _denied(connection: psycopg.Connection, role: str, sql: str) -> str | None:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local role {role}".encode())
            if connection.info.server_version >= GENERIC_PLAN_SINCE:
                connection.execute(f"explain (generic_plan) {numbered(sql)}".encode())
            else:
                connection.execute(f"explain {sql}".encode(), dict.fromkeys(PLACEHOLDER.findall(sql)))
    except psycopg.errors.InsufficientPrivilege as error:
        return f"{role}: {str(error).splitlines()[0]}"
    return None


def test_a_daily_partition_has_the_read_privileges_of_its_parent(
    connection: psycopg.Connection, made_roles: Roles
) -> None:
    with made_roles.connect("worker") as worker:
        assert one(worker, "select sereno.make_history_partition('2101-01-01')")
        assert one(worker, "select sereno.make_day_partition('fires', 'planned_at', '2101-01-01')")
    owner = "select pg_get_userbyid(relowner) from pg_class where oid = to_regclass(%s)"
    may = "select has_table_privilege(%s, %s, %s)"
    for day in ("sereno.history_done_21010101", "sereno.fires_21010101"):
        assert one(connection, owner, day) == made_roles.name("owner")
        names = {login: made_roles.name(login) for login in LOGINS}
        assert {login for login, name in names.items() if one(connection, may, name, day, "select")} == set(REACHES)
        assert not any(one(connection, may, name, day, "insert, update, delete, truncate") for name in names.values())
