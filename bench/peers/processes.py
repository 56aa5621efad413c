"""Run the program of a peer: to its end, or as a worker until it is stopped."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .failure import PeerFailed, last_line

SECONDS_TO_FINISH = 180
SECONDS_TO_STOP = 5


def finish(command: list[str]) -> str:
    """Run a command to its end and return its output."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_FINISH)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{command[2]} took more than {SECONDS_TO_FINISH} s") from None
    if finished.returncode != 0:
        raise PeerFailed(f"{command[2]} failed: {last_line(finished.stderr)}")
    return finished.stdout


class Workers:
    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self._processes = processes
        self._log = log

    def check(self) -> None:
        """Fail if a worker has ended, since no worker ends by itself."""
        if any(process.poll() is not None for process in self._processes):
            raise PeerFailed(f"a worker ended: {last_line(self._log.read_text(errors='replace'))}")

    def check_result(self) -> None:
        """Fail if a program that ends by itself has ended with an error."""
        if any(process.poll() for process in self._processes):
            raise PeerFailed(f"a program failed: {last_line(self._log.read_text(errors='replace'))}")


@contextmanager
def running(commands: list[list[str]], log: Path) -> Iterator[Workers]:
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        try:
            for command in commands:
                processes.append(subprocess.Popen(command, stdout=output, stderr=output))  # noqa: PERF401 - the started ones are stopped if a later one fails
            yield Workers(processes, log)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
