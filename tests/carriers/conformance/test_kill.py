"""A worker process is killed with jobs of both kinds, done and running: each accepted job runs at least once."""

import json
import os
import sys
from pathlib import Path

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.carriers.local_server import LocalNats
from sereno.testing.process import WorkerProcess
from tests.carriers.conformance import mortal_app
from tests.carriers.conformance.conftest import JETSTREAM, POSTGRES

pytestmark = pytest.mark.slow

JOBS = 300


@pytest.mark.parametrize("where", [POSTGRES, JETSTREAM])
def test_jobs_of_a_killed_worker_run_again(
    where: str,
    database_url: str,
    connection: psycopg.Connection,
    nats: LocalNats,
    jetstream: JetStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection.autocommit = True
    connection.execute("create table effects (number integer)")
    address = f"jetstream://{nats.url.removeprefix('nats://')}?prefix={jetstream.prefix}&direct=true"
    monkeypatch.setenv("SERENO_CARRIERS", json.dumps({"work": "postgres" if where == POSTGRES else address}))
    app = Sereno(database_url)
    waits = app.task(name="wait", queue="work", history=False)(mortal_app.wait.definition.function)
    writes = app.task(name="write", queue="work", history=False)(mortal_app.write.definition.function)
    marker = tmp_path / "end"
    jobs = [waits.job(0, str(marker)), *(writes.job(number) for number in range(1, JOBS))]
    enqueued = app.enqueue_many(jobs)
    app.close()
    assert all((job.id >= 10**15) == (where == JETSTREAM) for job in enqueued)

    def effects() -> set[int]:
        return {row[0] for row in connection.execute("select number from effects").fetchall()}

    first = Worker(database_url)
    try:
        first.until(lambda: 0 in effects() and len(effects()) > 1)
    finally:
        first.kill()
    marker.touch()
    second = Worker(database_url)
    try:
        second.until(lambda: effects() == set(range(JOBS)), timeout=120.0)
        again = "select count(*) from effects where number = 0"
        second.until(lambda: connection.execute(again.encode()).fetchall() == [(2,)], timeout=120.0)
        second.until(lambda: connection.execute("select count(*) from sereno.jobs").fetchall() == [(0,)])
    finally:
        second.kill()


class Worker(WorkerProcess):
    """A worker with the carriers of this process's environment."""

    def __init__(self, database_url: str) -> None:
        environment = {**os.environ, "SERENO_DATABASE_URL": database_url}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        module = f"{mortal_app.__name__}:app"
        self._start([sys.executable, "-m", "sereno", "worker", module], environment)
