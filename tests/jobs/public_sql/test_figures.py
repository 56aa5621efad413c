"""Attempts settled by SQL are counted in the statistics."""

from sereno.jobs.queries import error_groups, minute_stats
from sereno.telemetry.metrics import BUCKETS
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, do, past
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome


def test_ended_attempts_are_counted_after_a_heartbeat(connection: Connection) -> None:
    add(connection, 6, tenant="r42")
    worker = SqlWorker(connection, lease="1 hour")
    claimed = worker.claim()
    advance(connection, 20)
    names = ["succeeded", "retry", "crash", "dead", "cancelled", "snooze"]
    worker.settle(*(outcome(job, name, seconds=2, delay=60) for job, name in zip(claimed, names, strict=True)))
    assert worker.beat().alive
    for rows in (do(connection, minute_stats.read(600)), do(connection, minute_stats.read(86400, step=600))):
        (found,) = rows
        assert (found.succeeded, found.retried, found.dead, found.cancelled, found.other) == (1, 2, 1, 1, 1)
        assert (sum(found.waits), found.runs[BUCKETS.index(2.5)], found.run_seconds) == (6, 6, 12.0)
    (tenant,) = do(connection, minute_stats.tenants(3600))
    assert (tenant.tenant, tenant.ended, tenant.failed, tenant.seconds) == ("r42", 6, 5, 12.0)
    assert one(connection, "select count(*) from sereno.ended_attempts") == 0
    worker.beat()
    assert do(connection, minute_stats.read(600))[0].run_seconds == 12.0


def test_the_buckets_are_those_of_the_metrics(connection: Connection) -> None:
    for index, edge in enumerate(BUCKETS):
        for value, expected in ((edge, index), (edge * 1.0001, index + 1)):
            found = one(connection, "select sereno.bucket(%s)", value)
            assert (len(found), sum(found), found.index(1)) == (len(BUCKETS) + 1, 1, expected)


def test_failures_are_found_by_fingerprint(connection: Connection) -> None:
    add(connection, 3, tenant="r42")
    worker = SqlWorker(connection)
    first, second, third = worker.claim()
    worker.settle(
        outcome(
            first, "retry", error_type="Refused", error_message='order 4711 of "ana" not paid', frame="pay.js:charge"
        ),
        outcome(
            second, "dead", error_type="Refused", error_message='order 4712 of "bob" not paid', frame="pay.js:charge"
        ),
        outcome(third, "dead", error_type="Refused", error_message="no such account", frame="pay.js:charge"),
    )
    worker.close()
    groups = {group.count: group for group in do(connection, error_groups.list_groups(3600))}
    assert set(groups) == {1, 2}
    kind = groups[2]
    assert (kind.task, kind.error_type, kind.frame, kind.last_job_id) == ("work", "Refused", "pay.js:charge", second.id)
    assert one(connection, "select fingerprint from sereno.attempts where job_id = %s", first.id) == kind.fingerprint
    assert past(connection, second.id)["fingerprint"] == kind.fingerprint
    (hit,) = do(connection, error_groups.tenants(kind.fingerprint, 3600, 10))
    assert (hit.tenant, hit.count) == ("r42", 2)
    found = do(connection, error_groups.sample(kind.fingerprint, second.id))
    assert found is not None
    assert found.error_message == 'order 4712 of "bob" not paid'


def test_successes_by_sql_are_counted_by_their_number_of_attempts(connection: Connection) -> None:
    add(connection, 2)
    worker = SqlWorker(connection, lease="1 hour")
    first, second = worker.claim()
    worker.settle(outcome(first), outcome(second, "retry", delay=1))
    advance(connection, 2)
    worker.end(worker.claim())
    worker.beat()
    assert do(connection, error_groups.tries("work", 3600)) == [1, 1, *[0] * 9]


def test_tenants_beyond_a_hundred_are_counted_without_a_name(connection: Connection) -> None:
    worker = SqlWorker(connection)
    for tenants in (range(150), range(140, 160)):
        for tenant in tenants:
            add(connection, tenant=f"t{tenant:03}")
        worker.end(worker.claim(1000), "dead", error_type="Refused")
        worker.beat()
    (kind,) = do(connection, error_groups.list_groups(3600))
    assert kind.count == 170
    found = {hit.tenant: hit.count for hit in do(connection, error_groups.tenants(kind.fingerprint, 3600, 200))}
    assert (len(found), found[None], found["t000"]) == (101, 70, 1)


def test_a_stalled_transaction_that_holds_figures_is_ended(connection: Connection) -> None:
    """All workers write the same rows of figures: a heartbeat in an open transaction would block them."""
    add(connection)
    worker = SqlWorker(connection)
    worker.end(worker.claim())
    with connection.transaction():
        worker.beat()
        assert one(connection, "show idle_in_transaction_session_timeout") == "10s"
