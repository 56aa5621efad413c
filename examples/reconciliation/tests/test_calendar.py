"""Firing times: at the account's own hour, once a period, also across clock changes."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from reconciliation import settings
from reconciliation.accounts import Account, key_of, save, standing
from reconciliation.app import app
from reconciliation.database import Connection
from reconciliation.tests.steps import command, rows, run_now, run_plans

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


async def test_a_thousand_accounts_fire_once_a_night_at_their_own_hour(kit: Kit, connection: Connection) -> None:
    year = year_with_a_clock_change_on_the_first_of_november(kit.now())
    accounts = [
        Account(f"a-{number:04}", f"m-{number}", ZONES[number % 8], HOURS[number // 8 % 4]) for number in range(1000)
    ]
    kit.travel_to(datetime(year, 10, 30, tzinfo=UTC))
    await save(connection, accounts)
    for _ in range(4 * 4):
        kit.travel("6h")
        await app.schedules.atick()
    fired = await rows(
        connection,
        "select tenant, planned_at from sereno.jobs_v1 where task = 'reconciliation.plan' and args ->> 'night' = %s",
        f"{year}-11-01",
    )
    planned = dict(fired)
    assert len(fired) == len(planned) == 1000
    for account in accounts:
        at = planned[account.id].astimezone(ZoneInfo(account.zone))
        assert f"{at:%F %H:%M}" == f"{year}-11-01 {account.hour}"
        # Where it comes twice, the first time counts.
        assert at.fold == 0


@pytest.mark.parametrize("mode", ["running", "ended"])
async def test_a_month_is_fetched_daily_or_when_it_has_ended(
    kit: Kit, connection: Connection, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(settings, "MONTH", mode)
    year = kit.now().year + 1
    kit.travel_to(datetime(year, 10, 30, tzinfo=UTC))
    accounts = [Account(f"a-{number}", f"m-{number}", ZONES[number % 8], HOURS[number // 8]) for number in range(32)]
    await save(connection, accounts)
    for _ in range(4):
        kit.travel("24h")
        await run_plans(kit)
    query = "select tenant, args ->> 'competence', unique_key from sereno.jobs_v1 where task = %s"
    made = await rows(connection, query, "reconciliation.reconcile")
    if mode == "ended":
        wanted = {(account.id, f"{year}-{month:02}") for account in accounts for month in (9, 10)}
        assert sorted((tenant, competence) for tenant, competence, _ in made) == sorted(wanted)
        return
    nights = {(tenant, date.fromisoformat(key[-10:])): competence for tenant, competence, key in made}
    # One run a night, and on the first of November still October, which is complete by then.
    assert len(nights) == len(made)
    assert set(Counter(tenant for tenant, _ in nights).values()) <= {3, 4}
    assert all(competence == f"{night - timedelta(days=1):%Y-%m}" for (_, night), competence in nights.items())
    assert {nights[account.id, date(year, 11, 1)] for account in accounts} == {f"{year}-10"}


async def test_a_missing_or_repeated_hour_fires_once_a_day(kit: Kit, connection: Connection) -> None:
    """Sales are fetched once for each day, also on the day on which Riga has no 03:30, or has it twice."""
    for month in (3, 10):
        sunday = _last_sunday(kit.now().year + 1, month)
        kit.travel_to(datetime(*sunday.timetuple()[:3], tzinfo=UTC) - timedelta(days=1, hours=12))
        await save(connection, [Account(f"riga-{month}", "m-1", "Europe/Riga", "03:30", ("sales_sync",))])
        for _ in range(3 * 24):
            kit.travel("1h")
            await app.schedules.atick()
        nights = [job.args["night"] for job in kit.jobs("reconciliation.plan") if job.tenant == f"riga-{month}"]
        assert nights == [(sunday + timedelta(days=days)).isoformat() for days in (-1, 0, 1)]
        await run_plans(kit)
        days = [job.args["day"] for job in kit.jobs("reconciliation.sales_sync") if job.tenant == f"riga-{month}"]
        assert sorted(days) == [(sunday + timedelta(days=days)).isoformat() for days in (-2, -1, 0)]
        kit.app.schedules.delete(key_of("sales_sync", f"riga-{month}"))


async def test_a_machine_that_was_off_loses_no_day_and_no_month(kit: Kit, connection: Connection) -> None:
    """A missed night fetches its sales; its month, which a later night fetches too, is fetched once."""
    year = kit.now().year + 1
    kit.travel_to(datetime(year, 10, 29, 12, tzinfo=UTC))
    await save(connection, [Account("a-1", "m-1", runs=("reconcile", "sales_sync"))])
    kit.travel_to(datetime(year, 11, 3, 12, tzinfo=UTC))
    await run_plans(kit)
    # The nights of 30 October to 3 November.
    days = [f"{year}-10-29", f"{year}-10-30", f"{year}-10-31", f"{year}-11-01", f"{year}-11-02"]
    assert sorted(job.args["day"] for job in kit.jobs("reconciliation.sales_sync")) == days
    found = [(job.args["competence"], job.args["source"]) for job in kit.jobs("reconciliation.reconcile")]
    assert sorted(found) == [(f"{year}-10", "scheduler"), (f"{year}-11", "scheduler")]
    results = "select args ->> 'night', result ->> 'enqueued' from sereno.jobs_v1 where args ->> 'job_type' = %s"
    assert dict(await rows(connection, results, "reconcile")) == {
        f"{year}-10-30": "0",
        f"{year}-10-31": "0",
        f"{year}-11-01": "1",
        f"{year}-11-02": "0",
        f"{year}-11-03": "1",
    }


async def test_a_run_by_hand_is_recorded_as_such(kit: Kit, connection: Connection) -> None:
    """Also of a period that has been run, but one at a time; each run has a trace of its own."""
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",))])
    await run_now(kit, connection, "a-1", name="sales_sync")
    for _ in range(2):
        await app.schedules.arun(key_of("sales_sync", "a-1"))
    await run_plans(kit)
    told = await command("run", "a-1", "2026-10")
    (by_command,) = kit.jobs("reconciliation.reconcile")
    assert told == f"run {by_command.id}: sereno job show {by_command.id}\n"
    assert (by_command.args["competence"], by_command.args["source"]) == ("2026-10", "manual")
    jobs = kit.jobs("reconciliation.sales_sync")
    assert [job.args["source"] for job in jobs] == ["scheduler", "manual"]
    traces = {job.trace for job in (*jobs, by_command)}
    assert len(traces) == 3
    assert all(str(UUID(trace)) == trace for trace in traces)


async def test_a_removed_job_type_is_not_fired(kit: Kit, connection: Connection) -> None:
    both = Account("a-1", "m-1", runs=("reconcile", "sales_sync"))
    await save(connection, [both])
    assert set(await standing(connection, "a-1")) == {"reconcile", "sales_sync"}
    await app.schedules.arun(key_of("reconcile", "a-1"))
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",))])
    assert set(await standing(connection, "a-1")) == {"sales_sync"}
    await save(connection, [Account("a-1", "m-1", runs=("sales_sync",), enabled=False)])
    assert not await standing(connection, "a-1")
    kit.travel("2d")
    # The plan that was made before finds that the account has changed.
    await run_plans(kit)
    kit.assert_not_enqueued("reconciliation.reconcile")
    kit.assert_not_enqueued("reconciliation.sales_sync")
    await save(connection, [both])
    assert set(await standing(connection, "a-1")) == {"reconcile", "sales_sync"}


async def test_a_changed_hour_makes_no_second_job_on_the_same_day(kit: Kit, connection: Connection) -> None:
    await save(connection, [Account("a-1", "m-1", "Etc/UTC", "03:00", ("reconcile", "sales_sync"))])
    first = (await standing(connection, "a-1"))["sales_sync"].next_run_at
    assert first is not None
    kit.travel_to(first + timedelta(hours=1))
    await run_plans(kit)
    await save(connection, [Account("a-1", "m-1", "Etc/UTC", "05:00", ("reconcile", "sales_sync"))])
    assert app.schedules.get(key_of("reconcile", "a-1")).rule["at"] == "05:00"
    kit.travel("2h")
    await run_plans(kit)
    kit.assert_enqueued("reconciliation.plan", times=4)
    kit.assert_enqueued("reconciliation.reconcile", times=1)
    kit.assert_enqueued("reconciliation.sales_sync", times=1)


async def test_accounts_come_from_a_file(kit: Kit, connection: Connection, tmp_path: Path) -> None:
    """Columns that are left out, or empty, have their defaults; the command may be repeated."""
    file = tmp_path / "accounts.csv"
    file.write_text("id;merchant;hour;runs;enabled\na-1;m-1;;;\na-2;m-2;05:10;reconcile sales_sync;yes\na-3;m-3;;;no\n")
    for _ in range(2):
        await command("prepare", str(file))
    assert app.schedules.get(key_of("reconcile", "a-1")).rule["at"] == "03:00"
    assert app.schedules.get(key_of("sales_sync", "a-2")).rule["at"] == "05:10"
    assert set(await standing(connection, "a-2")) == {"reconcile", "sales_sync"}
    assert not await standing(connection, "a-3")


async def test_schedules_follow_rows_that_are_written_with_sql(kit: Kit, connection: Connection) -> None:
    """As the team of the original design edits its table; a row that is wrong keeps no other from running."""
    await connection.execute(
        "insert into reconciliation.accounts (id, merchant, zone, hour) "
        "values ('a-1', 'm-1', 'Europe/Riga', '04:30'), ('a-2', 'm-2', 'Europe/Nowhere', '04:30')"
    )
    await kit.adrain()
    kit.travel("1m")
    await kit.adrain()
    rule = app.schedules.get(key_of("reconcile", "a-1")).rule
    assert (rule["at"], rule["tz"]) == ("04:30", "Europe/Riga")
    assert not await standing(connection, "a-2")
    assert await rows(
        connection, "select context ->> 'account_id' from sereno.logs where event = 'reconciliation.invalid_account'"
    ) == [("a-2",)]
    # `updated_at` is kept by a trigger, for changes only.
    times = "select created_at = updated_at, updated_at from reconciliation.accounts where id = 'a-1'"
    [(is_unchanged, before)] = await rows(connection, times)
    await connection.execute("update reconciliation.accounts set hour = '04:30' where id = 'a-1'")
    assert is_unchanged
    assert await rows(connection, times) == [(True, before)]
    await connection.execute(
        "update reconciliation.accounts set hour = '05:30', runs = '{sales_sync}' where id = 'a-1'"
    )
    await connection.execute("delete from reconciliation.accounts where id = 'a-2'")
    [(is_unchanged, after)] = await rows(connection, times)
    assert not is_unchanged
    assert after > before
    kit.travel("2m")
    await kit.adrain()
    assert app.schedules.get(key_of("sales_sync", "a-1")).rule["at"] == "05:30"
    assert set(await standing(connection, "a-1")) == {"sales_sync"}


def _last_sunday(year: int, month: int) -> date:
    days = [date(year, month, day) for day in range(25, 32)]
    return next(day for day in days if day.strftime("%A") == "Sunday")
