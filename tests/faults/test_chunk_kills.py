"""Worker processes are killed while their jobs emit: every job ends with all chunks of its last attempt, in order."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.monitoring.verify import verify
from tests.facts import one, until
from tests.faults import chunk_app
from tests.server.api.conftest import Served, serve, served
from tests.server.api.jobs.stream_client import Event, stream_client, stream_path, streamed_events

__all__ = ["serve", "served"]

ROOT = Path(__file__).parents[2]
KILLS = 2

pytestmark = pytest.mark.slow


def _kill_the_emitting_process(connection: psycopg.Connection, killed: set[int]) -> None:
    """Kill the process of a session whose jobs have emitted in this attempt."""

    def found() -> tuple[int, int] | None:
        row = connection.execute(
            "select sessions.id, pid from sereno.jobs join sereno.job_streams on job_id = jobs.id "
            "join sereno.sessions on sessions.id = session_id "
            "where job_streams.attempt = jobs.attempt and sessions.state = 'alive' and sessions.id <> all(%s) limit 1",
            [list(killed)],
        ).fetchone()
        return None if row is None else (row[0], row[1])

    session, pid = until(found, timeout=60) or (0, 0)
    killed.add(session)
    os.kill(pid, signal.SIGKILL)


async def _watch(served: Served, app: Sereno, job: int) -> list[Event]:
    """Return all events of a job, by a client that reconnects until the end."""
    events: list[Event] = []
    last = ""
    async with stream_client(served, app.jobs.token(job)) as client:
        while not events or events[-1][0] != "end":
            async with client.stream("GET", stream_path(job), headers={"Last-Event-ID": last}) as answer:
                async for name, data in streamed_events(answer):
                    events.append((name, data))
                    last = data.get("id", last)
    return events


@pytest.fixture
def _worker_process(database_url: str) -> Iterator[None]:
    """A worker, whose supervisor replaces killed children."""
    command = [sys.executable, "-m", "sereno", "worker", "tests.faults.chunk_app:app"]
    environment = {**os.environ, "SERENO_DATABASE_URL": database_url}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    yield
    process.terminate()
    process.wait(60)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_worker_process")
async def test_killed_workers_lose_and_repeat_no_chunk(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    for definition in chunk_app.app.registry:
        app.registry.add(definition)
    app.override(secret="s" * 32)
    tasks = (chunk_app.talks, chunk_app.talks_in_a_thread, chunk_app.talks_alone)
    jobs = [job.id for job in app.enqueue_many([task.job() for task in tasks for _ in range(2)])]
    watchers = [asyncio.create_task(_watch(served, app, job)) for job in jobs]
    killed: set[int] = set()
    for _ in range(KILLS):
        await asyncio.to_thread(_kill_the_emitting_process, connection, killed)
    seen = await asyncio.wait_for(asyncio.gather(*watchers), 200)
    assert one(connection, "select count(*) from sereno.attempts where outcome in ('crash', 'release')") > 0
    for job, events in zip(jobs, seen, strict=True):
        attempt = one(connection, "select attempt from sereno.history where id = %s", job)
        assert events[-1] == ("end", {"state": "succeeded", "attempt": attempt})
        chunks = [data for name, data in events if name == "chunk"]
        for number, data in enumerate(chunks):
            assert data["value"] == [data["attempt"], data["number"] - 1], f"chunk {number} of job {job}"
        last = [data["number"] for data in chunks if data["attempt"] == attempt]
        assert last == list(range(1, chunk_app.CHUNKS + 1)), f"job {job}"
    found = app.database.run(verify(lease=30.0))
    assert {check.name: check.violations for check in found if check.violations} == {}
