"""The public functions: their signatures, privileges and schema."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.limits.limit import Limit
from tests.facts import one
from tests.jobs.job_steps import Connection, add, line
from tests.jobs.limits.lane_steps import keys, put, set_limit
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome

SIGNATURES = """\
claim_jobs(session bigint, queues text[], most integer) SETOF sereno.claimed_job
close_session(session bigint) integer
emit(session bigint, id bigint, attempt integer, chunks jsonb, first integer) integer
functions_version() integer
heartbeat(session bigint, held bigint[], OUT alive boolean, OUT lease_until timestamp with time zone, \
OUT cancel bigint[], OUT lost bigint[]) record
open_session(queues text[], tasks text[], host text, pid integer, slots integer, version text, lease interval, \
listens boolean, release text, task_versions jsonb, keys text[]) bigint
read_results(session bigint, id bigint, attempt integer) SETOF sereno.job_result
settle_jobs(session bigint, outcomes jsonb, strict boolean) SETOF sereno.settled_job"""
PUBLIC = [
    "claim_jobs", "close_session", "emit", "functions_version", "heartbeat", "open_session", "read_results",
    "settle_jobs",
]  # fmt: skip


def test_the_public_functions_have_version_1(connection: Connection) -> None:
    assert one(connection, "select sereno.functions_version()") == 1


def test_the_signatures_of_public_functions_are_unchanged(connection: Connection) -> None:
    """A change of this list breaks programs of users: arguments and columns are only added, at the end."""
    found = connection.execute(
        "select proname || '(' || regexp_replace(pg_get_function_arguments(oid), ' DEFAULT [^,)]+', '', 'g') || ') ' "
        "|| pg_get_function_result(oid) from pg_proc "
        "where pronamespace = 'sereno'::regnamespace and proname = any(%s) order by proname",
        [PUBLIC],
    ).fetchall()
    assert "\n".join(signature for (signature,) in found) == SIGNATURES


@pytest.fixture
def role(connection: Connection, server_url: str) -> Iterator[str]:
    """Create a role that may only log in."""
    name = f"worker_{one(connection, 'select pg_backend_pid()')}"
    connection.execute(f"create role {name} login".encode())
    yield name
    connection.execute(f"drop owned by {name}; drop role {name}".encode())


def as_role(url: str, name: str) -> Connection:
    return psycopg.connect(url.replace("postgres@", f"{name}@", 1), autocommit=True)


GRANTS = """
grant usage on schema sereno to {0};
grant execute on function sereno.open_session, sereno.heartbeat, sereno.claim_jobs, sereno.settle_jobs,
    sereno.close_session, sereno.emit, sereno.read_results to {0};
"""


def test_a_role_with_only_the_functions_can_work(connection: Connection, database_url: str, role: str) -> None:
    set_limit(connection, "each", Limit(1))
    made = [*add(connection, 2), *put(connection, keys(("each", "a")))]
    connection.execute(GRANTS.format(role).encode())
    with as_role(database_url, role) as own:
        worker = SqlWorker(own)
        got = worker.claim()
        assert sorted(job.id for job in got) == made
        assert worker.beat([job.id for job in got]).alive
        first, second, third = got
        assert [
            each.settled for each in worker.settle(outcome(first), outcome(second, "retry"), outcome(third, "dead"))
        ] == [
            True,
            True,
            True,
        ]
        assert worker.close() == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            own.execute("select count(*) from sereno.jobs")


def test_a_read_only_role_may_not_claim(connection: Connection, database_url: str, role: str) -> None:
    connection.execute(
        f"grant usage on schema sereno to {role}; grant select on all tables in schema sereno to {role}".encode()
    )
    with as_role(database_url, role) as own:
        for call in (
            "open_session('{a}', '{b}')",
            "claim_jobs(1)",
            "settle_jobs(1, '[]')",
            "heartbeat(1)",
            "close_session(1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
                own.execute(f"select sereno.{call}".encode())


def test_objects_in_the_search_path_of_a_caller_are_not_used(
    connection: Connection, database_url: str, role: str
) -> None:
    connection.execute(GRANTS.format(role).encode())
    connection.execute(f"create schema trap authorization {role}".encode())
    add(connection)
    with as_role(database_url, role) as own:
        for name, returns in (("now()", "timestamptz"), ("random()", "float8"), ("clock_timestamp()", "timestamptz")):
            own.execute(
                f"create function trap.{name} returns {returns} language plpgsql as "
                "$$ begin raise exception 'trapped as %', current_user; end $$".encode()
            )
        own.execute("create table trap.jobs (id bigint)")
        own.execute("set search_path = trap, pg_catalog")
        worker = SqlWorker(own)
        (job,) = worker.claim()
        worker.settle(outcome(job, "retry"))
        assert worker.beat([]).alive
        worker.close()


@pytest.mark.slow
def test_the_functions_work_in_a_schema_of_another_name(empty_database_url: str) -> None:
    app = Sereno(empty_database_url, schema="other_app")
    app.migrate()
    app.close()
    with line(empty_database_url) as connection:
        connection.execute("select other_app.enqueue('work') from generate_series(1, 3)")
        number = one(connection, "select other_app.open_session(array['default'], array['work'])")
        got = connection.execute("select id, attempt from other_app.claim_jobs(%s, most => 2)", [number]).fetchall()
        assert got == [(1, 1), (2, 1)]
        assert one(connection, "select alive from other_app.heartbeat(%s, '{1,2}')", number)
        outcomes = '[{"id": 1, "attempt": 1, "outcome": "succeeded"}, {"id": 2, "attempt": 1, "outcome": "dead"}]'
        assert one(connection, "select bool_and(settled) from other_app.settle_jobs(%s, %s)", number, outcomes)
        assert one(connection, "select other_app.close_session(%s)", number) == 0
        assert one(connection, "select sum(succeeded + dead) from other_app.minutes") == 2
