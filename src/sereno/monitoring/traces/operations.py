"""Traces for display: schedules, jobs, events and deliveries under one trace, as lanes of a timeline."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.monitoring.traces import queries as traces
from sereno.monitoring.traces.rows import (
    TracedAttempt,
    TracedDelivery,
    TracedEvent,
    TracedFire,
    TracedGroup,
    TracedJob,
    TracedReceipt,
)
from sereno.monitoring.traces.trace import TraceLane, TraceSegment, TraceSpan, cut
from sereno.notifications import queries as notification_queries
from sereno.text import check_text

LARGEST_ID = 2**63 - 1
LONGEST_NUMBER = 20
# Id of a job or an event without a trace.
_THING = re.compile(r"(job|event):(\d{1,19})")


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace. `segments`: the time axis from 0 to 1, with long gaps cut.

    `deliveries`: at most the first 200; `receipts`: those of these deliveries. `whole`: nothing but deliveries was left
    out.
    """

    id: str
    start: datetime
    end: datetime
    lanes: list[TraceLane]
    segments: list[TraceSegment]
    deliveries: list[TracedDelivery]
    receipts: list[TracedReceipt]
    whole: bool


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A trace that was found, and the job or event by which it was found. `id`: the argument of `trace`."""

    id: str
    kind: Literal["job", "event"]
    number: int
    name: str
    subject: str | None
    tenant: str | None
    at: datetime


def trace(trace_id: str, *, tenant: str | None = None) -> Operation[Trace]:
    """Return a trace by id; `job:7` and `event:7` name a job or an event without one. `tenant`: only its part."""
    check_text("trace", trace_id)
    jobs = yield from traces.jobs(trace_id, tenant=tenant)
    events = yield from traces.events(trace_id, tenant=tenant)
    if not jobs and not events:
        thing = _THING.fullmatch(trace_id)
        if thing is not None:
            return (yield from _of_thing(thing[1], int(thing[2]), tenant))
        raise ConfigurationError(f"no job or event has the trace {trace_id!r:.80}")
    return (yield from _timeline(trace_id, jobs, events))


def find(
    *, subject: str | None = None, job: int | None = None, delivery: int | None = None, tenant: str | None = None
) -> Operation[list[TraceLine]]:
    """Return the traces of events with a subject, of a job, or of a delivery; newest first."""
    check_text("subject", subject)
    if sum(given is not None for given in (subject, job, delivery)) != 1:
        raise InvalidArguments("pass exactly one of subject, job and delivery")
    if subject is not None:
        return [_line(each) for each in (yield from traces.about(subject, tenant=tenant))]
    if delivery is not None:
        event = (yield from traces.event(delivery=delivery, tenant=tenant)) if _is_id(delivery) else None
        return [_line(event)] if event is not None else []
    found = (yield from traces.job(job, tenant=tenant)) if job is not None and _is_id(job) else None
    if found is None:
        return []
    carried, row = found
    return [_line_of_job(carried, row)]


def newest(*, tenant: str | None = None, most: int = 50) -> Operation[list[TraceLine]]:
    """Return the traces of the newest events that have a subject."""
    check_text("tenant", tenant)
    return [_line(each) for each in (yield from traces.newest(tenant=tenant, most=most))]


def anything(text: str, *, tenant: str | None = None) -> Operation[list[TraceLine]]:
    """Return the traces that match a search text: a trace id, a subject, or the id of a job or delivery."""
    check_text("trace", text)
    found = yield from _carrying(text, tenant)
    found += yield from find(subject=text, tenant=tenant)
    thing = _THING.fullmatch(text)
    if thing is not None and thing[1] == "event" and _is_id(int(thing[2])):
        event = yield from traces.event(int(thing[2]), tenant=tenant)
        found += [_line(event)] if event is not None else []
    number = text if text.isascii() and text.isdecimal() else thing[2] if thing is not None else None
    if number is not None and len(number) < LONGEST_NUMBER and (thing is None or thing[1] == "job"):
        found += yield from find(job=int(number), tenant=tenant)
        found += (yield from find(delivery=int(number), tenant=tenant)) if thing is None else []
    return list({(each.id, each.kind, each.number): each for each in found}.values())


def _carrying(trace_id: str, tenant: str | None) -> Operation[list[TraceLine]]:
    """Return the trace with this id, represented by its first event or job."""
    events = yield from traces.events(trace_id, tenant=tenant)
    if events:
        return [_line(events[0])]
    jobs = yield from traces.jobs(trace_id, tenant=tenant)
    return [_line_of_job(trace_id, jobs[0])] if jobs else []


def _of_thing(kind: str, number: int, tenant: str | None) -> Operation[Trace]:
    """Return the trace of a job or an event, with everything that shares its trace id if it has one."""
    if not _is_id(number):
        raise ConfigurationError(f"no {kind} {number}")
    if kind == "job":
        found = yield from traces.job(number, tenant=tenant)
        if found is None:
            raise ConfigurationError(f"no job {number}")
        carried, jobs, events = found[0], [found[1]], list[TracedEvent]()
    else:
        event = yield from traces.event(number, tenant=tenant)
        if event is None:
            raise ConfigurationError(f"no event {number}")
        carried, jobs, events = event.trace, list[TracedJob](), [event]
    if carried is not None:
        jobs = yield from traces.jobs(carried, tenant=tenant)
        events = yield from traces.events(carried, tenant=tenant)
    return (yield from _timeline(carried or f"{kind}:{number}", jobs, events))


def _timeline(trace_id: str, jobs: Sequence[TracedJob], events: Sequence[TracedEvent]) -> Operation[Trace]:
    now = yield from notification_queries.now()
    shown, facts = jobs[: traces.MOST_JOBS], events[: traces.MOST_EVENTS]
    attempts = (yield from traces.attempts([each.id for each in shown])) if shown else []
    fires = yield from traces.fires(shown)
    numbers = [each.id for each in facts]
    bound = traces.BOUND // max(1, len(numbers))
    groups = (yield from traces.deliveries(numbers, bound)) if numbers else []
    sample = (yield from traces.sample(numbers)) if numbers else []
    receipts = (yield from traces.receipts([each.id for each in sample])) if sample else []
    lanes = [
        *(_fire_lane(fire) for fire in fires),
        *(
            _job_lane(each, [one for one in attempts if one.job_id == each.id], _predecessors(each, shown), now)
            for each in shown
        ),
    ]
    for event in facts:
        lanes.append(_event_lane(event))
        lanes += _delivery_lanes(event, [each for each in groups if each.event_id == event.id], bound)
        lanes += _receipt_lanes(event, sample, receipts)
    spans = [span for lane in lanes for span in lane.spans]
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    whole = len(jobs) == len(shown) and len(events) == len(facts) and len(attempts) < traces.MOST_ATTEMPTS
    return Trace(trace_id, start, end, lanes, cut(spans), sample, receipts, whole)


def _fire_lane(fire: TracedFire) -> TraceLane:
    at = fire.fired_at or fire.planned_at
    words = f"for {fire.planned_at:%Y-%m-%d %H:%M:%S} UTC"
    return TraceLane("schedule", fire.key, str(fire.job_id), [TraceSpan("mark", at, at, "fired", words)])


def _predecessors(job: TracedJob, jobs: Sequence[TracedJob]) -> list[TracedJob]:
    """Return the jobs of the trace that a job waited for."""
    after, group = set(job.after or ()), job.after_group
    return [each for each in jobs if each.id in after or (group is not None and each.group_id == group)]


def _job_lane(
    job: TracedJob, attempts: Sequence[TracedAttempt], before: Sequence[TracedJob], now: datetime
) -> TraceLane:
    """Return the waits and attempts of a job, from its creation to its end, or to now."""
    spans: list[TraceSpan] = []
    since = job.created_at
    freed = _freed_at(job, before, now)
    if freed is not None and not attempts and freed > since:
        spans.append(TraceSpan("wait", since, freed, "waiting"))
        since = freed
    for each in attempts:
        if each.started_at > since:
            # The due time of earlier attempts is not stored, so the wait cannot be split.
            spans.append(TraceSpan("wait", since, each.started_at, "waiting"))
        why = each.reason or each.error_type or ""
        spans.append(TraceSpan("run", each.started_at, max(each.started_at, each.finished_at), each.outcome, why))
        since = max(since, each.finished_at)
    why = job.reason or job.error_type or ""
    if job.started_at is not None:
        spans += _waits(since, job.started_at, job.run_at)
        end = max(job.started_at, job.finished_at or now)
        spans.append(TraceSpan("run", job.started_at, end, job.state, why))
    elif job.finished_at is not None:
        spans += _waits(since, job.finished_at, job.run_at)
        spans.append(TraceSpan("mark", job.finished_at, job.finished_at, job.state, why))
    else:
        spans += _waits(since, now, job.run_at)
        if not spans:
            spans.append(TraceSpan("mark", since, since, job.state))
    return TraceLane("job", job.task, str(job.id), spans, job.tenant, after=[str(each.id) for each in before])


def _freed_at(job: TracedJob, before: Sequence[TracedJob], now: datetime) -> datetime | None:
    """Return until when a job waited for others; None if it did not, or if they are not in the trace."""
    if job.state == "waiting":
        return now
    last = max((each.finished_at for each in before if each.finished_at is not None), default=None)
    return None if last is None else min(last, job.started_at or job.finished_at or now)


def _waits(start: datetime, end: datetime, due: datetime) -> list[TraceSpan]:
    """Split a wait into the time before it is due and the time until a worker starts it."""
    if end <= start:
        return []
    if due <= start:
        return [TraceSpan("wait", start, end, "ready")]
    if due >= end:
        return [TraceSpan("wait", start, end, "scheduled")]
    return [TraceSpan("wait", start, due, "scheduled"), TraceSpan("wait", due, end, "ready")]


def _event_lane(event: TracedEvent) -> TraceLane:
    spans = [TraceSpan("mark", event.created_at, event.created_at, "notified")]
    spans += _waits(event.created_at, event.due_at, event.due_at)
    if event.matched_at is not None:
        spans.append(TraceSpan("mark", event.matched_at, event.matched_at, "matched"))
    name = f"{event.type} {event.subject}" if event.subject else event.type
    return TraceLane("event", name, str(event.id), spans, event.tenant)


def _delivery_lanes(event: TracedEvent, groups: Sequence[TracedGroup], bound: int) -> Iterable[TraceLane]:
    """Return one lane for each channel."""
    exact = sum(each.count for each in groups) <= bound
    for channel in sorted({each.channel for each in groups}):
        mine = [each for each in groups if each.channel == channel]
        counts = {each.state: each.count for each in mine}
        start, end = min(each.first_at for each in mine), max(each.last_at for each in mine)
        state = max(mine, key=lambda each: each.count).state
        spans = [TraceSpan("run", start, max(start, end), state)]
        spans += [
            TraceSpan("mark", at, at, "sent", words)
            for words, at in (
                ("first", min((each.first_sent_at for each in mine if each.first_sent_at), default=None)),
                ("last", max((each.last_sent_at for each in mine if each.last_sent_at), default=None)),
            )
            if at is not None
        ]
        yield TraceLane("deliveries", channel, str(event.id), spans, event.tenant, counts, exact)


def _receipt_lanes(
    event: TracedEvent, sample: Sequence[TracedDelivery], receipts: Sequence[TracedReceipt]
) -> Iterable[TraceLane]:
    """Return one lane for each channel, with the receipts of the sampled deliveries."""
    channels = {each.id: each.channel for each in sample if each.event_id == event.id}
    for channel in sorted(set(channels.values())):
        mine = [each for each in receipts if channels.get(each.delivery_id) == channel]
        if not mine:
            continue
        counts: dict[str, int] = {}
        for each in mine:
            counts[each.outcome] = counts.get(each.outcome, 0) + 1
        first, last = min(each.at for each in mine), max(each.at for each in mine)
        spans = [TraceSpan("run", first, last, max(counts, key=lambda outcome: counts[outcome]))]
        exact = len(sample) < traces.MOST_DELIVERIES and len(receipts) < traces.MOST_RECEIPTS
        yield TraceLane("receipts", channel, str(event.id), spans, event.tenant, counts, exact)


def _line(event: TracedEvent) -> TraceLine:
    return TraceLine(
        event.trace or f"event:{event.id}",
        "event",
        event.id,
        event.type,
        event.subject,
        event.tenant,
        event.created_at,
    )


def _line_of_job(carried: str | None, row: TracedJob) -> TraceLine:
    return TraceLine(carried or f"job:{row.id}", "job", row.id, row.task, None, row.tenant, row.created_at)


def _is_id(number: int) -> bool:
    """Return whether the number fits a bigint; PostgreSQL refuses others."""
    return 0 <= number <= LARGEST_ID
