"""The processes of the storm: workers with schedulers, producers, the provider of messages; and the database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psycopg

from sereno import Limit, Sereno
from sereno.bulk.operations import begin
from sereno.jobs.filters import JobFilter
from tests.acceptance.conftest import ROOT, WorkerProcess
from tests.facts import TIMEOUT, is_gone, one
from tests.faults.provider_log import running_provider
from tests.faults.proxy import Proxy
from tests.faults.rhythms import Rhythm, create_rhythms
from tests.storm import app as storm
from tests.storm.journal import DIRECTORY, WORKER, Journal
from tests.storm.plan import StormSize
from tests.storm.producers import RECIPIENTS
from tests.storm.server import StormServer
from tests.warm_process import WarmProcess

# The worker that has its connections through the proxy, and all of them.
PROXIED, WORKERS = "b", ("a", "b")
ARGUMENTS = (
    "--processes", "2", "--queue", "work=10", "--queue", "narrow=4", "--queue", "notifications=4",
    "--queue", "default=8",
)  # fmt: skip
SETTINGS = {
    "SERENO_LEASE": "3",
    "SERENO_HEARTBEAT": "0.5",
    "SERENO_STALL_LIMIT": "4",
    "SERENO_KEEP_HISTORY_DAYS": "1",
    "SERENO_KEEP_FIRES_DAYS": "1",
    "SERENO_KEEP_SIGNALS_DAYS": "3650",
    "SERENO_ARCHIVE_KINDS": "jobs,fires,logs",
    "SERENO_ARCHIVE_GRACE_DAYS": "0",
    "SERENO_ARCHIVE_MOVE_CRON": "* * * * *",
    "SERENO_ARCHIVE_EXPORT_CRON": "* * * * *",
    "TEST_STEP": str(RECIPIENTS),
}
TABLES = """
    create table effects (job bigint not null, attempt integer not null);
    create table items (job bigint not null, item integer not null);
    create table sent (name text not null)
"""
LEFT = """
    select (select count(*) from sereno.jobs) + (select count(*) from sereno.events where matched_at is null)
         + (select count(*) from sereno.deliveries where state in ('pending', 'sending') or receipt_at is not null)
         + (select count(*) from sereno.batches)
"""
DEAD = "select count(*) from (select from sereno.history_dead limit 1) as dead"
RETRYING = "select count(*) from sereno.bulk_operations where action = 'job.retry' and finished_at is null"


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, those that they have started, and so on."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:
            # The thread has ended.
            continue
    return found + [other for child in found for other in descendants(child)]


@dataclass
class World:
    """What runs. `retries`: bulk operations that retried dead jobs, because a job dies with its third crash."""

    server: StormServer
    size: StormSize
    directory: Path
    journal: Journal
    proxy: Proxy
    app: Sereno
    environment: dict[str, str]
    rhythms: dict[str, tuple[Rhythm, datetime]]
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    producers: list["subprocess.Popen[str]"] = field(default_factory=list)
    orphans: set[int] = field(default_factory=set)
    starts: int = 0
    retries: int = 0
    _counted: dict[Path, tuple[int, int]] = field(default_factory=dict)

    @property
    def journals(self) -> Path:
        return self.directory / "journals"

    @property
    def of_producers(self) -> Path:
        return self.journals / "producers"

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    @property
    def provider_log(self) -> Path:
        return self.directory / "provider"

    # Workers

    def start_worker(self, name: str) -> None:
        """Start a worker; one of this name has ended or was killed."""
        if name in self.workers:
            self.workers[name].process.wait(TIMEOUT)
        url = self.proxy.url if name == PROXIED else self.server.url
        self.starts += 1
        log = self.directory / f"worker-{name}-{self.starts}"
        environment = self.environment | {WORKER: name}
        self.workers[name] = WorkerProcess(url, log, *ARGUMENTS, app="tests.storm.app:app", **environment)

    def replace_ended(self) -> None:
        """Start workers again that have ended, such as one that found no database when it started."""
        for name, worker in list(self.workers.items()):
            if worker.process.poll() is not None:
                self.start_worker(name)

    def processes(self, name: str) -> list[int]:
        """Return the processes of a worker, the supervisor first."""
        supervisor = self.workers[name].process.pid
        return [supervisor, *descendants(supervisor)]

    def stop_workers(self) -> list[int]:
        """Stop all workers as a deployment does, and return their exit codes."""
        return [worker.end() for worker in self.workers.values()]

    # Producers

    def start_producers(self, seed: int) -> None:
        for number, kind in enumerate(("library", "sql")):
            jobs = self.size.jobs // 2 + (self.size.jobs % 2 if number else 0)
            options = {"journals": self.of_producers, "jobs": jobs, "seconds": self.size.seconds, "seed": seed + number}
            words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
            url = self.proxy.url if kind == "library" else self.server.url
            self.producers.append(
                WarmProcess(
                    [sys.executable, "-m", "tests.storm.producers", kind, *words],
                    cwd=ROOT,
                    env={
                        **os.environ,
                        **self.environment,
                        "SERENO_DATABASE_URL": url,
                        WORKER: kind,
                        "PYTHONPATH": _path(),
                    },
                )
            )

    def producers_ended(self) -> bool:
        codes = [producer.poll() for producer in self.producers]
        assert not any(codes), f"a producer failed: {codes}"
        return None not in codes

    def accepted(self) -> int:
        """Return the number of jobs that the producers have written down."""
        for path in self.of_producers.glob("*.journal"):
            place, count = self._counted.get(path, (0, 0))
            with path.open("rb") as file:
                file.seek(place)
                # Only whole lines; the rest is read the next time.
                data = file.read().rpartition(b"\n")[0]
            self._counted[path] = place + len(data), count + data.count(b'["JobAccepted"')
        return sum(count for _, count in self._counted.values())

    # The end

    def retry_dead(self) -> None:
        """Begin a bulk operation that retries dead jobs, if there are some and none is in progress."""

        def is_needed(connection: psycopg.Connection) -> bool:
            return bool(one(connection, DEAD) > 0 and one(connection, RETRYING) == 0)

        if self.server.ask(is_needed):
            wanted = JobFilter(states=["dead"])
            self.server.ask(lambda _: self.app.database.run(begin("job.retry", wanted, yes=True, actor="storm")))
            self.retries += 1

    def left(self) -> int:
        """Return how much is not finished."""
        return self.server.ask(lambda connection: int(one(connection, LEFT)))

    def close(self) -> None:
        """End all processes that are left."""
        for producer in self.producers:
            producer.kill()
            producer.wait(TIMEOUT)
        for name, worker in self.workers.items():
            self.orphans.update(self.processes(name))
            worker.kill()
        for pid in self.orphans:
            if not is_gone(pid) and b"sereno" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 9)
        self.app.close()


@contextmanager
def world(size: StormSize, directory: Path) -> Iterator[World]:
    """Start the database, the provider and the workers; end all of them afterwards."""
    with ExitStack() as stack:
        server = stack.enter_context(StormServer(size.jobs))
        provider = stack.enter_context(running_provider(directory / "provider"))
        proxy = stack.enter_context(Proxy.before(server.url))
        environment = SETTINGS | {
            DIRECTORY: str(directory / "journals"),
            "SERENO_ARCHIVE_URL": f"file://{directory / 'archive'}",
            "TEST_PROVIDER": provider,
        }
        (directory / "journals" / "producers").mkdir(parents=True)
        app = _prepared(server, directory)
        rhythms = create_rhythms(app, app.new_job("fired", b"{}"))
        journal = Journal(directory / "journals", "storm")
        made = World(server, size, directory, journal, proxy, app, environment, rhythms)
        stack.callback(made.close)
        for name in WORKERS:
            made.start_worker(name)
        yield made


def _prepared(server: StormServer, directory: Path) -> Sereno:
    """Create the schema, the tables, the limits and the recipients; return an application on the database."""
    app = Sereno(server.url, archive_url=f"file://{directory / 'archive'}")
    app.migrate()
    for definition in storm.app.registry:
        app.registry.add(definition)
    app.queue("narrow", concurrency=Limit(storm.SLOTS_OF_THE_QUEUE))
    app.declare()
    with psycopg.connect(server.url) as own:
        own.execute(TABLES)
    return app


def _path() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT)])
