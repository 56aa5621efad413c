"""Leader election, and the duties of a new leader: new zone data, and schedules whose run was deleted."""

from datetime import timedelta
from typing import Any

import pytest

from sereno import Cron, Daily, Every, Sereno
from sereno.errors import DatabaseUnavailable
from sereno.schedules import leader_lease, replanner
from sereno.schedules import scheduler as module
from sereno.schedules.scheduler import LEASE, Scheduler
from sereno.zones import VERSION
from tests.facts import advance, auntil, one
from tests.jobs.job_steps import do, line
from tests.schedules.schedule_steps import Connection, Work, fake_next, lease, made, now, scheduling

# Election


async def test_the_first_scheduler_leads_until_it_resigns(
    app: Sereno, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A NOTIFY announces that the leader resigns: the follower waits neither for its next poll nor for the lease.
    monkeypatch.setattr(module, "REST", 600.0)
    async with scheduling(app) as leader:
        await auntil(lambda: leader.leads)
        holder, fence = lease(connection)
        assert holder == leader.holder
        async with scheduling(app) as follower:
            await auntil(lambda: follower.rounds > 0)
            assert not follower.leads
            await leader.stop()
            await auntil(lambda: follower.leads)
            assert lease(connection) == (follower.holder, fence + 1)


async def test_an_expired_lease_is_taken_and_the_old_leader_notices(app: Sereno, connection: Connection) -> None:
    # Called directly: a running scheduler gets a NOTIFY that the clock moved, and may renew its lease first.
    first = Scheduler(app.url, app.settings)
    second = Scheduler(app.url, app.settings)
    try:
        await first.run_once()
        assert first.leads
        _, fence = lease(connection)
        await second.run_once()
        assert not second.leads
        advance(connection, LEASE + 1)
        await second.run_once()
        assert second.leads
        assert lease(connection) == (second.holder, fence + 1)
        await first.run_once()
        assert not first.leads
        # The old leader's later writes are fenced off.
        with line(app.url) as its_own:
            seen = do(
                its_own,
                leader_lease.due(
                    first.holder,
                    fence,
                    lease=LEASE,
                    rest=1,
                    floor=0,
                    ended=0,
                    everything=True,
                    last=leader_lease.LastTick(at=1, fires=99),
                ),
            )
        assert not seen.leads
        assert one(connection, "select tick_fires from sereno.leases") != 99
    finally:
        for each in (first, second):
            await each.stop()


async def test_a_clock_set_back_does_not_extend_a_dead_leaders_lease(app: Sereno, connection: Connection) -> None:
    dead = Scheduler(app.url, app.settings)
    await dead.run_once()
    assert dead.leads
    advance(connection, -3600)
    second = Scheduler(app.url, app.settings)
    await second.run_once()
    assert second.leads
    for each in (dead, second):
        await each.stop()


async def test_a_follower_helps_when_the_leader_is_stuck(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Minutes, so that a slow machine neither counts as overdue nor loses its lease.
    monkeypatch.setattr(module, "OVERDUE", 60.0)
    monkeypatch.setattr(module, "LEASE", 600.0)
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    stuck = Scheduler(app.url, app.settings)
    await stuck.run_once()
    assert stuck.leads
    helper = Scheduler(app.url, app.settings)
    advance(connection, 3601)
    connection.execute("update sereno.leases set until = sereno.now() + interval '10 minutes'")
    await helper.run_once()
    assert made(connection) == 0, "a follower does not help a leader that is only a moment late"
    advance(connection, 100)
    await helper.run_once()
    assert not helper.leads
    assert made(connection) == 1
    for each in (stuck, helper):
        await each.stop()


async def test_a_new_leader_retries_failed_maintenance_and_fires_meanwhile(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, zones) values ('scheduler', 'x', now(), now(), '2001a')"
    )
    advance(connection, 3601)
    scheduler = Scheduler(app.url, app.settings)
    run = scheduler._connection.run
    broken = True

    async def fails_once(operation: Any, *args: Any, **options: Any) -> Any:
        if broken and operation.__name__ in ("heal", "zoned"):
            operation.close()
            raise DatabaseUnavailable("cut")
        return await run(operation, *args, **options)

    monkeypatch.setattr(scheduler._connection, "run", fails_once)
    await scheduler.run_once()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            await scheduler.run_once()
    assert scheduler.leads
    assert made(connection) == 1
    broken = False
    await scheduler.run_once()
    assert one(connection, "select zones from sereno.leases") == VERSION
    await scheduler.stop()


async def test_a_long_replan_does_not_cost_a_new_leader_its_lease(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page at a time, between polls that renew the lease."""
    monkeypatch.setattr(replanner, "PAGE", 2)
    for number in range(7):
        app.schedules.upsert(f"k{number}", work.job("a"), Daily("03:00", tz="Europe/Riga"))
        fake_next(connection, f"k{number}", now(connection) + timedelta(hours=2))
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, zones) values ('scheduler', 'x', now(), now(), '2001a')"
    )
    scheduler = Scheduler(app.url, app.settings)
    await scheduler.run_once()
    assert scheduler.leads
    until_at = []
    while one(connection, "select zones from sereno.leases") != VERSION:
        await scheduler.run_once()
        until_at.append(one(connection, "select until from sereno.leases"))
    assert len(set(until_at)) >= 4
    assert one(connection, "select count(distinct next_run_at) from sereno.schedules") == 1
    await scheduler.stop()


# Zone data, healing


async def test_newer_zone_data_moves_only_what_depends_on_it(app: Sereno, work: Work, connection: Connection) -> None:
    riga, begins = "Europe/Riga", now(connection) + timedelta(days=30)
    app.schedules.upsert("daily", work.job("a"), Daily("03:00", tz=riga))
    app.schedules.upsert("steady", work.job("a"), Every("5h", tz=riga))
    app.schedules.upsert("due", work.job("a"), Daily("03:00", tz=riga))
    app.schedules.upsert("later", work.job("a"), Daily("03:00", tz=riga), starts_at=begins)
    app.schedules.upsert("spread", work.job("a"), Cron("0 3 * * *", tz=riga, spread="1h"))
    right = {row.key: row.next_run_at for row in app.schedules.list()}
    wrong = now(connection) + timedelta(hours=2, minutes=1)
    past = now(connection) - timedelta(minutes=1)
    for key in ("daily", "spread"):
        fake_next(connection, key, wrong)
    fake_next(connection, "due", past)
    fake_next(connection, "steady", wrong)
    async with scheduling(app, scheduler=True) as first:
        await auntil(lambda: one(connection, "select zones from sereno.leases") == VERSION)
        assert first.leads
        # It was planned with this version: nothing moved.
        assert app.schedules.get("daily").next_run_at == wrong
    connection.execute("update sereno.leases set zones = '2001a'")
    async with scheduling(app) as second:
        await auntil(lambda: second.leads)
        await auntil(lambda: made(connection, "due"))
        await auntil(lambda: one(connection, "select zones from sereno.leases") == VERSION)
    found = {row.key: row.next_run_at for row in app.schedules.list()}
    assert one(connection, "select zones from sereno.leases") == VERSION
    assert (found["daily"], found["spread"], found["later"]) == (right["daily"], right["spread"], right["later"])
    assert found["steady"] == wrong
    assert one(connection, "select planned_at from sereno.fires") == past


async def test_older_zone_data_moves_nothing(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("daily", work.job("a"), Daily("03:00", tz="Europe/Riga"))
    wrong = now(connection) + timedelta(hours=2, minutes=1)
    fake_next(connection, "daily", wrong)
    async with scheduling(app) as first:
        await auntil(lambda: first.leads)
    connection.execute("update sereno.leases set zones = '2999z'")
    async with scheduling(app) as second:
        await auntil(lambda: second.leads)
    assert app.schedules.get("daily").next_run_at == wrong
    assert one(connection, "select zones from sereno.leases") == "2999z"


async def test_a_schedule_whose_job_was_deleted_is_planned_again(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("end", work.job("a"), Every("1h", count_from="end"))
    app.schedules.upsert("waits", work.job("a"), Every("1h"), overlap="queue_one", max_fires=2)
    app.schedules.upsert("runs", work.job("a"), Every("1h", count_from="end"))
    for _ in range(2):
        advance(connection, 3601)
        app.schedules.tick()
    assert one(connection, "select count(*) from sereno.schedules where next_run_at is null and state = 'enabled'") == 3
    connection.execute(
        "delete from sereno.jobs where schedule_id in (select id from sereno.schedules where key <> 'runs')"
    )
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await auntil(lambda: app.schedules.get("end").next_run_at is not None)
        await auntil(lambda: app.schedules.get("waits").state == "finished")
    assert app.schedules.get("runs").next_run_at is None
    assert app.schedules.get("waits").fired == 2


@pytest.mark.slow
async def test_a_job_deleted_while_a_scheduler_leads_is_healed_too(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAL_EVERY", 0.2)
    app.schedules.upsert("end", work.job("a"), Every("1h", count_from="end"))
    app.schedules.upsert("held", work.job("a"), Every("1h"), overlap="queue_one")
    async with scheduling(app) as scheduler:
        for _ in range(2):
            advance(connection, 3601)
            scheduler.wake()
            await auntil(
                lambda: one(connection, "select count(*) from sereno.schedules where next_run_at <= sereno.now()") == 0
            )
        assert app.schedules.get("held").held_at is not None
        connection.execute("delete from sereno.jobs")
        await auntil(lambda: app.schedules.get("end").next_run_at is not None)
        await auntil(lambda: app.schedules.get("held").held_at is None)
