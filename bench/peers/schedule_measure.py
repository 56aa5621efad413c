"""Schedules of one peer: registration rate, lateness of fires, and CPU."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import quantiles

import psycopg

from bench.cpu_time import server_seconds
from bench.process import family, processor_seconds

from .database import execute
from .failure import PeerFailed
from .measure import Note, Report, Workspace
from .processes import Workers, finish, running
from .schedule_catalogue import SchedulePeer
from .tally import Tally

SECONDS_TO_FIRST_FIRE = 120
SECONDS_BETWEEN_POLLS = 0.1
# The first fires after the start are not counted.
SECONDS_TO_SETTLE = 5
SECONDS = 60
SECONDS_QUICK = 20
QUICK_DIVISOR = 10
SAMPLES = 100_000


@dataclass(frozen=True)
class ScheduleBench:
    schedules: SchedulePeer
    workspace: Workspace
    quick: bool
    report: Report
    note: Note

    def run(self) -> None:
        """`register`, `fires`, `lateness_p50`, `_p99`, `schedules_cpu`, `_db_cpu`, prefixed with the peer's name."""
        number = self.schedules.schedules // (QUICK_DIVISOR if self.quick else 1)
        with self.workspace.databases.template() as url:
            finish([*self.workspace.command, "install", url])
            seconds = float(finish([*self.workspace.command, "register", url, str(number)]))
            self._figure("register", number / seconds, "/s")
            execute(url, "analyze")
            tally = Tally.create(self.workspace.scratch / "tally", SAMPLES)
            command = [*self.workspace.command, "run", url, str(self.workspace.scratch / "tally")]
            with (
                running([command], self.workspace.scratch / "log") as workers,
                psycopg.connect(url, autocommit=True) as connection,
            ):
                self._window(connection, tally, workers, number)

    def _window(self, connection: psycopg.Connection, tally: Tally, workers: Workers, number: int) -> None:
        self._wait_for(lambda: bool(self._late(connection, tally, 0)), workers)
        time.sleep(SECONDS_TO_SETTLE)
        begin, first = time.time(), tally.executed
        own, server = _own_seconds(), server_seconds(connection)
        time.sleep(SECONDS_QUICK if self.quick else SECONDS)
        workers.check()
        elapsed = time.time() - begin
        own, server = _own_seconds() - own, server_seconds(connection) - server
        late = self._late(connection, tally, begin, first)
        due = number / self.schedules.seconds
        self._figure("fires", len(late) / elapsed, "/s")
        self.note(f"{self.schedules.name}: {number:,} schedules, {due:.0f} due per second")
        if len(late) > 1:
            percentiles = quantiles(late, n=100, method="inclusive")
            self._figure("lateness_p50", percentiles[49], "ms")
            self._figure("lateness_p99", percentiles[98], "ms")
        self._figure("schedules_cpu", 100 * own / elapsed, "%")
        self._figure("schedules_db_cpu", 100 * server / elapsed, "%")

    def _late(self, connection: psycopg.Connection, tally: Tally, begin: float, first: int = 0) -> list[float]:
        """Return the lateness of each fire since `begin`, in milliseconds."""
        if not self.schedules.lateness:
            return [late / 1000 for late in tally.samples[first : tally.executed]]
        rows = connection.execute(self.schedules.lateness.encode(), {"begin": begin, "end": time.time()}).fetchall()
        return [float(row[0]) * 1000 for row in rows]

    def _wait_for(self, fact: Callable[[], bool], workers: Workers) -> None:
        deadline = time.monotonic() + SECONDS_TO_FIRST_FIRE
        while not fact():
            workers.check()
            if time.monotonic() > deadline:
                raise PeerFailed(f"no schedule fired within {SECONDS_TO_FIRST_FIRE} s")
            time.sleep(SECONDS_BETWEEN_POLLS)

    def _figure(self, name: str, value: float, unit: str) -> None:
        self.report(f"{self.schedules.name}_{name}", value, unit)


def _own_seconds() -> float:
    """Return the processor time of all processes that the benchmark started, which excludes the server."""
    return sum(map(processor_seconds, family(os.getpid())[1:]))
