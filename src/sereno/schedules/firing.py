"""Decides what a due schedule does: which instants fire, which are skipped and why, when it is due next. No I/O.

                          ┌─ too late ───────────────▶ skipped (late)
due instants up to now ───┼─ more than it catches up ▶ skipped (missed)
                          └─ the rest ──┬─ a run is under way ─────▶ skipped (overlap), held, or that run is cancelled
                                        └─ free ───────────────────▶ fired
"""

from functools import lru_cache
from typing import Any, Literal

import msgspec

from sereno.schedules.rules.instants import InstantRule

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "allow", "queue_one", "cancel_previous"]

SECOND = 1_000_000
# An instant that is fired within this time was not missed.
ON_TIME = 60 * SECOND
# Missed instants are counted up to this number.
COUNTED = 10_000
# Cache size: schedules that share a rule missed the same instants, which are counted once.
_COUNTS = 4096


class DueSchedule(msgspec.Struct, array_like=True, gc=False):
    """A locked row, with the columns of the statement `take`. Instants in microseconds, durations in seconds."""

    id: int
    # The row's ctid, valid while the row is locked.
    place: str
    rule: str
    at: int
    # Its held fire can go, and nothing else is due.
    free: bool
    planned: bool
    shift: int
    starts_at: int | None
    ends_at: int | None
    fires_left: int | None
    missed: Missed
    missed_limit: int
    missed_window: float
    max_lateness: float | None
    overlap: Overlap
    held: int | None
    held_for: int
    next_at: int | None
    # The rule's last instant, without the spread.
    last_base: int | None
    skipped: dict[str, int]
    # The job's details, if the statement `fire` cannot make the job.
    job: dict[str, Any] | None = None
    # Whether a run is under way; read after the row is locked.
    busy: bool = False


class PlannedFire(msgspec.Struct, frozen=True, gc=False):
    """One instant that makes a job; `stands_for` counts it and the missed ones before it."""

    at: int
    stands_for: int = 1


class SkippedFire(msgspec.Struct, frozen=True, gc=False):
    """Instants that make no job: the last of them, how many, and why."""

    at: int
    reason: str
    count: int = 1


class FirePlan(msgspec.Struct, gc=False):
    """The decision for a due row."""

    fires: list[PlannedFire]
    skips: list[SkippedFire]
    # When it is due next; None: never, or not before the run ends.
    next: int | None
    finished: bool = False
    # The last instant that this plan covers.
    last: int | None = None
    held: PlannedFire | None = None
    cancels_previous: bool = False


def plan(due: DueSchedule, rule: InstantRule, now: int) -> FirePlan:
    """Return the plan of a locked row."""
    if due.free:
        return _release(due, rule)
    if not due.planned:
        return _first(due, rule)
    found = _instants(due, rule, now)
    _apart(due, found)
    _within_limits(due, found)
    # A schedule with a held fire is not finished yet.
    found.finished = found.finished and found.held is None
    if rule.waits_for_end and found.fires and not found.finished:
        # The end of this run determines the next instant.
        found.next = None
    return found


def first_instant(rule: InstantRule, shift: int, now: int, starts_at: int | None) -> int | None:
    """Return the first instant of a new or changed schedule: never a past one, never one before its start."""
    anchor = now if starts_at is None else starts_at
    if anchor > now and rule.uses_anchor:
        return anchor + shift
    found = rule.next(max(now, anchor - 1) - shift, anchor)
    return None if found is None else found + shift


def _first(due: DueSchedule, rule: InstantRule) -> FirePlan:
    """Plan the first instant, counted from when the row was written, which may be some time ago.

    An instant that fired before does not fire again at another offset in its spread.
    """
    after = due.at
    if not rule.uses_anchor:
        after = due.at - 1 if due.last_base is None else max(due.at - 1, due.last_base + due.shift)
    at = first_instant(rule, due.shift, after, due.starts_at)
    ended = at is None or (due.ends_at is not None and at > due.ends_at)
    held = None if due.held is None else PlannedFire(due.held, due.held_for)
    return FirePlan([], [], None if ended else at, finished=ended and held is None, held=held)


def _release(due: DueSchedule, rule: InstantRule) -> FirePlan:
    """Release the held fire and leave the rest unchanged."""
    assert due.held is not None, "a free row holds a fire"
    held = PlannedFire(due.held, due.held_for)
    if due.busy:
        return FirePlan([], [], due.next_at, held=held)
    following = None if rule.waits_for_end else due.next_at
    found = FirePlan([held], [], following, finished=following is None and not rule.waits_for_end)
    _within_limits(due, found)
    return found


def _instants(due: DueSchedule, rule: InstantRule, now: int) -> FirePlan:
    """Decide which instants between the due one and now are run."""
    shift, at = due.shift, due.at
    until = now if due.ends_at is None else min(now, due.ends_at)
    if at > until:
        return FirePlan([], [], None, finished=True)
    anchor = last = at - shift
    count = 1
    following = rule.next(now - shift if rule.waits_for_end else anchor, anchor)
    if not rule.waits_for_end and following is not None and following + shift <= until:
        # Several instants have passed. A rule that counts from the end of a run has only one.
        last = rule.latest(anchor, until - shift, anchor) or anchor
        count += _counted(rule, anchor, last)
        following = rule.next(last, last)
    fires, skips = _chosen(due, rule, last + shift, count, now)
    upcoming = None if following is None else following + shift
    ended = upcoming is None or (due.ends_at is not None and upcoming > due.ends_at)
    return FirePlan(fires, skips, None if ended else upcoming, finished=ended, last=last + shift)


@lru_cache(maxsize=_COUNTS)
def _counted(rule: InstantRule, first: int, last: int) -> int:
    return rule.count(first, last, first, COUNTED)


def _chosen(
    due: DueSchedule, rule: InstantRule, last: int, count: int, now: int
) -> tuple[list[PlannedFire], list[SkippedFire]]:
    """Choose which of `count` instants up to the last one are run."""
    if due.max_lateness is not None and now - last > _span(due.max_lateness):
        return [], [SkippedFire(last, "late", count)]
    match due.missed:
        case "latest":
            return [PlannedFire(last, count)], []
        case "skip":
            in_time = due.max_lateness is not None or now - last <= ON_TIME
            wanted = [last] if in_time else []
        case "all":
            wanted = _newest(due, rule, last, now)
    dropped = count - len(wanted)
    if not dropped:
        return [PlannedFire(at) for at in wanted], []
    before = _before(rule, due.shift, due.at, wanted[0]) if wanted else last
    return [PlannedFire(at) for at in wanted], [SkippedFire(before, "missed", dropped)]


def _newest(due: DueSchedule, rule: InstantRule, last: int, now: int) -> list[int]:
    """Return the newest instants to catch up, in ascending order; searched from the end."""
    oldest = now - max(_span(due.missed_window), ON_TIME)
    if due.max_lateness is not None:
        oldest = max(oldest, now - _span(due.max_lateness))
    limit = min(due.missed_limit, COUNTED)
    found: list[int] = []
    at = last
    while at >= oldest and len(found) < limit:
        found.append(at)
        if at <= due.at:
            break
        at = _before(rule, due.shift, due.at, at)
    return found[::-1]


def _before(rule: InstantRule, shift: int, first: int, at: int) -> int:
    """Return the instant before this one, at the earliest the first."""
    found = rule.latest(first - shift, at - shift - 1, first - shift)
    return first if found is None else found + shift


def _span(seconds: float) -> int:
    return round(seconds * SECOND)


def _apart(due: DueSchedule, found: FirePlan) -> None:
    """Apply the overlap policy. A fire that was held before is first in line."""
    line = found.fires if due.held is None else [PlannedFire(due.held, due.held_for), *found.fires]
    if due.overlap == "allow":
        found.fires = line
        return
    if due.overlap == "cancel_previous":
        found.skips += [SkippedFire(fire.at, "superseded", fire.stands_for) for fire in line[:-1]]
        line = line[-1:]
    # Without a run under way, the first fire can go.
    free = 0 if due.busy else 1
    found.fires, line = line[:free], line[free:]
    if line and (due.overlap != "skip" or line[0].at == due.held):
        found.held, *line = line
        found.cancels_previous = due.overlap == "cancel_previous" and found.held.at != due.held
    found.skips += [SkippedFire(fire.at, "overlap", fire.stands_for) for fire in line]


def _within_limits(due: DueSchedule, found: FirePlan) -> None:
    """Apply max_fires; a held fire counts."""
    if due.fires_left is None:
        return
    left = max(0, due.fires_left)
    beyond, found.fires = found.fires[left:], found.fires[:left]
    if found.held is not None and len(found.fires) >= left:
        beyond.append(found.held)
        found.held, found.cancels_previous = None, False
    if beyond:
        found.skips.append(SkippedFire(beyond[-1].at, "finished", sum(fire.stands_for for fire in beyond)))
    if len(found.fires) + (found.held is not None) >= left:
        found.finished, found.next = True, None
