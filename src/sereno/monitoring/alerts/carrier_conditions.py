"""Conditions of carried queues that need an operator."""

from collections.abc import Iterator

from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.queries.carriers import CarrierLine, list_carriers
from sereno.jobs.queries.jobs import pauses
from sereno.monitoring.alerts.condition import AlertCondition, Level, command, condition
from sereno.monitoring.carrier_checks import ALMOST_FULL, FULL, RELAY_LATE, usage

# Seconds after which a late message is a serious condition.
VERY_LATE = 600.0
# Conditions of one kind that are reported.
MOST = 20

CARRIER_KINDS = ("carrier.away", "carrier.replicas", "carrier.late", "carrier.full", "relay.late")


def carrier_conditions(_tenant: str | None, late: float) -> Operation[list[AlertCondition]]:
    """Return the conditions of all carried queues. `late`: seconds that a message may wait."""
    lines = yield from list_carriers()
    if not lines:
        return []
    paused = {pause.name for pause in (yield from pauses([line.queue for line in lines])) if pause.kind == "queue"}
    found: list[AlertCondition] = []
    for line in lines[:MOST]:
        found += _conditions(line, late, is_paused=line.queue in paused)
    return found


def _conditions(line: CarrierLine, late: float, *, is_paused: bool) -> Iterator[AlertCondition]:
    queue, show = line.queue, command("sereno queue show", line.queue)
    if line.state == "away":
        # If no job waits there, the queue works without it: its jobs run from PostgreSQL. Direct jobs are refused.
        level: Level = "bad" if line.direct or line.messages or line.relay_messages else "warn"
        error = line.error or line.address
        yield condition("carrier.away", queue, level, show, since=line.reached_at, queue=queue, error=error)
    elif line.state == "up":
        yield from _stream_conditions(line, show, late, is_paused=is_paused)
    if line.relay_oldest_seconds is not None and line.relay_oldest_seconds > RELAY_LATE:
        age = duration_text(line.relay_oldest_seconds)
        yield condition("relay.late", queue, "bad", show, queue=queue, jobs=line.relay_jobs, age=age)


def _stream_conditions(line: CarrierLine, show: str, late: float, *, is_paused: bool) -> Iterator[AlertCondition]:
    queue, age, used = line.queue, line.oldest_seconds or 0.0, usage(line)
    if line.current_replicas < line.replicas:
        current, wanted = line.current_replicas, line.replicas
        yield condition("carrier.replicas", queue, "warn", show, queue=queue, current=current, wanted=wanted)
    if age > late and not is_paused:
        level: Level = "bad" if age > max(VERY_LATE, late) else "warn"
        jobs = line.pending_jobs
        yield condition("carrier.late", queue, level, show, queue=queue, jobs=jobs, age=duration_text(age))
    if used > ALMOST_FULL:
        level = "bad" if used > FULL else "warn"
        yield condition("carrier.full", queue, level, show, queue=queue, percent=round(100 * used))
