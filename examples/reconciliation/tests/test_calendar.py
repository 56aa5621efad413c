"""Firing times: at the account's own hour, once a month, also across clock changes."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from psycopg.sql import SQL, Identifier
from reconciliation.accounts import Account, Connection, key_of, save, standing
from reconciliation.app import app

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

ZONES = [
    "America/Sao_Paulo",
    "America/New_York",
    "Europe/Riga",
    "Asia/Tokyo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Kiritimati",
    "Pacific/Honolulu",
]
HOURS = ["00:00", "01:30", "03:00", "23:59"]


def year_with_a_clock_change_on_the_first_of_november(after: datetime) -> int:
    """Return a year in which 1 November is a Sunday: in New York, 01:30 comes twice on the first day of the month."""
    return next(year for year in count(after.year + 1) if date(year, 11, 1).strftime("%A") == "Sunday")


async def test_a_thousand_accounts_fire_once_a_month_at_their_own_hour(kit: Kit, connection: Connection) -> None:
    year = year_with_a_clock_change_on_the_first_of_november(kit.now())
    accounts = [
        Account(f"a-{number:04}", f"m-{number}", ZONES[number % 8], HOURS[number // 8 % 4]) for number in range(1000)
    ]
    kit.travel_to(datetime(year, 10, 30, tzinfo=UTC))
    await save(connection, accounts)
    for _ in range(4 * 4):
        kit.travel("6h")
        await app.schedules.atick()

    jobs = kit.jobs("reconciliation.reconcile")
    made = Counter((job.tenant, job.args["turn"]) for job in jobs)
    assert set(made.values()) == {1}
    assert made.keys() == {(account.id, f"{year}-{month}") for account in accounts for month in (10, 11)}

    query = SQL("select tenant, planned_at from {} where args ->> 'turn' = %s")
    cursor = await connection.execute(query.format(Identifier(app.settings.schema, "jobs")), [f"{year}-11"])
    planned = dict(await cursor.fetchall())
    for account in accounts:
        at = planned[account.id].astimezone(ZoneInfo(account.zone))
        assert f"{at:%F %H:%M}" == f"{year}-11-01 {account.hour}"
        # Where it comes twice, the first time counts.
        assert at.fold == 0


async def test_a_missing_or_repeated_hour_fires_once_a_day(kit: Kit, connection: Connection) -> None:
    """Sales are fetched once for each day, also on the day on which Riga has no 03:30, or has it twice."""
    for month in (3, 10):
        sunday = _last_sunday(kit.now().year + 1, month)
        kit.travel_to(datetime(*sunday.timetuple()[:3], tzinfo=UTC) - timedelta(days=1, hours=12))
        await save(connection, [Account(f"riga-{month}", "m-1", "Europe/Riga", "03:30", ("sales_sync",))])
        for _ in range(3 * 24):
            kit.travel("1h")
            await app.schedules.atick()
        days = [job.args["today"] for job in kit.jobs("reconciliation.sales_sync") if job.tenant == f"riga-{month}"]
        around = [(sunday + timedelta(days=days)).isoformat() for days in (-1, 0, 1)]
        assert days == around
        kit.app.schedules.delete(key_of("sales_sync", f"riga-{month}"))


async def test_a_machine_that_was_off_loses_no_day_and_no_month(kit: Kit, connection: Connection) -> None:
    await save(connection, [Account("a-1", "m-1", runs=("reconcile", "sales_sync"))])
    first = (await standing("a-1"))["sales_sync"].next_run_at
    assert first is not None
    kit.travel_to(first + timedelta(days=4, hours=1))
    await app.schedules.atick()
    zone = ZoneInfo("America/Sao_Paulo")
    days = [(first.astimezone(zone).date() + timedelta(days=day)).isoformat() for day in range(5)]
    assert sorted(job.args["today"] for job in kit.jobs("reconciliation.sales_sync")) == days
    assert sorted(job.args["turn"] for job in kit.jobs("reconciliation.reconcile")) == sorted({day[:7] for day in days})


async def test_a_removed_job_type_is_not_fired(kit: Kit, connection: Connection) -> None:
    both = Account("a-1", "m-1", runs=("reconcile", "sales_sync"))
    await save(connection, [both])
    assert set(await standing("a-1")) == {"reconcile", "sales_sync"}
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",))])
    assert set(await standing("a-1")) == {"sales_sync"}
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",), enabled=False)])
    assert not await standing("a-1")
    kit.travel("2d")
    await app.schedules.atick()
    kit.assert_not_enqueued("reconciliation.sales_sync")
    await save(connection, [both])
    assert set(await standing("a-1")) == {"reconcile", "sales_sync"}


async def test_a_changed_hour_makes_no_second_job_on_the_same_day(kit: Kit, connection: Connection) -> None:
    await save(connection, [Account("a-1", "m-1", "Etc/UTC", "03:00", ("reconcile", "sales_sync"))])
    first = (await standing("a-1"))["sales_sync"].next_run_at
    assert first is not None
    kit.travel_to(first + timedelta(hours=1))
    await app.schedules.atick()
    await save(connection, [Account("a-1", "m-1", "Etc/UTC", "05:00", ("reconcile", "sales_sync"))])
    assert app.schedules.get(key_of("reconcile", "a-1")).rule["at"] == "05:00"
    kit.travel("2h")
    await app.schedules.atick()
    kit.assert_enqueued("reconciliation.reconcile", times=1)
    kit.assert_enqueued("reconciliation.sales_sync", times=1)


def _last_sunday(year: int, month: int) -> date:
    days = [date(year, month, day) for day in range(25, 32)]
    return next(day for day in days if day.strftime("%A") == "Sunday")
