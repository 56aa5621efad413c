"""The processes of the soak: PostgreSQL, a provider of notifications, and sereno's worker, scheduler and server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.process import family, resident_mebibytes
from bench.server import PARAMETERS, Server
from bench.workers import stop_process
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate
from tests.facts import until

ROOT = Path(__file__).parents[2]
APP = "tests.soak.app:app"
SECONDS_TO_STOP = 40
# Transactions after which PostgreSQL freezes the rows of a table: 200 million by default, which no soak reaches.
FREEZE_AGE = 100_000
# A day lasts a minute or two, so autovacuum checks as often as it can.
PACE = {"autovacuum_naptime": "1s", "autovacuum_freeze_max_age": str(FREEZE_AGE), "jit": "off"}
DAYS_RETAINED = 3
RETAINED = str(DAYS_RETAINED)
SETTINGS = {
    "SERENO_KEEP_HISTORY_DAYS": RETAINED,
    "SERENO_KEEP_FIRES_DAYS": RETAINED,
    "SERENO_KEEP_DEAD_DAYS": RETAINED,
    "SERENO_KEEP_DELIVERIES_DAYS": RETAINED,
    "SERENO_KEEP_EVENTS_DAYS": RETAINED,
    "SERENO_LOG_RETENTION": str(DAYS_RETAINED * 86400),
    "SERENO_KEEP_LOGS": "warning",
    "SERENO_ARCHIVE_GRACE_DAYS": "1",
    # In different hours: the clock is moved by whole hours.
    "SERENO_ARCHIVE_MOVE_CRON": "17 3 * * *",
    "SERENO_ARCHIVE_EXPORT_CRON": "17 5 * * *",
    # Statistics are written with each heartbeat. A heartbeat that overlaps with a move of the clock by an hour renews
    # the lease by the old clock, so the lease is longer than that.
    "SERENO_HEARTBEAT": "0.25",
    "SERENO_LEASE": "7200",
    "SERENO_LOG_LEVEL": "warning",
    "SERENO_LOG_FORMAT": "json",
}
QUEUES = {"default": 5, "work": 20, "fair": 5, "paused": 5, "notifications": 10}


@dataclass(frozen=True)
class Services:
    """The running processes. `pids`: worker, scheduler and server, each with its descendants."""

    database: Server
    url: str
    http: str
    archive: Path
    pids: dict[str, int]

    def memory(self) -> dict[str, float]:
        """Return the resident memory of each service in MiB, that of its descendants included."""
        return {name: sum(map(resident_mebibytes, family(pid))) for name, pid in self.pids.items()}


@contextmanager
def services(directory: Path) -> Iterator[Services]:
    """Start everything, with its data in this directory; stop it at the end."""
    archive = directory / "archive"
    archive.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedPostgres(directory, parameters={**PARAMETERS, **PACE}))
        database = Server(server.url)
        url = stack.enter_context(_database(database))
        provider = stack.enter_context(_process(directory / "provider", ["bench.notify_app", "provider"], {}))
        environment = {
            **SETTINGS,
            "SERENO_DATABASE_URL": url,
            "SERENO_ARCHIVE_URL": archive.as_uri(),
            "SERENO_DIRECTORY": str(directory / "sereno"),
            "SOAK_PROVIDER": provider.first_line(),
        }
        # Also for the application in this process, and for the workers of the drain.
        stack.callback(_restore, dict(os.environ))
        os.environ.update(environment)
        queues = [word for name, slots in QUEUES.items() for word in ("--queue", f"{name}={slots}")]
        worker = stack.enter_context(
            _process(directory / "worker", ["sereno", "worker", APP, *queues], {"SERENO_SCHEDULER": "false"})
        )
        scheduler = stack.enter_context(
            _process(directory / "scheduler", ["sereno", "run", APP, "--role", "scheduler"], {})
        )
        web = stack.enter_context(_process(directory / "server", ["sereno", "server", "-a", APP, "--port", "0"], {}))
        http = web.first_line().split()[2].rstrip(".")
        pids = {"worker": worker.pid, "scheduler": scheduler.pid, "server": web.pid}
        yield Services(database, url, http, archive, pids)


class Process:
    """A Python program that writes to a file."""

    def __init__(self, output: Path, process: "subprocess.Popen[bytes]") -> None:
        self._output = output
        self._process = process
        self.pid = process.pid

    def first_line(self) -> str:
        """Return the first line that the process prints."""
        return until(lambda: self._line() or self._fail_if_ended()) or ""

    def _line(self) -> str:
        text = self._output.read_text(errors="replace")
        return text.partition("\n")[0] if "\n" in text else ""

    def _fail_if_ended(self) -> str:
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._output.name} ended: {self._output.read_text(errors='replace')[-500:]}")
        return ""


@contextmanager
def _process(output: Path, words: list[str], environment: dict[str, str]) -> Iterator[Process]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=ROOT, env={**os.environ, **environment}, stdout=file, stderr=file
        )
    try:
        yield Process(output, process)
    finally:
        stop_process(process, SECONDS_TO_STOP)


@contextmanager
def _database(server: Server) -> Iterator[str]:
    """Create the database of the soak; it is deleted with the directory of its server."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create database soak")
    url = server.address("soak")
    with psycopg.connect(url, autocommit=True) as connection:
        migrate(connection)
    yield url


def _restore(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
