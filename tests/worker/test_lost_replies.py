"""Lease times, lost replies, sessions that ended long ago, and processes whose worker is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TypeVar

import msgspec
import psycopg
import pytest

from sereno import Sereno
from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.errors import DatabaseUnavailable
from sereno.telemetry.metrics import MetricTally
from sereno.worker import sessions
from sereno.worker.heartbeat import Heartbeat, boot_clock, lease_end
from sereno.worker.settler import Settler
from tests.facts import TIMEOUT, auntil, one, state, until
from tests.jobs.job_steps import add, decided, do, line, session, settled, take
from tests.warm_process import WarmProcess

T = TypeVar("T")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("left", [0.5, 2.9], ids=str)
def test_a_session_is_not_declared_dead_before_its_lease_expires(connection: psycopg.Connection, left: float) -> None:
    """By the clock of the database: a slow test run does not change the result."""
    owner = session(connection)
    connection.execute(
        "update sereno.sessions set lease_until = sereno.now() + make_interval(secs => %s) where id = %s", [left, owner]
    )
    do(connection, sessions.expire())
    is_allowed = "select state = 'alive' or ended_at >= lease_until from sereno.sessions where id = %s"
    assert one(connection, is_allowed, owner)
    connection.execute("update sereno.sessions set lease_until = sereno.now() - interval '1 ms' where id = %s", [owner])
    do(connection, sessions.expire())
    assert one(connection, "select state from sereno.sessions where id = %s", owner) == "dead"


class LosesReplies(ServiceConnection):
    """A real connection that loses the reply of the next statement after the server has executed it."""

    loses = False

    async def run(self, operation: Operation[T], timeout: float = TIMEOUT, *, atomic: bool = False) -> T:
        reply = await super().run(operation, timeout, atomic=atomic)
        if self.loses:
            self.loses = False
            raise DatabaseUnavailable("the reply was lost")
        return reply


async def test_an_outcome_applied_before_its_reply_was_lost_is_not_fenced(app: Sereno, database_url: str) -> None:
    with line(database_url) as connection:
        add(connection, 3)
        owner = session(connection)
        batch = take(connection, owner)
        lossy = LosesReplies(app.database.url, app.settings, "test")
        tally = MetricTally()
        confirmed: list[int] = []
        settler = Settler(lossy, owner, tally, lambda ids, _: confirmed.extend(ids), lambda: None)
        try:
            for job in batch:
                settler.add(settled(job, decided()), at_once=True)
            lossy.loses = True
            with pytest.raises(DatabaseUnavailable):
                await settler.run_once()
            assert confirmed == []
            await settler.run_once()
        finally:
            await lossy.close()
        assert sorted(confirmed) == sorted(job.id for job in batch)
        assert {state(connection, job.id) for job in batch} == {"succeeded"}
        assert tally.fenced == 0


def test_a_lease_counts_from_the_sending_of_the_heartbeat(app: Sereno, connection: psycopg.Connection) -> None:
    """A late reply must not extend the lease beyond what the server granted."""
    owner = session(connection)
    settings = msgspec.structs.replace(app.settings, heartbeat=0.01, lease=30.0)
    heartbeat = Heartbeat(app.database.url, settings, owner, boot_clock())
    first_lease_end = heartbeat.lease_end
    waits = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and strpos(application_name, 'heartbeat') > 0"
    )
    with connection.transaction():
        connection.execute("select from sereno.sessions where id = %s for update", [owner])
        heartbeat.start()
        # On another connection: a transaction caches pg_stat_activity at its first read.
        with psycopg.connect(app.database.url, autocommit=True) as other:
            until(lambda: one(other, waits))
        # The heartbeat was sent before this moment, and its reply comes after it. The thread ends with this heartbeat.
        sent_before = boot_clock()
        ending = Thread(target=heartbeat.stop)
        ending.start()
    until(lambda: not heartbeat._thread.is_alive())
    ending.join(TIMEOUT)
    assert first_lease_end < heartbeat.lease_end <= lease_end(sent_before, 30.0)


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["dead for two hours", "deleted"])
async def test_jobs_of_sessions_that_ended_long_ago_are_rescued(
    app: Sereno, connection: psycopg.Connection, fate: str
) -> None:
    """Sessions that ended recently are checked in every round, older ones less often."""
    (number,) = add(connection, task="unknown here")
    owner = session(connection)
    take(connection, owner, tasks=("unknown here",))
    assert state(connection, number) == "running"
    connection.execute(
        "update sereno.sessions set state = 'dead', ended_at = sereno.now() - interval '2 hours' where id = %s", [owner]
    )
    if fate == "deleted":
        connection.execute("delete from sereno.sessions where id = %s", [owner])
    async with app.working():
        await auntil(lambda: state(connection, number) == "ready")


def is_gone(process: int) -> bool:
    """Return whether a process is gone, or a zombie that its parent has not reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def worker_process(database_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that runs isolated jobs."""
    code = (
        "import asyncio\n"
        "from tests.worker.mortal_tasks import app\n"
        "async def main():\n"
        "    async with app.working():\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    environment = {**os.environ, "SERENO_DATABASE_URL": database_url}
    with WarmProcess([sys.executable, "-c", code], cwd=ROOT, env=environment) as worker:
        try:
            yield worker
        finally:
            worker.kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a process when its parent dies")
def test_an_isolated_process_dies_with_its_worker(
    connection: psycopg.Connection, worker_process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Even if it never reads its socket again, because its handler holds the interpreter lock."""
    pids = tmp_path / "pids"
    connection.execute(
        "select sereno.enqueue('holds_the_interpreter', jsonb_build_object('path', %s::text))", [str(pids)]
    )
    until(pids.exists)
    isolated, parent = map(int, pids.read_text().split())
    try:
        assert not is_gone(isolated)
        os.kill(parent, signal.SIGKILL)
        until(lambda: is_gone(isolated))
    finally:
        if not is_gone(isolated):
            os.kill(isolated, signal.SIGKILL)
