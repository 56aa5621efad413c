"""Reads the gauges of the whole database in one transaction of a few bounded queries."""

import asyncio
from dataclasses import replace
from time import monotonic

from sereno.archive.health import archive_health
from sereno.bounded_count import BOUND
from sereno.database.statement import Operation, Row, Statement, queries
from sereno.jobs.queries.carriers import list_carriers
from sereno.monitoring.standby import primary_position, standby_lag
from sereno.monitoring.status import scheduler
from sereno.settings import Settings
from sereno.telemetry.database_gauges import OTHER, DatabaseGauges, Samples

_sql = queries("monitoring/gauges/queries")

# Queues that are read, and ready jobs of all of them together: a queue gets its share, and BOUND at most.
MOST_QUEUES = 1000
MOST_READY = 50_000
# Queues and tenants with a line of their own; the others are summed up.
LARGE_QUEUES, LARGE_TENANTS = 100, 20
# Limits, keys that are read of each, and channels, queues and standbys of one result.
MOST_LIMITS, MOST_KEYS, MOST_ROWS = 200, 1000, 1000


def database_gauges(settings: Settings) -> Operation[DatabaseGauges]:
    """Return the gauges. Their cost does not grow with the number of jobs, schedules or deliveries."""
    began = monotonic()
    samples: dict[str, Samples] = {}
    for part in (_jobs, _queues, _schedules, _deliveries, _limits, _replicas, _carriers):
        samples |= yield from part()
    archive = yield from archive_health(settings)
    if archive.is_on:
        samples["sereno_archive_lag_seconds"] = [((), max(0.0, archive.behind or 0.0))]
        samples["sereno_archive_failures"] = [((), archive.failed)]
    written = (yield from primary_position()) if settings.read_url is not None else None
    return DatabaseGauges(samples, began, monotonic() - began, written)


async def with_standby(found: DatabaseGauges, settings: Settings) -> DatabaseGauges:
    """Return the gauges with the lag of the standby of `read_url`."""
    if found.written is None:
        return found
    lag = await asyncio.to_thread(standby_lag, settings, found.written)
    if lag is None:
        return found
    replicas = [*found.samples["sereno_replica_lag_seconds"], (("read_url",), lag)]
    return replace(found, samples={**found.samples, "sereno_replica_lag_seconds": replicas})


def _jobs() -> Operation[dict[str, Samples]]:
    ready = yield Statement(_sql["ready_queues"], {"most": MOST_QUEUES})
    rows = yield Statement(
        _sql["jobs"],
        {
            "queues": [row[0] for row in ready],
            "of_queue": min(BOUND, MOST_READY // max(1, len(ready))),
            "bound": BOUND,
            "tenants": LARGE_TENANTS,
            "labels": LARGE_QUEUES,
            "other": OTHER,
        },
    )
    ages: dict[tuple[str, ...], float] = {}
    for queue, tenant, _, _, age in rows:
        if age is not None:
            ages[queue, tenant] = max(age, ages.get((queue, tenant), 0.0))
    # A job that is the first of its priority is counted as `ready`, too, unless it is behind the bound.
    counts = [((queue, tenant, state), count) for queue, tenant, state, count, _ in rows if state != "first"]
    return {"sereno_jobs": counts, "sereno_oldest_ready_seconds": list(ages.items())}


def _queues() -> Operation[dict[str, Samples]]:
    rows = yield Statement(_sql["queues"], {"most": MOST_ROWS})
    return {
        "sereno_queue_workers": [((queue,), workers) for queue, workers, _, _ in rows],
        "sereno_queue_slots": [((queue,), slots) for queue, _, slots, _ in rows],
        "sereno_queue_paused": [((queue,), int(is_paused)) for queue, _, _, is_paused in rows],
    }


def _schedules() -> Operation[dict[str, Samples]]:
    found = yield from scheduler()
    return {
        "sereno_schedules": [((state,), count) for state, count in found.schedules.items()],
        "sereno_scheduler_alive": [((), int(found.alive))],
        "sereno_schedule_overdue_seconds": [((), max(0.0, found.lag_seconds or 0.0))],
    }


def _deliveries() -> Operation[dict[str, Samples]]:
    rows = yield Statement(_sql["deliveries"], {"bound": BOUND, "most": MOST_ROWS})

    def of(kind: str) -> list[Row]:
        return [row[1:] for row in rows if row[0] == kind]

    return {
        "sereno_newest_deliveries": [((channel, state), count) for channel, state, count in of("newest")],
        "sereno_failed_deliveries": [((channel, state), count) for channel, state, count in of("failed")],
        "sereno_channel_pauses": [((channel,), count) for channel, _, count in of("paused")],
    }


def _limits() -> Operation[dict[str, Samples]]:
    rows = yield Statement(_sql["limits"], {"limits": MOST_LIMITS, "keys": MOST_KEYS})
    return {
        "sereno_limit_saturation": [((name,), min(1.0, max(0.0, used))) for name, used, _ in rows],
        "sereno_limit_waiting_keys": [((name,), waiting) for name, _, waiting in rows],
    }


def _replicas() -> Operation[dict[str, Samples]]:
    rows = yield Statement(_sql["replicas"], {"most": MOST_ROWS})
    return {"sereno_replica_lag_seconds": [((name,), lag) for name, lag in rows]}


def _carriers() -> Operation[dict[str, Samples]]:
    lines = yield from list_carriers()
    return {
        "sereno_carrier_lag_seconds": [
            ((line.queue,), max(line.oldest_seconds or 0.0, line.relay_oldest_seconds or 0.0)) for line in lines
        ],
        "sereno_relay_jobs": [((line.queue,), line.relay_jobs) for line in lines],
    }
