"""What a number of shards does with the measured costs of a job: capacity, latency, WAL, disk, and failures.

Shards share nothing: a shard is one PostgreSQL with its own workers. Everything follows from the processor time that
one job costs PostgreSQL and a worker process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random

from bench.scale.outages import Outage, capacity_steps, departures, draw_outages, late_jobs, lost_share
from bench.scale.queueing import Visit, percentile, poisson, sojourns
from sereno.worker.claiming.slots import AHEAD_SECONDS, MOST_AHEAD

DAY = 86_400.0
SEED = 20_261_118
# Jobs of one shard that are simulated one by one, for the latency.
SAMPLED = 20_000


@dataclass(frozen=True)
class Costs:
    """Of one job. Processor seconds of the producer, of PostgreSQL and of a worker; bytes of WAL and of history.

    `batch`: jobs that are enqueued with one call. `idle`: measured seconds from enqueue to start in an idle system:
    round trips, the commit, the notification.
    """

    batch: int
    producer: float
    enqueue: float
    run: float
    worker: float
    wal: float
    history: float
    idle: Sequence[float]

    @property
    def postgres(self) -> float:
        return self.enqueue + self.run


@dataclass(frozen=True)
class Cluster:
    """`load`: offered jobs as a share of the capacity. `shared_cores`: everything runs on these, on one machine."""

    shards: int
    postgres_cores: int = 2
    load: float = 0.6
    shared_cores: float | None = None
    workers: int | None = None

    def worker_processes(self, costs: Costs) -> int:
        """Return the workers of one shard: as given, or as many as PostgreSQL can keep busy, and at least two."""
        return self.workers or max(2, ceil(self.postgres_cores * costs.worker / costs.postgres))


@dataclass(frozen=True)
class Failures:
    """Assumptions, in seconds: how often a node fails, and how long it is away. `late`: what counts as late."""

    postgres_between: float = 30 * DAY
    failover: float = 30.0
    worker_between: float = 7 * DAY
    restart: float = 10.0
    lease: float = 30.0
    late: float = 1.0
    horizon: float = 30 * DAY


@dataclass(frozen=True)
class Prediction:
    """`capacity`, `rate`: jobs a second of all shards. `lost`: share of the capacity. `lowest`: its lowest share.

    `late`: share of the jobs. `p50`, `p99`: milliseconds from enqueue to start, while nothing fails. `wal`: MB a second
    of one shard; `history`: GB a day of one shard.
    """

    shards: int
    workers: int
    capacity: float
    rate: float
    p50: float
    p99: float
    lost: float
    lowest: float
    late: float
    wal: float
    history: float


def shard_capacity(costs: Costs, cluster: Cluster) -> float:
    """Return the jobs a second of one shard: PostgreSQL and its workers limit it, or the cores that all share."""
    bounds = [cluster.postgres_cores / costs.postgres, cluster.worker_processes(costs) / costs.worker]
    if cluster.shared_cores is not None:
        bounds.append(cluster.shared_cores / (costs.postgres + costs.worker + costs.producer) / cluster.shards)
    return min(bounds)


def shards_for(costs: Costs, rate: float, cluster: Cluster) -> int:
    """Return the number of shards that do this many jobs a second at the cluster's load."""
    return ceil(rate / (shard_capacity(costs, cluster) * cluster.load))


def predict(costs: Costs, cluster: Cluster, failures: Failures | None = None, seed: int = SEED) -> Prediction:
    """Simulate the cluster; the same seed gives the same result."""
    rng = Random(seed)  # noqa: S311 - a simulation
    full = shard_capacity(costs, cluster)
    rate = full * cluster.load
    waits = latencies(costs, cluster, rate, rng)
    lost, lowest, late = _fail(costs, cluster, failures or Failures(), rng)
    return Prediction(
        shards=cluster.shards,
        workers=cluster.worker_processes(costs),
        capacity=full * cluster.shards,
        rate=rate * cluster.shards,
        p50=percentile(waits, 0.5) * 1000,
        p99=percentile(waits, 0.99) * 1000,
        lost=lost,
        lowest=lowest,
        late=late,
        wal=costs.wal * rate / 1e6,
        history=costs.history * rate * DAY / 1e9,
    )


def latencies(
    costs: Costs, cluster: Cluster, rate: float, rng: Random, arrivals: Iterator[float] | None = None
) -> list[float]:
    """Return the seconds from enqueue to the start of the handler, for the calls of one shard.

    The jobs of a call visit PostgreSQL together, to be written and to be claimed, then a worker; later both again, to
    be settled. Where all run on the same cores, the calls of all shards meet there. `arrivals`: when calls begin; by
    default they do not know of each other.
    """
    postgres, worker, stations = "postgres", "worker", {"postgres": cluster.postgres_cores}
    if cluster.shared_cores is None:
        stations[worker] = cluster.worker_processes(costs)
    else:
        worker, stations, rate = postgres, {postgres: max(1, int(cluster.shared_cores))}, rate * cluster.shards
    enqueue = costs.enqueue + (costs.producer if cluster.shared_cores is not None else 0.0)
    route = [
        Visit(postgres, enqueue * costs.batch),
        Visit(postgres, costs.run / 2 * costs.batch),
        Visit(worker, costs.worker / 2 * costs.batch),
        Visit(postgres, costs.run / 2 * costs.batch),
        Visit(worker, costs.worker / 2 * costs.batch),
    ]
    calls = arrivals or poisson(rng, rate / costs.batch, SAMPLED)
    found = sojourns(calls, stations, route, counted=3, rng=rng)
    return [rng.choice(costs.idle) + each for each in found]


def held_jobs(rate: float) -> float:
    """Return how many jobs a worker that starts `rate` jobs a second has claimed ahead: they wait for its lease."""
    return min(MOST_AHEAD, rate * AHEAD_SECONDS)


def _fail(costs: Costs, cluster: Cluster, failures: Failures, rng: Random) -> tuple[float, float, float]:
    """Return the lost share of the capacity, the lowest share at any moment, and the share of late jobs."""
    full = shard_capacity(costs, cluster)
    workers = cluster.worker_processes(costs)
    rate, horizon = full * cluster.load, failures.horizon
    lost = late = 0.0
    away: list[Outage] = []
    for _ in range(cluster.shards):
        postgres = draw_outages(rng, failures.postgres_between, failures.failover, horizon)
        crashes = [
            each
            for _ in range(workers)
            for each in draw_outages(rng, failures.worker_between, failures.restart, horizon, 1 / workers)
        ]
        steps = capacity_steps([(full, postgres), (workers / costs.worker, crashes)], horizon)
        lost += lost_share(steps, full, horizon) / cluster.shards
        late += late_jobs(departures(steps, rate, horizon), rate, failures.late)
        late += len(crashes) * held_jobs(rate / workers)
        away += [replace(each, share=1 / cluster.shards) for each in postgres]
        away += [replace(each, share=each.share / cluster.shards) for each in crashes]
    lowest = min(step.capacity for step in capacity_steps([(1.0, away)], horizon))
    return lost, lowest, late / (rate * horizon * cluster.shards)


def assumptions(costs: Costs, cluster: Cluster, failures: Failures) -> Sequence[str]:
    """Return the sentences that a reader has to believe before the table."""
    cores = cluster.postgres_cores
    text = f"""
A job costs PostgreSQL {costs.enqueue * 1e6:.0f} µs to enqueue, {costs.batch} with each call, and
{costs.run * 1e6:.0f} µs to claim and settle, and a worker {costs.worker * 1e6:.0f} µs, at every speed. Its handler does
nothing and waits for nothing.

A PostgreSQL of {cores} cores does {cores} times what one core does. It has enough workers on other machines to keep it
busy, and at least two. Disks and networks are not the limit.

Each shard is offered {cluster.load:.0%} of its capacity, by calls that do not know of each other.

The latency of an idle system is added to the time in queues. It was measured on one machine: a network adds its round
trips.

A PostgreSQL fails every {failures.postgres_between / DAY:.0f} days and is away for {failures.failover:.0f} s; producers
wait meanwhile. A worker fails every {failures.worker_between / DAY:.0f} days and is away for {failures.restart:.0f} s;
the jobs that it claimed ahead wait until its lease of {failures.lease:.0f} s ends.

A job is late if it starts more than {failures.late:.0f} s after its turn. Simulated: thirty days, seed {SEED}.
"""
    return [" ".join(part.split()) for part in text.split("\n\n")]
