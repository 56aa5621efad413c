"""What a due schedule does: which instants it runs, which it skips and why, and when it is due again. Pure.

                          ┌─ too late ───────────────▶ skipped (late)
due instants up to now ───┼─ more than it catches up ▶ skipped (missed)
                          └─ the rest ──┬─ the run before goes on ─▶ skipped (overlap), held, or that run is cancelled
                                        └─ free ───────────────────▶ fired
"""

from functools import lru_cache
from typing import Any, Literal

import msgspec

from sereno.schedules.rules.instants import Rule

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "allow", "queue_one", "cancel_previous"]

SECOND = 1_000_000
# An instant that is noticed within this time was not missed.
ON_TIME = 60 * SECOND
# Missed instants are counted up to this number; beyond it, they are "many".
COUNTED = 10_000
# Schedules that share a rule missed the same instants: they are counted once.
_COUNTS = 4096


class DueSchedule(msgspec.Struct, array_like=True, gc=False):
    """A row that was taken, in the order of the statement. Instants in microseconds, spans in seconds."""

    id: int
    # Where the store keeps the row, for as long as it is locked.
    place: str
    rule: str
    at: int
    # Its held fire is free to go, and nothing else is due.
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
    # What the rule named last, before its spread moved it.
    last_base: int | None
    skipped: dict[str, int]
    # What it takes to make the job by hand; None when the statement can do it.
    job: dict[str, Any] | None = None
    # A run of it is under way. Asked once the row is locked.
    busy: bool = False


class Fire(msgspec.Struct, frozen=True, gc=False):
    """One instant that makes a job; `stands_for` counts it and the missed ones before it."""

    at: int
    stands_for: int = 1


class Skip(msgspec.Struct, frozen=True, gc=False):
    """Instants that make none: the last of them, how many, and why."""

    at: int
    reason: str
    count: int = 1


class Plan(msgspec.Struct, gc=False):
    """What to do with a due row."""

    fires: list[Fire]
    skips: list[Skip]
    # When it is due again; None: never, or not before the run ends.
    next: int | None
    finished: bool = False
    # The last instant that is accounted for.
    last: int | None = None
    held: Fire | None = None
    cancels_previous: bool = False


def plan(due: DueSchedule, rule: Rule, now: int) -> Plan:
    """All of it, for any row that was taken."""
    if due.free:
        return _release(due, rule)
    if not due.planned:
        return _first(due, rule)
    found = _instants(due, rule, now)
    _apart(due, found)
    _within_limits(due, found)
    # What still waits is still to be fired.
    found.finished = found.finished and found.held is None
    if rule.waits_for_end and found.fires and not found.finished:
        # The end of this run decides.
        found.next = None
    return found


def first_instant(rule: Rule, shift: int, now: int, starts_at: int | None) -> int | None:
    """The first instant of a new or changed schedule: never one that is past, never before its start."""
    anchor = now if starts_at is None else starts_at
    if anchor > now and rule.uses_anchor:
        return anchor + shift
    found = rule.next(max(now, anchor - 1) - shift, anchor)
    return None if found is None else found + shift


def _first(due: DueSchedule, rule: Rule) -> Plan:
    """Counted from the moment that it was written for, which is not past; nobody may have looked for a while.

    What the rule named before does not come again at another place in its spread.
    """
    after = due.at
    if not rule.uses_anchor:
        after = due.at - 1 if due.last_base is None else max(due.at - 1, due.last_base + due.shift)
    at = first_instant(rule, due.shift, after, due.starts_at)
    ended = at is None or (due.ends_at is not None and at > due.ends_at)
    held = None if due.held is None else Fire(due.held, due.held_for)
    return Plan([], [], None if ended else at, finished=ended and held is None, held=held)


def _release(due: DueSchedule, rule: Rule) -> Plan:
    """The fire that waited goes; everything else stands as it was."""
    assert due.held is not None, "a free row holds a fire"
    held = Fire(due.held, due.held_for)
    if due.busy:
        return Plan([], [], due.next_at, held=held)
    following = None if rule.waits_for_end else due.next_at
    found = Plan([held], [], following, finished=following is None and not rule.waits_for_end)
    _within_limits(due, found)
    return found


def _instants(due: DueSchedule, rule: Rule, now: int) -> Plan:
    """Which instants between the due one and now are run."""
    shift, at = due.shift, due.at
    until = now if due.ends_at is None else min(now, due.ends_at)
    if at > until:
        return Plan([], [], None, finished=True)
    anchor = last = at - shift
    count = 1
    following = rule.next(now - shift if rule.waits_for_end else anchor, anchor)
    if not rule.waits_for_end and following is not None and following + shift <= until:
        # More than one instant passed unseen. Where the end of a run decides, there is only the one.
        last = rule.latest(anchor, until - shift, anchor) or anchor
        count += _counted(rule, anchor, last)
        following = rule.next(last, last)
    fires, skips = _chosen(due, rule, last + shift, count, now)
    upcoming = None if following is None else following + shift
    ended = upcoming is None or (due.ends_at is not None and upcoming > due.ends_at)
    return Plan(fires, skips, None if ended else upcoming, finished=ended, last=last + shift)


@lru_cache(maxsize=_COUNTS)
def _counted(rule: Rule, first: int, last: int) -> int:
    return rule.count(first, last, first, COUNTED)


def _chosen(due: DueSchedule, rule: Rule, last: int, count: int, now: int) -> tuple[list[Fire], list[Skip]]:
    """What is run of so many instants up to the last one."""
    if due.max_lateness is not None and now - last > _span(due.max_lateness):
        return [], [Skip(last, "late", count)]
    match due.missed:
        case "latest":
            return [Fire(last, count)], []
        case "skip":
            in_time = due.max_lateness is not None or now - last <= ON_TIME
            wanted = [last] if in_time else []
        case "all":
            wanted = _newest(due, rule, last, now)
    dropped = count - len(wanted)
    if not dropped:
        return [Fire(at) for at in wanted], []
    before = _before(rule, due.shift, due.at, wanted[0]) if wanted else last
    return [Fire(at) for at in wanted], [Skip(before, "missed", dropped)]


def _newest(due: DueSchedule, rule: Rule, last: int, now: int) -> list[int]:
    """The newest of those that are caught up, in order; found from the end."""
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


def _before(rule: Rule, shift: int, first: int, at: int) -> int:
    """The instant before this one, not before the first."""
    found = rule.latest(first - shift, at - shift - 1, first - shift)
    return first if found is None else found + shift


def _span(seconds: float) -> int:
    return round(seconds * SECOND)


def _apart(due: DueSchedule, found: Plan) -> None:
    """Runs of one schedule stay apart, unless they may overlap. What waited before stands first in the line."""
    line = found.fires if due.held is None else [Fire(due.held, due.held_for), *found.fires]
    if due.overlap == "allow":
        found.fires = line
        return
    if due.overlap == "cancel_previous":
        found.skips += [Skip(fire.at, "superseded", fire.stands_for) for fire in line[:-1]]
        line = line[-1:]
    # With no run under way, there is nothing to wait for.
    free = 0 if due.busy else 1
    found.fires, line = line[:free], line[free:]
    if line and (due.overlap != "skip" or line[0].at == due.held):
        found.held, *line = line
        found.cancels_previous = due.overlap == "cancel_previous" and found.held.at != due.held
    found.skips += [Skip(fire.at, "overlap", fire.stands_for) for fire in line]


def _within_limits(due: DueSchedule, found: Plan) -> None:
    """No more fires than it may still make; one that waits is one of them."""
    if due.fires_left is None:
        return
    left = max(0, due.fires_left)
    beyond, found.fires = found.fires[left:], found.fires[:left]
    if found.held is not None and len(found.fires) >= left:
        beyond.append(found.held)
        found.held, found.cancels_previous = None, False
    if beyond:
        found.skips.append(Skip(beyond[-1].at, "finished", sum(fire.stands_for for fire in beyond)))
    if len(found.fires) + (found.held is not None) >= left:
        found.finished, found.next = True, None
