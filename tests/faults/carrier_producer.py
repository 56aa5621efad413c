"""A producer of carried jobs that is at work during a fault, and knows what was accepted."""

import threading
from pathlib import Path
from types import SimpleNamespace

import psycopg

from sereno.errors import CarrierUnavailable
from tests.facts import until
from tests.faults.carrier_world import words

# Seconds. An election and a message that is delivered again take a while.
PATIENCE = 120.0
# Jobs of one call, and seconds between two calls.
CHUNK, EVERY = 20, 0.02


class Producer(threading.Thread):
    """Publishes jobs until it is stopped, and notes which were accepted."""

    def __init__(self, tasks: SimpleNamespace) -> None:
        super().__init__(daemon=True)
        self._tasks = tasks
        self._is_stopped = threading.Event()
        self._next = 0
        self.accepted: set[int] = set()
        self.refused = 0

    def run(self) -> None:
        while not self._is_stopped.wait(EVERY):
            numbers = range(self._next, self._next + CHUNK)
            self._next += CHUNK
            try:
                self._tasks.app.enqueue_many([_job(self._tasks, n) for n in numbers])
            except CarrierUnavailable:
                self.refused += CHUNK
            else:
                self.accepted.update(numbers)

    def stop(self) -> None:
        self._is_stopped.set()
        self.join()

    def goes_on(self, jobs: int = 400) -> None:
        """Wait until more jobs were accepted."""
        wanted = len(self.accepted) + jobs
        until(lambda: len(self.accepted) >= wanted, PATIENCE)

    def assert_nothing_lost(self, connection: psycopg.Connection, log: Path) -> None:
        """Compare the journal of the handlers, and what they wrote to `effects`, with what was accepted."""
        failing = {n for n in self.accepted if n % 40 == 7}
        rows = connection.execute("select (args ->> 'n')::int from sereno.history where state = 'dead'").fetchall()
        assert self.accepted - failing <= words(log, "done").keys()
        assert failing <= {n for (n,) in rows}
        ((written, jobs),) = connection.execute("select count(*), count(distinct job_id) from effects").fetchall()
        assert written == jobs > 0, "a transaction was committed twice"


def _job(tasks: SimpleNamespace, n: int) -> object:
    if n % 40 == 7:
        return tasks.fail.job(n)
    return tasks.write.job(n) if n % 40 == 13 else tasks.click.job(n, 0.01)
