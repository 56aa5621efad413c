"""Schedules as a person sees and steers them: list, show, pause, run now, backfill, spread."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidSchedule, Refused
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import Job, check_date
from sereno.schedules import store, tick
from sereno.schedules.fire_job import fire_job
from sereno.schedules.fires import record_again
from sereno.schedules.firing import SECOND, first_instant
from sereno.schedules.rules.instants import compile_text
from sereno.schedules.rules.preview import Instant, preview
from sereno.schedules.rules.when import Every, Once, When, checked, decode, encode
from sereno.schedules.schedule import shift
from sereno.schedules.store import FireRow, ScheduleRow
from sereno.search.sql_terms import SearchParams
from sereno.zones import instant, moment

PAGE = 1000
# A backfill is written in transactions of this many.
BATCH = 500
# More instants than this in one backfill are a mistake in the dates.
MOST_BACKFILLED = 100_000


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """One schedule with what it did and what it will do, as seen at this moment."""

    schedule: ScheduleRow
    fires: list[FireRow]
    upcoming: list[Instant]
    now: datetime


@dataclass(frozen=True, slots=True)
class Backfill:
    """The instants of a range; those in `done` made a job before."""

    schedule: ScheduleRow
    instants: list[datetime]
    done: set[datetime]


@dataclass(slots=True)
class Pace:
    """So many a second over all transactions of a backfill, however long each of them takes; None: all at once."""

    rate: float | None = None
    # When the next one may run, in microseconds.
    next_at: float = 0.0

    def delays(self, now: int, count: int) -> list[float]:
        """How long each of the next ones waits."""
        if not self.rate:
            return [0.0] * count
        # What comes too late moves what follows: to catch up would be faster than the rate.
        start = max(now, self.next_at)
        self.next_at = start + count / self.rate * SECOND
        return [(start - now) / SECOND + number / self.rate for number in range(count)]


def find(key: str) -> Operation[ScheduleRow]:
    """One schedule, or InvalidSchedule that says how to find it."""
    found = yield from store.page(ScheduleFilter(keys=[key]), 1)
    if not found:
        raise InvalidSchedule(f"there is no schedule {key!r:.80}; `sereno schedule list` shows those that there are")
    return found[0]


def show(
    key: str, *, fires: int = 10, upcoming: int = 5, search_params: SearchParams | None = None
) -> Operation[ScheduleDetail]:
    """`search_params`: what a search asks of its fires."""
    row = yield from find(key)
    past = yield from store.fires(row.id, fires, search_params)
    now = moment((yield from store.clock()))
    return ScheduleDetail(row, past, coming(row, now, upcoming), now)


def coming(row: ScheduleRow, now: datetime, n: int) -> list[Instant]:
    """Its next instants, as things stand: the one that it is due at, then those that are still to come."""
    try:
        when = decode(row.rule)
    except InvalidSchedule:
        # Written by SQL; the scheduler parks it.
        return []
    at = _due(row, when)
    if isinstance(when, Every) and when.count_from == "end":
        # Only the first is known: the others wait for runs that have not begun.
        n = min(n, 1)
    if row.max_fires is not None:
        n = min(n, row.max_fires - row.fired)
    if at is None or n < 1:
        return []
    first = preview(when, moment(at - 1), 1, row.shift, moment(at - row.shift - _step(when)))
    # One that is overdue stands for those between it and now.
    others = preview(when, max(now, moment(at)), n - 1, row.shift, moment(at - row.shift))
    return [each for each in (*first, *others) if row.ends_at is None or each.at <= row.ends_at]


def _due(row: ScheduleRow, when: When) -> int | None:
    """When it fires next; for a row that is not planned yet, as the scheduler will plan it."""
    if row.next_run_at is None or row.planned:
        return None if row.next_run_at is None else instant(row.next_run_at)
    rule = compile_text(encode(when))
    start = instant(row.next_run_at)
    starts_at = None if row.starts_at is None else instant(row.starts_at)
    return first_instant(rule, row.shift, start if rule.uses_anchor else start - 1, starts_at)


def _step(when: When) -> int:
    """An Every counts on from its last instant: one step before the next."""
    return round(seconds(when.interval) * 1_000_000) if isinstance(when, Every) else 0


def pause(
    wanted: ScheduleFilter, *, until: datetime | None = None, note: str | None = None, actor: str | None = None
) -> Operation[int]:
    """They fire no more, or not before `until`; answers how many."""
    _check_named(wanted, "pause")
    who = actor or default_actor()
    if until is not None:
        yield from _check_to_come(until)
    changed = yield from store.pause(wanted, until, note, who)
    yield from _noted(who, "pause", wanted, changed, {"until": until, "note": note})
    return changed


def _check_to_come(until: datetime) -> Operation[None]:
    check_date("until", until)
    now = moment((yield from store.clock()))
    if until <= now:
        raise Refused(f"a pause until {until.isoformat()} is over already: give a later moment, or resume it")


def resume(wanted: ScheduleFilter, *, actor: str | None = None) -> Operation[int]:
    """They fire again from now on; what passed meanwhile is not caught up."""
    _check_named(wanted, "resume")
    who = actor or default_actor()
    changed = yield from store.resume(wanted, who)
    yield from _noted(who, "resume", wanted, changed, {})
    return changed


def disable(wanted: ScheduleFilter, *, note: str | None = None, actor: str | None = None) -> Operation[int]:
    """They fire no more until somebody resumes them."""
    _check_named(wanted, "disable")
    who = actor or default_actor()
    changed = yield from store.disable(wanted, note, who)
    yield from _noted(who, "disable", wanted, changed, {"note": note})
    return changed


def delete(wanted: ScheduleFilter, *, actor: str | None = None) -> Operation[int]:
    """Gone; their jobs and fires stay as history."""
    _check_named(wanted, "delete")
    changed = yield from store.delete(wanted)
    yield from _noted(actor or default_actor(), "delete", wanted, changed, {})
    return changed


def spread(wanted: ScheduleFilter, window: Duration, *, actor: str | None = None) -> Operation[int]:
    """Each fires at its own place inside the window after its instant; 0 takes the spread away."""
    _check_named(wanted, "spread")
    who = actor or default_actor()
    now = yield from store.clock()
    changed, after = 0, ""
    while page := (yield from store.page_to_change(wanted, PAGE, after)):
        after = page[-1].key
        rows = []
        for row in page:
            try:
                when = decode(row.rule)
            except InvalidSchedule:
                # Written by SQL; it is parked, or will be.
                continue
            if isinstance(when, Once):
                continue
            spreading = checked(_with_spread(when, window))
            rows.append(_respread(row, spreading, now))
        if rows:
            changed += yield from store.reshift(rows)
    yield from _noted(who, "spread", wanted, changed, {"window": seconds(window)})
    return changed


def _respread(row: ScheduleRow, when: When, now: int) -> dict[str, Any]:
    """Another place inside the spread; the instant that was fired last does not come again there."""
    place = shift(row.key, when)
    rule = compile_text(encode(when))
    if rule.uses_anchor:
        # An Every counts on from where it stands.
        moved = None if row.next_run_at is None else max(now, instant(row.next_run_at) - row.shift + place)
    else:
        after = now - place
        if row.last_base_at is not None:
            after = max(after, instant(row.last_base_at))
        found = rule.next(after, now)
        moved = None if found is None else found + place
    return {"id": row.id, "rule": decode_object(when), "shift": place, "next": moved}


def run_now(key: str, *, actor: str | None = None) -> Operation[Job]:
    """A run that a person asks for, whatever the rule says; its overlap policy does not hold it back."""
    row = yield from store.lock_one(key)
    now = yield from store.clock()
    # An instant is run once: where somebody runs it at the same moment, another one that nobody has run.
    at = now
    while not (fired := (yield from _fire(row, [at], now, [0.0], shift=0))):
        at += 1
    made = fired[0]
    yield from audit.audit(actor or default_actor(), "schedule.run", f"schedule {key}", {"job": made.id})
    return made


def backfill_plan(key: str, start: datetime, end: datetime) -> Operation[Backfill]:
    """The instants of its rule from start to end, and which of them made a job before. Nothing is written."""
    if end <= start:
        raise Refused(f"a backfill goes forward: {end.isoformat()} is not after {start.isoformat()}")
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
    done = yield from store.fired_instants(row.id, found)
    return Backfill(row, [moment(at) for at in found], {moment(at) for at in done})


def backfill(
    key: str, instants: Sequence[datetime], *, pace: Pace | None = None, actor: str | None = None
) -> Operation[list[Job]]:
    """Run these instants, after those that were made at the same pace before."""
    row = yield from store.lock_one(key)
    now = yield from store.clock()
    delays = (pace or Pace()).delays(now, len(instants))
    made = yield from _fire(row, [instant(at) for at in instants], now, delays, shift=row.shift)
    yield from audit.audit(
        actor or default_actor(), "schedule.backfill", f"schedule {key}", {"instants": len(instants), "jobs": len(made)}
    )
    return made


def batches(instants: Sequence[datetime]) -> Iterator[Sequence[datetime]]:
    """The instants of a long backfill, a transaction's worth each."""
    for first in range(0, len(instants), BATCH):
        yield instants[first : first + BATCH]


def _fire(
    row: ScheduleRow, instants: Sequence[int], now: int, delays: Sequence[float], *, shift: int
) -> Operation[list[Job]]:
    """Fires by hand: recorded, so that none happens twice. `shift`: how far they are from what the rule names."""
    records = [{"id": row.id, "planned": at} for at in instants]
    fresh = yield from record_again(records)
    wanted = [(at, delay) for at, delay in zip(instants, delays, strict=True) if (row.id, at) in fresh]
    if not wanted:
        return []
    details = {name: getattr(row, name) for name in JOB_FIELDS}
    rule = encode(decode(row.rule)).decode()
    # One that waits for its turn does not expire before it. Instants, no delays: those would count from the statement
    # that makes the jobs, which comes after the one that read the clock.
    turns = [(at, now + round(delay * SECOND)) for at, delay in wanted]
    jobs = [fire_job(details, rule, at - shift, turn) | {"run_at": moment(turn)} for at, turn in turns]
    made = yield from tick.make_jobs(jobs)
    yield from tick.link(
        [
            {"id": row.id, "planned": at, "stands_for": 1, "job_id": made_id, "created": created}
            for (at, _), (made_id, created) in zip(wanted, made, strict=True)
        ]
    )
    new = sum(created for _, created in made)
    yield from store.note_manual(row.id, made[-1][0], fired=new, duplicates=len(made) - new)
    return [Job(made_id, row.task, created) for made_id, created in made]


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
)


def _with_spread(when: When, window: Duration) -> When:
    return msgspec.structs.replace(when, spread=window)


def decode_object(when: When) -> dict[str, Any]:
    """A rule as the object that is stored."""
    found: dict[str, Any] = msgspec.json.decode(encode(when))
    return found


def _check_named(wanted: ScheduleFilter, what: str) -> None:
    if wanted.is_empty:
        raise Refused(f"{what} of every schedule there is: name a key, a pattern, a task or a tenant ('*' for all)")


def _noted(who: str, what: str, wanted: ScheduleFilter, changed: int, detail: dict[str, Any]) -> Operation[None]:
    subject = ", ".join(_keys(wanted.keys)) if wanted.keys else wanted.pattern or "schedules"
    yield from audit.audit(
        who, f"schedule.{what}", f"schedule {subject}", {**wanted.as_detail(), **detail, "changed": changed}
    )


def _keys(keys: Collection[str]) -> list[str]:
    return sorted(keys)[:5]
