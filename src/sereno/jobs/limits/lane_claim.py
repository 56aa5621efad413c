"""Claims jobs with limits, lane by lane: lock, decide, pick and write in one transaction."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, nested, queries
from sereno.jobs.attempt import CRASH_LIMIT
from sereno.jobs.claim_reply import decode_claimed
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.lane_decision import Decision, Lane, Limiter, LockedLanes, QueueRoom, decide, doubtful
from sereno.jobs.limits.slot_sharing import Party, joined, without

_sql = queries("jobs/limits/lane_claim")
_taken = msgspec.json.Decoder(LockedLanes)
_numbers = msgspec.json.Decoder(list[int] | None)
_passing = msgspec.json.Decoder(list[tuple[int, list[int | None]]])
_opened = msgspec.json.Decoder(tuple[int, int | None, int])
_stops = msgspec.json.Decoder(list[tuple[int, int, int]])

# Jobs. A lane that gave this many in one claim has a backlog, so that storing its new floor is worth a write.
DEEP = 8
# Rows that a claim reads from all its lanes together, and at least from each lane. Paused jobs and jobs of unknown
# tasks are passed over, and the next claim continues behind them.
MOST_ROWS, FEWEST_ROWS = 10_000, 100


class KnownLimiter(NamedTuple):
    """Jobs of a limiter that have ended for good; valid while the limiter has the version that this worker wrote."""

    version: int
    ended: frozenset[int]


NOTHING: Mapping[int, KnownLimiter] = MappingProxyType({})


class FreeProcesses(NamedTuple):
    """How many more jobs may start in their own processes: isolated tasks and suspects (jobs with crashes).

    `suspects`: their maximum by queue. `most_crashes`: suspects with more crashes have to wait.
    """

    isolated: Collection[str]
    processes: int
    suspects: Mapping[str, int]
    most_crashes: int = CRASH_LIMIT - 1


class LaneClaim(msgspec.Struct, kw_only=True):
    """The result of a claim of lanes.

    `unkeyed`: jobs without keys, from queues with a limit of their own. `short`: queues that had fewer such jobs than
    could have started. `rated`: jobs under a rate limit, which start at once. `slot_groups`: lane, number of slots and
    the jobs that share them. `holding`: by job, the limiters in which it holds a slot. `missed`: free limiters whose
    lanes could not be read, because another claim holds the locks. `more`: queues with more jobs than free slots.
    `blocking`: limiters that lanes wait for from now on. `after`: by queue and band, the turn of the last lane read.
    `walked`: by queue, how many lanes were read. `elsewhere`: limiters that lanes of other queues wait for.
    `lacks_limiters`: lanes whose limiters may not exist yet. `next_look`: seconds until a limiter is due.
    `versions`: of the limiters that were written. `foreign`: limiters that another claim has written. `passed_over`: a
    lane has more jobs than a claim reads, and fewer could be claimed than wanted.
    """

    jobs: list[ClaimedJob] = []
    unkeyed: set[int] = set()
    short: set[str] = set()
    rated: set[int] = set()
    slot_groups: list[tuple[int, int, list[ClaimedJob]]] = []
    walked: Counter[str] = Counter()
    holding: dict[int, list[int]] = {}
    missed: set[int]
    more: set[str]
    is_contended: bool
    blocking: set[int]
    after: dict[tuple[str, int], float]
    elsewhere: set[int]
    lacks_limiters: list[int] | None
    next_look: float | None
    versions: dict[int, int] = {}
    foreign: set[int] = set()
    passed_over: bool = False


def open_lanes(floor: int) -> Operation[tuple[int, int | None, int]]:
    """Process wake-ups; return how many there were, the lowest id, and how many could not be read right now."""
    rows = yield Statement(_sql["open_lanes"], {"floor": floor})
    return _opened.decode(rows[0][0])


def look_again(since: datetime) -> Operation[None]:
    """Make the lanes due that wait for limits changed since then."""
    yield Statement(_sql["look_again"], {"since": since})


def make_limiters(lanes: Sequence[int], queues: Sequence[str]) -> Operation[None]:
    """Create missing limiters. Never in a claim's transaction: a stalled one would block all other claims."""
    yield Statement(_sql["make_limiters"], {"lanes": array(lanes), "queues": list(queues)})


def hand_over(limiters: Collection[int]) -> Operation[set[int]]:
    """Make freed limiters due for the next worker that checks; return those that were handed over."""
    rows = yield Statement(_sql["hand_over"], {"limiters": sorted(limiters)})
    return set(msgspec.json.decode(rows[0][0]))


def claim_lanes(
    session: int,
    tasks: Collection[str],
    requests: Sequence[Mapping[str, Any]],
    freed: Mapping[int, int],
    bands: Sequence[int],
    slow_lanes: Collection[int] = (),
    known: Mapping[int, KnownLimiter] = NOTHING,
    free: FreeProcesses | None = None,
) -> Operation[LaneClaim]:
    """Claim jobs of lanes, as far as their limiters admit them.

    `requests`: objects with queue, now, room (free slots), lanes, floors, and bands, each with the turn after which to
    read. `freed`: limiters, and how many jobs left them. `bands`: in the order to be walked. `slow_lanes`: lanes of
    slow jobs, which do not share slots. `known`: by limiter, jobs known to have ended. `free`: how many jobs may start
    in their own processes; unbounded by default.
    """
    rows = yield Statement(
        _sql["take"],
        {
            "asked": encoder.encode(requests).decode(),
            "freed": encoder.encode([{"limiter": limiter, "most": most} for limiter, most in freed.items()]).decode(),
        },
    )
    taken = _taken.decode(rows[0][0])
    foreign = _recall(taken.limiters, known)
    yield from _drop_ended(doubtful(taken.limiters))
    capacities = {item["queue"]: QueueRoom(item["now"], item["room"], item["lanes"]) for item in requests}
    decision = decide(taken, capacities, bands, slow_lanes)
    result = LaneClaim(
        missed=decision.missed | set(taken.missed),
        more=decision.more,
        is_contended=decision.is_contended or bool(taken.missed),
        next_look=taken.next_look,
        after=_after(taken.lanes),
        walked=Counter(lane.queue for lane in taken.lanes if lane.behind is None and lane.fair is None),
        elsewhere=set(taken.elsewhere),
        lacks_limiters=[lane.id for lane in taken.lanes if lane.id is not None] if taken.lacks_limiters else None,
        blocking=_newly_waited(decision.lanes),
        foreign=foreign,
    )
    giving = [lane for lane in decision.lanes if lane.count]
    served: dict[int, list[ClaimedJob]] = {}
    moment = taken.moment
    if giving:
        result.jobs, served = yield from _pick(session, tasks, giving, requests, free or _unbounded(requests))
        moment = taken.spent_at(max((job.claimed_at for job in result.jobs), default=0.0))
        _note(result, giving, served, taken.limiters)
    if decision.lanes or decision.limiters:
        by_lane = {id(giving[number]): jobs for number, jobs in served.items()}
        rows = yield _write(decision, by_lane, moment, taken.now)
        result.versions = dict.fromkeys([limiter.id for limiter in decision.limiters], int(rows[0][0]))
    result.passed_over = any(lane.stop is not None for lane in giving)
    if passed := [lane.id for number, lane in enumerate(giving) if _leaves_behind(lane, served.get(number, ()))]:
        yield Statement(_sql["mark_passed_over"], {"lanes": array(passed)})
    return result


def reread() -> Operation[int]:
    """Reset the floors of lanes that passed over jobs, so that they are read from the start; return how many."""
    return int((yield Statement(_sql["reread"]))[0][0])


def _recall(limiters: Sequence[Limiter], known: Mapping[int, KnownLimiter]) -> set[int]:
    """Remove jobs known to have ended; return the limiters that another claim has written since."""
    foreign: set[int] = set()
    for limiter in limiters:
        if (own := known.get(limiter.id)) is None:
            continue
        if own.version == limiter.version:
            limiter.held = without(limiter.held, own.ended)
        else:
            foreign.add(limiter.id)
    return foreign


def _newly_waited(lanes: Sequence[Lane]) -> set[int]:
    return {
        lane.waits for lane in lanes if lane.id is not None and lane.waits is not None and lane.waits != lane.behind
    }


def _drop_ended(limiters: Sequence[Limiter]) -> Operation[None]:
    if limiters:
        rows = yield Statement(
            _sql["live"], {"ids": array(sorted({job for limiter in limiters for job in limiter.held if job > 0}))}
        )
        once, again = rows[0]
        live = set(_numbers.decode(once) or ()) if once else set()
        passing = dict(_passing.decode(again)) if again else {}
        for limiter in limiters:
            limiter.held = without(
                limiter.held,
                {job for job in limiter.held if job not in live and limiter.id not in passing.get(job, ())},
            )


def _after(lanes: Sequence[Lane]) -> dict[tuple[str, int], float]:
    """Return where the walk ended, by queue and band; lanes come in the order of the walk."""
    return {(lane.queue, lane.band): lane.turn for lane in lanes if lane.behind is None and lane.fair is None}


def _unbounded(requests: Sequence[Mapping[str, Any]]) -> FreeProcesses:
    return FreeProcesses((), MOST_ROWS, {item["queue"]: MOST_ROWS for item in requests})


def _pick(
    session: int,
    tasks: Collection[str],
    lanes: Sequence[Lane],
    requests: Sequence[Mapping[str, Any]],
    free: FreeProcesses,
) -> Operation[tuple[list[ClaimedJob], dict[int, list[ClaimedJob]]]]:
    """Return the claimed jobs, and by lane those that it gave, in order."""
    queues = [item["queue"] for item in requests]
    place = {queue: number for number, queue in enumerate(queues, 1)}
    rows = yield Statement(
        _sql["pick"],
        {
            "session": session,
            "tasks": list(tasks),
            "queues": queues,
            "lanes": array([lane.id for lane in lanes]),
            "places": array([place[lane.queue] for lane in lanes]),
            "counts": array([lane.count for lane in lanes]),
            "orders": array([lane.order_id for lane in lanes]),
            "priorities": array([lane.floor_priority for lane in lanes]),
            "seqs": array([lane.floor_seq for lane in lanes]),
            "floors": encoder.encode({item["queue"]: item["floors"] for item in requests}).decode(),
            "most": max(FEWEST_ROWS, MOST_ROWS // len(lanes)),
            "isolated": list(free.isolated),
            "processes": free.processes,
            "suspects": [free.suspects[queue] for queue in queues],
            "most_crashes": free.most_crashes,
            "last_crash": CRASH_LIMIT - 1,
        },
    )
    ids, numbers, claimed, stops, passing = rows[0]
    for number, priority, ready_seq in _stops.decode(stops) if stops else ():
        lanes[number - 1].stop = (priority, ready_seq)
    for number in (_numbers.decode(passing) or ()) if passing else ():
        lanes[number - 1].passes_over = True
    jobs = {job.id: job for job in decode_claimed(claimed)}
    served: dict[int, list[ClaimedJob]] = {}
    if jobs:
        for job_id, number in zip(_numbers.decode(ids) or (), _numbers.decode(numbers) or (), strict=True):
            served.setdefault(number - 1, []).append(jobs[job_id])
    return list(jobs.values()), served


def _note(
    result: LaneClaim, lanes: Sequence[Lane], served: Mapping[int, list[ClaimedJob]], limiters: Sequence[Limiter]
) -> None:
    with_slots = {limiter.id for limiter in limiters if limiter.kind != "rate"}
    result.unkeyed = {job.id for number, jobs in served.items() if lanes[number].id is None for job in jobs}
    result.short = {
        lane.queue for number, lane in enumerate(lanes) if lane.id is None and len(served.get(number, ())) < lane.count
    }
    result.rated = {job.id for number, jobs in served.items() if lanes[number].is_rated for job in jobs}
    result.holding = {}
    for number, jobs in served.items():
        for job in jobs:
            job.fair = lanes[number].fair
        lane = lanes[number]
        if len(jobs) > lane.at_once and lane.id is not None:
            result.slot_groups.append((lane.id, lane.at_once, jobs))
        if passed := [limiter for limiter in lanes[number].limiters if limiter in with_slots]:
            result.holding.update(dict.fromkeys([job.id for job in jobs], passed))


@dataclass(frozen=True, slots=True)
class _Usage:
    """What the served jobs use up: slots and tokens by limiter, and the clock of each fair share."""

    inside: dict[int, list[Party]]
    spent: dict[int, float]
    clocks: dict[tuple[str, str], float]


def _usage(decision: Decision, served: Mapping[int, list[ClaimedJob]]) -> _Usage:
    use = _Usage({}, {}, {})
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


def _write(decision: Decision, served: Mapping[int, list[ClaimedJob]], moment: str, now: int) -> Statement:
    """Return the statement that stores what a claim changed in lanes, limiters and fair shares."""
    use = _usage(decision, served)
    lanes = [lane for lane in decision.lanes if lane.id is not None]
    changed = [lane for lane in lanes if _is_changed(lane, served.get(id(lane), ()))]
    # The statement that writes the changed lanes also finds out whether they have more jobs.
    written = {lane.id for lane in changed}
    unchanged = [lane for lane in lanes if lane.count and lane.id not in written]
    moves = [_moved(lane, served.get(id(lane), ()), use.clocks, now + n) for n, lane in enumerate(changed)]
    return Statement(
        _sql["write"],
        {
            "moment": moment,
            **_served_params(unchanged, served),
            **_changed_params(changed, moves),
            **_limiter_params(decision.limiters, use),
            "share_queues": [queue for queue, _ in use.clocks],
            "share_keys": [key for _, key in use.clocks],
            "clocks": array(list(use.clocks.values())),
        },
    )


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


def _limiter_params(limiters: Sequence[Limiter], use: _Usage) -> dict[str, Any]:
    """Return the parameters for the slots and tokens of the limiters, and when each is due to be checked again."""
    inside, spent = use.inside, use.spent
    looks = [limiter.look_in(_slots(inside.get(limiter.id, ())), spent.get(limiter.id, 0.0)) for limiter in limiters]
    return {
        "limiters": array([limiter.id for limiter in limiters]),
        "held": nested([array(_held(limiter, inside)) for limiter in limiters]),
        "tokens": array([_tokens(limiter, spent.get(limiter.id, 0.0)) for limiter in limiters]),
        "looks": array(looks),
        "is_exact": array([limiter.kind == "rate" or not look for limiter, look in zip(limiters, looks, strict=True)]),
        "counts": array([0 if inside.get(limiter.id) else min(10, limiter.looks + 1) for limiter in limiters]),
    }


def _floor(lane: Lane, served: Mapping[int, Sequence[ClaimedJob]]) -> tuple[int, int]:
    jobs = served.get(id(lane))
    return (jobs[-1].priority, jobs[-1].ready_seq) if jobs else (0, 0)


def _is_changed(lane: Lane, jobs: Sequence[ClaimedJob]) -> bool:
    """Return whether the row of the lane must be written. A lane that gave few jobs and has more is not."""
    if lane.fair is not None or lane.order_id is not None or lane.waits != lane.behind or lane.stop is not None:
        return True
    if len(jobs) < lane.count and (lane.floor_priority, lane.floor_seq) > (0, 0):
        # It was read to its end: start again from the beginning, where jobs may have been passed over.
        return True
    return len(jobs) >= DEEP or (bool(jobs) and jobs[-1].priority != lane.band)


def _leaves_behind(lane: Lane, jobs: Sequence[ClaimedJob]) -> bool:
    """Return whether the floor is set behind jobs that are still ready."""
    return lane.stop is not None or (lane.passes_over and len(jobs) >= lane.count and _is_changed(lane, jobs))


def _moved(
    lane: Lane, jobs: Sequence[ClaimedJob], clocks: Mapping[tuple[str, str], float], now: int
) -> tuple[int | None, int, float, int, int]:
    """Return the limiter that it waits for, its band, its turn, and the floor of its next job."""
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


def _slots(new: Sequence[Party]) -> int:
    return sum(min(slots, len(jobs)) for slots, jobs in new)


def _held(limiter: Limiter, inside: Mapping[int, Sequence[Party]]) -> Sequence[int]:
    if limiter.kind == "rate":
        return ()
    held: Sequence[int] = limiter.held
    for slots, jobs in inside.get(limiter.id, ()):
        held = joined(held, slots, jobs)
    return held


def _tokens(limiter: Limiter, spent: float) -> float | None:
    return None if limiter.tokens is None else limiter.tokens - spent
