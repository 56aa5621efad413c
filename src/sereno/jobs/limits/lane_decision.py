"""Who may start: the decision of a claim that meets limits. Pure: the store takes, this decides, the store writes.

A lane is all jobs of a queue with the same keys. It passes through limiters; a limiter lets in so many at once, or so
many a second. Lanes take turns: whoever is furthest behind, measured by what it got divided by its weight, is next.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heapreplace
from typing import Literal

import msgspec

from sereno.jobs.job import DEFAULT_PRIORITY
from sereno.jobs.limits.slot_sharing import taken as slots_taken

# Lanes that take turns by a fair key; below it, a band is a priority.
FAIR_BAND = 10
# Who waits for a slot is told when it is free; should nobody tell, somebody looks after so many seconds.
SHORTEST_LOOK = 5.0
LONGEST_LOOK = 60.0
# A list of jobs that is longer is looked through, however many slots there are.
MANY = 200
# So many jobs share a slot of their key, in the hands of one worker.
MOST_IN_PARTY = 16

LimiterKind = Literal["slots", "rate", "order", "unknown"]


class Lane(msgspec.Struct, array_like=True, gc=False):
    """A lane that was taken, as the store read it. No id: the plain jobs of a queue that has a limit of its own.

    `behind`: the limiter that it waited for. `has_head`: of an order, whether the first of all its jobs is
    here and ready. `clock`: how far its fair key has come, in all its lanes.
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
    # Where the next claim goes on: this one has read as much of it as it may, and could not take as many as wanted.
    stop: tuple[int, int] | None = None
    # It gave jobs that stand behind others, which could not be taken.
    passes_over: bool = False


class Limiter(msgspec.Struct, array_like=True, gc=False):
    """A limiter that was locked. `tokens`: refilled up to now. `closed`: seconds until it may let anybody in.

    `version`: another one after every write.
    """

    id: int
    kind: LimiterKind
    slots: int | None
    per_second: float | None
    burst: float | None
    tokens: float | None
    closed: float | None
    held: list[int]
    looks: int
    version: int = 0
    # Decided here: how many were let in now, how much they took, and what the first one that must wait for it needs.
    count: int = 0
    spent: float = 0.0
    need: float | None = None
    touched: bool = False
    # How many slots are taken by those who are in; read once.
    taken: int | None = None

    def free(self) -> int:
        """How many slots are left; none, if it counts something else."""
        if self.kind != "slots" or self.closed:
            return 0
        if self.taken is None:
            self.taken = slots_taken(self.held)
        return (self.slots or 0) - self.taken - self.count

    def admits(self, units: int) -> bool:
        """Whether one more may start."""
        if self.kind == "rate":
            has_tokens = (self.tokens or 0.0) - self.spent >= min(units, self.burst or 1.0)
            return not self.closed and self.need is None and has_tokens
        if self.kind == "order":
            return not self.closed and len(self.held) + self.count < 1
        return self.free() > 0

    def let_in(self, units: int) -> None:
        self.touched = True
        self.count += 1
        if self.kind == "order":
            # Whoever is next in the order waits from now on.
            self.need = 1.0
        if self.burst is not None:
            # In full: a job that costs more than a burst leaves a debt.
            self.spent += units

    def refuse(self, units: int) -> None:
        """The first refusal closes a rate for all who come later: a lane that needs much is not overtaken for ever."""
        self.touched = True
        if self.need is None:
            self.need = min(float(units), self.burst or 1.0)

    def refill(self, seconds: float) -> None:
        """So much later."""
        if self.tokens is not None:
            self.tokens = min(self.burst or 1.0, self.tokens + seconds * (self.per_second or 0.0))

    def look_in(self, ids: int, spent: float) -> float | None:
        """Seconds until those who wait for it should be looked at, when so many went in; None when nobody must."""
        if self.need is None:
            return None
        if self.kind == "rate":
            missing = self.need - ((self.tokens or 0.0) - spent)
            return min(LONGEST_LOOK, max(0.0, self.closed or 0.0, missing / (self.per_second or 1.0)))
        if self.closed:
            return min(LONGEST_LOOK, self.closed)
        if self.kind == "slots" and slots_taken(self.held) + ids < (self.slots or 0):
            # Kept free for a lane that had less than was thought.
            return 0.0
        return min(LONGEST_LOOK, SHORTEST_LOOK * 2.0**self.looks)


def doubtful(limiters: Iterable[Limiter]) -> list[Limiter]:
    """Limiters that seem more than half full: it matters which of their jobs still run."""
    return [
        limiter
        for limiter in limiters
        if limiter.held and (2 * len(limiter.held) > (limiter.slots or 0) or len(limiter.held) > MANY)
    ]


class QueueRoom:
    """How many jobs of a queue may be claimed: `now` is how many can start at once, `ahead` how many in all.

    `lanes`: how many lanes were asked for; as many as came may not be all there are.
    """

    def __init__(self, now: int, ahead: int, lanes: int) -> None:
        self.now = now
        self.ahead = ahead
        self.lanes = lanes
        # Who shares a slot cannot start at once: no room that others could start in is for them.
        self.behind = ahead - now

    def has_place(self, lane: Lane) -> bool:
        """A job that passes a rate starts at once, or is not claimed: its start is what is counted."""
        return self.ahead > 0 and (self.now > 0 or not lane.is_rated)

    def take(self, lane: Lane) -> None:
        self.ahead -= 1
        self.now -= lane.is_rated


class LockedLanes(msgspec.Struct, array_like=True, gc=False):
    """What the store took.

    `free`: limiters whose waiting lanes were looked at, and whether it was time to. `own`: queues that have limits of
    their own, with their limiters, and whether jobs without a key wait there. `missed`: limiters that came free, that
    somebody waits for, and that another claim holds. `elsewhere`: those that somebody of another queue waits for.
    `lacks_limiters`: some are not there yet. `next_look`: seconds until
    a limiter is due.
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
    next_look: float | None

    def spent_at(self, marked: float) -> str:
        """The moment (in seconds since 1970) of the jobs' marks: tokens are spent then, so no rate is exceeded."""
        if (later := marked - self.now / 1e6) <= 0:
            return self.moment
        for limiter in self.limiters:
            limiter.refill(later)
        return datetime.fromtimestamp(marked, UTC).isoformat()


class Decision:
    """What to write, and what to remember.

    `missed`: free limiters whose lanes could not be looked at, because another claim is at them right now. `more`:
    queues that could give more than there was room for.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.limiters: list[Limiter] = []
        self.missed: set[int] = set()
        self.is_contended = False
        self.more: set[str] = set()


def decide(
    taken: LockedLanes, rooms: Mapping[str, QueueRoom], bands: Sequence[int], no_parties: Collection[int] = ()
) -> Decision:
    """How many jobs of each lane may start, and who must wait for what. `bands`: in the order to be walked.

    `no_parties`: lanes whose jobs are too slow to share a slot.
    """
    decision = Decision()
    limiters = {limiter.id: limiter for limiter in taken.limiters}
    lanes = [*_reachable(taken, limiters, decision), *_plain(taken, limiters, decision)]
    _catch_up(lanes)
    for lane in lanes:
        lane.is_rated = any(limiters[limiter].kind == "rate" for limiter in lane.limiters)
    giving = _LaneTurn(lanes, limiters, rooms, decision, no_parties)
    of_band: dict[int, list[Lane]] = {}
    for lane in lanes:
        of_band.setdefault(lane.band, []).append(lane)
    for band in bands:
        if band == FAIR_BAND:
            giving.by_turn(of_band.get(band, []))
        else:
            giving.in_rounds(of_band.get(band, []))
    decision.lanes = [lane for lane in lanes if lane.count or lane.waits is not None]
    # Behind a free limiter, and no room for it: looked at again.
    unseen = {lane.behind for lane in lanes if lane.behind is not None and not lane.count and lane.waits is None}
    decision.missed |= {limiter for limiter in unseen if limiter is not None}
    _note_behind(taken, limiters)
    decision.limiters = [limiter for limiter in taken.limiters if limiter.touched]
    return decision


_NO_GATES: tuple[list[int], bool] = ([], False)


def _reachable(taken: LockedLanes, limiters: Mapping[int, Limiter], decision: Decision) -> list[Lane]:
    """Lanes all of whose limiters are ours; the rest is somebody else's for now."""
    found: list[Lane] = []
    for lane in taken.lanes:
        own, _ = taken.own.get(lane.queue, _NO_GATES)
        # A limit that its keys name already is passed once.
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


def _plain(taken: LockedLanes, limiters: Mapping[int, Limiter], decision: Decision) -> list[Lane]:
    """The jobs of a limited queue that carry no key stand in one lane; its turn is that of the first."""
    found: list[Lane] = []
    for queue, (own, has_plain) in taken.own.items():
        if not has_plain:
            continue
        if all(limiter in limiters for limiter in own):
            turn = min((lane.turn for lane in taken.lanes if lane.queue == queue), default=0.0)
            found.append(Lane(None, queue, own, [1] * len(own), turn=turn))
        else:
            decision.is_contended = True
    return found


def _catch_up(lanes: list[Lane]) -> None:
    """Who had to wait at a limiter has saved up nothing: a fair lane comes back at the turn of those who are next."""
    next_turn: dict[str, float] = {}
    for lane in lanes:
        if lane.fair is not None and lane.behind is None:
            next_turn[lane.queue] = min(lane.turn, next_turn.get(lane.queue, lane.turn))
    for lane in lanes:
        if lane.fair is not None and lane.behind is not None:
            lane.turn = max(lane.turn, next_turn.get(lane.queue, lane.turn))


class _LaneTurn:
    """One job at a time to the lane that is next, until the room is used up or every lane must wait.

    How many jobs a lane has is not known here, so none is given much more than its part: it might have one.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        limiters: Mapping[int, Limiter],
        rooms: Mapping[str, QueueRoom],
        decision: Decision,
        no_parties: Collection[int],
    ) -> None:
        room = sum(each.ahead for each in rooms.values())
        self._rooms = rooms
        self._decision = decision
        self._most = max(4, 4 * room // max(1, len(lanes)))
        self._no_parties = no_parties
        self._is_crowded = len(lanes) >= sum(each.lanes for each in rooms.values())
        self._passing = Counter(limiter for lane in lanes for limiter in lane.limiters)
        self._passed = {
            id(lane): [(limiters[limiter], units) for limiter, units in zip(lane.limiters, lane.units, strict=True)]
            for lane in lanes
        }

    def in_rounds(self, lanes: list[Lane]) -> None:
        """An equal part for each, the one that waits longest first, then what is left one by one."""
        lanes.sort(key=_turn)
        if lanes and (part := self._rooms[lanes[0].queue].ahead // len(lanes)) > 1:
            for lane in lanes:
                self._give_part(lane, part)
        while lanes:
            lanes = [lane for lane in lanes if self._give_one(lane)]

    def _give_part(self, lane: Lane, part: int) -> None:
        """So many at once, where it has a limiter with slots for itself."""
        passed = self._passed[id(lane)]
        if not self._is_alone(passed):
            return
        limiter, room = passed[0][0], self._rooms[lane.queue]
        count = min(part, room.ahead, self._most, limiter.free())
        if count > 0:
            limiter.touched = True
            limiter.count += count
            lane.count = lane.at_once = count
            room.ahead -= count

    def by_turn(self, lanes: list[Lane]) -> None:
        """Whoever is furthest behind, measured by what it got divided by its weight."""
        heap = [(lane.turn, number) for number, lane in enumerate(lanes)]
        heapify(heap)
        while heap:
            turn, number = heap[0]
            if self._give_one(lanes[number]):
                heapreplace(heap, (turn + 1 / (lanes[number].weight or 1.0), number))
            else:
                heappop(heap)

    def _give_one(self, lane: Lane) -> bool:
        room = self._rooms[lane.queue]
        if not room.has_place(lane) or lane.count >= self._most:
            self._decision.more.add(lane.queue)
            return False
        passed = self._passed[id(lane)]
        for limiter, units in passed:
            if not limiter.admits(units) or (limiter.id == lane.order_id and not lane.has_head):
                if room.behind > 0 and self._may_share(lane, passed):
                    lane.count += 1
                    room.take(lane)
                    room.behind -= 1
                    return True
                # A lane that gave something, among many, is looked at again when its turn comes; it may be free then.
                if not (lane.count and self._is_crowded):
                    limiter.refuse(units)
                    lane.waits = limiter.id
                return False
        for limiter, units in passed:
            limiter.let_in(units)
        lane.count += 1
        lane.at_once += 1
        room.take(lane)
        return True

    def _may_share(self, lane: Lane, passed: Sequence[tuple[Limiter, int]]) -> bool:
        """More than its limiter lets in, to be run one after another in the slots it has.

        Only where nobody else is held up by it: behind a limiter of its own, without turns.
        """
        return (
            0 < lane.count < lane.at_once * MOST_IN_PARTY
            and self._is_alone(passed)
            and lane.fair is None
            and lane.id is not None
            and lane.id not in self._no_parties
        )

    def _is_alone(self, passed: Sequence[tuple[Limiter, int]]) -> bool:
        return len(passed) == 1 and passed[0][0].kind == "slots" and self._passing[passed[0][0].id] == 1


def _turn(lane: Lane) -> float:
    return lane.turn


def _note_behind(taken: LockedLanes, limiters: Mapping[int, Limiter]) -> None:
    """A limiter whose waiting lanes were looked at is written: it says when to look again, or that nobody waits."""
    looked = {lane.behind for lane in taken.lanes}
    for limiter, is_due in taken.free:
        if limiter in limiters and (is_due or limiter in looked):
            limiters[limiter].touched = True
