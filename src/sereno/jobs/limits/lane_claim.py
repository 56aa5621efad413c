"""Claims jobs with limits, lane by lane: lock, decide, pick and write in one transaction."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.jobs.attempt import CRASH_LIMIT
from sereno.jobs.claim_reply import decode_claimed
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.lane_decision import Lane, LaneName, Limiter, LockedLanes, QueueCapacity, decide
from sereno.jobs.limits.lane_write import leaves_behind, write_params
from sereno.jobs.limits.slot_sharing import without

_sql = queries("jobs/limits/lane_claim")
_locked_lanes = msgspec.json.Decoder(LockedLanes)
_numbers = msgspec.json.Decoder(list[int] | None)
_passing = msgspec.json.Decoder(list[tuple[int, list[int | None]]])
_opened = msgspec.json.Decoder(tuple[int, int | None, int])
_stops = msgspec.json.Decoder(list[tuple[int, int, int]])

# Rows that a claim reads at most from all its lanes together, but at least this many from each lane. Paused jobs and
# jobs of unknown tasks are skipped, and the next claim continues behind them.
MOST_ROWS, FEWEST_ROWS = 10_000, 100
# Slot holders. A longer list is always checked for ended jobs, whatever the number of slots.
MANY = 200


class KnownLimiter(NamedTuple):
    """Jobs of a limiter that have succeeded; valid while the limiter has the version that this worker wrote."""

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
    `lacks_limiters`: lanes whose limiters may not exist yet. `next_check`: seconds until a limiter is due.
    `versions`: of the limiters that were written. `foreign`: limiters that another claim has written. `passed_over`: a
    lane has more jobs than a claim reads, and fewer could be claimed than wanted.
    """

    jobs: list[ClaimedJob] = []
    unkeyed: set[int] = set()
    short: set[str] = set()
    rated: set[int] = set()
    slot_groups: list[tuple[LaneName, int, list[ClaimedJob]]] = []
    walked: Counter[str] = Counter()
    holding: dict[int, list[int]] = {}
    missed: set[int]
    more: set[str]
    is_contended: bool
    blocking: set[int]
    after: dict[tuple[str, int], float]
    elsewhere: set[int]
    lacks_limiters: list[int] | None
    next_check: float | None
    versions: dict[int, int] = {}
    foreign: set[int] = set()
    passed_over: bool = False


def open_lanes(floor: int) -> Operation[tuple[int, int | None, int]]:
    """Process wake-ups; return how many there were, the lowest id, and how many could not be read right now."""
    rows = yield Statement(_sql["open_lanes"], {"floor": floor})
    return _opened.decode(rows[0][0])


def recheck(since: datetime) -> Operation[None]:
    """Make lanes due that wait for a limit which was changed after `since`."""
    yield Statement(_sql["recheck"], {"since": since})


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
    slow_lanes: Collection[LaneName] = (),
    known: Mapping[int, KnownLimiter] = NOTHING,
    free: FreeProcesses | None = None,
) -> Operation[LaneClaim]:
    """Claim jobs of lanes, as far as their limiters admit them.

    `requests`: objects with queue, now, slots (free slots), lanes, floors, and bands, each with the turn after which to
    read. `freed`: limiters, and how many jobs left them. `bands`: in the order to be walked. `slow_lanes`: lanes of
    slow jobs, which do not share slots. `known`: by limiter, jobs known to have ended. `free`: how many jobs may start
    in their own processes; unbounded by default.
    """
    rows = yield Statement(
        _sql["take"],
        {
            "requests": encoder.encode(requests).decode(),
            "freed": encoder.encode([{"limiter": limiter, "most": most} for limiter, most in freed.items()]).decode(),
        },
    )
    locked = _locked_lanes.decode(rows[0][0])
    foreign = _drop_known_ended(locked.limiters, known)
    yield from _drop_ended(_doubtful(locked.limiters))
    capacities = {item["queue"]: QueueCapacity(item["now"], item["slots"], item["lanes"]) for item in requests}
    decision = decide(locked, capacities, bands, slow_lanes)
    result = LaneClaim(
        missed=decision.missed | set(locked.missed),
        more=decision.more,
        is_contended=decision.is_contended or bool(locked.missed),
        next_check=locked.next_check,
        after=_after(locked.lanes),
        walked=Counter(lane.queue for lane in locked.lanes if lane.behind is None and lane.fair is None),
        elsewhere=set(locked.elsewhere),
        lacks_limiters=[lane.id for lane in locked.lanes if lane.id is not None] if locked.lacks_limiters else None,
        blocking=_newly_waited(decision.lanes),
        foreign=foreign,
    )
    giving = [lane for lane in decision.lanes if lane.count]
    served: dict[int, list[ClaimedJob]] = {}
    moment = locked.moment
    if giving:
        result.jobs, served = yield from _pick(session, tasks, giving, requests, free or _unbounded(requests))
        moment = locked.spent_at(max((job.claimed_at for job in result.jobs), default=0.0))
        _record_served(result, giving, served, locked.limiters)
    if decision.lanes or decision.limiters:
        by_lane = {id(giving[number]): jobs for number, jobs in served.items()}
        rows = yield Statement(_sql["write"], write_params(decision, by_lane, moment, locked.now))
        result.versions = dict.fromkeys([limiter.id for limiter in decision.limiters], int(rows[0][0]))
    result.passed_over = any(lane.stop is not None for lane in giving)
    if passed := [lane.id for number, lane in enumerate(giving) if leaves_behind(lane, served.get(number, ()))]:
        yield Statement(_sql["mark_passed_over"], {"lanes": array(passed)})
    return result


def reread() -> Operation[int]:
    """Reset the floors of lanes that passed over jobs, so that they are read from the start; return how many."""
    return int((yield Statement(_sql["reread"]))[0][0])


def _drop_known_ended(limiters: Sequence[Limiter], known: Mapping[int, KnownLimiter]) -> set[int]:
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


def _doubtful(limiters: Sequence[Limiter]) -> list[Limiter]:
    """Return limiters that seem more than half full: it has to be checked which of their jobs still run."""
    return [
        limiter
        for limiter in limiters
        if limiter.held and (2 * len(limiter.held) > (limiter.slots or 0) or len(limiter.held) > MANY)
    ]


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


def _record_served(
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
        if len(jobs) > lane.at_once:
            result.slot_groups.append((lane.name, lane.at_once, jobs))
        if passed := [limiter for limiter in lanes[number].limiters if limiter in with_slots]:
            result.holding.update(dict.fromkeys([job.id for job in jobs], passed))
