"""The whole system with one least-privilege role for each process."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.bulk import operations as bulk
from sereno.channels.email import Email
from sereno.database import migrate
from sereno.database.statement import run
from sereno.jobs.filters import JobFilter
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts.rule import AlertRule, AlertTarget
from sereno.monitoring.doctor import doctor
from sereno.monitoring.verify import verify
from tests.acceptance.conftest import ROOT
from tests.acceptance.roles_app import Shop, declare
from tests.facts import one, until
from tests.notifications.conftest import Tender
from tests.roles import Roles, made_by_command, sereno
from tests.server.api.conftest import Served
from tests.server.api.world import Operation, Things, fill, fill_over_http, operations, requests, send
from tests.server.web.world import addresses, pages
from tests.warm_process import WarmProcess

__all__ = ["made_by_command"]

pytestmark = pytest.mark.quick

# A job of forty days ago with two attempts, rows of a user's table that are two years old, and a missing partition.
PAST = """
create table done (job bigint primary key);
create table tenders (id bigint primary key, published_at timestamptz not null, code text);
insert into tenders select n, now() - interval '2 years', 'old' from generate_series(1, 20) as n;
select sereno.make_history_partition((now() - interval '40 days')::date);
insert into sereno.history (id, finished_at, run_at, created_at, started_at, attempt, failures, crashes, snoozes,
                            releases, priority, state, queue, task, args)
select 900000001, at, at, at, at, 2, 1, 0, 0, 0, 5, 'succeeded', 'default', 'works', '{}'
from (select now() - interval '40 days' as at) as past;
insert into sereno.attempts (job_id, number, started_at, finished_at, outcome)
select id, 1, finished_at, finished_at, 'retry' from sereno.history where id = 900000001;
do $$ begin
    execute 'drop table sereno.history_done_' || to_char(now() at time zone 'UTC' + interval '3 days', 'YYYYMMDD');
end $$
"""
THIRD_DAY = """
select to_regclass('sereno.history_done_' || to_char(now() at time zone 'UTC' + interval '3 days', 'YYYYMMDD'))
"""


@pytest.fixture
def worker(roles: Roles, connection: psycopg.Connection, tmp_path: Path) -> Iterator[Path]:
    """Start a worker process that is logged in as the worker role; return the file of its output."""
    connection.execute(PAST)
    name = roles.name("worker")
    connection.execute(
        f"grant select, insert on done to {name}; grant select, update, delete on tenders to {name}".encode()
    )
    output_path = tmp_path / "output"
    environment = {
        "SERENO_DATABASE_URL": roles.url("worker"),
        "SERENO_LOG_FORMAT": "json",
        "SERENO_ARCHIVE_URL": "disk",
        "SERENO_ARCHIVE_GRACE_DAYS": "0",
        "SERENO_DIRECTORY": str(tmp_path / "files"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    with output_path.open("wb") as output:
        process = WarmProcess(
            [sys.executable, "-m", "sereno", "worker", "tests.acceptance.roles_app:app"],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    until(lambda: '"worker.started"' in output_path.read_text() or process.poll() is not None)
    yield output_path
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, output_path.read_text()


@pytest.fixture
def app(roles: Roles) -> Iterator[Sereno]:
    """Return an application that is logged in as the server role."""
    made = Sereno(roles.url("server"))
    yield made
    made.close()


@pytest.mark.slow
def test_a_worker_does_all_of_its_work_under_its_own_role(
    worker: Path, app: Sereno, connection: psycopg.Connection, roles: Roles
) -> None:
    shop = declare(app)
    rule = AlertRule(name="dead", targets=[AlertTarget(channel="pager", address="us")], kinds=["job.dead"])
    app.database.run(alerts.set_rule(rule, actor="test"))
    app.recipients.upsert("ada", {"pager": "7"})
    shop.tender_published.notify(Tender("1"), to="ada")
    app.archive.register()
    moves = app.enqueue_many([app.new_job("sereno.archive_move", b"{}")])[0].id
    made = _enqueue_jobs(shop)

    def ended(jobs: list[int], state: str) -> bool:
        found = one(connection, "select count(*) from sereno.history where id = any(%s) and state = %s", jobs, state)
        return bool(found == len(jobs))

    until(lambda: ended(made, "succeeded"))
    until(lambda: one(connection, "select count(*) from sereno.history_dead where task = 'dies'") == 1)
    until(lambda: one(connection, "select count(*) from sereno.deliveries where state in ('sent', 'delivered')") == 2)
    until(lambda: one(connection, "select count(*) from sereno.history where task = 'turns'") >= 1)
    until(lambda: one(connection, "select count(*) from sereno.alerts where kind = 'job.dead'") == 1)
    in_bulk = app.database.run(bulk.begin("job.delete", JobFilter(task="dies"), yes=True, actor="test"))
    until(lambda: one(connection, "select state from sereno.bulk_operations where id = %s", in_bulk.id) == "done")
    until(lambda: one(connection, THIRD_DAY) is not None)

    until(lambda: ended([moves], "succeeded"))
    # The first verifies, the second drops: the grace period is zero.
    for _ in range(2):
        exported = app.enqueue_many([app.new_job("sereno.archive_export", b"{}")])[0].id
        until(lambda job=exported: ended([job], "succeeded"))  # type: ignore[misc]
    kinds = "select array_agg(distinct kind order by kind) from sereno.archive_batches where dropped_at is not null"
    assert one(connection, kinds) == ["attempts", "jobs", "public.tenders"]
    assert one(connection, "select count(*) from tenders") == 0
    assert one(connection, "select count(*) from pg_class where relnamespace = 'sereno_archive'::regnamespace") == 0
    assert "permission denied" not in worker.read_text()
    assert "must be owner" not in worker.read_text()
    with roles.connect("reader") as reader:
        assert [check.name for check in run(reader, verify(lease=30.0)) if not check.holds] == []


@pytest.mark.slow
def test_archived_rows_are_readable_by_roles_that_could_read_the_table(
    roles: Roles, connection: psycopg.Connection
) -> None:
    connection.execute(
        "create table pay (id bigint primary key, at timestamptz); insert into pay values (1, '2001-01-01')"
    )
    connection.execute(f"grant select, update, delete on pay to {roles.name('worker')}".encode())
    with roles.connect("worker") as worker:
        assert one(worker, "select sereno.archive_table('public.pay', 'at', now(), 10)") == 1
        held = one(worker, "select held_in from sereno.archive_batches")
        worker.execute("select sereno.plan_files(id, 10) from sereno.archive_batches")
        assert one(worker, f"select count(*) from sereno_archive.{held}") == 1
    for login in ("worker", "server", "reader"):
        with roles.connect(login) as connected:
            # A role that may not read the rows checks the other invariants.
            assert [check.name for check in run(connected, verify(lease=30.0)) if not check.holds] == []
            assert one(connected, "select sereno.is_held(%s, 'id', 1)", held) == (login == "worker")
            if login != "worker":
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connected.execute(f"select * from sereno_archive.{held}".encode())


@pytest.mark.slow
def test_one_login_can_have_two_roles(roles: Roles, connection: psycopg.Connection) -> None:
    """`sereno run` needs it: a worker and a server in one process."""
    name = roles.name("both")
    made = f"create role {name} login in role {roles.name('worker')}, {roles.name('server')}"
    connection.execute(made.encode())
    with roles.connect("both") as both:
        assert one(both, "select sereno.make_history_partition('2101-01-01')")
        assert one(both, "select sereno.enqueue('sereno.archive_move')") > 0
        both.execute("insert into sereno.pauses (kind, name, paused_by) values ('queue', 'default', 'us')")
    connection.execute(f"drop role {name}".encode())


@pytest.mark.slow
def test_a_worker_in_another_language_needs_seven_functions(roles: Roles, connection: psycopg.Connection) -> None:
    """A custom role, which is not a member of the worker role, is granted them."""
    with roles.connect("producer") as producer:
        job = one(producer, "select sereno.enqueue('resize')")
    names = ("open_session", "claim_jobs", "heartbeat", "emit", "read_results", "settle_jobs", "close_session")
    functions = ", sereno.".join(names)
    name = roles.name("images")
    connection.execute(f"create role {name} login; grant usage on schema sereno to {name}".encode())
    connection.execute(f"grant execute on function sereno.{functions} to {name}".encode())
    result = sereno(roles.database_url, "migrate", "--roles", "create", "--prefix", roles.prefix)
    assert result.exit_code == 0, result.output
    with roles.connect("images") as images:
        session = one(images, "select sereno.open_session(array['default'], array['resize'])")
        assert one(images, "select (sereno.claim_jobs(%s)).id", session) == job
        assert one(images, "select (sereno.heartbeat(%s, %s)).alive", session, [job])
        outcome = f'[{{"id": {job}, "attempt": 1, "outcome": "succeeded"}}]'
        assert one(images, "select (sereno.settle_jobs(%s, %s)).settled", session, outcome)
        images.execute("select sereno.close_session(%s)", [session])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            images.execute("select * from sereno.history")
    assert one(connection, "select state from sereno.history where id = %s", job) == "succeeded"
    connection.execute(f"drop owned by {name}; drop role {name}".encode())


def _enqueue_jobs(shop: Shop) -> list[int]:
    """Enqueue plain and keyed jobs, immediate and delayed, ordered, with a retry; one becomes dead."""
    shop.dies.enqueue()
    jobs = [shop.works.enqueue(), shop.works.using(unique_key="k").enqueue(), shop.works.using(delay="1s").enqueue()]
    jobs += [shop.waits_its_turn.using(tenant=f"t{n % 2}").enqueue() for n in range(4)]
    return [job.id for job in [*jobs, shop.fails_once.enqueue()]]


@pytest.fixture
def ann(app: Sereno, roles: Roles, connection: psycopg.Connection) -> Things:
    """Create a tenant with everything that it can have. During the setup, the server's role is a superuser."""
    things = Things("ann-tenant", "canary-ann")
    name = roles.name("server")
    connection.execute(f"alter role {name} superuser".encode())
    # Recipients can add addresses.
    app.override(public_url="https://post.example.com")
    app.confirm_addresses(Email(host="127.0.0.1", sender="post@example.com"))
    app.database.run(app.notifications.declare())
    fill(app, things)
    connection.execute(f"alter role {name} nosuperuser".encode())
    app.close()
    return things


def _client(app: Sereno, url: str, path: str = "/api/v1") -> httpx.Client:
    made = app.database.run(create(f"admin of {path or 'pages'}", "admin", actor="test"))
    return httpx.Client(base_url=url + path, headers={"Authorization": f"Bearer {made.secret}"}, timeout=30)


@pytest.mark.slow
def test_every_page_endpoint_and_command_works_under_the_server_role(app: Sereno, ann: Things, roles: Roles) -> None:
    served = Served(app)
    with _client(app, served.url) as admin, _client(app, served.url, "") as visitor:
        fill_over_http(admin, ann)
        for route in pages(app):
            for address, _ in addresses(route, ann):
                response = visitor.get(address)
                assert response.status_code in (200, 303), (address, response.text[:2000])
        known: list[Operation] = list(operations(admin.get("/openapi.json").json()))
        for operation in known:
            response = send(admin, operation, requests(ann)[operation.name])
            assert response.is_success, (operation.name, response.status_code, response.text)
    served.stop()
    commands = ("status", "job list", "schedule list", "queue list", "event list", "token list", "limit list", "verify")
    for command in commands:
        result = sereno(roles.url("server"), *command.split())
        assert result.exit_code == 0, (command, result.output)
    assert f"{roles.name('server')} is not a superuser" in sereno(roles.url("server"), "doctor").output


@pytest.mark.slow
def test_a_read_only_server_needs_only_read_privileges(
    app: Sereno, ann: Things, roles: Roles, connection: psycopg.Connection
) -> None:
    served = Served(app)
    with _client(app, served.url) as admin:
        fill_over_http(admin, ann)
    served.stop()
    read_only = Sereno(roles.url("reader"), read_only=True)
    served = Served(read_only)
    with _client(app, served.url, "") as visitor:
        for operation in operations(visitor.get("/api/v1/openapi.json").json()):
            if operation.method == "GET":
                visitor.base_url = httpx.URL(f"{served.url}/api/v1")
                response = send(visitor, operation, requests(ann)[operation.name])
                assert response.is_success, (operation.name, response.text)
        assert visitor.post("/queues/default/pause").status_code == 403
        visitor.base_url = httpx.URL(served.url)
        for path in (
            "/",
            "/jobs",
            "/schedules",
            "/queues",
            "/tenants",
            "/logs",
            "/system",
            "/archive",
            "/notifications",
        ):
            assert visitor.get(path).status_code == 200, path
    served.stop()
    read_only.close()
    assert one(connection, "select used_at is null from sereno.tokens where name = 'admin of pages'"), (
        "the server wrote to the database"
    )


def test_a_member_of_the_owner_role_can_run_the_next_upgrade(
    roles: Roles, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = roles.name("deployer")
    connection.execute(f"create role {deployer} login in role {roles.name('owner')}".encode())
    known = migrate.migrations()
    added = "create function sereno.of_tomorrow() returns integer language sql return 1;"
    tomorrow = [*known, migrate.Migration(known[-1].number + 1, "tomorrow", added)]
    monkeypatch.setattr(migrate, "migrations", lambda: tomorrow)
    url = roles.url("deployer")
    result = sereno(url, "migrate")
    assert result.exit_code == 0, result.output
    assert f"The roles {roles.prefix}_* have exactly the privileges that this version needs" in result.output
    owners = (
        "select array_agg(distinct pg_get_userbyid(proowner)) from pg_proc where pronamespace = 'sereno'::regnamespace"
    )
    assert one(connection, owners) == [roles.name("owner")]
    assert one(connection, "select sereno.of_tomorrow()") == 1
    with roles.connect("producer") as producer:
        assert one(producer, "select sereno.enqueue('works')") > 0
    # A login that may not create roles is told what to do.
    refused = sereno(roles.url("worker"), "migrate", "--roles", "create", "--prefix", roles.prefix)
    assert refused.exit_code == 8
    assert "sereno migrate --roles print" in refused.output
    connection.execute(
        f"reassign owned by {deployer} to current_user; drop owned by {deployer}; drop role {deployer}".encode()
    )


def test_the_doctor_reports_a_superuser_login(roles: Roles, database_url: str) -> None:
    def login(url: str) -> Any:
        app = Sereno(url)
        (found,) = [check for check in app.database.run(doctor(app.settings)) if check.name == "login"]
        app.close()
        return found

    assert login(roles.url("worker")).remedy == ""
    assert "is a superuser" in login(database_url).message
    assert "--roles print" in login(database_url).remedy
