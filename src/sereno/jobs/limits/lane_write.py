"""Builds the parameters of the statement that stores the result of a claim of limited jobs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sereno.database.statement import array, nested
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.lane_decision import Lane, LaneDecision, Limiter
from sereno.jobs.limits.slot_sharing import SharedSlot, joined

# Jobs. A lane that gave this many in one claim has a backlog, so that storing its new floor is worth a write.
DEEP = 8


@dataclass(frozen=True, slots=True)
class _LimiterUsage:
    """What the served jobs use up: slots and tokens by limiter, and the clock of each fair share."""

    inside: dict[int, list[SharedSlot]]
    spent: dict[int, float]
    clocks: dict[tuple[str, str], float]


def _usage(decision: LaneDecision, served: Mapping[int, list[ClaimedJob]]) -> _LimiterUsage:
    use = _LimiterUsage({}, {}, {})
    for lane in decision.lanes:
        jobs = served.get(id(lane), ())
        for limiter, units in zip(lane.limiters, lane.units, strict=True):
            if jobs:
                use.inside.setdefault(limiter, []).append((lane.at_once, [job.id for job in jobs]))
            use.spent[limiter] = use.spent.get(limiter, 0.0) + units * len(jobs)
        if lane.fair is not None and jobs:
            key = (lane.queue, lane.fair)
            before = use.clocks.get(key, max(lane.clock or 0.0, lane.turn))
            # The last job of a lane that has no more was charged when the lane was opened.
            use.clocks[key] = before + (len(jobs) - (len(jobs) < lane.count)) / (lane.weight or 1.0)
    return use


def write_params(
    decision: LaneDecision, served: Mapping[int, list[ClaimedJob]], moment: str, now: int
) -> dict[str, Any]:
    """Return the parameters of the statement that stores what a claim changed in lanes, limiters and fair shares."""
    use = _usage(decision, served)
    lanes = [lane for lane in decision.lanes if lane.id is not None]
    changed = [lane for lane in lanes if _is_changed(lane, served.get(id(lane), ()))]
    # The statement that writes the changed lanes also finds out whether they have more jobs.
    written = {lane.id for lane in changed}
    unchanged = [lane for lane in lanes if lane.count and lane.id not in written]
    moves = [_moved(lane, served.get(id(lane), ()), use.clocks, now + n) for n, lane in enumerate(changed)]
    return {
        "moment": moment,
        **_served_params(unchanged, served),
        **_changed_params(changed, moves),
        **_limiter_params(decision.limiters, use),
        "share_queues": [queue for queue, _ in use.clocks],
        "share_keys": [key for _, key in use.clocks],
        "clocks": array(list(use.clocks.values())),
    }


def _served_params(lanes: Sequence[Lane], served: Mapping[int, list[ClaimedJob]]) -> dict[str, Any]:
    """Return the parameters for lanes that were served and have more jobs of the same priority."""
    queues = sorted({lane.queue for lane in lanes})
    return {
        "served": array([lane.id for lane in lanes]),
        "served_priorities": array([_floor(lane, served)[0] for lane in lanes]),
        "served_seqs": array([_floor(lane, served)[1] for lane in lanes]),
        "queues": queues,
        "served_queues": array([queues.index(lane.queue) + 1 for lane in lanes]),
    }


def _changed_params(lanes: Sequence[Lane], moves: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the parameters for lanes that wait for another limiter, or whose turn or floor moved."""
    waits, bands, turns, priorities, seqs = zip(*moves, strict=True) if moves else ((),) * 5
    return {
        "lanes": array([lane.id for lane in lanes]),
        "waits": array(waits),
        "bands": array(bands),
        "turns": array(turns),
        "priorities": array(priorities),
        "seqs": array(seqs),
        "seen_priorities": array([lane.floor_priority for lane in lanes]),
        "seen_seqs": array([lane.floor_seq for lane in lanes]),
    }


def _limiter_params(limiters: Sequence[Limiter], use: _LimiterUsage) -> dict[str, Any]:
    """Return the parameters for the slots and tokens of the limiters, and when each is due to be checked again."""
    inside, spent = use.inside, use.spent
    checks = [limiter.check_in(_slots(inside.get(limiter.id, ())), spent.get(limiter.id, 0.0)) for limiter in limiters]
    return {
        "limiters": array([limiter.id for limiter in limiters]),
        "held": nested([array(_held(limiter, inside)) for limiter in limiters]),
        "tokens": array([_tokens(limiter, spent.get(limiter.id, 0.0)) for limiter in limiters]),
        "checks": array(checks),
        "is_exact": array(
            [limiter.kind == "rate" or not seconds for limiter, seconds in zip(limiters, checks, strict=True)]
        ),
        "counts": array([0 if inside.get(limiter.id) else min(10, limiter.checks + 1) for limiter in limiters]),
    }


def _floor(lane: Lane, served: Mapping[int, Sequence[ClaimedJob]]) -> tuple[int, int]:
    jobs = served.get(id(lane))
    return (jobs[-1].priority, jobs[-1].ready_seq) if jobs else (0, 0)


def _is_changed(lane: Lane, jobs: Sequence[ClaimedJob]) -> bool:
    """Return whether the row of the lane must be written. A lane that gave few jobs and has more is not written."""
    if lane.fair is not None or lane.order_id is not None or lane.waits != lane.behind or lane.stop is not None:
        return True
    if len(jobs) < lane.count and (lane.floor_priority, lane.floor_seq) > (0, 0):
        # It was read to its end: start again from the beginning, where jobs may have been passed over.
        return True
    return len(jobs) >= DEEP or (bool(jobs) and jobs[-1].priority != lane.band)


def leaves_behind(lane: Lane, jobs: Sequence[ClaimedJob]) -> bool:
    """Return whether the new floor of the lane is behind jobs that are still ready."""
    return lane.stop is not None or (lane.passes_over and len(jobs) >= lane.count and _is_changed(lane, jobs))


def _moved(
    lane: Lane, jobs: Sequence[ClaimedJob], clocks: Mapping[tuple[str, str], float], now: int
) -> tuple[int | None, int, float, int, int]:
    """Return the limiter that the lane waits for, its band, its turn, and the floor of its next job."""
    if not lane.count:
        turn = lane.turn if lane.fair is not None else now
        return lane.waits, lane.band, turn, lane.floor_priority, lane.floor_seq
    short = len(jobs) < lane.count
    # Jobs that exist but could not be picked (paused, of an unknown task, locked for a moment) are tried again soon.
    waits = None if short else lane.waits if lane.order_id is None else lane.order_id
    if lane.fair is not None:
        turn = clocks.get((lane.queue, lane.fair), lane.turn)
        band = lane.band
        if short:
            # A lane that has nothing to give must not delay the turns of others.
            turn = max(turn, lane.turn + lane.count / (lane.weight or 1.0))
    else:
        band = jobs[-1].priority if jobs else lane.band
        turn = lane.turn if waits is None and lane.behind is None else now
    # Jobs passed over because another transaction had locked them are found again from the beginning.
    floors = (lane.stop or (0, 0)) if short else (jobs[-1].priority, jobs[-1].ready_seq)
    return waits, band, turn, *floors


def _slots(new: Sequence[SharedSlot]) -> int:
    return sum(min(slots, len(jobs)) for slots, jobs in new)


def _held(limiter: Limiter, inside: Mapping[int, Sequence[SharedSlot]]) -> Sequence[int]:
    if limiter.kind == "rate":
        return ()
    held: Sequence[int] = limiter.held
    for slots, jobs in inside.get(limiter.id, ()):
        held = joined(held, slots, jobs)
    return held


def _tokens(limiter: Limiter, spent: float) -> float | None:
    return None if limiter.tokens is None else limiter.tokens - spent
