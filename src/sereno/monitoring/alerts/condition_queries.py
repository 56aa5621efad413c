"""Queries for conditions that need an operator. They are independent: one that fails does not affect the others."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from typing import NamedTuple

from sereno.archive.health import COUNTED as COUNTED_FILES
from sereno.archive.health import archive_health
from sereno.database.clock import clock
from sereno.database.migrate import migrations
from sereno.database.statement import Operation, Row, Statement, queries
from sereno.duration import duration_text
from sereno.monitoring import health_queries
from sereno.monitoring.alerts import workflow_conditions
from sereno.monitoring.alerts.carrier_conditions import CARRIER_KINDS, carrier_conditions
from sereno.monitoring.alerts.condition import AlertCondition, Level, command, condition, rank
from sereno.monitoring.health_queries import LockHolder
from sereno.settings import A_DAY, Settings
from sereno.zones import moment

_sql = queries("monitoring/alerts/condition_queries")

# Seconds. A queue is late when a ready job waits longer.
LATE = 60.0
VERY_LATE = 600.0
# The same thresholds as in the doctor.
SCHEDULER_BEHIND = 10.0
LONG_CLOSED = 3600.0
LONG_TRANSACTION = 300.0
NOTIFICATION_USAGE = 0.10
# Seconds. Archiving runs every night; two nights may pass before it counts as late.
ARCHIVE_BEHIND = 2 * A_DAY
# A channel fails when at least this many, and more than half, of its newest deliveries failed.
FAILURES = 10
# Bounds: conditions of one kind that are reported, rows that are read to find them, and ready jobs that are counted.
MOST = 20
BOUND = 10_000
COUNTED = 1000


class ConditionQuery(NamedTuple):
    """One query: its kinds and its operation. `of_tenants`: also for one tenant. `of_settings`: takes the settings."""

    kinds: tuple[str, ...]
    read: Callable[..., Operation[list[AlertCondition]]]
    of_tenants: bool = False
    of_settings: bool = False


def current_conditions(
    settings: Settings, *, tenant: str | None = None, late: float = LATE
) -> Operation[list[AlertCondition]]:
    """Return all conditions, most severe first. `late`: seconds that a ready job may wait. `tenant`: only its own."""
    found: list[AlertCondition] = []
    for query in condition_queries_for(tenant, settings):
        found += yield from query.read(tenant, late)
    return worst_first(found)


def condition_queries_for(tenant: str | None, settings: Settings) -> Sequence[ConditionQuery]:
    """Return the queries for all tenants, or for one; each is called with a tenant and `late`."""
    return [
        query._replace(read=partial(query.read, settings)) if query.of_settings else query
        for query in QUERIES
        if tenant is None or query.of_tenants
    ]


def worst_first(found: Sequence[AlertCondition]) -> list[AlertCondition]:
    return sorted(found, key=lambda each: -rank(each.level))


def _schema(_tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    return schema_conditions((yield from health_queries.applied()), "")


def schema_conditions(applied: dict[int, str] | None, schema: str) -> list[AlertCondition]:
    """Return the conditions of missing migrations, or of a missing schema."""
    if applied is None:
        return [condition("schema.none", schema, "bad", "sereno migrate", schema=schema)]
    behind = _known() - applied.keys()
    return [condition("schema.behind", "", "bad", "sereno migrate", count=len(behind))] if behind else []


@cache
def _known() -> frozenset[int]:
    return frozenset(migration.number for migration in migrations())


def _work(_tenant: str | None, late: float) -> Operation[list[AlertCondition]]:
    alive, silent = yield from health_queries.live_workers()
    rows = yield Statement(_sql["queues"], {"bound": COUNTED, "most": BOUND})
    found: list[AlertCondition] = []
    if not alive:
        found.append(condition("worker.none", "", "bad" if rows else "warn", "sereno worker"))
    if silent:
        found.append(condition("session.silent", "", "bad", "sereno worker", count=silent))
    unserved = [_queue("queue.unserved", row, "bad") for row in rows if not row[4]]
    slow = [row for row in rows if row[4] and not row[5] and (row[2] or 0) > late]
    found += unserved[:MOST]
    found += [_queue("queue.late", row, "bad" if row[2] > max(VERY_LATE, late) else "warn") for row in slow[:MOST]]
    for task, queue in (yield from health_queries.unknown_tasks()):
        remedy = command("sereno job list --task", task)
        found.append(condition("task.unknown", f"{task} in {queue}", "bad", remedy, task=task, queue=queue))
    return found


def _queue(kind: str, row: Row, level: Level) -> AlertCondition:
    queue, ready, age, since, *_ = row
    remedy = command("sereno worker -q", queue) if kind == "queue.unserved" else "sereno queue list"
    # Rounded up: a job that became ready just now does not wait for 0 ms.
    waits = duration_text(max(1.0, age or 0.0))
    return condition(kind, queue, level, remedy, since=since, queue=queue, ready=_capped(ready), age=waits)


def _capped(count: int) -> str | int:
    return count if count < COUNTED else f"{COUNTED:,} or more"


def _dead(tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    rows = yield Statement(_sql["dead"], {"tenant": tenant, "bound": BOUND, "most": MOST})
    remedy = "sereno job list --state dead --task"
    return [
        condition("job.dead", task, "warn", command(remedy, task), since=since, count=count, task=task)
        for task, count, since in rows
    ]


def _scheduler(_tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    found = yield from health_queries.schedules()
    if found.any_due and not found.led:
        return [condition("scheduler.none", "", "bad", "sereno scheduler")]
    if found.behind is None or found.behind <= SCHEDULER_BEHIND:
        return []
    since = moment((yield from clock())) - timedelta(seconds=min(found.behind, 10 * 366 * 86400.0))
    age = duration_text(found.behind)
    return [condition("scheduler.behind", "", "bad", "sereno status", since=since, age=age)]


def _schedules(tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    values = {"tenant": tenant, "bound": BOUND, "most": MOST}
    found = [
        condition(
            "schedule.parked" if state == "parked" else "schedule.failed",
            key,
            "warn",
            command("sereno schedule show", key),
            since=since,
            schedule=key,
            note=note or "",
            **_named(task=task, queue=queue, tenant=whose),
        )
        for key, state, note, since, task, queue, whose in (yield Statement(_sql["schedules"], values))
    ]
    for key, count, since, whose in (yield Statement(_sql["missed"], values)):
        remedy, named = command("sereno schedule show", key), _named(tenant=whose)
        found.append(condition("schedule.missed", key, "warn", remedy, since=since, schedule=key, count=count, **named))
    return found


def _named(**values: str | None) -> dict[str, str]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def is_failing(failed: int, ended: int) -> bool:
    """Return whether a channel with these outcomes of its newest deliveries is reported as failing."""
    return failed >= FAILURES and 2 * failed > ended


def _channels(tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    paused = yield Statement(_sql["channels"], {"tenant": tenant, "most": MOST})
    found = [_paused(*row) for row in paused]
    if tenant is not None:
        return found
    for channel, failed, ended in (yield Statement(_sql["failing"], {"bound": BOUND, "most": MOST})):
        if is_failing(failed, ended):
            remedy = command("sereno delivery list --state failed --channel", channel)
            found.append(
                condition("channel.failing", channel, "warn", remedy, channel=channel, failed=failed, ended=ended)
            )
    return found


def _paused(channel: str, account: str, reason: str, since: datetime) -> AlertCondition:
    remedy = command("sereno channel resume", channel)
    if not account:
        return condition("channel.paused", channel, "bad", remedy, since=since, channel=channel, reason=reason)
    subject = f"{channel} {account}"
    remedy = command(f"{remedy} --account", account)
    return condition(
        "channel.account", subject, "warn", remedy, since=since, channel=channel, account=account, reason=reason
    )


def _tenant(tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    if tenant is None:
        return []
    rows = yield Statement(_sql["tenant"], {"tenant": tenant})
    remedy = command("sereno queue resume --tenant", tenant)
    return [condition("tenant.paused", tenant, "warn", remedy, since=since, tenant=tenant) for (since,) in rows]


def _limits(_tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    found = yield from health_queries.limits(LONG_CLOSED, 0)
    unknown = [
        condition("limit.unknown", name, "bad", command("sereno limit set", name), limit=name) for name in found.unknown
    ]
    age = duration_text(LONG_CLOSED)
    closed = [
        condition("limit.closed", name, "warn", command("sereno limit open", name), limit=name, age=age)
        for name in found.closed
    ]
    blocked = [
        condition("order.blocked", str(job), "warn", f"sereno job retry {job}", job=str(job)) for job in found.blocking
    ]
    return [*unknown, *closed, *blocked]


def _server(_tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    found: list[AlertCondition] = []
    server = yield from health_queries.server()
    if server.notifications > NOTIFICATION_USAGE:
        percent = round(100 * server.notifications)
        found.append(condition("notify.full", "", "bad", "sereno doctor", percent=percent))
    ahead = yield from health_queries.clock_ahead()
    if ahead is not None:
        found.append(condition("clock.moved", "", "warn", "sereno doctor", age=duration_text(abs(ahead))))
    for holder in (yield from health_queries.pinned()):
        if holder.seconds is None or holder.seconds > LONG_TRANSACTION:
            age = "an unknown time" if holder.seconds is None else duration_text(holder.seconds)
            found.append(_pinned(holder, age))
    return found


def _pinned(holder: LockHolder, age: str) -> AlertCondition:
    subject, kind, detail = f"{holder.kind} {holder.name}", holder.kind, holder.detail or "nameless"
    return condition(
        "snapshot.pinned", subject, "warn", "sereno doctor", holder=kind, name=holder.name, detail=detail, age=age
    )


def _archive(settings: Settings, _tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    found = yield from archive_health(settings)
    if not found.is_on:
        return []
    conditions = []
    if found.failed:
        count: str | int = found.failed if found.failed < COUNTED_FILES else f"{COUNTED_FILES:,} or more"
        remedy, error = "sereno archive status", found.error or ""
        conditions.append(
            condition("archive.unverified", "", "bad", remedy, since=found.since, count=count, error=error)
        )
    if found.behind is not None and found.behind > ARCHIVE_BEHIND:
        conditions.append(
            condition("archive.behind", "", "warn", "sereno archive run", age=duration_text(found.behind))
        )
    return conditions


QUERIES: tuple[ConditionQuery, ...] = (
    ConditionQuery(("schema.none", "schema.behind"), _schema),
    ConditionQuery(("worker.none", "session.silent", "queue.unserved", "queue.late", "task.unknown"), _work),
    ConditionQuery(("job.dead",), _dead, of_tenants=True),
    ConditionQuery(("dependency.dead", "group.stalled"), workflow_conditions.links, of_tenants=True),
    ConditionQuery(("requirement.unmet",), workflow_conditions.unmet),
    ConditionQuery(("scheduler.none", "scheduler.behind"), _scheduler),
    ConditionQuery(("schedule.missed", "schedule.parked", "schedule.failed"), _schedules, of_tenants=True),
    ConditionQuery(("channel.paused", "channel.account", "channel.failing"), _channels, of_tenants=True),
    ConditionQuery(("tenant.paused",), _tenant, of_tenants=True),
    ConditionQuery(("limit.unknown", "limit.closed", "order.blocked"), _limits),
    ConditionQuery(("snapshot.pinned", "clock.moved", "notify.full"), _server),
    ConditionQuery(("archive.unverified", "archive.behind"), _archive, of_settings=True),
    ConditionQuery(CARRIER_KINDS, carrier_conditions),
)
