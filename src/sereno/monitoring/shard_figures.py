"""The main figures of one database, for an overview of several."""

from dataclasses import dataclass

from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import minute_stats
from sereno.monitoring.snapshot import snapshot

# Seconds over which the rate is averaged.
RATE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """`jobs_per_second`: ended attempts of the last five minutes. `oldest_seconds`: age of the oldest ready job."""

    schema_version: int
    workers: int
    ready: int
    running: int
    dead: BoundedCount
    oldest_seconds: int | None
    jobs_per_second: float


def shard_figures() -> Operation[ShardFigures]:
    """Return the figures of this database."""
    version = yield from job_queries.schema_version()
    seen = yield from snapshot()
    steps = yield from minute_stats.read(RATE_SECONDS, step=RATE_SECONDS)
    ended = sum(each.succeeded + each.retried + each.dead + each.cancelled + each.other for each in steps)
    rate = round(ended / RATE_SECONDS, 2)
    return ShardFigures(version, seen.workers, seen.ready, seen.running, seen.dead, seen.oldest_seconds, rate)
