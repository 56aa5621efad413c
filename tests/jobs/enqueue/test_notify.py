"""NOTIFY is sent only when it helps: to idle workers, once per queue and statement."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Sereno, Task
from sereno.jobs.attempt import SUCCEEDED, ReleasedAttempt
from sereno.jobs.settlement import settle
from tests.facts import state
from tests.jobs.job_steps import add, decided, do, end, line, session, settled, take

Work = Task[[int], None]


class Listener:
    """Receives notifications up to an end marker."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute('listen "sereno.ready"; listen "sereno.due"; listen "sereno.cancel"; listen the_end')

    def received(self) -> list[str]:
        self._connection.execute("notify the_end")
        payloads = []
        for notice in self._connection.notifies():
            if notice.channel == "the_end":
                break
            payloads.append(notice.payload)
        return payloads


@pytest.fixture
def listener(database_url: str) -> Iterator[Listener]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield Listener(opened)


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(number: int) -> None: ...

    return work


def test_no_notification_without_an_idle_worker(
    app: Sereno, work: Work, connection: psycopg.Connection, listener: Listener
) -> None:
    session(connection, idle=False)
    work.enqueue(1)
    work.using(unique_key="k").enqueue(1)
    app.enqueue_many([work.job(1)] * 10)
    connection.execute("select sereno.enqueue('work'), sereno.enqueue('work', unique_key => 'other')")
    assert listener.received() == []


def test_an_idle_worker_of_another_queue_is_not_notified(
    work: Work, connection: psycopg.Connection, listener: Listener
) -> None:
    session(connection, idle=True, queues={"other": 1})
    work.enqueue(1)
    work.using(unique_key="k").enqueue(1)
    assert listener.received() == []


def test_an_idle_worker_is_notified_once_per_queue_and_statement(
    app: Sereno, work: Work, connection: psycopg.Connection, listener: Listener
) -> None:
    session(connection, idle=True, queues={"default": 1, "fast": 1})
    work.enqueue(1)
    assert listener.received() == ["default"]
    app.enqueue_many([work.job(1)] * 100)
    assert listener.received() == ["default"]
    app.enqueue_many([work.job(1), work.using(queue="fast").job(2), work.using(queue="unserved").job(3)] * 10)
    assert sorted(listener.received()) == ["default", "fast"]
    app.enqueue_many([work.using(unique_key=f"k{n}", queue=("default", "fast")[n % 2]).job(n) for n in range(10)])
    assert sorted(listener.received()) == ["default", "fast"]
    connection.execute("select sereno.enqueue('work')")
    assert listener.received() == ["default"]


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_promoters_are_told_when_a_job_is_due_within_seconds_and_not_of_a_later_one(
    work: Work, connection: psycopg.Connection, listener: Listener, key: str | None
) -> None:
    session(connection, idle=True)
    work.using(delay="11s", unique_key=key and "a").enqueue(1)
    assert listener.received() == []
    work.using(delay="9s", unique_key=key and "b").enqueue(1)
    (payload,) = listener.received()
    seconds, _, queue = payload.partition(" ")
    assert queue == "default"
    assert float(seconds) == pytest.approx(9, abs=1)


def test_a_kept_duplicate_does_not_notify_and_a_replaced_one_does(
    work: Work, connection: psycopg.Connection, listener: Listener
) -> None:
    session(connection, idle=True)
    keyed = work.using(unique_key="k", delay="1h")
    keyed.enqueue(1)
    keyed.enqueue(2)
    assert listener.received() == []
    work.using(unique_key="k", on_conflict="replace").enqueue(3)
    assert listener.received() == ["default"]


def test_no_notification_before_the_callers_commit(
    work: Work, database_url: str, connection: psycopg.Connection, listener: Listener
) -> None:
    session(connection, idle=True)
    with psycopg.connect(database_url) as callers:
        work.using(callers).enqueue(1)
        assert listener.received() == []
        callers.commit()
        assert listener.received() == ["default"]


def test_a_job_that_becomes_ready_again_notifies_other_idle_workers(database_url: str, listener: Listener) -> None:
    with line(database_url) as connection:
        add(connection, 4)
        owner = session(connection, idle=True)
        held = take(connection, owner)
        end(connection, owner, held[:2], decided(ReleasedAttempt("shutdown")))
        assert listener.received() == [], "the worker that released them polls anyway"
        session(connection, idle=True)
        end(connection, owner, held[2:], decided(ReleasedAttempt("shutdown")))
        assert listener.received() == ["default"]


def test_a_settlement_that_continues_jobs_notifies_idle_workers(database_url: str, listener: Listener) -> None:
    """Except its own worker, if that claims anyway."""
    with line(database_url) as connection:
        owner = session(connection, idle=True)
        for claims_next, others, expected in ((True, 0, 0), (False, 0, 1), (True, 1, 1)):
            first, second = add(connection, 2)
            (last,) = add(connection, after=[first])
            (later,) = add(connection, after=[second], run_at=datetime.now(UTC) + timedelta(seconds=9))
            if others:
                session(connection, idle=True)
            listener.received()
            items = [settled(job, SUCCEEDED) for job in take(connection, owner)]
            do(connection, settle("succeed", owner, items, claims_next=claims_next))
            assert (state(connection, last), state(connection, later)) == ("ready", "scheduled")
            found = listener.received()
            assert found.count("default") == expected, (claims_next, others)
            assert len(found) == 1 + expected, "promoters are told when the other one is due"
            end(connection, owner, take(connection, owner), SUCCEEDED)


def test_no_trigger_runs_for_a_job_without_limits(connection: psycopg.Connection) -> None:
    conditions = [
        row[0]
        for row in connection.execute(
            "select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'sereno.jobs'::regclass"
        )
    ]
    assert conditions
    assert all("lane IS NOT NULL" in text or "order_id IS NOT NULL" in text for text in conditions)
