"""Statistics by minute: added to by every worker, read in steps, with quantiles from buckets."""

import psycopg
import pytest

from sereno import Dead, Sereno
from sereno.database.statement import run
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import quantile
from sereno.telemetry.metrics import BUCKETS, MetricTally
from tests.facts import advance, auntil, one


def tally(*jobs: tuple[str, str, float, str | None]) -> MetricTally:
    found = MetricTally()
    for task, outcome, ran, tenant in jobs:
        found.job("default", task, outcome, 0.02, ran, tenant)
    return found


def test_two_workers_add_to_the_same_minute(connection: psycopg.Connection) -> None:
    first = tally(("a", "succeeded", 0.2, "t"), ("a", "retry", 0.2, "t"), ("b", "dead", 3, None))
    second = tally(("a", "succeeded", 40.0, "u"), ("a", "snooze", 0.1, None))
    # Half a minute before the next minute begins.
    advance(connection, (30 - one(connection, "select extract(epoch from sereno.now())::float")) % 60)
    run(connection, minute_stats.add(first))
    run(connection, minute_stats.add(second))
    (found,) = run(connection, minute_stats.read(600))
    assert (found.succeeded, found.retried, found.dead, found.other) == (2, 1, 1, 1)
    assert (sum(found.waits), sum(found.runs)) == (5, 5)
    # The statement lists every bucket: a new bucket must be added there too.
    assert len(found.waits) == len(found.runs) == len(BUCKETS) + 1
    (of_b,) = run(connection, minute_stats.read(600, task="b"))
    assert (of_b.dead, of_b.run_seconds) == (1, 3.0)
    by_tenant = [(line.tenant, line.ended, line.failed) for line in run(connection, minute_stats.tenants(3600))]
    assert by_tenant == [("u", 1, 0), ("t", 2, 1)]


def test_minutes_are_read_in_steps_and_deleted_after_retention(connection: psycopg.Connection) -> None:
    for _ in range(3):
        run(connection, minute_stats.add(tally(("a", "succeeded", 0.2, "t"))))
        advance(connection, 600)
    assert [line.succeeded for line in run(connection, minute_stats.read(3600))] == [1, 1, 1]
    assert sum(line.succeeded for line in run(connection, minute_stats.read(7200, step=7200))) == 3
    advance(connection, 9 * 86400)
    run(connection, minute_stats.forget())
    assert one(connection, "select count(*) from sereno.minutes") == 0


def test_a_quantile_lies_in_its_bucket(subtests: pytest.Subtests) -> None:
    for share, low, high in [(0.5, 0.05, 0.1), (0.95, 0.5, 1.0), (1.0, 0.5, 1.0)]:
        with subtests.test(share=share, low=low, high=high):
            counts = [0] * (len(BUCKETS) + 1)
            counts[BUCKETS.index(0.1)], counts[BUCKETS.index(1.0)] = 80, 20
            found = quantile(counts, share)
            assert found is not None
            assert low < found <= high
            assert quantile([0] * len(counts), share) is None


async def test_a_worker_writes_the_statistics_of_its_attempts(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(number: int) -> None:
        if number == 3:
            raise Dead("no")

    async with app.working():
        for number in range(5):
            await work.using(tenant="t").aenqueue(number)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = 'work'") == 0)
    (found,) = run(connection, minute_stats.read(600, task="work"))
    assert (found.succeeded, found.dead, sum(found.runs)) == (4, 1, 5)
    assert one(connection, "select ended from sereno.tenant_hours where tenant = 't'") == 5
