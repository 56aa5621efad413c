"""Each invariant is violated once and reported."""

import psycopg
import pytest

from sereno.database.driver import drive
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.filters import JobFilter
from sereno.monitoring.invariants import INVARIANTS
from sereno.monitoring.verify import verify
from tests.manual_worker import ManualWorker
from tests.monitoring.verify_steps import LEASE, broken, broken_inside, undone


def _broken(manual: ManualWorker, window: int | None = 1000) -> dict[str, list[int]]:
    return broken(manual.app, window)


def _free_of_constraints(manual: ManualWorker) -> psycopg.Connection:
    for name in ("jobs_state", "jobs_priority", "jobs_dates"):
        manual.connection.execute(f"alter table sereno.jobs drop constraint {name}")
    return manual.connection


def _copy_of_history(manual: ManualWorker, job_id: int, **changes: str) -> None:
    columns = [
        row[0]
        for row in manual.connection.execute(
            "select attname from pg_attribute where attrelid = 'sereno.history'::regclass and attnum > 0"
        )
    ]
    values = ", ".join(changes.get(column, column) for column in columns)
    manual.connection.execute(
        f"insert into sereno.history ({', '.join(columns)}) select {values} from sereno.history where id = {job_id}"
    )


@pytest.mark.slow
def test_a_system_in_use_violates_nothing(manual: ManualWorker) -> None:
    session = manual.worker()
    manual.enqueue(unique_key="k")
    manual.enqueue(delay="1h")
    manual.finish(SUCCEEDED)
    cancelled = manual.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    drive(jobs.cancel(JobFilter(ids=[cancelled])), manual.app.database.run)
    retried = manual.dead()
    drive(jobs.retry(JobFilter(ids=[retried])), manual.app.database.run)
    manual.claim(session)
    assert _broken(manual, None) == {}
    checked = manual.app.database.run(verify(lease=LEASE))
    assert {result.name for result in checked} == {*INVARIANTS, "schema_checksum"}


@pytest.mark.slow
def test_a_running_job_of_a_dead_session_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.claim(1)
    manual.connection.execute("update sereno.jobs set claimed_at = now() - interval '10 minutes'")
    assert _broken(manual) == {}
    for change in (
        "update sereno.sessions set state = 'dead', ended_at = now() - interval '41 seconds'",
        "update sereno.sessions set lease_until = now() - interval '41 seconds'",
        "delete from sereno.sessions",
    ):
        with subtests.test(change=change), undone(manual.connection):
            manual.connection.execute(change)
            assert broken_inside(manual.connection) == {"orphaned": [job_id]}


def test_a_session_that_has_just_died_is_tolerated(manual: ManualWorker) -> None:
    manual.worker()
    manual.enqueue()
    manual.claim(1)
    manual.connection.execute("update sereno.sessions set state = 'dead', ended_at = now() - interval '35 seconds'")
    assert _broken(manual) == {}


def test_a_live_and_finished_job_is_reported(manual: ManualWorker) -> None:
    job_id = manual.dead()
    manual.connection.execute(
        "insert into sereno.jobs (id, task, state, ready_seq, attempt) values (%s, 'greet', 'ready', 1, 1)", [job_id]
    )
    assert _broken(manual) == {"live_and_finished": [job_id]}


def test_a_job_finished_twice_is_reported(manual: ManualWorker) -> None:
    job_id = manual.dead()
    _copy_of_history(manual, job_id)
    assert _broken(manual) == {"finished_twice": [job_id]}


def _attempt(manual: ManualWorker, job_id: int, number: int, *, ended: str = "now() - interval '1 hour'") -> None:
    manual.connection.execute(
        f"""insert into sereno.attempts (job_id, number, started_at, finished_at, outcome)
            values ({job_id}, {number}, {ended}, {ended}, 'retry')"""
    )


def test_an_attempt_beyond_the_current_one_is_reported(manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    _attempt(manual, job_id, 1)
    assert _broken(manual) == {"attempts_of_live_jobs": [job_id]}


def test_a_running_attempt_that_is_recorded_as_ended_is_reported(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.claim(1)
    _attempt(manual, job_id, 1)
    assert _broken(manual) == {"attempts_of_live_jobs": [job_id]}


@pytest.mark.slow
def test_an_attempt_number_used_twice_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    job_id = manual.dead()
    for number in (1, 2):
        with subtests.test(number=number), undone(manual.connection):
            _attempt(manual, job_id, number)
            assert broken_inside(manual.connection) == {"attempts_of_finished_jobs": [job_id]}


def test_an_attempt_recorded_on_two_days_is_reported(manual: ManualWorker) -> None:
    job_id = manual.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    assert _broken(manual) == {}
    manual.connection.execute(
        "insert into sereno.attempts (job_id, number, started_at, finished_at, outcome, partition_at) "
        "select job_id, number, started_at, finished_at, outcome, partition_at + interval '1 day' from sereno.attempts"
    )
    assert _broken(manual) == {"attempts_once": [job_id]}


@pytest.mark.slow
def test_a_waiting_job_with_a_session_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    job_id = manual.enqueue()
    _free_of_constraints(manual)
    for state in ("'ready', session_id = 1", "'running', session_id = null"):
        with subtests.test(state=state), undone(manual.connection):
            manual.connection.execute(f"update sereno.jobs set state = {state}")
            assert broken_inside(manual.connection)["sessions_of_jobs"] == [job_id]


def test_a_ready_job_without_a_position_is_reported(manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    _free_of_constraints(manual).execute("update sereno.jobs set ready_seq = null")
    assert _broken(manual) == {"ready_order": [job_id]}


def test_an_unknown_state_is_reported(manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    _free_of_constraints(manual).execute("update sereno.jobs set state = 'lost'")
    assert _broken(manual) == {"known_states": [job_id]}


def test_two_live_jobs_with_one_unique_key_are_reported(manual: ManualWorker) -> None:
    first = manual.enqueue(unique_key="k")
    manual.connection.execute("drop index sereno.jobs_unique")
    manual.connection.execute(
        "insert into sereno.jobs (task, unique_key, state, ready_seq) values ('greet', 'k', 'ready', 1)"
    )
    assert _broken(manual) == {"unique_live_keys": [first]}


def test_a_stored_key_of_two_jobs_is_reported(manual: ManualWorker) -> None:
    manual.connection.execute("alter table sereno.unique_keys drop constraint unique_keys_key")
    manual.connection.execute(
        "insert into sereno.unique_keys values ('t', 'k', null, 1, 'infinity'), ('t', 'k', null, 2, 'infinity')"
    )
    assert _broken(manual) == {"unique_stored_keys": [1]}


@pytest.mark.slow
def test_a_job_finished_before_it_began_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    job_id = manual.dead()
    for column in ("created_at", "started_at"):
        with subtests.test(column=column), undone(manual.connection):
            manual.connection.execute(f"update sereno.history set {column} = finished_at + interval '1 minute'")
            assert broken_inside(manual.connection) == {"times_in_order": [job_id]}


def test_jobs_beyond_the_crash_limit_are_reported(manual: ManualWorker) -> None:
    live = manual.enqueue()
    dead = manual.dead()
    manual.connection.execute("update sereno.jobs set crashes = 4")
    manual.connection.execute("update sereno.history set crashes = 4")
    assert _broken(manual) == {"crash_limit": [live, dead]}


def test_a_dead_job_without_a_reason_is_reported(manual: ManualWorker) -> None:
    job_id = manual.dead()
    manual.connection.execute("update sereno.history set reason = null")
    assert _broken(manual) == {"dead_with_reason": [job_id]}


@pytest.mark.slow
def test_a_retry_before_its_time_is_reported(manual: ManualWorker) -> None:
    session = manual.worker()
    job_id = manual.enqueue()
    (job,) = manual.claim(session)
    manual.settle(session, job, Settlement("retry", error=describe(OSError("x"))))
    (job,) = manual.claim(session)
    assert _broken(manual) == {}
    manual.connection.execute("update sereno.attempts set finished_at = finished_at + interval '1 minute'")
    assert _broken(manual) == {"retry_never_early": [job_id]}
    manual.settle(session, job, SUCCEEDED)
    assert _broken(manual) == {"retry_never_early": [job_id]}


@pytest.mark.slow
def test_steps_and_progress_of_an_ended_job_are_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    """They are deleted in the transaction that ends the job, so no tolerance is needed."""
    for row in (
        "steps values (77, 'charged', 1, 'null', now())",
        "progress values (77, 1, 0.5, null, now())",
        "signal_waits values (77, 'paid', null, now(), now())",
    ):
        with subtests.test(row=row), undone(manual.connection):
            manual.connection.execute(f"insert into sereno.{row}")
            assert broken_inside(manual.connection) == {"side_rows": [77]}


def test_a_job_that_waits_for_a_signal_that_was_sent_is_reported(manual: ManualWorker) -> None:
    job_id = manual.enqueue(delay="1h")
    manual.connection.execute("select sereno.signal('paid')")
    manual.connection.execute(
        "insert into sereno.signal_waits (job_id, name, since, until, attempt) "
        "select id, 'paid', created_at, run_at, attempt from sereno.jobs"
    )
    # The next check of a worker delivers it.
    assert _broken(manual) == {}
    manual.connection.execute("update sereno.signals set is_checked = true")
    assert _broken(manual) == {"signals_delivered": [job_id]}


@pytest.mark.slow
def test_a_cursor_that_no_attempt_can_have_stored_is_reported(manual: ManualWorker, subtests: pytest.Subtests) -> None:
    job_id = manual.enqueue()
    manual.claim(manual.worker())
    whole = '{"cursor": 1, "items": 1, "done": false}'
    for attempt, result, expected in ((1, whole, {}), (2, whole, [job_id]), (0, whole, [job_id]), (1, "{}", [job_id])):
        with subtests.test(attempt=attempt, result=result), undone(manual.connection):
            manual.connection.execute(
                "insert into sereno.steps (job_id, name, attempt, result, is_cursor) values (%s, 'rows', %s, %s, true)",
                [job_id, attempt, result],
            )
            assert broken_inside(manual.connection) == ({"cursors_of_attempts": expected} if expected else {})


def test_a_changed_migration_is_reported(manual: ManualWorker) -> None:
    manual.connection.execute("update sereno.migrations set checksum = 'x' where number = 2")
    assert _broken(manual) == {"schema_checksum": [2]}


def test_at_most_twenty_violations_are_listed(manual: ManualWorker) -> None:
    manual.connection.execute(
        "insert into sereno.progress select n, 1, 0, null, now() - interval '1 hour' from generate_series(100, 200) n"
    )
    assert len(_broken(manual)["side_rows"]) == 20


@pytest.mark.slow
def test_jobs_outside_the_window_are_not_checked(manual: ManualWorker) -> None:
    old = manual.dead()
    manual.connection.execute("update sereno.history set reason = null")
    manual.dead()
    assert _broken(manual, window=1) == {}
    assert _broken(manual, window=None) == {"dead_with_reason": [old]}


def test_verify_is_read_only(manual: ManualWorker) -> None:
    operation = verify(lease=30.0)
    with manual.app.database.connection() as connection, connection.transaction():
        for _ in range(2):
            statement = next(operation)
            connection.execute(statement.text("sereno"), statement.params)
        assert connection.execute("show transaction_isolation").fetchone() == ("repeatable read",)
        assert connection.execute("show statement_timeout").fetchone() == ("1min",)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("delete from sereno.jobs")
