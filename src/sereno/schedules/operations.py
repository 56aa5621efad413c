"""Operations on schedules: find, show, pause, resume, disable, delete, spread, run now, backfill."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidSchedule, Refused
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import EnqueuedJob, check_date
from sereno.schedules import queries, store, tick
from sereno.schedules.fire_job import fire_job
from sereno.schedules.fires import record_again
from sereno.schedules.firing import SECOND, first_instant
from sereno.schedules.rows import FireRow, ScheduleRow
from sereno.schedules.rules.instants import compile_text
from sereno.schedules.rules.preview import Instant, preview
from sereno.schedules.rules.when import Every, Once, When, checked, decode, encode
from sereno.schedules.schedule import shift
from sereno.search.sql_terms import SearchParams
from sereno.zones import instant, moment

PAGE = 1000
# Jobs of a backfill per transaction.
BATCH = 500
# Instants of one backfill; more are most likely a mistake in the dates.
MOST_BACKFILLED = 100_000


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """One schedule with its past fires and its next instants, as of `now`."""

    schedule: ScheduleRow
    fires: list[FireRow]
    upcoming: list[Instant]
    now: datetime


@dataclass(frozen=True, slots=True)
class Backfill:
    """The instants of a range; those in `done` have already made a job."""

    schedule: ScheduleRow
    instants: list[datetime]
    done: set[datetime]


@dataclass(slots=True)
class BackfillPace:
    """Limits a backfill to `rate` jobs per second across all of its transactions. None: no limit."""

    rate: float | None = None
    # When the next job may run, in microseconds.
    next_at: float = 0.0

    def delays(self, now: int, count: int) -> list[float]:
        """Return the delay in seconds of each of the next `count` jobs."""
        if not self.rate:
            return [0.0] * count
        # A late transaction moves everything after it: catching up would exceed the rate.
        start = max(now, self.next_at)
        self.next_at = start + count / self.rate * SECOND
        return [(start - now) / SECOND + number / self.rate for number in range(count)]


def find(key: str) -> Operation[ScheduleRow]:
    """Return one schedule. Raises InvalidSchedule if there is none with this key."""
    found = yield from queries.page(ScheduleFilter(keys=[key]), 1)
    if not found:
        raise InvalidSchedule(f"there is no schedule {key!r:.80}; `sereno schedule list` lists all schedules")
    return found[0]


def lock(keys: Collection[str]) -> Operation[list[ScheduleRow]]:
    """Lock those of these schedules that exist until the transaction ends, and return them without large arguments."""
    return store.lock_page(ScheduleFilter(keys=keys), len(keys))


def show(
    key: str, *, fires: int = 10, upcoming: int = 5, search_params: SearchParams | None = None
) -> Operation[ScheduleDetail]:
    """Return a schedule with its details. `search_params` filter its fires."""
    row = yield from find(key)
    past = yield from queries.fires(row.id, fires, search_params)
    now = moment((yield from clock()))
    return ScheduleDetail(row, past, coming(row, now, upcoming), now)


def coming(row: ScheduleRow, now: datetime, n: int) -> list[Instant]:
    """Return its next instants: the one that is due next, then those after it."""
    try:
        when = decode(row.rule)
    except InvalidSchedule:
        # An invalid rule was written with SQL; the scheduler parks it.
        return []
    at = _due(row, when)
    if isinstance(when, Every) and when.count_from == "end":
        # Only the first is known: the next ones depend on runs that have not started.
        n = min(n, 1)
    if row.max_fires is not None:
        n = min(n, row.max_fires - row.fired)
    if at is None or n < 1:
        return []
    first = preview(when, moment(at - 1), 1, row.shift, moment(at - row.shift - _step(when)))
    # An overdue instant stands for those between it and now.
    others = preview(when, max(now, moment(at)), n - 1, row.shift, moment(at - row.shift))
    return [each for each in (*first, *others) if row.ends_at is None or each.at <= row.ends_at]


def _due(row: ScheduleRow, when: When) -> int | None:
    """Return when it fires next; for a row without a plan, as the scheduler will plan it."""
    if row.next_run_at is None or row.planned:
        return None if row.next_run_at is None else instant(row.next_run_at)
    rule = compile_text(encode(when))
    start = instant(row.next_run_at)
    starts_at = None if row.starts_at is None else instant(row.starts_at)
    return first_instant(rule, row.shift, start if rule.uses_anchor else start - 1, starts_at)


def _step(when: When) -> int:
    """Return the interval of an Every, which counts from one step before its next instant; 0 for other rules."""
    return round(seconds(when.interval) * 1_000_000) if isinstance(when, Every) else 0


def pause(
    wanted: ScheduleFilter, *, until: datetime | None = None, note: str | None = None, actor: str | None = None
) -> Operation[int]:
    """Pause schedules, for good or `until` a moment. Return how many were paused."""
    _check_named(wanted, "pause")
    who = actor or default_actor()
    if until is not None:
        yield from _check_to_come(until)
    changed = yield from store.pause(wanted, until, note, who)
    yield from _audit_change(who, "pause", wanted, changed, {"until": until, "note": note})
    return changed


def _check_to_come(until: datetime) -> Operation[None]:
    check_date("until", until)
    now = moment((yield from clock()))
    if until <= now:
        raise Refused(f"cannot pause until {until.isoformat()}, which is past: give a later moment, or resume it")


def resume(wanted: ScheduleFilter, *, actor: str | None = None) -> Operation[int]:
    """Resume schedules from now on; instants missed in the meantime are not caught up. Return how many."""
    _check_named(wanted, "resume")
    who = actor or default_actor()
    changed = yield from store.resume(wanted, who)
    yield from _audit_change(who, "resume", wanted, changed, {})
    return changed


def disable(wanted: ScheduleFilter, *, note: str | None = None, actor: str | None = None) -> Operation[int]:
    """Disable schedules until they are resumed. Return how many were disabled."""
    _check_named(wanted, "disable")
    who = actor or default_actor()
    changed = yield from store.disable(wanted, note, who)
    yield from _audit_change(who, "disable", wanted, changed, {"note": note})
    return changed


def delete(wanted: ScheduleFilter, *, actor: str | None = None) -> Operation[int]:
    """Delete schedules; their jobs and fires stay as history. Return how many were deleted."""
    _check_named(wanted, "delete")
    changed = yield from store.delete(wanted)
    yield from _audit_change(actor or default_actor(), "delete", wanted, changed, {})
    return changed


def spread(wanted: ScheduleFilter, window: Duration, *, actor: str | None = None) -> Operation[int]:
    """Give each schedule its own offset inside the window after its instant; 0 removes the spread."""
    _check_named(wanted, "spread")
    who = actor or default_actor()
    now = yield from clock()
    changed, after = 0, ""
    while page := (yield from store.lock_page(wanted, PAGE, after)):
        after = page[-1].key
        rows = []
        for row in page:
            try:
                when = decode(row.rule)
            except InvalidSchedule:
                # An invalid rule was written with SQL: it is parked, or will be.
                continue
            if isinstance(when, Once):
                continue
            spreading = checked(_with_spread(when, window))
            rows.append(_respread(row, spreading, now))
        if rows:
            changed += yield from store.reshift(rows)
    yield from _audit_change(who, "spread", wanted, changed, {"window": seconds(window)})
    return changed


def _respread(row: ScheduleRow, when: When, now: int) -> dict[str, Any]:
    """Return the row with its new offset. The instant that fired last does not fire again at the new offset."""
    place = shift(row.key, when)
    rule = compile_text(encode(when))
    if rule.uses_anchor:
        # An Every continues from its next instant.
        moved = None if row.next_run_at is None else max(now, instant(row.next_run_at) - row.shift + place)
    else:
        after = now - place
        if row.last_base_at is not None:
            after = max(after, instant(row.last_base_at))
        found = rule.next(after, now)
        moved = None if found is None else found + place
    return {"id": row.id, "rule": decode_object(when), "shift": place, "next": moved}


def run_now(key: str, *, actor: str | None = None) -> Operation[EnqueuedJob]:
    """Run a schedule now, independently of its rule and its overlap policy. Return the job."""
    row = yield from store.lock_one(key)
    now = yield from clock()
    # An instant makes one job: if another caller takes this one at the same moment, try the next microsecond.
    at = now
    while not (fired := (yield from _fire(row, [at], now, [0.0], shift=0))):
        at += 1
    made = fired[0]
    yield from audit.audit(actor or default_actor(), "schedule.run", f"schedule {key}", {"job": made.id})
    return made


def backfill_plan(key: str, start: datetime, end: datetime) -> Operation[Backfill]:
    """Return the instants of its rule from start to end, and which of them have made a job. Writes nothing."""
    if end <= start:
        raise Refused(f"a backfill needs an end after its start: {end.isoformat()} is not after {start.isoformat()}")
    row = yield from find(key)
    rule = compile_text(encode(decode(row.rule)))
    if rule.uses_anchor:
        raise Refused(f"schedule {key}: an Every that counts from its last run has no instants in the past")
    found: list[int] = []
    at = rule.next(instant(start) - row.shift - 1, 0)
    while at is not None and at + row.shift <= instant(end):
        found.append(at + row.shift)
        if len(found) > MOST_BACKFILLED:
            raise Refused(f"more than {MOST_BACKFILLED:,} instants between {start.isoformat()} and {end.isoformat()}")
        at = rule.next(at, 0)
    done = yield from queries.fired_instants(row.id, found)
    return Backfill(row, [moment(at) for at in found], {moment(at) for at in done})


def backfill(
    key: str, instants: Sequence[datetime], *, pace: BackfillPace | None = None, actor: str | None = None
) -> Operation[list[EnqueuedJob]]:
    """Run these instants, after those that were already created at the same pace. Return the jobs."""
    row = yield from store.lock_one(key)
    now = yield from clock()
    delays = (pace or BackfillPace()).delays(now, len(instants))
    made = yield from _fire(row, [instant(at) for at in instants], now, delays, shift=row.shift)
    yield from audit.audit(
        actor or default_actor(), "schedule.backfill", f"schedule {key}", {"instants": len(instants), "jobs": len(made)}
    )
    return made


def batches(instants: Sequence[datetime]) -> Iterator[Sequence[datetime]]:
    """Split the instants of a long backfill into transactions."""
    for first in range(0, len(instants), BATCH):
        yield instants[first : first + BATCH]


def _fire(
    row: ScheduleRow, instants: Sequence[int], now: int, delays: Sequence[float], *, shift: int
) -> Operation[list[EnqueuedJob]]:
    """Fire instants manually, each recorded so that it cannot fire twice. `shift`: their offset from the rule."""
    records = [{"id": row.id, "planned": at} for at in instants]
    fresh = yield from record_again(records)
    wanted = [(at, delay) for at, delay in zip(instants, delays, strict=True) if (row.id, at) in fresh]
    if not wanted:
        return []
    details = {name: getattr(row, name) for name in JOB_FIELDS}
    rule = encode(decode(row.rule)).decode()
    # expires_after counts from when the job may run. Absolute times, no delays: a delay would count from the statement
    # that inserts the jobs, which runs after the one that read the clock.
    run_times = [(at, now + round(delay * SECOND)) for at, delay in wanted]
    jobs = [fire_job(details, rule, at - shift, run_at) | {"run_at": moment(run_at)} for at, run_at in run_times]
    made = yield from tick.make_jobs(jobs)
    yield from tick.link(
        [
            {"id": row.id, "planned": at, "stands_for": 1, "job_id": made_id, "created": created}
            for (at, _), (made_id, created) in zip(wanted, made, strict=True)
        ]
    )
    new = sum(created for _, created in made)
    yield from store.note_manual(row.id, made[-1][0], fired=new, duplicates=len(made) - new)
    return [EnqueuedJob(made_id, row.task, created) for made_id, created in made]


JOB_FIELDS = (
    "key",
    "task",
    "args",
    "queue",
    "priority",
    "tenant",
    "trace",
    "tags",
    "unique_key",
    "unique_for",
    "unique_forever",
    "on_conflict",
    "expires_after",
    "requires",
)


def _with_spread(when: When, window: Duration) -> When:
    return msgspec.structs.replace(when, spread=window)


def decode_object(when: When) -> dict[str, Any]:
    """Return a rule as the object that is stored."""
    found: dict[str, Any] = msgspec.json.decode(encode(when))
    return found


def _check_named(wanted: ScheduleFilter, what: str) -> None:
    if wanted.is_empty:
        raise Refused(f"cannot {what} every schedule: name a key, a pattern, a task or a tenant ('*' for all)")


def _audit_change(who: str, what: str, wanted: ScheduleFilter, changed: int, detail: dict[str, Any]) -> Operation[None]:
    subject = ", ".join(_keys(wanted.keys)) if wanted.keys else wanted.pattern or "schedules"
    yield from audit.audit(
        who, f"schedule.{what}", f"schedule {subject}", {**wanted.as_detail(), **detail, "changed": changed}
    )


def _keys(keys: Collection[str]) -> list[str]:
    return sorted(keys)[:5]
