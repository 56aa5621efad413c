"""The last runs of a page of schedules are read through indexes: only the rows that are shown."""

from collections.abc import Iterator

import pytest

from sereno.database.statement import queries, run
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.runs import StateCount, newest, tally
from tests.database.plans import nodes, plan
from tests.databases import DatabasePool
from tests.jobs.job_steps import Connection, line

SCHEDULES, RUNS = 200, 100


@pytest.fixture(scope="module", params=["never analysed", pytest.param("analysed", marks=pytest.mark.slow)])
def connection(request: pytest.FixtureRequest, databases: DatabasePool, template: str) -> Iterator[Connection]:
    """A few schedules that ran often, with statistics and without."""
    with databases.copy(template) as url, line(url) as opened:
        fill(opened)
        if request.param == "analysed":
            opened.execute("analyze")
        yield opened


def fill(connection: Connection) -> None:
    connection.execute(
        "insert into sereno.schedules (key, rule, task, next_run_at) "
        "select 'k' || n, '{\"kind\": \"every\", \"interval\": 60}', 'work', sereno.now() "
        "from generate_series(1, %s) as n",
        [SCHEDULES],
    )
    connection.execute(
        "insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes, "
        "releases, priority, state, queue, task, args, schedule_id, planned_at) "
        "select s.id * 1000 + n, at, at, at, 1, 0, 0, 0, 0, 5, "
        "case when n %% 10 = 0 then 'dead' else 'succeeded' end, 'default', 'work', '{}', s.id, at "
        "from sereno.schedules s, generate_series(1, %s) n, "
        "lateral (select sereno.now() - n * interval '1 minute' as at) t",
        [RUNS],
    )
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at, reason) "
        "select sereno.now() - n * interval '90 seconds', id, sereno.now(), 'overlap' "
        "from sereno.schedules, generate_series(1, 5) n"
    )


@pytest.mark.slow
def test_every_part_of_the_query_uses_its_index(connection: Connection) -> None:
    top = plan(connection, "schedules/runs", "newest", {"ids": list(range(1, 51)), "limit": 30})
    scans = {
        (node["Node Type"], node["Relation Name"])
        for node in nodes(top)
        if node.get("Relation Name", "").startswith(("jobs", "history", "fires"))
    }
    assert len(scans) > 3
    # One schedule has few live jobs, and all of them are wanted.
    assert not {how for how, _ in scans} & {"Seq Scan"}
    conditions = [node["Index Cond"] for node in nodes(top) if "Index Cond" in node]
    assert all("schedule_id" in condition for condition in conditions)


@pytest.mark.slow
def test_the_newest_runs_come_first_up_to_the_limit(connection: Connection) -> None:
    found = run(connection, newest([1, 2, 10_000], 30))
    assert {key: len(runs) for key, runs in found.items()} == {1: 30, 2: 30, 10_000: 0}
    planned = [each.planned_at for each in found[1] if each.planned_at is not None]
    assert len(planned) == 30
    assert planned == sorted(planned, reverse=True)
    assert {each.state for each in found[1]} == {"succeeded", "dead", "skipped"}
    assert run(connection, newest([], 30)) == {}


def test_schedules_that_need_attention_are_counted_up_to_a_bound(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("update sereno.schedules set failed_in_row = 1 where key in ('k1', 'k2')")
        connection.execute("update sereno.schedules set state = 'parked', next_run_at = null where key = 'k3'")
        connection.execute(
            "update sereno.schedules set state = 'paused', next_run_at = null, failed_in_row = 1 where key = 'k4'"
        )
        connection.execute(
            "update sereno.schedules set state = 'disabled', next_run_at = null, note = 'disabled after 3 …' "
            "where key = 'k5'"
        )
        connection.execute("update sereno.schedules set state = 'disabled', next_run_at = null where key = 'k6'")
        found = run(connection, tally(ScheduleFilter(), 10_000))
    counts = {"enabled": (196, 2), "parked": (1, 1), "paused": (1, 0), "disabled": (2, 1)}
    assert {each.state: (each.number, each.troubled) for each in found} == counts
    assert run(connection, tally(ScheduleFilter(), 50)) == [StateCount("enabled", 50, 0)]
    assert "limit" in queries("schedules/runs")["tally"]
