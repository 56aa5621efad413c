"""How many workers a queue needs, for autoscalers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sereno.bounded_count import BOUND
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.queues import list_queues
from sereno.settings import Settings

_sql = queries("jobs/queries/autoscale")

# Seconds over which the run time of an attempt is averaged.
RUN_TIME_SPAN = 600.0
# Seconds: the default of AutoscaleQuery.target.
TARGET = 60.0


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """The work of a queue. `ready`, `running`: at most 10,000 of each in PostgreSQL.

    `ready`: with those at a carrier, and those that are due and that only a worker can make ready.
    `oldest_seconds`: since the oldest of them was due. `run_seconds`: of an average attempt, null without any lately.
    """

    queue: str
    ready: int
    running: int
    oldest_seconds: float
    run_seconds: float | None
    workers: int
    slots: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class AutoscaleQuery:
    """`queues`: of one deployment, all if empty. `slots`: of one worker for each queue, if not those of live workers.

    `target`: seconds in which the ready jobs shall have started.
    """

    queues: Sequence[str] = ()
    slots: int | None = None
    target: float = TARGET


@dataclass(frozen=True, slots=True)
class QueueAutoscale(QueueDemand):
    """`wanted_workers`: worker processes that the queue needs."""

    wanted_workers: int


@dataclass(frozen=True, slots=True)
class Autoscale:
    """The queues of one deployment. `wanted_workers`: the most that any of them needs, as each worker serves all."""

    wanted_workers: int
    workers: int
    ready: int
    running: int
    oldest_seconds: float
    queues: list[QueueAutoscale]


def queue_demands() -> Operation[list[QueueDemand]]:
    """Return every queue that has jobs, a worker, a pause or a carrier."""
    lines = yield from list_queues()
    run_times = yield from minute_stats.run_times(RUN_TIME_SPAN)
    due = {queue: (jobs, age) for queue, jobs, age in (yield Statement(_sql["due_jobs"], {"bound": BOUND}))}
    found = []
    for line in lines:
        carrier, (due_jobs, due_seconds) = line.carrier, due.get(line.queue, (0, 0.0))
        oldest = (line.oldest_seconds, due_seconds, carrier.oldest_seconds if carrier else None)
        found.append(
            QueueDemand(
                line.queue,
                line.ready.value + due_jobs + (carrier.pending_jobs + carrier.relay_jobs if carrier else 0),
                line.running.value,
                # Without an exponent, which not every autoscaler can read.
                round(max(seconds or 0.0 for seconds in oldest), 3),
                run_times.get(line.queue),
                line.workers,
                line.slots,
                line.is_paused,
            )
        )
    return found


def autoscale(demands: Sequence[QueueDemand], query: AutoscaleQuery, settings: Settings) -> Autoscale:
    """Return how many workers these queues need."""
    known = {demand.queue: demand for demand in demands}
    chosen = [known.get(name) or QueueDemand(name, 0, 0, 0.0, None, 0, 0, False) for name in query.queues or known]
    found = [_queue(each, query.slots or _slots_of_one(each, settings), query.target) for each in chosen]
    return Autoscale(
        max((each.wanted_workers for each in found), default=0),
        max((each.workers for each in found), default=0),
        sum(each.ready for each in found),
        sum(each.running for each in found),
        max((each.oldest_seconds for each in found), default=0.0),
        found,
    )


def wanted_workers(demand: QueueDemand, slots: int, target: float) -> int:
    """Return how many workers with that many slots run the running jobs, and start the ready ones in time.

    A job of a tenth of the target needs a tenth of a slot; one that takes longer, or of unknown length, a whole one.
    """
    needed = float(demand.running)
    if not demand.is_paused:
        share = 1.0 if demand.run_seconds is None else min(1.0, demand.run_seconds / target)
        needed += demand.ready * share
    # Rounding errors must not start another worker.
    wanted = math.ceil(round(needed / slots, 6))
    if demand.is_paused or not demand.ready:
        return wanted
    is_late = demand.oldest_seconds > target and demand.running >= demand.slots
    # All slots are busy and jobs are late, so the average misleads: one more, and again until they are in time.
    return max(1, wanted, demand.workers + 1 if is_late else 0)


def _queue(demand: QueueDemand, slots: int, target: float) -> QueueAutoscale:
    values = {name: getattr(demand, name) for name in QueueDemand.__slots__}
    return QueueAutoscale(**values, wanted_workers=wanted_workers(demand, slots, target))


def _slots_of_one(demand: QueueDemand, settings: Settings) -> int:
    """Return the slots of one live worker; those of the settings while none is alive."""
    if demand.workers and demand.slots:
        return max(1, demand.slots // demand.workers)
    return (settings.queues or {}).get(demand.queue) or settings.concurrency
