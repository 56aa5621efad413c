"""The slots of one queue in one worker, and the small buffers of jobs claimed ahead for them.

Jobs without limits wait in one buffer, jobs with limits in another. When both kinds have work, each gets half of the
slots, so that neither holds up the other.
"""

from collections import deque
from collections.abc import Collection, Sequence
from time import monotonic

from sereno.domain.job import ClaimedJob

# Jobs for this long are claimed ahead, judged by how fast they ended lately: quick jobs come in large batches,
# slow ones are left to workers that have a slot for them.
AHEAD_SECONDS = 0.1
MOST_AHEAD = 1000
# Jobs with limits are claimed ahead for as many times as long as a claim takes: what waits here keeps others from their
# turn, and handlers that do nothing but end are to find the next ones here.
LIMITED_AHEAD = 2.0
MOST_LIMITED_AHEAD = 2000
# Less time than this says nothing about the pace.
SHORTEST_MEASURE = 0.01
# One claim takes at most this many of a queue; the claim statement has the same number.
LARGEST_CLAIM = 1000


class QueueSlots:
    """`calls` handlers run at once, at most `slots`; `limited_calls` of them are of jobs with limits."""

    def __init__(self, name: str, slots: int, largest_batch: int = 0) -> None:
        self.name = name
        self.slots = slots
        self.calls = 0
        self.limited_calls = 0
        self.buffer: deque[ClaimedJob] = deque()
        self.limited: deque[ClaimedJob] = deque()
        self.more = True
        # Jobs with limits may have something to start: their half of the slots is kept for them.
        self.more_limited = False
        self._largest_batch = largest_batch
        self._ahead = largest_batch
        self._limited_ahead = largest_batch
        self._turn = 0
        # The last place that each fair key has in the buffer.
        self._places: dict[str, int] = {}
        self._rate = 0.0
        self._limited_cost = 0.005
        self._ended = 0
        self._since = monotonic()

    def fresh(self) -> "QueueSlots":
        """The same queue for a new session: nothing runs, nothing is buffered."""
        return QueueSlots(self.name, self.slots, self._largest_batch)

    def room(self) -> int:
        """How many jobs without limits to ask for now."""
        wanted = self.slots - self.calls + self._ahead - len(self.buffer)
        if self.more_limited:
            wanted -= self._kept_for_limited()
        return max(0, min(LARGEST_CLAIM, wanted))

    def limited_room(self) -> int:
        """How many jobs with limits could start at once."""
        free = self.slots - self.calls
        if self.buffer:
            free = min(free, self._part() - self.limited_calls)
        return max(0, free - len(self.limited))

    def limited_room_ahead(self) -> int:
        """How many of them to ask for, if they need not start at once."""
        return min(MOST_LIMITED_AHEAD, self.limited_room() + max(0, self._limited_ahead - len(self.limited)))

    def next(self) -> deque[ClaimedJob] | None:
        """The buffer whose first job is to be started now."""
        if self.calls >= self.slots:
            return None
        if self.limited and (not self.buffer or self.limited_calls < self._part()):
            return self.limited
        if self.buffer and (not self.more_limited or self.calls - self.limited_calls < self.slots - self._part()):
            return self.buffer
        return None

    def add_limited(self, jobs: Sequence[ClaimedJob], first: Collection[int]) -> None:
        """They wait for a slot, in front of all or in turn. A fair key that comes late starts where others are."""
        if not self.limited:
            self._places.clear()
        front = self.limited[0].place if self.limited else 0
        for job in jobs:
            if job.id in first:
                job.place = front - 1
            elif job.fair is None:
                job.place = front
            else:
                job.place = self._places[job.fair] = max(front, self._places.get(job.fair, -1) + 1)
        self.limited = deque(sorted([*self.limited, *jobs], key=_place))

    def started(self, *, limited: bool) -> None:
        self._turn += 1
        self.calls += 1
        self.limited_calls += limited

    def ended(self, jobs: int, *, limited: bool) -> None:
        self.calls -= 1
        self.limited_calls -= limited
        self._ended += jobs

    def runs_low(self) -> bool:
        """Time to claim again: half of what was claimed ahead is used up."""
        return len(self.buffer) * 2 <= self._ahead

    def wants_more(self) -> bool:
        """Whether a claim now would get something that is needed."""
        if self.more and self.runs_low() and self.room() > 0:
            return True
        return self.more_limited and len(self.limited) * 2 <= self._limited_ahead and self.limited_room_ahead() > 0

    def took(self, seconds: float) -> None:
        """What a claim of jobs with limits cost."""
        self._limited_cost += 0.3 * (seconds - self._limited_cost)

    def measure(self) -> None:
        """Judge the pace since the last claim."""
        now = monotonic()
        elapsed = now - self._since
        if elapsed > SHORTEST_MEASURE:
            rate = self._ended / elapsed
            self._ahead = max(self._largest_batch, min(MOST_AHEAD, int(rate * AHEAD_SECONDS)))
            self._rate += 0.5 * (rate - self._rate)
            ahead = int(self._rate * self._limited_cost * LIMITED_AHEAD)
            self._limited_ahead = max(self._largest_batch, min(MOST_LIMITED_AHEAD, ahead))
            self._ended, self._since = 0, now

    def _part(self) -> int:
        """The part of jobs with limits while both kinds have work: half, and of an odd slot every second turn."""
        return (self.slots + self._turn % 2) // 2

    def _kept_for_limited(self) -> int:
        return max(0, self._part() - self.limited_calls)


def _place(job: ClaimedJob) -> int:
    return job.place
