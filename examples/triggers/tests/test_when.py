"""Once, at aligned intervals, and by cron in a time zone, also on days of clock changes."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from sereno import Cron, Every, Once
from sereno.testing.kit import Kit
from triggers.app import app
from triggers.install import add_first_triggers
from triggers.tests.conftest import RunSql, job_of, jobs_of

pytestmark = pytest.mark.slow

NOON = timedelta(hours=12)


@pytest.mark.slow
def test_a_once_trigger_fires_once(kit: Kit, run_sql: RunSql) -> None:
    run_sql("insert into triggers.prices values ('2026-10-01', 48)")
    run_sql("insert into triggers.closed_days values ('norte', '2026-10-07', 1000, 0)")
    at = kit.now() + timedelta(hours=3)
    app.schedules.upsert("triggers.settle:2026-10", job_of("settle_month", month="2026-10-01"), Once(at))
    kit.drain()
    assert jobs_of(kit, "settle_month") == []
    kit.travel("3h")
    kit.drain()
    kit.travel("30d")
    kit.drain()
    (only,) = jobs_of(kit, "settle_month")
    assert run_sql("select month::text, cents, job from triggers.settlements") == [("2026-10-01", 48_000, only.id)]
    assert app.schedules.get("triggers.settle:2026-10").state == "finished"


def test_an_interval_of_300_seconds_is_aligned_to_the_clock(kit: Kit, run_sql: RunSql) -> None:
    app.schedules.upsert(
        "triggers.stock:norte", job_of("refresh_stock", plant="norte"), Every("300s", count_from="clock")
    )
    start = kit.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    for late in (2, 303, 617):
        kit.travel_to(start + timedelta(seconds=late))
        kit.drain()
    fires = [fire.planned_at for fire in reversed(app.schedules.history("triggers.stock:norte"))]
    assert fires[-3:] == [start, start + timedelta(minutes=5), start + timedelta(minutes=10)]
    assert run_sql("select as_of from triggers.stock") == [(fires[-1],)]


def test_an_outage_causes_one_run_for_stock_and_one_per_night_for_the_books(kit: Kit, run_sql: RunSql) -> None:
    """No scheduler ran for three days."""
    run_sql("insert into triggers.readings select 'norte', 'a', 10 from generate_series(1, 3)")
    asyncio.run(add_first_triggers(app))
    kit.travel("3d")
    kit.drain()
    assert len(jobs_of(kit, "refresh_stock")) == 1
    assert len(jobs_of(kit, "close_day")) == 3
    assert len(run_sql("select distinct day from triggers.closed_days")) == 3


def test_a_nightly_trigger_fires_once_across_clock_changes(
    kit: Kit, run_sql: RunSql, assert_verified: Callable[[], None]
) -> None:
    """Madrid skips 02:30 on the last Sunday of March, and has it twice on that of October."""
    year = kit.now().year + 1
    spring, autumn = last_sunday(year, 3), last_sunday(year, 10)
    for sunday in (spring, autumn):
        kit.travel_to(sunday - timedelta(days=2) + NOON)
        app.schedules.upsert(
            f"triggers.close:{sunday:%B}",
            job_of("close_day", plant="norte", night="{fire:%Y-%m-%d}"),
            Cron("30 2 * * *", tz="Europe/Madrid"),
            missed="all",
            overlap="allow",
        )
        for days in (-1, 0, 1):
            kit.travel_to(sunday + timedelta(days=days) + NOON)
            kit.drain()
        app.schedules.delete(f"triggers.close:{sunday:%B}")
    instants = [at for (at,) in run_sql("select planned_at from sereno.fires where job_id is not null order by 1")]
    assert instants == [
        spring - timedelta(days=1) + timedelta(hours=1, minutes=30),
        spring + timedelta(hours=1),  # 02:30 does not exist: at 03:00, the first moment after the gap
        spring + timedelta(days=1, minutes=30),
        autumn - timedelta(days=1) + timedelta(minutes=30),
        autumn + timedelta(minutes=30),  # 02:30 comes twice: the first one
        autumn + timedelta(days=1) + timedelta(hours=1, minutes=30),
    ]
    closed = [day for (day,) in run_sql("select day from triggers.closed_days order by day")]
    assert closed == [(sunday + timedelta(days=days)).date() for sunday in (spring, autumn) for days in (-2, -1, 0)]
    assert_verified()


def last_sunday(year: int, month: int) -> datetime:
    """Return the start in UTC of the last Sunday of a month of 31 days."""
    days = [datetime(year, month, day, tzinfo=UTC) for day in range(25, 32)]
    return next(day for day in days if day.strftime("%A") == "Sunday")
