"""The claimer of jobs with limits remembers which limiters came free, and notices limits that were changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sereno import Limit
from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs.limits.lane_claim import FreeProcesses
from sereno.jobs.transitions import ClaimResult
from sereno.settings import Settings
from sereno.worker.claiming.lane_claimer import LaneClaimer
from tests.facts import one
from tests.jobs.job_steps import decided, end, line, session, wanted
from tests.jobs.limits.lane_steps import keys, put, set_limit

ONE = keys(("one", ""))
# Seconds of lease, longer than any test.
LONG = 1e6
# Ends the connections of all others to this database, and waits until they are gone.
DISCONNECT = (
    "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
    "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
)
WANTED = [wanted(5) | {"now": 5}]
FREE = FreeProcesses((), 5, {"default": 5})


@asynccontextmanager
async def lane_claimer(url: str, owner: int) -> AsyncIterator[LaneClaimer]:
    connection = ServiceConnection(url, Settings(), "worker")
    try:
        yield LaneClaimer(connection, connection, owner, ["work"], lambda: None)
    finally:
        await connection.close()


async def test_a_worker_checks_lanes_again_after_a_limit_was_changed(database_url: str) -> None:
    """A claim that had read the old limit makes its lane wait after the change has looked for waiting lanes."""
    with line(database_url) as own:
        set_limit(own, "one", Limit(0))
        before = one(own, "select changed_at from sereno.limits")
        async with lane_claimer(database_url, session(own)) as claimer:
            await claimer.learn(ClaimResult([], limits_changed_at=before), back=False)
            put(own, ONE)
            own.execute("update sereno.limits set slots = 1, changed_at = sereno.clock_now()")
            own.execute("select sereno.open_lanes(0)")
            own.execute("update sereno.limiters set check_at = sereno.now() + interval '5 seconds'")
            after = one(own, "select changed_at from sereno.limits")
            await claimer.learn(ClaimResult([], limits_changed_at=after), back=False)
        assert one(own, "select check_at <= sereno.clock_now() from sereno.limiters")


async def test_a_failed_claim_keeps_the_limiters_that_its_jobs_left(database_url: str) -> None:
    with line(database_url) as own:
        set_limit(own, "one", Limit(1))
        first, second = put(own, ONE, 2)
        owner = session(own, lease=LONG)
        async with lane_claimer(database_url, owner) as claimer:
            await claimer.learn(ClaimResult([], has_wakes=True), back=True)
            got = (await claimer.claim(WANTED, FREE, turned=False)).jobs
            assert [job.id for job in got] == [first]
            claimer.settled([first], end(own, owner, got, decided()))
            # Only this worker knows that the limiter is free.
            own.execute("update sereno.limiters set check_at = sereno.now() + interval '1 hour'")
            own.execute(DISCONNECT)
            with pytest.raises(DatabaseUnavailable):
                await claimer.claim(WANTED, FREE, turned=False)
            got = (await claimer.claim(WANTED, FREE, turned=False)).jobs
        assert [job.id for job in got] == [second]
