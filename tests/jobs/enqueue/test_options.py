"""Options of a job are stored as they were given."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.job import JobOptions
from tests.facts import advance, one
from tests.jobs.job_steps import row


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_every_option_is_stored(app: Sereno, connection: psycopg.Connection, key: str | None) -> None:
    @app.task(queue="slow", priority=7)
    def work() -> None: ...

    later = datetime(2101, 2, 3, 4, 5, 6, 789, tzinfo=ZoneInfo("America/Sao_Paulo"))
    options: dict[str, Any] = {"tenant": "r42", "expires_at": later, "tags": ["a", 'b "c",{}'], "trace": "00-ab-cd-01"}
    job = work.using(queue="fast", priority=0, run_at=later, unique_key=key, **options).enqueue()

    found = row(connection, job.id)
    assert {name: found[name] for name in options} == options
    assert (found["queue"], found["priority"], found["run_at"], found["state"]) == ("fast", 0, later, "scheduled")
    assert found["unique_key"] == key


def test_a_job_takes_the_tasks_queue_and_priority_by_default(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(queue="slow", priority=7)
    def work() -> None: ...

    found = row(connection, work.enqueue().id)
    assert (found["queue"], found["priority"], found["tenant"], found["tags"]) == ("slow", 7, None, None)
    named = app.enqueue_many([app.new_job("work", b"{}"), app.new_job("work", b"{}", JobOptions(priority=0))])
    assert [row(connection, job.id)["priority"] for job in named] == [7, 0]


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_a_delay_counts_from_the_databases_clock(app: Sereno, connection: psycopg.Connection, key: str | None) -> None:
    @app.task
    def work() -> None: ...

    advance(connection, 86400 * 30)
    found = row(connection, work.using(delay="1h30m", unique_key=key).enqueue().id)
    assert found["run_at"] - found["created_at"] == timedelta(minutes=90)
    assert found["created_at"] > datetime.now(UTC) + timedelta(days=29)
    assert found["state"] == "scheduled"


def test_a_job_with_a_run_time_in_the_past_is_ready(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    long_ago = datetime(1999, 12, 31, tzinfo=UTC)
    assert row(connection, work.using(run_at=long_ago).enqueue().id)["state"] == "ready"
    assert row(connection, work.using(run_at=long_ago, unique_key="k").enqueue().id)["state"] == "ready"


def test_options_are_combined_and_do_not_change_the_task(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    job = work.using(tenant="a", priority=1).using(priority=2).enqueue()
    assert (row(connection, job.id)["tenant"], row(connection, job.id)["priority"]) == ("a", 2)
    assert row(connection, work.enqueue().id)["tenant"] is None


def test_the_widest_dates_and_the_longest_texts_are_stored(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    earliest, latest = datetime(1900, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
    work.using(run_at=earliest, expires_at=earliest, tenant="é" * 500, unique_key="k" * 500).enqueue()
    work.using(run_at=latest, expires_at=latest).enqueue()
    assert one(connection, "select array_agg(state order by id) from sereno.jobs") == ["ready", "scheduled"]
