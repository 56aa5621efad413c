"""Enqueue rate of many clients, each one job after the other, beside a worker that listens and beside one that polls.

NOTIFY takes a database-wide lock until its commit is flushed, so clients that all notify wait for each other.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.context import BenchContext
from bench.workers import BenchmarkFailed, working

SECONDS = 6.0
SECONDS_TO_START = 4.0
ROUNDS = 2


def run(context: BenchContext) -> None:
    """`enqueue_notify`, beside a worker that listens, compared with `enqueue_poll`, beside one that polls."""
    rates: dict[str, list[float]] = {"enqueue_poll": [], "enqueue_notify": []}
    for _ in range(context.size(ROUNDS, 1)):
        for name, measured in rates.items():
            with _setting("SERENO_NOTIFY", str(name == "enqueue_notify").lower()):
                measured.append(_measure(context))
    poll, notify = (sum(measured) / len(measured) for measured in rates.values())
    context.report.note(f"{context.clients} clients, each one job after the other, beside one worker")
    context.report.figure("enqueue_poll", poll, "jobs/s")
    context.report.figure("enqueue_notify", notify, "jobs/s", "enqueue_poll", poll)


def _measure(context: BenchContext) -> float:
    """Return jobs per second of all clients together."""
    with context.server.fresh("clients") as url, context.tally() as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        # Clients always notify when a worker listens: only the workers differ.
        with _setting("SERENO_NOTIFY", "true"):
            start = time.time() + SECONDS_TO_START
            command = [sys.executable, "-m", "bench.enqueue_client", url, str(start), str(SECONDS)]
            clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(context.clients)]
            counts = [client.communicate()[0] for client in clients]
        if any(client.returncode for client in clients):
            raise BenchmarkFailed("a client ended with an error")
    return sum(int(count) for count in counts) / SECONDS


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
