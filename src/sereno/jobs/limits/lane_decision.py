"""Decides which jobs with limits may start. Pure: the store locks lanes, this module decides, the store writes.

A lane is all jobs of a queue with the same keys. It passes through limiters; a limiter admits a number of jobs at once
or a number per second. Lanes take turns: the next is the lane with the least service, divided by its weight.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heapreplace
from typing import Literal, TypeAlias

import msgspec

from sereno.jobs.job import DEFAULT_PRIORITY
from sereno.jobs.limits.slot_sharing import slots_in_use

# Band of the lanes that take turns by a fair key; lower bands are priorities.
FAIR_BAND = 10
# Poll interval in seconds for lanes that wait for a slot, used when no notification of a free slot arrives.
SHORTEST_CHECK_INTERVAL = 5.0
LONGEST_CHECK_INTERVAL = 60.0
# Jobs of a key that one worker may claim per slot, to run them one after another.
MOST_PER_SLOT = 16

# The id of a lane; for jobs without keys, their queue.
LaneName: TypeAlias = int | str
LimiterKind = Literal["slots", "rate", "order", "unknown"]


class Lane(msgspec.Struct, array_like=True, gc=False):
    """A locked lane as the store read it. No id: the plain jobs of a queue that has a limit of its own.

    `behind`: the limiter that it waited for. `has_head`: of an order, whether its first job is in this lane and
    ready. `clock`: the service that its fair key got so far, in all its lanes.
    """

    id: int | None
    queue: str
    limiters: list[int] = []
    units: list[int] = []
    order_id: int | None = None
    turn: float = 0.0
    floor_priority: int = 0
    floor_seq: int = 0
    behind: int | None = None
    band: int = DEFAULT_PRIORITY
    has_head: bool | None = None
    fair: str | None = None
    weight: float | None = None
    clock: float | None = None
    # Decided here: how many jobs it may give, and how many of them may run at once.
    count: int = 0
    at_once: int = 0
    waits: int | None = None
    is_rated: bool = False
    # Where the next claim continues: this one read as many rows as allowed and got fewer jobs than wanted.
    stop: tuple[int, int] | None = None
    # Whether it gave jobs that are behind others which could not be claimed.
    passes_over: bool = False

    @property
    def name(self) -> LaneName:
        return self.queue if self.id is None else self.id


class Limiter(msgspec.Struct, array_like=True, gc=False):
    """A locked limiter. `tokens`: refilled up to now. `closed`: seconds until it opens. `version`: new per write."""

    id: int
    kind: LimiterKind
    slots: int | None
    per_second: float | None
    burst: float | None
    tokens: float | None
    closed: float | None
    held: list[int]
    checks: int
    version: int = 0
    # Decided here: how many jobs were admitted now, the tokens they took, and what the first waiting job needs.
    count: int = 0
    spent: float = 0.0
    need: float | None = None
    touched: bool = False
    # Slots in use, computed once.
    in_use: int | None = None

    def free(self) -> int:
        """Return the number of free slots; 0 for other kinds of limiters."""
        if self.kind != "slots" or self.closed:
            return 0
        if self.in_use is None:
            self.in_use = slots_in_use(self.held)
        return (self.slots or 0) - self.in_use - self.count

    def admits(self, units: int) -> bool:
        """Return whether one more job may start."""
        if self.kind == "rate":
            has_tokens = (self.tokens or 0.0) - self.spent >= min(units, self.burst or 1.0)
            return not self.closed and self.need is None and has_tokens
        if self.kind == "order":
            return not self.closed and len(self.held) + self.count < 1
        return self.free() > 0

    def admit(self, units: int) -> None:
        self.touched = True
        self.count += 1
        if self.kind == "order":
            # The next job in the order waits from now on.
            self.need = 1.0
        if self.burst is not None:
            # Charged in full: a job that costs more than a burst leaves a debt.
            self.spent += units

    def refuse(self, units: int) -> None:
        """Record a refusal. The first one closes a rate for later lanes, so that a costly job is not starved."""
        self.touched = True
        if self.need is None:
            self.need = min(float(units), self.burst or 1.0)

    def refill(self, seconds: float) -> None:
        """Add the tokens of `seconds`."""
        if self.tokens is not None:
            self.tokens = min(self.burst or 1.0, self.tokens + seconds * (self.per_second or 0.0))

    def check_in(self, ids: int, spent: float) -> float | None:
        """Return the seconds until waiting lanes are checked, after `ids` jobs were admitted; None if no lane waits."""
        if self.need is None:
            return None
        if self.kind == "rate":
            missing = self.need - ((self.tokens or 0.0) - spent)
            return min(LONGEST_CHECK_INTERVAL, max(0.0, self.closed or 0.0, missing / (self.per_second or 1.0)))
        if self.closed:
            return min(LONGEST_CHECK_INTERVAL, self.closed)
        if self.kind == "slots" and slots_in_use(self.held) + ids < (self.slots or 0):
            # Reserved for a lane that had fewer jobs than assumed.
            return 0.0
        return min(LONGEST_CHECK_INTERVAL, SHORTEST_CHECK_INTERVAL * 2.0**self.checks)


class QueueCapacity:
    """The free slots of a queue: `now` is how many jobs can start at once, `ahead` how many may be claimed in all.

    `lanes`: how many lanes were requested; if that many came, there may be more.
    """

    def __init__(self, now: int, ahead: int, lanes: int) -> None:
        self.now = now
        self.ahead = ahead
        self.lanes = lanes
        # Jobs that share a slot do not start at once, so they may not use slots in which other jobs could start.
        self.behind = ahead - now

    def has_place(self, lane: Lane) -> bool:
        """Return whether a job of the lane fits. Under a rate limit it must start at once: its start is counted."""
        return self.ahead > 0 and (self.now > 0 or not lane.is_rated)

    def take(self, lane: Lane) -> None:
        self.ahead -= 1
        self.now -= lane.is_rated


class LockedLanes(msgspec.Struct, array_like=True, gc=False):
    """The lanes and limiters that the store locked.

    `free`: limiters whose waiting lanes were read, and whether they were due. `own`: queues that have limits of their
    own, with their limiters, and whether jobs without a key wait there. `missed`: freed limiters with waiting lanes
    that another claim has locked. `elsewhere`: freed limiters that lanes of another queue wait for.
    `lacks_limiters`: some do not exist yet. `next_check`: seconds until a limiter is due.
    """

    moment: str
    now: int
    lanes: list[Lane]
    limiters: list[Limiter]
    free: list[tuple[int, bool]]
    own: dict[str, tuple[list[int], bool]]
    missed: list[int]
    elsewhere: list[int]
    lacks_limiters: bool
    next_check: float | None

    def spent_at(self, marked: float) -> str:
        """Return when tokens are spent: at the jobs' claim time (Unix seconds), so that no rate is exceeded."""
        if (later := marked - self.now / 1e6) <= 0:
            return self.moment
        for limiter in self.limiters:
            limiter.refill(later)
        return datetime.fromtimestamp(marked, UTC).isoformat()


class LaneDecision:
    """The lanes and limiters to write, and what the worker has to remember.

    `missed`: free limiters whose lanes could not be read, because another claim has locked them. `more`: queues with
    more startable jobs than free slots.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.limiters: list[Limiter] = []
        self.missed: set[int] = set()
        self.is_contended = False
        self.more: set[str] = set()


def decide(
    locked: LockedLanes,
    capacities: Mapping[str, QueueCapacity],
    bands: Sequence[int],
    slow_lanes: Collection[LaneName] = (),
) -> LaneDecision:
    """Return how many jobs of each lane may start, and which lanes wait for what. `bands`: in the order to be walked.

    `slow_lanes`: lanes whose jobs are too slow to share a slot.
    """
    decision = LaneDecision()
    limiters = {limiter.id: limiter for limiter in locked.limiters}
    lanes = [*_reachable(locked, limiters, decision), *_plain(locked, limiters, decision)]
    _catch_up(lanes)
    for lane in lanes:
        lane.is_rated = any(limiters[limiter].kind == "rate" for limiter in lane.limiters)
    giving = _LaneTurn(lanes, limiters, capacities, decision, slow_lanes)
    of_band: dict[int, list[Lane]] = {}
    for lane in lanes:
        of_band.setdefault(lane.band, []).append(lane)
    for band in bands:
        if band == FAIR_BAND:
            giving.by_turn(of_band.get(band, []))
        else:
            giving.in_rounds(of_band.get(band, []))
    decision.lanes = [lane for lane in lanes if lane.count or lane.waits is not None]
    # These lanes waited for a limiter that is free, but their queue has no free slot: the limiter is checked again.
    unseen = {lane.behind for lane in lanes if lane.behind is not None and not lane.count and lane.waits is None}
    decision.missed |= {limiter for limiter in unseen if limiter is not None}
    _mark_read(locked, limiters)
    decision.limiters = [limiter for limiter in locked.limiters if limiter.touched]
    return decision


_NO_LIMITS: tuple[list[int], bool] = ([], False)


def _reachable(locked: LockedLanes, limiters: Mapping[int, Limiter], decision: LaneDecision) -> list[Lane]:
    """Return the lanes all of whose limiters are locked here; other claims have locked the rest."""
    found: list[Lane] = []
    for lane in locked.lanes:
        own, _ = locked.own.get(lane.queue, _NO_LIMITS)
        # A limit that the keys of the lane name already counts once.
        if extra := [limiter for limiter in own if limiter not in lane.limiters]:
            lane.limiters = [*lane.limiters, *extra]
            lane.units = [*lane.units, *[1] * len(extra)]
        if all(limiter in limiters for limiter in lane.limiters):
            found.append(lane)
            continue
        decision.is_contended = True
        if lane.behind is not None:
            decision.missed.add(lane.behind)
    return found


def _plain(locked: LockedLanes, limiters: Mapping[int, Limiter], decision: LaneDecision) -> list[Lane]:
    """Return one lane per limited queue for its jobs without keys; it gets the lowest turn of the queue."""
    found: list[Lane] = []
    for queue, (own, has_plain) in locked.own.items():
        if not has_plain:
            continue
        if all(limiter in limiters for limiter in own):
            turn = min((lane.turn for lane in locked.lanes if lane.queue == queue), default=0.0)
            found.append(Lane(None, queue, own, [1] * len(own), turn=turn))
        else:
            decision.is_contended = True
    return found


def _catch_up(lanes: list[Lane]) -> None:
    """Move fair lanes that waited for a limiter to the next turn: waiting earns no credit."""
    next_turn: dict[str, float] = {}
    for lane in lanes:
        if lane.fair is not None and lane.behind is None:
            next_turn[lane.queue] = min(lane.turn, next_turn.get(lane.queue, lane.turn))
    for lane in lanes:
        if lane.fair is not None and lane.behind is not None:
            lane.turn = max(lane.turn, next_turn.get(lane.queue, lane.turn))


class _LaneTurn:
    """Gives one job at a time to the next lane, until the free slots are used up or every lane must wait.

    The number of jobs of a lane is not known here, so no lane gets much more than its share: it may have a single job.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        limiters: Mapping[int, Limiter],
        capacities: Mapping[str, QueueCapacity],
        decision: LaneDecision,
        slow_lanes: Collection[LaneName],
    ) -> None:
        capacity = sum(each.ahead for each in capacities.values())
        self._capacities = capacities
        self._decision = decision
        self._most = max(4, 4 * capacity // max(1, len(lanes)))
        self._slow_lanes = slow_lanes
        self._is_crowded = len(lanes) >= sum(each.lanes for each in capacities.values())
        self._passing = Counter(limiter for lane in lanes for limiter in lane.limiters)
        self._passed = {
            id(lane): [(limiters[limiter], units) for limiter, units in zip(lane.limiters, lane.units, strict=True)]
            for lane in lanes
        }

    def in_rounds(self, lanes: list[Lane]) -> None:
        """Give each lane an equal share, the longest waiting first, then the remainder one by one."""
        lanes.sort(key=_turn)
        if lanes and (part := self._capacities[lanes[0].queue].ahead // len(lanes)) > 1:
            for lane in lanes:
                self._give_part(lane, part)
        while lanes:
            lanes = [lane for lane in lanes if self._give_one(lane)]

    def _give_part(self, lane: Lane, part: int) -> None:
        """Give `part` jobs at once to a lane that has a slot limiter for itself."""
        passed = self._passed[id(lane)]
        if not self._is_alone(passed):
            return
        limiter, capacity = passed[0][0], self._capacities[lane.queue]
        count = min(part, capacity.ahead, self._most, limiter.free())
        if count > 0:
            limiter.touched = True
            limiter.count += count
            lane.count = lane.at_once = count
            capacity.ahead -= count

    def by_turn(self, lanes: list[Lane]) -> None:
        """Give to the lane with the least service, divided by its weight."""
        heap = [(lane.turn, number) for number, lane in enumerate(lanes)]
        heapify(heap)
        while heap:
            turn, number = heap[0]
            if self._give_one(lanes[number]):
                heapreplace(heap, (turn + 1 / (lanes[number].weight or 1.0), number))
            else:
                heappop(heap)

    def _give_one(self, lane: Lane) -> bool:
        capacity = self._capacities[lane.queue]
        if not capacity.has_place(lane) or lane.count >= self._most:
            self._decision.more.add(lane.queue)
            return False
        passed = self._passed[id(lane)]
        for limiter, units in passed:
            if not limiter.admits(units) or (limiter.id == lane.order_id and not lane.has_head):
                if capacity.behind > 0 and self._may_share(lane, passed):
                    lane.count += 1
                    capacity.take(lane)
                    capacity.behind -= 1
                    return True
                # Among many lanes, one that gave something is read again at its next turn; it may be free then.
                if not (lane.count and self._is_crowded):
                    limiter.refuse(units)
                    lane.waits = limiter.id
                return False
        for limiter, units in passed:
            limiter.admit(units)
        lane.count += 1
        lane.at_once += 1
        capacity.take(lane)
        return True

    def _may_share(self, lane: Lane, passed: Sequence[tuple[Limiter, int]]) -> bool:
        """Return whether a lane may give more jobs than its limiter admits, to run one after another in its slots.

        Only where that delays no other lane: with a limiter of its own and without fair turns.
        """
        return (
            0 < lane.count < lane.at_once * MOST_PER_SLOT
            and self._is_alone(passed)
            and lane.fair is None
            and lane.name not in self._slow_lanes
        )

    def _is_alone(self, passed: Sequence[tuple[Limiter, int]]) -> bool:
        return len(passed) == 1 and passed[0][0].kind == "slots" and self._passing[passed[0][0].id] == 1


def _turn(lane: Lane) -> float:
    return lane.turn


def _mark_read(locked: LockedLanes, limiters: Mapping[int, Limiter]) -> None:
    """Mark limiters whose waiting lanes were read: they store when to check again, or that no lane waits."""
    read = {lane.behind for lane in locked.lanes}
    for limiter, is_due in locked.free:
        if limiter in limiters and (is_due or limiter in read):
            limiters[limiter].touched = True
