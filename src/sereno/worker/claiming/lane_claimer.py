"""The part of the claimer for jobs with limits: opens lanes, claims their jobs, and tracks freed limiters.

When a job of this worker ends, its limiters are remembered here until their waiting lanes have been checked, so that
the settlement itself need not check them. If this process dies, the due time in the limiter's row makes another worker
check them.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

import psycopg

from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs.job import PRIORITIES
from sereno.jobs.limits.lane_claim import (
    FreeProcesses,
    LaneClaim,
    claim_lanes,
    hand_over,
    make_limiters,
    open_lanes,
    recheck,
)
from sereno.jobs.limits.lane_decision import FAIR_BAND, LaneName
from sereno.jobs.transitions import ClaimResult
from sereno.worker.claiming.floor import Floors
from sereno.worker.claiming.known_limiters import KnownLimiters

# Wake-ups that one statement reads at most.
WAKES = 5000
# Seconds of pause when another claim holds the same limiter; that claim takes about this long.
CONTENDED = 0.003
# Seconds after which a freed limiter that was not used here is handed over to other workers.
TIMEOUT = 0.1
# Consecutive claims without a job (the lanes have only jobs that are paused or unknown here) before the claimer rests.
MOST_EMPTY = 20

# Share of the time that such claims may take afterwards: there may be other jobs behind the skipped ones.
WALK_SHARE = 0.05

# Lanes of slow jobs that are remembered, and for how many seconds.
MOST_SLOW = 1000
SLOW_SECONDS = 60.0

_WAKES = "wakes"


class LaneDepth:
    """Estimates from the last claims how many jobs one lane of a queue yields.

    A few lanes with many jobs each cost less to claim than many lanes with few jobs.
    """

    FEWEST = 16
    DEEPEST = 64.0
    # Full claims that have to follow one that got too few jobs, before the estimate is doubled again.
    TIMEOUT = 10

    def __init__(self) -> None:
        self._jobs_each = 1.0
        self._timeout = 0

    def lanes(self, wanted: int) -> int:
        """Return the number of lanes to read for `wanted` jobs."""
        return min(wanted, max(self.FEWEST, math.ceil(wanted / self._jobs_each)))

    def learn(self, wanted: int, lanes: int, jobs: int) -> None:
        if jobs >= 0.9 * wanted:
            self._timeout -= 1
            if self._timeout < 0:
                self._jobs_each = min(self.DEEPEST, self._jobs_each * 2)
        else:
            self._jobs_each = max(1.0, jobs / lanes)
            self._timeout = self.TIMEOUT


class LaneClaimer:
    """Claims jobs with limits for one worker."""

    def __init__(
        self,
        connection: ServiceConnection,
        upkeep: ServiceConnection,
        session: int,
        tasks: Sequence[str],
        on_opened: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._upkeep = upkeep
        self._on_opened = on_opened
        self._opening: asyncio.Task[None] | None = None
        self._session = session
        self._tasks = tasks
        self._floors = Floors()
        self._holding: dict[int, list[int]] = {}
        # Limiters of jobs that have ended here, with the number of those jobs.
        self._freed: dict[int, int] = {}
        self._freed_at = 0.0
        self._memory = KnownLimiters()
        # Where the scan of the lanes of a queue and band continues, and how many jobs a lane of a queue yields.
        self._after: dict[tuple[str, int], float] = {}
        self._depths: dict[str, LaneDepth] = {}
        # Lanes of slow jobs and when to forget them; their jobs are claimed one at a time.
        self._slow: dict[LaneName, float] = {}
        # What the last claim of jobs without limits reported.
        self._last_claim = ClaimResult([])
        self._empty = 0
        self._refused = 0
        # When the next limiter is due, by the monotonic clock.
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

    async def learn(self, claim: ClaimResult, *, back: bool) -> None:
        """Store what the claim of jobs without limits saw, and open the lanes that have wake-ups."""
        before, self._last_claim = self._last_claim, claim
        self.rest = None
        if before.limits_changed_at and claim.limits_changed_at != before.limits_changed_at:
            await self._connection.run(recheck(before.limits_changed_at))
        if not claim.has_wakes or self._opening is not None:
            return
        count, left = await self._open(self._connection, 0 if back else self.wakes_from)
        # Another worker opens them or holds a lane: try again soon, with pauses that double while that lasts.
        self._refused = self._refused + 1 if left else 0
        if left:
            self.rest = min(TIMEOUT, CONTENDED * 2.0 ** min(self._refused, 10))
        elif count >= WAKES:
            self.rest = 0.0
            self._opening = asyncio.create_task(self._open_rest())

    async def _open(self, connection: ServiceConnection, floor: int) -> tuple[int, int]:
        count, lowest, left = await connection.run(open_lanes(floor))
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
        claim = self._last_claim
        return claim.has_wakes or claim.has_due or bool(self._freed) or any(self.has_work(queue) for queue in queues)

    def has_work(self, queue: str) -> bool:
        return queue in self._last_claim.lane_queues or queue in self._last_claim.limited_queues

    async def claim(self, wanted: Sequence[Mapping[str, Any]], free: FreeProcesses, *, turned: bool) -> LaneClaim:
        """Claim jobs of lanes; `wanted` as for jobs without limits. `turned`: read the bands in reverse order."""
        order = list(reversed(PRIORITIES)) if turned else list(PRIORITIES)
        freed, self._freed = self._freed, {}
        request = [
            {
                **item,
                "lanes": self._depth(item["queue"]).lanes(item["slots"]),
                "bands": [{"band": band, "after": self._after.get((item["queue"], band), 0.0)} for band in order],
            }
            for item in wanted
        ]
        bands = [FAIR_BAND, *order] if turned else [*order, FAIR_BAND]
        known = self._memory.known()
        began = monotonic()
        try:
            claimed = await self._connection.run(
                claim_lanes(self._session, self._tasks, request, freed, bands, self._slow_now(), known, free),
                atomic=True,
            )
        except BaseException:
            self._remember_freed(freed)
            raise
        # Lanes that wait from now on: their limiter may have come free while the wait was being written.
        self._remember_freed(dict.fromkeys(claimed.blocking, 1))
        self._remember_freed({limiter: freed.get(limiter, 1) for limiter in claimed.missed})
        self._holding.update(claimed.holding)
        self._memory.learn(known, claimed)
        self._after.update(claimed.after)
        self._learn_depths(request, claimed)
        if claimed.elsewhere:
            await self._connection.run(hand_over(claimed.elsewhere))
        if claimed.lacks_limiters is not None:
            await self._connection.run(make_limiters(claimed.lacks_limiters, [item["queue"] for item in wanted]))
        self._set_rest(claimed, monotonic() - began)
        return claimed

    def _slow_now(self) -> Collection[LaneName]:
        while self._slow and next(iter(self._slow.values())) < monotonic():
            del self._slow[next(iter(self._slow))]
        return self._slow

    def slow(self, lane: LaneName) -> None:
        """Claim the jobs of this lane one at a time for SLOW_SECONDS, because one of them took long."""
        self._slow.pop(lane, None)
        self._slow[lane] = monotonic() + SLOW_SECONDS
        if len(self._slow) > MOST_SLOW:
            del self._slow[next(iter(self._slow))]

    def _depth(self, queue: str) -> LaneDepth:
        return self._depths.setdefault(queue, LaneDepth())

    def _learn_depths(self, request: Sequence[Mapping[str, Any]], claimed: LaneClaim) -> None:
        jobs = Counter(job.queue for job in claimed.jobs)
        for item in request:
            queue = item["queue"]
            if claimed.walked[queue] >= item["lanes"]:
                self._depth(queue).learn(item["slots"], item["lanes"], jobs[queue])

    def _set_rest(self, claimed: LaneClaim, cost: float) -> None:
        """Set the rest after a claim that took `cost` seconds."""
        self.busy = {job.queue for job in claimed.jobs} | claimed.more
        self._empty = 0 if claimed.jobs else self._empty + 1
        if claimed.is_contended:
            self.rest = CONTENDED
        elif ((claimed.more or claimed.passed_over) and self._empty < MOST_EMPTY) or claimed.blocking:
            self.rest = 0.0
        elif claimed.passed_over:
            self.rest = cost / WALK_SHARE
        self._due_at = None if claimed.next_check is None else monotonic() + claimed.next_check + 0.001

    def shorten(self, rest: float) -> float:
        """Return `rest`, cut short by the next due limiter and by freed limiters that may have to be handed over."""
        now = monotonic()
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            return 0.0 if self.rest is None else min(rest, self.rest)
        until_due = None if self._due_at is None else self._due_at - now
        timeout = TIMEOUT if self._freed else None
        return min(each for each in (rest, self.rest, until_due, timeout) if each is not None)

    def _remember_freed(self, freed: Mapping[int, int]) -> None:
        if freed and not self._freed:
            self._freed_at = monotonic()
        for limiter, count in freed.items():
            self._freed[limiter] = self._freed.get(limiter, 0) + count

    async def hand_over(self, *, at_once: bool = False) -> None:
        """Hand over freed limiters that cannot be used here to other workers."""
        if self._freed and (at_once or monotonic() - self._freed_at > TIMEOUT):
            handed_over = await self._connection.run(hand_over(self._freed))
            for limiter in handed_over:
                self._freed.pop(limiter, None)
