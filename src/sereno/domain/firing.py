"""What a due schedule does: which instants it runs, which it skips and why, and when it is due again. Pure.

                          ┌─ too late ───────────────▶ skipped (late)
due instants up to now ───┼─ more than it catches up ▶ skipped (missed)
                          └─ the rest ──┬─ the run before goes on ─▶ skipped (overlap), held, or that run is cancelled
                                        └─ free ───────────────────▶ fired
"""

from typing import Any, Literal

import msgspec

from sereno.domain.instants import Rule

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "allow", "queue_one", "cancel_previous"]

SECOND = 1_000_000
# An instant that is noticed within this time was not missed.
ON_TIME = 60 * SECOND
# Missed instants are counted up to this number; beyond it, they are "many".
COUNTED = 10_000


class Due(msgspec.Struct, array_like=True, gc=False):
    """A row that was taken, in the order of the statement. Instants in microseconds, spans in seconds."""

    id: int
    rule: str
    at: int
    # Its held fire is free to go, and nothing else is due.
    free: bool
    planned: bool
    shift: int
    anchor: int
    starts_at: int | None
    ends_at: int | None
    fires_left: int | None
    missed: Missed
    missed_limit: int
    missed_window: float
    max_lateness: float | None
    overlap: Overlap
    busy: bool
    held: int | None
    held_for: int
    next_at: int | None
    skipped: dict[str, int]
    # What it takes to make the job by hand; None when the statement can do it.
    job: dict[str, Any] | None = None


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


def plan(due: Due, rule: Rule, now: int) -> Plan:
    """All of it, for any row that was taken."""
    if due.free:
        return _release(due, rule)
    if not due.planned:
        return _first(due, rule, now)
    found = _instants(due, rule, now)
    _within_limits(due, found)
    _apart(due, found)
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


def _first(due: Due, rule: Rule, now: int) -> Plan:
    # One that is due this very moment is not past.
    at = first_instant(rule, due.shift, now - 1, due.starts_at)
    ended = at is None or (due.ends_at is not None and at > due.ends_at)
    held = None if due.held is None else Fire(due.held, due.held_for)
    return Plan([], [], None if ended else at, finished=ended, held=held)


def _release(due: Due, rule: Rule) -> Plan:
    """The fire that waited goes; everything else stands as it was."""
    assert due.held is not None, "a free row holds a fire"
    held = Fire(due.held, due.held_for)
    if due.busy:
        return Plan([], [], due.next_at, held=held)
    ended = due.fires_left is not None and due.fires_left <= 1
    following = None if ended or rule.waits_for_end else due.next_at
    return Plan([held], [], following, finished=ended or (following is None and not rule.waits_for_end))


def _instants(due: Due, rule: Rule, now: int) -> Plan:
    """Which instants between the due one and now are run."""
    shift, at = due.shift, due.at
    until = now if due.ends_at is None else min(now, due.ends_at)
    anchor = last = at - shift
    following = rule.next(anchor, anchor)
    if at > until:
        return Plan([], [], None, finished=True)
    if following is None or following + shift > until:
        fires, skips = ([Fire(at)], []) if _in_time(due, at, now) else ([], [Skip(at, "late")])
    else:
        last = rule.latest(anchor, until - shift, anchor) or anchor
        fires, skips = _caught_up(due, rule, last + shift, now)
        following = rule.next(last, last)
    upcoming = None if following is None else following + shift
    ended = upcoming is None or (due.ends_at is not None and upcoming > due.ends_at)
    return Plan(fires, skips, None if ended else upcoming, finished=ended, last=last + shift)


def _caught_up(due: Due, rule: Rule, last: int, now: int) -> tuple[list[Fire], list[Skip]]:
    """More than one instant passed unseen."""
    shift, first = due.shift, due.at
    count = 1 + rule.count(first - shift, last - shift, first - shift, COUNTED)
    if due.missed != "all":
        if not _in_time(due, last, now):
            return [], [Skip(last, "late" if due.missed == "latest" else "missed", count)]
        if due.missed == "latest":
            return [Fire(last, count)], []
        before = _before(rule, shift, first, last)
        return [Fire(last)], [Skip(before, "missed", count - 1)]
    oldest = max(first, now - round(due.missed_window * SECOND))
    if due.max_lateness is not None:
        oldest = max(oldest, now - round(due.max_lateness * SECOND))
    wanted = _newest(rule, shift, first, oldest, last, due.missed_limit)
    dropped = count - len(wanted)
    if not wanted:
        return [], [Skip(last, "missed", count)]
    skips = [Skip(_before(rule, shift, first, wanted[0]), "missed", dropped)] if dropped > 0 else []
    return [Fire(at) for at in wanted], skips


def _newest(rule: Rule, shift: int, first: int, oldest: int, last: int, limit: int) -> list[int]:
    """At most `limit` instants from `oldest` to `last`, the newest ones, in order; found from the end."""
    found: list[int] = []
    at: int | None = last
    while at is not None and at >= oldest and len(found) < limit:
        found.append(at)
        if at <= first:
            break
        at = _before(rule, shift, first, at)
    return found[::-1]


def _before(rule: Rule, shift: int, first: int, at: int) -> int:
    """The instant before this one, not before the first."""
    found = rule.latest(first - shift, at - shift - 1, first - shift)
    return first if found is None else found + shift


def _in_time(due: Due, at: int, now: int) -> bool:
    if due.max_lateness is not None:
        return now - at <= due.max_lateness * SECOND
    return due.missed != "skip" or now - at <= ON_TIME


def _within_limits(due: Due, found: Plan) -> None:
    """No more fires than it may still make."""
    if due.fires_left is None:
        return
    if len(found.fires) >= due.fires_left:
        beyond = found.fires[due.fires_left :]
        found.fires = found.fires[: due.fires_left]
        if beyond:
            found.skips.append(Skip(beyond[-1].at, "finished", sum(fire.stands_for for fire in beyond)))
        found.finished, found.next = True, None


def _apart(due: Due, found: Plan) -> None:
    """Runs of one schedule stay apart, unless they may overlap."""
    held = None if due.held is None else Fire(due.held, due.held_for)
    found.held = held
    if due.overlap == "allow" or not found.fires or not (due.busy or held):
        return
    (fire,) = found.fires
    found.fires = []
    if due.overlap == "skip" or (due.overlap == "queue_one" and held):
        found.skips.append(Skip(fire.at, "overlap", fire.stands_for))
    else:
        if held is not None:
            found.skips.append(Skip(held.at, "superseded", held.stands_for))
        found.held = fire
        found.cancels_previous = due.overlap == "cancel_previous"
    # What still waits is still to be fired.
    found.finished = found.finished and found.held is None
