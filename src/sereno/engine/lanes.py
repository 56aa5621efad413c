"""The part of a claimer that knows of limits: wakes lanes, claims them, remembers which gates came free.

A gate that a job of ours left is remembered here until its waiting lanes were looked at, so a settlement pays nothing
for it. If this process dies, the gate's own date in the table brings somebody to look.
"""

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from sereno.domain.job import PRIORITIES
from sereno.domain.lanes import FAIR_BAND
from sereno.engine.floor import Floors
from sereno.store.connect import Line
from sereno.store.jobs import Claim
from sereno.store.lanes import LaneClaim, claim_lanes, hand_over, look_again, make_gates, open_lanes

# As many wake-ups as one statement reads.
WAKES = 5000
# Another claim holds the same gate: it is done within this.
CONTENDED = 0.003
# What came free and was not used here after this long is for others.
PATIENCE = 0.1
# Lanes that give nothing (what they hold is paused, or unknown here) are passed over so often before we rest.
MOST_EMPTY = 20

_WAKES = "wakes"


class LaneClaims:
    """Claims of one worker that meet limits."""

    def __init__(self, line: Line, session: int, tasks: Sequence[str]) -> None:
        self._line = line
        self._session = session
        self._tasks = tasks
        self._floors = Floors()
        self._holding: dict[int, list[int]] = {}
        # Gates that jobs of ours left, and how many.
        self._freed: dict[int, int] = {}
        self._freed_at = 0.0
        # Where the walk over the lanes of a queue and band goes on.
        self._after: dict[tuple[str, int], float] = {}
        self._known = Claim([])
        self._empty = 0
        self._refused = 0
        # When a gate is due, by our clock.
        self._look_at: float | None = None
        # Queues whose lanes had something to give when they were last asked.
        self.busy: set[str] = set()
        self.rest: float | None = None

    @property
    def wakes_from(self) -> int:
        return self._floors.of(_WAKES, 0)

    def settled(self, ids: Sequence[int]) -> bool:
        """These ended: what they held is free. True when somebody may have waited for it."""
        if not self._holding:
            return False
        was_empty, found = not self._freed, False
        for job_id in ids:
            for gate in self._holding.pop(job_id, ()):
                self._freed[gate] = self._freed.get(gate, 0) + 1
                found = True
        if found and was_empty:
            self._freed_at = monotonic()
        return found

    async def learn(self, known: Claim, *, back: bool) -> None:
        """What the claim of plain jobs saw; lanes that are to be woken are woken."""
        before, self._known = self._known, known
        self.rest = None
        if before.limits_changed_at and known.limits_changed_at != before.limits_changed_at:
            await self._line.run(look_again(before.limits_changed_at))
        if not known.has_wakes:
            return
        count, lowest, left = await self._line.run(open_lanes(0 if back else self.wakes_from))
        if lowest is not None:
            self._floors.claimed(_WAKES, 0, [lowest], filled=count >= WAKES)
        # Somebody else is at it, or holds a lane: soon again, and less soon if that lasts.
        self._refused = self._refused + 1 if left else 0
        if left:
            self.rest = min(PATIENCE, CONTENDED * 2.0 ** min(self._refused, 10))
        elif count >= WAKES:
            self.rest = 0.0

    def concerns(self, queues: Iterable[str]) -> bool:
        """Whether any of these queues may have something under limits to start."""
        known = self._known
        return known.has_wakes or known.has_due or bool(self._freed) or any(self.has_work(queue) for queue in queues)

    def has_work(self, queue: str) -> bool:
        return queue in self._known.laned or queue in self._known.gated

    async def claim(self, wanted: Sequence[Mapping[str, Any]], *, turned: bool) -> LaneClaim:
        """Jobs of lanes; `wanted` as for plain jobs. `turned`: bands are walked from the other end."""
        order = list(reversed(PRIORITIES)) if turned else list(PRIORITIES)
        freed, self._freed = self._freed, {}
        asked = [
            {**item, "bands": [{"band": band, "after": self._after.get((item["queue"], band), 0.0)} for band in order]}
            for item in wanted
        ]
        bands = [FAIR_BAND, *order] if turned else [*order, FAIR_BAND]
        try:
            got = await self._line.run(claim_lanes(self._session, self._tasks, asked, freed, bands), atomic=True)
        except BaseException:
            self._give_back(freed)
            raise
        # Those who wait from now on: what they wait for may have come free while that was being written.
        self._give_back(dict.fromkeys(got.blocking, 1))
        self._give_back({gate: freed.get(gate, 1) for gate in got.missed})
        self._holding.update(got.holding)
        self._after.update(got.after)
        if got.elsewhere:
            await self._line.run(hand_over(got.elsewhere))
        if got.lacks_gates is not None:
            await self._line.run(make_gates(got.lacks_gates, [item["queue"] for item in wanted]))
        self._judge(got)
        return got

    def _judge(self, got: LaneClaim) -> None:
        """How long to rest."""
        self.busy = {job.queue for job in got.jobs} | got.more
        self._empty = 0 if got.jobs else self._empty + 1
        if got.is_contended:
            self.rest = CONTENDED
        elif (got.more and self._empty < MOST_EMPTY) or got.blocking:
            self.rest = 0.0
        self._look_at = None if got.next_look is None else monotonic() + got.next_look + 0.001

    def shorten(self, rest: float) -> float:
        """A rest, ended by the next gate that is due, and by what came free and may have to be handed over."""
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
        for gate, count in freed.items():
            self._freed[gate] = self._freed.get(gate, 0) + count

    async def hand_over(self, *, at_once: bool = False) -> None:
        """What came free here, and cannot be used here, is for others."""
        if self._freed and (at_once or monotonic() - self._freed_at > PATIENCE):
            told = await self._line.run(hand_over(self._freed))
            for gate in told:
                self._freed.pop(gate, None)
