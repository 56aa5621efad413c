"""Once, at aligned intervals, and by cron in a time zone, also on days of clock changes."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sereno import Cron, Every, Once
from sereno.testing.kit import Kit
from triggers.app import app, close_day, refresh_stock, settle_month
from triggers.install import add_first_triggers
from triggers.tests.conftest import Ask

NOON = timedelta(hours=12)


def test_once_and_never_again(kit: Kit, ask: Ask) -> None:
    ask("insert into triggers.prices values ('2026-10-01', 48)")
    ask("insert into triggers.closed_days values ('norte', '2026-10-07', 1000, 0)")
    at = kit.now() + timedelta(hours=3)
    app.schedules.upsert("triggers.settle:2026-10", settle_month.job(month="2026-10-01"), Once(at))
    kit.drain()
    assert kit.jobs(settle_month) == []
    kit.travel("3h")
    kit.drain()
    kit.travel("30d")
    kit.drain()
    (only,) = kit.jobs(settle_month)
    assert ask("select month::text, cents, job from triggers.settlements") == [("2026-10-01", 48_000, only.id)]
    assert app.schedules.get("triggers.settle:2026-10").state == "finished"


def test_every_300_seconds_by_the_clock_without_drift(kit: Kit, ask: Ask) -> None:
    app.schedules.upsert("triggers.stock:norte", refresh_stock.job(plant="norte"), Every("300s", count_from="clock"))
    start = kit.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    for late in (2, 303, 617):
        kit.travel_to(start + timedelta(seconds=late))
        kit.drain()
    fires = [fire.planned_at for fire in reversed(app.schedules.history("triggers.stock:norte"))]
    assert fires[-3:] == [start, start + timedelta(minutes=5), start + timedelta(minutes=10)]
    assert ask("select as_of from triggers.stock") == [(fires[-1],)]


def test_an_outage_is_one_run_for_stock_and_one_a_night_for_the_books(kit: Kit, ask: Ask) -> None:
    """No scheduler ran for three days."""
    ask("insert into triggers.readings select 'norte', 'a', 10 from generate_series(1, 3)")
    asyncio.run(add_first_triggers(app))
    kit.travel("3d")
    kit.drain()
    assert len(kit.jobs(refresh_stock)) == 1
    assert len(kit.jobs(close_day)) == 3
    assert len(ask("select distinct day from triggers.closed_days")) == 3


def test_the_clock_goes_forward_and_back(kit: Kit, ask: Ask, all_is_well: Callable[[], None]) -> None:
    """Madrid skips 02:30 on the last Sunday of March, and has it twice on that of October."""
    year = kit.now().year + 1
    spring, autumn = last_sunday(year, 3), last_sunday(year, 10)
    for sunday in (spring, autumn):
        kit.travel_to(sunday - timedelta(days=2) + NOON)
        app.schedules.upsert(
            f"triggers.close:{sunday:%B}",
            close_day.job(plant="norte", night="{fire:%Y-%m-%d}"),
            Cron("30 2 * * *", tz="Europe/Madrid"),
            missed="all",
            overlap="allow",
        )
        for days in (-1, 0, 1):
            kit.travel_to(sunday + timedelta(days=days) + NOON)
            kit.drain()
        app.schedules.delete(f"triggers.close:{sunday:%B}")
    instants = [at for (at,) in ask("select planned_at from sereno.fires where job_id is not null order by 1")]
    assert instants == [
        spring - timedelta(days=1) + timedelta(hours=1, minutes=30),
        spring + timedelta(hours=1),  # 02:30 does not exist: at 03:00, the first moment after the gap
        spring + timedelta(days=1, minutes=30),
        autumn - timedelta(days=1) + timedelta(minutes=30),
        autumn + timedelta(minutes=30),  # 02:30 comes twice: the first one
        autumn + timedelta(days=1) + timedelta(hours=1, minutes=30),
    ]
    closed = [day for (day,) in ask("select day from triggers.closed_days order by day")]
    assert closed == [(sunday + timedelta(days=days)).date() for sunday in (spring, autumn) for days in (-2, -1, 0)]
    all_is_well()


def last_sunday(year: int, month: int) -> datetime:
    """Return the start in UTC of the last Sunday of a month of 31 days."""
    days = [datetime(year, month, day, tzinfo=UTC) for day in range(25, 32)]
    return next(day for day in days if day.strftime("%A") == "Sunday")
