"""The hot statements find their rows by index: their cost depends on due rows, not on existing ones."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sereno.jobs.transitions import EVERYTHING
from tests.database.plans import BY_KEY, Access, accesses, nodes, plan
from tests.databases import DatabasePool
from tests.jobs.job_steps import Connection, line, new, session, wanted

ROWS = 50_000


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def connection(request: pytest.FixtureRequest, databases: DatabasePool, template: str) -> Iterator[Connection]:
    """Create many ready rows, some running and scheduled ones; with statistics, and without as after a bulk enqueue."""
    with databases.copy(template) as url, line(url) as opened:
        opened.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
        fill(opened)
        if request.param == "analysed":
            opened.execute("analyze")
        yield opened


def fill(connection: Connection) -> None:
    owner = session(connection)
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq) "
        "select 'work', 'ready', nextval('sereno.ready_seq') from generate_series(1, %s)",
        [ROWS],
    )
    connection.execute(
        "insert into sereno.jobs (task, state, session_id, attempt, claimed_at) "
        "select 'work', 'running', %s, 1, sereno.now() from generate_series(1, 500)",
        [owner],
    )
    connection.execute(
        "insert into sereno.jobs (task, state, run_at) "
        "select 'work', 'scheduled', sereno.now() + make_interval(secs => n) from generate_series(1, 5000) as n"
    )


IDS = list(range(ROWS + 1, ROWS + 501))
ITEMS = json.dumps([{"id": n, "attempt": 1, "began": 0.1, "outcome": "retry", "started": True} for n in IDS])
SETTLING: dict[str, Any] = {"session": 1, "ids": IDS, "items": ITEMS}
LITERALS = {"ids": json.dumps(IDS), "attempts": json.dumps([1] * len(IDS)), "began": json.dumps([0.1] * len(IDS))}
ARRAYS = {name: f"{{{text[1:-1]}}}" for name, text in LITERALS.items()}
SUCCEEDING: dict[str, Any] = {"session": 1, "count": len(IDS), **ARRAYS}


def test_a_claim_reads_the_index_of_ready_rows_from_its_floor(connection: Connection) -> None:
    top = plan(
        connection,
        "jobs/transitions",
        "claim",
        {
            "session": 1,
            "tasks": ["work"],
            "queues": json.dumps([wanted(500, floor=100)]),
            "wakes": 0,
            "served": ["default"],
        },
    )
    assert accesses(top) == {Access("Index Scan", "jobs_ready", True), BY_KEY}
    conditions = [node["Index Cond"] for node in nodes(top) if node.get("Index Name") == "jobs_ready"]
    assert all("ready_seq >= " in condition and "ready_seq < " in condition for condition in conditions)
    assert not {node["Node Type"] for node in nodes(top)} & {"Sort", "Seq Scan", "Bitmap Heap Scan", "Incremental Sort"}


def test_a_settlement_finds_its_rows_by_primary_key(connection: Connection, subtests: pytest.Subtests) -> None:
    for way in ["succeed", "forget", "bury", "reschedule"]:
        with subtests.test(way=way):
            params = SUCCEEDING if way in ("succeed", "forget") else SETTLING
            assert accesses(plan(connection, "jobs/settlement", way, params)) == {BY_KEY}


def test_a_promotion_reads_only_what_is_due(connection: Connection) -> None:
    top = plan(connection, "jobs/transitions", "promote", {"look_back": EVERYTHING, "until": 60.0})
    assert accesses(top) == {Access("Index Scan", "jobs_scheduled", True), BY_KEY}
    conditions = [node["Index Cond"] for node in nodes(top) if node.get("Index Name") == "jobs_scheduled"]
    assert all("run_at <=" in condition and "run_at >=" in condition for condition in conditions)


def test_a_poll_reads_by_index(connection: Connection) -> None:
    given = {"look_back": EVERYTHING, "queues": ["default"], "elsewhere": 1.0, "signals": True}
    top = plan(connection, "worker/sessions", "due_work", given)
    assert accesses(top) == {
        Access("Index Scan", "jobs_scheduled", True),
        Access("Index Only Scan", "jobs_running", True),
    }


def test_a_rescue_reads_running_rows_and_writes_by_primary_key(
    connection: Connection, subtests: pytest.Subtests
) -> None:
    for everywhere in [False, True]:
        with subtests.test(everywhere=everywhere):
            top = plan(connection, "worker/sessions", "rescue", {"everywhere": everywhere})
            scans = Access("Index Scan", "jobs_running", True), Access("Index Scan", "jobs_running", False)
            assert accesses(top) - set(scans) == {BY_KEY}
            assert accesses(top["Plans"][0]) - {BY_KEY} == {scans[everywhere]}


def test_a_reconciliation_reads_the_rows_of_its_session(connection: Connection) -> None:
    top = plan(connection, "jobs/transitions", "release_unlisted", {"session": 1, "held": IDS[:10], "older_than": 5.0})
    assert accesses(top) == {Access("Index Scan", "jobs_running", True), BY_KEY}


def test_a_report_reads_only_the_jobs_held(connection: Connection) -> None:
    top = plan(connection, "worker/sessions", "report", {"session": 1, "floors": "{}", "held": IDS, "waiting": IDS})
    assert accesses(top) == {BY_KEY}


def test_a_cancel_or_delete_finds_its_rows_by_primary_key(connection: Connection, subtests: pytest.Subtests) -> None:
    for name in ["cancel", "delete"]:
        with subtests.test(name=name):
            params = {"ids": IDS[:3], "reason": "x", "ended_by": None}
            assert accesses(plan(connection, "jobs/transitions", name, params)) == {BY_KEY}


def test_a_requeue_finds_its_rows_by_index(connection: Connection) -> None:
    top = plan(
        connection, "jobs/transitions", "requeue", {"ids": IDS[:3], "spacing": 0.0, "start": 0.0, "ended_by": None}
    )
    assert {access.how for access in accesses(top)} <= {"Index Scan", "Index Only Scan"}
    assert all(access.bounded for access in accesses(top))
    for node in nodes(top):
        if str(node.get("Relation Name")).startswith("history") and "Scan" in node["Node Type"]:
            assert "Index Cond" in node


def test_an_enqueue_reads_no_jobs(connection: Connection) -> None:
    rows = json.dumps([{"task": new().task, "args": {}, "queue": "default", "priority": 5}])
    assert accesses(plan(connection, "jobs/transitions", "enqueue", {"jobs": rows})) == set()


def test_an_enqueue_on_a_callers_connection_reads_no_jobs(connection: Connection) -> None:
    rows = json.dumps([{"task": new().task, "args": {}, "queue": "default", "priority": 5}])
    with connection.transaction(force_rollback=True):
        for name in ("seqscan", "sort", "nestloop", "mergejoin", "bitmapscan"):
            connection.execute(f"set local enable_{name} = on".encode())
        assert accesses(plan(connection, "jobs/transitions", "enqueue", {"jobs": rows})) == set()
