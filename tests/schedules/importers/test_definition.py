"""The JSON definition: an exported schedule is imported unchanged, and hostile input is refused."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Cron, Every, InvalidSchedule, Once, Sereno
from sereno.errors import UnknownTask
from sereno.schedules.importers import as_object, from_object
from sereno.schedules.importers.definition import FIELDS, plain_job
from sereno.schedules.schedule import NewSchedule
from tests.facts import one

LEAST = {"key": "k", "task": "work", "when": {"kind": "cron", "expression": "0 3 * * *"}}


def schedules(app: Sereno) -> list[NewSchedule]:
    @app.task(queue="letters", priority=3)
    def work(name: str, deep: list[int] | None = None) -> None: ...

    in_a_year = datetime.now(UTC) + timedelta(days=365)
    busy = work.using(
        queue="other",
        priority=0,
        tenant="r42",
        tags=["a", "b"],
        trace="00-1",
        unique_key="{key}:{date}",
        unique_for="7d",
        on_conflict="replace",
    )
    return [
        app.schedules.new("plain", work.job("a"), Cron("0 3 * * *", tz="Europe/Riga")),
        app.schedules.new("once", work.job("a"), Once(in_a_year)),
        app.schedules.new("forever", work.using(unique_key="k", unique_for="forever").job("a"), Every("1h")),
        app.schedules.new(
            "all",
            busy.job("ü", deep=[1, 2]),
            Every("90s", count_from="clock", phase=1.5, spread="10m"),
            missed="all",
            missed_limit=7,
            missed_window="2d",
            max_lateness="5m",
            overlap="allow",
            starts_at=in_a_year,
            ends_at=in_a_year + timedelta(days=1),
            max_fires=3,
            disable_after=4,
            expires_after=0.25,
        ),
    ]


def test_an_export_is_imported_unchanged(app: Sereno, connection: psycopg.Connection) -> None:
    made = schedules(app)
    app.schedules.upsert_many(made)

    lines = [json.dumps(as_object(row)) for row in app.schedules.list()]
    back = [from_object(json.loads(line), app.new_job) for line in lines]

    assert [result.what for result in app.schedules.upsert_many(back)] == ["unchanged"] * len(made)
    assert one(connection, "delete from sereno.schedules returning true")
    app.schedules.upsert_many(back)
    assert [json.dumps(as_object(row)) for row in app.schedules.list()] == lines


def test_a_definition_has_only_the_fields_that_are_set(app: Sereno) -> None:
    app.schedules.upsert_many(schedules(app))
    found = {row.key: as_object(row) for row in app.schedules.list()}
    assert found["plain"] == {
        "key": "plain",
        "task": "work",
        "args": {"name": "a"},
        "when": {"kind": "cron", "expression": "0 3 * * *", "tz": "Europe/Riga"},
        "queue": "letters",
        "priority": 3,
    }
    assert list(found["all"]) == list(FIELDS)


def test_key_task_and_when_are_enough() -> None:
    made = from_object({**LEAST, "tenant": None, "starts_at": "2027-01-08T09:00:00Z"}, plain_job)
    assert (made.when, made.job.args, made.missed) == (Cron("0 3 * * *"), b"{}", "latest")
    assert made.starts_at == datetime(2027, 1, 8, 9, tzinfo=UTC)


def test_a_refusal_of_the_task_is_passed_on(app: Sereno) -> None:
    schedules(app)
    with pytest.raises(InvalidSchedule, match=r"schedule 'k': .*missing_task") as refused:
        from_object({**LEAST, "task": "missing_task"}, app.new_job)
    assert isinstance(refused.value.__cause__, UnknownTask)
    with pytest.raises(InvalidSchedule, match=r"schedule 'k': task work: .*name"):
        from_object(LEAST, app.new_job)


deep: Any = []
for _ in range(100_000):
    deep = [deep]


INVALID_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"color": "red"}, "there is no field 'color'; the fields are key, task, args"),
    ({"key": None}, "a schedule without a key: it needs a key"),
    ({"task": None}, "schedule 'k': it needs a task"),
    ({"when": None}, "it needs a when"),
    ({"key": 7}, "key is a text, not a whole number"),
    ({"key": "k" * 501}, "key .* must be text of 1 to 500 characters"),
    ({"key": "a\x00b"}, "without NUL bytes"),
    ({"task": ""}, "task '' must be text"),
    ({"task": "\ud800"}, "lone surrogate"),
    ({"args": [1]}, "args is an object, not a list"),
    ({"args": {"x": float("nan")}}, "args: NaN and infinity are not JSON"),
    ({"args": {"x": "a\x00b"}}, "args: text with a NUL byte"),
    ({"args": {"x": 10**5000}}, "args: not storable as JSON"),
    ({"args": {"x": deep}}, "args: not storable as JSON"),
    ({"args": {"x": "{fire:%Q}"}}, "%Q is not a known directive"),
    ({"when": "0 3 * * *"}, "when is an object, not a text"),
    ({"when": {"kind": "cron", "expression": "61 * * * *"}}, "minute 61 is out of range"),
    ({"when": {"kind": "cron", "expression": "0 3 * * *", "tz": "../etc/passwd"}}, "there is no time zone"),
    ({"when": {"kind": "every", "interval": 10**5000}}, "interval is not a duration"),
    ({"when": {"kind": "once", "at": "2027-01-08T09:00:00"}}, "needs a time zone"),
    ({"queue": ["a"]}, "queue is a text, not a list"),
    ({"priority": 10}, "priority 10 is out of range"),
    ({"priority": True}, "priority is a whole number, not true or false"),
    ({"priority": 10**5000}, "priority is out of range"),
    ({"tags": "a"}, "tags is a list, not a text"),
    ({"tags": [deep]}, "tags is a list of texts"),
    ({"unique_for": "7d"}, "need a unique_key"),
    ({"unique_key": "k", "on_conflict": "raise"}, "no caller to raise to"),
    ({"missed": "sometimes"}, "missed is one of"),
    ({"missed": "all"}, 'needs overlap="allow"'),
    ({"missed_limit": 0}, "missed_limit 0 is out of range"),
    ({"missed_window": "x" * 101}, "missed_window is too long: 101 characters"),
    ({"missed_window": "fortnight"}, "is not a duration"),
    ({"max_lateness": float("inf")}, "is not a duration"),
    ({"max_lateness": -1}, "is not a duration"),
    ({"expires_after": deep}, "expires_after is a text or a whole number or a number, not a list"),
    ({"starts_at": "tomorrow"}, "starts_at 'tomorrow' is not a date"),
    ({"starts_at": "2027-01-08"}, "starts_at needs a time zone"),
    ({"starts_at": 1}, "starts_at is a text or a date, not a whole number"),
    ({"starts_at": "2027-01-08T00:00Z", "ends_at": "2027-01-08T00:00Z"}, "is not after starts_at"),
    ({"max_fires": 2**62 + 1}, "max_fires .* is out of range"),
]


def test_an_invalid_field_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for changes, text in INVALID_FIELDS:
        with subtests.test(changes=changes, text=text), pytest.raises(InvalidSchedule, match=text):
            from_object({**LEAST, **changes}, plain_job)


NOT_OBJECTS: list[Any] = [None, [], "text", 7]


def test_a_definition_must_be_an_object(subtests: pytest.Subtests) -> None:
    for value in NOT_OBJECTS:
        with (
            subtests.test(value=value),
            pytest.raises(InvalidSchedule, match="a schedule must be a JSON object"),
        ):
            from_object(value, plain_job)
