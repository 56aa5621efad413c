"""Every promise is planted broken once, and named."""

import psycopg
import pytest

from sereno.database.plan import carry_out
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.job_filter import JobFilter
from sereno.monitoring.invariants import PROMISES
from sereno.monitoring.verify import Proof, verify
from tests.operations.conftest import House


def _proofs(house: House, window: int | None = 1000) -> dict[str, Proof]:
    return {proof.name: proof for proof in house.app.database.run(verify(lease=30.0, window=window))}


def _broken(house: House, window: int | None = 1000) -> dict[str, list[int]]:
    return {
        name: [violation.id for violation in proof.violations]
        for name, proof in _proofs(house, window).items()
        if not proof.holds
    }


def _free_of_constraints(house: House) -> psycopg.Connection:
    for name in ("jobs_state", "jobs_priority", "jobs_dates"):
        house.connection.execute(f"alter table sereno.jobs drop constraint {name}")
    return house.connection


def _copy_of_history(house: House, job_id: int, **changes: str) -> None:
    columns = [
        row[0]
        for row in house.connection.execute(
            "select attname from pg_attribute where attrelid = 'sereno.history'::regclass and attnum > 0"
        )
    ]
    values = ", ".join(changes.get(column, column) for column in columns)
    house.connection.execute(
        f"insert into sereno.history ({', '.join(columns)}) select {values} from sereno.history where id = {job_id}"
    )


def test_a_house_in_use_keeps_every_promise(house: House) -> None:
    session = house.worker()
    house.enqueue(unique_key="k")
    house.enqueue(delay="1h")
    house.finish(SUCCEEDED)
    cancelled = house.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    carry_out(house.app.database, jobs.cancel(JobFilter(ids=[cancelled])))
    retried = house.dead()
    carry_out(house.app.database, jobs.retry(JobFilter(ids=[retried])))
    house.claim(session)
    assert _broken(house, None) == {}
    assert set(_proofs(house)) == {*PROMISES, "schema_checksum"}


@pytest.mark.parametrize(
    "change",
    [
        "update sereno.sessions set state = 'dead', ended_at = now() - interval '41 seconds'",
        "update sereno.sessions set lease_until = now() - interval '41 seconds'",
        "delete from sereno.sessions",
    ],
)
def test_a_running_job_of_a_dead_session(house: House, change: str) -> None:
    house.worker()
    job_id = house.enqueue()
    house.claim(1)
    house.connection.execute("update sereno.jobs set claimed_at = now() - interval '10 minutes'")
    assert _broken(house) == {}
    house.connection.execute(change)
    assert _broken(house) == {"orphaned": [job_id]}


def test_a_session_that_has_just_died_is_given_time(house: House) -> None:
    house.worker()
    house.enqueue()
    house.claim(1)
    house.connection.execute("update sereno.sessions set state = 'dead', ended_at = now() - interval '35 seconds'")
    assert _broken(house) == {}


def test_alive_and_finished(house: House) -> None:
    job_id = house.dead()
    house.connection.execute(
        "insert into sereno.jobs (id, task, state, ready_seq, attempt) values (%s, 'greet', 'ready', 1, 1)", [job_id]
    )
    assert _broken(house) == {"live_and_finished": [job_id]}


def test_finished_twice(house: House) -> None:
    job_id = house.dead()
    _copy_of_history(house, job_id)
    assert _broken(house) == {"finished_twice": [job_id]}


def _attempt(house: House, job_id: int, number: int, *, ended: str = "now() - interval '1 hour'") -> None:
    house.connection.execute(
        f"""insert into sereno.attempts (job_id, number, started_at, finished_at, outcome)
            values ({job_id}, {number}, {ended}, {ended}, 'retry')"""
    )


def test_an_attempt_of_a_live_job_that_has_not_been(house: House) -> None:
    job_id = house.enqueue()
    _attempt(house, job_id, 1)
    assert _broken(house) == {"attempts_of_live_jobs": [job_id]}


def test_the_running_attempt_is_recorded_already(house: House) -> None:
    house.worker()
    job_id = house.enqueue()
    house.claim(1)
    _attempt(house, job_id, 1)
    assert _broken(house) == {"attempts_of_live_jobs": [job_id]}


@pytest.mark.parametrize("number", [1, 2])
def test_an_attempt_number_used_again(house: House, number: int) -> None:
    job_id = house.dead()
    _attempt(house, job_id, number)
    assert _broken(house) == {"attempts_of_finished_jobs": [job_id]}


def test_an_attempt_that_is_recorded_on_two_days(house: House) -> None:
    job_id = house.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    assert _broken(house) == {}
    house.connection.execute(
        "insert into sereno.attempts (job_id, number, started_at, finished_at, outcome, kept_from) "
        "select job_id, number, started_at, finished_at, outcome, kept_from + interval '1 day' from sereno.attempts"
    )
    assert _broken(house) == {"attempts_once": [job_id]}


@pytest.mark.parametrize("state", ["'ready', session_id = 1", "'running', session_id = null"])
def test_a_session_where_none_belongs(house: House, state: str) -> None:
    job_id = house.enqueue()
    _free_of_constraints(house).execute(f"update sereno.jobs set state = {state}")
    assert _broken(house)["sessions_of_jobs"] == [job_id]


def test_ready_without_a_place(house: House) -> None:
    job_id = house.enqueue()
    _free_of_constraints(house).execute("update sereno.jobs set ready_seq = null")
    assert _broken(house) == {"ready_order": [job_id]}


def test_a_state_that_is_none(house: House) -> None:
    job_id = house.enqueue()
    _free_of_constraints(house).execute("update sereno.jobs set state = 'lost'")
    assert _broken(house) == {"known_states": [job_id]}


def test_two_live_jobs_with_one_key(house: House) -> None:
    first = house.enqueue(unique_key="k")
    house.connection.execute("drop index sereno.jobs_unique")
    house.connection.execute(
        "insert into sereno.jobs (task, unique_key, state, ready_seq) values ('greet', 'k', 'ready', 1)"
    )
    assert _broken(house) == {"unique_live_keys": [first]}


def test_a_kept_key_that_points_to_two(house: House) -> None:
    house.connection.execute("alter table sereno.unique_keys drop constraint unique_keys_key")
    house.connection.execute(
        "insert into sereno.unique_keys values ('t', 'k', null, 1, 'infinity'), ('t', 'k', null, 2, 'infinity')"
    )
    assert _broken(house) == {"unique_kept_keys": [1]}


@pytest.mark.parametrize("column", ["created_at", "started_at"])
def test_finished_before_it_began(house: House, column: str) -> None:
    job_id = house.dead()
    house.connection.execute(f"update sereno.history set {column} = finished_at + interval '1 minute'")
    assert _broken(house) == {"times_in_order": [job_id]}


def test_crashed_too_often(house: House) -> None:
    live = house.enqueue()
    dead = house.dead()
    house.connection.execute("update sereno.jobs set crashes = 4")
    house.connection.execute("update sereno.history set crashes = 4")
    assert _broken(house) == {"crash_limit": [live, dead]}


def test_dead_without_a_reason(house: House) -> None:
    job_id = house.dead()
    house.connection.execute("update sereno.history set reason = null")
    assert _broken(house) == {"dead_with_reason": [job_id]}


def test_an_early_retry(house: House) -> None:
    session = house.worker()
    job_id = house.enqueue()
    (job,) = house.claim(session)
    house.settle(session, job, Settlement("retry", error=describe(OSError("x"))))
    (job,) = house.claim(session)
    assert _broken(house) == {}
    house.connection.execute("update sereno.attempts set finished_at = finished_at + interval '1 minute'")
    assert _broken(house) == {"retry_never_early": [job_id]}
    house.settle(session, job, SUCCEEDED)
    assert _broken(house) == {"retry_never_early": [job_id]}


@pytest.mark.parametrize("table", ["steps", "progress"])
def test_what_a_job_left_behind(house: House, table: str) -> None:
    """They end in the transaction that ends the job, so there is no time in which they may be left."""
    values = "(77, 'charged', 1, 'null', now())" if table == "steps" else "(77, 1, 0.5, null, now())"
    house.connection.execute(f"insert into sereno.{table} values {values}")
    assert _broken(house) == {"side_rows": [77]}


def test_a_schema_that_is_not_ours(house: House) -> None:
    house.connection.execute("update sereno.migrations set checksum = 'x' where number = 2")
    assert _broken(house) == {"schema_checksum": [2]}


def test_no_more_than_twenty_are_listed(house: House) -> None:
    house.connection.execute(
        "insert into sereno.progress select n, 1, 0, null, now() - interval '1 hour' from generate_series(100, 200) n"
    )
    assert len(_broken(house)["side_rows"]) == 20


def test_the_window_bounds_what_is_read(house: House) -> None:
    old = house.dead()
    house.connection.execute("update sereno.history set reason = null")
    house.dead()
    assert _broken(house, window=1) == {}
    assert _broken(house, window=None) == {"dead_with_reason": [old]}


def test_it_can_change_nothing(house: House) -> None:
    operation = verify(lease=30.0)
    with house.app.database.connection() as connection, connection.transaction():
        for _ in range(2):
            statement = next(operation)
            connection.execute(statement.text("sereno"), statement.params)
        assert connection.execute("show transaction_isolation").fetchone() == ("repeatable read",)
        assert connection.execute("show statement_timeout").fetchone() == ("1min",)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("delete from sereno.jobs")
