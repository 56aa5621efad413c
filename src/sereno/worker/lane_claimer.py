"""The part of a claimer that knows of limits: wakes lanes, claims them, remembers which limiters came free.

A limiter that a job of ours left is remembered here until its waiting lanes were looked at, so a settlement pays
nothing for it. If this process dies, the limiter's own date in the table brings somebody to look.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

import psycopg

from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.jobs.job import PRIORITIES
from sereno.jobs.limits.lane_claim import (
    FreeProcesses,
    LaneClaim,
    claim_lanes,
    hand_over,
    look_again,
    make_limiters,
    open_lanes,
)
from sereno.jobs.limits.lane_decision import FAIR_BAND
from sereno.jobs.transitions import Claim
from sereno.worker.floor import Floors
from sereno.worker.known_limiters import KnownLimiters

# As many wake-ups as one statement reads.
WAKES = 5000
# Another claim holds the same limiter: it is done within this.
CONTENDED = 0.003
# What came free and was not used here after this long is for others.
PATIENCE = 0.1
# Lanes that give nothing (what they hold is paused, or unknown here) are passed over so often before we rest.
MOST_EMPTY = 20

# Then a walk over jobs that are passed over may take this share of the time: behind them there may be others.
WALK_SHARE = 0.05

# Lanes of slow jobs that are remembered.
MOST_SLOW = 1000
SLOW_SECONDS = 60.0

_WAKES = "wakes"


class Depth:
    """How many jobs the lanes of a queue have to give, judged by the last claims.

    Few lanes that give much cost less than many that give little.
    """

    FEWEST = 16
    DEEPEST = 64.0
    # After one that came back with too little, so many claims before more is tried.
    PATIENCE = 10

    def __init__(self) -> None:
        self._jobs_each = 1.0
        self._patience = 0

    def lanes(self, room: int) -> int:
        """How many to ask for so much room."""
        return min(room, max(self.FEWEST, math.ceil(room / self._jobs_each)))

    def learn(self, room: int, lanes: int, jobs: int) -> None:
        if jobs >= 0.9 * room:
            self._patience -= 1
            if self._patience < 0:
                self._jobs_each = min(self.DEEPEST, self._jobs_each * 2)
        else:
            self._jobs_each = max(1.0, jobs / lanes)
            self._patience = self.PATIENCE


class LaneClaimer:
    """Claims of one worker that meet limits."""

    def __init__(
        self, line: Line, upkeep: Line, session: int, tasks: Sequence[str], on_opened: Callable[[], None]
    ) -> None:
        self._line = line
        self._upkeep = upkeep
        self._on_opened = on_opened
        self._opening: asyncio.Task[None] | None = None
        self._session = session
        self._tasks = tasks
        self._floors = Floors()
        self._holding: dict[int, list[int]] = {}
        # Limiters that jobs of ours left, and how many.
        self._freed: dict[int, int] = {}
        self._freed_at = 0.0
        self._memory = KnownLimiters()
        # Where the walk over the lanes of a queue and band goes on, and how much a lane of a queue has to give.
        self._after: dict[tuple[str, int], float] = {}
        self._depths: dict[str, Depth] = {}
        # Lanes of slow jobs: one at a time is claimed of them.
        self._slow: dict[int, float] = {}
        self._known = Claim([])
        self._empty = 0
        self._refused = 0
        # When a limiter is due, by our clock.
        self._look_at: float | None = None
        # Queues whose lanes had something to give when they were last asked.
        self.busy: set[str] = set()
        self.rest: float | None = None

    @property
    def wakes_from(self) -> int:
        return self._floors.of(_WAKES, 0)

    def settled(self, ids: Sequence[int], gone: Collection[int]) -> bool:
        """These ended, some of them for good: what they held is free. True when somebody may have waited for it."""
        if not self._holding:
            return False
        was_empty, found = not self._freed, False
        for job_id in ids:
            limiters = self._holding.pop(job_id, ())
            for limiter in limiters:
                self._freed[limiter] = self._freed.get(limiter, 0) + 1
                found = True
            if limiters and job_id in gone:
                self._memory.ended(job_id, limiters)
        if found and was_empty:
            self._freed_at = monotonic()
        return found

    async def learn(self, known: Claim, *, back: bool) -> None:
        """What the claim of plain jobs saw; lanes that are to be woken are woken."""
        before, self._known = self._known, known
        self.rest = None
        if before.limits_changed_at and known.limits_changed_at != before.limits_changed_at:
            await self._line.run(look_again(before.limits_changed_at))
        if not known.has_wakes or self._opening is not None:
            return
        count, left = await self._open(self._line, 0 if back else self.wakes_from)
        # Somebody else is at it, or holds a lane: soon again, and less soon if that lasts.
        self._refused = self._refused + 1 if left else 0
        if left:
            self.rest = min(PATIENCE, CONTENDED * 2.0 ** min(self._refused, 10))
        elif count >= WAKES:
            self.rest = 0.0
            self._opening = asyncio.create_task(self._open_rest())

    async def _open(self, line: Line, floor: int) -> tuple[int, int]:
        count, lowest, left = await line.run(open_lanes(floor))
        if lowest is not None:
            self._floors.claimed(_WAKES, 0, [lowest], filled=count >= WAKES)
        return count, left

    async def _open_rest(self) -> None:
        """Many wake-ups are read on the side: what is open already need not wait for them."""
        try:
            count, left = WAKES, 0
            while count >= WAKES and not left:
                count, left = await self._open(self._upkeep, self.wakes_from)
                self._on_opened()
        except (DatabaseUnavailable, psycopg.Error):
            # They are still there: the next claim meets them, and says what is wrong.
            pass
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])

    def conditions(self, queues: Iterable[str]) -> bool:
        """Whether any of these queues may have something under limits to start."""
        known = self._known
        return known.has_wakes or known.has_due or bool(self._freed) or any(self.has_work(queue) for queue in queues)

    def has_work(self, queue: str) -> bool:
        return queue in self._known.laned or queue in self._known.gated

    async def claim(self, wanted: Sequence[Mapping[str, Any]], free: FreeProcesses, *, turned: bool) -> LaneClaim:
        """Jobs of lanes; `wanted` as for plain jobs. `turned`: bands are walked from the other end."""
        order = list(reversed(PRIORITIES)) if turned else list(PRIORITIES)
        freed, self._freed = self._freed, {}
        asked = [
            {
                **item,
                "lanes": self._depth(item["queue"]).lanes(item["room"]),
                "bands": [{"band": band, "after": self._after.get((item["queue"], band), 0.0)} for band in order],
            }
            for item in wanted
        ]
        bands = [FAIR_BAND, *order] if turned else [*order, FAIR_BAND]
        known = self._memory.known()
        began = monotonic()
        try:
            got = await self._line.run(
                claim_lanes(self._session, self._tasks, asked, freed, bands, self._slow_now(), known, free), atomic=True
            )
        except BaseException:
            self._give_back(freed)
            raise
        # Those who wait from now on: what they wait for may have come free while that was being written.
        self._give_back(dict.fromkeys(got.blocking, 1))
        self._give_back({limiter: freed.get(limiter, 1) for limiter in got.missed})
        self._holding.update(got.holding)
        self._memory.learn(known, got)
        self._after.update(got.after)
        self._learn_depths(asked, got)
        if got.elsewhere:
            await self._line.run(hand_over(got.elsewhere))
        if got.lacks_limiters is not None:
            await self._line.run(make_limiters(got.lacks_limiters, [item["queue"] for item in wanted]))
        self._judge(got, monotonic() - began)
        return got

    def _slow_now(self) -> Collection[int]:
        while self._slow and next(iter(self._slow.values())) < monotonic():
            del self._slow[next(iter(self._slow))]
        return self._slow

    def slow(self, lane: int) -> None:
        """A job of it took long: its jobs are not claimed together for some time."""
        self._slow.pop(lane, None)
        self._slow[lane] = monotonic() + SLOW_SECONDS
        if len(self._slow) > MOST_SLOW:
            del self._slow[next(iter(self._slow))]

    def _depth(self, queue: str) -> Depth:
        return self._depths.setdefault(queue, Depth())

    def _learn_depths(self, asked: Sequence[Mapping[str, Any]], got: LaneClaim) -> None:
        jobs = Counter(job.queue for job in got.jobs)
        for item in asked:
            queue = item["queue"]
            if got.walked[queue] >= item["lanes"]:
                self._depth(queue).learn(item["room"], item["lanes"], jobs[queue])

    def _judge(self, got: LaneClaim, cost: float) -> None:
        """How long to rest, after a claim that took so many seconds."""
        self.busy = {job.queue for job in got.jobs} | got.more
        self._empty = 0 if got.jobs else self._empty + 1
        if got.is_contended:
            self.rest = CONTENDED
        elif ((got.more or got.passed_over) and self._empty < MOST_EMPTY) or got.blocking:
            self.rest = 0.0
        elif got.passed_over:
            self.rest = cost / WALK_SHARE
        self._look_at = None if got.next_look is None else monotonic() + got.next_look + 0.001

    def shorten(self, rest: float) -> float:
        """A rest, ended by the next limiter that is due, and by what came free and may have to be handed over."""
        now = monotonic()
        if self._look_at is not None and self._look_at <= now:
            self._look_at = None
            return 0.0 if self.rest is None else min(rest, self.rest)
        until_due = None if self._look_at is None else self._look_at - now
        patience = PATIENCE if self._freed else None
        return min(each for each in (rest, self.rest, until_due, patience) if each is not None)

    def _give_back(self, freed: Mapping[int, int]) -> None:
        if freed and not self._freed:
            self._freed_at = monotonic()
        for limiter, count in freed.items():
            self._freed[limiter] = self._freed.get(limiter, 0) + count

    async def hand_over(self, *, at_once: bool = False) -> None:
        """What came free here, and cannot be used here, is for others."""
        if self._freed and (at_once or monotonic() - self._freed_at > PATIENCE):
            told = await self._line.run(hand_over(self._freed))
            for limiter in told:
                self._freed.pop(limiter, None)
