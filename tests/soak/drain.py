"""A drain of plain jobs on the database of the soak, compared with the bare ceiling on the same server just before."""

import tempfile
from pathlib import Path
from statistics import mean

import psycopg

from bench import ceiling
from bench.context import BenchContext
from bench.drain import Drained, fill, watch
from bench.report import Report
from bench.server import Server
from bench.tally import Tally
from bench.workers import working
from tests.facts import one
from tests.soak.figures import DrainShare

# The workers of the soak do not serve it.
QUEUE = "drain"


def drain(server: Server, url: str, jobs: int, rounds: int) -> list[DrainShare]:
    """Return the share of the ceiling that a worker reaches, for each round between two ceilings."""
    context = BenchContext(server, Report(as_json=False), quick=True)
    before = ceiling.measure(context, jobs)
    shares = []
    for _ in range(rounds):
        drained = _drain(url, jobs)
        after = ceiling.measure(context, jobs)
        spent = drained.worker + drained.server
        shares.append(
            DrainShare(
                speed=drained.rate / mean([before.rate, after.rate]),
                processor=mean([before.spent, after.spent]) / spent,
            )
        )
        before = after
    return shares


def _drain(url: str, jobs: int) -> Drained:
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as directory,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        tally = Tally.create(Path(directory) / "tally")
        first = one(connection, "select pg_sequence_last_value('sereno.jobs_id_seq')") + 1
        last = fill(url, jobs, queue=QUEUE)
        with working(url, tally, queue=QUEUE) as workers:
            return watch(connection, workers, jobs, last, first)
