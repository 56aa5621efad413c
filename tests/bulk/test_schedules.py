"""Bulk operations on schedules: each action, only what existed at the start, and after a killed worker."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Daily, Once, Sereno
from sereno.bulk import operations as bulk
from sereno.bulk.operations import ScheduleBulkRequest
from sereno.errors import InvalidSchedule, Refused
from sereno.jobs import bulk as store
from sereno.jobs.filters import ScheduleFilter
from tests.acceptance.conftest import WorkerProcess, expire_leases
from tests.bulk.bulk_steps import ended_bulk, raise_rate, show_bulk
from tests.facts import advance, one, until


def _schedules(app: Sereno, work: Any, *keys: str, **options: Any) -> None:
    app.schedules.upsert_many([app.schedules.new(key, work.job(1), Daily("03:00"), **options) for key in keys])


def _change_schedules(
    app: Sereno, action: Any, wanted: ScheduleFilter, request: ScheduleBulkRequest | None = None, **options: Any
) -> int:
    return app.database.run(bulk.begin_schedules(action, wanted, request, yes=True, actor="ann", **options)).id


def _counts(connection: psycopg.Connection, expression: str) -> dict[Any, int]:
    return dict(
        connection.execute(f"select {expression}, count(*) from sereno.schedules group by 1".encode()).fetchall()
    )


@pytest.mark.slow
async def test_schedules_are_paused_resumed_disabled_spread_and_deleted(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _schedules(app, work, *(f"k{number:04}" for number in range(2100)))
    app.schedules.upsert("once", work.job(1), Once(datetime.now(UTC) + timedelta(days=9)))
    until_then = datetime.now(UTC) + timedelta(days=2)
    async with app.working({"default": 1}):
        pause = await ended_bulk(
            app, _change_schedules(app, "schedule.pause", ScheduleFilter(), ScheduleBulkRequest(note="closed"))
        )
        assert (pause.state, pause.done, pause.reason, pause.error) == ("done", 2101, "closed", None)
        assert _counts(connection, "(state, note, changed_by)::text") == {"(paused,closed,ann)": 2101}
        resume = ScheduleFilter(pattern="k*1")
        assert (await ended_bulk(app, _change_schedules(app, "schedule.resume", resume))).done == 210
        disable = ScheduleFilter(pattern="k0*", states=["enabled"])
        assert (
            await ended_bulk(app, _change_schedules(app, "schedule.disable", disable, ScheduleBulkRequest(note="gone")))
        ).done == 100
        later = await ended_bulk(
            app,
            _change_schedules(app, "schedule.pause", ScheduleFilter(keys=["k0000"]), ScheduleBulkRequest(until_then)),
        )
        assert (later.done, later.options) == (1, {"until": until_then.isoformat().replace("+00:00", "Z")})
        assert one(connection, "select paused_until from sereno.schedules where key = 'k0000'") == until_then
        spread = await ended_bulk(
            app,
            _change_schedules(app, "schedule.spread", ScheduleFilter(task="work"), ScheduleBulkRequest(window="20m")),
        )
        # A schedule that fires once cannot be spread.
        assert (spread.done, spread.left_alone) == (2100, 1)
        assert one(connection, "select count(distinct shift) from sereno.schedules") > 1000
        assert (
            await ended_bulk(app, _change_schedules(app, "schedule.delete", ScheduleFilter(states=["disabled"])))
        ).done == 100
    assert _counts(connection, "state") == {"paused": 1890, "enabled": 111}
    audited = connection.execute(
        "select action, sum((detail->>'changed')::int), count(*) from sereno.audit "
        "where actor = 'ann' and action like 'schedule.%' group by 1 order by 1"
    ).fetchall()
    assert audited == [
        ("schedule.delete", 100, 1),
        ("schedule.disable", 100, 1),
        ("schedule.pause", 2102, 4),
        ("schedule.resume", 210, 1),
        ("schedule.spread", 2100, 3),
    ]


@pytest.mark.slow
async def test_schedules_created_later_are_left_alone(
    app: Sereno, work: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a range without matches, behind which the operation continues."""
    monkeypatch.setattr(store, "STRETCH_OF_SCHEDULES", 3)
    _schedules(app, work, "b", "d", "z", tenant="r1")
    _schedules(app, work, *"efghijkl", tenant="r2")
    number = _change_schedules(app, "schedule.pause", ScheduleFilter(tenant="r1"))
    _schedules(app, work, "a", "c", "zz", tenant="r1")
    app.schedules.delete("d")
    _schedules(app, work, "d", tenant="r1")
    async with app.working({"default": 1}):
        found = await ended_bulk(app, number)
    assert (found.done, found.left_alone, found.tenant) == (2, 0, "r1")
    paused = connection.execute("select key from sereno.schedules where state = 'paused' order by key").fetchall()
    assert paused == [("b",), ("z",)]


@pytest.mark.slow
def test_a_change_of_schedules_continues_after_a_killed_worker(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    keys = [f"k{number:03}" for number in range(40)]
    _schedules(app, work, *keys)
    number = _change_schedules(app, "schedule.pause", ScheduleFilter(task="work"), rate=2)
    workers = []
    try:
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: show_bulk(app, number).done > 0)
        workers[0].kill()
        assert show_bulk(app, number).done < len(keys)
        expire_leases(connection)
        raise_rate(connection, 400)
        # A schedule that is resumed behind the cursor is not paused again.
        app.schedules.resume("k000")
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: show_bulk(app, number).is_over)
    finally:
        for worker in workers:
            worker.kill()
    assert (show_bulk(app, number).state, show_bulk(app, number).done) == ("done", len(keys))
    audited = connection.execute("select detail->'keys' from sereno.audit where action = 'schedule.pause'").fetchall()
    assert sorted(key for (batch,) in audited for key in batch) == keys
    assert one(connection, "select state from sereno.schedules where key = 'k000'") == "enabled"


async def test_options_of_a_schedule_change_are_checked_first(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _schedules(app, work, "k")
    every = ScheduleFilter(pattern="*")
    with pytest.raises(Refused, match="already be over"):
        _change_schedules(
            app, "schedule.pause", every, ScheduleBulkRequest(until=datetime.now(UTC) - timedelta(days=1))
        )
    with pytest.raises(InvalidSchedule):
        _change_schedules(app, "schedule.spread", every, ScheduleBulkRequest(window="-5m"))
    with pytest.raises(Refused, match="confirm"):
        app.database.run(bulk.begin_schedules("schedule.delete", every))
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0
    # A pause whose end has passed before its batch runs.
    number = _change_schedules(
        app, "schedule.pause", every, ScheduleBulkRequest(until=datetime.now(UTC) + timedelta(hours=1))
    )
    advance(connection, 7200)
    async with app.working({"default": 1}):
        found = await ended_bulk(app, number)
    assert (found.state, found.done) == ("failed", 0)
    assert "which is past: give a later moment" in str(found.error)


async def test_an_unknown_action_changes_nothing(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    _schedules(app, work, "k")
    number = _change_schedules(app, "schedule.delete", ScheduleFilter(keys=["k"]))
    job = show_bulk(app, number).job_id
    assert job is not None
    connection.execute("update sereno.jobs set state = 'running', attempt = 1, session_id = 9 where id = %s", [job])
    with pytest.raises(Refused, match="does not know the bulk action schedule"):
        app.database.run(store.batch(number, job, 1, 9))
    assert _counts(connection, "key") == {"k": 1}
