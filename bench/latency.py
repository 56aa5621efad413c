"""Time from the call of enqueue to the start of the handler, in a worker without other jobs."""

import time
from statistics import quantiles

from bench.context import BenchContext
from bench.tasks import MESSAGE, Tasks, microseconds, register
from bench.workers import working
from sereno import Sereno

SECONDS_BETWEEN = 0.01
# Jobs that are not counted: both sides still open connections and prepare statements.
WARM_UP = 50
SECONDS_TO_BECOME_IDLE = 1.0


def run(context: BenchContext) -> None:
    """`latency_p50` and `latency_p99`, in milliseconds."""
    jobs = WARM_UP + context.size(500, 200)
    with context.server.fresh("latency") as url, context.tally(jobs) as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_BECOME_IDLE)
        app = Sereno(url)
        try:
            _enqueue_paced(register(app), jobs)
        finally:
            app.close()
        workers.wait_for(lambda: tally.executed >= jobs)
        percentiles = quantiles(tally.samples[WARM_UP:], n=100, method="inclusive")
    context.report.figure("latency_p50", percentiles[49] / 1000, "ms")
    context.report.figure("latency_p99", percentiles[98] / 1000, "ms")


def _enqueue_paced(tasks: Tasks, jobs: int) -> None:
    began = time.perf_counter()
    for number in range(jobs):
        time.sleep(max(0.0, began + number * SECONDS_BETWEEN - time.perf_counter()))
        tasks.stamped.enqueue(microseconds(), MESSAGE)
