"""A worker in a separate process, which a test may kill."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE, STDOUT, Popen, run
from typing import IO, Any, TypeVar

from sereno.app import Sereno
from sereno.carriers.address import IN_POSTGRES

T = TypeVar("T")

# Timeout in seconds, long enough for a busy machine; and the poll interval.
TIMEOUT = 30.0
POLL_INTERVAL = 0.01


def wait_for(fact: Callable[[], T], timeout: float, check: Callable[[], object] = lambda: None) -> T:
    """Poll `fact` until it returns a true value, and return it; `check` is called between polls, and may raise."""
    end = time.monotonic() + timeout
    while not (value := fact()):
        if time.monotonic() > end:
            raise AssertionError(f"the awaited condition did not become true within {timeout:g} s")
        check()
        time.sleep(POLL_INTERVAL)
    return value


def kill_all(supervisor: "Popen[Any]") -> None:
    """Kill the supervisor and the processes that it has started."""
    if supervisor.poll() is None:
        # The supervisor is stopped first: it would replace a process that dies.
        supervisor.send_signal(signal.SIGSTOP)
        for pid in _descendants(supervisor.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        supervisor.kill()
    supervisor.wait(TIMEOUT)


def _descendants(pid: int) -> list[int]:
    """Return the processes that the process has started, those that they have started, and so on."""
    found: list[int] = []
    parents = [str(pid)]
    while parents:
        command = ["pgrep", "-P", ",".join(parents)]
        parents = run(command, check=False, stdout=PIPE, text=True).stdout.split()
        found += map(int, parents)
    return found


class WorkerProcess:
    """`python -m sereno worker`, on the database and the schema of an application under test."""

    def __init__(self, name: str, app: Sereno, options: Sequence[str] = ()) -> None:
        environment = dict(os.environ)
        environment |= {"SERENO_DATABASE_URL": app.url, "SERENO_SCHEMA": app.settings.schema}
        if kept := dict.fromkeys(app.registry.carriable, IN_POSTGRES):
            environment["SERENO_CARRIERS"] = json.dumps(kept)
        environment["PYTHONPATH"] = os.pathsep.join([str(path) for path in sys.path if path])
        command = [sys.executable, "-m", "sereno", "worker", name, *options]
        self._start(command, environment)

    def _start(self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None = None) -> None:
        self._process = Popen(command, env=environment, stdout=output, stderr=None if output is None else STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, fact: Callable[[], T], timeout: float = TIMEOUT) -> T:
        """Wait until `fact` returns a true value, and return it. Fail if the worker ends before."""
        return wait_for(fact, timeout, self._check_running)

    def _check_running(self) -> None:
        if self._process.poll() is not None:
            raise AssertionError(
                f"the worker ended with exit code {self._process.returncode} before the awaited condition became true"
            )

    def kill(self) -> None:
        """Kill the worker and its children with SIGKILL: nothing is reported or released. Idempotent."""
        kill_all(self._process)

    def stop(self) -> int:
        """Stop the worker with SIGTERM, as a deployment does: it finishes its running jobs. Return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(TIMEOUT)
