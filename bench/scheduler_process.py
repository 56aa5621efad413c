"""Start, watch and stop `sereno scheduler` beside the benchmark; `sereno worker` runs the same scheduler."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.workers import BenchmarkFailed, stop_process

SECONDS_BETWEEN_POLLS = 0.05
SECONDS_TO_WAIT = 180

LEADERS = "select count(*) from sereno.leases where name = 'scheduler' and until > sereno.now()"


class SchedulerProcess:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, fact: Callable[[], bool], what: str) -> None:
        """Wait until `fact` returns true; fail when the scheduler ends or the time is over."""
        deadline = time.monotonic() + SECONDS_TO_WAIT
        while not fact():
            if self._process.poll() is not None:
                raise BenchmarkFailed(f"the scheduler ended: {self.last_log_line()}")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"not {what} after {SECONDS_TO_WAIT} s: {self.last_log_line()}")
            time.sleep(SECONDS_BETWEEN_POLLS)

    def last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "its log is empty"


@contextmanager
def running_scheduler(url: str) -> Iterator[SchedulerProcess]:
    """Run a scheduler that is the leader, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        log = Path(directory) / "scheduler.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "sereno", "scheduler", "--database-url", url, "--log-format", "json"]
            process = subprocess.Popen(command, stdout=output, stderr=output)
            try:
                scheduler = SchedulerProcess(process, log)
                with psycopg.connect(url, autocommit=True) as connection:
                    scheduler.wait_for(lambda: fetch_int(connection, LEADERS) == 1, "leading")
                yield scheduler
            finally:
                stop_process(process)


def fetch_int(connection: psycopg.Connection, query: str) -> int:
    """Return the integer that the query selects."""
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
