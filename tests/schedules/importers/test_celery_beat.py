"""django-celery-beat: rows of its tables become schedules that fire at the same times."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.errors import ConfigurationError
from sereno.schedules.importers import ImportedSchedule, from_object, read
from tests.facts import advance, one
from tests.schedules.importers.celery_tables import TABLES, USUAL, crontab, insert, interval
from tests.schedules.importers.fires import fires

NOW = datetime.now(UTC)
# Far from any clock change.
START = datetime(NOW.year + 1, 5, 3, 6, 0, 30, tzinfo=UTC)
EVERY = range(1, 32)
EVERY_DAY = range(7)


@pytest.fixture
def beat(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute(TABLES)
    return connection


def task(connection: psycopg.Connection, **values: Any) -> ImportedSchedule:
    """Replace the periodic tasks by one. Return it as it is imported."""
    connection.execute("delete from django_celery_beat_periodictask")
    insert(connection, "periodictask", USUAL | values)
    (found,) = read("celery-beat", connection)
    return found


def model(minutes: set[int], hours: set[int], month_days: Any, months: Any, weekdays: Any) -> list[datetime]:
    """Check every minute; all five fields must match, as Celery reads a crontab."""
    at = START.replace(second=0)

    def matches(at: datetime) -> bool:
        return (
            at.minute in minutes
            and at.hour in hours
            and at.day in month_days
            and at.month in months
            and at.isoweekday() % 7 in weekdays
        )

    # Whole days without a match are skipped.
    found: list[datetime] = []
    while len(found) < 20:
        at += timedelta(minutes=1)
        if at.hour == at.minute == 0 and not (
            at.day in month_days and at.month in months and at.isoweekday() % 7 in weekdays
        ):
            at += timedelta(hours=23, minutes=59)
        elif matches(at):
            found.append(at)
    return found


CRONTABS: list[tuple[dict[str, str], str, Any]] = [
    ({"minute": "0", "hour": "4"}, "0 4 * * *", ({0}, {4}, EVERY, EVERY, EVERY_DAY)),
    ({"minute": "*/15"}, "*/15 * * * *", ({0, 15, 30, 45}, range(24), EVERY, EVERY, EVERY_DAY)),
    (
        {"minute": "1,13,50-59/3", "hour": "8-17"},
        "1,13,50,53,56,59 8-17 * * *",
        ({1, 13, 50, 53, 56, 59}, range(8, 18), EVERY, EVERY, EVERY_DAY),
    ),
    ({"minute": "0", "hour": "22-2"}, "0 0-2,22,23 * * *", ({0}, {22, 23, 0, 1, 2}, EVERY, EVERY, EVERY_DAY)),
    ({"minute": "0", "hour": "0", "day_of_week": "0"}, "0 0 * * SUN", ({0}, {0}, EVERY, EVERY, {0})),
    (
        {"minute": "30", "hour": "9", "day_of_week": "mon-fri"},
        "30 9 * * MON-FRI",
        ({30}, {9}, EVERY, EVERY, range(1, 6)),
    ),
    (
        {"minute": "0", "hour": "9", "day_of_week": "friday-monday"},
        "0 9 * * SUN,MON,FRI,SAT",
        ({0}, {9}, EVERY, EVERY, {5, 6, 0, 1}),
    ),
    (
        {"minute": "0", "hour": "6", "day_of_week": "*/2"},
        "0 6 * * SUN,TUE,THU,SAT",
        ({0}, {6}, EVERY, EVERY, {0, 2, 4, 6}),
    ),
    ({"minute": "0", "hour": "0", "day_of_month": "1,15"}, "0 0 1,15 * *", ({0}, {0}, {1, 15}, EVERY, EVERY_DAY)),
    (
        {"minute": "0", "hour": "0", "day_of_month": "*/3", "month_of_year": "jan-june"},
        "0 0 */3 1-6 *",
        ({0}, {0}, range(1, 32, 3), range(1, 7), EVERY_DAY),
    ),
    (
        {"minute": "0", "hour": "0", "day_of_month": "1-7", "day_of_week": "mon"},
        "0 0 * * MON#1",
        ({0}, {0}, range(1, 8), EVERY, {1}),
    ),
    (
        {"minute": "0", "hour": "0", "day_of_month": "1-31", "day_of_week": "mon"},
        "0 0 * * MON",
        ({0}, {0}, EVERY, EVERY, {1}),
    ),
    (
        {"minute": "5", "hour": "*/6", "day_of_month": "1-5", "day_of_week": "tue,wed"},
        "5 */6 */31,2-5 * TUE,WED",
        ({5}, {0, 6, 12, 18}, range(1, 6), EVERY, {2, 3}),
    ),
]


@pytest.mark.slow
def test_an_imported_crontab_fires_at_the_same_times(beat: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for fields, expression, matched in CRONTABS:
        with subtests.test(fields=fields):
            found = task(beat, **crontab(beat, **fields))
            assert found.schedule is not None
            assert found.schedule["when"] == {"kind": "cron", "expression": expression}
            assert fires(found, START) == model(*matched)


def test_a_crontab_has_its_own_zone(beat: psycopg.Connection) -> None:
    found = task(beat, **crontab(beat, minute="30", hour="9", timezone="America/Sao_Paulo"))
    assert [at.strftime("%H:%M") for at in fires(found, START, 3)] == ["12:30"] * 3


def test_the_options_of_a_task_are_imported(beat: psycopg.Connection) -> None:
    found = task(
        beat,
        **crontab(beat, minute="0", hour="4"),
        kwargs='{"to": "ü", "n": [1, null]}',
        queue="letters",
        start_time=START,
        expires=START.replace(second=0) + timedelta(days=3, hours=22),
        expire_seconds=600,
        one_off=True,
        enabled=False,
        description="not imported",
    )
    assert (found.key, found.enabled, found.problem) == ("celery-beat:a task", False, None)
    assert found.note == "was disabled in celery-beat"
    assert found.schedule is not None
    assert found.schedule == {
        "key": "celery-beat:a task",
        "task": "shop.tasks.send",
        "args": {"to": "ü", "n": [1, None]},
        "when": {"kind": "cron", "expression": "0 4 * * *"},
        "queue": "letters",
        "overlap": "allow",
        "missed": "latest",
        "starts_at": found.schedule["starts_at"],
        "ends_at": found.schedule["ends_at"],
        "max_fires": 1,
        "expires_after": 600,
    }
    # It expires at four in the morning, so it does not run then.
    first = START.replace(hour=4, second=0) + timedelta(days=1)
    assert fires(found, NOW) == [first, first + timedelta(days=1), first + timedelta(days=2)]


def test_an_interval_continues_from_its_last_run(beat: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for every, period, seconds in [
        (2, "days", 172800),
        (3, "hours", 10800),
        (5, "minutes", 300),
        (10, "seconds", 10),
        (250000, "microseconds", 0.25),
    ]:
        with subtests.test(every=every, period=period):
            last = NOW - timedelta(seconds=seconds / 2)
            found = task(beat, **interval(beat, every, period), last_run_at=last, date_changed=NOW - timedelta(days=9))
            assert found.schedule is not None
            assert found.schedule["when"] == {"kind": "every", "interval": seconds}
            assert fires(found, NOW, 3) == [last + timedelta(seconds=seconds * number) for number in (1, 2, 3)]


def test_an_interval_that_never_ran_counts_from_its_start_or_from_when_it_was_written(
    beat: psycopg.Connection,
) -> None:
    found = task(beat, **interval(beat, 1, "hours"), start_time=START)
    assert fires(found, NOW, 2) == [START, START + timedelta(hours=1)]
    found = task(beat, **interval(beat, 1, "hours"), date_changed=NOW - timedelta(minutes=90))
    assert fires(found, NOW, 1) == [NOW + timedelta(minutes=30)]


def test_a_clocked_task_fires_once(beat: psycopg.Connection) -> None:
    clocked = {"clocked_id": insert(beat, "clockedschedule", {"clocked_time": START})}
    assert fires(task(beat, **clocked, one_off=True), NOW) == [START]


NOT_IMPORTABLE: list[tuple[dict[str, Any], str]] = [
    ({"args": "[1, 2]"}, "it has positional arguments"),
    ({"args": "nonsense"}, "its args are not in Celery's format"),
    ({"kwargs": "[1]"}, "its kwargs are not in Celery's format"),
    ({"kwargs": '{"d": {"__type__": "date", "__value__": "2027-01-01"}}'}, "only Celery's JSON supports"),
    ({"kwargs": '{"path": "report-{date}.csv"}'}, "which a schedule replaces: create it by hand"),
    ({"expires": NOW - timedelta(days=1)}, "it would never fire again"),
    ({"one_off": True, "total_run_count": 1}, "it was a one-off and has already run"),
    ({"expires": "infinity"}, "it cannot be read: ValueError"),
    ({"crontab_id": None}, "it has no schedule"),
]


def test_a_task_that_cannot_be_imported_is_refused_with_a_reason(
    beat: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for values, text in NOT_IMPORTABLE:
        with subtests.test(values=values):
            found = task(beat, **(crontab(beat, minute="0", hour="4") | values))
            assert found.schedule is None
            assert text in str(found.problem)


INVALID_CRONTABS: list[tuple[dict[str, str], str]] = [
    ({"timezone": "Europe/Atlantis"}, "there is no time zone 'Europe/Atlantis'"),
    ({"minute": "60"}, "its minute '60' is unknown"),
    ({"minute": "5/10"}, "its minute '5/10' is unknown"),
    ({"hour": "*/0"}, "its hour '*/0' is unknown"),
    ({"day_of_week": "7"}, "its day of week '7' is unknown"),
    ({"day_of_week": "caturday"}, "its day of week 'caturday' is unknown"),
    ({"day_of_month": "13", "day_of_week": "fri"}, "days 13 of a month that are also FRI"),
    ({"day_of_month": "30", "month_of_year": "2"}, "never matches"),
    ({"minute": "; drop table x"}, "is unknown"),
]


@pytest.mark.slow
def test_an_invalid_crontab_is_refused_with_a_reason(beat: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for fields, text in INVALID_CRONTABS:
        with subtests.test(fields=fields):
            found = task(beat, **crontab(beat, **fields))
            assert found.schedule is None
            assert text in str(found.problem)


def test_celerys_own_cleanup_task_is_left_out(beat: psycopg.Connection) -> None:
    found = task(beat, task="celery.backend_cleanup", **crontab(beat, minute="0", hour="4"))
    assert found.left_out
    assert found.note == "left out: it deletes Celery's own results, which do not exist here"


def test_a_solar_schedule_is_refused(beat: psycopg.Connection) -> None:
    solar = {"solar_id": insert(beat, "solarschedule", {"event": "sunset", "latitude": 56.95, "longitude": 24.1})}
    found = task(beat, **solar)
    assert found.schedule is None
    assert "it follows the sun (sunset at 56.95, 24.1)" in str(found.problem)


def test_an_interval_out_of_range_is_refused_with_a_reason(beat: psycopg.Connection) -> None:
    assert "out of range: 1 ms" in str(task(beat, **interval(beat, 10, "microseconds")).problem)
    assert "OverflowError" in str(task(beat, **interval(beat, 2**31 - 1, "days")).problem)
    assert "its period 'moons' is unknown" in str(task(beat, **interval(beat, 1, "moons")).problem)


def test_dates_without_a_zone_are_not_guessed(beat: psycopg.Connection) -> None:
    beat.execute("alter table django_celery_beat_periodictask alter column start_time type timestamp")
    found = task(beat, **crontab(beat, minute="0"), start_time=START.replace(tzinfo=None))
    assert "USE_TZ = False" in str(found.problem)


def test_differences_are_noted(beat: psycopg.Connection) -> None:
    note = task(
        beat,
        **crontab(beat, minute="30", hour="2", timezone="Europe/Berlin"),
        priority=200,
        exchange="x",
        headers='{"a": 1}',
        enabled=False,
    ).note
    assert note is not None
    assert note.startswith("was disabled in celery-beat; its priority")
    assert "its priority 200 is not imported" in note
    assert "exchange, headers not imported" in note
    assert "the clock of Europe/Berlin changes on" in note
    assert "here it runs right after the gap" in note
    assert len(note) <= 500


def test_a_clock_change_is_noted_only_where_it_matters(beat: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for fields, noted in [
        ({"minute": "30", "hour": "9", "timezone": "Europe/Berlin"}, None),
        ({"minute": "30", "hour": "2", "timezone": "Asia/Tokyo"}, None),
        ({"minute": "*/10", "timezone": "Europe/Berlin"}, "celery beat pauses"),
    ]:
        with subtests.test(fields=fields):
            note = task(beat, **crontab(beat, **fields)).note
            assert note is None if noted is None else noted in str(note)


def test_one_bad_row_does_not_stop_the_others(
    beat: psycopg.Connection, app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(name="shop.tasks.send")
    def send(to: str) -> None: ...

    task(beat, name="bad", **crontab(beat, minute="x"))
    good_row = {"name": "good", "args": "", "kwargs": '{"to": "Ada"}', **crontab(beat, minute="0")}
    insert(beat, "periodictask", USUAL | good_row)
    found = {each.key: each for each in read("celery-beat", beat)}
    assert found["celery-beat:bad"].schedule is None

    good = found["celery-beat:good"].schedule
    assert good is not None
    made = app.schedules.upsert_many([from_object(good, app.new_job)])
    assert [result.what for result in made] == ["created"]
    advance(connection, 3601)
    assert app.schedules.tick().fires == 1
    assert one(connection, "select args ->> 'to' from sereno.jobs") == "Ada"


def test_a_database_without_the_tables_is_reported(connection: psycopg.Connection) -> None:
    for kind, table in (
        ("celery-beat", "django_celery_beat_periodictask"),
        ("apscheduler", "apscheduler_jobs"),
        ("pg-cron", "cron.job"),
    ):
        with pytest.raises(ConfigurationError, match=f"{table} is not in the database test_"):
            read(kind, connection)
    with pytest.raises(ConfigurationError, match="there is no importer for 'cron'"):
        read("cron", connection)


def test_a_role_without_privileges_is_reported(beat: psycopg.Connection) -> None:
    beat.execute("create role looker_of_nothing")
    try:
        beat.execute("set role looker_of_nothing")
        with pytest.raises(ConfigurationError, match="may not read django_celery_beat_periodictask"):
            read("celery-beat", beat)
    finally:
        beat.execute("reset role")
        beat.execute("drop role looker_of_nothing")
