"""A year in seconds: the clock is moved, schedules tick, and the fires must equal those of a walk over the wall clock.

The walk knows no rules, offsets or caches: it reads zoneinfo every quarter of an hour and notes what the clock shows,
what it jumped over, and what it shows for a second time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import psycopg
import pytest

from sereno import Cron, Daily, Every, Sereno
from sereno.jobs.task_handle import Task
from sereno.schedules.client import Schedules
from sereno.schedules.rules.when import When
from sereno.schedules.ticker import Ticker
from tests.jobs.job_steps import do, line

START, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
# North and south, shifts of half an hour and of two hours, a change at midnight, and a zone without changes.
ZONES = (
    "America/Sao_Paulo",
    "America/Santiago",
    "Europe/Riga",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
)
AT_MIDNIGHT = ("America/Santiago", "Africa/Cairo")
# Steps per transaction.
STEPS = 50

Connection = psycopg.Connection[Any]
Matches = Callable[[datetime], bool]


@pytest.fixture
def work(app: Sereno) -> Task[[str], None]:
    @app.task
    def work(name: str) -> None: ...

    return work


class Quarter(NamedTuple):
    """A quarter of an hour: when, what the clock shows, whether it did so before, and what it has just jumped over."""

    at: datetime
    wall: datetime
    again: bool
    jumped: list[datetime]


@cache
def year(tz: str) -> list[Quarter]:
    zone = ZoneInfo(tz)
    found: list[Quarter] = []
    shown: set[datetime] = set()
    before = (START - QUARTER).astimezone(zone).replace(tzinfo=None)
    at = START
    while at < END:
        wall = at.astimezone(zone).replace(tzinfo=None)
        found.append(Quarter(at, wall, wall in shown, list(between(before, wall))))
        shown.add(wall)
        before = wall
        at += QUARTER
    return found


def walk(tz: str, matches: Matches, *, fixed: bool) -> Iterator[datetime]:
    """A fixed time fires once a day: on the first pass, or right after a gap. A rhythm fires whenever it is shown."""
    for at, wall, again, jumped in year(tz):
        if (fixed and any(map(matches, jumped))) or (matches(wall) and not (fixed and again)):
            yield at


def between(before: datetime, wall: datetime) -> Iterator[datetime]:
    for number in count(1):
        skipped = before + number * QUARTER
        if skipped >= wall:
            return
        yield skipped


def is_daily(hour: int, minute: int) -> Matches:
    return lambda wall: (wall.hour, wall.minute) == (hour, minute)


def is_first(wall: datetime) -> bool:
    return (wall.day, wall.hour, wall.minute) == (1, 9, 0)


def is_spring_and_autumn_sunday(wall: datetime) -> bool:
    """Sundays of the months with most clock changes."""
    return wall.month in (3, 4, 10, 11) and wall.weekday() == 6 and (wall.hour, wall.minute) == (2, 30)


def is_hourly(wall: datetime) -> bool:
    return wall.minute == 0


def set_clock(connection: Connection, at: datetime) -> None:
    connection.execute("update sereno.clock set ahead = %s - pg_catalog.now()", [at])


def begin(connection: Connection) -> None:
    connection.execute("insert into sereno.clock (ahead) values (interval '0')")
    # What is due at the first moment counts as future.
    set_clock(connection, START - timedelta(minutes=10))


def next_due(connection: Connection) -> datetime | None:
    row = connection.execute("select min(next_run_at) from sereno.schedules").fetchone()
    assert row is not None
    found: datetime | None = row[0]
    return found


def travel(url: str, step: Callable[[datetime], datetime]) -> int:
    """Move from one due instant to the next until the year is over. Return the number of passes."""
    ticker, passes = Ticker(), 0
    with line(url) as connection:
        while True:
            with connection.transaction():
                for _ in range(STEPS):
                    due = next_due(connection)
                    if due is None or due >= END:
                        return passes
                    set_clock(connection, step(due))
                    do(connection, ticker.tick())
                    passes += 1


def fired(connection: Connection) -> dict[str, list[datetime]]:
    """Return the instants that made a job, by schedule; each stands only for itself and has one job."""
    found: dict[str, list[datetime]] = defaultdict(list)
    rows = connection.execute(
        "select s.key, f.planned_at, f.reason, f.stands_for, count(j.id) from sereno.fires f "
        "join sereno.schedules s on s.id = f.schedule_id "
        "left join sereno.jobs j on j.schedule_id = f.schedule_id and j.planned_at = f.planned_at and j.id = f.job_id "
        "group by 1, 2, 3, 4 order by 2"
    ).fetchall()
    for key, planned_at, *rest in rows:
        assert rest == [None, 1, 1], (key, planned_at, rest)
        found[key].append(planned_at)
    assert len(rows) == connection.execute("select count(*) from sereno.jobs").fetchall()[0][0]
    return found


def compare(connection: Connection, expected: dict[str, list[datetime]]) -> None:
    found = fired(connection)
    assert set(found) == set(expected)
    for key, instants in expected.items():
        missing, extra = set(instants) - set(found[key]), set(found[key]) - set(instants)
        assert (sorted(missing)[:3], sorted(extra)[:3]) == ([], []), key
        assert len(found[key]) == len(instants)


def schedule(schedules: Schedules, job: Any, rules: dict[str, tuple[When, Matches]], **options: Any) -> None:
    schedules.upsert_many(
        [schedules.new(key, job, when, overlap="allow", **options) for key, (when, _) in rules.items()]
    )


@pytest.mark.slow
def test_a_year_of_daily_and_monthly_rules_fires_on_time(
    app: Sereno, work: Task[[str], None], connection: Connection, database_url: str
) -> None:
    rules: dict[str, tuple[When, Matches]] = {}
    for tz in ZONES:
        rules[f"daily {tz}"] = Daily("02:30", tz=tz), is_daily(2, 30)
        rules[f"monthly {tz}"] = Cron("0 9 1 * *", tz=tz), is_first
        rules[f"sundays {tz}"] = Cron("30 2 * 3,4,10,11 0", tz=tz), is_spring_and_autumn_sunday
    for tz in AT_MIDNIGHT:
        rules[f"midnight {tz}"] = Cron("0 0 * * *", tz=tz), is_daily(0, 0)
    begin(connection)
    schedule(app.schedules, work.job("a"), rules)
    passes = travel(database_url, lambda due: due)
    expected = {key: list(walk(key.split()[1], matches, fixed=True)) for key, (_, matches) in rules.items()}
    compare(connection, expected)
    assert passes > 2 * 365
    assert len(expected["daily Europe/Riga"]) == 365


@pytest.mark.slow
def test_a_year_of_hourly_rules_catches_up_a_day_late(
    app: Sereno, work: Task[[str], None], connection: Connection, database_url: str
) -> None:
    """Every hour is caught up, on days of twenty-three and of twenty-five hours too."""
    rules: dict[str, tuple[When, Matches]] = {}
    for tz in ("Europe/Riga", "Antarctica/Troll"):
        rules[f"cron {tz}"] = Cron("0 * * * *", tz=tz), is_hourly
    for tz in ("America/Santiago", "Australia/Lord_Howe"):
        rules[f"clock {tz}"] = Every("1h", count_from="clock", tz=tz), is_hourly
    begin(connection)
    schedule(app.schedules, work.job("a"), rules, missed="all", missed_window="48h")
    day = timedelta(hours=24, minutes=-1)
    travel(database_url, lambda due: min(due + day, END - timedelta(seconds=1)))
    expected = {key: list(walk(key.split()[1], matches, fixed=False)) for key, (_, matches) in rules.items()}
    compare(connection, expected)
    assert len(expected["cron Europe/Riga"]) == 365 * 24


@pytest.mark.slow
@pytest.mark.parametrize("month", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_hourly_rules_fire_on_time_around_clock_changes(
    app: Sereno, work: Task[[str], None], connection: Connection, database_url: str, month: int
) -> None:
    """Each hour on time, over the nights of the clock changes."""
    first, last = datetime(2027, month, 26, tzinfo=UTC), datetime(2027, month + 1, 6, tzinfo=UTC)
    rules: dict[str, tuple[When, Matches]] = {
        f"cron {tz}": (Cron("0 * * * *", tz=tz), is_hourly) for tz in ("Europe/Riga", "Australia/Lord_Howe")
    }
    connection.execute("insert into sereno.clock (ahead) values (interval '0')")
    set_clock(connection, first - timedelta(minutes=10))
    schedule(app.schedules, work.job("a"), rules, ends_at=last)
    travel(database_url, lambda due: due)
    expected = {
        key: [at for at in walk(key.split()[1], matches, fixed=False) if first <= at <= last]
        for key, (_, matches) in rules.items()
    }
    compare(connection, expected)
    assert connection.execute("select distinct state from sereno.schedules").fetchall() == [("finished",)]
