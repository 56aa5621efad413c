"""Time from enqueue to the start of the handler: in a worker without other jobs, and at 5,000 jobs a second."""

import subprocess
import sys
import time
from statistics import quantiles

from bench.context import BenchContext
from bench.offered_client import RATE, SECOND, SECONDS, SECONDS_QUICK, SECONDS_TO_START, SECONDS_WARM_UP
from bench.tasks import MESSAGE, Tasks, microseconds, register
from bench.workers import BenchmarkFailed, working
from sereno import Sereno

SECONDS_BETWEEN = 0.01
# Jobs that are not counted: both sides still open connections and prepare statements.
WARM_UP = 50
SECONDS_TO_BECOME_IDLE = 1.0


def run(context: BenchContext) -> None:
    """`latency_p50` and `latency_p99`, in milliseconds; under load `latency_loaded_p50` and `latency_loaded_p99`."""
    _idle(context)
    _loaded(context)


def _idle(context: BenchContext) -> None:
    _report(context, "latency", idle_samples(context, WARM_UP + context.size(500, 200)))


def idle_samples(context: BenchContext, jobs: int) -> list[int]:
    """Enqueue one job after the other; return the microseconds of each from the call, without those of the warm-up."""
    with context.server.fresh("latency") as url, context.tally(jobs) as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_BECOME_IDLE)
        app = Sereno(url)
        try:
            _enqueue_paced(register(app), jobs)
        finally:
            app.close()
        workers.wait_for(lambda: tally.executed >= jobs)
        return tally.samples[WARM_UP:]


def _enqueue_paced(tasks: Tasks, jobs: int) -> None:
    began = time.perf_counter()
    for number in range(jobs):
        time.sleep(max(0.0, began + number * SECONDS_BETWEEN - time.perf_counter()))
        tasks.stamped.enqueue(microseconds(), MESSAGE)


def _loaded(context: BenchContext) -> None:
    """A producer offers jobs at a fixed rate, in a process of its own; each from its instant in the timetable."""
    uncounted = RATE * SECONDS_WARM_UP
    jobs = uncounted + RATE * context.size(SECONDS, SECONDS_QUICK)
    with context.server.fresh("latency") as url, context.tally(jobs) as tally, working(url, tally) as workers:
        workers.wait_for(lambda: bool(tally.processes))
        begin = microseconds() + SECONDS_TO_START * SECOND
        command = [sys.executable, "-m", "bench.offered_client", url, str(begin), str(jobs)]
        with subprocess.Popen(command) as producer:
            try:
                workers.wait_for(lambda: tally.executed >= jobs or bool(producer.poll()))
            finally:
                producer.terminate()
        if tally.executed != jobs:
            raise BenchmarkFailed(f"{jobs} jobs were offered, but {tally.executed} handlers ran")
        # In the order of their start, so the first ones are those of the first seconds.
        samples = tally.samples[uncounted:]
    context.report.note(f"latency_loaded: {RATE:,} jobs/s offered, latest start {max(samples) / 1000:,.1f} ms")
    _report(context, "latency_loaded", samples)


def _report(context: BenchContext, name: str, samples: list[int]) -> None:
    percentiles = quantiles(samples, n=100, method="inclusive")
    context.report.figure(f"{name}_p50", percentiles[49] / 1000, "ms")
    context.report.figure(f"{name}_p99", percentiles[98] / 1000, "ms")
