"""Growth of a worker's memory with the number of jobs that it has run."""

import psycopg

from bench.context import BenchContext
from bench.drain import fill, watch
from bench.process import resident_mebibytes
from bench.workers import working


def run(context: BenchContext) -> None:
    """`memory_growth`: resident memory after the last job minus that at the first one."""
    jobs = context.size(1_000_000, 100_000)
    with (
        context.server.fresh("memory") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        last = fill(url, jobs)
        with working(url, tally) as workers:
            workers.wait_for(lambda: bool(tally.executed))
            (process,) = tally.processes
            before = resident_mebibytes(process)
            workers.wait_for(lambda: tally.executed >= jobs // 10)
            warm = resident_mebibytes(process)
            watch(connection, workers, jobs, last)
            after = resident_mebibytes(process)
    context.report.note(f"memory: {before:.1f} MiB at the first job, {warm:.1f} at a tenth, {after:.1f} after {jobs:,}")
    context.report.figure("memory_growth", after - before, "MiB")
