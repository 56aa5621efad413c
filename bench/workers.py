"""Worker processes beside the benchmark: started, watched, stopped."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.tally import Tally
from bench.tasks import QUEUE

# The default of a worker. 50 and 100 drain no faster: handlers that do nothing never wait, and jobs are claimed ahead.
SLOTS = 20
SECONDS_BETWEEN_LOOKS = 0.002
SECONDS_OF_SILENCE = 60
SECONDS_TO_STOP = 15


class BenchmarkFailed(Exception):
    """A worker died, stood still, or did not do what it was measured for."""


def worker_commands(url: str, processes: int, tally: Tally) -> list[list[str]]:
    """How workers are started. To measure the supervisor of `sereno worker` instead, this is the place: one command.

    It has to register the tasks of `bench.tasks` with `tally.join()` in each of its children.
    """
    command = [sys.executable, "-m", "bench.worker_process", url, f"{QUEUE}={SLOTS}", str(tally.path)]
    return [command] * processes


class Workers:
    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path, tally: Tally) -> None:
        self._processes = processes
        self._log = log
        self.tally = tally

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def wait_for(self, fact: Callable[[], bool]) -> None:
        """Until it is so, as long as the workers live and go on."""
        executed, deadline = -1, 0.0
        while not fact():
            if self.tally.executed != executed:
                executed, deadline = self.tally.executed, time.monotonic() + SECONDS_OF_SILENCE
            if any(process.poll() is not None for process in self._processes):
                raise BenchmarkFailed(f"a worker ended: {self._last_words()}")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"nothing for {SECONDS_OF_SILENCE} s after {executed} jobs: {self._last_words()}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


@contextmanager
def working(url: str, tally: Tally, processes: int = 1) -> Iterator[Workers]:
    """Workers on that database for as long as the block lasts."""
    log = tally.path.with_suffix(".log")
    started: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        try:
            for command in worker_commands(url, processes, tally):
                # One by one: what has started is stopped even when the next one fails to.
                started.append(subprocess.Popen(command, stdout=output, stderr=output))  # noqa: PERF401
            yield Workers(started, log, tally)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
