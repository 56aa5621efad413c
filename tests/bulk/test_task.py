"""A bulk operation changes each match once, at its rate, only what existed at its start, and can be stopped."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Context, Daily, Once, Sereno
from sereno.bulk import operations as bulk
from sereno.bulk.operations import ScheduleBulkRequest
from sereno.channels.outcome import Failed
from sereno.database.connect import ServiceConnection
from sereno.database.driver import drive
from sereno.errors import ConfigurationError, InvalidArguments, InvalidSchedule, Refused
from sereno.jobs import bulk as store
from sereno.jobs import operations as jobs
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.queries.search import jobs_wanted
from sereno.jobs.rows import BulkOperation
from sereno.schedules.maintenance import fires_duty
from sereno.worker import bulk_task as engine_bulk
from tests.acceptance.conftest import WorkerProcess, expire_leases
from tests.facts import advance, auntil, one, state, until
from tests.jobs.job_steps import waits_for_a_lock
from tests.notifications.conftest import Pager, Tender
from tests.worker.maintenance.locked_tables import do_all


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work


def _waiting(app: Sereno, work: Any, count: int, **options: Any) -> list[int]:
    return [job.id for job in app.enqueue_many([work.using(**options).job(number) for number in range(count)])]


def _ended(app: Sereno, work: Any, count: int) -> list[int]:
    ids = _waiting(app, work, count)
    drive(jobs.cancel(JobFilter(ids=ids), reason="before"), app.database.run)
    return ids


def _begin(app: Sereno, action: Any, wanted: JobFilter, **options: Any) -> BulkOperation:
    return app.database.run(bulk.begin(action, wanted, yes=True, actor="ann", **options))


def _show(app: Sereno, number: int) -> BulkOperation:
    found = app.database.run(bulk.show(number))
    assert found is not None
    return found


async def _ended_operation(app: Sereno, number: int) -> BulkOperation:
    await auntil(lambda: _show(app, number).is_over)
    return _show(app, number)


def _raise_rate(connection: psycopg.Connection, rate: float) -> None:
    """Raise the rate of an operation that was slow so that it could not end before its worker was killed."""
    connection.execute("update sereno.bulk_operations set rate = %s", [rate])


def _states(connection: psycopg.Connection, ids: Sequence[int]) -> set[str | None]:
    return {state(connection, number) for number in ids}


async def test_jobs_are_retried_cancelled_and_deleted(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    ids = _ended(app, work, 2500)
    retry = _begin(app, "job.retry", JobFilter(task="work"))
    assert (retry.state, retry.waits_for) == ("waiting", "a worker")
    async with app.working({"default": 2}):
        ended = await _ended_operation(app, retry.id)
        assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 2500, 0, None)
        assert one(connection, "select count(*) from sereno.jobs where task = 'work' and state = 'ready'") == 2500
        cancel = _begin(app, "job.cancel", JobFilter(ids=ids[:10]), reason="enough")
        assert cancel.waits_for is None
        assert (await _ended_operation(app, cancel.id)).done == 10
        assert one(connection, "select reason from sereno.history where id = %s", ids[0]) == "enough"
        delete = _begin(app, "job.delete", JobFilter(task="work", states=["cancelled"]))
        assert (await _ended_operation(app, delete.id)).done == 10
    assert _states(connection, ids[:10]) == {None}
    audited = connection.execute(
        "select action, actor, (detail->>'count')::int, (detail->>'operation')::bigint from sereno.audit "
        "where action in ('job.retry', 'job.cancel', 'job.delete') and actor = 'ann' order by id"
    ).fetchall()
    assert audited == [
        *[("job.retry", "ann", count, retry.id) for count in (1000, 1000, 500)],
        ("job.cancel", "ann", 10, cancel.id),
        ("job.delete", "ann", 10, delete.id),
    ]


async def test_a_conflict_of_unique_keys_is_reported_and_the_others_are_retried(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str
) -> None:
    ids = [*_ended(app, work, 5), *_waiting(app, work, 1, unique_key="k"), *_ended(app, work, 5)]
    drive(jobs.cancel(JobFilter(ids=ids[5:6]), reason="before"), app.database.run)
    with psycopg.connect(database_url) as other:
        live = work.using(other, unique_key="k").enqueue(1)
        retry = _begin(app, "job.retry", JobFilter(task="work", states=["cancelled"]))
        async with app.working({"default": 2}):
            await auntil(lambda: waits_for_a_lock(connection))
            other.commit()
            ended = await _ended_operation(app, retry.id)
    assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 10, 1, None)
    assert _states(connection, [*ids[:5], *ids[6:]]) == {"ready"}
    audited = one(
        connection, "select detail->'conflicts' from sereno.audit where action = 'job.retry' and actor = 'ann'"
    )
    assert audited == [{"job": ids[5], "held_by": live.id}]


async def test_a_filter_that_matches_nothing_is_done_at_once(app: Sereno, work: Any) -> None:
    _waiting(app, work, 3)
    for wanted in (JobFilter(task="unknown"), JobFilter(ids=[]), JobFilter(ids=[-5, 2**62]), JobFilter(states=["odd"])):
        number = _begin(app, "job.cancel", wanted).id
        async with app.working({"default": 1}):
            found = await _ended_operation(app, number)
        assert (found.state, found.done, found.left_alone) == ("done", 0, 0)


async def test_jobs_created_or_ended_later_are_left_alone(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    existing, running = _waiting(app, work, 5), _waiting(app, work, 1)
    cancel = _begin(app, "job.cancel", JobFilter(task="work"))
    retry = _begin(app, "job.retry", JobFilter(ids=running))
    later = _waiting(app, work, 5)
    # This job ends after the retry was requested.
    drive(jobs.cancel(JobFilter(ids=running)), app.database.run)
    async with app.working({"default": 1}):
        assert (await _ended_operation(app, cancel.id)).done == 5
        assert (await _ended_operation(app, retry.id)).done == 0
    assert _states(connection, existing) == {"cancelled"}
    assert _states(connection, later) == {"ready"}
    assert _states(connection, running) == {"cancelled"}


async def test_the_rate_applies_across_workers(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    """By the database's clock: in no period more changes than the rate allows plus one batch."""
    _ended(app, work, 60)
    number = _begin(app, "job.retry", JobFilter(task="work"), rate=20).id
    batch = 10
    for share in (1, 30):
        async with app.working({"default": 1}):
            await auntil(lambda: _show(app, number).done >= share)  # noqa: B023 - awaited here
    # The time without a worker does not count for the rate.
    advance(connection, 3600)
    before = _show(app, number).done
    async with app.working({"default": 1}):
        assert (await _ended_operation(app, number)).done == 60
    assert before < 60
    steps: list[tuple[float, int]] = connection.execute(
        "select date_part('epoch', at), (detail->>'count')::int from sereno.audit "
        "where action = 'job.retry' order by id"
    ).fetchall()
    assert max(count for _, count in steps) <= batch
    for first, (begin, _) in enumerate(steps):
        for last in range(first, len(steps)):
            changed = sum(count for _, count in steps[first : last + 1])
            assert changed <= 20 * (steps[last][0] - begin) + batch + 1e-6


def test_another_worker_continues_when_the_first_is_killed(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    ids = _waiting(app, work, 200)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=2).id
    workers = []
    try:
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _show(app, number).done > 0)
        workers[0].kill()
        killed = _show(app, number)
        assert (killed.state, killed.finished_at) == ("running", None)
        assert killed.done < 200
        expire_leases(connection)
        _raise_rate(connection, 80)
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _show(app, number).is_over)
    finally:
        for worker in workers:
            worker.kill()
    found = _show(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", 200, 0)
    audited = connection.execute("select detail->'ids' from sereno.audit where action = 'job.cancel'").fetchall()
    assert sorted(each for (batch,) in audited for each in batch) == ids


async def test_an_operation_can_be_stopped_while_it_runs(
    app: Sereno, work: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next batch is due in a quarter of an hour; meanwhile the task checks whether it is to stop.
    monkeypatch.setattr(engine_bulk, "LONG_WAIT", 3600.0)
    ids = _waiting(app, work, 500)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=1 / 900).id
    async with app.working({"default": 1}):
        await auntil(lambda: _show(app, number).done > 0)
        requested = app.database.run(bulk.stop(number, actor="bob"))
        found = await _ended_operation(app, number)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert (found.state, found.stop_requested_by) == ("stopped", "bob")
    assert found.stop_requested_at is not None
    assert found.finished_at is not None
    assert 0 < found.done < 500
    assert found.done == requested.done, "jobs were changed after the request to stop"
    assert one(connection, "select count(*) from sereno.history where id = any(%s)", ids) == found.done
    with pytest.raises(Refused, match="has ended already: it is stopped"):
        app.database.run(bulk.stop(number))


async def test_an_operation_that_has_not_started_stops_at_once(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    assert app.database.run(bulk.stop(number)).state == "stopped"
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert _states(connection, ids) == {"ready"}


async def test_a_worker_that_stops_leaves_the_operation_to_another(app: Sereno, work: Any) -> None:
    _waiting(app, work, 40)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=20).id
    async with app.working({"default": 1}):
        await auntil(lambda: _show(app, number).done > 0)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < app.settings.grace
    assert _show(app, number).waits_for == "a worker"
    async with app.working({"default": 1}):
        assert (await _ended_operation(app, number)).done == 40


async def test_a_worker_of_other_queues_takes_over_an_operation(app: Sereno, work: Any) -> None:
    _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    async with app.working({"mail": 1}):
        assert (await _ended_operation(app, number)).done == 3


async def test_an_operation_is_enqueued_where_there_are_free_slots(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    newest_queue = "select queue from sereno.jobs where task = %s order by id desc"
    async with app.working({"small": 1, "wide": 5}):
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('task', %s, 'x')", [store.TASK])
        _begin(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, newest_queue, store.TASK) == "wide"
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('queue', 'wide', 'x')")
        _begin(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, newest_queue, store.TASK) == "small"


async def test_an_attempt_that_lost_its_claim_changes_nothing(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = _waiting(app, work, 3)
    made = _begin(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    assert app.database.run(store.batch(made.id, made.job_id, 1, 1)) == store.BulkBatch(None)
    connection.execute(
        "update sereno.jobs set state = 'running', attempt = 2, session_id = 9 where id = %s", [made.job_id]
    )
    for job, attempt, session in ((made.job_id, 1, 9), (made.job_id, 2, 8), (ids[0], 2, 9)):
        assert app.database.run(store.batch(made.id, job, attempt, session)) == store.BulkBatch(None)
    assert _states(connection, ids) == {"ready"}
    assert app.database.run(store.batch(made.id, made.job_id, 2, 9)).changed == 3


async def test_an_operation_whose_job_was_cancelled_has_failed_and_can_be_retried(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _waiting(app, work, 3)
    made = _begin(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    drive(jobs.cancel(JobFilter(ids=[made.job_id]), reason="no"), app.database.run)
    found = _show(app, made.id)
    assert (found.state, found.error) == ("failed", "its job ended: no")
    drive(jobs.retry(JobFilter(ids=[made.job_id])), app.database.run)
    async with app.working({"default": 1}):
        assert (await _ended_operation(app, made.id)).done == 3


async def test_running_jobs_are_asked_to_stop_and_never_deleted(app: Sereno, connection: psycopg.Connection) -> None:
    began = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with app.working({"default": 3}):
        job = await long.aenqueue()
        await began.wait()
        with pytest.raises(Refused, match="is running: cancel it first"):
            _begin(app, "job.delete", JobFilter(ids=[job.id]))
        delete = _begin(app, "job.delete", JobFilter(task="long"))
        assert (await _ended_operation(app, delete.id)).done == 0
        cancel = _begin(app, "job.cancel", JobFilter(task="long"))
        found = await _ended_operation(app, cancel.id)
        assert (found.done, found.stop_requested) == (0, 1)
        await auntil(lambda: state(connection, job.id) == "cancelled")


async def test_jobs_that_cannot_be_changed_are_left_alone_and_counted(app: Sereno, work: Any) -> None:
    ids = _ended(app, work, 1)
    (keyed,) = _waiting(app, work, 1, unique_key="k")
    drive(jobs.cancel(JobFilter(ids=[keyed])), app.database.run)
    _waiting(app, work, 1, unique_key="k")
    number = _begin(app, "job.retry", JobFilter(ids=[*ids, keyed])).id
    async with app.working({"default": 1}):
        found = await _ended_operation(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", 1, 1)


async def test_a_filter_that_this_version_does_not_know_is_refused(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    connection.execute("""update sereno.bulk_operations set selection = selection || '{"moon": "full"}'""")
    async with app.working({"default": 1}):
        found = await _ended_operation(app, number)
    assert found.state == "failed"
    assert "does not know" in str(found.error)
    assert _states(connection, ids) == {"ready"}


def test_a_change_by_filter_without_confirmation_is_refused(app: Sereno, connection: psycopg.Connection) -> None:
    with pytest.raises(Refused, match="confirm"):
        app.database.run(bulk.begin("job.cancel", JobFilter(task="work")))
    with pytest.raises(InvalidArguments, match="there is no operation 7"):
        app.database.run(bulk.stop(7))
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0


async def test_a_search_with_an_sql_injection_matches_only_its_text(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    """A search is stored as parameters, never as SQL."""
    ids = _waiting(app, work, 4, tags=["a'); drop table sereno.jobs; --"])
    now = datetime.now(UTC)
    for text, done in (
        ("""tag:"x' or 1=1 --" """, 0),
        ('task:w* -args.number:0 tag:"a%"', 0),
        ("""task:w* -args.number:0 tag:"a'); drop table sereno.jobs; --" """, 3),
    ):
        number = _begin(app, "job.cancel", jobs_wanted(text, now)).id
        async with app.working({"default": 1}):
            assert (await _ended_operation(app, number)).done == done
    assert _states(connection, ids[1:]) == {"cancelled"}
    assert state(connection, ids[0]) == "ready"


# Schedules


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


async def test_schedules_are_paused_resumed_disabled_spread_and_deleted(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _schedules(app, work, *(f"k{number:04}" for number in range(2100)))
    app.schedules.upsert("once", work.job(1), Once(datetime.now(UTC) + timedelta(days=9)))
    until_then = datetime.now(UTC) + timedelta(days=2)
    async with app.working({"default": 1}):
        pause = await _ended_operation(
            app, _change_schedules(app, "schedule.pause", ScheduleFilter(), ScheduleBulkRequest(note="closed"))
        )
        assert (pause.state, pause.done, pause.reason, pause.error) == ("done", 2101, "closed", None)
        assert _counts(connection, "(state, note, changed_by)::text") == {"(paused,closed,ann)": 2101}
        resume = ScheduleFilter(pattern="k*1")
        assert (await _ended_operation(app, _change_schedules(app, "schedule.resume", resume))).done == 210
        disable = ScheduleFilter(pattern="k0*", states=["enabled"])
        assert (
            await _ended_operation(
                app, _change_schedules(app, "schedule.disable", disable, ScheduleBulkRequest(note="gone"))
            )
        ).done == 100
        later = await _ended_operation(
            app,
            _change_schedules(app, "schedule.pause", ScheduleFilter(keys=["k0000"]), ScheduleBulkRequest(until_then)),
        )
        assert (later.done, later.options) == (1, {"until": until_then.isoformat().replace("+00:00", "Z")})
        assert one(connection, "select paused_until from sereno.schedules where key = 'k0000'") == until_then
        spread = await _ended_operation(
            app,
            _change_schedules(app, "schedule.spread", ScheduleFilter(task="work"), ScheduleBulkRequest(window="20m")),
        )
        # A schedule that fires once cannot be spread.
        assert (spread.done, spread.left_alone) == (2100, 1)
        assert one(connection, "select count(distinct shift) from sereno.schedules") > 1000
        assert (
            await _ended_operation(app, _change_schedules(app, "schedule.delete", ScheduleFilter(states=["disabled"])))
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
        found = await _ended_operation(app, number)
    assert (found.done, found.left_alone, found.tenant) == (2, 0, "r1")
    paused = connection.execute("select key from sereno.schedules where state = 'paused' order by key").fetchall()
    assert paused == [("b",), ("z",)]


def test_a_change_of_schedules_continues_after_a_killed_worker(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    keys = [f"k{number:03}" for number in range(120)]
    _schedules(app, work, *keys)
    number = _change_schedules(app, "schedule.pause", ScheduleFilter(task="work"), rate=2)
    workers = []
    try:
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _show(app, number).done > 0)
        workers[0].kill()
        assert _show(app, number).done < len(keys)
        expire_leases(connection)
        _raise_rate(connection, 60)
        # A schedule that is resumed behind the cursor is not paused again.
        app.schedules.resume("k000")
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _show(app, number).is_over)
    finally:
        for worker in workers:
            worker.kill()
    assert (_show(app, number).state, _show(app, number).done) == ("done", len(keys))
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
        found = await _ended_operation(app, number)
    assert (found.state, found.done) == ("failed", 0)
    assert "which is past: give a later moment" in str(found.error)


# Deliveries


async def _failed_deliveries(app: Sereno, pager: Pager, *recipients: str) -> list[int]:
    """Return the ids of deliveries that failed."""
    published = app.event("tender.published", Tender, channels=[pager])
    for key in recipients:
        pager.outcomes[key] = Failed("too_big")
        await app.recipients.aupsert(key, {"pager": key})
    event = await published.anotify(Tender("T1"), to=list(recipients))
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    rows = await app.database.arun(store.count_deliveries(DeliveryFilter(states=["failed"])))
    assert rows.value == len(recipients)
    return [message.delivery for message in pager.sent]


async def test_deliveries_are_requeued(app: Sereno, connection: psycopg.Connection) -> None:
    pager = Pager()
    first, second, third = sorted(await _failed_deliveries(app, pager, "ann", "bob", "eve"))
    pager.outcomes.clear()
    with pytest.raises(Refused, match="confirm"):
        await app.database.arun(bulk.begin_requeue(DeliveryFilter(channel="pager")))
    with pytest.raises(ConfigurationError, match="no recipient"):
        await app.database.arun(bulk.begin_requeue(DeliveryFilter(recipient="unknown"), yes=True))
    wanted = DeliveryFilter(states=["failed", "sent"], channel="pager", type="tender.published")
    made = await app.database.arun(bulk.begin_requeue(wanted, ids=[first, second], actor="ann"))
    assert (made.action, made.wanted["ids"], made.wanted["states"]) == ("delivery.requeue", [first, second], ["failed"])
    # It has changed since the request, so it is excluded.
    connection.execute("update sereno.deliveries set changed_at = sereno.now() where id = %s", [second])
    sent = "select count(*) from sereno.deliveries where state = 'sent'"
    async with app.working({"default": 1, "notifications": 1}):
        assert (await _ended_operation(app, made.id)).done == 1
        await auntil(lambda: one(connection, sent) == 1)
        rest = await app.database.arun(bulk.begin_requeue(DeliveryFilter(type="tender.published"), yes=True))
        assert (await _ended_operation(app, rest.id)).done == 2
        await auntil(lambda: one(connection, sent) == 3)
    assert [message.delivery for message in pager.sent][3:] == [first, second, third]
    audited = connection.execute(
        "select subject, detail->'ids', (detail->>'operation')::bigint from sereno.audit "
        "where action = 'delivery.requeue' order by id"
    ).fetchall()
    assert audited == [(f"delivery {first}", [first], made.id), ("2 deliveries", [second, third], rest.id)]


async def test_a_worker_of_another_application_does_not_send_deliveries(
    app: Sereno, database_url: str, connection: psycopg.Connection
) -> None:
    await _failed_deliveries(app, Pager(), "ann")
    made = await app.database.arun(bulk.begin_requeue(DeliveryFilter(channel="pager"), yes=True))
    send_jobs = one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'")
    other = Sereno(database_url)

    @other.task
    def anything() -> None: ...

    async with other.working({"default": 1}):
        assert (await _ended_operation(app, made.id)).done == 1
    await other.aclose()
    assert one(connection, "select count(*) from sereno.batches where purpose = 'send' and job_id is null") == 1
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") == send_jobs


async def test_an_unknown_action_changes_nothing(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    _schedules(app, work, "k")
    number = _change_schedules(app, "schedule.delete", ScheduleFilter(keys=["k"]))
    job = _show(app, number).job_id
    assert job is not None
    connection.execute("update sereno.jobs set state = 'running', attempt = 1, session_id = 9 where id = %s", [job])
    with pytest.raises(Refused, match="does not know the bulk action schedule"):
        app.database.run(store.batch(number, job, 1, 9))
    assert _counts(connection, "key") == {"k": 1}


# Retention


async def test_operations_that_ended_long_ago_are_deleted(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _waiting(app, work, 1)
    done, lost, waiting = (_begin(app, "job.cancel", JobFilter(task="work")) for _ in range(3))
    app.database.run(bulk.stop(done.id))
    connection.execute("delete from sereno.jobs where id = %s", [lost.job_id])
    line = ServiceConnection(app.database.url, app.settings, "test")
    try:
        for days, left in ((89, 3), (2, 1)):
            advance(connection, days * 86400)
            await do_all(line, [fires_duty(app.settings)])
            assert one(connection, "select count(*) from sereno.bulk_operations") == left
    finally:
        await line.close()
    assert _show(app, waiting.id).state == "waiting"
