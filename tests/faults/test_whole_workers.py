"""Workers that die as a whole: supervisor, children and isolated processes at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from tests.facts import is_gone, one, state, until
from tests.faults import family_app
from tests.faults.family_app import innocent, kills_its_family, never_ends, parent_of

ROOT = Path(__file__).parents[2]
# Workers that are started one after the other.
MAX_WORKERS = 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="parent processes are read from /proc"),
]


@pytest.fixture
def app(database_url: str) -> Iterator[Sereno]:
    app = Sereno(database_url)
    for definition in family_app.app.registry:
        app.registry.add(definition)
    yield app
    app.close()


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The workers, which `start` adds; those that are left are terminated afterwards."""
    workers: list[subprocess.Popen[bytes]] = []
    yield workers
    for process in workers:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def start(workers: list["subprocess.Popen[bytes]"], database_url: str, tmp_path: Path) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "SERENO_DATABASE_URL": database_url,
        "SERENO_LEASE": "600",
        "RUN_LOG": str(tmp_path / "run.log"),
        "SPARED": str(os.getpid()),
    }
    command = [sys.executable, "-m", "sereno", "worker", "tests.faults.family_app:app"]
    workers.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL))
    return workers[-1]


@pytest.mark.timeout(600)
def test_a_job_that_kills_whole_workers_is_dead_after_three_of_them(
    app: Sereno, connection: psycopg.Connection, started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    poison, *others = app.enqueue_many([kills_its_family.job(), *[innocent.job() for _ in range(5)]])
    for _ in range(MAX_WORKERS):
        worker = start(started, app.url, tmp_path)
        until(lambda: worker.poll() is not None or state(connection, poison.id) == "dead", timeout=120)  # noqa: B023
        if worker.poll() is None:
            break
        # No process is left to report the death; only the lease would expire.
        connection.execute("update sereno.sessions set lease_until = sereno.now() where state = 'alive'")
    until(lambda: all(state(connection, job.id) == "succeeded" for job in others))
    assert (tmp_path / "run.log").read_text().split() == ["1", "2", "3"]
    found = connection.execute("select crashes, reason from sereno.history_dead").fetchall()
    assert found == [(3, "crash loop: its worker died while it ran alone, 3 times")]
    # They crash when they run beside it, and once more as suspects beside it; then no other suspect runs beside them.
    assert one(connection, "select max(crashes) from sereno.history_done") <= 2


def test_isolated_processes_end_when_their_worker_is_killed(
    app: Sereno, connection: psycopg.Connection, started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """Even if the handler never ends: it must not continue a job that another worker has claimed by then."""
    app.enqueue_many([never_ends.job()])
    worker = start(started, app.url, tmp_path)
    log = tmp_path / "run.log"
    until(lambda: log.exists() and log.read_text())
    family = [int(log.read_text())]
    while family[-1] != worker.pid:
        family.append(parent_of(family[-1]))
    for pid in family[-2:]:
        os.kill(pid, signal.SIGKILL)
    assert len(family) >= 3
    until(lambda: all(is_gone(pid) for pid in family[:-2]))
