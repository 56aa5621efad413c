"""Start, watch and stop worker processes beside the benchmark."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.process import family, processor_seconds
from bench.tally import Tally
from bench.tasks import QUEUE

# A worker's default. 50 and 100 drain no faster: no-op handlers never wait, and jobs are claimed ahead.
SLOTS = 20
SECONDS_BETWEEN_POLLS = 0.002
SECONDS_WITHOUT_PROGRESS = 60
SECONDS_TO_STOP = 15


class BenchmarkFailed(Exception):
    """A worker died, made no progress, or did not do the work that was measured."""


def worker_commands(url: str, processes: int, tally: Tally, tasks: str = "", queue: str = QUEUE) -> list[list[str]]:
    """Return the commands that start the workers; `tasks` is "features" for those of `bench.feature_tasks`.

    To measure the supervisor of `sereno worker` instead, return one command here, which registers the tasks of
    `bench.tasks` with `tally.join()` in each of its children.
    """
    command = [sys.executable, "-m", "bench.worker_process", url, f"{queue}={SLOTS}", str(tally.path), tasks]
    return [command] * processes


class Workers:
    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path, tally: Tally) -> None:
        self._processes = processes
        self._log = log
        self.tally = tally

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def processor_seconds(self) -> float:
        """Return the processor time of the workers and of their isolated processes."""
        return sum(processor_seconds(member) for pid in self.pids for member in family(pid))

    def wait_for(self, fact: Callable[[], bool]) -> None:
        """Wait until `fact` returns true; fail when a worker ends or no handler is called for a minute."""
        executed, deadline = -1, 0.0
        while not fact():
            if self.tally.executed != executed:
                executed, deadline = self.tally.executed, time.monotonic() + SECONDS_WITHOUT_PROGRESS
            if any(process.poll() is not None for process in self._processes):
                raise BenchmarkFailed(f"a worker ended: {self._last_log_line()}")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(
                    f"no progress for {SECONDS_WITHOUT_PROGRESS} s after {executed} jobs: {self._last_log_line()}"
                )
            time.sleep(SECONDS_BETWEEN_POLLS)

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "its log is empty"


@contextmanager
def working(url: str, tally: Tally, processes: int = 1, tasks: str = "", queue: str = QUEUE) -> Iterator[Workers]:
    """Run workers on that database for as long as the block lasts."""
    log = tally.path.with_suffix(".log")
    started: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        try:
            for command in worker_commands(url, processes, tally, tasks, queue):
                # Appended one by one, so that started workers are stopped even when the next one fails to start.
                started.append(subprocess.Popen(command, stdout=output, stderr=output))  # noqa: PERF401
            yield Workers(started, log, tally)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                stop_process(process)


def stop_process(process: subprocess.Popen[bytes], seconds: float = SECONDS_TO_STOP) -> None:
    """Terminate the process; kill it if it has not ended after this time."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
