"""One point of the simulation against reality: two PostgreSQL servers with one worker each, on this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import psycopg

from bench.context import BenchContext
from bench.cpu_time import server_seconds
from bench.drain import fill
from bench.offered_client import JOBS_PER_CALL, RATE, SECOND, SECONDS, SECONDS_QUICK, SECONDS_TO_START, SECONDS_WARM_UP
from bench.process import processor_seconds
from bench.scale.model import SEED, Cluster, Costs, latencies, shard_capacity
from bench.scale.other_processes import OtherProcesses, is_quiet, wait_until_quiet
from bench.scale.queueing import paced, percentile
from bench.server import HOME, PARAMETERS, Server
from bench.tasks import microseconds
from bench.workers import Workers, stop_process, working
from sereno.database.embedded import EmbeddedPostgres

# Of the jobs of each shard, when the measurement begins: both workers have reached their speed.
WARM_UP = 0.1


@dataclass(frozen=True)
class RunningShard:
    connection: psycopg.Connection[Any]
    workers: Workers

    @property
    def executed(self) -> int:
        return self.workers.tally.executed

    def processor_seconds(self) -> float:
        return self.workers.processor_seconds() + server_seconds(self.connection)


def check(context: BenchContext, costs: Costs) -> None:
    """Drain two shards at once; report jobs per second, as predicted and as measured.

    What others on this machine use meanwhile is subtracted from its cores: the prediction is about the rest.
    """
    jobs = context.size(100_000, 30_000)
    with _second_server() as second, ExitStack() as stack:
        urls = [stack.enter_context(server.fresh("scale")) for server in (context.server, second)]
        for url in urls:
            fill(url, jobs)
        wait_until_quiet(context)
        shards = [_started(context, stack, url) for url in urls]
        for shard in shards:
            shard.workers.wait_for(lambda shard=shard: shard.executed >= jobs * WARM_UP)  # type: ignore[misc]  # bound now
        done, began = _executed(shards), time.perf_counter()
        others = OtherProcesses(lambda: _used(shards))
        shards[0].workers.wait_for(lambda: any(shard.executed >= jobs for shard in shards))
        seconds = time.perf_counter() - began
        measured = (_executed(shards) - done) / seconds
        used_by_others = others.cores()
    cores = len(os.sched_getaffinity(0))
    free = Cluster(2, postgres_cores=cores, workers=1, shared_cores=max(0.1, cores - used_by_others))
    # The jobs were enqueued before.
    predicted = 2 * shard_capacity(_run_only(costs), free)
    context.report.figure("two_shards_others", used_by_others, "cores")
    context.report.figure("two_shards_predicted", predicted, "jobs/s")
    context.report.figure("two_shards_measured", measured, "jobs/s", "two_shards_predicted", predicted)


def check_latency(context: BenchContext, costs: Costs) -> None:
    """Offer 5,000 jobs a second to each of two shards; report p50 and p99 until the start, predicted and measured."""
    wait_until_quiet(context)
    uncounted = RATE * SECONDS_WARM_UP
    jobs = uncounted + RATE * context.size(SECONDS, SECONDS_QUICK)
    with _second_server() as second, ExitStack() as stack:
        urls = [stack.enter_context(server.fresh("scale")) for server in (context.server, second)]
        shards = [_started(context, stack, url, jobs) for url in urls]
        for shard in shards:
            shard.workers.wait_for(lambda shard=shard: bool(shard.workers.tally.processes))  # type: ignore[misc]  # bound now
        begin = str(microseconds() + SECONDS_TO_START * SECOND)
        producers = [_producer(stack, url, begin, jobs) for url in urls]
        others = OtherProcesses(lambda: _used(shards, producers))
        for shard in shards:
            shard.workers.wait_for(lambda shard=shard: shard.executed >= jobs)  # type: ignore[misc]  # bound now
        tallies = [shard.workers.tally for shard in shards]
        measured = [sample / SECOND for tally in tallies for sample in tally.samples[uncounted:]]
        # Jobs that wait for a core which others use are not simulated.
        if not is_quiet(context, others, "latency of two shards"):
            return
    cores = len(os.sched_getaffinity(0))
    cluster = Cluster(len(urls), postgres_cores=cores, workers=1, shared_cores=cores)
    arrivals = paced(JOBS_PER_CALL / RATE, len(urls), len(urls) * jobs // JOBS_PER_CALL)
    predicted = latencies(costs, cluster, RATE, Random(SEED), arrivals)  # noqa: S311 - a simulation
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        expected, found = (percentile(each, share) * 1000 for each in (predicted, measured))
        context.report.figure(f"two_shards_{name}_predicted", expected, "ms")
        context.report.figure(f"two_shards_{name}_measured", found, "ms", f"two_shards_{name}_predicted", expected)


def _run_only(costs: Costs) -> Costs:
    return replace(costs, producer=0.0, enqueue=0.0)


def _producer(stack: ExitStack, url: str, begin: str, jobs: int) -> int:
    """Start a producer, and return its process id."""
    process = subprocess.Popen([sys.executable, "-m", "bench.offered_client", url, begin, str(jobs)])
    stack.callback(stop_process, process)
    return process.pid


def _started(context: BenchContext, stack: ExitStack, url: str, samples: int = 0) -> RunningShard:
    connection = stack.enter_context(psycopg.connect(url, autocommit=True))
    connection.execute("analyze sereno.jobs")
    tally = stack.enter_context(context.tally(samples))
    return RunningShard(connection, stack.enter_context(working(url, tally)))


def _executed(shards: list[RunningShard]) -> int:
    return sum(shard.executed for shard in shards)


def _used(shards: list[RunningShard], producers: Sequence[int] = ()) -> float:
    """Return the processor seconds of the shards, of the producers and of this process."""
    shown = sum(shard.processor_seconds() for shard in shards) + time.process_time()
    return shown + sum(map(processor_seconds, producers))


@contextmanager
def _second_server() -> Iterator[Server]:
    HOME.mkdir(exist_ok=True)
    with EmbeddedPostgres(HOME / "postgres_second", parameters=PARAMETERS) as embedded:
        yield Server(embedded.url)
