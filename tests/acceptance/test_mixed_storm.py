"""Python and SQL workers on one queue, some of which die while they hold jobs: every effect happens once."""

import random
import threading
from collections.abc import Callable

import psycopg
import pytest

from sereno.database.statement import run
from sereno.jobs.limits.limit import Limit
from sereno.jobs.transitions import enqueue
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until
from tests.jobs.limits.lane_steps import keys, limited_job, set_limit
from tests.jobs.public_sql.sql_worker import Claimed, SqlWorker, outcome

Start = Callable[..., WorkerProcess]

# The errors of a session without a lease, and of a strict settlement of a job that the session no longer holds.
LOST = ("SR001", "SR002")


class UnreliableSqlWorker(threading.Thread):
    """Runs one session after the other. The first vanishes while it holds jobs; some settle twice, or too late."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url = url
        self._rng = random.Random(seed)
        self._stopping = threading.Event()
        self.settled = 0

    def vanish(self) -> None:
        """Run a session that ends while it holds jobs."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            worker = self._worker(connection)
            # The session that vanished before may still hold the slots of a limit.
            until(lambda: worker.beat([]).alive and worker.claim(2))

    def run(self) -> None:
        while not self._stopping.is_set():
            with psycopg.connect(self._url, autocommit=True) as connection:
                try:
                    self._run_session(self._worker(connection))
                except psycopg.Error as error:
                    if error.sqlstate not in LOST:
                        raise

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _worker(self, connection: psycopg.Connection) -> SqlWorker:
        return SqlWorker(connection, queues=["work"], tasks=["counted"], lease="2 seconds")

    def _run_session(self, worker: SqlWorker) -> None:
        while not self._stopping.is_set():
            jobs = worker.claim(self._rng.choice([1, 5, 20]))
            if not worker.beat([job.id for job in jobs]).alive:
                return
            if jobs:
                self._settle(worker, jobs)
            else:
                self._stopping.wait(0.05)
        worker.close()

    def _settle(self, worker: SqlWorker, jobs: list[Claimed]) -> None:
        """Settle most jobs with their effects in one transaction; one may be released."""
        if self._rng.random() < 0.2:
            worker.end([jobs.pop()], self._rng.choice(["release", "retry"]), delay=0)
        with worker.connection.transaction():
            worker.query(
                "insert into effects (n) select unnest(%s::bigint[]) returning n", [[job.args["n"] for job in jobs]]
            )
            worker.settle(*map(outcome, jobs), strict=True)
        self.settled += len(jobs)
        if self._rng.random() < 0.1:
            # As if the reply had been lost.
            assert {each.why for each in worker.settle(*map(outcome, jobs), strict=True)} <= {"it was written before"}


@pytest.mark.parametrize(
    ("jobs", "kills", "slots"),
    [
        pytest.param(400, 1, None, marks=pytest.mark.slow, id="plain"),
        pytest.param(100, 1, 4, marks=pytest.mark.slow, id="limited"),
        pytest.param(50_000, 30, None, marks=pytest.mark.storm, id="storm"),
    ],
)
def test_every_job_of_mixed_workers_is_settled_once(
    worker: Start, database_url: str, connection: psycopg.Connection, jobs: int, kills: int, slots: int | None
) -> None:
    connection.execute("create table effects (n bigint)")
    if slots is not None:
        set_limit(connection, "whole", Limit(slots), queue="work")
        set_limit(connection, "each", Limit(1))
    sql_workers = [UnreliableSqlWorker(database_url, seed) for seed in (1, 2)]
    wanted = [
        limited_job(None if slots is None else keys(("each", str(n % 6))), "counted", b'{"n": %d}' % n, queue="work")
        for n in range(jobs)
    ]
    # In parts, so that each phase has jobs: the Python worker alone, all together, those that remain after a kill.
    size = -(-jobs // (2 + 2 * kills))
    parts = iter([wanted[start : start + size] for start in range(0, jobs, size)])

    def enqueue_part() -> None:
        run(connection, enqueue(next(parts)))

    def ended() -> int:
        running = connection.execute("select keys from sereno.jobs where state = 'running'").fetchall()
        if slots is not None:
            assert len(running) <= slots
            assert len({str(job_keys) for (job_keys,) in running}) == len(running), "two jobs of a key run at once"
        return int(one(connection, "select count(*) from sereno.history"))

    def settled() -> int:
        return sum(sql_worker.settled for sql_worker in sql_workers)

    enqueue_part()
    for sql_worker in sql_workers:
        sql_worker.vanish()
    python = worker("--queue", "work=2", SERENO_LEASE="3")
    until(lambda: ended() >= size // 2, timeout=300)
    for sql_worker in sql_workers:
        sql_worker.start()
    try:
        for number in range(1, kills + 1):
            enqueue_part()
            until(lambda: ended() >= size * (2 * number - 1) + size // 2, timeout=300)  # noqa: B023
            python.kill()
            before = settled()
            enqueue_part()
            until(lambda: settled() > before, timeout=300)  # noqa: B023
            python = worker("--queue", "work=2", SERENO_LEASE="3")
        enqueue_part()
        until(lambda: ended() == jobs, timeout=300)
    finally:
        for sql_worker in sql_workers:
            sql_worker.stop()
    assert one(connection, "select count(*) from effects") == jobs
    assert one(connection, "select count(distinct n) from effects") == jobs
    assert one(connection, "select count(distinct id) from sereno.history where state = 'succeeded'") == jobs
    by_sql = one(
        connection,
        "select count(*) from sereno.history where session_id = any(array("
        "select id from sereno.sessions where opened_by is not null))",
    )
    assert 0 < by_sql == settled() < jobs
    assert python.end() == 0
    assert_sound(connection)
