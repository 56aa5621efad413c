"""APScheduler: jobs of its real job store are read without executing anything, and fire when its own triggers fire."""

import base64
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.pool import NullPool

from sereno import Sereno
from sereno.schedules.importers import (
    ImportedSchedule,
    apscheduler,
    from_object,
    read,
)
from sereno.schedules.importers.draft import ScheduleDraft, finished
from tests.facts import advance, one
from tests.schedules.importers import old_states
from tests.schedules.importers.fires import fires
from tests.schedules.importers.jobs import send

NOW = datetime.now(UTC)
# Far from any clock change.
START = datetime(NOW.year + 1, 5, 3, 6, 0, 30, 500000, tzinfo=UTC)
RIGA = ZoneInfo("Europe/Riga")

Add = Callable[..., ImportedSchedule]


@pytest.fixture
def scheduler(database_url: str) -> Iterator[BackgroundScheduler]:
    """A real scheduler with a real store, paused so that nothing is ever run."""
    url = database_url.replace("postgresql:", "postgresql+psycopg:")
    store = SQLAlchemyJobStore(url, engine_options={"poolclass": NullPool})
    made = BackgroundScheduler(jobstores={"default": store}, timezone=UTC)
    made.start(paused=True)
    yield made
    made.shutdown()


@pytest.fixture
def add(scheduler: BackgroundScheduler, connection: psycopg.Connection) -> Add:
    """Replaces the jobs by one and reads it back."""

    def added(trigger: BaseTrigger, **options: Any) -> ImportedSchedule:
        scheduler.remove_all_jobs()
        scheduler.add_job(send, trigger, **({"id": "a job"} | options))
        (found,) = read("apscheduler", connection)
        return found

    return added


def fired(trigger: BaseTrigger, after: datetime, n: int = 20) -> list[datetime]:
    """Return the fire times according to APScheduler itself."""
    found: list[datetime] = []
    at = trigger.get_next_fire_time(None, after)
    while at is not None and len(found) < n:
        found.append(at.astimezone(UTC))
        at = trigger.get_next_fire_time(at, at)
    return found


CRON_TRIGGERS: list[tuple[dict[str, Any], str]] = [
    ({"hour": 9, "minute": 30}, "30 9 * * *"),
    ({"minute": "*/15"}, "*/15 * * * *"),
    ({"minute": "5-59/20"}, "5,25,45 * * * *"),
    ({"minute": "10/25"}, "10,35 * * * *"),
    ({"second": "*/10"}, "*/10 * * * * *"),
    ({"second": 30, "minute": 5}, "30 5 * * * *"),
    ({"hour": "8-17", "day_of_week": "mon-fri"}, "0 8-17 * * MON-FRI"),
    ({"day_of_week": 0, "hour": 9}, "0 9 * * MON"),
    ({"day_of_week": 6, "hour": 9}, "0 9 * * SUN"),
    ({"day_of_week": "sat,sun", "hour": 9}, "0 9 * * SUN,SAT"),
    ({"day_of_week": "1-5/2", "hour": 9}, "0 9 * * TUE,THU,SAT"),
    ({"day": "1,15", "hour": 12}, "0 12 1,15 * *"),
    ({"day": "*/10", "hour": 12}, "0 12 */10 * *"),
    ({"day": "last", "hour": 23}, "0 23 L * *"),
    ({"day": "2nd fri", "hour": 9}, "0 9 * * FRI#2"),
    ({"day": "last fri", "hour": 9}, "0 9 * * 5L"),
    ({"day": "last sun,1st mon", "hour": 9}, "0 9 * * 0L,MON#1"),
    ({"day": "5,last,3rd wed", "hour": 9}, "0 9 5,L * WED#3"),
    ({"day": "1-7", "day_of_week": "mon", "hour": 9}, "0 9 * * MON#1"),
    ({"day": "1-31", "day_of_week": "mon", "hour": 9}, "0 9 * * MON"),
    ({"day": "1-10", "day_of_week": "tue", "hour": 9}, "0 9 */31,2-10 * TUE"),
    ({"month": "jan-mar,jul", "day": 2, "hour": 12}, "0 12 2 1-3,7 *"),
    ({"month": "*/6"}, "0 0 1 */6 *"),
]


@pytest.mark.slow
def test_an_imported_cron_trigger_fires_at_the_same_times(add: Add, subtests: pytest.Subtests) -> None:
    for fields, expression in CRON_TRIGGERS:
        for zone in [UTC, RIGA, ZoneInfo("America/Sao_Paulo")]:
            with subtests.test(fields=fields, zone=str(zone)):
                trigger = CronTrigger(**fields, timezone=zone)
                found = add(trigger)
                assert found.schedule is not None, found.problem
                assert found.schedule["when"]["expression"] == expression
                assert fires(found, START) == fired(trigger, START)


def part(low: int, high: int) -> st.SearchStrategy[str]:
    """One part of a field: *, */2, 5, 5-7, 5-9/2."""
    numbers = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    ranges = numbers.map(lambda pair: f"{pair[0]}-{pair[1]}")
    steps = st.integers(1, max(1, (high - low) // 3))
    stepped = st.tuples(numbers, steps).map(
        lambda both: f"{both[0][0]}-{both[0][1]}" + (f"/{both[1]}" if both[1] <= both[0][1] - both[0][0] else "")
    )
    return st.one_of(
        st.just("*"), steps.map(lambda step: f"*/{step}"), numbers.map(lambda pair: str(pair[0])), ranges, stepped
    )


def several(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(part(low, high), min_size=1, max_size=3).map(",".join)


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "second": several(0, 59),
            "minute": several(0, 59),
            "hour": several(0, 23),
            "day": several(1, 28),
            "month": several(1, 12),
            "day_of_week": several(0, 6),
        },
    )
)
def test_any_cron_trigger_fires_at_the_same_times_or_is_refused(fields: dict[str, str]) -> None:
    trigger = CronTrigger(**fields, timezone=UTC)
    found = read_state(state_of(trigger))
    if found.schedule is None:
        assert "express that" in str(found.problem)
    else:
        assert fires(found, START, 8) == fired(trigger, START, 8)


def state_of(trigger: Any, **others: Any) -> dict[str, Any]:
    usual = {
        "version": 1,
        "id": "a job",
        "func": "shop:send",
        "executor": "default",
        "args": (),
        "kwargs": {},
        "name": "send",
        "misfire_grace_time": None,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": None,
    }
    return usual | {"trigger": trigger} | others


def read_state(state: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> ImportedSchedule:
    return read_bytes(pickle.dumps(state, protocol))


def read_bytes(raw: bytes) -> ImportedSchedule:
    """Read as the importer does, without a database."""
    row = {"id": "a job", "state": base64.b64encode(raw).decode(), "size": len(raw)}
    return finished(ScheduleDraft("apscheduler:a job", True, ""), lambda draft: apscheduler._fill(row, NOW, draft), NOW)


def test_every_protocol_of_a_pickle_is_read(subtests: pytest.Subtests) -> None:
    for trigger in [
        CronTrigger(
            day="2nd fri,last", hour="*/2", timezone=RIGA, start_date=START, end_date=START + timedelta(days=90)
        ),
        IntervalTrigger(hours=5, timezone=RIGA, start_date=START, end_date=START + timedelta(days=90)),
        DateTrigger(START),
    ]:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with subtests.test(trigger=str(trigger), protocol=protocol):
                found = read_state(state_of(trigger, kwargs={"to": "ü", "n": [1, 2.5, None, True]}), protocol)
                assert found.schedule is not None, found.problem
                assert found.schedule["args"] == {"to": "ü", "n": [1, 2.5, None, True]}
                assert fires(found, NOW) == fired(trigger, NOW)


@pytest.mark.slow
def test_an_interval_continues_from_the_next_planned_run(add: Add) -> None:
    planned = START + timedelta(minutes=7)
    trigger = IntervalTrigger(minutes=90, timezone=RIGA, start_date=START - timedelta(days=500))
    found = add(trigger, next_run_time=planned)
    assert found.schedule is not None
    assert found.schedule["when"] == {"kind": "every", "interval": 5400}
    assert fires(found, NOW, 3) == [planned + timedelta(minutes=90 * number) for number in range(3)]


def test_an_interval_begins_at_its_start_date(add: Add) -> None:
    trigger = IntervalTrigger(seconds=7, timezone=RIGA, start_date=START, end_date=START + timedelta(seconds=30))
    assert fires(add(trigger), NOW) == fired(trigger, NOW)
    assert len(fired(trigger, NOW)) == 5


@pytest.mark.slow
def test_a_paused_interval_counts_from_its_start_date(add: Add) -> None:
    trigger = IntervalTrigger(hours=5, timezone=UTC, start_date=NOW - timedelta(hours=12))
    found = add(trigger, next_run_time=None)
    assert not found.enabled
    assert str(found.note).startswith("was paused in APScheduler; a run that is more than 1 s late")
    assert fires(found, NOW, 5) == fired(trigger, NOW, 5)


def test_a_date_fires_once_also_when_rescheduled(add: Add, scheduler: BackgroundScheduler) -> None:
    assert fires(add(DateTrigger(START, timezone=RIGA), id="once"), NOW) == [START]
    scheduler.modify_job("once", next_run_time=START + timedelta(hours=1))
    scheduler.pause()
    (found,) = read_all(scheduler)
    assert fires(found, NOW) == [START + timedelta(hours=1)]


def read_all(scheduler: BackgroundScheduler) -> list[ImportedSchedule]:
    engine = scheduler._jobstores["default"].engine
    with engine.connect() as connection:
        return read("apscheduler", connection.connection.driver_connection)


def test_the_options_of_a_job_are_imported(add: Add) -> None:
    trigger = CronTrigger(hour=9, timezone=RIGA, start_date=START, end_date=START + timedelta(days=9), jitter=120)
    found = add(
        trigger,
        kwargs={"to": "Ada", "at": START, "deep": {"a": (1, 2)}},
        misfire_grace_time=3600,
        coalesce=True,
        max_instances=1,
        executor="default",
    )
    assert (found.key, found.problem, found.enabled) == ("apscheduler:a job", None, True)
    assert found.schedule == {
        "key": "apscheduler:a job",
        "task": "tests.schedules.importers.jobs:send",
        "args": {"to": "Ada", "at": START.isoformat(), "deep": {"a": [1, 2]}},
        "when": {"kind": "cron", "expression": "0 9 * * *", "tz": "Europe/Riga", "spread": 120},
        "starts_at": START.isoformat(),
        "ends_at": (START + timedelta(days=9)).isoformat(),
        "overlap": "skip",
        "missed": "latest",
        "max_lateness": 3600,
    }
    assert "becomes a spread" in str(found.note)


POLICIES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"overlap": "skip", "missed": "latest", "max_lateness": 1}, "more than 1 s late is skipped"),
    (
        {"misfire_grace_time": None, "coalesce": False, "max_instances": 3},
        {"overlap": "allow", "missed": "all"},
        "at most 3 of its runs overlap there",
    ),
    (
        {"misfire_grace_time": 172800, "coalesce": False},
        {"overlap": "allow", "missed": "all", "max_lateness": 172800, "missed_window": 172800},
        "here they run in parallel",
    ),
    (
        {"misfire_grace_time": 10**9, "max_instances": 2, "executor": "processes"},
        {"overlap": "allow", "missed": "latest"},
        "its executor 'processes' is not imported",
    ),
]


@pytest.mark.slow
def test_misfire_and_instance_options_become_policies(
    add: Add, scheduler: BackgroundScheduler, subtests: pytest.Subtests
) -> None:
    for options, fields, noted in POLICIES:
        with subtests.test(options=options):
            scheduler._job_defaults["coalesce"] = True
            found = add(CronTrigger(hour=9, timezone=UTC), **options)
            assert found.schedule is not None, found.problem
            names = ("overlap", "missed", "max_lateness", "missed_window")
            assert {name: found.schedule[name] for name in names if name in found.schedule} == fields
            assert noted in str(found.note)


@pytest.mark.slow
def test_a_trigger_without_an_equivalent_is_refused_with_a_reason(add: Add, subtests: pytest.Subtests) -> None:
    for trigger, text in [
        (CronTrigger(year="2030", hour=9, timezone=UTC), "its trigger uses the field year"),
        (CronTrigger(week="*/2", hour=9, timezone=UTC), "its trigger uses the field week"),
        (CronTrigger(day="13", day_of_week="fri", timezone=UTC), "days 13 of a month that are also FRI"),
        (CronTrigger(day="last", day_of_week="fri", timezone=UTC), "also a certain weekday"),
        (
            CronTrigger(hour=9, timezone=timezone(timedelta(hours=5, minutes=30))),
            "its time zone has no name, only the offset 5:30:00 from UTC",
        ),
        (AndTrigger([CronTrigger(hour=9, timezone=UTC)]), "it fires when several triggers agree"),
        (OrTrigger([CronTrigger(hour=9, timezone=UTC)]), "it has several triggers"),
        (CalendarIntervalTrigger(months=1, timezone=UTC), "it counts days, weeks or months"),
    ]:
        with subtests.test(trigger=str(trigger)):
            found = add(trigger)
            assert found.schedule is None
            assert text in str(found.problem)


NOT_IMPORTABLE: list[tuple[dict[str, Any], str]] = [
    ({"args": ("Ada",)}, "it has positional arguments"),
    ({"kwargs": {"n": {1, 2}}}, "which is not supported"),
    ({"kwargs": {"n": b"raw"}}, "its arguments contain a bytes, which has no JSON form"),
    ({"kwargs": {"n": date(2027, 1, 1)}}, "its arguments contain a datetime.date, which has no JSON form"),
    ({"kwargs": {"n": {1: 2}}}, "keys that are not text"),
    ({"kwargs": {"n": 10**30}}, "its arguments contain a int, which has no JSON form"),
    ({"kwargs": {"n": float("nan")}}, "its arguments contain a float, which has no JSON form"),
    ({"kwargs": {"n": "{date}"}}, "which a schedule replaces"),
    ({"kwargs": []}, "is not one of APScheduler 3"),
    ({"version": 2}, "is not one of APScheduler 3"),
    ({"trigger": None}, "it has no trigger"),
    ({"func": None}, "it needs a task"),
    ({"max_instances": "many"}, "it cannot be read: TypeError"),
    ({"next_run_time": START.replace(tzinfo=None)}, "one of its dates has no time zone"),
    ({"trigger": DateTrigger(NOW - timedelta(days=1))}, "it would never fire again"),
]


def test_a_job_that_cannot_be_imported_is_refused_with_a_reason(subtests: pytest.Subtests) -> None:
    for others, text in NOT_IMPORTABLE:
        with subtests.test(others=others):
            found = read_state(state_of(CronTrigger(hour=9, timezone=UTC)) | others)
            assert found.schedule is None
            assert text in str(found.problem)


def test_a_whole_hour_offset_becomes_a_named_zone(subtests: pytest.Subtests) -> None:
    for hours, name in [(0, "UTC"), (2, "Etc/GMT-2"), (-3, "Etc/GMT+3")]:
        with subtests.test(hours=hours, name=name):
            trigger = CronTrigger(hour=9, timezone=timezone(timedelta(hours=hours)))
            found = read_state(state_of(trigger))
            assert found.schedule is not None
            assert found.schedule["when"].get("tz", "UTC") == name
            assert fires(found, START) == fired(trigger, START)


def test_job_states_of_older_releases_are_read(subtests: pytest.Subtests) -> None:
    for raw, when, first in [
        (
            old_states.CRON_3_6,
            {"kind": "cron", "expression": "0 9 * * FRI#2", "tz": "Europe/Berlin"},
            datetime(2090, 1, 13, 8, tzinfo=UTC),
        ),
        (old_states.INTERVAL_3_6, {"kind": "every", "interval": 86400}, datetime(2090, 7, 1, 12, tzinfo=UTC)),
        (
            old_states.DATE_3_10,
            {"kind": "once", "at": "2090-07-01T10:00:00Z"},
            datetime(2090, 7, 1, 10, tzinfo=UTC),
        ),
        (old_states.LOCAL_3_10, {"kind": "cron", "expression": "30 9 * * *", "tz": "Europe/Riga"}, None),
    ]:
        with subtests.test(when=when):
            found = read_bytes(raw)
            assert found.schedule is not None, found.problem
            assert (found.schedule["task"], found.schedule["args"]) == ("logging:info", {"msg": "x"})
            assert found.schedule["when"] == when
            assert first is None or fires(found, NOW, 1) == [first]


def test_a_clock_change_is_noted(add: Add) -> None:
    note = add(CronTrigger(hour=3, minute=30, timezone=RIGA)).note
    assert "the clock of Europe/Riga changes on" in str(note)
    assert "here it runs right after the gap" in str(note)
    assert "here it runs on the first" in str(note)


def test_an_imported_job_fires_once_a_day(add: Add, app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(name="send")
    def task(to: str) -> None: ...

    found = add(CronTrigger(hour=9, timezone=RIGA), kwargs={"to": "Ada"}, misfire_grace_time=None)
    assert found.schedule is not None
    app.schedules.upsert_many([from_object(found.schedule | {"task": "send"}, app.new_job)])
    advance(connection, 86401)
    assert app.schedules.tick().fires == 1
    assert one(connection, "select args ->> 'to' from sereno.jobs") == "Ada"
