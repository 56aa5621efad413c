"""The part of the claimer for jobs with limits: opens lanes, claims their jobs, remembers which limiters came free.

A limiter that one of our jobs has left is remembered here until its waiting lanes have been checked, so a settlement
pays nothing for it. If this process dies, the due time of the limiter in its table makes another worker check it.
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

# Wake-ups that one statement reads at most.
WAKES = 5000
# Seconds of pause when another claim holds the same limiter; that claim takes about this long.
CONTENDED = 0.003
# Seconds after which a freed limiter that was not used here is handed over to other workers.
PATIENCE = 0.1
# Claims without a job (the lanes hold jobs that are paused, or unknown here) that follow at once before we rest.
MOST_EMPTY = 20

# Share of the time that such claims may take afterwards: behind the skipped jobs there may be others.
WALK_SHARE = 0.05

# Lanes of slow jobs that are remembered, and for how many seconds.
MOST_SLOW = 1000
SLOW_SECONDS = 60.0

_WAKES = "wakes"


class Depth:
    """Estimates from the last claims how many jobs one lane of a queue yields.

    A few lanes with many jobs each cost less to claim than many lanes with few jobs.
    """

    FEWEST = 16
    DEEPEST = 64.0
    # Full claims that have to follow one that got too few jobs, before the estimate is doubled again.
    PATIENCE = 10

    def __init__(self) -> None:
        self._jobs_each = 1.0
        self._patience = 0

    def lanes(self, wanted: int) -> int:
        """Return the number of lanes to read for `wanted` jobs."""
        return min(wanted, max(self.FEWEST, math.ceil(wanted / self._jobs_each)))

    def learn(self, wanted: int, lanes: int, jobs: int) -> None:
        if jobs >= 0.9 * wanted:
            self._patience -= 1
            if self._patience < 0:
                self._jobs_each = min(self.DEEPEST, self._jobs_each * 2)
        else:
            self._jobs_each = max(1.0, jobs / lanes)
            self._patience = self.PATIENCE


class LaneClaimer:
    """Claims jobs with limits for one worker."""

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
        # Limiters that our jobs have left, and how many jobs.
        self._freed: dict[int, int] = {}
        self._freed_at = 0.0
        self._memory = KnownLimiters()
        # Where the scan of the lanes of a queue and band continues, and how many jobs a lane of a queue yields.
        self._after: dict[tuple[str, int], float] = {}
        self._depths: dict[str, Depth] = {}
        # Lanes of slow jobs and when to forget them; their jobs are claimed one at a time.
        self._slow: dict[int, float] = {}
        self._known = Claim([])
        self._empty = 0
        self._refused = 0
        # When the next limiter is due, by our clock.
        self._due_at: float | None = None
        # Queues whose lanes had jobs at the last claim.
        self.busy: set[str] = set()
        self.rest: float | None = None

    @property
    def wakes_from(self) -> int:
        return self._floors.of(_WAKES, 0)

    def settled(self, ids: Sequence[int], gone: Collection[int]) -> bool:
        """Free the limiters of settled jobs; `gone`: those that are done for good. Return whether any was freed."""
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
        """Store what the claim of jobs without limits saw, and open the lanes that have wake-ups."""
        before, self._known = self._known, known
        self.rest = None
        if before.limits_changed_at and known.limits_changed_at != before.limits_changed_at:
            await self._line.run(look_again(before.limits_changed_at))
        if not known.has_wakes or self._opening is not None:
            return
        count, left = await self._open(self._line, 0 if back else self.wakes_from)
        # Another worker opens them or holds a lane: try again soon, with pauses that double while that lasts.
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
        """Read a large number of wake-ups in the background, so that lanes that are open already need not wait."""
        try:
            count, left = WAKES, 0
            while count >= WAKES and not left:
                count, left = await self._open(self._upkeep, self.wakes_from)
                self._on_opened()
        except (DatabaseUnavailable, psycopg.Error):
            # The wake-ups are still stored: the next claim reads them and reports the error.
            pass
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])

    def conditions(self, queues: Iterable[str]) -> bool:
        """Return whether any of these queues may have jobs with limits to start."""
        known = self._known
        return known.has_wakes or known.has_due or bool(self._freed) or any(self.has_work(queue) for queue in queues)

    def has_work(self, queue: str) -> bool:
        return queue in self._known.laned or queue in self._known.gated

    async def claim(self, wanted: Sequence[Mapping[str, Any]], free: FreeProcesses, *, turned: bool) -> LaneClaim:
        """Claim jobs of lanes; `wanted` as for jobs without limits. `turned`: read the bands in reverse order."""
        order = list(reversed(PRIORITIES)) if turned else list(PRIORITIES)
        freed, self._freed = self._freed, {}
        request = [
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
                claim_lanes(self._session, self._tasks, request, freed, bands, self._slow_now(), known, free),
                atomic=True,
            )
        except BaseException:
            self._give_back(freed)
            raise
        # Lanes that wait from now on: their limiter may have come free while the wait was being written.
        self._give_back(dict.fromkeys(got.blocking, 1))
        self._give_back({limiter: freed.get(limiter, 1) for limiter in got.missed})
        self._holding.update(got.holding)
        self._memory.learn(known, got)
        self._after.update(got.after)
        self._learn_depths(request, got)
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
        """Claim the jobs of this lane one at a time for SLOW_SECONDS, because one of them took long."""
        self._slow.pop(lane, None)
        self._slow[lane] = monotonic() + SLOW_SECONDS
        if len(self._slow) > MOST_SLOW:
            del self._slow[next(iter(self._slow))]

    def _depth(self, queue: str) -> Depth:
        return self._depths.setdefault(queue, Depth())

    def _learn_depths(self, request: Sequence[Mapping[str, Any]], got: LaneClaim) -> None:
        jobs = Counter(job.queue for job in got.jobs)
        for item in request:
            queue = item["queue"]
            if got.walked[queue] >= item["lanes"]:
                self._depth(queue).learn(item["room"], item["lanes"], jobs[queue])

    def _judge(self, got: LaneClaim, cost: float) -> None:
        """Set the rest after a claim that took `cost` seconds."""
        self.busy = {job.queue for job in got.jobs} | got.more
        self._empty = 0 if got.jobs else self._empty + 1
        if got.is_contended:
            self.rest = CONTENDED
        elif ((got.more or got.passed_over) and self._empty < MOST_EMPTY) or got.blocking:
            self.rest = 0.0
        elif got.passed_over:
            self.rest = cost / WALK_SHARE
        self._due_at = None if got.next_look is None else monotonic() + got.next_look + 0.001

    def shorten(self, rest: float) -> float:
        """Return `rest`, cut short by the next due limiter and by freed limiters that may have to be handed over."""
        now = monotonic()
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            return 0.0 if self.rest is None else min(rest, self.rest)
        until_due = None if self._due_at is None else self._due_at - now
        patience = PATIENCE if self._freed else None
        return min(each for each in (rest, self.rest, until_due, patience) if each is not None)

    def _give_back(self, freed: Mapping[int, int]) -> None:
        if freed and not self._freed:
            self._freed_at = monotonic()
        for limiter, count in freed.items():
            self._freed[limiter] = self._freed.get(limiter, 0) + count

    async def hand_over(self, *, at_once: bool = False) -> None:
        """Hand over freed limiters that cannot be used here to other workers."""
        if self._freed and (at_once or monotonic() - self._freed_at > PATIENCE):
            handed_over = await self._line.run(hand_over(self._freed))
            for limiter in handed_over:
                self._freed.pop(limiter, None)
