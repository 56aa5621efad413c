"""What the fault tests of limits and of notifications share: workers, and faults that hit them at work."""

import os
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sereno.database.embedded import EmbeddedPostgres
from tests.acceptance.conftest import WorkerProcess
from tests.facts import until
from tests.faults.proxy import Proxy
from tests.faults.server import restart
from tests.faults.watch import Watch

# Seconds. Jobs of a killed worker are retried after its lease, and then in isolated processes.
PATIENCE = 90.0


# What could block a job: its state, its session, and its lane.
UNFINISHED = """
select row_to_json(jobs), (select row_to_json(sessions) from sereno.sessions where sessions.id = session_id),
       (select row_to_json(lanes) from sereno.lanes where lanes.id = lane),
       (select json_agg(lane_wakes) from sereno.lane_wakes where lane_wakes.lane = jobs.lane), sereno.now()::text
from sereno.jobs
"""

T = TypeVar("T")


class WorkerFaults(ABC):
    """The faults. Before each fault there is new work, and each fault hits a process that is at work."""

    def __init__(self, start: Callable[..., WorkerProcess], url: str, *, seed: int) -> None:
        self.start = start
        self.url = url
        self.watch = Watch(url)
        self.rng = random.Random(seed)
        self.workers = [start(url=url, wait=False) for _ in range(2)]
        for worker in self.workers:
            worker.wait_started()

    @abstractmethod
    def add_work(self) -> None:
        """Create something to do."""

    @abstractmethod
    def at_work(self, workers: Sequence[WorkerProcess]) -> list[int]:
        """Return the processes of these workers that are at work now; none while the database is down."""

    def wait(self, fact: Callable[[], T]) -> T:
        """Wait for a fact; an error lists the jobs that have not ended."""
        try:
            return until(fact, PATIENCE)
        except AssertionError as error:
            jobs = self.watch.ask(lambda connection: str(connection.execute(UNFINISHED).fetchall()), "unknown")
            raise AssertionError(f"{error}; unfinished jobs: {jobs}") from error

    def victims(self) -> list[tuple[int, WorkerProcess]]:
        """Return the processes that are at work, each with its worker; one that has just ended belongs to none."""
        found = self.at_work(self.workers)
        return [(process, worker) for worker in self.workers for process in worker.children() if process in found]

    def kill(self, numbers: range) -> None:
        """Kill a process that is at work; every third time its whole worker, which another one replaces."""
        for number in numbers:
            self.add_work()
            process, victim = self.rng.choice(self.wait(self.victims))
            if number % 3 != 1:
                os.kill(process, signal.SIGKILL)
                continue
            victim.kill()
            self.workers.remove(victim)
            self.workers.append(self.start(url=self.url, wait=False))

    def disturb_the_network(self, proxy: Proxy, worker: WorkerProcess) -> None:
        """Cut off a worker behind this proxy, let it reconnect, freeze its connections, and kill it."""
        for disturb in (proxy.cut, proxy.freeze, worker.kill):
            self.add_work()
            self.wait(lambda: self.at_work([worker]))
            disturb()

    def crash(self, server: EmbeddedPostgres, directory: Path) -> None:
        """Crash the database. A worker that starts while it is down exits with an error, as it should."""
        for worker in self.workers:
            worker.wait_started()
        restart(server, directory)
