"""`sereno.settle_jobs` writes the same as the Python worker, and refuses invalid outcomes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from sereno import Cancel, Dead, Retry, Snooze
from sereno.jobs import settlement, transitions
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement
from sereno.jobs.retry import Backoff
from sereno.jobs.settlement import SettleResult as Ended
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, decided, do, past, session, take_one, tries
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome, snapshot


def raised(error: Exception) -> Exception:
    """Return the error with a traceback."""
    try:
        raise error  # noqa: TRY301 - for its traceback
    except Exception as caught:  # noqa: BLE001 - any exception
        return caught


CASES: dict[str, tuple[Ending, Backoff]] = {
    "success": (None, Backoff()),
    "retry": (raised(ValueError("no luck")), Backoff()),
    "retry requested": (Retry("busy", after=30), Backoff()),
    "last failure": (raised(ValueError("no luck")), Backoff(0)),
    "snooze": (Snooze("1m", reason="later"), Backoff()),
    "release": (ReleasedAttempt("shutdown"), Backoff()),
    "crash": (CrashedAttempt("killed"), Backoff()),
    "dead": (Dead("account closed"), Backoff()),
    "permanent": (raised(ValueError("no luck")), Backoff(permanent=(ValueError,))),
    "cancelled": (Cancel("not wanted"), Backoff()),
}


def as_outcome(decision: Settlement, policy: Backoff) -> dict[str, Any]:
    """Return the outcome that a worker in another language sends for this ending, without optional fields."""
    found = decision.error
    given: dict[str, Any] = {}
    if found is not None:
        given = {"error_type": found.kind, "error_message": found.message, "traceback": found.traceback}
    if decision.reason == "failed 1 times":
        return {"name": "retry", "retries": policy.retries, **given}
    if decision.outcome in ("retry", "snooze", "crash"):
        given["delay"] = decision.delay
    if not (decision.reason or "").startswith("permanent error"):
        given["reason"] = decision.reason
    return {"name": decision.outcome, **given}


# Columns that differ between two equal jobs.
OWN = {
    "id",
    "job_id",
    "session_id",
    "ready_seq",
    "args",
    "started_at",
    "finished_at",
    # The partition key of an attempt is derived from finished_at.
    "partition_at",
    "run_at",
    "created_at",
    "claimed_at",
}
TABLES = {"jobs": "id", "history": "id", "attempts": "job_id", "schedule_ends": "job_id", "steps": "job_id"}


def everything(connection: Connection, job_id: int) -> dict[str, list[dict[str, Any]]]:
    """Return all rows about a job, with times relative to the settlement, so that they can be compared."""
    found = {}
    settled = one(connection, "select max(finished_at) from sereno.attempts where job_id = %s", job_id)
    for table, column in TABLES.items():
        cursor = connection.execute(f"select * from sereno.{table} where {column} = %s".encode(), [job_id])
        names = [each.name for each in cursor.description or ()]
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
        found[table] = [
            {name: _comparable(name, value, each) for name, value in each.items() if name not in OWN}
            | _wait(each, settled)
            for each in rows
        ]
    return found


def _comparable(name: str, value: Any, _: dict[str, Any]) -> Any:
    return value is not None if name == "fingerprint" else value


def _wait(of: dict[str, Any], settled: datetime | None) -> dict[str, Any]:
    """Return how long after the end of its attempt the job is due."""
    if of.get("state") != "scheduled" or settled is None:
        return {}
    return {"wait": of["run_at"] - settled}


def prepared(connection: Connection, *, crashes: int = 0, stopping: bool = False) -> Callable[[], None]:
    """Create two equal jobs of a schedule, with every option."""
    add(connection, 2, tenant="r42", trace="t", tags=["a"], priority=2)
    connection.execute(
        "update sereno.jobs set schedule_id = 7, planned_at = run_at, stands_for = 1, crashes = %s", [crashes]
    )

    def claimed() -> None:
        connection.execute(
            "insert into sereno.steps (job_id, name, attempt, result) select id, 'pay', 1, '1' from sereno.jobs"
        )
        connection.execute("update sereno.jobs set cancel_requested = %s where state = 'running'", [stopping])

    return claimed


@pytest.mark.slow
def test_every_outcome_is_written_as_by_the_python_worker(connection: Connection, subtests: pytest.Subtests) -> None:
    for case, crashes, stopping in product(CASES, (0, 2), (False, True)):
        with (
            subtests.test(case=case, crashes=crashes, stopping=stopping),
            connection.transaction(force_rollback=True),
        ):
            ending, policy = CASES[case]
            claimed = prepared(connection, crashes=crashes, stopping=stopping)
            decision = decided(ending, crashes=crashes, policy=policy)
            owner = session(connection)
            by_python = take_one(connection, owner)
            worker = SqlWorker(connection)
            (by_sql,) = worker.claim(1)
            claimed()
            item = Ended(
                by_python.id,
                by_python.attempt,
                0.0,
                decision,
                fingerprint="f" if decision.outcome in ("retry", "crash", "dead") else None,
            )
            assert do(connection, settlement.settle(item.way, owner, [item])) == {by_python.id}
            do(connection, settlement.forget_side_rows([by_python.id]))
            given = as_outcome(decided(ending, policy=policy), policy)
            assert [each.settled for each in worker.settle(outcome(by_sql, **given))] == [True]
            assert everything(connection, by_sql.id) == everything(connection, by_python.id)


def test_a_success_by_sql_without_history_leaves_no_row(connection: Connection) -> None:
    add(connection)
    worker = SqlWorker(connection, lease="1 hour")
    worker.end(worker.claim(), "retry", delay=1)
    advance(connection, 2)
    (settled,) = worker.settle(outcome(worker.claim()[0], history=False))
    assert (settled.settled, settled.state) == (True, "succeeded")
    for table in ("jobs", "history", "attempts"):
        assert one(connection, f"select count(*) from sereno.{table}") == 0


def test_retries_without_a_delay_back_off_until_the_job_is_dead(connection: Connection) -> None:
    (id_,) = add(connection)
    worker = SqlWorker(connection, lease="1 hour")
    waits = []
    while True:
        (settled,) = worker.settle(outcome(worker.claim()[0], "retry", error_type="Error"))
        if settled.state == "dead":
            break
        failed = one(connection, "select max(finished_at) from sereno.attempts")
        waits.append((settled.run_at - failed).total_seconds())
        advance(connection, waits[-1] + 1)
    for wait, planned in zip(waits, [60, 120, 240, 480, 960, 1920, *[3600] * 4], strict=True):
        assert planned <= wait <= planned * 1.1
    assert (past(connection, id_)["failures"], past(connection, id_)["reason"]) == (11, "failed 11 times")


def test_a_job_is_dead_after_the_third_crash(connection: Connection) -> None:
    (id_,) = add(connection)
    worker = SqlWorker(connection, lease="1 hour")
    for _ in range(3):
        (job,) = worker.claim()
        worker.end([job], "crash", reason="it was killed", delay=0)
    assert past(connection, id_)["reason"] == "crash loop: it was killed, 3 times"
    assert (job.crashes, tries(connection, id_)) == (2, [(1, "crash"), (2, "crash")])


def test_a_snooze_until_a_time_is_scheduled_for_it(connection: Connection) -> None:
    add(connection)
    worker = SqlWorker(connection)
    until = one(connection, "select sereno.now()") + timedelta(hours=2)
    (settled,) = worker.settle(outcome(worker.claim()[0], "snooze", until=until.isoformat()))
    assert (settled.state, settled.run_at) == ("scheduled", until)


def test_the_start_follows_from_the_run_time_and_is_never_before_the_claim(connection: Connection) -> None:
    add(connection, 2)
    worker = SqlWorker(connection, lease="1 hour")
    first, second = worker.claim()
    advance(connection, 60)
    worker.settle(outcome(first, seconds=10), outcome(second, seconds=1000))
    ran = past(connection, first.id)["finished_at"] - past(connection, first.id)["started_at"]
    assert ran == timedelta(seconds=10)
    assert past(connection, second.id)["started_at"] == second.claimed_at


def test_a_requeued_job_continues_its_attempts(connection: Connection) -> None:
    (id_,) = add(connection)
    worker = SqlWorker(connection)
    worker.end(worker.claim(), "dead", reason="no")
    assert do(connection, transitions.requeue([id_])) == [id_]
    (job,) = worker.claim()
    assert job.attempt == 2
    assert worker.end([job]) == [True]
    assert tries(connection, id_) == [(1, "dead")]


ONE = {"id": 1, "attempt": 1, "outcome": "succeeded"}


INVALID_OUTCOMES: tuple[tuple[list[Any], str], ...] = (
    ([7], "this is not an object: 7"),
    ([{"attempt": 1, "outcome": "dead"}], "the id and the attempt must be as"),
    ([{"id": 1, "outcome": "dead"}], "the id and the attempt must be as"),
    ([{"id": 1, "attempt": 1}], "job 1: it cannot end as null"),
    ([ONE | {"outcome": "done"}], 'job 1: it cannot end as "done"'),
    ([ONE, ONE], "job 1: it is listed twice"),
    ([ONE | {"id": "1"}], 'job 1: "id" cannot be "1"'),
    ([ONE | {"dealy": 5}], 'job 1: "dealy" cannot be 5'),
    ([ONE | {"delay": "NaN"}], 'job 1: "delay" cannot be "NaN"'),
    ([ONE | {"delay": -1}], "are not negative"),
    ([ONE | {"delay": 1e300}], "are not negative, and not more"),
    ([ONE | {"seconds": 1e12}], "are not negative, and not more"),
    ([ONE | {"outcome": "snooze"}], "a snooze needs a delay, or until"),
    ([ONE | {"outcome": "snooze", "until": "infinity"}], "until is out of range"),
    ([ONE | {"reason": {"a": 1}}], 'job 1: "reason" cannot be {"a": 1}'),
    ([ONE | {"history": "no"}], 'job 1: "history" cannot be "no"'),
    ([ONE] * 1001, "there are more than 1000"),
)


@pytest.mark.slow
def test_invalid_outcomes_are_refused_and_nothing_is_changed(connection: Connection, subtests: pytest.Subtests) -> None:
    add(connection)
    worker = SqlWorker(connection)
    (job,) = worker.claim()
    assert job.id == 1
    before = snapshot(connection)
    for given, message in INVALID_OUTCOMES:
        with subtests.test(message=message, first=given[0]):
            with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
                worker.settle(*given)
            assert message in str(refused.value)
            assert "nothing was changed" in str(refused.value.diag.message_hint)
            assert snapshot(connection) == before


def test_outcomes_that_are_not_a_list_are_refused(connection: Connection, subtests: pytest.Subtests) -> None:
    worker = SqlWorker(connection)
    for text in ["null", "{}", '"x"', "7", None]:
        refused = pytest.raises(psycopg.errors.InvalidParameterValue, match="they are not a list")
        with subtests.test(text=text), refused:
            worker.query("select sereno.settle_jobs(%s, %s::jsonb)", [worker.session, text])


def test_texts_that_are_too_long_are_truncated(connection: Connection) -> None:
    (id_,) = add(connection)
    worker = SqlWorker(connection)
    long = "é" * 100_000
    worker.end(
        worker.claim(),
        "dead",
        reason=long,
        error_type=long,
        error_message=long,
        traceback=long + "the cause",
        frame=long,
    )
    found = past(connection, id_)
    assert [len(found[name]) for name in ("reason", "error_type", "error_message", "traceback")] == [
        4000,
        200,
        4000,
        16000,
    ]
    assert found["traceback"].endswith("the cause")
