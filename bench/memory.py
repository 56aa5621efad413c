"""Whether a worker grows with the number of jobs that it has run."""

import psycopg

from bench.drain import fill, watch
from bench.process import resident_mebibytes
from bench.site import Site
from bench.workers import working


def run(site: Site) -> None:
    """`memory_growth`: resident memory after the last job, less that at the first one."""
    jobs = site.size(1_000_000, 100_000)
    with (
        site.server.fresh("memory") as url,
        site.tally() as tally,
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
    site.report.note(f"memory: {before:.1f} MiB at the first job, {warm:.1f} at a tenth, {after:.1f} after {jobs:,}")
    site.report.figure("memory_growth", after - before, "MiB")
