"""The rows that each outcome writes: the job, its counters, the attempt, the time of the next attempt."""

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from threading import Thread
from typing import Any

import pytest

from sereno import Backoff, Cancel, Dead, Retry, Snooze
from sereno.jobs import transitions
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement, settlement
from sereno.jobs.settlement import forget_side_rows, keep_step, report_progress, settle, steps
from tests.facts import one, until
from tests.jobs.job_steps import (
    Connection,
    add,
    advance,
    decided,
    do,
    end,
    line,
    past,
    row,
    session,
    settled,
    take,
    take_one,
    tries,
    waits_for_a_lock,
)

COUNTERS = ("attempt", "failures", "crashes", "snoozes", "releases")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def counters(found: dict[str, object]) -> tuple[object, ...]:
    return tuple(found[name] for name in COUNTERS)


def test_a_first_success_writes_one_row_of_history_and_no_attempt(connection: Connection) -> None:
    (id_,) = add(connection, tenant="r42", unique_key="k", trace="t", tags=["a"], priority=2)
    owner = session(connection)
    job = take_one(connection, owner)
    before = row(connection, id_)
    assert end(connection, owner, [job], decided()) == {id_}

    found = past(connection, id_)
    # Columns with another form in history, or not in history.
    changed = {"lane", "order_id", "state", "claimed_at", "cancel_requested", "ready_seq", "pending", "has_successors"}
    unchanged = before.keys() - changed
    assert {name: found[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert (found["tags"], found["state"], found["session_id"]) == (["a"], "succeeded", owner)
    assert counters(found) == (1, 0, 0, 0, 0)
    assert found["started_at"] - before["claimed_at"] == timedelta(seconds=0.5)
    assert found["finished_at"] >= before["claimed_at"]
    assert one(connection, "select (select count(*) from sereno.jobs) + (select count(*) from sereno.attempts)") == 0


def test_a_result_of_a_session_that_lost_the_job_is_refused(connection: Connection) -> None:
    (id_,) = add(connection)
    job = take_one(connection, session(connection))
    assert end(connection, session(connection), [job], Settlement("succeeded", result=b"7")) == set()
    assert row(connection, id_)["state"] == "running"


def test_a_success_without_history_leaves_no_row(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner)], decided(), keep_history=False)
    assert one(connection, "select (select count(*) from sereno.jobs) + (select count(*) from sereno.history)") == 0


def test_each_outcome_has_its_own_counter(connection: Connection, subtests: pytest.Subtests) -> None:
    endings: list[tuple[Ending, str, tuple[int, ...]]] = [
        (Retry("busy"), "retry", (1, 1, 0, 0, 0)),
        (ValueError("no luck"), "retry", (1, 1, 0, 0, 0)),
        (Snooze("1m", reason="later"), "snooze", (1, 0, 0, 1, 0)),
        (ReleasedAttempt("shutdown"), "release", (1, 0, 0, 0, 1)),
        (CrashedAttempt("killed"), "crash", (1, 0, 1, 0, 0)),
    ]
    for ending, outcome, counted in endings:
        with subtests.test(ending=ending), connection.transaction(force_rollback=True):
            (id_,) = add(connection)
            owner = session(connection)
            job = take_one(connection, owner)
            end(connection, owner, [job], decided(ending))
            found = row(connection, id_)
            assert counters(found) == counted
            assert found["session_id"] is None
            assert tries(connection, id_) == [(1, outcome)]
            assert one(connection, "select started_at from sereno.attempts") - found["claimed_at"] == timedelta(
                seconds=0.5
            )
            assert one(connection, "select finished_at from sereno.attempts") >= found["claimed_at"]


def test_the_attempt_number_increases_with_every_claim(connection: Connection) -> None:
    (id_,) = add(connection)
    owner = session(connection, lease=1e6)
    endings: list[Ending] = [
        ReleasedAttempt("shutdown"),
        Snooze(1),
        Retry(after=1),
        CrashedAttempt("killed"),
        Dead("no"),
    ]
    for number, ending in enumerate(endings, start=1):
        job = take_one(connection, owner)
        assert (job.id, job.attempt) == (id_, number)
        end(connection, owner, [job], decided(ending))
        advance(connection, 3600)
        do(connection, transitions.promote())
    assert counters(past(connection, id_)) == (5, 2, 1, 1, 1)
    assert do(connection, transitions.requeue([id_])) == [id_]
    assert take_one(connection, owner).attempt == 6
    assert tries(connection, id_) == [(1, "release"), (2, "snooze"), (3, "retry"), (4, "crash"), (5, "dead")]


def test_a_retry_is_never_early(connection: Connection) -> None:
    (id_,) = add(connection)
    owner = session(connection, lease=1e6)
    delay = settlement(
        ValueError(), failures=0, crashes=0, policy=Backoff(first="10m", jitter=0.1), chance=Random(7)
    ).delay
    assert 600 <= delay <= 660
    job = take_one(connection, owner)
    end(connection, owner, [job], decided(Retry(after=delay)))
    waits = row(connection, id_)["run_at"] - one(connection, "select finished_at from sereno.attempts")
    assert waits == timedelta(seconds=delay)
    advance(connection, delay - 10)
    assert do(connection, transitions.promote()) == 0
    advance(connection, 10)
    assert do(connection, transitions.promote()) == 1


def test_a_snooze_until_a_time_waits_and_one_in_the_past_is_ready(connection: Connection) -> None:
    add(connection, 2)
    owner = session(connection)
    now = one(connection, "select sereno.now()")
    first, second = take(connection, owner)
    end(connection, owner, [first], decided(Snooze(until=now + timedelta(hours=1))))
    end(connection, owner, [second], decided(Snooze(until=now - timedelta(hours=1))))
    found = row(connection, first.id)
    assert (found["run_at"], found["state"]) == (now + timedelta(hours=1), "scheduled")
    assert row(connection, second.id)["state"] == "ready"


def test_a_released_job_is_ready_at_once_at_the_end_of_its_queue(connection: Connection) -> None:
    first, second = add(connection, 2)
    owner = session(connection)
    run_at = row(connection, first)["run_at"]
    end(connection, owner, [take_one(connection, owner)], decided(ReleasedAttempt("shutdown")))
    assert (row(connection, first)["state"], row(connection, first)["run_at"]) == ("ready", run_at)
    assert [job.id for job in take(connection, owner)] == [second, first]


def test_an_attempt_that_never_started_leaves_no_attempt_row(connection: Connection) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner)], decided(ReleasedAttempt("shutdown", started=False)))
    assert tries(connection, id_) == []
    assert counters(row(connection, id_)) == (1, 0, 0, 0, 1)


def test_a_dead_letter_stores_the_whole_job(connection: Connection) -> None:
    (id_,) = add(connection, tenant="r42")
    owner = session(connection)
    job = take_one(connection, owner)
    try:
        raise ValueError("no luck")  # noqa: TRY301 - with a traceback
    except ValueError as error:
        end(connection, owner, [job], decided(error, policy=Backoff(0)))
    found = past(connection, id_)
    assert (found["state"], found["reason"], found["error_type"]) == ("dead", "failed 1 times", "ValueError")
    assert (found["error_message"], found["tenant"], counters(found)) == ("no luck", "r42", (1, 1, 0, 0, 0))
    assert "raise ValueError" in found["traceback"]
    assert one(connection, "select count(*) from sereno.history_dead") == 1


def test_a_job_settles_with_any_reason_of_its_handler(connection: Connection) -> None:
    reasons: list[Any] = ["a\x00b", "\ud800", 404, "x" * 100_000, ValueError("no")]
    kinds: list[type[Dead | Cancel | Retry]] = [Dead, Cancel, Retry]
    owner = session(connection)
    for kind in kinds:
        for reason in reasons:
            (id_,) = add(connection)
            assert end(connection, owner, [take_one(connection, owner)], decided(kind(reason))) == {id_}


def test_a_job_that_was_asked_to_stop_is_not_retried(connection: Connection, subtests: pytest.Subtests) -> None:
    endings: list[Ending] = [Retry("busy"), Snooze("1m"), ReleasedAttempt("shutdown"), CrashedAttempt("killed")]
    for ending in endings:
        with subtests.test(ending=ending), connection.transaction(force_rollback=True):
            (id_,) = add(connection, unique_key="k")
            owner = session(connection)
            job = take_one(connection, owner)
            do(connection, keep_step(owner, id_, 1, "pay", b"1"))
            assert do(connection, transitions.cancel([id_], "operator")) == ([], [id_])
            assert end(connection, owner, [job], decided(ending)) == {id_}
            found = past(connection, id_)
            assert (found["state"], found["attempt"], found["session_id"]) == ("cancelled", 1, owner)
            assert tries(connection, id_) == []
            assert (
                one(connection, "select (select count(*) from sereno.jobs) + (select count(*) from sereno.steps)") == 0
            )


def test_steps_and_progress_outlive_a_release_and_end_with_the_job(connection: Connection) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, keep_step(owner, id_, 1, "pay", b'{"paid":true}'))
    assert do(connection, report_progress(owner, id_, 1, 0.5, "half"))
    end(connection, owner, [job], decided(ReleasedAttempt("shutdown")))
    do(connection, forget_side_rows([id_]))
    assert {name: step.result for name, step in do(connection, steps(id_)).items()} == {"pay": {"paid": True}}
    assert do(connection, report_progress(owner, id_, 2, 0.1, None)) is False
    end(connection, owner, [take_one(connection, owner)], decided())
    do(connection, forget_side_rows([id_]))
    assert do(connection, steps(id_)) == {}
    assert one(connection, "select count(*) from sereno.progress") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending", [None, Dead("closed"), ReleasedAttempt("shutdown")], ids=["success", "dead", "cancelled"]
)
def test_steps_written_during_a_settlement_are_deleted_with_the_job(
    connection: Connection, database_url: str, ending: Ending
) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    if isinstance(ending, ReleasedAttempt):
        do(connection, transitions.cancel([id_], "operator"))
    item = settled(job, decided(ending), side_rows=True)
    applied: list[set[int]] = []

    def settle_job() -> None:
        with line(database_url) as own, own.transaction():
            applied.append(do(own, settle(item.way, owner, [item])))

    with line(database_url) as handler:
        with handler.transaction():
            do(handler, keep_step(owner, id_, 1, "pay", b"1"))
            assert do(handler, report_progress(owner, id_, 1, 0.5, "half"))
            thread = Thread(target=settle_job)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert applied == [{id_}]
    assert one(connection, "select (select count(*) from sereno.steps) + (select count(*) from sereno.progress)") == 0


def test_progress_after_the_settlement_is_not_written(connection: Connection, database_url: str) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    written: list[bool] = []

    def report() -> None:
        with line(database_url) as own:
            written.append(do(own, report_progress(owner, id_, 1, 0.5, "half")))

    with line(database_url) as settler:
        with settler.transaction():
            do(settler, settle("succeed", owner, [settled(job, decided(), side_rows=True)]))
            thread = Thread(target=report)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert written == [False]
    assert one(connection, "select count(*) from sereno.progress") == 0
