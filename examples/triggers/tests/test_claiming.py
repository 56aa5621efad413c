"""The seed's own procedures for claiming and reporting, for a legacy worker in another language."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sereno import Every
from sereno.testing.kit import Kit
from triggers.app import app, close_day
from triggers.tests.conftest import RunSql

pytestmark = pytest.mark.slow

Node = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def nodes(kit: Kit, run_sql: RunSql, login: str) -> Iterator[tuple[Node, Node]]:
    """Two workers in another language, whose login may call the four functions and the procedures on the list."""
    run_sql("insert into triggers.allowed_procedures values ('triggers', 'close_day'), ('triggers', 'not_there')")
    rights = sql.SQL(
        "grant execute on function triggers.open_worker, triggers.claim_due_triggers, triggers.renew_lease, "
        "triggers.report_trigger_run_result to {}"
    ).format(sql.Identifier(login))
    run_sql(rights.as_string())
    address = make_conninfo(app.settings.procedure_url or "")
    with psycopg.connect(address, autocommit=True) as one, psycopg.connect(address, autocommit=True) as other:
        yield one, other


def open_worker(node: Node) -> object:
    (session,) = node.execute("select triggers.open_worker('node-1', lease => '20 s')").fetchone() or ()
    return session


def due(kit: Kit, plants: tuple[str, ...] = ("norte",)) -> None:
    """Add a trigger for each plant on the queue triggers-sql, and let it fire."""
    for plant in plants:
        job = close_day.using(queue="triggers-sql").job(plant=plant, night="2026-11-01")
        app.schedules.upsert(f"triggers.close:{plant}", job, Every("1h"))
    kit.travel("1h")
    app.schedules.tick()


def test_a_run_is_called_and_reported_in_one_commit(kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql) -> None:
    node, _ = nodes
    session = open_worker(node)
    due(kit)
    run, attempt, schema, name, params, planned = (
        node.execute("select * from triggers.claim_due_triggers(%s, 5)", [session]).fetchone() or ()
    )
    assert (attempt, schema, name) == (1, "triggers", "close_day")
    assert params == {"plant": "norte", "night": "2026-11-01"}
    assert planned is not None
    with node.transaction():
        node.execute("call triggers.close_day('norte', '2026-11-01', %s)", [run])
        reported = node.execute("select triggers.report_trigger_run_result(%s, %s, 1, true)", [session, run])
        assert reported.fetchone() == ("succeeded",)
    assert run_sql("select job from triggers.closed_days") == [(run,)]
    assert run_sql("select status from triggers.event_trigger_runs") == [("succeeded",)]


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
    assert [(job.state, job.attempt) for job in kit.jobs(close_day)] == [("scheduled", 2)]
    assert_verified()


def test_the_login_of_a_legacy_worker_can_do_nothing_else(kit: Kit, nodes: tuple[Node, Node], run_sql: RunSql) -> None:
    node, _ = nodes
    session = open_worker(node)
    assert run_sql("select tasks from sereno.sessions where id = %s", session) == [(["triggers.close_day"],)]
    for query in (
        "select * from sereno.jobs",
        "select sereno.open_session(array['triggers'], array['triggers.settle_month'])",
        "insert into triggers.allowed_procedures values ('triggers', 'purge_readings')",
        "select * from triggers.event_trigger_runs",
        "call triggers.purge_readings('2026-01-01')",
        "delete from triggers.closed_days",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            node.execute(query.replace("sereno.", f"{app.settings.schema}.").encode())
