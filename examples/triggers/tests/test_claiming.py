"""The original design's own procedures for claiming and reporting, for a worker in another language."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sereno import Every
from sereno.procedures.operations import revoke
from sereno.testing.kit import Kit
from triggers.app import app, call
from triggers.tests.conftest import RunSql, command, jobs_of

pytestmark = pytest.mark.slow

Node = psycopg.Connection[tuple[Any, ...]]
CLAIM = "select run_id, attempt, procedure_schema, procedure_name, params from triggers.claim_due_triggers(%s, 5)"


@pytest.fixture
def nodes(kit: Kit, run_sql: RunSql, login: str) -> Iterator[tuple[Node, Node]]:
    """Two workers in another language, whose login may call the four functions and the procedures on the list."""
    rights = sql.SQL(
        "grant execute on function triggers.open_worker, triggers.claim_due_triggers, triggers.renew_lease, "
        "triggers.report_trigger_run_result to {}"
    ).format(sql.Identifier(login))
    run_sql(rights.as_string())
    address = make_conninfo(app.settings.procedure_url or "")
    with psycopg.connect(address, autocommit=True) as one, psycopg.connect(address, autocommit=True) as other:
        yield one, other


def open_worker(node: Node) -> Any:
    (session,) = node.execute("select triggers.open_worker('node-1', lease => '20 s')").fetchone() or ()
    return session


def due(
    kit: Kit, plants: tuple[str, ...] = ("norte",), procedure: str = "close_day", key: str = "{key}", **options: Any
) -> None:
    """Add a trigger for each plant on the queue triggers-sql, and let it fire."""
    queued = call.using(queue="triggers-sql")
    for plant in plants:
        job = queued.job("triggers", procedure, key, {"plant": plant, "night": "2026-11-01"}, **options)
        app.schedules.upsert(f"triggers.{procedure}:{plant}", job, Every("1h"))
    kit.travel("1h")
    app.schedules.tick()


def test_a_run_is_called_and_reported_in_one_commit(kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql) -> None:
    node, _ = nodes
    session = open_worker(node)
    due(kit, timeout_seconds=30)
    run, attempt, schema, name, params, planned, timeout = (
        node.execute("select * from triggers.claim_due_triggers(%s, 5)", [session]).fetchone() or ()
    )
    assert (attempt, schema, name, timeout) == (1, "triggers", "close_day", 30)
    # What the allow-list fills in is there too.
    assert params == {"plant": "norte", "night": "2026-11-01", "job": run}
    assert planned is not None
    locked = "select LastStatus, LockedUntilUtc > sereno.now(), LockedBy like 'node-1 %%' from triggers.event_triggers"
    assert run_sql(locked) == [("Running", True, True)]
    with node.transaction():
        node.execute("call triggers.close_day(%(plant)s, %(night)s, %(job)s)", params)
        reported = node.execute("select triggers.report_trigger_run_result(%s, %s, 1, true)", [session, run])
        assert reported.fetchone() == ("succeeded",)
    assert run_sql("select job from triggers.closed_days") == [(run,)]
    assert run_sql("select Status, WorkerId from triggers.event_trigger_runs") == [("Success", "node-1 0")]


def test_two_workers_never_get_the_same_run(kit: Kit, nodes: tuple[Node, Node]) -> None:
    due(kit, ("norte", "sur", "este"))
    sessions = [(node, open_worker(node)) for node in nodes]
    claimed: list[object] = []

    def all_are_claimed() -> bool:
        for node, session in sessions:
            claimed.extend(node.execute("select run_id from triggers.claim_due_triggers(%s, 2)", [session]).fetchall())
        return len(claimed) >= 3

    kit.until(all_are_claimed)
    # A further claim returns nothing.
    all_are_claimed()
    assert len(claimed) == len(set(claimed)) == 3


def test_runs_with_one_concurrency_key_are_claimed_one_after_another(kit: Kit, nodes: tuple[Node, Node]) -> None:
    due(kit, ("norte", "sur"), key="both plants")
    (one, first), (other, second) = [(node, open_worker(node)) for node in nodes]
    (run, *_) = kit.until(lambda: one.execute(CLAIM, [first]).fetchall())[0]
    assert other.execute(CLAIM, [second]).fetchall() == one.execute(CLAIM, [first]).fetchall() == []
    one.execute("select triggers.report_trigger_run_result(%s, %s, 1, true)", [first, run])
    ((later, *_),) = kit.until(lambda: other.execute(CLAIM, [second]).fetchall())
    assert later != run


def test_a_worker_that_lost_its_lease_changes_nothing(
    kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql, assert_verified: Callable[[], None]
) -> None:
    """The worker was frozen inside the procedure; another worker has the run by now."""
    stale, fresh = nodes
    session = open_worker(stale)
    due(kit)
    (run,) = stale.execute("select run_id from triggers.claim_due_triggers(%s)", [session]).fetchone() or ()
    kit.lose_leases()
    later = open_worker(fresh)
    fresh.execute("select * from triggers.renew_lease(%s, '{}')", [later])
    (again, attempt) = (
        fresh.execute("select run_id, attempt from triggers.claim_due_triggers(%s)", [later]).fetchone() or ()
    )
    assert (again, attempt) == (run, 2)
    assert stale.execute("select alive from triggers.renew_lease(%s, %s)", [session, [run]]).fetchone() == (False,)
    stale.execute("begin")
    stale.execute("call triggers.close_day('norte', '2026-11-01', %s)", [run])
    with pytest.raises(psycopg.Error) as refused:
        stale.execute("select triggers.report_trigger_run_result(%s, %s, 1, true)", [session, run])
    assert refused.value.sqlstate == "SR002"
    stale.execute("commit")
    assert run_sql("select 1 from triggers.closed_days") == []
    fresh.execute("select triggers.report_trigger_run_result(%s, %s, 2, false, 'no milk')", [later, run])
    assert [(job.state, job.attempt) for job in jobs_of(kit, "close_day")] == [("scheduled", 2)]
    assert_verified()


def test_a_report_uses_the_retries_and_the_backoff_of_the_trigger(
    kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql
) -> None:
    node, _ = nodes
    session = open_worker(node)
    due(kit, max_retries=2, backoff_seconds=10)
    waits: list[float] = []
    for attempt in (1, 2, 3):
        ((run, *_),) = kit.until(lambda: node.execute(CLAIM, [session]).fetchall())
        failed = "select triggers.report_trigger_run_result(%s, %s, %s, false, 'no milk')"
        (state,) = node.execute(failed, [session, run, attempt]).fetchone() or ()
        if state == "scheduled":
            ((wait,),) = run_sql(
                "select NextRetryAtUtc - (select max(FinishedAtUtc) from triggers.event_trigger_runs) "
                "from triggers.event_triggers"
            )
            waits.append(wait / timedelta(seconds=1))
            kit.travel_to_next()
            node.execute("select * from triggers.renew_lease(%s, '{}')", [session])
    assert state == "dead"
    # Jitter adds up to a tenth.
    assert [10 <= waits[0] <= 11, 20 <= waits[1] <= 22] == [True, True]
    assert len(waits) == 2


def test_the_allow_list_is_that_of_sereno_and_read_at_each_claim(
    kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql, login: str
) -> None:
    """The worker's session has been open since before the procedure existed."""
    node, _ = nodes
    session = open_worker(node)

    def refused(why: str) -> None:
        due(kit, procedure="weigh")
        assert node.execute(CLAIM, [session]).fetchall() == []
        *_, last = jobs_of(kit, "weigh")
        assert (last.state, last.attempt) == ("dead", 1)
        assert why in (last.reason or "")

    refused("triggers.weigh is not allowed on here")
    due(kit, procedure="weigh", target="books")
    assert node.execute(CLAIM, [session]).fetchall() == []
    assert "calls procedures here only" in (jobs_of(kit, "weigh")[-1].reason or "")
    run_sql("create procedure triggers.weigh(plant text, night date) language sql as 'select 1'")
    run_sql(f"grant execute on procedure triggers.weigh to {login}")
    assert command("procedure", "allow", "triggers.weigh").returncode == 0
    due(kit, procedure="weigh")
    ((_, _, *name, params),) = node.execute(CLAIM, [session]).fetchall()
    assert (name, params["plant"]) == (["triggers", "weigh"], "norte")
    node.execute("select triggers.report_trigger_run_result(%s, %s, 1, true)", [session, jobs_of(kit, "weigh")[-1].id])
    run_sql("drop procedure triggers.weigh")
    refused("triggers.weigh does not exist")
    app.database.run(revoke("here", "triggers.weigh"))
    refused("triggers.weigh is not allowed on here")


def test_the_login_of_a_legacy_worker_can_do_nothing_else(kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql) -> None:
    node, _ = nodes
    session = open_worker(node)
    assert run_sql("select tasks from sereno.sessions where id = %s", session) == [(["triggers.call"],)]
    for query in (
        "select * from sereno.jobs",
        "select * from sereno.jobs_v1",
        "select sereno.open_session(array['triggers'], array['triggers.call'])",
        "insert into sereno.procedures (target, name) values ('here', 'triggers.purge_readings')",
        "select * from triggers.allowed_procedures",
        "select * from triggers.event_trigger_runs",
        "call triggers.purge_readings('2026-01-01')",
        "delete from triggers.closed_days",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            node.execute(query.replace("sereno.", f"{app.settings.schema}.").encode())
