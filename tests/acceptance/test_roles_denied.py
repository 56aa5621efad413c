"""Actions that roles cannot do, including attempts to circumvent that."""

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.cli.failures import explained
from tests.facts import one
from tests.roles import Roles, made_by_command
from tests.server.api.conftest import Served

__all__ = ["made_by_command"]

pytestmark = pytest.mark.quick

DENIED = psycopg.errors.InsufficientPrivilege


def _denied(roles: Roles, login: str, *statements: str) -> None:
    with roles.connect(login) as connection:
        for statement in statements:
            with pytest.raises(DENIED):
                connection.execute(statement.encode())


def test_actions_denied_to_every_role(roles: Roles) -> None:
    for login in ("worker", "server", "reader", "producer", "procedure"):
        _denied(
            roles,
            login,
            "create role another login",
            f"grant {roles.name('owner')} to {roles.name(login)}",
            f"set role {roles.name('owner')}",
            "update sereno.audit set actor = 'another'",
            "delete from sereno.audit",
            "truncate sereno.audit",
            "drop table sereno.audit",
            "create table sereno.mine (id bigint)",
            "create table sereno_archive.mine (id bigint)",
            "alter table sereno.jobs disable trigger user",
            "create or replace function sereno.enqueue(text) returns bigint language sql as 'select 1'",
            "update sereno.clock set ahead = '1 day'",
            "delete from sereno.migrations",
        )


def test_actions_denied_to_each_role(roles: Roles, connection: psycopg.Connection) -> None:
    connection.execute("create table elsewhere (id bigint primary key, at timestamptz)")
    connection.execute("insert into elsewhere values (1, '2001-01-01')")
    _denied(
        roles,
        "worker",
        "select * from sereno.tokens",
        "select body from sereno.idempotency_keys",
        "insert into sereno.audit (actor, action, subject, login) values ('ada', 'token.create', 'x', 'postgres')",
        "insert into sereno.audit (at, actor, action, subject) values (now(), 'ada', 'x', 'y')",
        "insert into sereno.tokens (name, hash, role, created_by) values ('mine', '', 'admin', 'me')",
        "insert into sereno.procedures (target, name) values ('here', 'mine')",
        "update sereno.archive_batches set held_in = 'another'",
        "select sereno.archive_table('public.elsewhere', 'at', now(), 10)",
        "select * from elsewhere",
    )
    _denied(
        roles,
        "server",
        "select sereno.drop_history_partition('history_done_20260101')",
        "select sereno.archive_day('jobs', 'history_done_20260101')",
        "select sereno.drop_batch(1)",
        "select sereno.forget_batch(1, 'jobs_1')",
        "truncate sereno.history",
        "delete from sereno.history_dead",
        "delete from sereno.deliveries",
        "delete from sereno.logs",
        "update sereno.sessions set state = 'dead'",
        "delete from sereno.tokens",
    )
    _denied(
        roles,
        "reader",
        "select * from sereno.accounts",
        "select * from sereno.idempotency_keys",
        "update sereno.tokens set role = 'admin'",
        "insert into sereno.jobs (task) values ('works')",
        "select sereno.enqueue('works')",
    )
    _denied(roles, "producer", "select * from sereno.jobs", "select sereno.now()", "select * from sereno.history")
    _denied(roles, "procedure", "select sereno.now()", "select * from sereno.jobs", "select sereno.enqueue('works')")


def test_an_audit_row_names_the_role_that_wrote_it(roles: Roles, connection: psycopg.Connection) -> None:
    row = "insert into sereno.audit (actor, action, subject) values ('ada', 'job.retry', 'job 7')"
    for login in ("worker", "server"):
        with roles.connect(login) as own:
            own.execute(row.encode())
    assert one(connection, "select array_agg(login order by id) from sereno.audit") == [
        roles.name("worker"),
        roles.name("server"),
    ]


def test_a_producer_creates_jobs_schedules_and_events_and_reads_nothing(
    roles: Roles, connection: psycopg.Connection
) -> None:
    connection.execute(
        "insert into sereno.event_types (name, definition) values ('tender.published', %s)",
        ['{"channels": ["in_app"]}'],
    )
    columns, values = "key, task, rule, changed_by, declared_by", "'turns', 'turns', '{}', 'x', 'shop'"
    connection.execute(f"insert into sereno.schedules ({columns}) values ({values})".encode())
    with roles.connect("producer") as producer:
        job = one(producer, "select sereno.enqueue('works', tenant => 'r42')")
        keyed = one(producer, "select sereno.enqueue('works', unique_key => 'k')")
        assert one(producer, "select sereno.enqueue('works', unique_key => 'k')") == keyed
        schedule = one(producer, "select sereno.schedule('mine', 'works', every => '1 hour')")
        event = one(producer, "select sereno.notify('tender.published', '{}')")
        assert one(producer, "select sereno.unschedule('mine')")
    assert one(connection, "select array_agg(task order by id) from sereno.jobs") == [
        "works",
        "works",
        "sereno.fan_out",
    ]
    assert job < keyed
    assert schedule
    assert one(connection, "select args from sereno.jobs where task = 'sereno.fan_out'") == {"event": event}
    _denied(
        roles,
        "producer",
        "select sereno.enqueue('sereno.archive_export')",
        "select sereno.enqueue('sereno.fan_out', unique_key => 'k')",
        "select sereno.schedule('theirs', 'sereno.archive_export', every => '1 hour')",
        "select sereno.schedule('turns', 'works', every => '1 hour')",
        "select sereno.unschedule('turns')",
        "select sereno.enqueue_keyed('[]')",
        "select nextval('sereno.ready_seq')",
        "select sereno.put_recipient('ada')",
    )
    # A role that may write jobs anyway may enqueue the tasks of sereno.
    with roles.connect("server") as server:
        assert one(server, "select sereno.enqueue('sereno.archive_export')") > 0
        server.execute("select sereno.schedule('its own', 'works', every => '1 hour')")
    assert one(connection, "select changed_by from sereno.schedules where key = 'its own'") == roles.name("server")


# Objects that a caller could create to hijack a function that runs as its owner: tables, types, functions, operators.
SHADOWS = """
create schema traps;
grant usage on schema traps to public;
create sequence traps.caught;
grant usage on traps.caught to public;
create function traps.catch() returns bigint language sql as $$ select nextval('traps.caught') $$;
create function traps.now() returns timestamptz language sql as $$ select traps.catch(); select pg_catalog.now() $$;
create function traps.pg_notify(text, text) returns bigint language sql as $$ select traps.catch() $$;
create function traps.starts_with(text, text) returns boolean language sql as $$ select traps.catch(); select false $$;
create function traps.format(text, variadic text[]) returns text language sql as
$$ select traps.catch(); select 'x' $$;
create function traps.to_regclass(text) returns regclass language sql as
$$ select traps.catch(); select null::regclass $$;
create function traps.has_table_privilege(name, text, text) returns boolean language sql as
$$ select traps.catch(); select true $$;
create function traps.less(timestamptz, timestamptz) returns boolean language sql as
$$ select traps.catch(); select true $$;
create operator traps.<= (leftarg = timestamptz, rightarg = timestamptz, function = traps.less);
create view traps.pg_attribute as select traps.catch() as attname, 1 as attnum, 1::oid as attrelid;
"""
TRAPPED = """
set search_path = traps, pg_catalog;
create temp view pg_class as select traps.catch() as relname, 1::oid as oid;
create temp table pg_inherits (id bigint);
create type pg_temp.jsonb as (id bigint);
create function pg_temp.nextval(regclass) returns bigint language sql as $$ select traps.catch(); select 1::bigint $$;
set search_path = pg_temp, traps, pg_catalog;
"""


def test_objects_of_a_caller_are_not_run_as_the_owner(roles: Roles, connection: psycopg.Connection) -> None:
    connection.execute(SHADOWS)
    calls: dict[str, tuple[str, ...]] = {
        "producer": (
            "select sereno.enqueue('works')",
            "select sereno.enqueue('works', unique_key => 'k')",
            "select sereno.schedule('mine', 'works', every => '1 hour')",
            "select sereno.unschedule('mine')",
        ),
        "worker": (
            "select sereno.make_day_partition('fires', 'planned_at', '2101-01-01')",
            "select sereno.drop_fires_partition('fires_21010101')",
            "select sereno.archive_day('fires', 'fires_21010102')",
            "select sereno.new_batch('logs', 'sereno.logs', array['id'], 'at')",
            "select sereno.forget_batch(1, 'logs_1')",
            "select sereno.drop_batch(2)",
        ),
    }
    for login, statements in calls.items():
        with roles.connect(login) as caller:
            caller.execute(TRAPPED)
            for statement in statements:
                caller.execute(statement.encode())
    with roles.connect("producer") as caller:
        caller.execute(TRAPPED)
        with pytest.raises(DENIED, match="may not enqueue"):
            caller.execute("select sereno.enqueue('sereno.archive_export')")
    # A sequence keeps a drawn number even after a rollback.
    assert not one(connection, "select is_called from traps.caught")


THEIRS = """
create sequence caught;
grant usage on caught to public;
create type code as enum ('a');
create table theirs (code code primary key, at timestamptz);
insert into theirs values ('a', '2001-01-01');
create function as_text(code) returns text language sql as $$ select nextval('public.caught')::text $$;
"""


def test_a_user_defined_cast_is_not_run_as_the_owner(roles: Roles, connection: psycopg.Connection) -> None:
    """The owner of an archived table may have defined the cast of its key to text."""
    connection.execute(THEIRS)
    connection.execute(f"grant select, update, delete on theirs to {roles.name('worker')}".encode())
    with roles.connect("worker") as worker:
        assert one(worker, "select sereno.archive_table('public.theirs', 'at', now(), 10)") == 1
        batch = one(worker, "select id from sereno.archive_batches")
        worker.execute("select sereno.plan_files(%s, 10)", [batch])
        connection.execute("create cast (code as text) with function as_text(code)")
        verified = "verified_at = now(), drop_eligible_at = now(), as_texts = '{code}'"
        worker.execute(f"update sereno.archive_batches set {verified}".encode())
        with pytest.raises(psycopg.errors.DataError, match="nothing is dropped"):
            worker.execute("select sereno.drop_batch(%s)", [batch])
    assert not one(connection, "select is_called from caught")


def test_a_batch_with_rows_cannot_be_deleted(roles: Roles, connection: psycopg.Connection) -> None:
    with roles.connect("worker") as worker:
        made = "select batch from sereno.new_batch('queues', 'sereno.lane_queues', array['queue'], 'queue')"
        batch = one(worker, made)
        worker.execute(f"insert into sereno_archive.queues_{batch} values ('default')".encode())
        with pytest.raises(psycopg.errors.DataError, match="contains rows"):
            worker.execute("select sereno.forget_batch(%s, %s)", [batch, f"queues_{batch}"])
        with pytest.raises(psycopg.errors.UndefinedObject):
            worker.execute("select sereno.forget_batch(%s, 'another')", [batch])


def test_a_denied_statement_says_what_to_do(roles: Roles) -> None:
    with roles.connect("reader") as connection, pytest.raises(DENIED) as refused:
        connection.execute("delete from sereno.jobs")
    assert "see `sereno migrate --roles print`" in explained(refused.value)


def test_a_server_whose_role_cannot_write_responds_with_503(roles: Roles, app: Sereno) -> None:
    """Its settings allow changes, but its role does not."""
    token = app.database.run(create("ada", "admin", actor="test")).secret
    reader = Sereno(roles.url("reader"))
    served = Served(reader)
    headers = {"Authorization": f"Bearer {token}"}
    response = httpx.post(f"{served.url}/api/v1/queues/default/pause", headers=headers, timeout=30)
    served.stop()
    reader.close()
    assert response.status_code == 503
    assert "sereno migrate --roles" in response.json()["detail"]
