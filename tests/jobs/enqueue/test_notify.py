"""NOTIFY is sent only when it helps: to idle workers, once per queue and statement."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sereno import Sereno, Task
from sereno.jobs.attempt import ReleasedAttempt
from tests.jobs.job_steps import add, decided, end, line, session, take

Work = Task[[int], None]


class Ear:
    """Listens to notifications up to an end marker."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute('listen "sereno.ready"; listen "sereno.cancel"; listen the_end')

    def heard(self) -> list[str]:
        self._connection.execute("notify the_end")
        words = []
        for notice in self._connection.notifies():
            if notice.channel == "the_end":
                break
            words.append(notice.payload)
        return words


@pytest.fixture
def ear(database_url: str) -> Iterator[Ear]:
    with psycopg.connect(database_url, autocommit=True) as listening:
        yield Ear(listening)


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(number: int) -> None: ...

    return work


def test_no_notification_without_an_idle_worker(
    app: Sereno, work: Work, connection: psycopg.Connection, ear: Ear
) -> None:
    session(connection, idle=False)
    work.enqueue(1)
    work.using(unique_key="k").enqueue(1)
    app.enqueue_many([work.job(1)] * 10)
    connection.execute("select sereno.enqueue('work'), sereno.enqueue('work', unique_key => 'other')")
    assert ear.heard() == []


def test_an_idle_worker_of_another_queue_is_not_notified(work: Work, connection: psycopg.Connection, ear: Ear) -> None:
    session(connection, idle=True, queues={"other": 1})
    work.enqueue(1)
    work.using(unique_key="k").enqueue(1)
    assert ear.heard() == []


def test_an_idle_worker_is_notified_once_per_queue_and_statement(
    app: Sereno, work: Work, connection: psycopg.Connection, ear: Ear
) -> None:
    session(connection, idle=True, queues={"default": 1, "fast": 1})
    work.enqueue(1)
    assert ear.heard() == ["default"]
    app.enqueue_many([work.job(1)] * 100)
    assert ear.heard() == ["default"]
    app.enqueue_many([work.job(1), work.using(queue="fast").job(2), work.using(queue="deaf").job(3)] * 10)
    assert sorted(ear.heard()) == ["default", "fast"]
    app.enqueue_many([work.using(unique_key=f"k{n}", queue=("default", "fast")[n % 2]).job(n) for n in range(10)])
    assert sorted(ear.heard()) == ["default", "fast"]
    connection.execute("select sereno.enqueue('work')")
    assert ear.heard() == ["default"]


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_a_job_due_soon_wakes_the_promoters_and_a_later_one_does_not(
    work: Work, connection: psycopg.Connection, ear: Ear, key: str | None
) -> None:
    session(connection, idle=True)
    work.using(delay="11s", unique_key=key and "a").enqueue(1)
    assert ear.heard() == []
    work.using(delay="9s", unique_key=key and "b").enqueue(1)
    assert ear.heard() == [""]


def test_a_kept_duplicate_does_not_notify_and_a_replaced_one_does(
    work: Work, connection: psycopg.Connection, ear: Ear
) -> None:
    session(connection, idle=True)
    keyed = work.using(unique_key="k", delay="1h")
    keyed.enqueue(1)
    keyed.enqueue(2)
    assert ear.heard() == []
    work.using(unique_key="k", on_conflict="replace").enqueue(3)
    assert ear.heard() == ["default"]


def test_no_notification_before_the_callers_commit(
    work: Work, database_url: str, connection: psycopg.Connection, ear: Ear
) -> None:
    session(connection, idle=True)
    with psycopg.connect(database_url) as callers:
        work.using(callers).enqueue(1)
        assert ear.heard() == []
        callers.commit()
        assert ear.heard() == ["default"]


def test_a_job_that_becomes_ready_again_notifies_other_idle_workers(database_url: str, ear: Ear) -> None:
    with line(database_url) as connection:
        add(connection, 4)
        owner = session(connection, idle=True)
        held = take(connection, owner)
        end(connection, owner, held[:2], decided(ReleasedAttempt("shutdown")))
        assert ear.heard() == [], "it polls by itself"
        session(connection, idle=True)
        end(connection, owner, held[2:], decided(ReleasedAttempt("shutdown")))
        assert ear.heard() == ["default"]


def test_no_trigger_runs_for_a_job_without_limits(connection: psycopg.Connection) -> None:
    conditions = [
        row[0]
        for row in connection.execute(
            "select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'sereno.jobs'::regclass"
        )
    ]
    assert conditions
    assert all("lane IS NOT NULL" in text or "order_id IS NOT NULL" in text for text in conditions)
