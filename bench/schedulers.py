"""`sereno scheduler` beside the benchmark: started, watched, stopped. `sereno worker` runs the same one."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.workers import BenchmarkFailed

SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_OF_PATIENCE = 180
SECONDS_TO_STOP = 15

LEADERS = "select count(*) from sereno.leases where name = 'scheduler' and until > sereno.now()"


class SchedulerProcess:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, fact: Callable[[], bool], what: str) -> None:
        """Until it is so, as long as the scheduler lives."""
        deadline = time.monotonic() + SECONDS_OF_PATIENCE
        while not fact():
            if self._process.poll() is not None:
                raise BenchmarkFailed(f"the scheduler ended: {self.last_words()}")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"after {SECONDS_OF_PATIENCE} s not yet {what}: {self.last_words()}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


@contextmanager
def scheduling(url: str) -> Iterator[SchedulerProcess]:
    """A scheduler that leads, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        log = Path(directory) / "scheduler.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "sereno", "scheduler", "--database-url", url, "--log-format", "json"]
            process = subprocess.Popen(command, stdout=output, stderr=output)
            try:
                scheduler = SchedulerProcess(process, log)
                with psycopg.connect(url, autocommit=True) as connection:
                    scheduler.wait_for(lambda: answer(connection, LEADERS) == 1, "leading")
                yield scheduler
            finally:
                process.terminate()
                try:
                    process.wait(SECONDS_TO_STOP)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def answer(connection: psycopg.Connection, query: str) -> int:
    """The one number that it asks for."""
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
