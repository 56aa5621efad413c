"""Fixtures with real worker processes and real signals; processes are killed by their known ids."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sereno.database.statement import run
from sereno.monitoring.verify import verify
from sereno.testing.process import kill_all
from tests.facts import until
from tests.warm_process import WarmProcess

ROOT = Path(__file__).parents[2]
# The application of a worker process, unless a test names another.
JOBS = "tests.acceptance.jobs:app"


def children(pid: int) -> list[int]:
    """Return the processes that this process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:
        # It has ended.
        return []


class WorkerProcess:
    """`sereno worker`, started as an operator would."""

    def __init__(self, url: str, log: Path, *arguments: str, app: str = JOBS, **environment: str) -> None:
        self.log = log
        self.output = log.with_suffix(f".{len(list(log.parent.glob('*.output')))}.output")
        with self.output.open("wb") as output:
            self.process = WarmProcess(
                [sys.executable, "-m", "sereno", "worker", app, *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    "SERENO_DATABASE_URL": url,
                    "SERENO_LOG_FORMAT": "json",
                    "SERENO_HEARTBEAT": "0.5",
                    "SERENO_LEASE": "3",
                    "TEST_LOG": str(log),
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                    **environment,
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def log_text(self) -> str:
        return self.output.read_text()

    def children(self) -> list[int]:
        """Return the process ids of its worker children, which its fork server has started."""
        return [child for server in children(self.process.pid) for child in children(server)]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_started(self) -> None:
        """Wait until it runs or has ended. A signal before that would hit a process that is still loading."""
        until(lambda: '"worker.started"' in self.log_text() or self.process.poll() is not None)

    def end(self) -> int:
        """Send TERM once it runs, and return its exit code."""
        self.wait_started()
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """Kill all its processes at once."""
        kill_all(self.process)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of the handlers, independent of the database."""
    path = tmp_path / "handlers"
    path.touch()
    return path


@pytest.fixture
def worker(database_url: str, log: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Return a function that starts workers; those that are left are killed afterwards."""
    started: list[WorkerProcess] = []

    def start(
        *arguments: str, url: str = database_url, wait: bool = True, app: str = JOBS, **environment: str
    ) -> WorkerProcess:
        process = WorkerProcess(url, log, *arguments, app=app, **environment)
        started.append(process)
        if wait:
            process.wait_started()
        return process

    yield start
    for process in started:
        process.kill()
        # Shown by pytest when the test failed.
        sys.stdout.write(process.log_text())
    sys.stdout.write(log.read_text())


def lines(log: Path, word: str) -> list[list[str]]:
    """Return the log entries that begin with this word, without it."""
    return [line.split()[1:] for line in log.read_text().splitlines() if line.split()[0] == word]


def expire_leases(connection: psycopg.Connection) -> None:
    """Expire the leases of killed workers when no other worker is alive: that delay is not under test."""
    connection.execute("update sereno.sessions set lease_until = sereno.now() where state = 'alive'")


def alive_sessions(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from sereno.sessions where state = 'alive'").fetchone()
    assert row is not None
    return int(row[0])


def assert_sound(connection: psycopg.Connection) -> None:
    """Check all invariants, for all time."""
    with connection.transaction():
        found = run(connection, verify(lease=3.0, window=None))
    assert [check for check in found if not check.holds] == []
