"""From the call of enqueue to the start of the handler, in a worker that has nothing else to do."""

import time
from statistics import quantiles

from bench.site import Site
from bench.tasks import MESSAGE, Tasks, microseconds, register
from bench.workers import working
from sereno import Sereno

SECONDS_BETWEEN = 0.01
# Not counted: connections are opened and statements prepared, on both sides.
WARM_UP = 50
SECONDS_TO_BECOME_IDLE = 1.0


def run(site: Site) -> None:
    """`latency_p50` and `latency_p99`, in milliseconds."""
    jobs = WARM_UP + site.size(500, 200)
    with site.server.fresh("latency") as url, site.tally(jobs) as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_BECOME_IDLE)
        app = Sereno(url)
        try:
            _enqueue_paced(register(app), jobs)
        finally:
            app.close()
        workers.wait_for(lambda: tally.executed >= jobs)
        percentiles = quantiles(tally.samples[WARM_UP:], n=100, method="inclusive")
    site.report.figure("latency_p50", percentiles[49] / 1000, "ms")
    site.report.figure("latency_p99", percentiles[98] / 1000, "ms")


def _enqueue_paced(tasks: Tasks, jobs: int) -> None:
    began = time.perf_counter()
    for number in range(jobs):
        time.sleep(max(0.0, began + number * SECONDS_BETWEEN - time.perf_counter()))
        tasks.stamped.enqueue(microseconds(), MESSAGE)
