"""Decides which part of the index of ready jobs one claim reads.

A claim skips entries that it cannot take: jobs of a paused tenant or task, jobs of tasks unknown to this worker, dead
entries that a pinned snapshot retains. Each costs a little, so a claim that always read to the end of the index would
slow down with them and finally exceed its time limit. Two rules bound it:

- Once the index is large, a claim reads a bounded range of ready_seq at its floor, another bounded range of the
  look-back, and everything that is newer than about two seconds. ready_seq comes from one sequence, so a range holds
  at most as many entries as it is wide. A look-back continues where the last one stopped.
- A claim that read a range to its end and still had free slots raises the floor past it. Entries that were skipped
  there are found by look-backs; when a pause ends, the floors are reset to zero.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from sereno.jobs.job import ClaimedJob
from sereno.jobs.transitions import ReadyIndex
from sereno.worker.claiming.floor import Floors

UNBOUNDED = 2**63 - 1
# Bytes of the index up to which a claim may read all of it: about 900,000 entries.
SMALL_INDEX = 32 * 2**20
# Entries in a range. The widest takes one or two seconds if all of it has to be skipped.
NARROWEST, WIDEST = 100_000, 4_000_000
# Duration of a claim in seconds: below the first value the next range is wider, above the second it is narrower.
CHEAP, DEAR = 0.02, 0.2
# Seconds. A claim that took longer and got fewer jobs than wanted raises its floors even while the index is small.
SLOW = 0.01
# Floors stay below the value that the sequence had this many seconds ago: a transaction that drew a number earlier may
# not have committed yet.
SETTLED_AFTER = 2.0


class RangeWidth:
    """How many values of ready_seq one claim reads, adapted to the cost of the last claims."""

    def __init__(self) -> None:
        self.value = NARROWEST

    def learn(self, cost: float) -> None:
        if cost > DEAR:
            self.value = max(NARROWEST, self.value // 4)
        elif cost < CHEAP:
            self.value = min(WIDEST, self.value * 2)

    def failed(self) -> None:
        self.value = NARROWEST


class ClaimRanges:
    """The ranges of one worker's claims. For each claim: `begin`, `steps` for each queue, then `learn` or `failed`."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._is_large = True
        self.is_known = False
        self._heads: deque[tuple[float, int]] = deque()
        self._head = self._settled = 0
        self._width, self._back_width = RangeWidth(), RangeWidth()
        # Where the next look-back starts, and the range of the current one.
        self._back_from = 0
        self._back: tuple[int, int] | None = None
        # By queue and priority: where the current claim stops reading, and where its look-back ends.
        self._ceilings: dict[tuple[str, int], int] = {}
        self._back_ends: dict[tuple[str, int], int] = {}
        self._has_raised = False
        self._paused: frozenset[tuple[str, str]] = frozenset()
        self.is_first_pass = True

    def see(self, index: ReadyIndex) -> None:
        """Set the size and head of the index, before the first claim."""
        self._is_large = index.size > SMALL_INDEX
        self._settled = index.head
        self.is_known = True

    def begin(self, now: float, *, back: bool) -> None:
        """Fix the ranges of the claim that is about to be sent."""
        while len(self._heads) > 1 and self._heads[1][0] <= now - SETTLED_AFTER:
            self._heads.popleft()
        if self._heads and self._heads[0][0] <= now - SETTLED_AFTER:
            self._settled = self._heads[0][1]
        self._back = None
        self._back_ends.clear()
        if back:
            start = self._back_from if self._is_large else 0
            self._back = (start, start + self._back_width.value if self._is_large else UNBOUNDED)

    def steps(self, queue: str, priorities: Iterable[int]) -> list[dict[str, Any]]:
        """Return the ranges of each priority, in reading order."""
        found: list[dict[str, Any]] = []
        for priority in priorities:
            floor = self._floors.of(queue, priority)
            if self._back is not None and self._back[0] < (end := min(floor, self._back[1])):
                found.append(_step(priority, self._back[0], end))
                self._back_ends[queue, priority] = end
            ceiling = self._ceilings[queue, priority] = self._ceiling(floor)
            found.append(_step(priority, floor, ceiling))
            if ceiling < UNBOUNDED:
                found.append(_step(priority, self._settled, UNBOUNDED))
        return found

    def _ceiling(self, floor: int) -> int:
        ceiling = floor + self._width.value
        return ceiling if self._is_large and ceiling < self._settled else UNBOUNDED

    def claimed(self, queue: str, priority: int, values: Collection[int], *, filled: bool) -> None:
        """Update a floor after a claim that got these values of ready_seq; values above its range are ignored."""
        ceiling = self._ceilings[queue, priority]
        below = values if ceiling >= UNBOUNDED else [value for value in values if value < ceiling]
        if below:
            self._floors.claimed(queue, priority, below, filled=filled)

    def read_to_the_end(self, queue: str, priorities: Iterable[int], cost: float) -> bool:
        """Raise the floors past the ranges of a claim that got too few jobs; return whether any range is unread."""
        if not self._is_large and cost <= SLOW:
            return False
        more = False
        for priority in priorities:
            floor = self._floors.of(queue, priority)
            ceiling = self._ceilings[queue, priority]
            more = more or ceiling < UNBOUNDED
            reached = min(ceiling, self._settled)
            if reached > floor:
                self._floors.raise_to(queue, priority, reached)
                self._has_raised = True
        return more

    @property
    def ends_pass(self) -> bool:
        """Whether the current look-back is the last one of its pass."""
        return self._back is not None and self._back[1] >= self._floors.highest()

    def has_old(self, jobs: Iterable[ClaimedJob]) -> bool:
        """Return whether the current look-back found any of these jobs below the floor."""
        if not self._back_ends:
            return False
        return any(job.ready_seq < self._back_ends.get((job.queue, job.priority), 0) for job in jobs)

    def learn(
        self, now: float, cost: float, index: ReadyIndex, paused: frozenset[tuple[str, str]], *, again: bool = False
    ) -> None:
        """Adapt the ranges to the cost of a claim in seconds, and to the index and the pauses that it reported.

        `again`: read the same range in the next look-back, because it had more jobs than free slots.
        """
        (self._width if self._back is None else self._back_width).learn(cost)
        if self._back is not None and not again:
            self._back_from = 0 if self.ends_pass else self._back[1]
            self.is_first_pass = self.is_first_pass and self._back_from > 0
        if index.head < self._head:
            self._forget()
        self._head = index.head
        if not self._heads or now - self._heads[-1][0] >= SETTLED_AFTER / 10:
            self._heads.append((now, index.head))
        self._is_large = index.size > SMALL_INDEX
        if self._paused - paused:
            self._reset_floors()
        self._paused = paused

    def failed(self) -> None:
        """Narrow the ranges after a claim that exceeded its time limit."""
        self._width.failed()
        self._back_width.failed()
        self._is_large = True

    def _forget(self) -> None:
        """Start from zero: the sequence went back, because a standby without the last commits was promoted."""
        self._floors.clear()
        self._heads.clear()
        self._settled = self._back_from = 0

    def _reset_floors(self) -> None:
        """Reset the floors after a pause has ended: jobs that were skipped may be claimed now."""
        if self._has_raised or self._is_large:
            self._floors.clear()
        self._has_raised = False
        self._back_from = 0


def _step(priority: int, floor: int, ceiling: int) -> dict[str, Any]:
    return {"priority": priority, "floor": floor, "ceiling": ceiling}
