"""How fast many clients enqueue, each one job after the other: beside a worker that is told, and one that polls.

NOTIFY takes a lock of the whole database until its commit is flushed, so clients that all notify wait for each other.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.site import Site
from bench.workers import BenchmarkFailed, working

SECONDS = 6.0
SECONDS_TO_START = 4.0
ROUNDS = 2


def run(site: Site) -> None:
    """`enqueue_told` against `enqueue_silent`."""
    rates: dict[str, list[float]] = {"enqueue_silent": [], "enqueue_told": []}
    for _ in range(site.size(ROUNDS, 1)):
        for name, found in rates.items():
            with _setting("SERENO_NOTIFY", str(name == "enqueue_told").lower()):
                found.append(_measure(site))
    silent, told = (sum(found) / len(found) for found in rates.values())
    site.report.note(f"{site.clients} clients, each one job after the other, beside one worker")
    site.report.figure("enqueue_silent", silent, "jobs/s")
    site.report.figure("enqueue_told", told, "jobs/s", "enqueue_silent", silent)


def _measure(site: Site) -> float:
    """Jobs per second of all clients together."""
    with site.server.fresh("clients") as url, site.tally() as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        # Clients always notify if a worker asks for it: only the workers differ.
        with _setting("SERENO_NOTIFY", "true"):
            start = time.time() + SECONDS_TO_START
            command = [sys.executable, "-m", "bench.enqueue_client", url, str(start), str(SECONDS)]
            clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(site.clients)]
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
